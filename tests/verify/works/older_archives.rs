//! Archives that older versions of slotpress wrote. They have an index of version 1, and a mark of `pzstd` in front of
//! each frame. An ignored test checks that older versions read newer archives.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::common::*;

/// Returns an archive with an index of version 1, which is read in order, like one of another program.
fn older_archive() -> PathBuf {
    fixture_of("slotpress-marks", "snapshot-26-")
}

#[test]
fn archives_with_an_older_index_are_good() {
    let (code, report, stderr) = run_to_first_line(&["verify", text(&older_archive())], None);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(report["warnings"], serde_json::json!([]));
    assert_eq!(report["failures"], serde_json::json!([]));
}

#[test]
fn archives_with_an_older_index_have_no_root() {
    let archive = older_archive();
    let (_, report, _) = run_to_first_line(&["verify", text(&archive)], None);
    assert!(report["roots"][0].is_null(), "{report}");
    let root = "5b".repeat(32);
    let (code, _, stderr) = run_to_first_line(&["verify", text(&archive), "--expect-root", &root], None);
    assert_eq!(code, 3, "{stderr}");
}

#[test]
fn archives_with_an_older_index_are_restored() {
    let archive = older_archive();
    let dir = temp_dir();
    for source in [text(&archive), "-"] {
        let ledger = dir.path().join("ledger");
        let (code, _, stderr) = run_to_first_line(&["restore", source, "--ledger", text(&ledger)], Some(&archive));
        assert_eq!(code, 0, "{source}: {stderr}");
        fs::remove_dir_all(ledger).expect("removed");
    }
}

/// An older version restores archives of this version. When it verifies them, it reports only the missing marks and the
/// index.
#[test]
#[ignore = "SLOTPRESS_OLD names a slotpress that writes marks"]
fn older_programs_read_newer_archives() {
    let older = std::env::var_os("SLOTPRESS_OLD").expect("SLOTPRESS_OLD names a program");
    let dir = temp_dir();
    let full = fixture(FULL_26);
    let (code, written, stderr) =
        run_to_first_line(&["recompress", text(&full), "-o", text(dir.path()), "--frame-size", "64KiB"], None);
    assert_eq!(code, 0, "{stderr}");
    let path = written["path"].as_str().expect("a path");
    let ledger = dir.path().join("ledger");
    let ledger = text(&ledger);
    let run_older = |arguments: &[&str]| {
        let output = Command::new(&older).args(arguments).arg("--json").output().expect("runs");
        (output.status.code(), first_line(&output.stdout))
    };
    for flags in [&[][..], &["--ignore-index"]] {
        let (code, report) = run_older(&[&["restore", path, "--ledger", ledger], flags].concat());
        assert_eq!(code, Some(0), "{flags:?}: {report}");
        fs::remove_dir_all(ledger).expect("removed");
    }
    let (_, report) = run_older(&["verify", path]);
    let mut failures = report["failures"].as_array().expect("failures").iter();
    assert!(failures.all(|failure| failure["rule"] == "pzstd-mark" || failure["rule"] == "index"), "{report}");
    let mut clients = report["clients"].as_array().expect("clients").iter();
    assert!(clients.all(|client| client["loads"] == true), "{report}");
}
