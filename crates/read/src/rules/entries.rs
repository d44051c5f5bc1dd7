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
    slot_max: Option<(u64, u32)>,
    content_bytes: u64,
    pub entries: Vec<Entry>,
    ids_of_bank_slot: HashSet<u32>,
    shared: Option<u32>,
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
        // The place is made only for a failure: there may be millions of storages.
        let at = || failures.at(FailurePlace::entry(entry.kind));
        match entry.kind {
            EntryKind::SnapshotsDir | EntryKind::AccountsDir => {}
            EntryKind::Version => {
                if self.has_status_cache || self.bank_slot.is_some() || self.slot_max.is_some() {
                    at().add(Rule::VersionFirst, "the first file", "after others")?;
                }
                if std::mem::replace(&mut self.has_version, true) {
                    at().add(Rule::VersionTwice, "once", "twice")?;
                }
            }
            EntryKind::StatusCache => {
                if self.slot_max.is_some() {
                    at().add(Rule::VersionFirst, "before the accounts", "after others")?;
                }
                if std::mem::replace(&mut self.has_status_cache, true) {
                    at().add(Rule::DuplicateEntry, "once", "twice")?;
                }
            }
            EntryKind::SlotDir(slot) => {
                let other = self.bank_slot.or(self.dir_slot.replace(slot)).filter(|other| *other != slot);
                if let Some(other) = other {
                    let expected = format!("snapshots/{other}/ only");
                    let found = format!("snapshots/{slot}/ too");
                    at().add(Rule::DuplicateEntry, expected, found)?;
                }
            }
            EntryKind::BankFile(slot) => self.judge_bank_file(slot, &at())?,
            EntryKind::Storage { slot, id } => self.judge_storage((slot, id), entry.content_bytes, seen_slots, &at)?,
        }
        Ok(())
    }

    fn judge_bank_file(&mut self, slot: u64, at: &FailuresAt<'_>) -> Result<()> {
        if let Some(other) = self.dir_slot.filter(|other| *other != slot) {
            at.add(Rule::DuplicateEntry, format!("a bank file of slot {other}"), format!("one of slot {slot}"))?;
        }
        if self.bank_slot.is_none() && self.slot_max.is_some() {
            at.add(Rule::Order, "the bank file before the accounts", "accounts first")?;
        }
        let Some(other) = self.bank_slot.replace(slot) else { return Ok(()) };
        let rule = if other == slot { Rule::DuplicateEntry } else { Rule::TwoBanks };
        at.add(rule, "one bank file", format!("another, of slot {other}"))
    }

    fn judge_storage<'a>(
        &mut self,
        (slot, id): (u64, u32),
        content_bytes: u64,
        seen_slots: &mut HashSet<u64>,
        at: &dyn Fn() -> FailuresAt<'a>,
    ) -> Result<()> {
        self.slot_max = self.slot_max.max(Some((slot, id)));
        if content_bytes == 0 {
            at().add(Rule::EmptyStorage, "at least one record", "0 bytes")?;
        }
        if slot >= FIREDANCER_SLOTS {
            at().add(Rule::LargeSlot, format!("below {FIREDANCER_SLOTS}"), slot)?;
        }
        if let Some(base) = self.base_slot.filter(|base| slot <= *base) {
            at().add(Rule::StorageTooOld, format!("a slot above {base}"), slot)?;
        }
        if self.is_other_of_slot(slot, id, seen_slots) {
            at().add(Rule::DuplicateStorage, one_of(slot), "another")
        } else {
            Ok(())
        }
    }

    /// True if a storage is the second one of its slot. Firedancer wrote several storages of one slot
    /// before September 2026: [`Self::judge_shared_slot`] decides when the bank file is known.
    fn is_other_of_slot(&mut self, slot: u64, id: u32, seen_slots: &mut HashSet<u64>) -> bool {
        let is_new = self.bank_slot == Some(slot) && self.ids_of_bank_slot.insert(id);
        let is_other = !seen_slots.insert(slot);
        if is_other && is_new && self.ids_of_bank_slot.len() > 1 {
            self.shared = self.shared.or(Some(id));
            return false;
        }
        is_other
    }

    /// Reports several storages of the bank's slot: as [`Rule::SharedSlot`] if the bank file holds
    /// no stakes and all storages are of that slot, else as [`Rule::DuplicateStorage`].
    pub fn judge_shared_slot(&self, bank: Option<&BankFile>, failures: &Failures) -> Result<()> {
        let (Some(slot), Some(id)) = (self.bank_slot, self.shared) else { return Ok(()) };
        let at = failures.at(FailurePlace::entry(EntryKind::Storage { slot, id }));
        if bank.is_some_and(BankFile::lacks_stakes) && self.slots().all(|other| other == slot) {
            at.add(Rule::SharedSlot, one_of(slot), self.slots().count())
        } else {
            at.add(Rule::DuplicateStorage, one_of(slot), "another")
        }
    }

    /// Makes the checks at the end of the archive. Required entries must be present if all entries
    /// could be read (`is_whole`).
    pub fn finish(&self, is_whole: bool, failures: &Failures) -> Result<()> {
        let required = [
            (self.has_version, "version"),
            (self.has_status_cache, "snapshots/status_cache"),
            (self.bank_slot.is_some(), "snapshots/<slot>/<slot>"),
        ];
        for (_, name) in required.iter().filter(|(has_entry, _)| is_whole && !has_entry) {
            failures.at(FailurePlace::entry(name)).add(Rule::MissingEntry, "an entry", "none")?;
        }
        if let (Some(bank), Some((slot, id))) = (self.bank_slot, self.slot_max)
            && slot > bank
        {
            let at = failures.at(FailurePlace::entry(EntryKind::Storage { slot, id }));
            at.add(Rule::StorageTooNew, format!("a slot up to {bank}"), slot)?;
        }
        if self.content_bytes > UNPACKED_BYTES_MAX {
            let expected = format!("at most {UNPACKED_BYTES_MAX} bytes");
            failures.add(Rule::TooLarge, expected, self.content_bytes)?;
        }
        Ok(())
    }
}

