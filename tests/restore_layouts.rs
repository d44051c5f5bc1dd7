//! A restored ledger boots: everything that a fast boot needs is there, nothing that a starting validator would wipe, and
//! what cannot boot is refused before anything is written.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tempfile::TempDir;

use crate::common::*;

/// A target that is not there yet, and the directory around it.
struct Target {
    dir: TempDir,
    ledger: PathBuf,
    accounts: Vec<PathBuf>,
}

impl Target {
    fn new(accounts_paths: usize) -> Self {
        let dir = temp_dir();
        let ledger = dir.path().join("ledger");
        let accounts = match accounts_paths {
            0 => vec![ledger.join("accounts")],
            count => (0..count).map(|number| dir.path().join(format!("disk-{number}/accounts"))).collect(),
        };
        Self { dir, ledger, accounts }
    }

    fn command(&self, archives: &[&Path]) -> assert_cmd::Command {
        let mut command = slotpress();
        command.arg("restore").args(archives).arg("--ledger").arg(&self.ledger);
        if self.accounts[0] != self.ledger.join("accounts") {
            for dir in &self.accounts {
                command.arg("--accounts").arg(dir);
            }
        }
        command
    }

    fn restore(&self, archives: &[&Path]) {
        self.command(archives).assert().success();
    }
}

/// Slot to content of every storage of an archive.
fn storages(archive: &Path) -> BTreeMap<u64, Vec<u8>> {
    contents(archive)
        .into_iter()
        .filter_map(|(path, content)| {
            let slot = path.strip_prefix("accounts/")?.split_once('.')?.0.parse().ok()?;
            Some((slot, content))
        })
        .collect()
}

/// Everything that docs/snapshot-format.md#fast-boot asks.
fn check_boot_layout(target: &Target, archives: &[&Path]) {
    let newest = contents(archives.last().expect("an archive"));
    let bank_path = newest.keys().find(|path| path.matches('/').count() == 2).expect("a bank file");
    let slot = name(Path::new(bank_path));
    let bank_snapshot = target.ledger.join("snapshots").join(&slot);
    assert_eq!(names(&target.ledger.join("snapshots")).first(), Some(&slot), "one bank snapshot");
    let mut found = names(&bank_snapshot);
    found.sort();
    let mut expected =
        vec!["fastboot_version", "obsolete_accounts", "status_cache", "storages_list", "version", slot.as_str()];
    expected.sort_unstable();
    assert_eq!(found, expected);
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
        assert_eq!(names(&dir.join("snapshot")), Vec::<String>::new());
        let here = tree(&dir.join("run"));
        assert!(!here.is_empty(), "storages are spread over all accounts paths");
        on_disk.extend(here);
    }
    assert_eq!(on_disk.len(), list.len(), "nothing that the list does not name");
    for (slot, id) in &list {
        let content = on_disk[&format!("{slot}.{id}")].as_ref().expect("a file");
        assert!(*content == union[slot], "{slot}.{id} differs");
    }

    let obsolete: Vec<u64> = read("obsolete_accounts")
        .chunks_exact(8)
        .map(|bytes| u64::from_le_bytes(bytes.try_into().expect("8")))
        .collect();
    let expected: Vec<u64> = std::iter::once(list.len() as u64)
        .chain(list.iter().flat_map(|(slot, id)| [*slot, u64::from(*id), 0, 0]))
        .collect();
    assert_eq!(obsolete, expected, "the same ids, nothing obsolete");

    for archive in archives {
        let placed = target.ledger.join(name(archive));
        assert!(fs::read(&placed).expect("placed") == fs::read(archive).expect("read"), "{}", placed.display());
        assert_eq!(fs::metadata(&placed).expect("metadata").nlink(), 1, "never a hard link");
        assert!(!fs::symlink_metadata(&placed).expect("metadata").is_symlink());
    }
    let left: Vec<String> =
        names(&target.ledger).into_iter().filter(|name| name.contains("slotpress") || name.contains("tmp")).collect();
    assert_eq!(left, Vec::<String>::new(), "no temporary file stays");
}

