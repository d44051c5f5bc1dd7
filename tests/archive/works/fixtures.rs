//! Archives contain what the validator would have archived: names, entries and contents equal those of
//! Agave's own archives of the same states.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::records::record_ranges;
use crate::common::*;

/// Asserts what must hold for every archive.
fn assert_valid_form(archive: &Path) {
    let tar = tar_of(archive);
    let entries = entries_of_tar(&tar);
    let paths: Vec<&str> = entries.iter().map(|entry| entry.path.as_str()).collect();
    let slot: u64 = paths[3].trim_start_matches("snapshots/").trim_end_matches('/').parse().expect("a slot");
    assert_eq!(
        paths[..5],
        [
            "version",
            "snapshots/",
            "snapshots/status_cache",
            &format!("snapshots/{slot}/"),
            &format!("snapshots/{slot}/{slot}")
        ]
    );
    let storages: Vec<(u64, u64)> = paths[5..]
        .iter()
        .map(|path| {
            let (slot, id) = path.strip_prefix("accounts/").expect("a storage").split_once('.').expect("slot.id");
            (slot.parse().expect("a slot"), id.parse().expect("an id"))
        })
        .collect();
    assert!(storages.is_sorted(), "storages are ordered by slot and id");
    assert_eq!(storages.iter().map(|(slot, _)| slot).collect::<BTreeSet<_>>().len(), storages.len(), "one per slot");
    let content_bytes: usize =
        entries.iter().map(|entry| 512 + entry.content.len().next_multiple_of(512)).sum::<usize>() + 1024;
    assert_eq!(tar.len(), content_bytes, "exactly 1,024 bytes after the last entry");
    for entry in &entries {
        assert_eq!(entry.kind, if entry.path.ends_with('/') { b'5' } else { b'0' }, "{}", entry.path);
        assert!(entry.kind == b'5' || !entry.content.is_empty(), "{} is empty", entry.path);
    }
}

/// Asserts that an archive has the same name and the same files as Agave's, byte for byte.
fn assert_same_as_agave(ours: &Path, agave: &str) {
    assert_valid_form(ours);
    assert_eq!(name(ours), agave);
    let ours = contents(ours);
    let theirs = contents(&fixture(agave));
    assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>());
    for (path, content) in &ours {
        assert!(*content == theirs[path], "{path} differs");
    }
}

#[test]
fn the_full_archive_of_slot_26_equals_agaves() {
    let ledger = ledger("ledger-at-26");
    let out = temp_dir();
    let archive = archive(ledger.path(), out.path(), &[]);
    assert_same_as_agave(&archive, FULL_26);
    assert_eq!(name(&archive), expected_facts(AGAVE_4_2, 26)["archive"]);
    assert_eq!(
        entries(&archive).len() as u64,
        5 + expected_facts(AGAVE_4_2, 26)["storages"].as_u64().expect("a number")
    );
}

#[test]
fn the_incremental_archive_of_slot_40_equals_agaves() {
    let ledger = ledger("ledger-at-40");
    let out = temp_dir();
    fs::copy(fixture(FULL_26), out.path().join(FULL_26)).expect("copied");
    assert_same_as_agave(&archive(ledger.path(), out.path(), &["--base-slot", "26"]), INCREMENTAL_26_40);
}

