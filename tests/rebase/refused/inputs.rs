//! Archives that make no such pair. Nothing is written.

use std::fs;
use std::path::Path;

use crate::common::{firedancer, *};
use crate::rebase::{run, two_full_archives};

fn check(new: &[&Path], onto: &Path, code: i32, says: &str) {
    let out = temp_dir();
    let output = run(new, onto, out.path(), &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.contains(says), "{said}");
    assert_eq!(names(out.path()), Vec::<String>::new(), "{says}");
}

#[test]
fn archives_that_are_no_pair() {
    let dir = temp_dir();
    let [old, new] = two_full_archives("agave-4.2.2", dir.path());
    let incremental = fixture_of("agave-4.2.2", "incremental-snapshot-26-40-");
    check(&[&old], &new, 2, "newer than the state of slot 26");
    check(&[&new], &new, 2, "both states are of slot 40");
    check(&[&new], &incremental, 2, "is an incremental archive");
    check(&[&incremental], &old, 1, "alone cannot be checked");
    check(&[&old, &new], &old, 2, "both archives are full ones");
    check(&[&fixture(FULL_3500)], &old, 1, "of different clusters");
    let of_firedancer = firedancer::full("firedancer-2026-08/chain");
    check(&[&of_firedancer, &incremental], &old, 1, "the new state is Firedancer's");
}

#[test]
fn damaged_archives() {
    let dir = temp_dir();
    let [old, new] = two_full_archives("agave-4.2.2", dir.path());
    let damaged = |archive: &Path| {
        let mut entries = entries(archive);
        let storage =
            entries.iter_mut().rfind(|entry| entry.path.starts_with("accounts/") && !entry.content.is_empty());
        storage.expect("a storage").content[70] ^= 1;
        let path = dir.path().join(format!("damaged-{}", entries.len())).join(name(archive));
        fs::create_dir(path.parent().expect("a directory")).expect("made");
        fs::write(&path, zstd::encode_all(make_tar(&entries).as_slice(), 1).expect("compressed")).expect("written");
        path
    };
    check(&[&new], &damaged(&old), 3, "");
    check(&[&damaged(&new)], &old, 3, "");
    let cut = dir.path().join("cut").join(name(&old));
    fs::create_dir(cut.parent().expect("a directory")).expect("made");
    let bytes = fs::read(&old).expect("read");
    fs::write(&cut, &bytes[..bytes.len() / 2]).expect("written");
    check(&[&new], &cut, 3, "");
}

#[test]
fn places_that_are_taken() {
    let dir = temp_dir();
    let [old, new] = two_full_archives("agave-4.2.2", dir.path());
    let out = temp_dir();
    assert!(run(&[&new], &old, out.path(), &[]).status.success());
    let before = tree(out.path());
    assert_eq!(run(&[&new], &old, out.path(), &[]).status.code(), Some(5));
    assert!(run(&[&new], &old, out.path(), &["--skip-existing"]).status.success());
    assert!(tree(out.path()) == before);
    assert!(run(&[&new], &old, out.path(), &["--force"]).status.success());
    assert_eq!(run(&[&new], &old, Path::new("-"), &[]).status.code(), Some(2));
}
