//! Records that a newer one supersedes: how many, and how many bytes, in the memory that is given.
//!
//! The log of [`versions`](crate::state::versions), which spills what does not fit, with other things in its items:
//! 64 bits of an account's fingerprint, the record's length, and its slot, so that nothing need be read twice. Among a
//! billion accounts, two share 64 bits with a probability of 3 %; then one record too many is counted.

use {
    crate::state::{
        fingerprint::{Fingerprint, Fingerprinter},
        version::{Batch, Version},
        versions::VersionLog,
    },
    slotpress_base::{
        bytes::count,
        error::{Error, Result},
    },
    slotpress_format::ledger::records::Record,
    std::{
        path::Path,
        sync::{Mutex, PoisonError},
    },
};

/// In front of a record's length: whether it is to be counted.
const IS_WANTED: u32 = 1 << 31;

/// Lengths are multiples of 8; with 10 MiB of data at most, 21 bits hold them.
const LENGTH_UNIT_BYTES: u64 = 8;

/// Slots as far as an item can hold them; those above, which no cluster comes to before 2053, count as one.
const SLOT_MAX: u64 = (1 << 31) - 1;

/// What is superseded, and what is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SupersededTotals {
    /// Superseded records, tombstones too.
    pub records: u64,
    /// Bytes that they take in storages.
    pub bytes: u64,
    /// Newest records with lamports: the accounts of the state.
    pub newest_accounts: u64,
}

/// Counts superseded records; shared by all workers.
pub struct SupersededCounter {
    printer: Fingerprinter,
    log: VersionLog,
    error: Mutex<Option<Error>>,
}

impl SupersededCounter {
    /// Keeps to `memory_bytes`; see [`VersionLog::new`].
    pub fn new(memory_bytes: u64, spill_dir: &Path, room_bytes: u64) -> Result<Self> {
        let log = VersionLog::new(memory_bytes, spill_dir, room_bytes);
        Ok(Self { printer: Fingerprinter::new()?, log, error: Mutex::default() })
    }

    /// One worker's part.
    pub fn new_worker(&self) -> SupersededWorker<'_> {
        SupersededWorker { counter: self, batch: Batch::default() }
    }

    /// Adds everything up; all workers have ended.
    pub fn count(self, threads: usize) -> Result<SupersededTotals> {
        if let Some(error) = self.error.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        let mut totals = SupersededTotals::default();
        self.log.for_each_partition(threads, &|sorted| count_sorted(sorted), &mut |part| {
            count(&mut totals.records, part.records);
            count(&mut totals.bytes, part.bytes);
            count(&mut totals.newest_accounts, part.newest_accounts);
            Ok(())
        })?;
        Ok(totals)
    }
}

/// One worker's part of a [`SupersededCounter`].
pub struct SupersededWorker<'a> {
    counter: &'a SupersededCounter,
    batch: Batch,
}

impl SupersededWorker<'_> {
    /// A record of a storage of this slot. One that is not wanted may supersede others, but is not counted itself.
    pub fn record(&mut self, slot: u64, record: &Record<'_>, is_wanted: bool) {
        let Fingerprint([first, second, _]) = self.counter.printer.of(&record.header.pubkey);
        let length = u32::try_from(record.header.stored_bytes() / LENGTH_UNIT_BYTES).unwrap_or(!IS_WANTED);
        let length = if is_wanted { length | IS_WANTED } else { length };
        let is_tombstone = record.header.lamports == 0;
        let slot = u32::try_from(slot.min(SLOT_MAX)).unwrap_or(u32::MAX);
        let item = Version::new(Fingerprint([first, second, length]), slot, is_tombstone, 0);
        if self.batch.push(item) {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if let Err(error) = self.counter.log.append(&mut self.batch) {
            self.batch.clear();
            self.counter.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    }
}

impl Drop for SupersededWorker<'_> {
    fn drop(&mut self) {
        self.flush();
    }
}

fn count_sorted(sorted: &[Version]) -> SupersededTotals {
    let mut totals = SupersededTotals::default();
    for versions in sorted.chunk_by(|one, other| one.fingerprint.0[..2] == other.fingerprint.0[..2]) {
        // The item's storage is the slot. Of two in one slot, which is an error, either may count as the newer.
        let newest = versions.iter().enumerate().max_by_key(|(_, version)| version.storage()).map(|(at, _)| at);
        for (at, version) in versions.iter().enumerate() {
            let length = version.fingerprint.0[2];
            if length & IS_WANTED == 0 {
                continue;
            }
            if Some(at) == newest {
                count(&mut totals.newest_accounts, (!version.is_tombstone()).into());
            } else {
                count(&mut totals.records, 1);
                count(&mut totals.bytes, u64::from(length & !IS_WANTED).saturating_mul(LENGTH_UNIT_BYTES));
            }
        }
    }
    totals
}

#[cfg(test)]
mod tests {
    use {super::*, proptest::prelude::*, slotpress_format::ledger::record::RecordHeader, std::collections::HashMap};

    proptest! {
        /// What is superseded is what a plain map says, for the records that are wanted.
        #[test]
        fn totals_are_those_of_a_map(
            records in proptest::collection::hash_map((0u8..20, 0u64..30), (0u64..2, 0u64..500, any::<bool>()), 0..150),
        ) {
            let counter = SupersededCounter::new(0, &std::env::temp_dir(), 0).expect("random bytes");
            let mut newest: HashMap<u8, u64> = HashMap::new();
            let mut worker = counter.new_worker();
            for ((key, slot), (lamports, data_len, is_wanted)) in &records {
                let mut bytes = [0; 136];
                bytes[8..16].copy_from_slice(&data_len.to_le_bytes());
                bytes[16..48].fill(*key + 1);
                bytes[48..56].copy_from_slice(&lamports.to_le_bytes());
                let header = RecordHeader::parse(&bytes);
                worker.record(*slot, &Record { offset_bytes: 0, header: &header, data: &[] }, *is_wanted);
                let slot_max = newest.entry(*key).or_insert(*slot);
                *slot_max = (*slot_max).max(*slot);
            }
            drop(worker);
            let mut expected = SupersededTotals::default();
            for ((key, slot), (lamports, data_len, is_wanted)) in &records {
                match (is_wanted, newest[key] == *slot) {
                    (false, _) => {}
                    (true, true) => expected.newest_accounts += u64::from(*lamports > 0),
                    (true, false) => {
                        expected.records += 1;
                        expected.bytes += (136 + data_len).next_multiple_of(8);
                    }
                }
            }
            prop_assert_eq!(counter.count(2).expect("counted"), expected);
        }
    }
}
