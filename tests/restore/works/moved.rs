//! `restore --move`: archives are renamed into the snapshots directory, not copied.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use crate::common::strace::trace;
use crate::common::*;
use crate::restore::restore;

/// An archive in a directory of its own, and a path for a ledger beside it.
fn scene(dir: &Path) -> (PathBuf, PathBuf) {
    let archive = dir.join("from").join(FULL_26);
    fs::create_dir(dir.join("from")).expect("made");
    fs::copy(fixture(FULL_26), &archive).expect("copied");
    (archive, dir.join("ledger"))
}

#[test]
fn an_archive_is_renamed() {
    let dir = temp_dir();
    let (archive, ledger) = scene(dir.path());
    let inode = |path: &Path| fs::metadata(path).expect("it is there").ino();
    let before = inode(&archive);
    let (code, said) = restore(&archive, &ledger, &["--move"]);
    assert_eq!((code, inode(&ledger.join(FULL_26)), archive.exists()), (Some(0), before, false), "{said}");
    // The same again: it finds the archive where it is now.
    let (code, said) = restore(&archive, &ledger, &["--move"]);
    assert!(code == Some(5) && said.contains("slot 26 is already there"), "{said}");
}

#[test]
fn what_cannot_be_renamed_is_refused() {
    let dir = temp_dir();
    let (archive, ledger) = scene(dir.path());
    let link = dir.path().join("link");
    symlink(&archive, &link).expect("linked");
    let damaged = restore(&archive, &ledger, &["--move", "--expect-hash", &"1".repeat(32)]);
    assert!(damaged.0 == Some(3) && archive.exists() && !ledger.exists(), "{damaged:?}");
    let (code, said) = restore(&link, &ledger, &["--move"]);
    assert!(code == Some(1) && said.contains("cannot be moved") && said.contains("--move: "), "{said}");
    fs::hard_link(&archive, dir.path().join("hard")).expect("linked");
    assert_eq!(restore(&archive, &ledger, &["--move"]).0, Some(1));
    assert!(archive.exists() && !ledger.exists());
}

/// Killed before each rename, the same command works again.
#[test]
fn killed_at_any_rename() {
    needs!("strace");
    let mut killed = 0;
    for number in 1..20 {
        let dir = temp_dir();
        let (archive, ledger) = scene(dir.path());
        let arguments = ["restore", text(&archive), "--ledger", text(&ledger), "--move"].map(str::to_string);
        let kill = format!("rename,renameat,renameat2:signal=KILL:when={number}");
        if !trace(&arguments, "rename,renameat,renameat2", Some(&kill)).is_killed {
            break;
        }
        killed += 1;
        assert!(archive.exists() || ledger.join(FULL_26).exists(), "{number}: the archive is lost");
        let (code, said) = restore(&archive, &ledger, &["--move"]);
        assert!(code == Some(0), "{number}: {said}");
        assert!(ledger.join("snapshots/26/fastboot_version").exists() && !archive.exists(), "{number}");
        assert!(fs::read(ledger.join(FULL_26)).expect("moved") == fs::read(fixture(FULL_26)).expect("read"));
    }
    assert!(killed >= 4, "{killed}");
}
