//! `slotpress demo`.

use std::process::{Command, Stdio};

use crate::common::screen::*;
use crate::common::*;

/// Each command of the script is shown before what it prints; with `--quiet`, only paths are.
#[test]
fn a_script_of_commands() {
    let dir = temp_dir();
    let kept = dir.path().join("kept");
    let (code, said, _) = run(&["demo", "--size", "8MiB", "--keep", text(&kept)]);
    let commands = said.lines().filter(|line| line.starts_with("$ slotpress ")).count();
    assert!(code == 0 && commands == 7 && kept.join("restored/snapshots").is_dir(), "{said}");
    let (_, said, _) = run(&["demo", "--size", "8MiB", "--quiet"]);
    assert!(
        said.lines().all(|line| ["ledger", "archives/", "restored/"].iter().any(|dir| line.starts_with(dir))),
        "{said}"
    );
}

/// A demo removes what a killed demo has left.
#[test]
fn a_demo_and_what_a_killed_one_leaves() {
    let dir = temp_dir();
    let demo = || {
        let mut command = Command::new(slotpress_path());
        command.args(["demo", "--size", "8MiB"]).env("TMPDIR", dir.path());
        command
    };
    let mut child = demo().stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
    wait_for("a ledger", || names(dir.path()).iter().any(|name| name.ends_with("/ledger")));
    child.kill().expect("killed");
    child.wait().expect("ends");
    assert!(!names(dir.path()).is_empty(), "a killed program removes nothing");
    let output = demo().output().expect("runs");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && stdout.contains("\nGOOD: "), "{stdout}");
    assert_eq!(names(dir.path()), Vec::<String>::new());
}
