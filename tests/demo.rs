//! `slotpress demo`.

use std::process::{Command, Stdio};

use crate::common::screen::*;
use crate::common::*;

/// `--quiet` leaves of the demo the directory that stays.
#[test]
fn a_quiet_demo() {
    let dir = temp_dir();
    let kept = dir.path().join("kept");
    let demo = ["demo", "--size", "8MiB", "--quiet"];
    assert_eq!(run(&demo).1, "");
    assert_eq!(run(&[&demo[..], &["--keep", text(&kept)]].concat()).1, format!("{}\n", kept.display()));
}

/// A demo says of its short run what it measured, and no more; what a killed one has left goes with
/// the next one.
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
