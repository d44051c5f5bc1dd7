//! A restored ledger boots: it has everything that a fast boot needs, and nothing that a starting
//! validator would delete.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::common::*;
use crate::restore::target::*;

/// Asserts everything that docs/snapshot-format.md#fast-boot requires.
fn assert_boots(target: &Target, archives: &[&Path]) {
    let newest = contents(archives.last().expect("an archive"));
    let bank_path = newest.keys().find(|path| path.matches('/').count() == 2).expect("a bank file");
    let slot = name(Path::new(bank_path));
    let bank_snapshot = target.ledger.join("snapshots").join(&slot);
    assert_eq!(relative_paths(&target.ledger.join("snapshots")).first(), Some(&slot), "one bank snapshot");
    let mut file_names = relative_paths(&bank_snapshot);
    file_names.sort();
    let mut expected =
        vec!["fastboot_version", "obsolete_accounts", "status_cache", "storages_list", "version", slot.as_str()];
    expected.sort_unstable();
    assert_eq!(file_names, expected);
    let read = |name: &str| fs::read(bank_snapshot.join(name)).expect("read");
    assert_eq!(read("fastboot_version"), b"3.0.0");
    assert!(read("status_cache") == newest["snapshots/status_cache"]);
    assert!(read(&slot) == newest[bank_path]);
    assert_eq!(read("version"), newest["version"]);

    let mut union = BTreeMap::new();
    for archive in archives {
        union.extend(storages(archive));
    }
    let list = storages_list(&bank_snapshot);
    assert_eq!(list.iter().map(|(slot, _)| *slot).collect::<Vec<_>>(), union.keys().copied().collect::<Vec<_>>());
    let ids: BTreeSet<u32> = list.iter().map(|(_, id)| *id).collect();
    assert_eq!(ids.len(), list.len(), "ids are unique");
    assert!(*ids.last().expect("a storage") < 1 << 31, "ids are small");

    let mut on_disk = BTreeMap::new();
    for dir in &target.accounts {
        assert_eq!(
            fs::read_dir(dir)
                .expect("an accounts path")
                .map(|entry| name(&entry.expect("an entry").path()))
                .collect::<BTreeSet<_>>(),
            BTreeSet::from(["run".to_string(), "snapshot".to_string()])
        );
        assert_eq!(relative_paths(&dir.join("snapshot")), Vec::<String>::new());
        let files = tree(&dir.join("run"));
        assert!(!files.is_empty(), "storages are spread over all accounts paths");
        on_disk.extend(files);
    }
    assert_eq!(on_disk.len(), list.len(), "the list names every storage");
    for (slot, id) in &list {
        let content = on_disk[&format!("{slot}.{id}")].as_ref().expect("a file");
        assert!(*content == union[slot], "{slot}.{id} differs");
    }

    let obsolete: Vec<u64> = read("obsolete_accounts")
        .chunks_exact(8)
        .map(|bytes| u64::from_le_bytes(bytes.try_into().expect("8 bytes")))
        .collect();
    let expected: Vec<u64> = std::iter::once(list.len() as u64)
        .chain(list.iter().flat_map(|(slot, id)| [*slot, u64::from(*id), 0, 0]))
        .collect();
    assert_eq!(obsolete, expected, "the list has the same ids, and no obsolete records");

    for archive in archives {
        let placed = target.ledger.join(name(archive));
        assert!(fs::read(&placed).expect("placed") == fs::read(archive).expect("read"), "{}", placed.display());
        assert_eq!(fs::metadata(&placed).expect("metadata").nlink(), 1, "never a hard link");
        assert!(!fs::symlink_metadata(&placed).expect("metadata").is_symlink());
    }
    let left: Vec<String> = relative_paths(&target.ledger)
        .into_iter()
        .filter(|name| name.contains("slotpress") || name.contains("tmp"))
        .collect();
    assert_eq!(left, Vec::<String>::new(), "no temporary file stays");
}

#[test]
fn ledgers_of_agaves_archives_boot() {
    for paths in [0, 1, 3] {
        let full = fixture(FULL_26);
        let incremental = fixture(INCREMENTAL_26_40);
        for archives in [&[full.as_path()][..], &[&full, &incremental]] {
            let target = Target::new(paths);
            target.restore(archives);
            assert_boots(&target, archives);
        }
        let full = fixture(FULL_3500);
        let incremental = fixture(INCREMENTAL_3500_3550);
        let target = Target::new(paths);
        target.restore(&[&full, &incremental]);
        assert_boots(&target, &[&full, &incremental]);
    }
}

