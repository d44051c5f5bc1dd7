//! Ends a check or a visit of a state, when all records were read once and logged.

use std::collections::HashSet;

use slotpress_base::{Error, Progress, Result, Stage};
use slotpress_format::BankFile;

use super::accounts::StateBuilder;
use super::pass::Task;
use super::visitor::StateVisitor;
use crate::{Check, Failures};

pub type ReadAgain<'a> = &'a mut dyn FnMut(Task<'_>, &HashSet<u32>) -> Result<()>;

/// Subtracts superseded records, and judges the state unless that check is skipped. Records of which
/// no copy was kept are read by `read_again`.
pub fn finish_check(
    accounts: &StateBuilder,
    bank: Option<&BankFile>,
    failures: &Failures,
    threads: usize,
    progress: &dyn Progress,
    read_again: ReadAgain<'_>,
) -> Result<()> {
    if bank.is_none() {
        failures.skip(Check::State, "no bank file could be read");
    }
    progress.stage(Stage::Sorting, None);
    accounts.find_superseded(threads, &mut |mut round| {
        progress.check()?;
        if !round.duplicates.is_empty() {
            // It is undefined which of the two records counts.
            failures.skip(Check::State, "an account occurs twice in one storage");
        }
        accounts.settle_kept(&mut round);
        let wanted = round.storages();
        if wanted.is_empty() { Ok(()) } else { read_again(Task::Subtract(&round), &wanted) }
    })?;
    accounts.check()?;
    accounts.judge(bank, failures)
}

/// Like [`finish_check`], but a state that was not compared is an error. Returns the number of
/// accounts.
pub fn require_state(
    accounts: &StateBuilder,
    bank: &BankFile,
    failures: &Failures,
    threads: usize,
    progress: &dyn Progress,
    read_again: ReadAgain<'_>,
) -> Result<u64> {
    accounts.check()?;
    finish_check(accounts, Some(bank), failures, threads, progress, read_again)?;
    match failures.skipped(Check::State) {
        Some(why) => Err(Error::damaged(format!("the state cannot be checked: {why}"))),
        None => Ok(accounts.sums().accounts),
    }
}

/// Passes each record to a visitor by means of `show_all`. Only newest versions are hashed, so the
/// state that is judged, unless that check is skipped, is the one that was visited.
pub fn finish_visit(
    accounts: &StateBuilder,
    bank: Option<&BankFile>,
    failures: &Failures,
    visitor: &dyn StateVisitor,
    threads: usize,
    show_all: &mut dyn FnMut(Task<'_>) -> Result<()>,
) -> Result<()> {
    let superseded = accounts.mark_superseded(threads)?;
    let bank = bank.filter(|_| failures.skipped(Check::State).is_none());
    show_all(Task::Show(visitor, &superseded, bank.is_some()))?;
    accounts.check()?;
    accounts.judge(bank, failures)
}