/// Nothing of a ledger in the target, and nothing else around it than before.
fn assert_nothing_left(target: &Target) {
    assert_eq!(names(target.dir.path()), Vec::<String>::new());
}

#[test]
fn agaves_archives() {
    for paths in [0, 1, 3] {
        let (full, incremental) = (fixture(FULL_26), fixture(INCREMENTAL_26_40));
        for archives in [&[full.as_path()][..], &[&full, &incremental]] {
            let target = Target::new(paths);
            target.restore(archives);
            check_boot_layout(&target, archives);
        }
        let (full, incremental) = (fixture(FULL_3500), fixture(INCREMENTAL_3500_3550));
        let target = Target::new(paths);
        target.restore(&[&full, &incremental]);
        check_boot_layout(&target, &[&full, &incremental]);
    }
}

#[test]
fn our_archives() {
    let (ledger_26, ledger_40, out) = (ledger("ledger-at-26"), ledger("ledger-at-40"), temp_dir());
    for (number, frame_size) in ["64KiB", "256KiB", "32MiB"].into_iter().enumerate() {
        let out = out.path().join(frame_size);
        fs::create_dir(&out).expect("made");
        let full = archive(ledger_26.path(), &out, &["--frame-size", frame_size]);
        let incremental = archive(ledger_40.path(), &out, &["--frame-size", frame_size, "--base-slot", "26"]);
        for archives in [&[full.as_path()][..], &[&full, &incremental]] {
            let target = Target::new(number + 1);
            target.restore(archives);
            check_boot_layout(&target, archives);
            let without_index = Target::new(number + 1);
            without_index.command(archives).arg("--ignore-index").assert().success();
            check_boot_layout(&without_index, archives);
        }
        // Ours on Agave's.
        let target = Target::new(0);
        target.restore(&[&fixture(FULL_26), &incremental]);
        check_boot_layout(&target, &[&fixture(FULL_26), &incremental]);
    }
}

/// One frame without content size, frames cut at any byte: all give the same ledger.
#[test]
fn other_makers_frames() {
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
        check_boot_layout(&target, &[path]);
    }
}

#[needs("pzstd")]
#[test]
fn frames_of_pzstd() {
    let dir = temp_dir();
    let (plain, path) = (dir.path().join("plain.tar"), dir.path().join(FULL_3500));
    fs::write(&plain, tar_of(&fixture(FULL_3500))).expect("written");
    let output = std::process::Command::new("pzstd").args(["-p", "3", "-1", "-c"]).arg(&plain).output();
    fs::write(&path, output.expect("runs").stdout).expect("written");
    let target = Target::new(2);
    target.restore(&[&path]);
    check_boot_layout(&target, &[&path]);
}

/// Agave looks for compressed archives only, and without one it does not look at the restored state at all: a plain tar
/// is compressed on its way, wherever it lies.
#[test]
fn a_plain_tar() {
    let (ledger, out) = (ledger("ledger-at-26"), temp_dir());
    let plain = archive(ledger.path(), out.path(), &["--format", "none"]);
    let compressed = archive(ledger.path(), out.path(), &[]);
    let target = Target::new(0);
    target.restore(&[&plain]);
    let placed = target.ledger.join(name(&compressed));
    assert!(tar_of(&placed) == tar_of(&plain));
    check_boot_layout(&target, &[&placed]);

    let there = Target::new(0);
    fs::create_dir(&there.ledger).expect("made");
    let inside = there.ledger.join(name(&plain));
    fs::copy(&plain, &inside).expect("copied");
    there.restore(&[&inside]);
    check_boot_layout(&there, &[&there.ledger.join(name(&compressed))]);
}

/// Archives of two nodes: the same ids in both, and ids that a validator could not count on from.
#[test]
fn equal_and_huge_ids() {
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
    let id_of: [(&str, &dyn Fn(usize) -> u32); 3] =
        [("from-zero", &|number| number as u32), ("all-equal", &|_| 7), ("huge", &|number| u32::MAX - number as u32)];
    for (kind, id_of) in id_of {
        let full = renumber(&fixture(FULL_26), kind, id_of);
        let incremental = renumber(&fixture(INCREMENTAL_26_40), kind, id_of);
        let target = Target::new(3);
        target.restore(&[&full, &incremental]);
        check_boot_layout(&target, &[&full, &incremental]);
    }
}

