//! Who is shown the records of a state, and what is known of the state before.

use std::path::PathBuf;

use slotpress_base::Result;
use slotpress_format::{BankFile, Record, Root};

use super::well_known::WellKnownAccounts;
use crate::StorageRef;

pub trait StateVisitor: Sync {
    /// Called once, between the passes. An error ends the reading.
    fn begin(&self, _facts: &StateFacts<'_>) -> Result<()> {
        Ok(())
    }

    fn new_worker(&self) -> Box<dyn StateWorker + '_>;
}

/// Facts of a state before its records are shown. The state has not been judged yet.
pub struct StateFacts<'a> {
    pub bank: &'a BankFile,
    /// The archives or the ledger, in the order of their storages: the newest first.
    pub parts: Vec<StatePart>,
    /// Sysvars and other accounts at fixed addresses. Closed accounts have no data.
    pub well_known: WellKnownAccounts,
}

#[derive(Clone, Debug)]
pub struct StatePart {
    pub path: PathBuf,
    pub root: Option<Root>,
    pub first_storage: u32,
    /// True if Firedancer wrote the archive: the slots of its storages do not show when accounts
    /// were written.
    pub is_of_firedancer: bool,
}

/// Part of a [`StateVisitor`] that one worker calls.
pub trait StateWorker {
    /// Called for each record, in any order. The first error ends the reading.
    fn record(&mut self, storage: StorageRef, record: &Record<'_>, is_superseded: bool) -> Result<()>;
}
