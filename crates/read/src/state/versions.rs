//! Finds the newest version of each of a billion accounts in limited memory.
//!
//! # Method
//!
//! Every record is hashed as it is read, in any order, and added to the sum. 20 bytes per record
//! are logged, in 1,024 partitions by fingerprint, to find superseded records later. At the end,
//! each partition is sorted. For each account, the record of the highest slot is the newest
//! version. The storages of the other records are read again to subtract these. Only superseded
//! records are hashed twice. They are few, since validators cut obsolete records when they archive.
//! The accounts of an incremental archive supersede records in all parts of the full archive. So
//! the incremental archive is read first, and its accounts are skipped in the full one before they
//! are hashed or logged.
//!
//! Alternatives: a table in which every record is looked up costs a cache miss per record, and
//! cannot be spilled. It saves hashing only if the newest records come first, which is not the
//! order in a tar stream. Finding the newest versions in a first pass would decode everything
//! twice.
//!
//! # Memory
//!
//! The log grows by 20 bytes per record (20 GB for a billion) while it fits in three quarters of
//! the given memory. Beyond that, full chunks go to one temporary file ([`spill`](super::spill)).
//! Half of the last quarter is for sorting as many partitions at a time as fit. The other half is
//! for superseded records, and so is the memory that sorting frees: a sorted partition leaves the
//! log. Superseded records are handled in rounds, each of which may decode the archive again.
//!
//! At least one partition must be sorted in memory. Each is about a thousandth of the log:
//! attackers cannot direct accounts into one partition, because fingerprints are unpredictable
//! ([`fingerprint`](super::fingerprint)). An account with so many records that its partition grows
//! far beyond the others is an error: it is more often in one storage.

use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;
use rayon::prelude::*;
use slotpress_base::{Error, Pool, Result};
use slotpress_format::STORAGES_MAX;

use crate::state::fingerprint::Fingerprint;
use crate::state::spill::Spill;
use crate::state::version::{Batch, LogItem, PARTITIONS, group_by_account, partition_of};
use crate::{Superseded, Version};

/// Items in a chunk: 40 KiB, so that one chunk for each partition takes 40 MiB.
const CHUNK_ITEMS: usize = 2048;

/// Partitions per thread that are sorted as a group. Results are handed over after each group. In a
/// small archive, waking threads for a smaller group would take longer than sorting it.
const GROUP_PARTITIONS: usize = 16;

const fn chunk_bytes<T: LogItem>() -> u64 {
    CHUNK_ITEMS as u64 * T::BYTES as u64
}

const fn log_bytes_min<T: LogItem>() -> u64 {
    PARTITIONS as u64 * chunk_bytes::<T>()
}

/// A log of items. The default item is a [`Version`] of 20 bytes.
pub struct VersionLog<T = Version> {
    partitions: Vec<Mutex<Partition<T>>>,
    /// Memory that the log may hold, in bytes.
    log_bytes: u64,
    /// Memory for sorting, in bytes. The superseded records of a round may take as many bytes
    /// again, and the free memory of the log.
    sort_bytes: u64,
    held_bytes: AtomicU64,
    spill: Spill,
}

struct Partition<T> {
    chunks: Vec<Vec<T>>,
    /// Offsets of this partition's full chunks in the temporary file.
    spilled: Vec<u64>,
}

impl<T> Default for Partition<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), spilled: Vec::new() }
    }
}

impl<T: LogItem> Partition<T> {
    /// Length of all chunks in bytes, in memory and on disk.
    fn bytes(&self) -> u64 {
        (self.chunks.len() + self.spilled.len()) as u64 * chunk_bytes::<T>()
    }
}

impl<T: LogItem> VersionLog<T> {
    /// Uses at most `memory_bytes`, or 50 MiB if that is more, then spills into `spill_dir`, where
    /// `room_bytes` must be free at that time.
    pub fn new(memory_bytes: u64, spill_dir: &Path, room_bytes: u64) -> Self {
        Self {
            partitions: (0..PARTITIONS).map(|_| Mutex::default()).collect(),
            log_bytes: (memory_bytes / 4 * 3).max(log_bytes_min::<T>()),
            sort_bytes: (memory_bytes / 8).max(log_bytes_min::<T>() / 8),
            held_bytes: AtomicU64::new(0),
            spill: Spill::new(spill_dir, room_bytes),
        }
    }

