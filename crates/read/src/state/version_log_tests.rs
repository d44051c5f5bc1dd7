use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::state::log_item::{ITEM_BYTES, partition_of};
use crate::state::marks::Mark;
use crate::state::superseded::find_superseded;
use crate::{Fingerprint, Fingerprinter};

const CHUNK_BYTES: u64 = chunk_bytes::<RecordVersion>();
const LOG_BYTES_MIN: u64 = log_bytes_min::<RecordVersion>();

/// Finds superseded records of storages whose numbers are their slots.
fn superseded_by_storage_number(sorted: &[RecordVersion]) -> Superseded {
    find_superseded(sorted, &u64::from, |version| !version.is_tombstone())
}

proptest! {
    /// The result is the same as with a plain map.
    #[test]
    fn superseded_records_are_found(
        records in proptest::collection::hash_set((0u8..40, 0u32..20), 0..300),
        seed: u64,
    ) {
        let fingerprinter = Fingerprinter::new().expect("random bytes");
        let slot_of = |storage: u32| u64::from(storage.wrapping_mul(7) % 23);
        let mut newest: HashMap<u8, (u64, u32)> = HashMap::new();
        let is_tombstone = |key: u8, storage: u32| (seed >> ((u32::from(key) + storage) % 64)) & 1 == 1;
        let mut log = VersionLog::new(0, &std::env::temp_dir(), 0);
        let mut batch = LogBatch::default();
        for (key, storage) in &records {
            batch.push(RecordVersion::new(fingerprinter.fingerprint(&[*key; 32]), *storage, is_tombstone(*key, *storage), 8 * u64::from(*key)));
            let entry = newest.entry(*key).or_insert((slot_of(*storage), *storage));
            *entry = (*entry).max((slot_of(*storage), *storage));
        }
        log.append(&mut batch).expect("appended");
        let known = log.known_accounts(2).expect("threads").expect("small");
        let is_known = |key: u8| {
            let fingerprint = fingerprinter.fingerprint(&[key; 32]);
            known[partition_of(&fingerprint)].contains(&fingerprint)
        };
        for (key, _) in &records {
            prop_assert!(is_known(*key));
        }
        prop_assert!(!is_known(200));
        let mut found = Superseded::default();
        log.find_superseded_in_rounds(2, &|sorted| find_superseded(sorted, &slot_of, |version| !version.is_tombstone()), &mut |round| { found = round; Ok(()) }).expect("found");
        let expected = records.iter().filter(|(key, storage)| newest[key].1 != *storage);
        prop_assert_eq!(found.count, expected.clone().count() as u64);
        let subtract: Vec<_> = expected.filter(|(key, storage)| !is_tombstone(*key, *storage)).collect();
        prop_assert_eq!(found.records.len(), subtract.len());
        for (key, storage) in subtract {
            let mark = Mark::new(*storage, 8 * u64::from(*key));
            prop_assert!(found.records.iter().any(|version| version.mark() == mark));
        }
        let accounts = newest.iter().filter(|(key, (_, storage))| !is_tombstone(**key, *storage)).count();
        prop_assert_eq!(found.accounts, accounts as u64);
    }
}

#[test]
fn spilling_loses_nothing() {
    let fingerprinter = Fingerprinter::new().expect("random bytes");
    let log = VersionLog::new(0, &std::env::temp_dir(), 0);
    let accounts = 3 * PARTITIONS as u32 * CHUNK_ITEMS as u32 / 2;
    let mut batch = LogBatch::default();
    for account in 0..accounts {
        let mut key = [0; 32];
        key[..4].copy_from_slice(&account.to_le_bytes());
        let mut is_full =
            batch.push(RecordVersion::new(fingerprinter.fingerprint(&key), account % 7, false, 8 * u64::from(account)));
        if account % 10 == 0 {
            is_full = batch.push(RecordVersion::new(fingerprinter.fingerprint(&key), 8, false, 8 * u64::from(account)));
        }
        if is_full {
            log.append(&mut batch).expect("appended");
        }
    }
    log.append(&mut batch).expect("appended");
    assert!(log.spilled_bytes() > 0);
    assert!(log.held_bytes.load(Relaxed) <= LOG_BYTES_MIN);
    let is_bounded = |partition: &Mutex<Partition<RecordVersion>>| {
        partition.lock().chunks.iter().all(|chunk| chunk.len() <= CHUNK_ITEMS)
    };
    assert!(log.partitions.iter().all(is_bounded));
    let mut superseded = 0;
    let mut found = 0;
    log.find_superseded_in_rounds(2, &superseded_by_storage_number, &mut |round| {
        superseded += round.records.len();
        found += round.accounts;
        Ok(())
    })
    .expect("found");
    assert_eq!((superseded as u32, found), (accounts.div_ceil(10), u64::from(accounts)));
    assert_eq!(log.held_bytes.load(Relaxed), 0, "the log is empty");
}