#[test]
fn the_tree_of_an_archive() {
    let (ledger, out) = (ledger("ledger-at-26"), temp_dir());
    let ours = archive(ledger.path(), out.path(), &["--frame-size", "64KiB"]);
    for archive in [fixture(FULL_26), fixture(INCREMENTAL_26_40), ours] {
        let target = Target::new(0);
        let mut command = target.command(&[&archive]);
        command.args(["--tree", "archive"]);
        // Of an incremental archive alone, the state cannot be checked.
        if name(&archive).starts_with("incremental-") {
            command.args(["--check", "frames"]);
        }
        command.assert().success();
        let found: BTreeMap<String, Vec<u8>> =
            tree(&target.ledger).into_iter().map(|(path, content)| (path, content.unwrap_or_default())).collect();
        let mut expected = contents(&archive);
        expected.insert("accounts".to_string(), Vec::new());
        assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
        assert!(found == expected);
    }
}

#[test]
fn an_archive_that_lies_in_the_archives_directory_already() {
    for inner in ["", "remote"] {
        let target = Target::new(0);
        let dir = target.ledger.join(inner);
        fs::create_dir_all(&dir).expect("made");
        let (full, incremental) = (dir.join(FULL_26), dir.join(INCREMENTAL_26_40));
        fs::copy(fixture(FULL_26), &full).expect("copied");
        fs::copy(fixture(INCREMENTAL_26_40), &incremental).expect("copied");
        target.restore(&[&full, &incremental]);
        assert!(target.ledger.join("snapshots/40/fastboot_version").exists());
        let archives: Vec<String> =
            names(&target.ledger).into_iter().filter(|name| name.ends_with(".tar.zst")).collect();
        assert_eq!(archives.len(), 2, "no second copy: {archives:?}");
    }
}

#[test]
fn snapshots_elsewhere_and_directories_that_are_there() {
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
    assert!(!target.ledger.join("snapshots").exists() && !target.ledger.join(FULL_26).exists());
    assert_eq!(fs::read(target.ledger.join("genesis.bin")).expect("read"), b"mine");
    assert_eq!(names(&target.accounts[0].join("run")).len(), 27);
}

/// What names archives by hand does not matter, what is inside does.
#[test]
fn archives_of_any_name() {
    let (dir, target) = (temp_dir(), Target::new(0));
    let (full, incremental) = (dir.path().join("a"), dir.path().join("b.bin"));
    fs::copy(fixture(FULL_26), &full).expect("copied");
    fs::copy(fixture(INCREMENTAL_26_40), &incremental).expect("copied");
    target.restore(&[&full, &incremental]);
    assert!(target.ledger.join(FULL_26).exists() && target.ledger.join(INCREMENTAL_26_40).exists());
    assert!(target.ledger.join("snapshots/40/fastboot_version").exists());
}

