//! Compares two states, one partition of their accounts at a time.

use serde::Serialize;
use slotpress_base::{Error, Result, hint, quantity};
use slotpress_read::state::marks::{Mark, Marks};

use super::states::{ReadState, StateItem, StateLog};

/// Numbers of changed, new, closed and unchanged accounts between the old and the new state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ChangeCounts {
    /// Accounts in both states that differ, and all vote accounts in both states.
    pub accounts_changed: u64,
    /// Accounts that only the new state has.
    pub accounts_new: u64,
    /// Accounts that only the old state has.
    pub accounts_closed: u64,
    /// Accounts that are equal in both states, and so are not written.
    pub accounts_unchanged: u64,
}

/// Maximum memory of a mark. A sparse bitmap stores it as a `u16`, in an array that may have twice
/// the needed capacity.
const MARK_BYTES: u64 = 4;

#[derive(Debug, Default)]
pub struct Changes {
    /// Records of new and changed accounts in the new state.
    pub written: Marks,
    /// Records of the old state that the new state does not have, because their accounts changed or
    /// were closed.
    pub outdated: Marks,
    /// Outdated records of accounts that were closed.
    pub closed: Marks,
    pub counts: ChangeCounts,
}

impl Changes {
    /// Compares the two states in the log, and empties the log.
    ///
    /// # Errors
    /// Marks take more than `memory_bytes` and more than 64 MiB, or reading the log fails.
    pub fn compare(
        log: &StateLog,
        old: &ReadState,
        new: &ReadState,
        threads: usize,
        memory_bytes: u64,
    ) -> Result<Self> {
        let mut changes = Self::default();
        let find = |sorted: &[StateItem]| PartitionChanges::find(sorted, old, new);
        log.items.for_each_partition(threads, &find, &mut |partition| {
            changes.add(partition);
            changes.check_memory(memory_bytes)
        })?;
        Ok(changes)
    }

    fn add(&mut self, partition: PartitionChanges) {
        let PartitionChanges { written, replaced, closed, unchanged } = partition;
        let counts = &mut self.counts;
        counts.accounts_changed += replaced.len() as u64;
        counts.accounts_closed += closed.len() as u64;
        counts.accounts_new += (written.len() - replaced.len()) as u64;
        counts.accounts_unchanged += unchanged;
        self.written.extend(written);
        self.outdated.extend(closed.iter().copied().chain(replaced));
        self.closed.extend(closed);
    }

    fn check_memory(&self, memory_bytes: u64) -> Result<()> {
        let ChangeCounts { accounts_changed, accounts_new, accounts_closed, .. } = self.counts;
        let marks = 2 * accounts_changed + accounts_new + 2 * accounts_closed;
        let overhead_bytes: u64 = [&self.written, &self.outdated, &self.closed].map(Marks::overhead_bytes).iter().sum();
        let needed_bytes = marks * MARK_BYTES + overhead_bytes;
        let memory_bytes = memory_bytes.max(MARKS_BYTES_MIN);
        if needed_bytes <= memory_bytes {
            return Ok(());
        }
        let [needed, allowed] = [needed_bytes, memory_bytes].map(quantity::bytes);
        let message =
            format!("marking changed records takes more than {needed} of memory, and at most {allowed} are allowed");
        Err(Error::failed(message).with_hint(hint::MORE_MEMORY))
    }
}

const MARKS_BYTES_MIN: u64 = 64 << 20;

#[derive(Default)]
struct PartitionChanges {
    written: Vec<Mark>,
    replaced: Vec<Mark>,
    closed: Vec<Mark>,
    unchanged: u64,
}

