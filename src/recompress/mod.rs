//! Archive to archive, in one pass over a stream: decode, check, cut into frames anew, compress, publish.
//!
//! A running validator's state cannot be read from outside, but the archives that it writes can. The result is, byte
//! for byte, what archiving the same entries in the same order would give. Nothing gets its name unless the whole
//! source was sound and is what its name says.

mod base;
mod convert;
mod input;
mod plan;
mod reading;
mod state;

use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use derive_setters::Setters;
use serde::Serialize;
use slotpress_base::{Elapsed, ErrorKind, Progress, Result, Until, text};
use slotpress_format::{ArchiveName, Root, name_and_parts};
use slotpress_read::{Assurance, CheckOptions};

use crate::archive::encode::Codec;
use crate::archive::encoding::EncodingOptions;
use crate::archive::sink::Sink;
use crate::archive::writer::FrameTotals;
use crate::recompress::plan::Plan;

/// Source of the archive.
#[allow(missing_docs, reason = "the names say it")]
#[derive(Debug)]
pub enum Source {
    File(PathBuf),
    /// A pipe, a terminal or a file, which has no name to check its content against. A wait for its bytes ends when
    /// the reader has ended.
    Stream(File),
}

/// Options for [`recompress()`]. The default is zstd level 1, all cores, the state checked.
#[derive(Clone, Debug, Default, Setters)]
#[non_exhaustive]
pub struct RecompressOptions {
    /// Format, level, frames, threads and memory of the new archive.
    pub encoding: EncodingOptions,
    /// The base slot of an incremental archive that comes without a name.
    #[setters(into)]
    pub base_slot: Option<u64>,
    /// The full archive below an incremental one. It is read only to check the state that the two make up.
    #[setters(into)]
    pub base: Option<PathBuf>,
    /// Make of an archive of Firedancer's one that Agave loads. It is read twice, and so must be a file; so must the result,
    /// which is verified before it gets its name. Others are recompressed as ever.
    pub for_agave: bool,
    /// The incremental archive of Agave's that is to go on a full one of Firedancer's, for that: vote accounts get the rent
    /// epochs that it expects. Without it, they get those of mainnet.
    #[setters(into)]
    pub incremental: Option<PathBuf>,
    /// The chain's `genesis.bin`, for that: Firedancer does not keep the time of a slot of a cluster that began with another
    /// than the known ones have.
    #[setters(into)]
    pub genesis: Option<PathBuf>,
    /// Checks made while the archive is read.
    pub check: CheckOptions,
}

#[allow(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct RecompressReport {
    /// The new archive; `None` when it went into a stream.
    #[serde(serialize_with = "text::optional_path")]
    pub path: Option<PathBuf>,
    #[serde(flatten, serialize_with = "name_and_parts")]
    pub name: ArchiveName,
    pub storages: u64,
    pub input_bytes: u64,
    pub tar_bytes: u64,
    pub output_bytes: u64,
    #[serde(flatten)]
    pub frames: FrameTotals,
    /// Root over the frame hashes; `None` for other formats than zstd, which have none.
    pub root: Option<Root>,
    #[serde(flatten)]
    pub assurance: Assurance,
    #[serde(flatten)]
    pub elapsed: Elapsed,
    #[serde(flatten)]
    pub codec: Codec,
}

/// Recompresses an archive into a sink.
///
/// # Errors
/// Of [`ErrorKind::Damaged`] where the source is not sound to its end, or is not what its name says; of
/// [`ErrorKind::Usage`] for a stream into a stream, unless [`CheckMode::Frames`](slotpress_read::CheckMode::Frames) asks to go without the state; an incremental
/// archive without its full one, with the same exception; a disk that fails or is full. Nothing gets an archive's name then; a stream may have got a part of it.
pub fn recompress<'a>(
    source: Source,
    sink: Sink<'a>,
    options: &RecompressOptions,
    progress: &'a dyn Progress,
) -> Result<RecompressReport> {
    let is_unwanted = AtomicBool::new(false);
    let wish = Until(|| is_unwanted.load(Relaxed) || progress.is_interrupted());
    let recompressed = Plan::new(source, sink, options, &wish, progress).and_then(|plan| plan.execute(&is_unwanted));
    recompressed.map_err(|error| match error.kind() {
        // A wait that the user ended is not a fault of the pipe.
        ErrorKind::Failed => progress.check().err().unwrap_or(error),
        _ => error,
    })
}
