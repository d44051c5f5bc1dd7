//! What archiving would do, without writing anything: everything that it looks at before it writes, and the size of a sample.

use std::path::PathBuf;

use serde::Serialize;
use slotpress_base::{Error, KeptDir, Progress, Result, Space, text};
use slotpress_format::{ArchiveName, name_parts};
use slotpress_read::Plan;

use super::sink::Place;
use super::{ArchiveOptions, ArchivePlan, encode_planned, linked_frames};

/// Frames in the sample, spread evenly: 128 MiB of the usual size, a second or two on one core at level 1.
const SAMPLE_FRAMES: usize = 16;

/// What archiving would make.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ArchivePreview {
    /// Where the archive would be.
    #[serde(serialize_with = "text::path")]
    pub path: PathBuf,
    /// Its name.
    #[serde(flatten, serialize_with = "name_parts")]
    pub name: ArchiveName,
    /// Storages inside.
    pub storages: u64,
    /// Bytes of tar: what would be compressed.
    pub input_bytes: u64,
    /// About how long the archive would be, in bytes: as the sample compresses, without the index.
    pub estimated_bytes: u64,
    /// Bytes of tar in the sample; all of them, of a small ledger.
    pub sample_bytes: u64,
    /// Bytes free in the output directory, for who is not root.
    pub free_bytes: u64,
}

impl ArchivePreview {
    /// Whether there is room for it, as far as the sample tells.
    pub fn has_room(&self) -> bool {
        self.estimated_bytes <= self.free_bytes
    }
}

impl ArchivePlan<'_> {
    /// What executing the plan would make, in a directory: compresses a sample, and writes nothing.
    ///
    /// # Errors
    /// The archive would not go into a directory; the sample cannot be read. That there is no room is in the preview.
    pub fn preview(&self, progress: &dyn Progress) -> Result<ArchivePreview> {
        let Place::Kept(dir) = &self.sink.place else {
            return Err(Error::usage("a preview needs an output directory: it compares sizes with the space there"));
        };
        let (sample_bytes, estimated_bytes) = estimate(&self.plan, &self.options, self.threads, progress)?;
        Ok(ArchivePreview {
            path: dir.path_of(self.name.to_string()),
            name: self.name.clone(),
            storages: self.plan.storages.len() as u64,
            input_bytes: self.plan.tar_bytes(),
            estimated_bytes,
            sample_bytes,
            free_bytes: Space::in_dir(dir, estimated_bytes)?.free_bytes,
        })
    }
}

/// Bytes of a sample, and about how long the archive will be.
fn estimate(plan: &Plan, options: &ArchiveOptions, threads: usize, progress: &dyn Progress) -> Result<(u64, u64)> {
    let step = linked_frames(plan, options).count().div_ceil(SAMPLE_FRAMES).max(1);
    let sample: Vec<_> = linked_frames(plan, options).step_by(step).collect();
    let sample_bytes = sample.iter().map(|(span, _)| span.length_bytes).sum();
    progress.stage("Sampling", Some(sample_bytes));
    let mut output_bytes = 0u64;
    encode_planned(plan, options, sample.into_iter(), threads, progress, &mut |frame| {
        output_bytes += frame.bytes.len() as u64;
        Ok(())
    })?;
    let ratio = output_bytes as f64 / (sample_bytes as f64).max(1.0);
    Ok((sample_bytes, (plan.tar_bytes() as f64 * ratio) as u64))
}

/// Refuses a directory that has no room for the archive, as far as a sample tells. Where there is room without compression,
/// none is taken.
pub fn check_room(
    dir: &KeptDir,
    plan: &Plan,
    options: &ArchiveOptions,
    threads: usize,
    progress: &dyn Progress,
) -> Result<()> {
    let space = Space::in_dir(dir, plan.tar_bytes())?;
    match space.check() {
        Ok(()) => Ok(()),
        Err(_) => Space { needed_bytes: estimate(plan, options, threads, progress)?.1, ..space }.check(),
    }
}