/// A validator that runs as another user must be able to read, write and lock what root restored for it.
#[needs(root)]
#[test]
fn the_owner_of_the_target_owns_everything() {
    const OWNER: (u32, u32) = (12_345, 23_456);
    let target = Target::new(0);
    fs::create_dir(&target.ledger).expect("made");
    std::os::unix::fs::chown(&target.ledger, Some(OWNER.0), Some(OWNER.1)).expect("given away");
    target.restore(&[&fixture(FULL_26), &fixture(INCREMENTAL_26_40)]);
    for path in names(&target.ledger) {
        let metadata = fs::symlink_metadata(target.ledger.join(&path)).expect("metadata");
        assert_eq!((metadata.uid(), metadata.gid()), OWNER, "{path}");
    }
    let tree_target = Target::new(0);
    fs::create_dir(&tree_target.ledger).expect("made");
    std::os::unix::fs::chown(&tree_target.ledger, Some(OWNER.0), Some(OWNER.1)).expect("given away");
    tree_target.command(&[&fixture(FULL_26)]).args(["--tree", "archive"]).assert().success();
    for path in names(&tree_target.ledger) {
        let metadata = fs::symlink_metadata(tree_target.ledger.join(&path)).expect("metadata");
        assert_eq!((metadata.uid(), metadata.gid()), OWNER, "{path}");
    }
    // Directories that are made, and archives, belong to the owner of the directory above.
    let dir = temp_dir();
    std::os::unix::fs::chown(dir.path(), Some(OWNER.0), Some(OWNER.1)).expect("given away");
    let ledger = dir.path().join("new/ledger");
    slotpress().arg("restore").arg(fixture(FULL_26)).arg("--ledger").arg(&ledger).assert().success();
    slotpress().args(["archive"]).arg(&ledger).arg("-o").arg(dir.path()).assert().success();
    for path in names(dir.path()) {
        let metadata = fs::symlink_metadata(dir.path().join(&path)).expect("metadata");
        assert_eq!((metadata.uid(), metadata.gid()), OWNER, "{path}");
    }
}

