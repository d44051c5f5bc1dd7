//! `inspect --account` and `--by-owner` count and find the same as a plain walk over the tar.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::records::{PlainRecord, decode_base64, field, newest, records};
use crate::common::*;
use crate::inspect::*;

const TOKEN: &str = "TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA";

fn lines_of_type<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["type"] == kind).collect()
}

#[derive(Default)]
struct OwnerCounts {
    accounts: u64,
    stored_bytes: u64,
    tombstones: u64,
}

/// Compares the counts with those of a plain walk over the records that `is_wanted` selects.
fn assert_counts(input: &Path, records: &[PlainRecord], flags: &[&str], is_wanted: &dyn Fn(&PlainRecord) -> bool) {
    let lines = inspect(input, &[&["--by-owner"], flags].concat());
    let newest = newest(records);
    let (kept, superseded): (Vec<&PlainRecord>, Vec<&PlainRecord>) = records
        .iter()
        .filter(|record| is_wanted(record))
        .partition(|record| newest[&record.pubkey].slot == record.slot);
    let (open, closed): (Vec<&PlainRecord>, Vec<&PlainRecord>) =
        kept.into_iter().partition(|record| record.lamports > 0);
    let totals = &lines[0];
    assert_eq!(totals["type"], "accounts");
    assert_eq!(totals["accounts"], open.len());
    assert_eq!(totals["tombstones"], closed.len());
    assert_eq!(totals["data_bytes"], open.iter().map(|record| record.data.len()).sum::<usize>());
    assert_eq!(totals["stored_bytes"], open.iter().map(|record| record.stored_bytes()).sum::<u64>());
    assert_eq!(totals["tombstone_bytes"], closed.iter().map(|record| record.stored_bytes()).sum::<u64>());
    assert_eq!(totals["lamports"], open.iter().map(|record| record.lamports).sum::<u64>());

    assert_eq!(totals["superseded_records"], superseded.len());
    assert_eq!(totals["superseded_bytes"], superseded.iter().map(|record| record.stored_bytes()).sum::<u64>());

    let mut by_owner: HashMap<&str, OwnerCounts> = HashMap::new();
    for record in open.iter().chain(&closed) {
        let counts = by_owner.entry(&record.owner).or_default();
        if record.lamports == 0 {
            counts.tombstones += 1;
        } else {
            counts.accounts += 1;
            counts.stored_bytes += record.stored_bytes();
        }
    }
    let owners = lines_of_type(&lines, "owner");
    assert_eq!(owners.len(), by_owner.len());
    assert_eq!(totals["owners"], by_owner.len());
    for line in &owners {
        let counts = &by_owner[line["owner"].as_str().expect("an owner")];
        assert_eq!(line["accounts"], counts.accounts);
        assert_eq!(line["stored_bytes"], counts.stored_bytes);
        assert_eq!(line["tombstones"], counts.tombstones);
    }
    let bytes: Vec<u64> = owners.iter().map(|line| line["stored_bytes"].as_u64().expect("bytes")).collect();
    assert!(bytes.is_sorted_by(|larger, smaller| larger >= smaller), "{bytes:?}");
}

/// Counts are the same for an archive without an index, one with an index, a plain tar, and a
/// ledger.
#[test]
fn counts_are_those_of_a_plain_walk() {
    let out = temp_dir();
    for name in [FULL_26, INCREMENTAL_26_40, FULL_3500] {
        let archive = fixture(name);
        assert_counts(&archive, &records(&archive), &[], &|_| true);
    }
    let ledger = ledger("ledger-at-40");
    let small_frames = ["--frame-size", "64KiB"];
    let ours = archive(ledger.path(), out.path(), &small_frames);
    let records = records(&ours);
    assert_counts(&ours, &records, &["--threads", "3"], &|_| true);
    assert_counts(&ours, &records, &["--owner", TOKEN], &|record| record.owner == TOKEN);
    assert_counts(&ledger.path().join("."), &records, &[], &|_| true);
    let plain = archive(ledger.path(), out.path(), &["--format", "none"]);
    assert_counts(&plain, &records, &[], &|_| true);
}

