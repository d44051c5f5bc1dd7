//! Archives by older versions of slotpress, with a mark of `pzstd` in front of each frame; and
//! newer archives, read by older versions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use slotpress_base::IoPolicy;
use slotpress_read::archive::Archive;
use slotpress_read::{IndexPolicy, Tail};

use crate::common::*;

/// Length of a mark: magic, length 4, the length of the next frame.
const MARK_BYTES: usize = 12;

fn with_marks() -> PathBuf {
    fixture_of("slotpress-marks", "snapshot-26-")
}

fn tail(archive: &Path) -> Tail {
    Archive::open(archive, IndexPolicy::Hint, &IoPolicy::default()).expect("opens").tail.expect("an index")
}

/// An archive with marks is verified and restored as before, by its index and in order, and its
/// root covers every byte.
#[test]
fn archives_with_marks_are_read() {
    let archive = with_marks();
    let tail = tail(&archive);
    assert!(tail.frames.iter().all(|frame| frame.gap_bytes as usize == MARK_BYTES));
    let root = tail.hashes.as_ref().expect("hashes").root.to_string();
    let (code, report, stderr) = run_json(&["verify", text(&archive), "--expect-root", &root], None);
    assert_eq!(
        (code, &report["warnings"], &report["failures"]),
        (0, &"[]".parse().unwrap(), &"[]".parse().unwrap()),
        "{stderr}"
    );
    let dir = temp_dir();
    for (from, flags) in [
        (text(&archive), &["--expect-root", &root][..]),
        (text(&without_index(&archive, dir.path())), &[]),
        ("-", &["--expect-root", &root]),
    ] {
        let ledger = dir.path().join("ledger");
        let (code, _, stderr) =
            run_json(&[&["restore", from, "--ledger", text(&ledger)], flags].concat(), Some(&archive));
        assert_eq!(code, 0, "{flags:?}: {stderr}");
        fs::remove_dir_all(ledger).expect("removed");
    }
}

/// An older program verifies (without marks), restores and inspects archives of this one.
#[test]
#[ignore = "SLOTPRESS_OLD names a slotpress that writes marks"]
fn older_programs_read_newer_archives() {
    let older = std::env::var_os("SLOTPRESS_OLD").expect("SLOTPRESS_OLD names a program");
    let (dir, full) = (temp_dir(), fixture(FULL_26));
    let (code, written, stderr) =
        run_json(&["recompress", text(&full), "-o", text(dir.path()), "--frame-size", "64KiB"], None);
    assert_eq!(code, 0, "{stderr}");
    let (path, root) = (written["path"].as_str().expect("a path"), written["root"].as_str().expect("a root"));
    let ledger = dir.path().join("ledger");
    let ledger = text(&ledger);
    let old = |arguments: &[&str]| {
        let output = Command::new(&older).args(arguments).arg("--json").output().expect("runs");
        (output.status.code(), first_line(&output.stdout))
    };
    assert_eq!(old(&["inspect", path]).1["root"], root);
    for flags in [&["--expect-root", root][..], &["--ignore-index"]] {
        let restored = old(&[&["restore", path, "--ledger", ledger], flags].concat());
        assert_eq!(restored.0, Some(0), "{flags:?}: {}", restored.1);
        fs::remove_dir_all(ledger).expect("removed");
    }
    let verified = old(&["verify", path]).1;
    let failures = verified["failures"].as_array().expect("failures");
    assert!(failures.iter().all(|failure| failure["rule"] == "pzstd-mark"), "{verified}");
    assert!(
        verified["clients"].as_array().expect("clients").iter().all(|client| client["loads"] == true),
        "{verified}"
    );
}