    /// If not everything is expected to fit in memory, checks that the disk has room.
    pub fn check_room_foreseen(&self, memory_bytes: u64) -> Result<()> {
        match self.spill.room_bytes > memory_bytes / 4 * 3 {
            true => self.spill.check_room(),
            false => Ok(()),
        }
    }

    pub fn spilled_bytes(&self) -> u64 {
        self.spill.bytes()
    }

    pub fn append(&self, batch: &mut Batch<T>) -> Result<()> {
        for run in batch.by_partition() {
            let mut run = run;
            let mut partition = self.partitions[run[0].partition()].lock();
            while !run.is_empty() {
                if partition.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK_ITEMS) {
                    self.make_room(&mut partition)?;
                }
                let Some(chunk) = partition.chunks.last_mut() else { break };
                let (fits, rest) = run.split_at(run.len().min(CHUNK_ITEMS - chunk.len()));
                chunk.extend_from_slice(fits);
                run = rest;
            }
        }
        batch.clear();
        Ok(())
    }

    /// Adds a chunk to the partition. If memory is full, spills the partition's chunks first.
    fn make_room(&self, partition: &mut Partition<T>) -> Result<()> {
        let chunk_bytes = chunk_bytes::<T>();
        let average_bytes = (self.held_bytes.load(Relaxed) + self.spilled_bytes()) / PARTITIONS as u64;
        // Two states in which every storage holds the same account, and chance.
        if partition.bytes() > 2 * (average_bytes + STORAGES_MAX * T::BYTES as u64) {
            return Err(Error::damaged("an account occurs millions of times, so more than once in a storage"));
        }
        if self.held_bytes.load(Relaxed) + chunk_bytes > self.log_bytes {
            let mut bytes = Vec::with_capacity(chunk_bytes as usize);
            while let Some(chunk) = partition.chunks.pop() {
                bytes.clear();
                chunk.iter().for_each(|item| item.append_to(&mut bytes));
                partition.spilled.push(self.spill.write(&bytes)?);
                self.held_bytes.fetch_sub(chunk_bytes, Relaxed);
            }
        }
        // The first chunk of each partition is always allowed: the least memory of the log holds
        // all of them. A first chunk grows as needed: a small archive has no other chunks, and
        // 40 MiB would be too much for it.
        let is_first = partition.bytes() == 0;
        partition.chunks.push(Vec::with_capacity(if is_first { 0 } else { CHUNK_ITEMS }));
        self.held_bytes.fetch_add(chunk_bytes, Relaxed);
        Ok(())
    }

    /// Moves all items of a partition to `sorted`, sorted by account.
    fn sort(&self, partition: &Mutex<Partition<T>>, sorted: &mut Vec<T>) -> Result<()> {
        let Partition { mut chunks, spilled } = std::mem::take(&mut *partition.lock());
        let held = chunks.len();
        let mut bytes = Vec::new();
        for offset in &spilled {
            bytes.resize(CHUNK_ITEMS * T::BYTES, 0);
            self.spill.read(*offset, &mut bytes)?;
            chunks.push(bytes.chunks_exact(T::BYTES).map(T::from_bytes).collect());
        }
        group_by_account(&chunks, sorted);
        self.held_bytes.fetch_sub(held as u64 * chunk_bytes::<T>(), Relaxed);
        Ok(())
    }

    /// Sorts each partition that is not empty, and passes it to `read` on one of `threads` threads.
    /// Passes the results to `on_result` on the calling thread. All versions of an account are in
    /// one partition.
    pub fn for_each_partition<R: Send>(
        &self,
        threads: usize,
        read: &(dyn Fn(&[T]) -> R + Sync),
        on_result: &mut dyn FnMut(R) -> Result<()>,
    ) -> Result<()> {
        let pool = Pool::start(threads)?;
        // A small archive leaves most partitions empty, and scheduling each would take longer than
        // all other work.
        let partitions: Vec<_> = self.partitions.iter().filter(|partition| partition.lock().bytes() > 0).collect();
        // Buffers are reused: the kernel has to clear new memory.
        let spare = Mutex::new(Vec::<Vec<T>>::new());
        let spare = || spare.lock();
        let mut rest = partitions.as_slice();
        while !rest.is_empty() {
            let at_most = rest.len().min(threads.saturating_mul(GROUP_PARTITIONS)).max(1);
            let (group, after) = rest.split_at(self.sortable_partitions(&rest[..at_most]));
            rest = after;
            let read_one = |partition: &&Mutex<Partition<T>>| {
                let mut sorted = spare().pop().unwrap_or_default();
                self.sort(partition, &mut sorted)?;
                let result = read(&sorted);
                spare().push(sorted);
                Ok(result)
            };
            let results: Vec<R> = pool.run(|| group.par_iter().map(read_one).collect::<Result<_>>())?;
            results.into_iter().try_for_each(&mut *on_result)?;
        }
        Ok(())
    }

    /// Number of partitions that fit into the memory for sorting, at least 1. Each needs twice its
    /// length: its chunks and the sorted copy.
    fn sortable_partitions(&self, partitions: &[&Mutex<Partition<T>>]) -> usize {
        let mut left_bytes = self.sort_bytes;
        let fits = |partition: &&&Mutex<Partition<T>>| {
            let left = left_bytes.checked_sub(2 * partition.lock().bytes());
            left_bytes = left.unwrap_or_default();
            left.is_some()
        };
        partitions.iter().take_while(fits).count().max(1)
    }
}

