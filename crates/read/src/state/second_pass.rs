//! The second pass over a state: every record is visited again, now that superseded ones are known.
//!
//! The first pass logged the records ([`versions`](super::versions)). Superseded records are marked
//! by a bit per 136 bytes of storages, a thousandth of the input: no two records start closer to
//! each other. Only newest versions are hashed, in this pass, so the state that is judged is the
//! one that was visited.

use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use slotpress_base::{Error, Hint, Result, quantity};
use slotpress_format::{BankFile, RECORD_HEADER_BYTES, Record, Root};

use super::accounts::slot_of;
use super::superseded::for_each_superseded;
use super::version::Version;
use super::versions::VersionLog;
use super::well_known::WellKnownAccounts;
use crate::StorageRef;

/// Memory that marks may always take: enough for 64 GiB of storages.
const LIMIT_BYTES_MIN: u64 = 64 << 20;

pub trait StateVisitor: Sync {
    /// Called once, between the passes. An error ends the reading.
    fn begin(&self, _facts: &StateFacts<'_>) -> Result<()> {
        Ok(())
    }

    fn new_worker(&self) -> Box<dyn StateWorker + '_>;
}

/// Facts of a state before its records are shown. The state has not been judged yet.
pub struct StateFacts<'a> {
    pub bank: &'a BankFile,
    /// The archives or the ledger, in the order of their storages: the newest first.
    pub parts: Vec<StatePart>,
    /// Sysvars and other accounts at fixed addresses. Closed accounts have no data.
    pub well_known: WellKnownAccounts,
}

/// An archive of a state, or its ledger.
#[derive(Clone, Debug)]
pub struct StatePart {
    pub path: PathBuf,
    /// Present if the archive has frame hashes.
    pub root: Option<Root>,
    pub first_storage: u32,
    /// True if Firedancer wrote the archive: the slots of its storages do not show when accounts
    /// were written.
    pub is_of_firedancer: bool,
}

/// Part of a [`StateVisitor`] that one worker calls.
pub trait StateWorker {
    /// Called for each record, in any order. The first error ends the reading.
    fn record(&mut self, storage: StorageRef, record: &Record<'_>, is_superseded: bool) -> Result<()>;
}

pub struct SecondPass<'a> {
    pub visitor: &'a dyn StateVisitor,
    pub marked: SupersededMarks,
    pub is_checked: bool,
}

pub struct SupersededMarks {
    bits: Vec<AtomicU64>,
    starts: Vec<u64>,
    /// Number of newest versions with lamports.
    pub accounts: u64,
    pub superseded: u64,
}

impl SupersededMarks {
    /// Takes all items out of a log and marks the superseded records.
    pub(super) fn of_log(log: &VersionLog, storages: &[(u64, u64)], threads: usize, bytes_max: u64) -> Result<Self> {
        let mut marked = Self::new(storages, bytes_max)?;
        let (bits, mut accounts, mut superseded, mut duplicates) = (&marked, 0, 0, 0);
        log.for_each_partition(
            threads,
            &|sorted| {
                let (mut count, mut twice) = (0u64, 0u64);
                let accounts =
                    for_each_superseded(sorted, &|storage| slot_of(storages, storage), &mut |version, is_twice| {
                        bits.mark(version);
                        count += 1;
                        twice += u64::from(is_twice);
                    });
                (accounts, count, twice)
            },
            &mut |(more_accounts, count, twice)| {
                accounts += more_accounts;
                superseded += count;
                duplicates += twice;
                Ok(())
            },
        )?;
        if duplicates > 0 {
            // It is undefined which of the two records counts.
            return Err(Error::damaged("an account occurs more than once in one storage").with_hint(Hint::UseVerify));
        }
        (marked.accounts, marked.superseded) = (accounts, superseded);
        Ok(marked)
    }

