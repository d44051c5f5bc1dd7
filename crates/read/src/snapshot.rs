//! A snapshot to be read: archives or a ledger.

#![warn(missing_docs)]

use slotpress_format::LedgerPaths;

use crate::NamedArchive;

/// Snapshot to verify or to read accounts from.
#[derive(Clone, Copy, Debug)]
pub enum Snapshot<'a> {
    /// A full archive, or an incremental archive alone, which holds only a part of the state.
    Archive(&'a NamedArchive),
    /// A full archive and an incremental archive that builds on it.
    Pair {
        /// The base of the incremental archive.
        full: &'a NamedArchive,
        /// The archive of the newer state.
        incremental: &'a NamedArchive,
    },
    /// The ledger of a stopped validator, or an unpacked archive.
    Ledger {
        /// Directories of the ledger.
        paths: &'a LedgerPaths,
        /// Slot of the bank snapshot; `None` for the newest.
        slot: Option<u64>,
        /// Base slot of an unpacked incremental archive; `None` for any other ledger.
        base_slot: Option<u64>,
    },
}

impl<'a> Snapshot<'a> {
    /// A full archive, and an incremental archive that builds on it, if there is one.
    pub fn archives(full: &'a NamedArchive, incremental: Option<&'a NamedArchive>) -> Self {
        match incremental {
            Some(incremental) => Self::Pair { full, incremental },
            None => Self::Archive(full),
        }
    }

    /// The newest bank snapshot of a ledger.
    pub fn ledger(paths: &'a LedgerPaths) -> Self {
        Self::Ledger { paths, slot: None, base_slot: None }
    }
}
