//! Passes the newest version of every account to one visitor per worker.

#![warn(missing_docs)]

use std::fmt;

use derive_setters::Setters;
use parking_lot::Mutex;
use slotpress_base::{Elapsed, Error, Progress, Result, THREADS_MAX};
use slotpress_format::{Address, Hash, Record};

use super::AccountsInput;
use crate::state::second_pass::{StateVisitor, StateWorker};
use crate::verify::ledger::read_ledger;
use crate::verify::{Job, read_archives};
use crate::{Check, CheckMode, CheckOptions, StateOutcome, StorageRef, VerifyOptions, VerifyReport};

/// The newest version of an account. Its balance is never 0: closed accounts are not visited.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Account<'a> {
    /// Address of the account.
    pub address: Address,
    /// Address of the program that owns the account.
    pub owner: Address,
    /// Balance in lamports, at least 1.
    pub lamports: u64,
    /// True if the account is a program.
    pub is_executable: bool,
    /// Data, at most 10 MiB.
    pub data: &'a [u8],
    /// Slot in which it was last written; in an archive of Firedancer, only the slot of its
    /// storage.
    pub slot: u64,
}

/// Visits accounts; each worker has a visitor of its own.
pub trait AccountVisitor {
    /// Error that ends the visit.
    type Error;

    /// Called once for each account, by one of the workers, in no particular order.
    ///
    /// # Errors
    /// The first error of any visitor ends the visit, which returns it.
    fn account(&mut self, account: &Account<'_>) -> Result<(), Self::Error>;
}

/// Options for [`visit_accounts`].
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
pub struct VisitOptions {
    /// Check of the state against the bank file: capitalization and lattice hash of all accounts.
    /// Half of the memory is for the log of records, 20 bytes each. The other half is for marks of
    /// superseded records, a bit per 136 bytes of storages. Default: that of [`CheckOptions`].
    pub check: CheckOptions,
    /// Worker threads, 1 to 1024; each has a visitor. Default: one per core.
    pub threads: usize,
}

impl Default for VisitOptions {
    fn default() -> Self {
        let VerifyOptions { check, threads, .. } = VerifyOptions::default();
        Self { check, threads }
    }
}

/// Result of a visit.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VisitReport {
    /// Slot of the state, from the bank file; `None` if that could not be read.
    pub slot: Option<u64>,
    /// Snapshot hash of the state, from the bank file.
    pub hash: Option<Hash>,
    /// Number of accounts that were visited.
    pub accounts: u64,
    /// Number of records in all storages.
    pub records: u64,
    /// Records that were not visited because a newer one supersedes them.
    pub superseded: u64,
    /// Whether the state was checked.
    pub state: StateOutcome,
    /// Time that the visit took.
    pub elapsed: Elapsed,
}

/// Error that ended a visit early.
#[derive(Clone, Debug)]
pub enum VisitError<E> {
    /// The accounts could not be read, or do not match the bank file.
    Read(Error),
    /// A visitor returned this error.
    Visitor(E),
}

impl<E> From<Error> for VisitError<E> {
    fn from(error: Error) -> Self {
        Self::Read(error)
    }
}

impl<E: fmt::Display> fmt::Display for VisitError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => error.fmt(f),
            Self::Visitor(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error> std::error::Error for VisitError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read(error) => error.source(),
            Self::Visitor(error) => error.source(),
        }
    }
}

/// Passes the newest version of every account to the visitors of all workers, and returns the
/// visitors. Reads the input twice, first to find superseded records, so a URL is transferred
/// twice. After the first pass, all records are known to be readable; only at the end is it known
/// whether the state is right.
///
/// # Errors
/// The first error of a visitor. [`VisitError::Read`] if the input cannot be read or is damaged.
/// With [`CheckMode::State`], also if the state does not match bank file and name (the visited
/// accounts may be wrong then), or if an incremental archive is given without its full one.
pub fn visit_accounts<V: AccountVisitor<Error: Send> + Send>(
    input: AccountsInput<'_>,
    options: &VisitOptions,
    progress: &dyn Progress,
    new_visitor: impl Fn() -> V + Sync,
) -> Result<(Vec<V>, VisitReport), VisitError<V::Error>> {
    let visiting = Visiting { new_visitor, idle: Mutex::default(), error: Mutex::default() };
    let visited = visit_state(input, options, progress, &visiting);
    if let Some(error) = visiting.error.into_inner() {
        return Err(VisitError::Visitor(error));
    }
    let report = visited?;
    Ok((visiting.idle.into_inner(), report))
}

