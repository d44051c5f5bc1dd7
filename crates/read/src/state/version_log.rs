//! Finds the newest version of each of a billion accounts in limited memory.
//!
//! # Method
//!
//! Records are read in any order. Each record is hashed, added to the sum, and logged in 20 bytes, so that
//! superseded records can be found later. The log has 1,024 partitions, which the fingerprints choose. At the
//! end, each partition is sorted. For each account, the record with the highest slot is the newest version.
//! The other records are read again and subtracted from the sum, so only superseded records are hashed twice.
//! They are few, because validators leave out obsolete records when they archive.
//!
//! The accounts of an incremental archive supersede records in all parts of the full archive. Therefore, the
//! incremental archive is read first, and its accounts are skipped in the full archive without being hashed
//! or logged.
//!
//! There are two alternatives. A table in which every record is looked up would cause a cache miss per
//! record, and could not be spilled. It would save hashing only if the newest records came first, which is not
//! the order in a tar stream. A first pass that only finds the newest versions would decode everything twice.
//!
//! # Memory
//!
//! The log grows by 20 bytes per record (20 GB for a billion) while it fits in three quarters of
//! the given memory. Beyond that, full chunks go to one temporary file ([`spill`](super::spill)).
//! Half of the last quarter is for sorting as many partitions at a time as fit. The other half is for
//! superseded records. They may also use the memory that sorting frees, because a sorted partition is
//! removed from the log. Superseded records are handled in rounds, each of which may decode the archive again.
//!
//! A partition must fit in memory to be sorted. Each is about a thousandth of the log: attackers cannot
//! direct accounts into one partition, because fingerprints are unpredictable
//! ([`fingerprint`](super::fingerprint)). If one account has so many records that its partition grows far
//! beyond the others, a storage must hold it more than once, which is an error.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use rayon::prelude::*;
use slotpress_base::{Error, Result, start_pool};
use slotpress_format::STORAGES_MAX;

use crate::state::known::KnownPartition;
use crate::state::log_item::{PARTITIONS, group_by_account};
use crate::{LogBatch, LogItem, RecordVersion, Spill, Superseded};

/// Items in a chunk: 40 KiB, so that one chunk for each partition takes 40 MiB.
const CHUNK_ITEMS: usize = 2048;

/// Partitions per thread that are sorted as a group, before their results are passed on. In a small archive,
/// waking threads for a smaller group would take longer than sorting it.
const GROUP_PARTITIONS: usize = 16;

const fn chunk_bytes<T: LogItem>() -> u64 {
    CHUNK_ITEMS as u64 * T::BYTES as u64
}

const fn log_bytes_min<T: LogItem>() -> u64 {
    PARTITIONS as u64 * chunk_bytes::<T>()
}

pub struct VersionLog<T = RecordVersion> {
    partitions: Vec<Mutex<Partition<T>>>,
    log_bytes_max: u64,
    /// Memory for sorting. The superseded records of a round may take the same amount, plus the memory of the
    /// log that is free.
    sort_bytes_max: u64,
    held_bytes: AtomicU64,
    spill: Spill,
}

#[derive(Default)]
struct Partition<T> {
    chunks: Vec<Vec<T>>,
    /// Offsets of this partition's full chunks in the temporary file.
    spilled: Vec<u64>,
}

impl<T: LogItem> Partition<T> {
    fn bytes(&self) -> u64 {
        (self.chunks.len() + self.spilled.len()) as u64 * chunk_bytes::<T>()
    }
}

impl<T: LogItem> VersionLog<T> {
    /// Creates a log that uses at most `memory_bytes`, or 50 MiB if that is more. Beyond that, the log spills
    /// into `spill_dir`, where `space_bytes` must be free at that time.
    pub fn new(memory_bytes: u64, spill_dir: &Path, space_bytes: u64) -> Self {
        Self {
            partitions: (0..PARTITIONS).map(|_| Mutex::default()).collect(),
            log_bytes_max: (memory_bytes / 4 * 3).max(log_bytes_min::<T>()),
            sort_bytes_max: (memory_bytes / 8).max(log_bytes_min::<T>() / 8),
            held_bytes: AtomicU64::new(0),
            spill: Spill::new(spill_dir, space_bytes),
        }
    }

