//! `slotpress demo`.

use std::process::{Command, Stdio};

use crate::common::screen::*;
use crate::common::*;

/// With `--quiet`, only the kept directory is printed.
#[test]
fn a_quiet_demo() {
    let dir = temp_dir();
    let kept = dir.path().join("kept");
    let demo = ["demo", "--size", "8MiB", "--quiet"];
    assert_eq!(run(&demo).1, "");
    assert_eq!(run(&[&demo[..], &["--keep", text(&kept)]].concat()).1, format!("{}\n", kept.display()));
}

/// The demo prints only what it measured in its short run. It removes what a killed demo has left.
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
    assert!(output.status.success() && stdout.contains("\nArchived at "), "{stdout}");
    assert!(!stdout.contains("450 GB"), "{stdout}");
    assert_eq!(names(dir.path()), Vec::<String>::new());
}