#[test]
fn ledgers_of_slotpress_archives_boot() {
    let ledger_26 = ledger("ledger-at-26");
    let ledger_40 = ledger("ledger-at-40");
    let out = temp_dir();
    for (number, frame_size) in ["64KiB", "256KiB", "32MiB"].into_iter().enumerate() {
        let out = out.path().join(frame_size);
        fs::create_dir(&out).expect("made");
        let full = archive(ledger_26.path(), &out, &["--frame-size", frame_size]);
        let incremental = archive(ledger_40.path(), &out, &["--frame-size", frame_size, "--base-slot", "26"]);
        for archives in [&[full.as_path()][..], &[&full, &incremental]] {
            let target = Target::new(number + 1);
            target.restore(archives);
            assert_boots(&target, archives);
            let in_order: Vec<PathBuf> = archives.iter().map(|archive| copy_without_index(archive, &out)).collect();
            let in_order: Vec<&Path> = in_order.iter().map(PathBuf::as_path).collect();
            let target = Target::new(number + 1);
            target.restore(&in_order);
            assert_boots(&target, &in_order);
        }
        // slotpress's incremental archive on Agave's full one.
        let target = Target::new(0);
        target.restore(&[&fixture(FULL_26), &incremental]);
        assert_boots(&target, &[&fixture(FULL_26), &incremental]);
    }
}

/// One frame without content size, and frames cut at any byte, are restored to the same ledger.
#[test]
fn frames_of_other_writers_are_restored() {
    let tar = tar_of(&fixture(FULL_3500));
    let dir = temp_dir();
    let mut made = Vec::new();
    let mut make = |kind: &str, bytes: Vec<u8>| {
        let path = dir.path().join(kind).join(FULL_3500);
        fs::create_dir(path.parent().expect("a parent")).expect("made");
        fs::write(&path, bytes).expect("written");
        made.push(path);
    };
    make("one-frame", zstd::stream::encode_all(tar.as_slice(), 3).expect("compresses"));
    let pieces = |length: usize| {
        tar.chunks(length).flat_map(|piece| zstd::bulk::compress(piece, 1).expect("compresses")).collect::<Vec<u8>>()
    };
    make("cut-anywhere", pieces(123_457));
    make("cut-inside-headers", pieces(200));
    let mut with_skippables = slotpress_format::archive::zstd_frame::skippable_frame(7, b"hello").expect("small");
    with_skippables.extend(zstd::bulk::compress(&[], 1).expect("compresses"));
    with_skippables.extend(pieces(1_000_000));
    with_skippables.extend(slotpress_format::archive::zstd_frame::skippable_frame(14, &[9; 4000]).expect("small"));
    make("skippable-and-empty-frames", with_skippables);
    for path in &made {
        let target = Target::new(2);
        target.restore(&[path]);
        assert_boots(&target, &[path]);
    }
}

#[test]
fn frames_of_pzstd_are_restored() {
    needs!("pzstd");
    let dir = temp_dir();
    let plain = dir.path().join("plain.tar");
    let path = dir.path().join(FULL_3500);
    fs::write(&plain, tar_of(&fixture(FULL_3500))).expect("written");
    let output = std::process::Command::new("pzstd").args(["-p", "3", "-1", "-c"]).arg(&plain).output();
    fs::write(&path, output.expect("runs").stdout).expect("written");
    let target = Target::new(2);
    target.restore(&[&path]);
    assert_boots(&target, &[&path]);
}

/// The storages of both archives have equal ids, or have ids that are too large to continue from.
#[test]
fn equal_and_huge_ids_are_replaced() {
    let dir = temp_dir();
    let renumber = |archive: &Path, kind: &str, id_of: &dyn Fn(usize) -> u32| {
        let mut entries = entries(archive);
        let storages = entries.iter_mut().filter(|entry| entry.path.starts_with("accounts/"));
        for (number, entry) in storages.enumerate() {
            let slot = entry.path.split_once('.').expect("slot.id").0.to_string();
            entry.path = format!("{slot}.{}", id_of(number));
        }
        let path = dir.path().join(kind).join(name(archive));
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(&path, zstd::stream::encode_all(make_tar(&entries).as_slice(), 1).expect("compresses"))
            .expect("written");
        path
    };
    let numberings: [(&str, &dyn Fn(usize) -> u32); 3] =
        [("from-zero", &|number| number as u32), ("all-equal", &|_| 7), ("huge", &|number| u32::MAX - number as u32)];
    for (kind, id_of) in numberings {
        let full = renumber(&fixture(FULL_26), kind, id_of);
        let incremental = renumber(&fixture(INCREMENTAL_26_40), kind, id_of);
        let target = Target::new(3);
        target.restore(&[&full, &incremental]);
        assert_boots(&target, &[&full, &incremental]);
    }
}

