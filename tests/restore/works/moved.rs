//! `restore --move`: archives are renamed into the snapshots directory, not copied.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use crate::common::strace::trace;
use crate::common::*;
use crate::restore::restore;

/// Makes a directory with an archive. Returns the archive's path, and a path for a ledger beside it.
fn archive_and_ledger(dir: &Path) -> (PathBuf, PathBuf) {
    let archive = dir.join("from").join(FULL_26);
    fs::create_dir(dir.join("from")).expect("made");
    fs::copy(fixture(FULL_26), &archive).expect("copied");
    (archive, dir.join("ledger"))
}

#[test]
fn an_archive_is_renamed() {
    let dir = temp_dir();
    let (archive, ledger) = archive_and_ledger(dir.path());
    let inode = |path: &Path| fs::metadata(path).expect("metadata").ino();
    let before = inode(&archive);
    let (code, stderr) = restore(&archive, &ledger, &["--move"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(inode(&ledger.join(FULL_26)), before);
    assert!(!archive.exists());
    // The same command finds the archive at its new place.
    let (code, stderr) = restore(&archive, &ledger, &["--move"]);
    assert_eq!(code, Some(5), "{stderr}");
    assert!(stderr.contains("slot 26 is already there"), "{stderr}");
}

#[test]
fn archives_that_cannot_be_renamed_are_refused() {
    let dir = temp_dir();
    let (archive, ledger) = archive_and_ledger(dir.path());
    let link = dir.path().join("link");
    symlink(&archive, &link).expect("linked");
    let refused = restore(&archive, &ledger, &["--move", "--expect-hash", &"1".repeat(32)]);
    assert_eq!(refused.0, Some(3), "{refused:?}");
    assert!(archive.exists(), "{refused:?}");
    assert!(!ledger.exists(), "{refused:?}");
    let (code, stderr) = restore(&link, &ledger, &["--move"]);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("cannot be moved"), "{stderr}");
    assert!(stderr.contains("--move: "), "{stderr}");
    fs::hard_link(&archive, dir.path().join("hard")).expect("linked");
    assert_eq!(restore(&archive, &ledger, &["--move"]).0, Some(1));
    assert!(archive.exists());
    assert!(!ledger.exists());
}

/// After a kill before each rename, the same command succeeds.
#[test]
fn a_restore_killed_at_any_rename_can_be_repeated() {
    needs!("strace");
    let mut killed = 0;
    for number in 1..20 {
        let dir = temp_dir();
        let (archive, ledger) = archive_and_ledger(dir.path());
        let arguments = ["restore", text(&archive), "--ledger", text(&ledger), "--move"].map(str::to_string);
        let kill = format!("rename,renameat,renameat2:signal=KILL:when={number}");
        if !trace(&arguments, "rename,renameat,renameat2", Some(&kill)).is_killed {
            break;
        }
        killed += 1;
        assert!(archive.exists() || ledger.join(FULL_26).exists(), "{number}: the archive is lost");
        let (code, stderr) = restore(&archive, &ledger, &["--move"]);
        assert_eq!(code, Some(0), "{number}: {stderr}");
        assert!(ledger.join("snapshots/26/fastboot_version").exists(), "{number}");
        assert!(!archive.exists(), "{number}");
        assert!(fs::read(ledger.join(FULL_26)).expect("moved") == fs::read(fixture(FULL_26)).expect("read"));
    }
    assert!(killed >= 4, "{killed}");
}