/// Agave made no full archive of slot 40. Storages newer than 26 must equal those of the
/// incremental archive. Older ones must equal those of the full archive of slot 26, without records
/// that became obsolete since. Stale files must be left out.
#[test]
fn the_full_archive_of_slot_40_holds_the_newest_records() {
    let ledger = ledger("ledger-at-40");
    let out = temp_dir();
    let archive = archive(ledger.path(), out.path(), &[]);
    assert_valid_form(&archive);
    let hash = expected_facts(AGAVE_4_2, 40)["snapshot_hash"].as_str().expect("a hash").to_string();
    assert_eq!(name(&archive), format!("snapshot-40-{hash}.tar.zst"));
    let full = contents(&archive);
    let incremental = contents(&fixture(INCREMENTAL_26_40));
    let full_26 = contents(&fixture(FULL_26));
    assert_eq!(full.len() as u64, 5 + expected_facts(AGAVE_4_2, 40)["storages"].as_u64().expect("a number"));
    for stale in ["16.16", "26.26"] {
        assert!(ledger.path().join("accounts/run").join(stale).exists(), "the fixture holds it");
        assert!(!full.contains_key(&format!("accounts/{stale}")), "{stale} is stale");
    }
    let mut newer_storages = 0;
    let mut shortened_storages = 0;
    let mut rewritten_storages = 0;
    for (path, content) in full.iter().filter(|(path, _)| path.contains('.')) {
        if let Some(newer) = incremental.get(path) {
            assert!(content == newer, "{path} differs from the incremental's");
            newer_storages += 1;
        } else if let Some(older) = full_26.get(path) {
            let kept = records(content);
            let all = records(older);
            assert!(kept.is_subset(&all), "{path} holds a record that the full archive of 26 does not");
            shortened_storages += usize::from(kept.len() < all.len());
        } else {
            rewritten_storages += 1;
        }
    }
    assert_eq!(newer_storages, 14, "slots 27 to 40");
    assert!(shortened_storages > 0, "some storage lost obsolete records");
    assert_eq!(rewritten_storages, 2, "16.33 and 26.34 took the place of the stale files");
}

/// Returns the records of a storage without their padding.
fn records(storage: &[u8]) -> BTreeSet<Vec<u8>> {
    record_ranges(storage).into_iter().map(|range| storage[range].to_vec()).collect()
}

#[test]
fn hard_links_make_the_same_archives() {
    let list = ledger("ledger-at-40");
    let links = ledger("ledger-at-40-hard-links");
    let out = temp_dir();
    let dirs = ["list", "relative", "absolute", "accounts", "moved"].map(|dir| out.path().join(dir));
    for dir in &dirs {
        fs::create_dir(dir).expect("made");
    }
    let from_list = fs::read(archive(list.path(), &dirs[0], &[])).expect("read");
    assert!(fs::read(archive(links.path(), &dirs[1], &[])).expect("read") == from_list, "relative link");

    let link = links.path().join("snapshots/40/accounts_hardlinks/account_path_0");
    let relink = |to: &Path| {
        fs::remove_file(&link).expect("removed");
        std::os::unix::fs::symlink(to, &link).expect("linked");
    };
    relink(&links.path().join("accounts/snapshot/40"));
    assert!(fs::read(archive(links.path(), &dirs[2], &[])).expect("read") == from_list, "absolute link");

    // The ledger was moved: its links lead nowhere, and a flag names the accounts path.
    relink(Path::new("/nowhere/accounts/snapshot/40"));
    let accounts = links.path().join("accounts");
    let accounts = accounts.to_str().expect("text");
    assert!(fs::read(archive(links.path(), &dirs[3], &["--accounts", accounts])).expect("read") == from_list);
    assert!(fs::read(archive(links.path(), &dirs[4], &[])).expect("read") == from_list, "default accounts path");

    fs::copy(fixture(FULL_26), dirs[1].join(FULL_26)).expect("copied");
    fs::remove_file(dirs[1].join(name(&archive(links.path(), &dirs[1], &["--force"])))).expect("removed");
    assert_same_as_agave(&archive(links.path(), &dirs[1], &["--base-slot", "26"]), INCREMENTAL_26_40);
}

#[test]
fn hard_links_over_two_accounts_paths_make_the_same_archive() {
    let list = ledger("ledger-at-40");
    let links = ledger("ledger-at-40-hard-links");
    let out = temp_dir();
    let dirs = ["a", "b"].map(|dir| out.path().join(dir));
    for dir in &dirs {
        fs::create_dir(dir).expect("made");
    }
    let second = temp_dir();
    let second_dir = second.path().join("snapshot/40");
    fs::create_dir_all(&second_dir).expect("made");
    let first_dir = links.path().join("accounts/snapshot/40");
    for name in relative_paths(&first_dir).iter().step_by(3) {
        let from = first_dir.join(name);
        let to = second_dir.join(name);
        fs::copy(&from, to).expect("copied");
        fs::remove_file(from).expect("removed");
    }
    let link = links.path().join("snapshots/40/accounts_hardlinks/account_path_1");
    std::os::unix::fs::symlink(&second_dir, link).expect("linked");
    let expected = fs::read(archive(list.path(), &dirs[0], &[])).expect("read");
    assert!(fs::read(archive(links.path(), &dirs[1], &[])).expect("read") == expected);
}