/// Creates a log of accounts, each of which is in two storages. Each account has its own partition, with one
/// chunk.
fn log_with_two_records_per_account(accounts: u32) -> VersionLog {
    let log = VersionLog::new(0, &std::env::temp_dir(), 0);
    let mut batch = LogBatch::default();
    for account in 0..accounts {
        let first = account * (u32::MAX / accounts);
        for storage in [0, 1] {
            batch.push(RecordVersion::new(Fingerprint([first, account, 1]), storage, false, 8 * u64::from(account)));
        }
    }
    log.append(&mut batch).expect("appended");
    log
}

#[test]
fn space_is_checked_if_it_is_expected_to_be_needed() {
    // The log may take three quarters of the memory; a missing directory has no space.
    for (space_bytes, is_enough) in [(3000, true), (3001, false)] {
        let log = VersionLog::<RecordVersion>::new(4000, Path::new("/not/there"), space_bytes);
        assert_eq!(log.check_expected_space(4000).is_ok(), is_enough, "{space_bytes}");
    }
}

#[test]
fn as_many_partitions_are_sorted_at_once_as_fit_in_memory() {
    let mut log = log_with_two_records_per_account(8);
    let lengths = log.partitions.iter().map(|partition| partition.lock().bytes()).filter(|bytes| *bytes > 0);
    assert_eq!(lengths.collect::<Vec<_>>(), [CHUNK_BYTES; 8]);
    // Each partition needs twice its length: its chunks and the sorted copy.
    for (chunks, expected) in [(0, 1), (3, 1), (4, 2), (5, 2), (6, 3), (100, 8)] {
        log.sort_bytes_max = chunks * CHUNK_BYTES;
        let is_used = |partition: &&Mutex<Partition<RecordVersion>>| partition.lock().bytes() > 0;
        let partitions: Vec<_> = log.partitions.iter().filter(is_used).collect();
        assert_eq!(log.count_sortable_partitions(&partitions), expected, "{chunks}");
    }
    log.partitions[0].lock().spilled = vec![0, 0];
    assert_eq!(log.partitions[0].lock().bytes(), 3 * CHUNK_BYTES, "spilled chunks count too");
}

#[test]
fn superseded_records_come_in_rounds_that_fit_in_memory() {
    const ITEM: u64 = 2 * ITEM_BYTES;
    // The log holds eight chunks at first. The memory that sorting frees is used too.
    let cases = [(0, 0, 9), (ITEM, 0, 5), (8 * ITEM, 0, 1), (1 << 20, 0, 1), (0, 7, 2), (0, 8, 1)];
    for (sort_bytes_max, log_chunks, rounds) in cases {
        let mut log = log_with_two_records_per_account(8);
        (log.sort_bytes_max, log.log_bytes_max) = (sort_bytes_max, log_chunks * CHUNK_BYTES);
        let mut counts = Vec::new();
        let mut on_round = |round: Superseded| {
            counts.push(round.records.len());
            Ok(())
        };
        log.find_superseded_in_rounds(1, &superseded_by_storage_number, &mut on_round).expect("found");
        assert_eq!(
            (counts.len(), counts.iter().sum::<usize>()),
            (rounds, 8),
            "{sort_bytes_max}, {log_chunks}: {counts:?}"
        );
    }
}

/// The table is built if it fits in half of the log's memory. The log may then use less memory.
#[test]
fn known_accounts_take_at_most_half_of_the_log() {
    const NEEDED: u64 = 16 * KnownPartition::ITEM_BYTES;
    for (log_bytes_max, is_known) in [(2 * NEEDED, true), (2 * NEEDED - 2, false)] {
        let mut log = log_with_two_records_per_account(8);
        log.log_bytes_max = log_bytes_max;
        assert_eq!(log.known_accounts(2).expect("threads").is_some(), is_known);
    }
    let mut log = log_with_two_records_per_account(8);
    let before = 2 * LOG_BYTES_MIN;
    log.log_bytes_max = before;
    let partitions = log.known_accounts(2).expect("threads").expect("a few");
    let taken = before - log.log_bytes_max;
    assert_eq!(taken, partitions.iter().map(KnownPartition::memory_bytes).sum::<u64>());
    assert_eq!(log.spilled_bytes(), 0);
    log.spill.write(b"something").expect("written");
    assert!(log.known_accounts(2).expect("threads").is_none(), "no table of spilled items");
}

#[test]
fn an_account_with_too_many_records_is_refused() {
    const CHUNKS_MAX: u64 = 2 * STORAGES_MAX * ITEM_BYTES / CHUNK_BYTES;
    for (chunks, is_accepted) in [(CHUNKS_MAX, true), (CHUNKS_MAX + 1, false)] {
        let log = VersionLog::new(0, &std::env::temp_dir(), 0);
        log.partitions[0].lock().spilled = vec![0; chunks as usize];
        let mut batch = LogBatch::default();
        batch.push(RecordVersion::new(Fingerprint([0, 0, 1]), 0, false, 0));
        assert_eq!(log.append(&mut batch).is_ok(), is_accepted);
    }
}
