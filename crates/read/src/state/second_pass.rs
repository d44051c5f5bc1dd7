//! The second pass over a state: every record is visited again, now that superseded ones are known.
//!
//! The first pass logged the records ([`versions`](super::versions)). Only newest versions are
//! hashed, in this pass, so the state that is judged is the one that was visited.

use std::path::PathBuf;

use slotpress_base::{Error, Result, hint};
use slotpress_format::{BankFile, Record, Root};

use super::marks::{Marks, mark_of};
use super::sums::StateCounts;
use super::superseded::{for_each_superseded, slot_of};
use super::versions::VersionLog;
use super::well_known::WellKnownAccounts;
use crate::{StorageRef, Version};

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
    pub superseded: Marks,
    pub is_checked: bool,
}

/// Takes all items out of a log, and marks the superseded records.
///
/// # Errors
/// A storage holds an account twice; the disk fails.
pub(super) fn mark_superseded(
    log: &VersionLog,
    storages: &[(u64, u64)],
    threads: usize,
) -> Result<(Marks, StateCounts)> {
    let (mut marks, mut counts, mut has_duplicates) = (Marks::default(), StateCounts::default(), false);
    let among = |sorted: &[Version]| {
        let (mut marks, mut has_duplicates) = (Vec::new(), false);
        let accounts = for_each_superseded(sorted, &|storage| slot_of(storages, storage), &mut |version, is_twice| {
            marks.push(mark_of(version.storage(), version.offset_bytes()));
            has_duplicates |= is_twice;
        });
        (accounts, marks, has_duplicates)
    };
    log.for_each_partition(threads, &among, &mut |(accounts, found, is_twice)| {
        counts.accounts += accounts;
        counts.superseded += found.len() as u64;
        found.into_iter().for_each(|mark| marks.insert(mark));
        has_duplicates |= is_twice;
        Ok(())
    })?;
    match has_duplicates {
        // It is undefined which of the two records counts.
        true => Err(Error::damaged("an account occurs more than once in one storage").with_hint(hint::USE_VERIFY)),
        false => Ok((marks, counts)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::state::fingerprint::Fingerprinter;
    use crate::state::marks::is_marked;
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
            let (marks, counts) = mark_superseded(&log, &storages, 2).expect("marked");
            for (key, storage) in records.keys() {
                let is_marked = is_marked(marks.of_storage(*storage), u64::from(*key) * 136);
                prop_assert_eq!(is_marked, newest[key] != *storage);
            }
            let live = newest.iter().filter(|(key, storage)| !records[&(**key, **storage)]).count() as u64;
            prop_assert_eq!((counts.accounts, counts.superseded), (live, (records.len() - newest.len()) as u64));
            prop_assert_eq!(marks.count(), counts.superseded);
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
        let error = mark_superseded(&log, &[(2, 408), (1, 136)], 2).expect_err("which one counts is not known");
        assert_eq!(error.to_string(), "an account occurs more than once in one storage");
    }
}
