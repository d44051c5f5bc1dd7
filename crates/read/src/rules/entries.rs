//! Checks the entries of one archive, one after another, against what a snapshot archive may hold.
//! No I/O.

use std::collections::HashSet;

use slotpress_base::Result;
use slotpress_format::{BankFile, Entry, EntryKind, FIREDANCER_SLOTS, UNPACKED_BYTES_MAX};

use super::failures::{FailurePlace, Failures, FailuresAt};
use super::rule::Rule;

#[derive(Debug, Default)]
pub struct EntryChecker {
    base_slot: Option<u64>,
    has_version: bool,
    has_status_cache: bool,
    dir_slot: Option<u64>,
    pub bank_slot: Option<u64>,
    newest_storage: Option<(u64, u32)>,
    content_bytes: u64,
    pub entries: Vec<Entry>,
    ids_of_bank_slot: HashSet<u32>,
    /// Id of a second storage at the bank's slot, if there is one.
    second_id: Option<u32>,
}

impl EntryChecker {
    pub fn new(base_slot: Option<u64>) -> Self {
        Self { base_slot, ..Self::default() }
    }

    fn slots(&self) -> impl Iterator<Item = u64> {
        self.entries.iter().filter_map(|entry| match entry.kind {
            EntryKind::Storage { slot, .. } => Some(slot),
            _ => None,
        })
    }

    /// Checks an entry. `seen_slots` holds the slots of all storages of all archives so far.
    pub fn judge_entry(&mut self, entry: &Entry, seen_slots: &mut HashSet<u64>, failures: &Failures) -> Result<()> {
        self.content_bytes = self.content_bytes.saturating_add(entry.content_bytes);
        self.entries.push(*entry);
        let failures_here = || failures.at(FailurePlace::entry(entry.kind));
        match entry.kind {
            EntryKind::SnapshotsDir | EntryKind::AccountsDir => {}
            EntryKind::Version => {
                if self.has_status_cache || self.bank_slot.is_some() || self.newest_storage.is_some() {
                    failures_here().add(Rule::VersionFirst, "the first file", "after others")?;
                }
                if std::mem::replace(&mut self.has_version, true) {
                    failures_here().add(Rule::VersionTwice, "once", "twice")?;
                }
            }
            EntryKind::StatusCache => {
                if self.newest_storage.is_some() {
                    failures_here().add(Rule::VersionFirst, "before the accounts", "after others")?;
                }
                if std::mem::replace(&mut self.has_status_cache, true) {
                    failures_here().add(Rule::DuplicateEntry, "once", "twice")?;
                }
            }
            EntryKind::SlotDir(slot) => {
                let other = self.bank_slot.or(self.dir_slot.replace(slot)).filter(|other| *other != slot);
                if let Some(other) = other {
                    let expected = format!("snapshots/{other}/ only");
                    let found = format!("snapshots/{slot}/ too");
                    failures_here().add(Rule::DuplicateEntry, expected, found)?;
                }
            }
            EntryKind::BankFile(slot) => self.judge_bank_file(slot, &failures_here())?,
            EntryKind::Storage { slot, id } => {
                self.judge_storage(slot, id, entry.content_bytes, seen_slots, failures)?;
            }
        }
        Ok(())
    }

    fn judge_bank_file(&mut self, slot: u64, failures: &FailuresAt<'_>) -> Result<()> {
        if let Some(other) = self.dir_slot.filter(|other| *other != slot) {
            let expected = format!("a bank file of slot {other}");
            failures.add(Rule::DuplicateEntry, expected, format!("one of slot {slot}"))?;
        }
        if self.bank_slot.is_none() && self.newest_storage.is_some() {
            failures.add(Rule::Order, "the bank file before the accounts", "accounts first")?;
        }
        let Some(other) = self.bank_slot.replace(slot) else { return Ok(()) };
        let rule = if other == slot { Rule::DuplicateEntry } else { Rule::TwoBanks };
        failures.add(rule, "one bank file", format!("another, of slot {other}"))
    }

    fn judge_storage(
        &mut self,
        slot: u64,
        id: u32,
        content_bytes: u64,
        seen_slots: &mut HashSet<u64>,
        failures: &Failures,
    ) -> Result<()> {
        // A place is created only for a failure, because there may be millions of storages.
        let failures_here = || failures.at(FailurePlace::storage(slot, id));
        self.newest_storage = self.newest_storage.max(Some((slot, id)));
        if content_bytes == 0 {
            failures_here().add(Rule::EmptyStorage, "at least one record", "0 bytes")?;
        }
        if slot >= FIREDANCER_SLOTS {
            failures_here().add(Rule::LargeSlot, format!("below {FIREDANCER_SLOTS}"), slot)?;
        }
        if let Some(base) = self.base_slot.filter(|base| slot <= *base) {
            failures_here().add(Rule::StorageTooOld, format!("a slot above {base}"), slot)?;
        }
        if self.add_storage_slot(slot, id, seen_slots) {
            failures_here().add(Rule::DuplicateStorage, one_storage_text(slot), "another")
        } else {
            Ok(())
        }
    }

    /// Remembers the slot of a storage. Returns true if an earlier storage has the same slot. Returns false
    /// if both have the bank's slot and different ids, as Firedancer wrote them before September 2026:
    /// [`Self::judge_shared_slot`] judges these once the bank file is known.
    fn add_storage_slot(&mut self, slot: u64, id: u32, seen_slots: &mut HashSet<u64>) -> bool {
        let is_new_id = self.bank_slot == Some(slot) && self.ids_of_bank_slot.insert(id);
        let is_slot_taken = !seen_slots.insert(slot);
        if is_slot_taken && is_new_id && self.ids_of_bank_slot.len() > 1 {
            self.second_id = self.second_id.or(Some(id));
            return false;
        }
        is_slot_taken
    }