impl VersionLog {
    /// Finds the superseded records, and hands them over in rounds that fit in memory. `among`
    /// finds them among records that are sorted by account.
    pub fn find_superseded(
        &self,
        threads: usize,
        among: &(dyn Fn(&[Version]) -> Superseded + Sync),
        on_round: &mut dyn FnMut(Superseded) -> Result<()>,
    ) -> Result<()> {
        let mut round = Superseded::default();
        self.for_each_partition(threads, among, &mut |found| {
            round.add(found);
            let free_bytes = self.log_bytes.saturating_sub(self.held_bytes.load(Relaxed));
            match round.memory_bytes() > self.sort_bytes.saturating_add(free_bytes) {
                true => on_round(std::mem::take(&mut round).sorted()),
                false => Ok(()),
            }
        })?;
        on_round(round.sorted())
    }

    /// Copies the accounts in the log into a table for look-ups, which `threads` threads build.
    /// `None` if something was spilled, or the table would take more than half of the log's memory.
    /// Otherwise, the table's memory is taken from the log's.
    pub fn known_accounts(&mut self, threads: usize) -> Result<Option<KnownAccounts>> {
        let items_of =
            |partition: &Mutex<Partition<Version>>| partition.lock().chunks.iter().map(Vec::len).sum::<usize>() as u64;
        let items: u64 = self.partitions.iter().map(items_of).sum();
        if self.spilled_bytes() > 0 || items * KnownPartition::ITEM_BYTES > self.log_bytes / 2 {
            return Ok(None);
        }
        let known_of = |partition: &Mutex<Partition<Version>>| {
            let partition = partition.lock();
            let versions = partition.chunks.iter().flatten();
            KnownPartition::new(versions.map(|it| it.fingerprint).collect(), PARTITIONS.ilog2())
        };
        let pool = Pool::start(threads)?;
        let partitions: Vec<KnownPartition> = pool.run(|| self.partitions.par_iter().map(known_of).collect());
        let known_bytes: u64 = partitions.iter().map(KnownPartition::memory_bytes).sum();
        self.log_bytes = self.log_bytes.saturating_sub(known_bytes).max(log_bytes_min::<Version>());
        Ok(Some(KnownAccounts(partitions)))
    }
}

/// A table of the accounts of newer archives, in which each account of an older one is looked up: of
/// each partition a sorted list, divided into buckets by the next bits of the fingerprints, so that
/// a look-up costs two memory accesses.
pub struct KnownAccounts(Vec<KnownPartition>);

impl KnownAccounts {
    pub fn contains(&self, fingerprint: &Fingerprint) -> bool {
        self.0[partition_of(fingerprint)].contains(fingerprint)
    }
}

/// Least average number of fingerprints in a bucket.
const KNOWN_BUCKET_ITEMS: usize = 4;

