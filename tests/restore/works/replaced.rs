//! Restores into a ledger that already has a state.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::screen::*;
use crate::common::*;

/// An old state is moved aside. Archives and the validator's files stay.
#[test]
fn restore_replaces_a_state() {
    let dir = temp_dir();
    let full = fixture(FULL_26);
    let incremental = fixture(INCREMENTAL_26_40);
    let target = dir.path().join("ledger");
    let restore = |flags: &[&str]| {
        let arguments = ["restore", text(&full), text(&incremental), "--ledger", text(&target), "--json"];
        run_to_text(&[&arguments[..], flags].concat())
    };
    let (code, _, stderr) = run_to_text(&["restore", text(&full), "--ledger", text(&target)]);
    assert_eq!(code, 0, "{stderr}");
    fs::write(target.join("tower-1_9-x.bin"), "the validator's").expect("written");
    let before = tree(&target);
    let (code, _, stderr) = restore(&[]);
    assert_eq!(code, 5, "{stderr}");
    assert!(stderr.contains("--replace-state"), "{stderr}");
    // The same state is not restored again.
    let (code, _, stderr) = run_to_text(&["restore", text(&full), "--ledger", text(&target)]);
    assert_eq!((code, stderr.as_str()), (5, "error: slot 26 is already there: start the validator\n"));
    // A run that is refused changes nothing.
    let (code, _, stderr) = restore(&["--replace-state", "--expect-slot", "41"]);
    assert_eq!(code, 3, "{stderr}");
    assert!(tree(&target) == before, "{stderr}");
    let (code, stdout, stderr) = restore(&["--replace-state"]);
    assert_eq!(code, 0, "{stderr}");
    let line: Value = serde_json::from_str(stdout.lines().last().expect("a line")).expect("JSON");
    assert_eq!(line["replaced"].as_array().map(Vec::len), Some(2), "{stdout}");
    let after = tree(&target);
    for path in ["snapshots/40/fastboot_version", FULL_26, "tower-1_9-x.bin"] {
        assert!(after.contains_key(path), "{path}: {after:?}");
    }
    assert!(!after.contains_key("snapshots/26/fastboot_version"), "{after:?}");
    assert!(after.keys().any(|path| path.contains("slotpress-replaced-")), "{after:?}");
    let (code, stdout, stderr) = run_to_text(&["verify", text(&target)]);
    assert_eq!(code, 0, "{stdout}{stderr}");
}

/// A validator starts from the newest archives, so newer ones are an error or are moved aside.
#[test]
fn newer_archives_are_refused_or_moved_aside() {
    let full = fixture(FULL_26);
    for (inner, from_stdin) in [("", false), ("remote", false), ("", true)] {
        let dir = temp_dir();
        let target = dir.path().join("ledger");
        let newer = target.join(inner).join(INCREMENTAL_26_40);
        fs::create_dir_all(newer.parent().expect("a parent")).expect("made");
        fs::copy(fixture(INCREMENTAL_26_40), &newer).expect("copied");
        // A validator would use the incremental archive only together with its full archive.
        let source = if from_stdin { "-" } else { text(&full) };
        let restore = |flags: &[&str]| {
            let arguments = [&["restore", source, "--ledger", text(&target)], flags].concat();
            run_to_first_line(&arguments, from_stdin.then_some(&full))
        };
        fs::copy(&full, target.join(FULL_26)).expect("copied");
        fs::write(target.join("ledger.lock"), "").expect("written");
        let before = tree(&target);
        let (code, _, stderr) = restore(&[]);
        assert_eq!(code, 5, "{stderr}");
        for text in ["slot 26", "--replace-state", INCREMENTAL_26_40] {
            assert!(stderr.contains(text), "{text}: {stderr}");
        }
        assert!(tree(&target) == before, "{stderr}");
        let (code, report, stderr) = restore(&["--replace-state"]);
        assert_eq!(code, 0, "{stderr}");
        let aside = Path::new(report["replaced"][0].as_str().expect("a path")).join(inner).join(INCREMENTAL_26_40);
        assert!(fs::read(aside).expect("moved") == fs::read(fixture(INCREMENTAL_26_40)).expect("read"));
        assert!(!newer.exists());
        assert!(target.join("snapshots/26/fastboot_version").exists());
    }
    // A validator would not use an archive on a different base.
    let dir = temp_dir();
    let other = dir.path().join(INCREMENTAL_26_40.replace("-26-40-", "-20-40-"));
    fs::copy(fixture(INCREMENTAL_26_40), &other).expect("copied");
    let (code, _, stderr) = run_to_text(&["restore", text(&full), "--ledger", text(dir.path())]);
    assert_eq!(code, 0, "{stderr}");
    assert!(other.exists());
}
