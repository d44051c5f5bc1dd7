//! Two states to an incremental archive: what makes the newer one of a full archive that somebody still has.
//!
//! Validators make incremental archives on their newest full archive only: on an older one, accounts that were closed since
//! would come back. Both states are read here, so all closed accounts are known.
//!
//! # Method
//! Each state is verified, and its records are logged ([`states`]). The log is sorted by accounts, which tells what changed
//! ([`changes`]). Then both are read once more: records of the new state that changed are copied, accounts that only the
//! old one has get a tombstone, and what is outdated of the old state is subtracted from its sums ([`output`]). The result
//! gets its name only if these sums are then those of the new state.
//!
//! # Memory
//! Half of the memory is for the log, half for verifying one state after the other, and then for marks of what changed: at
//! most 4 bytes for each, and 128 for each storage. The log takes 36 bytes for each record of both states (76 GB for two
//! states of mainnet), and is spilled if it does not fit.

pub mod changes;
mod output;
mod plan;
mod states;

use std::path::PathBuf;

use derive_setters::Setters;
use serde::Serialize;
use slotpress_base::{Elapsed, Progress, Result, text};
use slotpress_format::{ArchiveName, Hash, Root, name_and_parts};
use slotpress_read::{CheckOptions, NamedArchive};

use crate::archive::encode::Codec;
use crate::archive::encoding::EncodingOptions;
use crate::archive::sink::Sink;
use crate::archive::writer::FrameTotals;
use crate::rebase::changes::ChangeCounts;
use crate::rebase::plan::Plan;

/// Options for [`rebase`]. The default is zstd level 1, all cores, 1 GiB for comparing states.
#[derive(Clone, Debug, Default, Setters)]
#[non_exhaustive]
pub struct RebaseOptions {
    /// Format, level, frames, threads and memory of the new archive.
    pub encoding: EncodingOptions,
    /// How both states are checked, and the memory for comparing them. Expected values are those of the new state. The mode is
    /// always [`CheckMode::State`](slotpress_read::CheckMode::State).
    pub check: CheckOptions,
}

/// The archives of a rebase.
#[derive(Clone, Copy, Debug)]
pub struct RebaseInput<'a> {
    /// The full archive of the new state.
    pub new: &'a NamedArchive,
    /// The incremental archive on it, if the new state has one.
    pub incremental: Option<&'a NamedArchive>,
    /// The full archive that the result goes on.
    pub onto: &'a NamedArchive,
}

/// What was rebased.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct RebaseReport {
    /// The new archive; `None` when it went into a stream.
    #[serde(serialize_with = "text::optional_path")]
    pub path: Option<PathBuf>,
    /// Its name.
    #[serde(flatten, serialize_with = "name_and_parts")]
    pub name: ArchiveName,
    /// Snapshot hash of the full archive that it goes on.
    pub base_hash: Hash,
    /// What changed between the states.
    #[serde(flatten)]
    pub changes: ChangeCounts,
    /// Storages inside.
    pub storages: u64,
    /// Length of all archives that were read.
    pub input_bytes: u64,
    /// Length of the archives of the new state: what a node fetches without this one. Of a ledger, that of its uncompressed tar.
    pub new_bytes: u64,
    /// Bytes of tar.
    pub tar_bytes: u64,
    /// Length of the new archive in bytes.
    pub output_bytes: u64,
    /// Bytes that did not fit in memory, and were spilled.
    pub spilled_bytes: u64,
    /// Frames inside, without skippable ones.
    #[serde(flatten)]
    pub frames: FrameTotals,
    /// What stands for all of its bytes, where its frames are hashed: with zstd.
    pub root: Option<Root>,
    /// Time from the start until the archive was on disk under its name.
    #[serde(flatten)]
    pub elapsed: Elapsed,
    /// How it was compressed.
    #[serde(flatten)]
    pub codec: Codec,
}

/// Makes an incremental archive that turns the full archive `onto` into the new state.
///
/// # Errors
/// An archive is not sound, or does not match its name; the states are of different clusters, or in the wrong order; memory
/// or disk space do not suffice; there are too few slots between them. Nothing gets an archive's name then; a stream may have
/// got a part of it.
pub fn rebase<'a>(
    input: RebaseInput<'_>,
    sink: Sink<'a>,
    options: &'a RebaseOptions,
    progress: &'a dyn Progress,
) -> Result<RebaseReport> {
    Plan::new(input, sink, options, progress)?.execute()
}