    /// Reports several storages at the bank's slot: as [`Rule::SharedSlot`] if the bank file holds no
    /// stakes and all storages have that slot, otherwise as [`Rule::DuplicateStorage`].
    pub fn judge_shared_slot(&self, bank: Option<&BankFile>, failures: &Failures) -> Result<()> {
        let (Some(slot), Some(id)) = (self.bank_slot, self.second_id) else { return Ok(()) };
        let failures = failures.at(FailurePlace::storage(slot, id));
        if bank.is_some_and(BankFile::lacks_stakes) && self.slots().all(|other| other == slot) {
            failures.add(Rule::SharedSlot, one_storage_text(slot), self.slots().count())
        } else {
            failures.add(Rule::DuplicateStorage, one_storage_text(slot), "another")
        }
    }

    /// Runs the checks at the end of the archive. Required entries must be present if all entries could
    /// be read (`has_all_entries`).
    pub fn finish(&self, has_all_entries: bool, failures: &Failures) -> Result<()> {
        let required = [
            (self.has_version, "version"),
            (self.has_status_cache, "snapshots/status_cache"),
            (self.bank_slot.is_some(), "snapshots/<slot>/<slot>"),
        ];
        for (has_entry, name) in required {
            if has_all_entries && !has_entry {
                failures.at(FailurePlace::entry(name)).add(Rule::MissingEntry, "an entry", "none")?;
            }
        }
        if let (Some(bank), Some((slot, id))) = (self.bank_slot, self.newest_storage)
            && slot > bank
        {
            let failures = failures.at(FailurePlace::storage(slot, id));
            failures.add(Rule::StorageTooNew, format!("a slot up to {bank}"), slot)?;
        }
        if self.content_bytes > UNPACKED_BYTES_MAX {
            let expected = format!("at most {UNPACKED_BYTES_MAX} bytes");
            failures.add(Rule::TooLarge, expected, self.content_bytes)?;
        }
        Ok(())
    }
}

fn one_storage_text(slot: u64) -> String {
    format!("one storage of slot {slot}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn storage(slot: u64, id: u32, content_bytes: u64) -> Entry {
        Entry { kind: EntryKind::Storage { slot, id }, content_bytes }
    }

    /// Creates a checker for a bank at slot 9, and passes these entries to it.
    fn checker_after(entries: &[Entry], seen_slots: &[u64], failures: &Failures) -> EntryChecker {
        let mut checker = EntryChecker { bank_slot: Some(9), ..EntryChecker::new(None) };
        let mut seen_slots: HashSet<u64> = seen_slots.iter().copied().collect();
        for entry in entries {
            checker.judge_entry(entry, &mut seen_slots, failures).expect("collected");
        }
        checker
    }

    fn broken_rules(failures: &Failures) -> Vec<(Rule, u64)> {
        failures.broken_rules().into_iter().collect()
    }

    #[test]
    fn archives_larger_than_agave_unpacks_are_reported() {
        for (bytes, expected) in [(UNPACKED_BYTES_MAX, vec![]), (UNPACKED_BYTES_MAX + 1, vec![(Rule::TooLarge, 1)])] {
            let failures = Failures::new();
            let entries = [storage(1, 1, bytes - 136), storage(2, 2, 136)];
            checker_after(&entries, &[], &failures).finish(false, &failures).expect("collected");
            assert_eq!(broken_rules(&failures), expected);
        }
    }

    /// Several storages at the bank's slot are attributed to Firedancer if the bank file holds no stakes and
    /// there are no storages at other slots.
    #[test]
    fn several_storages_of_the_banks_slot_are_reported() {
        let firedancer = BankFile { slot: 9, ..BankFile::default() };
        assert!(firedancer.lacks_stakes());
        let agave = BankFile { storage_count: 3, ..firedancer.clone() };
        let assert_breaks = |entries: &[Entry], seen_slots: &[u64], bank: &BankFile, expected: &[(Rule, u64)]| {
            let failures = Failures::new();
            let checker = checker_after(entries, seen_slots, &failures);
            checker.judge_shared_slot(Some(bank), &failures).expect("collected");
            assert_eq!(broken_rules(&failures), expected, "{entries:?}");
        };
        let [first, second, of_slot_8] = [storage(9, 1, 136), storage(9, 2, 136), storage(8, 3, 136)];
        let duplicate = [(Rule::DuplicateStorage, 1)];
        assert_breaks(&[first, second], &[], &firedancer, &[(Rule::SharedSlot, 1)]);
        assert_breaks(&[first, second], &[], &agave, &duplicate);
        assert_breaks(&[first, second, of_slot_8], &[], &firedancer, &duplicate);
        // A slot other than the bank's, a slot that another archive has used, and the same storage twice.
        assert_breaks(&[storage(8, 1, 136), storage(8, 2, 136)], &[], &firedancer, &duplicate);
        assert_breaks(&[first], &[9], &firedancer, &duplicate);
        assert_breaks(&[first, first], &[], &firedancer, &duplicate);
        let both = [(Rule::DuplicateStorage, 1), (Rule::SharedSlot, 1)];
        assert_breaks(&[first, second, second], &[], &firedancer, &both);
    }
}
