//! Files that a failed restore leaves.

use std::fs;

use crate::common::*;
use crate::restore::*;

#[test]
fn a_failed_restore_leaves_no_lock() {
    let dir = temp_dir();
    fs::write(dir.path().join("genesis.bin"), "genesis").expect("written");
    let damaged = dir.path().join("damaged.tar.zst");
    let mut bytes = fs::read(fixture(FULL_26)).expect("read");
    bytes.truncate(bytes.len() / 2);
    fs::write(&damaged, bytes).expect("written");
    let before = tree(dir.path());
    let (code, said) = restore(&damaged, dir.path(), &[]);
    assert_eq!(code, Some(3), "{said}");
    assert!(tree(dir.path()) == before, "{:?}", names(dir.path()));
    // A directory that existed before is not removed.
    fs::write(dir.path().join("ledger.lock"), "").expect("written");
    assert_eq!(restore(&damaged, dir.path(), &[]).0, Some(3));
    assert!(dir.path().join("ledger.lock").exists());
}
