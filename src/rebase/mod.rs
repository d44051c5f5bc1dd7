//! Makes an incremental archive that turns an older full archive, which some nodes still have, into
//! a newer state.
//!
//! Validators make incremental archives only on their newest full archive: on an older one, closed
//! accounts would come back. This module reads both states, so it knows all closed accounts.
//!
//! # Method
//! Each state is verified while its records are logged. Sorting the log by account shows the differences.
//! Then both states are read once more: new and changed records are copied, and a tombstone is written
//! for each account that only the old state has. The written records are added to the old state's sums,
//! and its outdated records are subtracted. The result is renamed into place only if the sums then equal
//! the sums of the new state.
//!
//! # Memory
//! Half of the memory is for the log. The other half is for verifying one state after the other,
//! and then for marks of differing records: at most 4 bytes per record, and 128 per storage. The
//! log takes 36 bytes for each record of both states (76 GB for two states of mainnet). It is
//! spilled to disk if it does not fit.

pub(crate) mod changes;
mod output;
mod run;
mod states;

pub use changes::ChangeCounts;
use derive_setters::Setters;
pub use run::rebase;
use serde::Serialize;
use slotpress_format::Hash;
use slotpress_read::{ArchiveInput, CheckOptions, Snapshot};

use crate::archive::NewArchive;
use crate::archive::encoding::EncodingOptions;

/// States, settings and checks of a [`rebase`].
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
pub struct RebaseOptions {
    /// The new state: archives, or a ledger, which is read like an archive.
    #[setters(into)]
    pub state: Snapshot,
    /// The older full archive on which the result builds.
    #[setters(into)]
    pub onto: ArchiveInput,
    /// Format, level, frames, threads and memory of the new archive.
    pub encoding: EncodingOptions,
    /// Checks of both states, and the memory for comparing them. An expected slot or hash is compared
    /// with the new state only. The mode is always [`CheckMode::State`](slotpress_read::CheckMode::State).
    pub check: CheckOptions,
}

impl RebaseOptions {
    /// Creates options for zstd level 1, all cores, and 1 GiB for comparing states.
    pub fn new(state: impl Into<Snapshot>, onto: impl Into<ArchiveInput>) -> Self {
        Self {
            state: state.into(),
            onto: onto.into(),
            encoding: EncodingOptions::default(),
            check: CheckOptions::default(),
        }
    }
}

/// Result of a [`rebase`].
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct RebaseReport {
    /// The archive that was written.
    #[serde(flatten)]
    pub archive: NewArchive,
    /// Snapshot hash of the full archive on which the new archive builds.
    pub base_hash: Hash,
    /// Differences between the states.
    #[serde(flatten)]
    pub changes: ChangeCounts,
    /// Length of all archives that were read, in bytes.
    pub input_bytes: u64,
    /// Length of the new state's archives, in bytes: what a node would fetch without the rebased archive. For a
    /// ledger, the length of its uncompressed tar.
    pub state_bytes: u64,
    /// Length of the tar stream of the new archive, in bytes.
    pub tar_bytes: u64,
    /// Number of bytes that did not fit in memory, and were spilled to disk.
    pub spilled_bytes: u64,
}
