//! A restore that replaces a state and fails.

use std::fs;

use crate::common::screen::*;
use crate::common::*;

/// A restore that fails after it deleted the old state leaves the archives, and no part of a state.
#[test]
fn a_state_that_was_deleted_first_leaves_nothing_that_boots() {
    let dir = temp_dir();
    let (full, target) = (fixture(FULL_26), dir.path().join("ledger"));
    let (code, _, stderr) = run(&["restore", text(&full), "--ledger", text(&target)]);
    assert_eq!(code, 0, "{stderr}");
    let mut bytes = fs::read(&full).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let damaged = dir.path().join("damaged.tar.zst");
    fs::write(&damaged, bytes).expect("written");
    let replace = ["--replace-state", "--delete-state-first"];
    let (code, _, stderr) = run(&[&["restore", text(&damaged), "--ledger", text(&target)][..], &replace].concat());
    assert!(code == 3 && stderr.contains("Deleting the existing state"), "{stderr}");
    assert!(!target.join("snapshots/26").exists() && !target.join("accounts/run").exists());
    assert!(target.join(FULL_26).exists());
    let (code, _, stderr) = run(&[&["restore", text(&full), "--ledger", text(&target)][..], &replace].concat());
    assert_eq!(code, 0, "{stderr}");
}