#[test]
fn counts_agree_with_agave() {
    let expected = expected_facts(AGAVE_4_2, 26);
    let archive = fixture(FULL_26);
    let newest = newest(&records(&archive));
    let open = newest.values().filter(|record| record.lamports > 0).count();
    assert_eq!(expected["accounts"], open, "the test's own walk");
    let lines = inspect(&archive, &["--by-owner"]);
    assert_eq!(lines[0]["accounts"], expected["accounts"]);
}

#[test]
fn a_ledger_has_obsolete_records() {
    let ledger = ledger("ledger-at-40");
    let lines = inspect(ledger.path(), &["--by-owner"]);
    assert!(lines[0]["obsolete_records"].as_u64().expect("a count") > 0);
    assert!(lines[0]["obsolete_bytes"].as_u64().expect("bytes") > 0);
}

/// Returns accounts of every kind: first, last, written twice, closed, large, and some others.
fn choose_samples(records: &[PlainRecord]) -> Vec<PlainRecord> {
    let newest = newest(records);
    let versions = |key: &str| records.iter().filter(|record| record.pubkey == key).count();
    let all: Vec<&PlainRecord> = newest.values().collect();
    let mut samples = vec![all[0], all[all.len() - 1], all[all.len() / 2]];
    samples.extend(all.iter().filter(|record| versions(&record.pubkey) > 1).take(3));
    samples.extend(all.iter().filter(|record| record.lamports == 0).take(2));
    samples.extend(all.iter().max_by_key(|record| record.data.len()));
    samples.extend(all.iter().min_by_key(|record| record.slot));
    samples.into_iter().cloned().collect()
}

fn assert_account(input: &Path, sample: &PlainRecord) {
    let lines = inspect(input, &["--account", &sample.pubkey]);
    assert_eq!(lines.len(), 1);
    let line = &lines[0];
    assert_eq!(line["type"], "account");
    assert_eq!(line["address"], sample.pubkey.as_str());
    assert_eq!(line["slot"], sample.slot, "{line}");
    assert_eq!(line["owner"], sample.owner.as_str(), "{line}");
    assert_eq!(line["storage"], format!("{}.{}", sample.slot, sample.id));
    assert_eq!(line["offset_bytes"], sample.offset);
    assert_eq!(line["lamports"], sample.lamports);
    assert_eq!(line["closed"], sample.lamports == 0);
    assert_eq!(line["executable"], sample.executable);
    assert_eq!(line["data_bytes"], sample.data.len());
    assert!(decode_base64(line["data_base64"].as_str().expect("text")) == sample.data);
}

#[test]
fn accounts_are_found_in_their_newest_version() {
    let out = temp_dir();
    let ledger = ledger("ledger-at-40");
    let ours = archive(ledger.path(), out.path(), &["--frame-size", "64KiB"]);
    let ours_records = records(&ours);
    let samples = choose_samples(&ours_records);
    assert!(samples.iter().any(|sample| sample.lamports == 0), "a closed account");
    for sample in &samples {
        assert_account(&ours, sample);
        assert_account(ledger.path(), sample);
    }
    for name in [FULL_26, INCREMENTAL_26_40, FULL_3500] {
        let archive = fixture(name);
        for sample in choose_samples(&records(&archive)) {
            assert_account(&archive, &sample);
        }
    }
}

/// The archive has several versions of two accounts and unordered storages, and is read with and without
/// an index.
#[test]
fn the_newest_version_is_found_in_any_order_of_storages() {
    let source = fixture(FULL_26);
    let mut entries = entries(&source);
    // The first account of every storage is given one of two addresses: one at odd slots, the other at even
    // ones.
    let mut storages: Vec<TarEntry> = Vec::new();
    entries.retain(|entry| {
        let is_storage = entry.path.starts_with("accounts/") && entry.kind == b'0';
        if is_storage {
            storages.push(entry.clone());
        }
        !is_storage
    });
    let slot_of = |path: &str| path[9..].split('.').next().and_then(|slot| slot.parse::<u64>().ok()).expect("a slot");
    let keys = [[3; 32], [4; 32]];
    let mut newest_slot = 0;
    for storage in &mut storages {
        newest_slot = newest_slot.max(slot_of(&storage.path));
        let key = keys[usize::from(slot_of(&storage.path) % 2 == 0)];
        storage.content[field::PUBKEY].copy_from_slice(&key);
    }
    storages.sort_by_key(|storage| slot_of(&storage.path) * 7 % 31);
    entries.extend(storages);
    let out = temp_dir();
    let tar = out.path().join(FULL_26.replace(".tar.zst", ".tar"));
    fs::write(&tar, make_tar(&entries)).expect("written");
    let indexed = temp_dir();
    let mut recompress = slotpress();
    recompress.arg("recompress").arg(&tar).arg("-o").arg(indexed.path());
    recompress.args(["--frame-size", "64KiB", "--check", "frames"]).assert().success();
    let indexed = indexed.path().join(FULL_26);

    let records = records(&tar);
    let newest = newest(&records);
    for key in keys.map(|key| bs58::encode(key).into_string()) {
        assert!(records.iter().filter(|record| record.pubkey == key).count() > 5);
        assert!(newest[&key].slot + 1 >= newest_slot);
        assert_account(&tar, &newest[&key]);
        assert_account(&indexed, &newest[&key]);
    }
    assert_counts(&indexed, &records, &[], &|_| true);
}