#[test]
fn the_ledger_of_a_real_validator_is_archived() {
    let ledger = ledger("ledger-at-3575");
    let out = temp_dir();
    let full = archive(ledger.path(), out.path(), &[]);
    assert_valid_form(&full);
    assert_eq!(name(&full), "snapshot-3575-HBh5LZCi6wrCHHJanb4RuCCgfDBptFBgamVsrsT2RPAu.tar.zst");
    fs::remove_file(&full).expect("removed");

    fs::copy(fixture(FULL_3500), out.path().join(FULL_3500)).expect("copied");
    let incremental = archive(ledger.path(), out.path(), &["--base-slot", "3500"]);
    assert_valid_form(&incremental);
    assert_eq!(
        name(&incremental),
        "incremental-snapshot-3500-3575-HBh5LZCi6wrCHHJanb4RuCCgfDBptFBgamVsrsT2RPAu.tar.zst"
    );
    for path in contents(&incremental).keys().filter_map(|path| path.strip_prefix("accounts/")) {
        let slot: u64 = path.split_once('.').expect("slot.id").0.parse().expect("a slot");
        assert!(slot > 3500, "{path}");
        assert!(slot <= 3575, "{path}");
    }
}

#[test]
fn several_accounts_paths_make_the_same_archive() {
    let ledger = ledger("ledger-at-40");
    let out = temp_dir();
    let elsewhere = temp_dir();
    let dirs = ["together", "apart"].map(|dir| out.path().join(dir));
    for dir in &dirs {
        fs::create_dir(dir).expect("made");
    }
    let together = fs::read(archive(ledger.path(), &dirs[0], &[])).expect("read");

    let snapshots = elsewhere.path().join("snapshots-path");
    fs::create_dir(&snapshots).expect("made");
    fs::rename(ledger.path().join("snapshots"), snapshots.join("snapshots")).expect("moved");
    let accounts: Vec<PathBuf> = (0..3).map(|number| elsewhere.path().join(format!("accounts-{number}"))).collect();
    for dir in &accounts {
        fs::create_dir_all(dir.join("run")).expect("made");
        fs::create_dir_all(dir.join("snapshot")).expect("made");
    }
    let run = ledger.path().join("accounts/run");
    for (number, name) in relative_paths(&run).iter().enumerate() {
        fs::rename(run.join(name), accounts[number % 3].join("run").join(name)).expect("moved");
    }
    let mut flags = vec!["--snapshots", snapshots.to_str().expect("text")];
    for dir in &accounts {
        flags.extend(["--accounts", dir.to_str().expect("text")]);
    }
    assert!(fs::read(archive(ledger.path(), &dirs[1], &flags)).expect("read") == together);
}

/// From an unpacked archive of Agave or slotpress, `archive` makes the archive again.
#[test]
fn an_unpacked_archive_makes_the_archive_again() {
    let ledger = ledger("ledger-at-26");
    let out = temp_dir();
    let dirs = ["a", "b", "c", "d"].map(|dir| out.path().join(dir));
    for dir in &dirs {
        fs::create_dir(dir).expect("made");
    }
    let from_ledger = archive(ledger.path(), &dirs[0], &[]);

    let ours = temp_dir();
    let agave_dir = temp_dir();
    let incremental = temp_dir();
    unpack_into(&from_ledger, ours.path());
    unpack_into(&fixture(FULL_26), agave_dir.path());
    for (unpacked, out) in [(&ours, &dirs[1]), (&agave_dir, &dirs[2])] {
        let again = archive(unpacked.path(), out, &[]);
        assert_eq!(name(&again), FULL_26);
        assert!(fs::read(&again).expect("read") == fs::read(&from_ledger).expect("read"));
        assert!(!unpacked.path().join("ledger.lock").exists(), "an unpacked archive is not a validator's ledger");
    }

    unpack_into(&fixture(INCREMENTAL_26_40), incremental.path());
    fs::copy(fixture(FULL_26), dirs[3].join(FULL_26)).expect("copied");
    assert_same_as_agave(&archive(incremental.path(), &dirs[3], &["--base-slot", "26"]), INCREMENTAL_26_40);
}