struct KnownPartition {
    sorted: Vec<Fingerprint>,
    /// Start of each bucket in the list, and the end of the last.
    starts: Vec<u32>,
    /// Number of first fingerprint bits that choose the partition, and of the next ones that choose
    /// the bucket.
    partition_bits: u32,
    bucket_bits: u32,
}

impl KnownPartition {
    /// Takes accounts whose fingerprints share their first `partition_bits` bits.
    fn new(mut fingerprints: Vec<Fingerprint>, partition_bits: u32) -> Self {
        fingerprints.sort_unstable();
        fingerprints.dedup();
        let bucket_bits = (fingerprints.len() / KNOWN_BUCKET_ITEMS).max(1).ilog2().min(32 - partition_bits);
        let mut known = Self { sorted: fingerprints, starts: Vec::new(), partition_bits, bucket_bits };
        known.starts = (0..1 << bucket_bits)
            .map(|bucket| known.sorted.partition_point(|one| known.bucket(one) < bucket) as u32)
            .chain([known.sorted.len() as u32])
            .collect();
        known
    }

    fn bucket(&self, fingerprint: &Fingerprint) -> usize {
        let Fingerprint([first, ..]) = fingerprint;
        let rest = u64::from(first << self.partition_bits) << self.bucket_bits;
        (rest >> 32) as usize
    }

    fn contains(&self, fingerprint: &Fingerprint) -> bool {
        let bucket = self.bucket(fingerprint);
        self.sorted[self.starts[bucket] as usize..self.starts[bucket + 1] as usize].contains(fingerprint)
    }

    fn memory_bytes(&self) -> u64 {
        (size_of_val(&*self.sorted) + size_of_val(&*self.starts)) as u64
    }

    /// Upper bound of the bytes per account, including its share of the bucket starts.
    const ITEM_BYTES: u64 = (size_of::<Fingerprint>() + size_of::<u32>()) as u64;
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use proptest::prelude::*;

    use super::*;
    use crate::state::fingerprint::Fingerprinter;
    use crate::state::superseded::{is_listed, superseded_among};
    use crate::state::version::ITEM_BYTES;

    const CHUNK_BYTES: u64 = chunk_bytes::<Version>();
    const LOG_BYTES_MIN: u64 = log_bytes_min::<Version>();

    /// Finds superseded records where each storage's number is its slot.
    fn by_storage(sorted: &[Version]) -> Superseded {
        superseded_among(sorted, &u64::from)
    }

    proptest! {
        /// The result equals that of a plain map.
        #[test]
        fn superseded_records_are_found(
            records in proptest::collection::hash_set((0u8..40, 0u32..20), 0..300),
            seed: u64,
        ) {
            let printer = Fingerprinter::new().expect("random bytes");
            let slot_of = |storage: u32| u64::from(storage.wrapping_mul(7) % 23);
            let mut newest: HashMap<u8, (u64, u32)> = HashMap::new();
            let is_tombstone = |key: u8, storage: u32| (seed >> ((u32::from(key) + storage) % 64)) & 1 == 1;
            let mut log = VersionLog::new(0, &std::env::temp_dir(), 0);
            let mut batch = Batch::default();
            for (key, storage) in &records {
                batch.push(Version::new(printer.of(&[*key; 32]), *storage, is_tombstone(*key, *storage), 8 * u64::from(*key)));
                let entry = newest.entry(*key).or_insert((slot_of(*storage), *storage));
                *entry = (*entry).max((slot_of(*storage), *storage));
            }
            log.append(&mut batch).expect("appended");
            let known = log.known_accounts(2).expect("threads").expect("small");
            for (key, _) in &records {
                prop_assert!(known.contains(&printer.of(&[*key; 32])));
            }
            prop_assert!(!known.contains(&printer.of(&[200; 32])));
            let mut found = Superseded::default();
            log.find_superseded(2, &|sorted| superseded_among(sorted, &slot_of), &mut |round| { found.add(round); Ok(()) }).expect("found");
            let expected = records.iter().filter(|(key, storage)| newest[key].1 != *storage);
            prop_assert_eq!(found.count, expected.clone().count() as u64);
            let subtract: Vec<_> = expected.filter(|(key, storage)| !is_tombstone(*key, *storage)).collect();
            prop_assert_eq!(found.record_count(), subtract.len());
            for (key, storage) in subtract {
                prop_assert!(is_listed(found.to_subtract.of_storage(*storage), &printer.of(&[*key; 32])));
            }
            let accounts = newest.iter().filter(|(key, (_, storage))| !is_tombstone(**key, *storage)).count();
            prop_assert_eq!(found.accounts, accounts as u64);
        }
    }

