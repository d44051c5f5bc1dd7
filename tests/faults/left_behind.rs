//! What a run leaves behind that failed or was killed, and where nothing may be left.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::*;

fn restore(archive: &Path, target: &Path, more: &[&str]) -> (Option<i32>, String) {
    let mut arguments = vec!["restore", text(archive), "--ledger", text(target)];
    arguments.extend(more);
    run(&arguments)
}

/// Nothing is made where nothing of a ledger is.
#[test]
fn no_lock_outside_of_ledgers() {
    let dir = temp_dir();
    let out = temp_dir();
    fs::create_dir(dir.path().join("snapshots")).expect("made");
    fs::write(dir.path().join("notes.txt"), "somebody's").expect("written");
    let before = tree(dir.path());
    for arguments in [
        vec!["verify", text(dir.path())],
        vec!["archive", text(dir.path()), "-o", text(out.path())],
        vec!["inspect", text(dir.path())],
        vec!["inspect", text(dir.path()), "--by-owner"],
        vec!["levels", text(dir.path()), "--levels", "1"],
    ] {
        let (code, said) = run(&arguments);
        assert_ne!(code, Some(0), "{arguments:?}: {said}");
        assert!(tree(dir.path()) == before, "{arguments:?} made {:?}", names(dir.path()));
    }
}

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
    // One that was there is not the restore's to remove.
    fs::write(dir.path().join("ledger.lock"), "").expect("written");
    assert_eq!(restore(&damaged, dir.path(), &[]).0, Some(3));
    assert!(dir.path().join("ledger.lock").exists());
}

/// A directory on another file system than `dir`: memory is one, a disk is another.
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
    // Cut short: whoever reads it to the end reports damage, with another exit code.
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
    assert_eq!(names(&ledger), ["accounts", "snapshots"]);
}

/// An error after the last rename but one leaves nothing, and a run after it succeeds.
#[needs("strace")]
#[test]
fn a_late_error_of_a_tree_leaves_nothing() {
    let dir = temp_dir();
    // Renamed are the bank file within, the journal, snapshots/, accounts/, version.
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
