//! `slotpress demo`.

use std::process::{Command, Stdio};

use crate::common::screen::*;
use crate::common::*;

/// The seven commands of the script are shown. With `--quiet`, only paths are printed.
#[test]
fn the_demo_shows_a_script_of_commands() {
    let dir = temp_dir();
    let kept = dir.path().join("kept");
    let (code, stdout, _) = run_to_text(&["demo", "--size", "8MiB", "--keep", text(&kept)]);
    let commands = stdout.lines().filter(|line| line.starts_with("$ slotpress ")).count();
    assert_eq!((code, commands), (0, 7), "{stdout}");
    assert!(kept.join("restored/snapshots").is_dir(), "{stdout}");
    let (code, stdout, _) = run_to_text(&["demo", "--size", "8MiB", "--quiet"]);
    assert_eq!(code, 0, "{stdout}");
    assert!(!stdout.is_empty());
    assert!(
        stdout.lines().all(|line| ["ledger", "archives/", "restored/"].iter().any(|dir| line.starts_with(dir))),
        "{stdout}"
    );
}

#[test]
fn a_demo_removes_what_a_killed_demo_left() {
    let dir = temp_dir();
    let demo = || {
        let mut command = Command::new(slotpress_path());
        command.args(["demo", "--size", "8MiB"]).env("TMPDIR", dir.path());
        command
    };
    let mut child = demo().stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
    wait_for("a ledger", || relative_paths(dir.path()).iter().any(|name| name.ends_with("/ledger")));
    child.kill().expect("killed");
    child.wait().expect("ends");
    assert!(!relative_paths(dir.path()).is_empty(), "the killed demo left nothing");
    let output = demo().output().expect("runs");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}");
    assert!(stdout.contains("\nGOOD: "), "{stdout}");
    assert_eq!(relative_paths(dir.path()), Vec::<String>::new());
}