fn fails(command: &mut assert_cmd::Command, code: i32, texts: &[&str]) {
    let output = command.output().expect("runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(output.stdout.is_empty(), "nothing on stdout");
    assert!(said.starts_with("error: "), "{said}");
    for text in texts {
        assert!(said.contains(text), "{text:?} in {said}");
    }
}

#[test]
fn an_incremental_archive_without_its_full_one() {
    let incremental = fixture(INCREMENTAL_26_40);
    let target = Target::new(0);
    fails(
        &mut target.command(&[&incremental]),
        2,
        &["builds on slot 26", "hint: give the full archive of slot 26 first"],
    );
    assert_nothing_left(&target);

    // Without the name that gives it away.
    let dir = temp_dir();
    let renamed = dir.path().join("archive");
    fs::copy(&incremental, &renamed).expect("copied");
    fails(&mut target.command(&[&renamed]), 3, &["is missing", "hint: "]);
    assert_nothing_left(&target);

    let full = dir.path().join("full");
    fs::copy(fixture(FULL_3500), &full).expect("copied");
    fails(&mut target.command(&[&full, &incremental]), 2, &["builds on slot 26", "slot 3500"]);
    assert_nothing_left(&target);
    fails(&mut target.command(&[&fixture(FULL_3500), &incremental]), 2, &["builds on slot 26", "slot 3500"]);
    fails(&mut target.command(&[&incremental, &fixture(FULL_26)]), 2, &["the two archives are swapped"]);
    fails(&mut target.command(&[&fixture(FULL_26), &fixture(FULL_3500)]), 2, &["second archive is a full one"]);
    assert_nothing_left(&target);
}

/// A full archive of the right slot that lacks a storage which the incremental one builds on.
#[test]
fn an_incremental_archive_on_another_full_one() {
    let dir = temp_dir();
    let mut entries = entries(&fixture(FULL_26));
    entries.retain(|entry| entry.path != "accounts/5.5");
    let bank = entries.iter_mut().find(|entry| entry.path == "snapshots/26/26").expect("a bank file");
    // Its own bank file names the storage no more: slot 5, one storage, id 5, its length.
    let item: Vec<u8> = [5u64, 1, 5].iter().flat_map(|number| number.to_le_bytes()).collect();
    let at = bank.content.windows(24).position(|bytes| bytes == item).expect("the storage map");
    bank.content[at + 24..at + 32].fill(0);
    let full = dir.path().join(FULL_26);
    fs::write(&full, zstd::stream::encode_all(make_tar(&entries).as_slice(), 1).expect("compresses")).expect("written");

    let alone = Target::new(0);
    // Its state is not the bank file's: that is found, unless somebody asks to go without.
    fails(&mut alone.command(&[&full]), 3, &["do not add up to the bank file's capitalization"]);
    assert_nothing_left(&alone);
    alone.command(&[&full]).args(["--check", "frames"]).assert().success();
    let target = Target::new(0);
    fails(
        &mut target.command(&[&full, &fixture(INCREMENTAL_26_40)]),
        3,
        &["a storage of the bank file's storage map is missing", "accounts/5.5"],
    );
    assert_nothing_left(&target);
}

#[test]
fn a_name_that_lies() {
    let dir = temp_dir();
    let hash = "D5jEKFz2JqBFLYETBEnvkiV47AnCXjXEdUgUU1XYNwsi";
    for renamed in [FULL_26.replace("-26-", "-27-"), format!("snapshot-26-{hash}.tar.zst")] {
        let path = dir.path().join(&renamed);
        fs::copy(fixture(FULL_26), &path).expect("copied");
        let target = Target::new(2);
        fails(&mut target.command(&[&path]), 3, &["does not match its name", "hint: do not use it"]);
        assert_nothing_left(&target);
    }
    // A base slot that is a lie: storages that the name rules out, or that the full archive lacks.
    let path = dir.path().join(INCREMENTAL_26_40.replace("-26-40", "-30-40"));
    fs::copy(fixture(INCREMENTAL_26_40), &path).expect("copied");
    let target = Target::new(0);
    let mut tree = target.command(&[&path]);
    fails(tree.args(["--tree", "archive", "--check", "frames"]), 3, &["not newer than the base slot", "above 30"]);
    assert_nothing_left(&target);
}

/// What is there stays as it is.
#[test]
fn a_target_that_holds_something() {
    let full = fixture(FULL_26);
    for (path, layout) in [
        ("snapshots/7/7", "boot"),
        ("accounts/run/1.1", "boot"),
        ("accounts/snapshot/7/1.1", "boot"),
        ("version", "archive"),
        ("snapshots/status_cache", "archive"),
        ("accounts/1.1", "archive"),
        ("ledger.lock", "archive"),
    ] {
        let target = Target::new(0);
        let there = target.ledger.join(path);
        fs::create_dir_all(there.parent().expect("a parent")).expect("made");
        fs::write(&there, "precious").expect("written");
        let before = tree(&target.ledger);
        fails(
            target.command(&[&full]).args(["--tree", layout]),
            5,
            &["exists already", "hint: restore into an empty directory"],
        );
        assert_eq!(before, tree(&target.ledger), "{path}");
    }
}

#[test]
fn a_ledger_whose_lock_is_held() {
    let target = Target::new(0);
    fs::create_dir(&target.ledger).expect("made");
    let lock = fs::File::create(target.ledger.join("ledger.lock")).expect("made");
    lock.lock().expect("locked");
    fails(&mut target.command(&[&fixture(FULL_26)]), 1, &["is in use", "held by ", "(process ", "hint: stop the"]);
    assert_eq!(names(&target.ledger), ["ledger.lock"]);
    // A program that another test starts at this moment has the descriptor too, until it runs.
    lock.unlock().expect("unlocked");
    target.restore(&[&fixture(FULL_26)]);
}

/// Whoever waits for another slotpress need not stop a validator.
#[test]
fn a_ledger_that_another_slotpress_restores() {
    let target = Target::new(0);
    let mut other = std::process::Command::new(slotpress_path());
    other.args(["restore", "-", "--ledger"]).arg(&target.ledger).stdin(Stdio::piped()).stderr(Stdio::null());
    let mut other = other.spawn().expect("starts");
    let is_begun = || {
        let mut entries = fs::read_dir(&target.ledger).into_iter().flatten().flatten();
        entries.any(|entry| name(&entry.path()).starts_with("slotpress-partial-"))
    };
    let bytes = fs::read(fixture(FULL_26)).expect("read");
    other.stdin.as_mut().expect("a pipe").write_all(&bytes[..bytes.len() / 2]).expect("written");
    wait_for("the target to be locked", is_begun);
    let words = ["is in use", "held by slotpress (process ", "hint: wait until it is done"];
    fails(&mut target.command(&[&fixture(FULL_26)]), 1, &words);
    drop(other.stdin.take());
    assert!(!other.wait().expect("ends").success(), "half an archive");
}

#[test]
fn accounts_paths_that_a_validator_refuses() {
    let full = fixture(FULL_26);
    let target = Target::new(0);
    let mut same = target.command(&[&full]);
    same.arg("--accounts").arg(&target.ledger);
    fails(&mut same, 2, &["is the snapshots path", "hint: "]);
    let snapshots = target.dir.path().join("snapshots-path");
    let mut same = target.command(&[&full]);
    same.arg("--snapshots").arg(&snapshots).arg("--accounts").arg(&snapshots);
    fails(&mut same, 2, &["is the snapshots path"]);
    let mut twice = target.command(&[&full]);
    let dir = target.dir.path().join("accounts");
    twice.arg("--accounts").arg(&dir).arg("--accounts").arg(dir.join("."));
    fails(&mut twice, 2, &["is given twice"]);
    let mut inside = target.command(&[&full]);
    inside.arg("--accounts").arg(&dir).arg("--accounts").arg(dir.join("run"));
    fails(&mut inside, 2, &["accounts path"]);
    assert_nothing_left(&target);
}

#[test]
fn one_tree_holds_one_archive() {
    let target = Target::new(0);
    let mut two = target.command(&[&fixture(FULL_26), &fixture(INCREMENTAL_26_40)]);
    fails(two.args(["--tree", "archive"]), 2, &["is unpacked from one archive"]);
    let mut accounts = target.command(&[&fixture(FULL_26)]);
    accounts.args(["--tree", "archive", "--accounts"]).arg(target.dir.path().join("x"));
    fails(&mut accounts, 2, &["have no place in it"]);
    assert_nothing_left(&target);
}

/// An archive of the same name and length in the target that holds something else is not taken for the archive.
#[test]
fn another_archive_of_the_same_name() {
    for change_length in [false, true] {
        let target = Target::new(0);
        fs::create_dir(&target.ledger).expect("made");
        let mut other = fs::read(fixture(FULL_26)).expect("read");
        other[1000] ^= 1;
        if change_length {
            other.push(0);
        }
        fs::write(target.ledger.join(FULL_26), &other).expect("written");
        fails(&mut target.command(&[&fixture(FULL_26)]), 5, &["exists already", "hint: "]);
        assert!(fs::read(target.ledger.join(FULL_26)).expect("read") == other);
        assert_eq!(names(&target.ledger), [FULL_26]);
    }
}

/// Agave compares the bank with the ledger's genesis, and ends where the two are of different chains: when the chain began, and
/// how long its epochs are.
#[test]
fn a_ledger_of_another_chain() {
    let chains = ["agave-4.2.2", AGAVE_4_4, AGAVE_4_5];
    let genesis = |chain: &str| fs::read(fixture_of(chain, "genesis.bin")).expect("a genesis");
    for (number, chain) in chains.into_iter().enumerate() {
        let own = genesis(chain);
        // The epoch schedule is the last but the kind of cluster: slots in an epoch first, the first slot of full length last.
        let schedule = own.len() - 4 - 33;
        let altered = [schedule, own.len() - 5].map(|at| {
            let mut altered = own.clone();
            altered[at] ^= 1;
            altered
        });
        let another = genesis(chains[(number + 1) % 3]);
        let archive = fixture_of(chain, "snapshot-26-");
        for (content, is_own) in [(&own, true), (&another, false), (&altered[0], false), (&altered[1], false)] {
            let target = Target::new(0);
            fs::create_dir_all(&target.ledger).expect("made");
            fs::write(target.ledger.join("genesis.bin"), content).expect("written");
            let assert = target.command(&[&archive]).assert();
            assert_eq!(target.ledger.join("snapshots/26/fastboot_version").exists(), is_own, "{chain}");
            if is_own {
                assert.success();
                continue;
            }
            let errors = String::from_utf8_lossy(&assert.code(3).get_output().stderr).into_owned();
            assert!(errors.contains("is of another chain than") && errors.contains("genesis.bin"), "{errors}");
            let left: Vec<String> = names(&target.ledger).into_iter().filter(|name| name != "ledger.lock").collect();
            assert_eq!(left, ["genesis.bin"]);
        }
    }
}
