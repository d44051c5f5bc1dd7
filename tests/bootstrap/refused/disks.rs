//! Several file systems, and disks that are full.

use std::process::Command;

use crate::common::site::*;
use crate::common::*;

#[test]
fn ledger_and_archives_may_be_on_two_file_systems() {
    let files = archives(&[]);
    let server = serve(&files, TransferMode::Ranges);
    let here = temp_dir();
    let there = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let ledger = here.path().join("ledger");
    let snapshots = there.path().join("snapshots");
    let accounts = there.path().join("accounts");
    let flags = ["--snapshots", text(&snapshots), "--accounts", text(&accounts)];
    let output = run_to_json(&[&["bootstrap", &server.url(""), "--ledger", text(&ledger)][..], &flags].concat());
    assert_eq!(output.code, Some(0), "{output:?}");
    let fetched = files_in(&snapshots);
    assert!(files.iter().all(|(name, bytes)| fetched.get(name) == Some(bytes)), "{:?}", relative_paths(&snapshots));
}

/// A limit on the length of files has the effect of a full disk.
#[test]
fn a_fetch_that_runs_out_of_space_is_finished_by_the_next() {
    let files = archives(&[]);
    let server = serve(&files, TransferMode::Ranges);
    let dir = temp_dir();
    let command = format!(
        "ulimit -f 40; exec {} fetch {} -o {}",
        slotpress_path().display(),
        server.url(""),
        dir.path().display()
    );
    let output = Command::new("sh").args(["-c", &format!("trap '' XFSZ; {command}")]).output().expect("runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("error: "), "{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    assert!(
        !relative_paths(dir.path()).iter().any(|name| files.contains_key(name)),
        "{:?}",
        relative_paths(dir.path())
    );
    let output = run_to_json(&["fetch", &server.url(""), "-o", text(dir.path())]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(files_in(dir.path()) == files);
}
