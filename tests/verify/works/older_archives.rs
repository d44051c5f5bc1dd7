//! Archives by older versions of slotpress, with an index of version 1, and a mark of `pzstd` in front
//! of each frame; and newer archives, read by older versions.

use std::fs;
use std::process::Command;

use crate::common::*;

/// An archive with an index of version 1 is verified and restored like one of another program: in
/// order, and without a root.
#[test]
fn archives_with_an_older_index_are_read() {
    let archive = fixture_of("slotpress-marks", "snapshot-26-");
    let none: serde_json::Value = "[]".parse().expect("JSON");
    let (code, report, stderr) = run_json(&["verify", text(&archive)], None);
    assert_eq!((code, &report["warnings"], &report["failures"]), (0, &none, &none), "{stderr}");
    assert!(report["roots"][0].is_null(), "{report}");
    let dir = temp_dir();
    for from in [text(&archive), "-"] {
        let ledger = dir.path().join("ledger");
        let (code, _, stderr) = run_json(&["restore", from, "--ledger", text(&ledger)], Some(&archive));
        assert_eq!(code, 0, "{from}: {stderr}");
        fs::remove_dir_all(ledger).expect("removed");
    }
    let root = "5b".repeat(32);
    let (code, _, stderr) = run_json(&["verify", text(&archive), "--expect-root", &root], None);
    assert_eq!(code, 3, "{stderr}");
}

/// An older program verifies (without marks), restores and inspects archives of this one.
#[test]
#[ignore = "SLOTPRESS_OLD names a slotpress that writes marks"]
fn older_programs_read_newer_archives() {
    let older = std::env::var_os("SLOTPRESS_OLD").expect("SLOTPRESS_OLD names a program");
    let dir = temp_dir();
    let full = fixture(FULL_26);
    let (code, written, stderr) =
        run_json(&["recompress", text(&full), "-o", text(dir.path()), "--frame-size", "64KiB"], None);
    assert_eq!(code, 0, "{stderr}");
    let path = written["path"].as_str().expect("a path");
    let ledger = dir.path().join("ledger");
    let ledger = text(&ledger);
    let old = |arguments: &[&str]| {
        let output = Command::new(&older).args(arguments).arg("--json").output().expect("runs");
        (output.status.code(), first_line(&output.stdout))
    };
    for flags in [&[][..], &["--ignore-index"]] {
        let restored = old(&[&["restore", path, "--ledger", ledger], flags].concat());
        assert_eq!(restored.0, Some(0), "{flags:?}: {}", restored.1);
        fs::remove_dir_all(ledger).expect("removed");
    }
    let verified = old(&["verify", path]).1;
    let failures = verified["failures"].as_array().expect("failures");
    assert!(failures.iter().all(|failure| failure["rule"] == "pzstd-mark" || failure["rule"] == "index"), "{verified}");
    assert!(
        verified["clients"].as_array().expect("clients").iter().all(|client| client["loads"] == true),
        "{verified}"
    );
}