impl PartitionChanges {
    /// Compares accounts. All records of an account are next to each other in `sorted`.
    fn find(sorted: &[StateItem], old: &ReadState, new: &ReadState) -> Self {
        let mut changes = Self::default();
        for records in sorted.chunk_by(|left, right| left.fingerprint == right.fingerprint) {
            let newest_in = |state: &ReadState| {
                let slot_of = |item: &StateItem| state.slots.get(item.storage() as usize).copied();
                // Firedancer writes several storages for one slot. The last of them has the newest record.
                let items = records.iter().filter(|item| item.state_number() == state.number);
                let newest = items.max_by_key(|item| (slot_of(item), item.storage()));
                newest.filter(|item| !item.is_tombstone())
            };
            let mark = |item: &StateItem| Mark::new(item.storage(), item.offset_bytes());
            match (newest_in(old), newest_in(new)) {
                (Some(old), Some(new)) if old.content == new.content => changes.unchanged += 1,
                (Some(old), Some(new)) => {
                    changes.replaced.push(mark(old));
                    changes.written.push(mark(new));
                }
                (None, Some(new)) => changes.written.push(mark(new)),
                (Some(old), None) => changes.closed.push(mark(old)),
                (None, None) => {}
            }
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use slotpress_format::{RECORD_HEADER_BYTES, Record, RecordHeader};
    use slotpress_read::state::marks::is_marked;
    use slotpress_read::{StateVisitor, StorageRef};

    use super::*;

    /// Lamports by storage and account number. With 0 lamports, the account is closed.
    type State = BTreeMap<(u32, u8), u64>;

    const DATA: [u8; 16] = [1; 16];

    fn log_state(log: &StateLog, state: &State) -> ReadState {
        let mut worker = log.new_worker();
        for ((number, account), lamports) in state {
            let zeros = RecordHeader::parse(&[0; RECORD_HEADER_BYTES]);
            let header = RecordHeader { pubkey: [account + 1; 32], lamports: *lamports, data_len: 16, ..zeros };
            let storage = StorageRef { number: *number, slot: 100 + u64::from(number * 5 % 7), id: 0 };
            let record = Record { offset_bytes: u64::from(*account) * 152, header: &header, data: &DATA };
            worker.record(storage, &record, false).expect("logged");
        }
        drop(worker);
        log.end_state().expect("logged")
    }

    fn newest_versions(state: &State) -> BTreeMap<u8, (u32, u64)> {
        let mut newest: BTreeMap<u8, (u32, u64)> = BTreeMap::new();
        for ((number, account), lamports) in state {
            let version = newest.entry(*account).or_insert((*number, *lamports));
            if version.0 * 5 % 7 <= number * 5 % 7 {
                *version = (*number, *lamports);
            }
        }
        newest.retain(|_, (_, lamports)| *lamports > 0);
        newest
    }

    proptest! {
        #[test]
        fn changes_equal_those_of_two_maps(
            old in proptest::collection::btree_map((0u32..7, 0u8..60), 0u64..3, 0..150),
            new in proptest::collection::btree_map((0u32..7, 0u8..60), 0u64..3, 0..150),
        ) {
            let log = StateLog::new(0, &std::env::temp_dir(), 0).expect("made");
            let new_state = log_state(&log, &new);
            let old_state = log_state(&log, &old);
            let changes = Changes::compare(&log, &old_state, &new_state, 2, 0).expect("compared");
            let old = newest_versions(&old);
            let new = newest_versions(&new);
            let mut counts = ChangeCounts::default();
            let has_mark = |marks: &Marks, (storage, _): (u32, u64), account: u8| {
                is_marked(marks.storage_marks(storage), u64::from(account) * 152)
            };
            for account in 0..60 {
                match (old.get(&account), new.get(&account)) {
                    (None, None) => {}
                    (Some(before), None) => {
                        counts.accounts_closed += 1;
                        prop_assert!(has_mark(&changes.closed, *before, account));
                        prop_assert!(has_mark(&changes.outdated, *before, account));
                    }
                    (None, Some(after)) => {
                        counts.accounts_new += 1;
                        prop_assert!(has_mark(&changes.written, *after, account));
                    }
                    (Some(before), Some(after)) if before.1 == after.1 => counts.accounts_unchanged += 1,
                    (Some(before), Some(after)) => {
                        counts.accounts_changed += 1;
                        prop_assert!(has_mark(&changes.outdated, *before, account));
                        prop_assert!(has_mark(&changes.written, *after, account));
                        prop_assert!(!has_mark(&changes.closed, *before, account));
                    }
                }
            }
            prop_assert_eq!(changes.counts, counts);
            prop_assert_eq!(changes.written.count(), counts.accounts_new + counts.accounts_changed);
            prop_assert_eq!(changes.outdated.count(), counts.accounts_closed + counts.accounts_changed);
            prop_assert_eq!(changes.closed.count(), counts.accounts_closed);
        }
    }

    #[test]
    fn marks_beyond_their_memory_are_refused() {
        let mut changes = Changes::default();
        changes.counts.accounts_new = MARKS_BYTES_MIN / MARK_BYTES + 1;
        assert!(changes.check_memory(MARKS_BYTES_MIN + MARK_BYTES).is_ok());
        let error = changes.check_memory(0).expect_err("too many");
        assert!(error.to_string().contains("of memory"), "{error}");
    }
}