/// An empty storage has no records, but is one of the entries.
#[test]
fn storages_after_an_empty_one_keep_their_names() {
    let mut entries = entries(&fixture(FULL_26));
    let storages = entries.iter_mut().filter(|entry| entry.path.starts_with("accounts/") && entry.kind == b'0');
    storages.step_by(9).for_each(|storage| storage.content.clear());
    let out = temp_dir();
    let tar = out.path().join(FULL_26.replace(".tar.zst", ".tar"));
    fs::write(&tar, make_tar(&entries)).expect("written");
    let mut recompress = slotpress();
    recompress.arg("recompress").arg(&tar).arg("-o").arg(out.path()).args(["--check", "frames"]).assert().success();
    let indexed = out.path().join(FULL_26);
    assert!(inspect(&indexed, &[])[0]["root"].is_string(), "it has an index");
    for sample in newest(&records(&tar)).values().step_by(97) {
        assert_account(&indexed, sample);
    }
}

/// Storages are searched in rounds, the newest first. Damage in the oldest storages does not affect the
/// search for an account of the newest one.
#[test]
fn a_search_stops_at_the_newest_storage_that_has_the_account() {
    let ledger = temp_dir();
    let out = temp_dir();
    synthetic_ledger(ledger.path(), 36 << 20, 200);
    let ours = archive(ledger.path(), out.path(), &["--frame-size", "512KiB", "--zstd-level", "1"]);
    let newest = newest(&records(&ours));
    let newest_account = newest.values().max_by_key(|record| record.slot).expect("an account").clone();
    let oldest_account = newest.values().min_by_key(|record| record.slot).expect("an account").clone();
    for sample in [&newest_account, &oldest_account] {
        assert_account(&ours, sample);
        assert_account(ledger.path(), sample);
    }
    let mut bytes = fs::read(&ours).expect("read");
    let offset = bytes.len() / 8;
    bytes[offset..offset + 64].fill(0x55);
    fs::write(&ours, bytes).expect("written");
    let flags = ["--threads", "1", "--account"];
    let found = inspect(&ours, &[&flags[..], &[&newest_account.pubkey]].concat());
    assert_eq!(found[0]["slot"], newest_account.slot);
    assert_inspect_fails(&ours, &[&flags[..], &[&oldest_account.pubkey]].concat(), 3, "the frame at offset");
}