    /// If not everything is expected to fit in memory, checks that the disk has enough space.
    pub fn check_expected_space(&self, memory_bytes: u64) -> Result<()> {
        if self.spill.space_bytes > memory_bytes / 4 * 3 { self.spill.check_space() } else { Ok(()) }
    }

    pub fn spilled_bytes(&self) -> u64 {
        self.spill.bytes()
    }

    pub fn append(&self, batch: &mut LogBatch<T>) -> Result<()> {
        for items in batch.group_by_partition() {
            let mut remaining = items;
            let mut partition = self.partitions[items[0].partition()].lock();
            while !remaining.is_empty() {
                if partition.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK_ITEMS) {
                    self.make_room(&mut partition)?;
                }
                let Some(chunk) = partition.chunks.last_mut() else { break };
                let (fitting, others) = remaining.split_at(remaining.len().min(CHUNK_ITEMS - chunk.len()));
                chunk.extend_from_slice(fitting);
                remaining = others;
            }
        }
        batch.clear();
        Ok(())
    }

    fn make_room(&self, partition: &mut Partition<T>) -> Result<()> {
        let chunk_bytes = chunk_bytes::<T>();
        let average_bytes = (self.held_bytes.load(Relaxed) + self.spilled_bytes()) / PARTITIONS as u64;
        // Twice the average allows for chance, and twice `STORAGES_MAX` for two states in which every storage
        // holds the same account.
        if partition.bytes() > 2 * (average_bytes + STORAGES_MAX * T::BYTES as u64) {
            return Err(Error::damaged("an account occurs millions of times, so more than once in a storage"));
        }
        if self.held_bytes.load(Relaxed) + chunk_bytes > self.log_bytes_max {
            let mut bytes = Vec::with_capacity(chunk_bytes as usize);
            while let Some(chunk) = partition.chunks.pop() {
                bytes.clear();
                chunk.iter().for_each(|item| item.append_to(&mut bytes));
                partition.spilled.push(self.spill.write(&bytes)?);
                self.held_bytes.fetch_sub(chunk_bytes, Relaxed);
            }
        }
        // The first chunk of each partition is always allowed, because the minimum memory of the log holds
        // all of them. It grows as needed: a small archive has no other chunks, and 40 MiB would be too
        // much for it.
        let is_first = partition.bytes() == 0;
        partition.chunks.push(Vec::with_capacity(if is_first { 0 } else { CHUNK_ITEMS }));
        self.held_bytes.fetch_add(chunk_bytes, Relaxed);
        Ok(())
    }

    fn sort(&self, partition: &Mutex<Partition<T>>, sorted: &mut Vec<T>) -> Result<()> {
        let Partition { mut chunks, spilled } = std::mem::take(&mut *partition.lock());
        let held_chunks = chunks.len();
        let mut bytes = Vec::new();
        for offset in &spilled {
            bytes.resize(CHUNK_ITEMS * T::BYTES, 0);
            self.spill.read(*offset, &mut bytes)?;
            chunks.push(bytes.chunks_exact(T::BYTES).map(T::from_bytes).collect());
        }
        group_by_account(&chunks, sorted);
        self.held_bytes.fetch_sub(held_chunks as u64 * chunk_bytes::<T>(), Relaxed);
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
        let pool = start_pool(threads)?;
        // A small archive leaves most partitions empty, and scheduling each of these would take longer than
        // all other work.
        let partitions: Vec<_> = self.partitions.iter().filter(|partition| partition.lock().bytes() > 0).collect();
        // Buffers are reused, because the kernel would have to clear new ones.
        let spare_buffers = Mutex::new(Vec::<Vec<T>>::new());
        let mut remaining = partitions.as_slice();
        while !remaining.is_empty() {
            let group_max = threads.saturating_mul(GROUP_PARTITIONS).max(1);
            let candidates = &remaining[..group_max.min(remaining.len())];
            let (group, others) = remaining.split_at(self.count_sortable_partitions(candidates));
            remaining = others;
            let sort_and_read = |partition: &&Mutex<Partition<T>>| {
                let mut sorted = spare_buffers.lock().pop().unwrap_or_default();
                self.sort(partition, &mut sorted)?;
                let result = read(&sorted);
                spare_buffers.lock().push(sorted);
                Ok(result)
            };
            let results: Vec<R> = pool.install(|| group.par_iter().map(sort_and_read).collect::<Result<_>>())?;
            results.into_iter().try_for_each(&mut *on_result)?;
        }
        Ok(())
    }

    /// Returns the number of partitions that fit into the memory for sorting, at least 1. Each partition needs
    /// twice its length, for its chunks and the sorted copy.
    fn count_sortable_partitions(&self, partitions: &[&Mutex<Partition<T>>]) -> usize {
        let mut needed_bytes = 0;
        let fits = |partition: &&&Mutex<Partition<T>>| {
            needed_bytes += 2 * partition.lock().bytes();
            needed_bytes <= self.sort_bytes_max
        };
        partitions.iter().take_while(fits).count().max(1)
    }
}

