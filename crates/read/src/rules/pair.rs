//! Decides from names, slots, indexes and bank files whether two archives are a pair: a full archive and
//! an incremental archive that builds on it.

use std::path::Path;

use slotpress_base::{Error, EscapePath, Result};
use slotpress_format::{ArchiveName, BankFile, Hash};

use super::failures::Failures;
use super::rule::Rule;
use crate::{ArchiveInput, OpenArchive};

/// Known facts about an archive of a pair. A file without an archive's name is accepted until its bank
/// file has been read.
#[derive(Clone, Copy)]
pub struct PairMember<'a> {
    pub path: &'a Path,
    pub name: Option<&'a ArchiveName>,
    /// Slot of the base, according to the archive's name or the caller.
    pub base_slot: Option<u64>,
    /// Settings in the archive's index, where `rebase` records the hash of the base.
    pub settings: &'a str,
    pub bank: Option<&'a BankFile>,
    pub hash: Option<Hash>,
}

impl<'a> PairMember<'a> {
    pub fn new(path: &'a Path, name: Option<&'a ArchiveName>) -> Self {
        Self { path, name, base_slot: name.and_then(|name| name.base_slot), settings: "", bank: None, hash: None }
    }

    pub fn from_archive(archive: &'a OpenArchive, bank: Option<&'a BankFile>) -> Self {
        let settings = archive.tail.as_ref().map_or("", |tail| tail.index.settings.as_str());
        let hash = bank.map(BankFile::snapshot_hash);
        Self { settings, bank, hash, ..Self::new(archive.path(), archive.name.as_ref()) }
    }

    fn slot(&self) -> Option<u64> {
        self.bank.map(|bank| bank.slot).or(self.name.map(|name| name.slot))
    }
}

impl<'a> From<&'a ArchiveInput> for PairMember<'a> {
    fn from(ArchiveInput { path, name, .. }: &'a ArchiveInput) -> Self {
        Self::new(path, name.as_ref())
    }
}

/// Judges, from the facts known so far, whether a full and an incremental archive are a pair. Every command
/// that reads a pair calls this first with the names, and again when more is known.
///
/// # Errors
/// The archives are swapped or of the same kind; the incremental archive builds on a different slot; or
/// `failures` refuses a broken rule.
pub fn judge_pair(full: PairMember<'_>, incremental: PairMember<'_>, failures: &Failures) -> Result<()> {
    let is_full = |member: PairMember<'_>| member.name.map(|name| name.base_slot.is_none());
    let same_kind_error = |kind: &str| {
        Error::usage(format!("both archives are {kind} ones"))
            .with_hint("pass the full archive first, then the incremental one that builds on it")
    };
    match (is_full(full), is_full(incremental)) {
        (Some(false), Some(true)) => return Err(swapped_error(full.path, incremental.path)),
        (Some(true), Some(true)) => return Err(same_kind_error("full")),
        (Some(false), Some(false)) => return Err(same_kind_error("incremental")),
        (Some(false), None) => {
            return Err(Error::usage(format!("{} is an incremental archive, but comes first", full.path.escaped()))
                .with_hint("pass the full archive first, then the incremental one"));
        }
        _ => {}
    }
    if let (Some(base), Some(slot)) = (incremental.base_slot, full.slot())
        && base != slot
    {
        return Err(Error::usage(format!(
            "the incremental archive builds on slot {base}, but the full archive is of slot {slot}"
        ))
        .with_hint("pass the full archive that the incremental one names"));
    }
    if let (Some(full_bank), Some(bank)) = (full.bank, incremental.bank)
        && incremental.base_slot.is_none()
        && bank.slot < full_bank.slot
    {
        return Err(swapped_error(full.path, incremental.path));
    }
    // States of equal slots may differ, so a rebased archive names the hash of its base.
    if let (Some(expected), Some(hash)) = (rebased_on(incremental.settings), full.hash)
        && expected != hash.to_string()
    {
        let expected = format!("a full archive of hash {expected}");
        let found = format!("one of hash {hash}");
        failures.add(Rule::BaseMismatch, expected, found)?;
    }
    match (full.bank, incremental.bank) {
        (Some(full_bank), Some(bank)) => judge_same_chain(full_bank, bank, failures),
        _ => Ok(()),
    }
}

