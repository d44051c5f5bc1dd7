//! Files that a failed restore leaves.

use std::fs;

use crate::common::*;
use crate::restore::*;

#[test]
fn a_failed_restore_leaves_nothing_new() {
    let dir = temp_dir();
    let damaged = dir.path().join("damaged.tar.zst");
    let mut bytes = fs::read(fixture(FULL_26)).expect("read");
    bytes.truncate(bytes.len() / 2);
    fs::write(&damaged, bytes).expect("written");
    let (code, said) = restore(&damaged, &dir.path().join("ledger"), &[]);
    assert_eq!((code, names(dir.path())), (Some(3), vec!["damaged.tar.zst".to_string()]), "{said}");
    // The lock of a directory that was there stays, as a validator leaves it.
    fs::write(dir.path().join("genesis.bin"), "genesis").expect("written");
    assert_eq!(restore(&damaged, dir.path(), &[]).0, Some(3));
    assert_eq!(names(dir.path()), ["damaged.tar.zst", "genesis.bin", "ledger.lock"]);
}
