//! The end of the state check: superseded records are found, read again and subtracted; what remains is compared.

use std::collections::HashSet;

use slotpress_base::{Progress, Result};
use slotpress_format::BankFile;

use super::accounts::{Accounts, Sums, Task};
use super::second_pass::{SecondPass, StateVisitor};
use super::version::ITEM_BYTES;
use crate::{Check, Findings, Place, Rule};

/// Bytes of a typical record, rather too few: what a temporary directory must have room for follows from it.
const RECORD_BYTES_TYPICAL: u64 = 256;

/// A zstd archive's ratio, rather too high.
pub const RATIO_TYPICAL: u64 = 6;

/// Records of storages of this many bytes, rather too many.
pub fn typical_records(storages_bytes: u64) -> u64 {
    storages_bytes / RECORD_BYTES_TYPICAL
}

/// Bytes that a log of all records takes, of archives or storages of this many bytes.
pub fn log_bytes(storages_bytes: u64) -> u64 {
    typical_records(storages_bytes).saturating_mul(ITEM_BYTES)
}

/// What is known once superseded records are out of the sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateCounts {
    /// Accounts in the state: newest versions with lamports.
    pub accounts: u64,
    /// Records that a newer one supersedes.
    pub superseded: u64,
}

/// Reads the records of some storages again, by their numbers.
pub type ReadAgain<'a> = &'a mut dyn FnMut(Task<'_>, &HashSet<u32>) -> Result<()>;

/// Subtracts superseded records with the help of `read_again`, and judges the state, unless that check is skipped.
pub fn finish_check(
    accounts: &Accounts,
    bank: Option<&BankFile>,
    findings: &Findings,
    threads: usize,
    progress: &dyn Progress,
    read_again: ReadAgain<'_>,
) -> Result<StateCounts> {
    let mut counted = StateCounts::default();
    if bank.is_none() {
        findings.skip(Check::State, "no bank file could be read");
    }
    progress.stage("Sorting", None);
    accounts.find_superseded(threads, &mut |mut round| {
        progress.check()?;
        counted.accounts += round.accounts;
        counted.superseded += round.count;
        if round.has_duplicates() {
            // Which of them counts is not ours to say.
            findings.skip(Check::State, "an account is twice in one storage");
        }
        accounts.stakes.drop_superseded(&round.to_subtract);
        accounts.subtract_kept(&mut round);
        let wanted: HashSet<u32> = round.storages().collect();
        match wanted.is_empty() {
            true => Ok(()),
            false => read_again(Task::Subtract(&round), &wanted),
        }
    })?;
    accounts.check()?;
    if let Some(bank) = bank.filter(|_| !findings.is_skipped(Check::State)) {
        judge_state(accounts, &accounts.sums(), bank, findings)?;
        judge_stakes(accounts, bank, findings)?;
    }
    counted.superseded += accounts.sums().skipped;
    Ok(counted)
}

/// Everything has been logged: shows each record to a visitor with the help of `show_all`, and judges the state of those that
/// nothing supersedes, unless that check is skipped. The marks of superseded records take `marks_bytes_max` at most.
pub fn finish_visit(
    accounts: &Accounts,
    bank: Option<&BankFile>,
    findings: &Findings,
    visitor: &dyn StateVisitor,
    marks_bytes_max: u64,
    threads: usize,
    show_all: &mut dyn FnMut(Task<'_>) -> Result<()>,
) -> Result<StateCounts> {
    let marked = accounts.mark_superseded(threads, marks_bytes_max)?;
    let checked_bank = bank.filter(|_| !findings.is_skipped(Check::State));
    let second_pass = SecondPass { visitor, marked, is_checked: checked_bank.is_some() };
    show_all(Task::Visit(&second_pass))?;
    accounts.check()?;
    let sums = accounts.sums();
    if let Some(bank) = checked_bank {
        judge_state(accounts, &sums, bank, findings)?;
        judge_stakes(accounts, bank, findings)?;
    }
    Ok(StateCounts { accounts: second_pass.marked.accounts, superseded: second_pass.marked.superseded + sums.skipped })
}

/// The stakes of the bank file against the accounts; Firedancer writes none.
fn judge_stakes(accounts: &Accounts, bank: &BankFile, findings: &Findings) -> Result<()> {
    match bank.is_of_firedancer() {
        true => Ok(()),
        false => accounts.stakes.judge(&bank.stakes, findings),
    }
}

/// The slots of the status cache against those of the slot history. Agave wants all of these, as many as a cache holds;
/// Firedancer, and what it writes, needs no more than the newest in a row.
fn judge_cached_slots(
    cached: &[u64],
    history: Option<Result<Vec<u64>>>,
    bank: &BankFile,
    findings: &Findings,
) -> Result<()> {
    let add = |rule, expected: String, found: String| {
        findings.add(Check::State, rule, Place::entry("snapshots/status_cache"), expected, found)
    };
    let history = match history {
        Some(Ok(history)) => history,
        Some(Err(error)) => return findings.add_error(Check::State, Rule::SlotHistory, Place::default(), &error),
        // A newer version closed it, or there are more accounts than are looked at.
        None => return Ok(()),
    };
    if history.first() != Some(&bank.slot) {
        let found = history.first().map_or("none".to_string(), u64::to_string);
        return add(Rule::CachedSlots, format!("slot {} as the newest of the slot history", bank.slot), found);
    }
    let known: HashSet<u64> = history.iter().copied().collect();
    if let Some(slot) = cached.iter().find(|slot| !known.contains(slot)) {
        return add(Rule::CachedSlots, "slots of the slot history".to_string(), format!("slot {slot}"));
    }
    let cached: HashSet<u64> = cached.iter().copied().collect();
    let Some(missing) = history.iter().find(|slot| !cached.contains(slot)) else { return Ok(()) };
    let is_new = bank.slot.saturating_sub(*missing) < cached.len() as u64;
    match (is_new || cached.is_empty(), bank.is_of_firedancer()) {
        (true, _) => add(Rule::CachedSlots, format!("slot {missing}"), "a cache without it".to_string()),
        (false, false) => add(Rule::CachedSlotsGap, format!("slot {missing}"), "a cache without it".to_string()),
        (false, true) => Ok(()),
    }
}

/// The state against the bank file.
fn judge_state(accounts: &Accounts, sums: &Sums, bank: &BankFile, findings: &Findings) -> Result<()> {
    if sums.lamports != u128::from(bank.capitalization) {
        let expected = bank.capitalization;
        findings.add(Check::State, Rule::Capitalization, Place::default(), expected, sums.lamports)?;
    }
    if !sums.has_slot_history {
        findings.add(Check::State, Rule::SlotHistory, Place::default(), "the account of that address", "none")?;
    } else if let Some(cached) = &bank.cached_slots {
        judge_cached_slots(cached, accounts.stakes.newest_slots(), bank, findings)?;
    }
    match sums.lattice == bank.lattice_hash {
        true => Ok(()),
        false => {
            let found = sums.lattice.snapshot_hash();
            findings.add(Check::State, Rule::LatticeHash, Place::default(), bank.snapshot_hash(), found)
        }
    }
}
