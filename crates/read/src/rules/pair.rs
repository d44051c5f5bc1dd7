//! Decides by names, slots and bank files whether two archives are a pair: a full archive and an
//! incremental one on it.

use std::path::Path;

use slotpress_base::{Error, Result, ShowPath};
use slotpress_format::{ArchiveName, BankFile};

use super::findings::Findings;
use super::rule::Rule;

/// An archive of a pair: its path, and its name if the file has an archive's name.
pub type Member<'a> = (&'a Path, Option<&'a ArchiveName>);

/// Checks by their names that two archives are a pair. Assumes that a file without an archive's
/// name is the right one.
///
/// # Errors
/// The archives are swapped, of the same kind, or the incremental one builds on another slot.
pub fn check_pair(full: Member<'_>, incremental: Member<'_>) -> Result<()> {
    let base_of = |(_, name): Member<'_>| name.map(|name| name.base_slot);
    let of_one_kind = |kind: &str| {
        Err(Error::usage(format!("both archives are {kind} ones"))
            .with_hint("give the full archive first, then the incremental one that builds on it"))
    };
    match (base_of(full), base_of(incremental)) {
        (Some(Some(_)), Some(None)) => Err(swapped(full.0, incremental.0)),
        (Some(None), Some(None)) => of_one_kind("full"),
        (Some(Some(_)), Some(Some(_))) => of_one_kind("incremental"),
        (Some(Some(_)), None) => {
            Err(Error::usage(format!("{} is an incremental archive, but comes first", full.0.shown()))
                .with_hint("give the full archive first, then the incremental one"))
        }
        (_, base_slot) => check_base(base_slot.flatten(), full.1.map(|name| name.slot)),
    }
}

/// Checks that a full archive has the slot on which the incremental one builds.
///
/// # Errors
/// Both slots are known and differ.
pub fn check_base(base_slot: Option<u64>, full_slot: Option<u64>) -> Result<()> {
    match (base_slot, full_slot) {
        (Some(base), Some(full)) if base != full => Err(Error::usage(format!(
            "the incremental archive builds on slot {base}, but the full archive is of slot {full}"
        ))
        .with_hint("give the full archive that the incremental one names")),
        _ => Ok(()),
    }
}

/// Checks that two bank files are of the same chain, by fields that clients compare with the
/// genesis: Agave compares all of them, Firedancer only the first.
pub fn judge_chains(full: &BankFile, newer: &BankFile, findings: &Findings) -> Result<()> {
    let numbers = |bank: &BankFile| {
        [
            ("the genesis's time", i128::from(bank.genesis_creation_time)),
            ("ticks per slot", bank.ticks_per_slot.into()),
            ("slots per epoch", bank.slots_per_epoch.into()),
            ("leader schedule offset", bank.leader_schedule_slot_offset.into()),
            ("warm-up", bank.is_warmup.into()),
            ("first normal epoch", bank.first_normal_epoch.into()),
            ("first normal slot", bank.first_normal_slot.into()),
        ]
    };
    numbers(full).into_iter().zip(numbers(newer)).try_for_each(|((name, expected), (_, found))| {
        match expected == found {
            true => Ok(()),
            false => findings.add(Rule::BaseMismatch, format!("{name} {expected}, as in the full archive"), found),
        }
    })
}

/// Error for a full and an incremental archive in the wrong order.
pub fn swapped(first: &Path, second: &Path) -> Error {
    let (first, second) = (first.shown(), second.shown());
    Error::usage(format!("the two archives are swapped: {first} is the incremental one, {second} the full one"))
        .with_hint("give the full archive first, then the incremental one")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_chains() {
        let bank = || BankFile { genesis_creation_time: 5, ticks_per_slot: 64, ..BankFile::default() };
        let is_one = |full: &BankFile, newer: &BankFile| {
            let findings = Findings::new();
            judge_chains(full, newer, &findings).expect("collected");
            !findings.has(Rule::BaseMismatch)
        };
        assert!(is_one(&bank(), &BankFile { slot: 7, ns_per_slot: 3, ..bank() }));
        let others = [
            BankFile { genesis_creation_time: 6, ..bank() },
            BankFile { ticks_per_slot: 8, ..bank() },
            BankFile { slots_per_epoch: 8, ..bank() },
            BankFile { leader_schedule_slot_offset: 8, ..bank() },
            BankFile { is_warmup: true, ..bank() },
            BankFile { first_normal_epoch: 8, ..bank() },
            BankFile { first_normal_slot: 8, ..bank() },
        ];
        assert!(others.iter().all(|other| !is_one(&bank(), other) && is_one(other, other)));
    }
}
