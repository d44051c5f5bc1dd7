//! Files that a failed restore leaves.

use std::fs;
use std::process::Command;

use crate::common::said::*;
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

/// An error at the last rename but one leaves nothing, and the next run succeeds.
#[test]
fn a_late_error_of_a_tree_leaves_nothing() {
    needs!("strace");
    let dir = temp_dir();
    // The renames are: bank file, journal, snapshots/, accounts/, version.
    for (number, (failing, call, when)) in
        [("accounts", "renameat", 4), ("version", "renameat", 5)].into_iter().enumerate()
    {
        let tree = dir.path().join(format!("tree{number}"));
        let out = dir.path().join("strace");
        let output = Command::new("strace")
            .args(["-f", "-qq", "-o", text(&out), "-e", "trace=rename,renameat,renameat2"])
            .arg("-e")
            .arg(format!("inject={call}:error=EIO:when={when}"))
            .arg(slotpress_path())
            .args(["restore", text(&fixture(FULL_26)), "--tree", "archive", "--ledger", text(&tree)])
            .output()
            .expect("runs");
        let (code, said) = said(&output);
        let calls = fs::read_to_string(&out).expect("read");
        assert_eq!(code, Some(1), "{said}{calls}");
        assert!(calls.lines().any(|line| line.contains("INJECTED") && line.contains(failing)), "{calls}");
        assert!(!tree.exists(), "{:?}", names(&tree));
        assert_eq!(restore(&fixture(FULL_26), &tree, &["--tree", "archive"]).0, Some(0));
    }
}
