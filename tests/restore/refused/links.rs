//! Symbolic links in place of directories, some of them to other file systems.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::common::*;
use crate::restore::*;

/// Returns a directory on a different file system than `dir`: in memory or on a disk.
fn dir_elsewhere(dir: &Path) -> tempfile::TempDir {
    let device = fs::metadata(dir).expect("metadata").dev();
    [PathBuf::from("/dev/shm"), std::env::temp_dir(), PathBuf::from(env!("CARGO_TARGET_TMPDIR"))]
        .into_iter()
        .filter_map(|place| tempfile::tempdir_in(place).ok())
        .find(|other| fs::metadata(other.path()).is_ok_and(|found| found.dev() != device))
        .expect("a directory on a different file system")
}

/// Makes a truncated archive. A run that reads it to its end reports damage, with another exit code.
fn truncated_archive(dir: &Path) -> PathBuf {
    let archive = dir.join("damaged.tar.zst");
    let mut bytes = fs::read(fixture(FULL_26)).expect("read");
    bytes.truncate(bytes.len() / 2);
    fs::write(&archive, bytes).expect("written");
    archive
}

#[test]
fn a_link_in_place_of_a_directory_is_refused_before_the_work() {
    let dir = temp_dir();
    let archive = truncated_archive(dir.path());
    let ledger = dir.path().join("ledger");
    fs::create_dir_all(ledger.join("accounts")).expect("made");
    let empty = temp_dir();
    std::os::unix::fs::symlink(empty.path(), ledger.join("accounts/run")).expect("linked");
    let (code, stderr) = restore(&archive, &ledger, &[]);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("accounts/run is a symbolic link"), "{stderr}");
    assert!(stderr.contains("hint: "), "{stderr}");
}

#[test]
fn a_link_to_another_file_system_is_refused_before_the_work() {
    let dir = temp_dir();
    let archive = truncated_archive(dir.path());
    let other = dir_elsewhere(dir.path());
    let ledger = dir.path().join("ledger");
    fs::create_dir_all(ledger.join("accounts")).expect("made");
    std::os::unix::fs::symlink(other.path(), ledger.join("snapshots")).expect("linked");
    let (code, stderr) = restore(&archive, &ledger, &[]);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("is on a different file system"), "{stderr}");
    assert!(stderr.contains("--snapshots"), "{stderr}");
    assert_eq!(relative_paths(&ledger), ["accounts", "ledger.lock", "snapshots"]);
}