impl VersionLog {
    /// Passes the superseded records to `on_round` in rounds that fit in memory. `find` finds them among
    /// records that are sorted by account.
    pub fn find_superseded_in_rounds(
        &self,
        threads: usize,
        find: &(dyn Fn(&[RecordVersion]) -> Superseded + Sync),
        on_round: &mut dyn FnMut(Superseded) -> Result<()>,
    ) -> Result<()> {
        let mut round = Superseded::default();
        self.for_each_partition(threads, find, &mut |found| {
            round.add(found);
            let free_bytes = self.log_bytes_max.saturating_sub(self.held_bytes.load(Relaxed));
            if round.memory_bytes() > self.sort_bytes_max.saturating_add(free_bytes) {
                round.sort();
                on_round(std::mem::take(&mut round))
            } else {
                Ok(())
            }
        })?;
        round.sort();
        on_round(round)
    }

    /// Builds a table for looking up the accounts in the log, with `threads` threads. Returns `None` if
    /// something was spilled, or if the table would take more than half of the log's memory. Otherwise, the
    /// log may use less memory from then on.
    pub fn known_accounts(&mut self, threads: usize) -> Result<Option<Vec<KnownPartition>>> {
        let items_of = |partition: &Mutex<Partition<RecordVersion>>| {
            partition.lock().chunks.iter().map(Vec::len).sum::<usize>() as u64
        };
        let items: u64 = self.partitions.iter().map(items_of).sum();
        if self.spilled_bytes() > 0 || items * KnownPartition::ITEM_BYTES > self.log_bytes_max / 2 {
            return Ok(None);
        }
        let known_of = |partition: &Mutex<Partition<RecordVersion>>| {
            let partition = partition.lock();
            let versions = partition.chunks.iter().flatten();
            KnownPartition::new(versions.map(|version| version.fingerprint).collect(), PARTITIONS.ilog2())
        };
        let pool = start_pool(threads)?;
        let partitions: Vec<KnownPartition> = pool.install(|| self.partitions.par_iter().map(known_of).collect());
        let known_bytes: u64 = partitions.iter().map(KnownPartition::memory_bytes).sum();
        self.log_bytes_max = self.log_bytes_max.saturating_sub(known_bytes).max(log_bytes_min::<RecordVersion>());
        Ok(Some(partitions))
    }
}

#[cfg(test)]
#[path = "version_log_tests.rs"]
mod tests;
