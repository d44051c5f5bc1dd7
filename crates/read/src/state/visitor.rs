//! The task of one pass over a state's records, the visitor that receives them, and what is known
//! before they are visited.

use std::path::PathBuf;

use slotpress_base::Result;
use slotpress_format::{ArchiveRoot, BankFile, Record};

use super::marks::Marks;
use super::well_known::WellKnownAccounts;
use crate::{StorageRef, Superseded};

/// Task of one pass. A check first runs `HashAndLog`, then `Subtract`. A visit first runs `Log`, then `Visit`.
#[derive(Clone, Copy)]
pub enum Task<'a> {
    /// Hash and log the records, except those that a newer archive is known to supersede. Pass the same
    /// records to the visitor, if there is one.
    HashAndLog(Option<&'a dyn StateVisitor>),
    /// Subtract the superseded records, and report accounts that a storage holds twice.
    Subtract(&'a Superseded),
    /// Log the same records for a visit, without hashing them.
    Log,
    /// Pass every record to the visitor. If `is_hashed` is true, also hash the records that are not
    /// superseded, so that the state can be checked.
    Visit { visitor: &'a dyn StateVisitor, superseded: &'a Marks, is_hashed: bool },
}

pub trait StateVisitor: Sync {
    /// Called once, before the pass of [`Task::Visit`], if the bank file could be read. An error ends the
    /// reading.
    fn begin(&self, _facts: &StateFacts<'_>) -> Result<()> {
        Ok(())
    }

    fn new_worker(&self) -> Box<dyn StateWorker + '_>;
}

/// Facts about a state before its records are visited. The state has not been judged yet.
pub struct StateFacts<'a> {
    pub bank: &'a BankFile,
    /// The archives or the ledger, in the order of their storages: the newest first.
    pub parts: Vec<StatePart>,
    /// Sysvars and other accounts at fixed addresses. Closed accounts have 0 lamports.
    pub well_known: WellKnownAccounts,
}

#[derive(Clone, Debug)]
pub struct StatePart {
    pub path: PathBuf,
    pub root: Option<ArchiveRoot>,
    pub first_storage: u32,
    /// True if Firedancer wrote the archive. The slots of its storages do not show when accounts were
    /// written.
    pub is_from_firedancer: bool,
}

pub trait StateWorker {
    /// Called for each record, in any order. The first error ends the reading.
    fn record(&mut self, storage: StorageRef, record: &Record<'_>, is_superseded: bool) -> Result<()>;
}
