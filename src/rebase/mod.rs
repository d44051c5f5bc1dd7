//! Makes an incremental archive that turns an older full archive, which some nodes still have, into
//! a newer state.
//!
//! Validators make incremental archives on their newest full archive only: on an older one,
//! accounts that were closed since then would come back. This module reads both states, so it knows
//! all closed accounts.
//!
//! # Method
//! Each state is verified while its records are logged ([`states`]). Sorting the log by account
//! shows what differs ([`changes`]). Then both states are read once more ([`output`]): new and
//! changed records are copied, accounts that only the old state has get a tombstone, and outdated
//! records are subtracted from the old state's sums. The result gets its name only if the sums then
//! equal the sums of the new state.
//!
//! # Memory
//! Half of the memory is for the log. The other half is for verifying one state after the other,
//! and then for marks of differing records: at most 4 bytes per record, and 128 per storage. The
//! log takes 36 bytes for each record of both states (76 GB for two states of mainnet). It is
//! spilled to disk if it does not fit.

pub mod changes;
mod output;
mod plan;
mod states;

use std::path::PathBuf;

use derive_setters::Setters;
pub use plan::rebase;
use serde::Serialize;
use slotpress_base::{Elapsed, text};
use slotpress_format::{ArchiveName, Hash, Root, name_and_parts};
use slotpress_read::{CheckOptions, NamedArchive};

use crate::archive::encode::Codec;
use crate::archive::encoding::EncodingOptions;
use crate::rebase::changes::ChangeCounts;

/// Options for [`rebase`]. The default is zstd level 1, all cores, and 1 GiB for comparing states.
#[derive(Clone, Debug, Default, Setters)]
#[non_exhaustive]
pub struct RebaseOptions {
    /// Format, level, frames, threads and memory of the new archive.
    pub encoding: EncodingOptions,
    /// Checks of both states, and the memory for comparing them. Expected slot and hash are those
    /// of the new state. The mode is always [`CheckMode::State`](slotpress_read::CheckMode::State).
    pub check: CheckOptions,
}

/// The archives of a rebase.
#[derive(Clone, Copy, Debug)]
pub struct RebaseInput<'a> {
    /// The full archive of the new state.
    pub new: &'a NamedArchive,
    /// The incremental archive on it, if the new state has one.
    pub incremental: Option<&'a NamedArchive>,
    /// The older full archive on which the result builds.
    pub onto: &'a NamedArchive,
}

/// Result of [`rebase`].
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct RebaseReport {
    /// Path of the new archive; `None` if it was written to a stream.
    #[serde(serialize_with = "text::optional_path")]
    pub path: Option<PathBuf>,
    /// Name of the new archive.
    #[serde(flatten, serialize_with = "name_and_parts")]
    pub name: ArchiveName,
    /// Snapshot hash of the full archive on which the new archive builds.
    pub base_hash: Hash,
    /// Differences between the states.
    #[serde(flatten)]
    pub changes: ChangeCounts,
    /// Number of storages in the new archive.
    pub storages: u64,
    /// Length of all archives that were read, in bytes.
    pub input_bytes: u64,
    /// Length of the new state's archives, in bytes, which a node would fetch if it did not use the
    /// rebased one. For a ledger, the length of its uncompressed tar.
    pub new_bytes: u64,
    /// Length of the tar stream of the new archive, in bytes.
    pub tar_bytes: u64,
    /// Length of the new archive, in bytes.
    pub output_bytes: u64,
    /// Number of bytes that did not fit in memory, and were spilled to disk.
    pub spilled_bytes: u64,
    /// Number of frames of the new archive, without skippable ones.
    pub frames: u64,
    /// Number of storages, or pieces of storages in a frame, whose records kept their order
    /// although the layout is clustered. See
    /// [`RecordLayout::Clustered`](crate::RecordLayout::Clustered).
    pub unclustered_pieces: u64,
    /// Root of the archive: one hash that covers all its bytes. Only zstd archives have one.
    pub root: Option<Root>,
    /// Time from the start until the archive was on disk under its name.
    #[serde(flatten)]
    pub elapsed: Elapsed,
    /// Format and layout of the new archive.
    #[serde(flatten)]
    pub codec: Codec,
}