/// Shows every record to a visitor, and judges the state as [`visit_accounts`] does.
pub fn visit_state(
    input: AccountsInput<'_>,
    options: &VisitOptions,
    progress: &dyn Progress,
    visitor: &dyn StateVisitor,
) -> Result<VisitReport> {
    let report = read_state(input, options, progress, visitor)?;
    let state = match options.check.mode {
        CheckMode::Frames => StateOutcome::not_asked(),
        CheckMode::State => judged(&report)?,
    };
    Ok(VisitReport {
        slot: report.slot,
        hash: report.hash,
        accounts: report.counts.accounts,
        records: report.counts.records,
        superseded: report.counts.superseded,
        state,
        elapsed: report.elapsed,
    })
}

pub(super) fn read_state(
    input: AccountsInput<'_>,
    options: &VisitOptions,
    progress: &dyn Progress,
    visitor: &dyn StateVisitor,
) -> Result<VerifyReport> {
    let VisitOptions { check, threads } = options;
    let options = VerifyOptions::default().check(check.clone()).threads((*threads).clamp(1, THREADS_MAX));
    let job = Job { options: &options, visitor: Some(visitor), observer: None, progress };
    match input {
        AccountsInput::Archives(full, incremental) => read_archives(full, incremental, job),
        AccountsInput::Ledger(paths, slot) => read_ledger(paths, slot, None, job),
    }
}

/// Fails unless the state is right and matches the archive's name.
fn judged(report: &VerifyReport) -> Result<StateOutcome> {
    let is_about_it = |check| matches!(check, Check::Name | Check::State);
    if let Some(failure) = report.failures.iter().find(|failure| is_about_it(failure.check)) {
        return Err(failure.to_error());
    }
    match report.checks.iter().find(|check| check.name == Check::State).and_then(|check| check.skipped.as_ref()) {
        Some(why) => Err(Error::damaged(format!("the state cannot be checked: {why}"))),
        None => Ok(StateOutcome::Checked { accounts: report.counts.accounts }),
    }
}

struct Visiting<F, V: AccountVisitor> {
    new_visitor: F,
    idle: Mutex<Vec<V>>,
    error: Mutex<Option<V::Error>>,
}

impl<F: Fn() -> V + Sync, V: AccountVisitor<Error: Send> + Send> StateVisitor for Visiting<F, V> {
    fn new_worker(&self) -> Box<dyn StateWorker + '_> {
        let idle = self.idle.lock().pop();
        Box::new(VisitingWorker {
            visiting: self,
            visitor: Some(idle.unwrap_or_else(&self.new_visitor)),
            has_failed: false,
        })
    }
}

struct VisitingWorker<'a, F, V: AccountVisitor> {
    visiting: &'a Visiting<F, V>,
    /// `None` only while the worker is dropped.
    visitor: Option<V>,
    has_failed: bool,
}

impl<F, V: AccountVisitor> StateWorker for VisitingWorker<'_, F, V> {
    fn record(&mut self, storage: StorageRef, record: &Record<'_>, is_superseded: bool) -> Result<()> {
        let (header, data) = (record.header, record.data);
        let Some(visitor) = self.visitor.as_mut().filter(|_| !is_superseded && header.lamports > 0 && !self.has_failed)
        else {
            return Ok(());
        };
        let account = Account {
            address: Address(header.pubkey),
            owner: Address(header.owner),
            lamports: header.lamports,
            is_executable: header.executable == 1,
            data,
            slot: storage.slot,
        };
        visitor.account(&account).map_err(|error| {
            self.has_failed = true;
            self.visiting.error.lock().get_or_insert(error);
            // Ends the reading; the visitor's own error is returned instead.
            Error::interrupted()
        })
    }
}

impl<F, V: AccountVisitor> Drop for VisitingWorker<'_, F, V> {
    fn drop(&mut self) {
        self.visiting.idle.lock().extend(self.visitor.take());
    }
}