    #[test]
    fn spilling_loses_nothing() {
        let printer = Fingerprinter::new().expect("random bytes");
        let log = VersionLog::new(0, &std::env::temp_dir(), 0);
        let accounts = 3 * PARTITIONS as u32 * CHUNK_ITEMS as u32 / 2;
        let mut batch = Batch::default();
        for account in 0..accounts {
            let mut key = [0; 32];
            key[..4].copy_from_slice(&account.to_le_bytes());
            let mut is_full = batch.push(Version::new(printer.of(&key), account % 7, false, 0));
            if account % 10 == 0 {
                is_full = batch.push(Version::new(printer.of(&key), 8, false, 0));
            }
            if is_full {
                log.append(&mut batch).expect("appended");
            }
        }
        log.append(&mut batch).expect("appended");
        assert!(log.spilled_bytes() > 0);
        assert!(log.held_bytes.load(Relaxed) <= LOG_BYTES_MIN);
        let is_bounded =
            |partition: &Mutex<Partition<Version>>| partition.lock().chunks.iter().all(|it| it.len() <= CHUNK_ITEMS);
        assert!(log.partitions.iter().all(is_bounded));
        let (mut superseded, mut found) = (0, 0);
        log.find_superseded(2, &by_storage, &mut |round| {
            superseded += round.record_count();
            found += round.accounts;
            Ok(())
        })
        .expect("found");
        assert_eq!((superseded as u32, found), (accounts.div_ceil(10), u64::from(accounts)));
        assert_eq!(log.held_bytes.load(Relaxed), 0, "the log is empty");
    }

    /// Makes a log of accounts, each of which is in two storages, and in a partition and chunk of
    /// its own.
    fn twice_each(accounts: u32) -> VersionLog {
        let log = VersionLog::new(0, &std::env::temp_dir(), 0);
        let mut batch = Batch::default();
        for account in 0..accounts {
            let first = account * (u32::MAX / accounts);
            for storage in [0, 1] {
                batch.push(Version::new(Fingerprint([first, account, 1]), storage, false, 0));
            }
        }
        log.append(&mut batch).expect("appended");
        log
    }

    #[test]
    fn room_is_checked_if_it_will_be_needed() {
        // The log may take three quarters of the memory; a missing directory has no room.
        for (room_bytes, is_enough) in [(3000, true), (3001, false)] {
            let log = VersionLog::<Version>::new(4000, Path::new("/not/there"), room_bytes);
            assert_eq!(log.check_room_foreseen(4000).is_ok(), is_enough, "{room_bytes}");
        }
    }

    #[test]
    fn as_many_partitions_are_sorted_as_fit() {
        let mut log = twice_each(8);
        let partitions: Vec<_> = log.partitions.iter().filter(|it| it.lock().bytes() > 0).collect();
        assert!(partitions.len() == 8 && partitions.iter().all(|it| it.lock().bytes() == CHUNK_BYTES));
        // Each partition needs twice its length: its chunks and the sorted copy.
        for (chunks, expected) in [(0, 1), (3, 1), (4, 2), (5, 2), (6, 3), (100, 8)] {
            log.sort_bytes = chunks * CHUNK_BYTES;
            let partitions: Vec<_> = log.partitions.iter().filter(|it| it.lock().bytes() > 0).collect();
            assert_eq!(log.sortable_partitions(&partitions), expected, "{chunks}");
        }
        log.partitions[0].lock().spilled = vec![0, 0];
        assert_eq!(log.partitions[0].lock().bytes(), 3 * CHUNK_BYTES, "spilled chunks count too");
    }