#[test]
fn an_archive_in_the_snapshots_directory_is_not_copied() {
    for inner in ["", "remote"] {
        let target = Target::new(0);
        let dir = target.ledger.join(inner);
        fs::create_dir_all(&dir).expect("made");
        let full = dir.join(FULL_26);
        let incremental = dir.join(INCREMENTAL_26_40);
        fs::copy(fixture(FULL_26), &full).expect("copied");
        fs::copy(fixture(INCREMENTAL_26_40), &incremental).expect("copied");
        target.restore(&[&full, &incremental]);
        assert!(target.ledger.join("snapshots/40/fastboot_version").exists());
        let archives: Vec<String> =
            relative_paths(&target.ledger).into_iter().filter(|name| name.ends_with(".tar.zst")).collect();
        assert_eq!(archives.len(), 2, "no second copy: {archives:?}");
    }
}

#[test]
fn existing_directories_are_used() {
    let target = Target::new(1);
    let snapshots = target.dir.path().join("snapshots-path");
    fs::create_dir_all(target.accounts[0].join("run")).expect("made");
    fs::create_dir_all(target.accounts[0].join("snapshot")).expect("made");
    fs::create_dir_all(snapshots.join("snapshots")).expect("made");
    fs::create_dir_all(&target.ledger).expect("made");
    fs::write(target.ledger.join("genesis.bin"), "mine").expect("written");
    target.command(&[&fixture(FULL_26)]).arg("--snapshots").arg(&snapshots).assert().success();
    assert!(snapshots.join("snapshots/26/fastboot_version").exists());
    assert!(snapshots.join(FULL_26).exists());
    assert!(!target.ledger.join("snapshots").exists());
    assert!(!target.ledger.join(FULL_26).exists());
    assert_eq!(fs::read(target.ledger.join("genesis.bin")).expect("read"), b"mine");
    assert_eq!(relative_paths(&target.accounts[0].join("run")).len(), 27);
}

#[test]
fn archives_may_have_any_name() {
    let dir = temp_dir();
    let target = Target::new(0);
    let full = dir.path().join("a");
    let incremental = dir.path().join("b.bin");
    fs::copy(fixture(FULL_26), &full).expect("copied");
    fs::copy(fixture(INCREMENTAL_26_40), &incremental).expect("copied");
    target.restore(&[&full, &incremental]);
    assert!(target.ledger.join(FULL_26).exists());
    assert!(target.ledger.join(INCREMENTAL_26_40).exists());
    assert!(target.ledger.join("snapshots/40/fastboot_version").exists());
}

/// If root restores for a validator of another user, that user must be able to read, write and lock the
/// files.
#[test]
fn the_owner_of_the_target_owns_everything() {
    needs!("root");
    const OWNER: (u32, u32) = (12_345, 23_456);
    let target = Target::new(0);
    fs::create_dir(&target.ledger).expect("made");
    std::os::unix::fs::chown(&target.ledger, Some(OWNER.0), Some(OWNER.1)).expect("given away");
    target.restore(&[&fixture(FULL_26), &fixture(INCREMENTAL_26_40)]);
    for path in relative_paths(&target.ledger) {
        let metadata = fs::symlink_metadata(target.ledger.join(&path)).expect("metadata");
        assert_eq!((metadata.uid(), metadata.gid()), OWNER, "{path}");
    }
    // New directories and archives belong to the owner of the directory above.
    let dir = temp_dir();
    std::os::unix::fs::chown(dir.path(), Some(OWNER.0), Some(OWNER.1)).expect("given away");
    let ledger = dir.path().join("new");
    slotpress().arg("restore").arg(fixture(FULL_26)).arg("--ledger").arg(&ledger).assert().success();
    slotpress().args(["archive"]).arg(&ledger).arg("-o").arg(dir.path()).assert().success();
    for path in relative_paths(dir.path()) {
        let metadata = fs::symlink_metadata(dir.path().join(&path)).expect("metadata");
        assert_eq!((metadata.uid(), metadata.gid()), OWNER, "{path}");
    }
}
