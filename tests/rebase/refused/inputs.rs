//! Archives that cannot be rebased are refused, and no file is written.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::records::field;
use crate::common::{firedancer, *};
use crate::rebase::{rebase, run_rebase, two_full_archives};

fn assert_refused(new: &[&Path], onto: &Path, code: i32, message: &str) {
    let out = temp_dir();
    let output = run_rebase(new, onto, out.path(), &[]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(stderr.contains(message), "{stderr}");
    assert_eq!(relative_paths(out.path()), Vec::<String>::new(), "{message}");
}

#[test]
fn archives_that_are_not_a_pair_are_refused() {
    let dir = temp_dir();
    let [old, new] = two_full_archives("agave-4.2.2", dir.path());
    let incremental = fixture_of("agave-4.2.2", "incremental-snapshot-26-40-");
    assert_refused(&[&old], &new, 2, "the older state is of slot 40, the new one of 26");
    assert_refused(&[&new], &new, 2, "the older state is of slot 40, the new one of 40");
    assert_refused(&[&new], &incremental, 2, "is an incremental archive");
    assert_refused(&[&incremental], &old, 1, "alone cannot be checked");
    assert_refused(&[&old, &new], &old, 2, "both archives are full ones");
    assert_refused(&[&fixture(FULL_3500)], &old, 2, "of different clusters");
    let of_firedancer = firedancer::full(firedancer::OLD_CHAIN);
    assert_refused(&[&of_firedancer, &incremental], &old, 1, "only Firedancer loads it");
}

/// Writes a copy of an archive in which one account has a different owner.
fn write_with_changed_owner(archive: &Path, dir: &Path) -> PathBuf {
    let mut entries = entries(archive);
    let is_storage = |entry: &&mut TarEntry| entry.path.starts_with("accounts/") && !entry.content.is_empty();
    let storage = entries.iter_mut().rfind(is_storage).expect("a storage");
    storage.content[field::OWNER.start] ^= 1;
    let path = dir.join(name(archive));
    write_archive(&path, &entries);
    path
}

#[test]
fn damaged_archives_are_refused() {
    let [dir, damaged_old_dir, damaged_new_dir, truncated_dir] = [(); 4].map(|()| temp_dir());
    let [old, new] = two_full_archives("agave-4.2.2", dir.path());
    let damaged_old = write_with_changed_owner(&old, damaged_old_dir.path());
    let damaged_new = write_with_changed_owner(&new, damaged_new_dir.path());
    let message = "the accounts are not those that the bank file's lattice hash covers";
    assert_refused(&[&new], &damaged_old, 3, message);
    assert_refused(&[&damaged_new], &old, 3, message);
    let truncated = truncated_dir.path().join(name(&old));
    let bytes = fs::read(&old).expect("read");
    fs::write(&truncated, &bytes[..bytes.len() / 2]).expect("written");
    assert_refused(&[&new], &truncated, 3, "its bank file cannot be found near its beginning");
}

#[test]
fn existing_archives_are_replaced_only_when_asked() {
    let dir = temp_dir();
    let [old, new] = two_full_archives("agave-4.2.2", dir.path());
    let out = temp_dir();
    assert!(run_rebase(&[&new], &old, out.path(), &[]).status.success());
    let before = tree(out.path());
    assert_eq!(run_rebase(&[&new], &old, out.path(), &[]).status.code(), Some(5));
    assert!(run_rebase(&[&new], &old, out.path(), &["--skip-existing"]).status.success());
    assert!(tree(out.path()) == before);
    assert!(run_rebase(&[&new], &old, out.path(), &["--force"]).status.success());
    assert_eq!(run_rebase(&[&new], &old, Path::new("-"), &[]).status.code(), Some(2));
}

/// The ledger has a full archive whose slot is between those of the pair. A validator would base its next
/// incremental archive on that full archive.
#[test]
fn a_rebased_archive_is_not_restored_over_a_full_archive_in_between() {
    let dir = temp_dir();
    let [old, new] = two_full_archives("agave-4.2.2", dir.path());
    let rebased = rebase(&[&new], &old, dir.path(), &[]);
    let between = "snapshot-33-5gwajHXZ8ac2UYP5LwRw8fXygh9jMJQbF5GTTa9AsvAq.tar.zst";
    let plain = dir.path().join("plain").join(name(&rebased));
    fs::create_dir(plain.parent().expect("a directory")).expect("made");
    fs::write(&plain, zstd::encode_all(tar_of(&rebased).as_slice(), 1).expect("compressed")).expect("written");
    let validators_own = fixture_of("agave-4.2.2", "incremental-snapshot-26-40-");
    for (incremental, is_refused) in [(&rebased, true), (&plain, true), (&validators_own, false)] {
        let target = temp_dir();
        fs::copy(&old, target.path().join(between)).expect("copied");
        let before = tree(target.path());
        let restore = |flags: &[&str]| {
            let arguments = ["restore", text(&old), text(incremental), "--ledger", text(target.path())];
            run_to_first_line(&[&arguments, flags].concat(), None)
        };
        if is_refused {
            let (code, _, stderr) = restore(&[]);
            assert_eq!(code, 5, "{stderr}");
            assert!(stderr.contains(between), "{stderr}");
            assert!(stderr.contains("--replace-state"), "{stderr}");
            let mut left = tree(target.path());
            left.remove("ledger.lock");
            assert!(left == before, "{stderr}");
        }
        let (code, _, stderr) = restore(if is_refused { &["--replace-state"] } else { &[] });
        assert_eq!(code, 0, "{stderr}");
        assert_eq!(target.path().join(between).exists(), !is_refused);
    }
}

#[test]
fn another_full_archive_of_the_same_slot_is_refused() {
    let dir = temp_dir();
    let [old, new] = two_full_archives("agave-4.2.2", dir.path());
    let rebased = rebase(&[&new], &old, dir.path(), &[]);
    let other = fixture_of(AGAVE_4_4, "snapshot-26-");
    let ledger = dir.path().join("ledger");
    let restored = run_to_first_line(&["restore", text(&other), text(&rebased), "--ledger", text(&ledger)], None);
    let verified = run_to_first_line(&["verify", text(&other), text(&rebased)], None);
    let failures = verified.1["failures"].as_array().expect("failures");
    let is_base_mismatch = |failure: &serde_json::Value| failure["rule"] == "base-mismatch";
    assert!(!failures.is_empty(), "{verified:?}");
    assert!(failures.iter().all(is_base_mismatch), "other failures: {verified:?}");
    for (code, report, stderr) in [verified, restored] {
        let printed = format!("{report} {stderr}");
        assert_eq!(code, 3, "{printed}");
        assert!(printed.contains("a full archive of hash"), "{printed}");
    }
}