#[test]
fn lines_have_at_most_eighty_columns() {
    let archive = fixture(FULL_3500);
    let run = |flags: &[&str]| {
        let output = slotpress().arg("inspect").arg(&archive).args(flags).output().expect("runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("text");
        for line in text.lines().skip(1) {
            assert!(line.chars().count() <= 80, "{line}");
        }
        text
    };
    let text = run(&["--by-owner"]);
    for part in ["  accounts    1,895, 3.91 MiB in storages\n", "  Stake\n", "Upgradeable Loader"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let clock = "SysvarC1ock11111111111111111111111111111111";
    let text = run(&["--account", clock]);
    assert!(text.contains("  40 B\n"), "{text}");
    assert!(text.contains("  00000000  ac 0d 00 00 00 00 00 00 "), "{text}");
    let text = run(&["--account", "SysvarS1otHistory11111111111111111111111111"]);
    for part in ["  128 KiB\n", "--json prints all of it", "  000003f0  "] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn closed_accounts_are_marked_as_closed() {
    let archive = fixture(INCREMENTAL_26_40);
    let newest = newest(&records(&archive));
    let closed = newest.values().find(|record| record.lamports == 0).expect("a closed account");
    let output = slotpress().arg("inspect").arg(&archive).args(["--account", &closed.pubkey]).output().expect("runs");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{text}");
    assert!(text.contains("closed: its newest record has no lamports"), "{text}");
}

/// Inspects a ledger, and returns the field `in_use`.
fn inspect_in_use(ledger: &Path) -> Value {
    inspect(ledger, &[])[0]["in_use"].clone()
}

#[test]
fn no_lock_file_is_created() {
    let ledger = ledger("ledger-at-40");
    let lock = ledger.path().join("ledger.lock");
    let _ = fs::remove_file(&lock);
    assert_eq!(inspect_in_use(ledger.path()), false);
    assert!(!lock.exists());
}

/// If `inspect` took the lock, a validator that starts then would fail. While `inspect` runs, another
/// process can always take the lock.
#[test]
fn a_ledgers_lock_is_never_taken() {
    let ledger = ledger("ledger-at-40");
    let file = fs::File::create(ledger.path().join("ledger.lock")).expect("created");
    let (lock_count, seen_count) = std::thread::scope(|scope| {
        let inspecting =
            scope.spawn(|| (0..12).map(|_| inspect_in_use(ledger.path())).filter(|in_use| *in_use == true).count());
        let mut lock_count = 0;
        while !inspecting.is_finished() {
            file.try_lock().expect("nobody else takes it");
            std::thread::sleep(std::time::Duration::from_micros(300));
            file.unlock().expect("unlocked");
            lock_count += 1;
        }
        (lock_count, inspecting.join().expect("inspected"))
    });
    assert!(lock_count > 10, "{lock_count} times, seen {seen_count} times");
}

#[test]
fn a_held_lock_is_reported() {
    let ledger = ledger("ledger-at-40");
    let lock = ledger.path().join("ledger.lock");
    let file = fs::File::create(&lock).expect("created");
    let modified_time = || fs::metadata(&lock).expect("there").modified().expect("a time");
    let before = modified_time();
    assert_eq!(inspect_in_use(ledger.path()), false);
    file.try_lock().expect("free");
    assert_eq!(inspect_in_use(ledger.path()), true);
    let output = slotpress().arg("inspect").arg(ledger.path()).output().expect("runs");
    assert!(String::from_utf8_lossy(&output.stdout).contains("holds the ledger's lock"));
    file.unlock().expect("unlocked");
    file.try_lock_shared().expect("free");
    assert_eq!(inspect_in_use(ledger.path()), true, "a validator could not take it either");
    assert_eq!(modified_time(), before);
}

#[test]
fn owners_of_a_pair_are_found_by_address_and_name() {
    let full = fixture(FULL_26);
    let incremental = fixture(INCREMENTAL_26_40);
    let run = |flags: &[&str]| {
        let output = slotpress().arg("inspect").args([&full, &incremental]).args(flags).output().expect("runs");
        assert!(output.status.success(), "{flags:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let both = run(&[]);
    assert!(both.contains("full archive"), "{both}");
    assert!(both.contains("incremental archive on slot 26"), "{both}");
    let table = run(&["--by-owner"]);
    let row = table.lines().position(|line| line.starts_with(&format!("{TOKEN}  "))).expect("a row");
    assert_eq!(table.lines().nth(row + 1), Some("  Token"), "{table}");
    let by_name = run(&["--owner", "token", "--json"]);
    assert_eq!(by_name, run(&["--owner", TOKEN, "--json"]));
    assert!(by_name.contains(TOKEN), "{by_name}");
    // The ledger has the newest version of each account, as the pair must have.
    let ledger = ledger("ledger-at-40");
    let output =
        slotpress().arg("inspect").arg(ledger.path()).args(["--owner", "Token", "--json"]).output().expect("runs");
    let pair = first_line(by_name.as_bytes());
    let ledger = first_line(&output.stdout);
    assert_eq!((&pair["accounts"], &pair["lamports"]), (&ledger["accounts"], &ledger["lamports"]));
}
