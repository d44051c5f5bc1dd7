//! Links to other file systems.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::common::*;
use crate::restore::*;

/// Returns a directory on another file system than `dir`: in memory or on a disk.
fn elsewhere(dir: &Path) -> tempfile::TempDir {
    let device = fs::metadata(dir).expect("metadata").dev();
    [PathBuf::from("/dev/shm"), std::env::temp_dir(), PathBuf::from(env!("CARGO_TARGET_TMPDIR"))]
        .into_iter()
        .filter_map(|place| tempfile::tempdir_in(place).ok())
        .find(|other| fs::metadata(other.path()).is_ok_and(|found| found.dev() != device))
        .expect("one of them is on another file system")
}

#[test]
fn links_to_other_file_systems_are_refused_before_the_work() {
    let dir = temp_dir();
    // A cut archive: a run that reads it to the end reports damage, with another exit code.
    let archive = dir.path().join("damaged.tar.zst");
    let mut bytes = fs::read(fixture(FULL_26)).expect("read");
    bytes.truncate(bytes.len() / 2);
    fs::write(&archive, bytes).expect("written");
    let other = elsewhere(dir.path());
    let target = |name: &str| {
        let ledger = dir.path().join(name);
        fs::create_dir_all(ledger.join("accounts")).expect("made");
        ledger
    };
    let ledger = target("run-is-a-link");
    let empty = temp_dir();
    std::os::unix::fs::symlink(empty.path(), ledger.join("accounts/run")).expect("linked");
    let (code, said) = restore(&archive, &ledger, &[]);
    assert!(code == Some(1) && said.contains("accounts/run is a symbolic link") && said.contains("hint: "), "{said}");
    let ledger = target("snapshots-is-a-link");
    std::os::unix::fs::symlink(other.path(), ledger.join("snapshots")).expect("linked");
    let (code, said) = restore(&archive, &ledger, &[]);
    assert!(code == Some(1) && said.contains("is on another file system") && said.contains("--snapshots"), "{said}");
    assert_eq!(names(&ledger), ["accounts", "ledger.lock", "snapshots"]);
}