/// From a ledger restored from a full archive, `archive` makes that archive again, over any number of
/// accounts paths.
#[test]
fn a_restored_ledger_makes_the_archive_again() {
    let ledger = ledger("ledger-at-26");
    let out = temp_dir();
    let dirs = ["a", "b"].map(|dir| out.path().join(dir));
    for dir in &dirs {
        fs::create_dir(dir).expect("made");
    }
    let first = archive(ledger.path(), &dirs[0], &[]);
    let restored = temp_dir();
    let accounts = ["x", "y"].map(|name| restored.path().join(name).to_str().expect("text").to_string());
    let flags = ["--accounts", &accounts[0], "--accounts", &accounts[1]];
    slotpress()
        .arg("restore")
        .arg(&first)
        .arg("--ledger")
        .arg(restored.path().join("ledger"))
        .args(flags)
        .assert()
        .success();
    let second = archive(&restored.path().join("ledger"), &dirs[1], &flags);
    assert!(fs::read(&first).expect("read") == fs::read(&second).expect("read"));
}

/// In a ledger restored from a pair, no list says which records became obsolete in between. Its
/// storages are archived whole, and the program says so.
#[test]
fn a_ledger_restored_from_two_archives_is_archived_whole() {
    let restored = temp_dir();
    let out = temp_dir();
    let ledger = restored.path().join("ledger");
    slotpress()
        .arg("restore")
        .args([fixture(FULL_26), fixture(INCREMENTAL_26_40)])
        .arg("--ledger")
        .arg(&ledger)
        .assert()
        .success();
    let output = slotpress().arg("archive").arg(&ledger).arg("-o").arg(out.path()).output().expect("runs");
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("longer than the bank file says"));
    let archive = out.path().join(&relative_paths(out.path())[0]);
    assert_valid_form(&archive);
    let full = contents(&archive);
    // Ids may change; slots may not.
    let by_slot = |contents: &BTreeMap<String, Vec<u8>>| -> BTreeMap<String, Vec<u8>> {
        let storages = contents.iter().filter_map(|(path, content)| Some((path.strip_prefix("accounts/")?, content)));
        storages
            .map(|(path, content)| (path.split_once('.').expect("slot.id").0.to_string(), content.clone()))
            .collect()
    };
    let mut union = by_slot(&contents(&fixture(FULL_26)));
    union.extend(by_slot(&contents(&fixture(INCREMENTAL_26_40))));
    assert!(by_slot(&full) == union);
}

#[test]
fn a_plain_tar_holds_the_same_stream() {
    let ledger = ledger("ledger-at-26");
    let out = temp_dir();
    let compressed = archive(ledger.path(), out.path(), &[]);
    let plain = archive(ledger.path(), out.path(), &["--format", "none"]);
    assert_eq!(name(&plain), FULL_26.replace(".tar.zst", ".tar"));
    assert!(tar_of(&plain) == tar_of(&compressed));
}

#[test]
fn an_older_bank_snapshot_can_be_chosen() {
    let at_40 = ledger("ledger-at-40");
    let at_26 = ledger("ledger-at-26");
    let out = temp_dir();
    copy_tree(&at_26.path().join("snapshots/26"), &at_40.path().join("snapshots/26"));
    let [run_26, run_40] = [&at_26, &at_40].map(|ledger| ledger.path().join("accounts/run"));
    for name in relative_paths(&run_26) {
        let to = run_40.join(&name);
        if !to.exists() {
            fs::copy(run_26.join(&name), to).expect("copied");
        }
    }
    assert_same_as_agave(&archive(at_40.path(), out.path(), &["--slot", "26"]), FULL_26);
    // The newest is archived without a flag.
    assert!(name(&archive(at_40.path(), out.path(), &[])).starts_with("snapshot-40-"));
}
