//! Passes the newest version of every account to visitors. Each worker has its own visitor.

#![warn(missing_docs)]

use parking_lot::Mutex;
use slotpress_base::{Error, Progress, Result, THREADS_MAX};
use slotpress_format::{Address, Record};

use crate::verify::job::{JobVisitor, VerifyJob};
use crate::verify::read_snapshot;
use crate::{Check, Failure, Snapshot, StateVisitor, StateWorker, StorageRef, VerifyOptions, VerifyReport};

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
    /// Slot of the storage that holds the account. It may be later than the account's last write:
    /// validators move accounts between storages.
    pub slot: u64,
}

/// Receives accounts. Each worker has its own visitor.
pub trait AccountVisitor {
    /// Error that ends the visit. Errors of reading are converted into this type.
    type Error: From<Error> + Send;

    /// Receives an account. Each account goes to one of the visitors, in no particular order.
    ///
    /// # Errors
    /// The first error of any visitor ends the visit, which returns it.
    fn account(&mut self, account: &Account<'_>) -> Result<(), Self::Error>;
}

/// Passes the newest version of every account to the visitors of all workers, and returns the visitors. Reads
/// the input twice, so a URL is transferred twice. The first pass finds superseded records, and fails if a
/// record cannot be read. The state is checked only at the end, and only with
/// [`CheckMode::State`](crate::CheckMode::State).
///
/// Half of [`CheckOptions::memory_bytes`](crate::CheckOptions::memory_bytes) is for the log (20 bytes per
/// record), and the other half is for marks of superseded records (about 2 bytes each).
///
/// # Errors
/// The first error of a visitor. An [`Error`] if the input cannot be read or is damaged. With
/// [`CheckMode::State`](crate::CheckMode::State), also an [`Error`] if the full archive of an incremental
/// archive is missing, or if the state does not match bank file and name. In the latter case, the visited
/// accounts may be wrong.
pub fn visit_accounts<V: AccountVisitor + Send>(
    snapshot: &Snapshot,
    options: &VerifyOptions,
    progress: &dyn Progress,
    new_visitor: impl Fn() -> V + Sync,
) -> Result<(Vec<V>, VerifyReport), V::Error> {
    let visit = AccountVisit { new_visitor, visitors: Mutex::default(), error: Mutex::default() };
    let visited = visit_state(snapshot, options, progress, &visit);
    if let Some(error) = visit.error.into_inner() {
        return Err(error);
    }
    Ok((visit.visitors.into_inner(), visited?))
}

/// Passes every record to a visitor, and judges the state as [`visit_accounts`] does.
pub fn visit_state(
    snapshot: &Snapshot,
    options: &VerifyOptions,
    progress: &dyn Progress,
    visitor: &dyn StateVisitor,
) -> Result<VerifyReport> {
    let report = read_state(snapshot, options, progress, visitor)?;
    if options.state_skip_reason().is_some() {
        return Ok(report);
    }
    let is_about_state = |failure: &&Failure| matches!(failure.check, Check::Name | Check::State);
    if let Some(failure) = report.failures.iter().find(is_about_state) {
        return Err(failure.to_error());
    }
    match report.skip_reason(Check::State) {
        Some(why) => Err(Error::damaged(format!("the state cannot be checked: {why}"))),
        None => Ok(report),
    }
}

pub(super) fn read_state(
    snapshot: &Snapshot,
    options: &VerifyOptions,
    progress: &dyn Progress,
    visitor: &dyn StateVisitor,
) -> Result<VerifyReport> {
    let options = options.clone().threads(options.threads.clamp(1, THREADS_MAX));
    let visitor = JobVisitor::SecondPass(visitor);
    read_snapshot(snapshot, VerifyJob { visitor, ..VerifyJob::new(&options, progress) })
}

struct AccountVisit<F, V: AccountVisitor> {
    new_visitor: F,
    /// The visitors that no worker is using.
    visitors: Mutex<Vec<V>>,
    error: Mutex<Option<V::Error>>,
}

impl<F: Fn() -> V + Sync, V: AccountVisitor + Send> StateVisitor for AccountVisit<F, V> {
    fn new_worker(&self) -> Box<dyn StateWorker + '_> {
        let visitor = self.visitors.lock().pop();
        Box::new(AccountVisitWorker {
            visit: self,
            visitor: Some(visitor.unwrap_or_else(&self.new_visitor)),
            has_failed: false,
        })
    }
}

struct AccountVisitWorker<'a, F, V: AccountVisitor> {
    visit: &'a AccountVisit<F, V>,
    /// `None` only while the worker is dropped.
    visitor: Option<V>,
    has_failed: bool,
}

impl<F, V: AccountVisitor> StateWorker for AccountVisitWorker<'_, F, V> {
    fn record(&mut self, storage: StorageRef, record: &Record<'_>, is_superseded: bool) -> Result<()> {
        let header = record.header;
        if is_superseded || header.lamports == 0 || self.has_failed {
            return Ok(());
        }
        let Some(visitor) = &mut self.visitor else { return Ok(()) };
        let account = Account {
            address: Address(header.pubkey),
            owner: Address(header.owner),
            lamports: header.lamports,
            is_executable: header.executable != 0,
            data: record.data,
            slot: storage.slot,
        };
        visitor.account(&account).map_err(|error| {
            self.has_failed = true;
            self.visit.error.lock().get_or_insert(error);
            // This error only ends the reading. The visitor's error is returned instead.
            Error::interrupted()
        })
    }
}

impl<F, V: AccountVisitor> Drop for AccountVisitWorker<'_, F, V> {
    fn drop(&mut self) {
        self.visit.visitors.lock().extend(self.visitor.take());
    }
}
