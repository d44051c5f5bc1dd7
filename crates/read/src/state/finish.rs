//! Ends the state check: superseded records are found, read again and subtracted, and the result is
//! compared with the bank file.

use std::collections::HashSet;

use slotpress_base::{Progress, Result};
use slotpress_format::BankFile;

use super::accounts::Accounts;
use super::pass::Task;
use super::second_pass::{SecondPass, StateVisitor};
use super::sums::StateCounts;
use super::version::ITEM_BYTES;
use crate::{Check, Findings};

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
        accounts.judge(bank, findings)?;
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
        accounts.judge(bank, findings)?;
    }
    counts.superseded += accounts.sums().skipped;
    Ok(counts)
}
