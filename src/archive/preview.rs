//! Previews an archive: makes all checks that are possible without writing, and estimates the size
//! from a sample.

use std::path::{Path, PathBuf};

use serde::Serialize;
use slotpress_base::{Error, Progress, Result, Space, Stage, text};
use slotpress_format::{ArchiveName, serialize_name_parts};

use super::sink::Sink;
use super::{ArchiveOptions, PlannedArchive};

/// Maximum number of sampled frames, which are spread evenly over the archive: 128 MiB at the default frame
/// size, which level 1 compresses in a second or two on one core.
const SAMPLE_FRAMES_MAX: usize = 16;

/// The planned archive, with its estimated size.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ArchivePreview {
    /// Path that the archive would have.
    #[serde(serialize_with = "text::path")]
    pub path: PathBuf,
    /// Name that the archive would have.
    #[serde(flatten, serialize_with = "serialize_name_parts")]
    pub name: ArchiveName,
    /// Number of storages that the archive would have.
    pub storages: u64,
    /// Length of the tar stream to be compressed, in bytes.
    pub input_bytes: u64,
    /// Estimated length of the archive in bytes, extrapolated from the sample. Index and seek table are
    /// not counted.
    pub estimated_bytes: u64,
    /// Length of the sample, in bytes of tar. For a small ledger, the sample is the whole tar stream.
    pub sample_bytes: u64,
    /// Free bytes in the output directory's file system, without those reserved for root.
    pub free_bytes: u64,
}

impl ArchivePreview {
    /// Checks that the estimated size fits into the free space.
    ///
    /// # Errors
    /// It does not fit: [`ErrorKind::NoSpace`](crate::ErrorKind::NoSpace).
    pub fn check_space(&self) -> Result<()> {
        let dir = self.path.parent().unwrap_or(Path::new(".")).to_path_buf();
        Space { dir, needed_bytes: self.estimated_bytes, free_bytes: self.free_bytes }.check()
    }
}

/// Determines an archive's name and contents, and estimates its size by compressing a sample. Takes
/// the ledger's lock, and writes nothing except a missing lock file.
///
/// # Errors
/// The same as [`archive()`](crate::archive::archive()), except for errors of writing; also if the sink
/// is not a directory, or the sample cannot be read. A lack of space is not an error here: see
/// [`ArchivePreview::check_space`].
pub fn preview_archive(options: &ArchiveOptions, sink: &dyn Sink, progress: &dyn Progress) -> Result<ArchivePreview> {
    let Some(dir) = sink.dir() else {
        return Err(Error::usage("a preview needs an output directory: it compares sizes with the space there")
            .with_hint("pass a directory, or leave out --dry-run"));
    };
    let planned = PlannedArchive::new(options, sink, progress)?;
    let Estimate { sample_bytes, archive_bytes } = planned.estimate(progress)?;
    Ok(ArchivePreview {
        path: planned.name.path_in(dir.path()),
        storages: planned.plan.storages.len() as u64,
        input_bytes: planned.plan.tar_bytes(),
        estimated_bytes: archive_bytes,
        sample_bytes,
        free_bytes: Space::in_dir(dir, archive_bytes)?.free_bytes,
        name: planned.name,
    })
}

struct Estimate {
    sample_bytes: u64,
    archive_bytes: u64,
}

impl PlannedArchive<'_> {
    /// Fails if the estimated archive does not fit into the file system of the output directory.
    /// Compresses a sample only if the uncompressed tar would not fit.
    pub(super) fn check_space(&self, sink: &dyn Sink, progress: &dyn Progress) -> Result<()> {
        let Some(dir) = sink.dir() else { return Ok(()) };
        let mut space = Space::in_dir(dir, self.plan.tar_bytes())?;
        if space.check().is_err() {
            space.needed_bytes = self.estimate(progress)?.archive_bytes;
        }
        space.check()
    }

    /// Compresses a sample to estimate the length of the archive.
    fn estimate(&self, progress: &dyn Progress) -> Result<Estimate> {
        let step = self.frames().count().div_ceil(SAMPLE_FRAMES_MAX).max(1);
        let sample: Vec<_> = self.frames().step_by(step).collect();
        let sample_bytes = sample.iter().map(|frame| frame.span.length_bytes).sum();
        progress.stage(Stage::Sampling, Some(sample_bytes));
        let mut output_bytes = 0u64;
        self.encode(sample.into_iter(), progress, &mut |bytes, _| {
            output_bytes += bytes.len() as u64;
            Ok(())
        })?;
        let ratio = output_bytes as f64 / (sample_bytes as f64).max(1.0);
        let archive_bytes = (self.plan.tar_bytes() as f64 * ratio) as u64;
        Ok(Estimate { sample_bytes, archive_bytes })
    }
}