fn one_of(slot: u64) -> String {
    format!("one storage of slot {slot}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checker(bank_slot: u64, entries: &[(u64, u32, u64)], seen: &[u64], failures: &Failures) -> EntryChecker {
        let mut checker = EntryChecker { bank_slot: Some(bank_slot), ..EntryChecker::new(None) };
        let mut seen_slots: HashSet<u64> = seen.iter().copied().collect();
        for (slot, id, content_bytes) in entries {
            let kind = EntryKind::Storage { slot: *slot, id: *id };
            checker
                .judge_entry(&Entry { kind, content_bytes: *content_bytes }, &mut seen_slots, failures)
                .expect("collected");
        }
        checker
    }

    fn rules(failures: &Failures) -> Vec<(Rule, u64)> {
        failures.broken_rules().into_iter().collect()
    }

    #[test]
    fn archives_larger_than_agave_unpacks_are_reported() {
        for (bytes, expected) in [(UNPACKED_BYTES_MAX, vec![]), (UNPACKED_BYTES_MAX + 1, vec![(Rule::TooLarge, 1)])] {
            let failures = Failures::new();
            checker(9, &[(1, 1, bytes - 136), (2, 2, 136)], &[], &failures)
                .finish(false, &failures)
                .expect("collected");
            assert_eq!(rules(&failures), expected);
        }
    }

    /// Several storages of the bank's slot are taken for Firedancer's if the bank file holds no
    /// stakes and there are no storages of other slots.
    #[test]
    fn several_storages_of_the_banks_slot_are_reported() {
        let firedancer = BankFile { slot: 9, ..BankFile::default() };
        assert!(firedancer.lacks_stakes());
        let agave = BankFile { storage_count: 3, ..firedancer.clone() };
        let broken = |entries: &[(u64, u32, u64)], seen: &[u64], bank: &BankFile| {
            let failures = Failures::new();
            checker(9, entries, seen, &failures).judge_shared_slot(Some(bank), &failures).expect("collected");
            rules(&failures)
        };
        let of_bank_slot = [(9, 1, 136), (9, 2, 136)];
        let with_another = [(9, 1, 136), (9, 2, 136), (8, 3, 136)];
        assert_eq!(broken(&of_bank_slot, &[], &firedancer), [(Rule::SharedSlot, 1)]);
        assert_eq!(broken(&of_bank_slot, &[], &agave), [(Rule::DuplicateStorage, 1)]);
        assert_eq!(broken(&with_another, &[], &firedancer), [(Rule::DuplicateStorage, 1)]);
        // A slot other than the bank's, a slot of another archive, and the same storage twice.
        assert_eq!(broken(&[(8, 1, 136), (8, 2, 136)], &[], &firedancer), [(Rule::DuplicateStorage, 1)]);
        assert_eq!(broken(&[(9, 1, 136)], &[9], &firedancer), [(Rule::DuplicateStorage, 1)]);
        assert_eq!(broken(&[(9, 1, 136), (9, 1, 136)], &[], &firedancer), [(Rule::DuplicateStorage, 1)]);
        let again = [(9, 1, 136), (9, 2, 136), (9, 2, 136)];
        assert_eq!(broken(&again, &[], &firedancer), [(Rule::DuplicateStorage, 1), (Rule::SharedSlot, 1)]);
    }
}
