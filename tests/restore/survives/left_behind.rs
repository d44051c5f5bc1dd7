//! A failed restore leaves nothing behind but the lock file of an existing directory.

use std::fs;

use crate::common::runs::code_and_stderr;
use crate::common::strace::trace;
use crate::common::*;
use crate::restore::*;

#[test]
fn a_failed_restore_leaves_at_most_the_lock_file() {
    let dir = temp_dir();
    let damaged = dir.path().join("damaged.tar.zst");
    let mut bytes = fs::read(fixture(FULL_26)).expect("read");
    bytes.truncate(bytes.len() / 2);
    fs::write(&damaged, bytes).expect("written");
    let (code, stderr) = restore(&damaged, &dir.path().join("ledger"), &[]);
    assert_eq!((code, relative_paths(dir.path())), (Some(3), vec!["damaged.tar.zst".to_string()]), "{stderr}");
    // The lock of an existing directory is kept, as a validator keeps it.
    fs::write(dir.path().join("genesis.bin"), "genesis").expect("written");
    assert_eq!(restore(&damaged, dir.path(), &[]).0, Some(3));
    assert_eq!(relative_paths(dir.path()), ["damaged.tar.zst", "genesis.bin", "ledger.lock"]);
}

/// The disk accepts all bytes, and fails when they are written back.
#[test]
fn errors_of_writeback_are_reported() {
    needs!("strace");
    let dir = temp_dir();
    let indexed = archive(ledger("ledger-at-26").path(), dir.path(), &["--frame-size", "64KiB"]);
    for archive in [&indexed, &fixture(FULL_26)] {
        let target = dir.path().join("ledger");
        let arguments = ["restore", text(archive), "--ledger", text(&target)].map(str::to_string);
        let run = trace(&arguments, "sync_file_range", Some("sync_file_range:error=EIO"));
        let (code, stderr) = code_and_stderr(&run.output);
        assert_eq!(code, Some(1), "{stderr}");
        assert!(stderr.contains("cannot write"), "the file is named: {stderr}");
        assert!(stderr.contains("slotpress-partial-"), "the file is named: {stderr}");
        assert!(!target.exists(), "{:?}", relative_paths(&target));
    }
}
