//! Ends the state check: superseded records are found, read again and subtracted, and the result is
//! compared with the bank file.

use std::collections::HashSet;

use slotpress_base::{Progress, Result, to_usize};
use slotpress_format::{BankFile, SLOT_HISTORY, STATUS_CACHE_SLOTS_MAX, parse_newest_slots};

use super::accounts::Accounts;
use super::pass::Task;
use super::second_pass::{SecondPass, StateVisitor};
use super::sums::StateCounts;
use super::version::ITEM_BYTES;
use crate::rules::accounts::judge_slot_time;
use crate::{Check, FindingPlace, Findings, Rule};

/// Lower estimate of a record's average length, from which the needed disk space follows.
const RECORD_BYTES_TYPICAL: u64 = 256;

/// Upper estimate of a zstd archive's compression ratio.
pub const RATIO_TYPICAL: u64 = 6;

/// Upper estimate of the number of records in storages of this total size.
pub fn typical_records(storages_bytes: u64) -> u64 {
    storages_bytes / RECORD_BYTES_TYPICAL
}

/// Upper estimate of the log's size for storages of this total size.
pub fn log_bytes(storages_bytes: u64) -> u64 {
    typical_records(storages_bytes).saturating_mul(ITEM_BYTES)
}

pub type ReadAgain<'a> = &'a mut dyn FnMut(Task<'_>, &HashSet<u32>) -> Result<()>;

/// Subtracts superseded records, and judges the state unless that check is skipped. Records of which
/// no copy was kept are read by `read_again`.
pub fn finish_check(
    accounts: &Accounts,
    bank: Option<&BankFile>,
    findings: &Findings,
    threads: usize,
    progress: &dyn Progress,
    read_again: ReadAgain<'_>,
) -> Result<StateCounts> {
    if bank.is_none() {
        findings.skip(Check::State, "no bank file could be read");
    }
    let mut counted = StateCounts::default();
    progress.stage("Sorting", None);
    accounts.find_superseded(threads, &mut |mut round| {
        progress.check()?;
        counted.accounts += round.accounts;
        counted.superseded += round.count;
        if round.has_duplicates() {
            // It is undefined which of the two records counts.
            findings.skip(Check::State, "an account occurs twice in one storage");
        }
        accounts.settle_kept(&mut round);
        let wanted: HashSet<u32> = round.storages().collect();
        match wanted.is_empty() {
            true => Ok(()),
            false => read_again(Task::Subtract(&round), &wanted),
        }
    })?;
    accounts.check()?;
    counted.superseded += accounts.sums().skipped;
    if let Some(bank) = bank.filter(|_| findings.skipped(Check::State).is_none()) {
        judge_state(accounts, bank, findings)?;
    }
    Ok(counted)
}

/// Passes each record to a visitor by means of `show_all`, after all records were logged. Judges
/// the state of the newest versions, unless that check is skipped.
pub fn finish_visit(
    accounts: &Accounts,
    bank: Option<&BankFile>,
    findings: &Findings,
    visitor: &dyn StateVisitor,
    threads: usize,
    show_all: &mut dyn FnMut(Task<'_>) -> Result<()>,
) -> Result<StateCounts> {
    let (superseded, mut counts) = accounts.mark_superseded(threads)?;
    let checked_bank = bank.filter(|_| findings.skipped(Check::State).is_none());
    let second_pass = SecondPass { visitor, superseded, is_checked: checked_bank.is_some() };
    show_all(Task::Visit(&second_pass))?;
    accounts.check()?;
    if let Some(bank) = checked_bank {
        judge_state(accounts, bank, findings)?;
    }
    counts.superseded += accounts.sums().skipped;
    Ok(counts)
}

/// Compares the slots of the status cache with the slot history. Agave and Firedancer require the
/// newest slots, as many as a cache can hold.
fn judge_cached_slots(cached: &[u64], history: &[u64], bank: &BankFile, findings: &Findings) -> Result<()> {
    let place = &FindingPlace::entry("snapshots/status_cache");
    if history.first() != Some(&bank.slot) {
        let found = history.first().map_or("none".to_string(), u64::to_string);
        let expected = format!("slot {} as the newest of the slot history", bank.slot);
        return findings.add_at(Rule::CachedSlots, place, expected, found);
    }
    let known: HashSet<u64> = history.iter().copied().collect();
    if let Some(slot) = cached.iter().find(|slot| !known.contains(slot)) {
        return findings.add_at(Rule::CachedSlots, place, "slots of the slot history", format!("slot {slot}"));
    }
    let cached: HashSet<u64> = cached.iter().copied().collect();
    let Some(missing) = history.iter().find(|slot| !cached.contains(slot)) else { return Ok(()) };
    let is_new = bank.slot.saturating_sub(*missing) < cached.len() as u64;
    let rule = match is_new || cached.is_empty() {
        true => Rule::CachedSlots,
        // Reported already, as `FewCachedSlots`.
        false if bank.lacks_stakes() && cached.len() == 1 => return Ok(()),
        false => Rule::CachedSlotsGap,
    };
    findings.add_at(rule, place, format!("slot {missing}"), "a cache without it")
}

fn judge_state(accounts: &Accounts, bank: &BankFile, findings: &Findings) -> Result<()> {
    let (sums, stakes, known) = (accounts.sums(), &accounts.stakes, &accounts.well_known.accounts());
    if sums.state.lamports != u128::from(bank.capitalization) {
        let expected = bank.capitalization;
        findings.add(Rule::Capitalization, expected, sums.state.lamports)?;
    }
    let history = known.get(&SLOT_HISTORY).filter(|account| account.lamports > 0);
    match history.map(|account| parse_newest_slots(&account.data, to_usize(STATUS_CACHE_SLOTS_MAX))) {
        None => findings.add(Rule::SlotHistory, "the account of that address", "none")?,
        Some(Err(error)) => findings.add_error(Rule::SlotHistory, &FindingPlace::default(), &error)?,
        Some(Ok(history)) => {
            if let Some(cached) = &bank.cached_slots {
                judge_cached_slots(cached, &history, bank, findings)?;
            }
        }
    }
    if sums.state.lattice != bank.lattice_hash {
        let found = sums.state.lattice.snapshot_hash();
        findings.add(Rule::LatticeHash, bank.snapshot_hash(), found)?;
    }
    // Firedancer's bank files may have no stakes.
    if bank.lacks_stakes() {
        return Ok(());
    }
    judge_slot_time(known, bank, findings)?;
    stakes.judge(&bank.stakes, findings)
}
