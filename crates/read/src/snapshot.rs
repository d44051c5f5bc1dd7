//! A snapshot to be read: archives or a ledger.

#![warn(missing_docs)]

use slotpress_format::LedgerPaths;

use crate::ArchiveInput;

/// Snapshot to verify or to read accounts from.
#[derive(Clone, Debug)]
pub enum Snapshot {
    /// A full archive, or an incremental archive alone, which holds only a part of the state.
    Archive(ArchiveInput),
    /// A full archive and an incremental archive that builds on it.
    Pair {
        /// The base of the incremental archive.
        full: ArchiveInput,
        /// The archive of the newer state.
        incremental: ArchiveInput,
    },
    /// The ledger of a stopped validator, or an unpacked archive.
    Ledger {
        /// Directories of the ledger.
        paths: LedgerPaths,
        /// Slot of the bank snapshot; `None` for the newest.
        slot: Option<u64>,
        /// Base slot of an unpacked incremental archive; `None` for any other ledger.
        base_slot: Option<u64>,
    },
}

impl Snapshot {
    /// Creates a snapshot of one archive.
    pub fn archive(archive: impl Into<ArchiveInput>) -> Self {
        Self::Archive(archive.into())
    }

    /// Creates a snapshot of a full archive and an incremental archive that builds on it.
    pub fn pair(full: impl Into<ArchiveInput>, incremental: impl Into<ArchiveInput>) -> Self {
        Self::Pair { full: full.into(), incremental: incremental.into() }
    }

    /// Creates a snapshot of a full archive and, if there is one, an incremental archive on it.
    pub fn from_archives(full: impl Into<ArchiveInput>, incremental: Option<impl Into<ArchiveInput>>) -> Self {
        match incremental {
            Some(incremental) => Self::pair(full, incremental),
            None => Self::archive(full),
        }
    }

    /// Returns the archives, the full one first; none for a ledger.
    pub fn archives(&self) -> impl DoubleEndedIterator<Item = &ArchiveInput> {
        let archives = match self {
            Self::Archive(archive) => [Some(archive), None],
            Self::Pair { full, incremental } => [Some(full), Some(incremental)],
            Self::Ledger { .. } => [None, None],
        };
        archives.into_iter().flatten()
    }

    /// True for an incremental archive without its full archive.
    #[doc(hidden)]
    pub fn is_incremental_alone(&self) -> bool {
        let Self::Archive(archive) = self else { return false };
        archive.name.as_ref().is_some_and(|name| name.base_slot.is_some())
    }

    /// Creates a snapshot of a ledger's newest bank snapshot.
    pub fn ledger(paths: impl Into<LedgerPaths>) -> Self {
        Self::Ledger { paths: paths.into(), slot: None, base_slot: None }
    }
}

/// A snapshot of one archive.
impl<A: Into<ArchiveInput>> From<A> for Snapshot {
    fn from(archive: A) -> Self {
        Self::archive(archive)
    }
}
