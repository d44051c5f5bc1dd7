//! A snapshot to be read: archives or a ledger.

#![warn(missing_docs)]

use slotpress_format::LedgerPaths;

use crate::NamedArchive;

/// Snapshot to verify or to read accounts from.
#[derive(Clone, Copy, Debug)]
pub enum Snapshot<'a> {
    /// Archives of any validator client, in a file, a store or on a server.
    Archives {
        /// The full archive, or an incremental archive alone, which holds only a part of the state.
        full: &'a NamedArchive,
        /// An incremental archive based on the full one.
        incremental: Option<&'a NamedArchive>,
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
    /// A single archive, full or incremental.
    pub fn archive(archive: &'a NamedArchive) -> Self {
        Self::Archives { full: archive, incremental: None }
    }

    /// A full archive, and an incremental archive based on it.
    pub fn pair(full: &'a NamedArchive, incremental: &'a NamedArchive) -> Self {
        Self::Archives { full, incremental: Some(incremental) }
    }

    /// The newest bank snapshot of a ledger.
    pub fn ledger(paths: &'a LedgerPaths) -> Self {
        Self::Ledger { paths, slot: None, base_slot: None }
    }
}