    fn new(storages: &[(u64, u64)], bytes_max: u64) -> Result<Self> {
        let mut end = 0u64;
        let starts = storages.iter().map(|(_, content_bytes)| {
            let start = end;
            end = end.saturating_add(content_bytes / RECORD_HEADER_BYTES as u64 + 1);
            start
        });
        let starts: Vec<u64> = starts.collect();
        let words = end / 64 + 1;
        let bytes_max = bytes_max.max(LIMIT_BYTES_MIN);
        if words * 8 > bytes_max {
            // The marks have half of the memory, so the message names twice their size.
            let [needed, may] = [words * 8, bytes_max].map(|half| quantity::bytes(half.saturating_mul(2)));
            let message = format!("showing the newest accounts takes {needed} of memory, more than the limit of {may}");
            return Err(Error::failed(message).with_hint(Hint::MoreMemory));
        }
        let bits = (0..words).map(|_| AtomicU64::new(0)).collect();
        Ok(Self { bits, starts, accounts: 0, superseded: 0 })
    }

    fn bit(&self, storage: u32, offset_bytes: u64) -> Option<(&AtomicU64, u64)> {
        let number = self.starts.get(storage as usize)? + offset_bytes / RECORD_HEADER_BYTES as u64;
        Some((self.bits.get((number / 64) as usize)?, 1 << (number % 64)))
    }

    fn mark(&self, version: &Version) {
        if let Some((word, bit)) = self.bit(version.storage(), version.offset_bytes()) {
            word.fetch_or(bit, Relaxed);
        }
    }

    pub fn contains(&self, storage: u32, offset_bytes: u64) -> bool {
        self.bit(storage, offset_bytes).is_some_and(|(word, bit)| word.load(Relaxed) & bit != 0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::state::fingerprint::Fingerprinter;
    use crate::state::version::Batch;

    proptest! {
        /// Records without a mark are the newest versions, as in a plain map.
        #[test]
        fn the_newest_are_left(records in proptest::collection::hash_map((0u8..30, 0u32..12), any::<bool>(), 0..200)) {
            let printer = Fingerprinter::new().expect("random bytes");
            let log = VersionLog::new(0, &std::env::temp_dir(), 0);
            // The newest storage has the lowest number; records follow each other without a gap.
            let storages: Vec<(u64, u64)> = (0..12).map(|number| (100 - number, 30 * 136)).collect();
            let mut batch = Batch::default();
            let mut newest: HashMap<u8, u32> = HashMap::new();
            for ((key, storage), is_tombstone) in &records {
                batch.push(Version::new(printer.of(&[*key; 32]), *storage, *is_tombstone, u64::from(*key) * 136));
                newest.entry(*key).and_modify(|known| *known = (*known).min(*storage)).or_insert(*storage);
            }
            log.append(&mut batch).expect("appended");
            let marked = SupersededMarks::of_log(&log, &storages, 2, 0).expect("marked");
            for (key, storage) in records.keys() {
                prop_assert_eq!(marked.contains(*storage, u64::from(*key) * 136), newest[key] != *storage);
            }
            let live = newest.iter().filter(|(key, storage)| !records[&(**key, **storage)]).count() as u64;
            prop_assert_eq!((marked.accounts, marked.superseded), (live, (records.len() - newest.len()) as u64));
        }
    }

    #[test]
    fn an_account_that_is_twice_in_one_storage_is_an_error() {
        let printer = Fingerprinter::new().expect("random bytes");
        let log = VersionLog::new(0, &std::env::temp_dir(), 0);
        let mut batch = Batch::default();
        for (key, storage, offset_bytes) in [(1, 0, 0), (2, 0, 136), (1, 1, 0), (2, 0, 272)] {
            batch.push(Version::new(printer.of(&[key; 32]), storage, false, offset_bytes));
        }
        log.append(&mut batch).expect("appended");
        let error =
            SupersededMarks::of_log(&log, &[(2, 408), (1, 136)], 2, 0).err().expect("which one counts is not known");
        assert_eq!(error.to_string(), "an account occurs more than once in one storage");
    }

    #[test]
    fn memory_of_marks_is_limited() {
        let error = SupersededMarks::new(&[(1, 1 << 40)], 0).err().expect("too many marks");
        assert!(error.to_string().contains("of memory"), "{error}");
        assert!(SupersededMarks::new(&[(1, 1 << 40)], 1 << 30).is_ok());
    }
}
