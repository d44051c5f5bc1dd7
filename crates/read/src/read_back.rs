//! The check of a result of archiving or restoring before it counts; [`FullReadBack`](crate::verify::own::FullReadBack) is one.

use std::fmt::Debug;

use serde::Serialize;
use slotpress_base::{Progress, Result};
use slotpress_format::BankSnapshot;

use crate::NamedArchive;

/// What was read back, and found to be right.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct ReadBackReport {
    /// Storages that were read.
    pub storages: u64,
    /// Accounts in the state, where it was checked.
    pub accounts: Option<u64>,
    /// The checks that were made to their end, by name.
    pub checks: Vec<&'static str>,
    /// The checks that were not, each with the reason.
    pub unknown: Vec<String>,
}

/// Reads back what has just been written.
pub trait ReadBack: Debug + Send + Sync {
    /// Reads back an archive that does not have its name yet; an incremental one on its full archive, where that is given.
    fn check_archive(
        &self,
        archive: &NamedArchive,
        base: Option<&NamedArchive>,
        threads: usize,
        progress: &dyn Progress,
    ) -> Result<ReadBackReport>;

    /// Reads back a bank snapshot that is not complete yet. Of an incremental archive alone, `base_slot` says what it
    /// builds on.
    fn check_snapshot(
        &self,
        snapshot: BankSnapshot,
        base_slot: Option<u64>,
        threads: usize,
        progress: &dyn Progress,
    ) -> Result<ReadBackReport>;
}