    #[test]
    fn superseded_records_come_in_rounds_that_fit() {
        const ITEM: u64 = 2 * ITEM_BYTES;
        // The log holds eight chunks at first. Memory that sorted chunks leave free is used too.
        let cases = [(0, 0, 9), (ITEM, 0, 5), (8 * ITEM, 0, 1), (1 << 20, 0, 1), (0, 7, 2), (0, 8, 1)];
        for (sort_bytes, log_chunks, rounds) in cases {
            let mut log = twice_each(8);
            (log.sort_bytes, log.log_bytes) = (sort_bytes, log_chunks * CHUNK_BYTES);
            let mut counts = Vec::new();
            let mut on_round = |round: Superseded| {
                counts.push(round.record_count());
                Ok(())
            };
            log.find_superseded(1, &by_storage, &mut on_round).expect("found");
            assert_eq!(
                (counts.len(), counts.iter().sum::<usize>()),
                (rounds, 8),
                "{sort_bytes}, {log_chunks}: {counts:?}"
            );
        }
    }

    /// The table is built if it fits in half of the log's memory, from which its bytes are taken.
    #[test]
    fn known_accounts_take_at_most_half_of_the_log() {
        const NEEDED: u64 = 16 * KnownPartition::ITEM_BYTES;
        for (log_bytes, is_known) in [(2 * NEEDED, true), (2 * NEEDED - 2, false)] {
            let mut log = twice_each(8);
            log.log_bytes = log_bytes;
            assert_eq!(log.known_accounts(2).expect("threads").is_some(), is_known);
        }
        let mut log = twice_each(8);
        let before = 2 * LOG_BYTES_MIN;
        log.log_bytes = before;
        let KnownAccounts(partitions) = log.known_accounts(2).expect("threads").expect("few");
        let taken = before - log.log_bytes;
        assert_eq!(taken, partitions.iter().map(KnownPartition::memory_bytes).sum::<u64>());
        assert_eq!(log.spilled_bytes(), 0);
        log.spill.write(b"something").expect("written");
        assert!(log.known_accounts(2).expect("threads").is_none(), "no table of spilled items");
    }

    #[test]
    fn an_account_of_too_many_records_is_refused() {
        const CHUNKS_MAX: u64 = 2 * STORAGES_MAX * ITEM_BYTES / CHUNK_BYTES;
        for (chunks, is_taken) in [(CHUNKS_MAX, true), (CHUNKS_MAX + 1, false)] {
            let log = VersionLog::new(0, &std::env::temp_dir(), 0);
            log.partitions[0].lock().spilled = vec![0; chunks as usize];
            let mut batch = Batch::default();
            batch.push(Version::new(Fingerprint([0, 0, 1]), 0, false, 0));
            assert_eq!(log.append(&mut batch).is_ok(), is_taken);
        }
    }

    #[test]
    fn memory_is_bounded_and_buckets_are_small() {
        for count in [0u32, 1, 100, 1000] {
            let prints = (0..count).map(|number| Fingerprint([number * ((1 << 31) / count), 7, 0]));
            let known = KnownPartition::new(prints.collect(), 1);
            let starts_bytes = known.memory_bytes() - 12 * u64::from(count);
            // One start for each bucket, and the end of the last.
            assert_eq!(starts_bytes, 4 * ((1 << known.bucket_bits) + 1));
            assert!(known.memory_bytes() <= u64::from(count) * KnownPartition::ITEM_BYTES + 8);
            // Accounts are spread over all buckets, so a look-up compares only a few fingerprints.
            let largest = known.starts.windows(2).map(|ends| ends[1] - ends[0]).max();
            assert!(largest <= Some(2 * KNOWN_BUCKET_ITEMS as u32), "{largest:?} of {count}");
        }
    }

    proptest! {
        #[test]
        fn only_given_accounts_are_known(
            partition_bits in 1u32..12,
            given in proptest::collection::vec((any::<u32>(), 0u32..3), 0..400),
            asked in proptest::collection::vec((any::<u32>(), 0u32..3), 0..100),
        ) {
            let print = |(first, last): &(u32, u32)| Fingerprint([first >> partition_bits, 7, *last]);
            let set: HashSet<Fingerprint> = given.iter().map(print).collect();
            let known = KnownPartition::new(given.iter().map(print).collect(), partition_bits);
            for one in given.iter().chain(&asked).map(print) {
                prop_assert_eq!(known.contains(&one), set.contains(&one));
            }
        }
    }
}
