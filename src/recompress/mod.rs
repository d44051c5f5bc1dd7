//! Recompresses an archive in one pass: decodes it, checks it, cuts it into new frames, compresses
//! them, and publishes the result.
//!
//! The state of a running validator cannot be read, but the archives that it writes can be. The result
//! equals, byte for byte, an archive that `archive` would make of the same entries in the same order. It
//! is renamed into place only if the whole source is valid and matches its own name.

mod base;
mod input;
mod reading;
mod run;
mod state;

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use derive_setters::Setters;
use serde::Serialize;
use slotpress_base::{ErrorKind, Progress, Result, Until};
use slotpress_read::{ArchiveInput, Assurance, CheckOptions, LocalArchive};

use crate::archive::NewArchive;
use crate::archive::encoding::EncodingOptions;
use crate::archive::sink::Sink;

/// Archive and settings of the function [`recompress()`].
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
pub struct RecompressOptions {
    /// The archive to recompress. A stream is read until it ends, writing fails or the user interrupts
    /// the run.
    #[setters(into)]
    pub archive: LocalArchive,
    /// Format, level, frames, threads and memory of the new archive.
    pub encoding: EncodingOptions,
    /// Base slot of an incremental archive that has no name. Default: the slot in the name of `base`;
    /// without a base, the archive is a full one.
    #[setters(strip_option)]
    pub base_slot: Option<u64>,
    /// The full archive of an incremental one. It is read only to check the combined state.
    /// Default: none; then an incremental archive is an error, except with
    /// [`CheckMode::Frames`](slotpress_read::CheckMode::Frames).
    #[setters(into, strip_option)]
    pub base: Option<ArchiveInput>,
    /// Checks that are made while the archive is read. Default: all, including the state.
    pub check: CheckOptions,
}

impl RecompressOptions {
    /// Creates options that recompress an archive with zstd level 1 on all cores, and check its state.
    pub fn new(archive: impl Into<LocalArchive>) -> Self {
        Self {
            archive: archive.into(),
            encoding: EncodingOptions::default(),
            base_slot: None,
            base: None,
            check: CheckOptions::default(),
        }
    }
}

/// Result of the function [`recompress()`].
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct RecompressReport {
    /// The archive that was written.
    #[serde(flatten)]
    pub archive: NewArchive,
    /// Length of the source archive, in bytes.
    pub input_bytes: u64,
    /// Length of the tar stream, in bytes.
    pub tar_bytes: u64,
    /// Facts on which the result relies: the check of the state, and the evidence that no storage is
    /// missing.
    #[serde(flatten)]
    pub assurance: Assurance,
}

/// Recompresses an archive into a sink.
///
/// # Errors
/// [`ErrorKind::Damaged`] if the source is not valid to its end, or does not match its name.
/// [`ErrorKind::Usage`] if the state cannot be checked: from a stream into a stream, or for an
/// incremental archive without its full one. This check is skipped with
/// [`CheckMode::Frames`](slotpress_read::CheckMode::Frames). Also fails if the disk fails or is
/// full. [`ErrorKind::Unsupported`] if Firedancer wrote the archive before September 2026. After an
/// error, no file has the archive's name; a stream may have received a part of the archive.
pub fn recompress(
    options: &RecompressOptions,
    sink: &mut dyn Sink,
    progress: &dyn Progress,
) -> Result<RecompressReport> {
    let is_input_unwanted = AtomicBool::new(false);
    let interrupt = Until(|| is_input_unwanted.load(Relaxed) || progress.is_interrupted());
    run::run(options, sink, &interrupt, &is_input_unwanted, progress).map_err(|error| match error.kind() {
        // If the user interrupted a wait, the error is the interruption, not a failure of the pipe.
        ErrorKind::Failed => progress.check().err().unwrap_or(error),
        _ => error,
    })
}
