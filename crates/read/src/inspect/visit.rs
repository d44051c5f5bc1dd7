//! Every account of an archive, shown to whoever embeds this library.

use {
    crate::{
        archive::{
            named::NamedArchive,
            visit::{RecordVisitor, RecordWorker, StorageRef},
        },
        inspect::scan::{AccountsInput, Scan},
    },
    derive_setters::Setters,
    slotpress_base::{
        error::{Error, Result},
        progress::Progress,
        threads::{THREADS_MAX, available_threads},
    },
    slotpress_format::ledger::{
        names::Hash,
        records::{Record, RecordFault, RecordSink},
    },
    std::sync::{Mutex, PoisonError},
};

/// A version of an account, as a storage holds it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Account<'a> {
    /// Its address.
    pub pubkey: Hash,
    /// The owner program.
    pub owner: Hash,
    /// The balance in lamports; 0 means that the account is closed.
    pub lamports: u64,
    /// Whether it is a program.
    pub is_executable: bool,
    /// Its data: at most 10 MiB.
    pub data: &'a [u8],
    /// The slot that it was written in. An archive may hold older versions of an account: the one of the highest slot
    /// counts.
    pub slot: u64,
}

/// How to visit.
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
pub struct VisitOptions {
    /// Threads that decode and visit, 1 to 1024.
    pub threads: usize,
}

impl Default for VisitOptions {
    fn default() -> Self {
        Self { threads: available_threads() }
    }
}

/// Shows every version of every account to `visit`, on all threads, in no order, each once. Accounts stream by: memory does
/// not grow with the archive.
///
/// # Errors
/// The archive cannot be read, or is damaged as far as its frames tell: then not all of its accounts were shown. Frames
/// without checksums, as Agave writes them, do not tell of every flipped bit: `verify`
/// compares the state. The first error of `visit` ends the visit.
pub fn visit_accounts(
    archive: &NamedArchive,
    options: &VisitOptions,
    progress: &dyn Progress,
    visit: &(dyn Fn(&Account<'_>) -> Result<()> + Sync),
) -> Result<()> {
    // An index that turns out to be wrong would have the accounts shown again: the stream alone is believed.
    let mut scan = Scan::open(AccountsInput::Archive(archive), options.threads.clamp(1, THREADS_MAX), progress)?;
    scan.ignore_index();
    let visitor = Visiting { visit, error: Mutex::default() };
    let read = scan.read("Visiting", &visitor, None);
    visitor.check()?;
    read
}

struct Visiting<'a> {
    visit: &'a (dyn Fn(&Account<'_>) -> Result<()> + Sync),
    error: Mutex<Option<Error>>,
}

impl RecordVisitor for Visiting<'_> {
    fn new_worker(&self) -> Box<dyn RecordWorker + '_> {
        Box::new(VisitingWorker { visiting: self, slot: 0, has_failed: false })
    }

    fn check(&self) -> Result<()> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).clone().map_or(Ok(()), Err)
    }
}

struct VisitingWorker<'a> {
    visiting: &'a Visiting<'a>,
    slot: u64,
    has_failed: bool,
}

impl RecordWorker for VisitingWorker<'_> {
    fn begin(&mut self, storage: StorageRef) {
        self.slot = storage.slot;
    }
}

impl RecordSink for VisitingWorker<'_> {
    fn record(&mut self, record: Record<'_>) {
        if self.has_failed {
            return;
        }
        let header = record.header;
        let account = Account {
            pubkey: Hash(header.pubkey),
            owner: Hash(header.owner),
            lamports: header.lamports,
            is_executable: header.executable == 1,
            data: record.data,
            slot: self.slot,
        };
        if let Err(error) = (self.visiting.visit)(&account) {
            self.has_failed = true;
            self.visiting.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    }

    fn fault(&mut self, _: RecordFault) {}
}