/// Checks that two bank files belong to the same chain, using fields that clients compare with the genesis:
/// Agave compares all of them, Firedancer only the first.
pub fn judge_same_chain(full: &BankFile, newer: &BankFile, failures: &Failures) -> Result<()> {
    let numbers = |bank: &BankFile| {
        let schedule = &bank.epoch_schedule;
        [
            ("the genesis's time", i128::from(bank.genesis_creation_time)),
            ("ticks per slot", bank.ticks_per_slot.into()),
            ("slots per epoch", schedule.slots_per_epoch.into()),
            ("leader schedule offset", bank.leader_schedule_slot_offset.into()),
            ("warm-up", bank.warmup.into()),
            ("first normal epoch", schedule.first_normal_epoch.into()),
            ("first normal slot", schedule.first_normal_slot.into()),
        ]
    };
    for ((name, expected), (_, found)) in numbers(full).into_iter().zip(numbers(newer)) {
        if expected != found {
            let expected = format!("{name} {expected}, as in the full archive");
            failures.add(Rule::BaseMismatch, expected, found)?;
        }
    }
    Ok(())
}

/// Refuses two states of different clusters, and a new state that is not newer than the old one.
pub fn require_newer_state(old: &BankFile, new: &BankFile) -> Result<()> {
    if judge_same_chain(old, new, &Failures::strict()).is_err() {
        return Err(Error::usage(
            "the states are of different clusters: their bank files differ in fields from the genesis",
        )
        .with_hint("use states of one cluster"));
    }
    if old.slot < new.slot {
        Ok(())
    } else {
        Err(Error::usage(format!("the older state is of slot {}, the new one of {}", old.slot, new.slot))
            .with_hint("use an older state, or a newer one"))
    }
}

fn swapped_error(first: &Path, second: &Path) -> Error {
    let first = first.escaped();
    let second = second.escaped();
    Error::usage(format!("the two archives are swapped: {first} is the incremental one, {second} the full one"))
        .with_hint("pass the full archive first, then the incremental one")
}

/// Key of a setting in the index of an archive made by `rebase`. The value is the snapshot hash of the full
/// archive on which that archive builds.
pub const REBASED_ON: &str = "rebased-on=";

pub fn rebased_on(settings: &str) -> Option<&str> {
    settings.split(' ').find_map(|setting| setting.strip_prefix(REBASED_ON))
}

/// True if the storages (slot and id) of an archive at `slot` show that `rebase` made it: `rebase` gives
/// the storage at slot `s` the id `slot - s + 1`. In archives of validators, ids rise with slots.
pub fn is_rebased(slot: u64, storages: impl IntoIterator<Item = (u64, u32)>) -> bool {
    let mut storages = storages.into_iter().peekable();
    let is_of_rebase = |(storage_slot, id): (u64, u32)| {
        storage_slot.checked_sub(1).and_then(|previous| previous.checked_add(id.into())) == Some(slot)
    };
    storages.peek().is_some() && storages.all(is_of_rebase)
}

#[cfg(test)]
mod tests {
    use slotpress_format::EpochSchedule;

    use super::*;

    #[test]
    fn banks_of_different_chains_are_told_apart() {
        let bank = || BankFile { genesis_creation_time: 5, ticks_per_slot: 64, ..BankFile::default() };
        let is_same_chain = |full: &BankFile, newer: &BankFile| {
            let failures = Failures::new();
            judge_same_chain(full, newer, &failures).expect("collected");
            !failures.has(Rule::BaseMismatch)
        };
        assert!(is_same_chain(&bank(), &BankFile { slot: 7, ns_per_slot: 3, ..bank() }));
        let with_schedule = |change: fn(&mut EpochSchedule)| {
            let mut bank = bank();
            change(&mut bank.epoch_schedule);
            bank
        };
        let others = [
            BankFile { genesis_creation_time: 6, ..bank() },
            BankFile { ticks_per_slot: 8, ..bank() },
            with_schedule(|schedule| schedule.slots_per_epoch = 8),
            BankFile { leader_schedule_slot_offset: 8, ..bank() },
            BankFile { warmup: true, ..bank() },
            with_schedule(|schedule| schedule.first_normal_epoch = 8),
            with_schedule(|schedule| schedule.first_normal_slot = 8),
        ];
        for other in &others {
            assert!(!is_same_chain(&bank(), other), "{other:?}");
            assert!(is_same_chain(other, other), "{other:?}");
        }
    }

    #[test]
    fn a_rebased_archive_is_recognized_by_its_storages() {
        assert!(is_rebased(40, [(39, 2), (40, 1)]));
        assert!(is_rebased(40, [(40, 1)]));
        assert!(!is_rebased(40, []));
        assert!(!is_rebased(40, [(39, 38), (40, 39)]));
        assert!(is_rebased(u64::MAX, [(u64::MAX, 1)]));
        assert!(!is_rebased(u64::MAX, [(u64::MAX, 2)]));
    }
}
