//! What a restore would do: everything that it looks at before it writes, and how much it would write, by the index or by a
//! sample.
//!
//! Directories that are missing are made for the look and go again; what a killed restore left behind is cleared away, as
//! by a restore.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Serialize;
use slotpress_base::{Error, Progress, Result, ShowPath, Space, text};
use slotpress_format::{ArchiveName, name_parts};
use slotpress_read::archive::Archive;
use slotpress_read::{Findings, IndexPolicy, RATIO_TYPICAL, decode_in_order, judge_root};

use super::{RestoreLayout, RestorePlan, is_standard_input};

/// Bytes of an archive in the sample: beyond bank file and status cache of any cluster, and read in a moment.
const SAMPLE_BYTES: u64 = 64 * 1024 * 1024;

/// What a restore would read and write.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct RestorePreview {
    /// The archives, in their order.
    pub archives: Vec<ArchiveToRestore>,
    /// What would be written, by file system.
    pub space: Vec<Space>,
    /// What there is of a state that would be replaced.
    #[serde(serialize_with = "text::paths")]
    pub existing: Vec<PathBuf>,
}

/// An archive of a restore.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ArchiveToRestore {
    /// The file.
    #[serde(serialize_with = "text::path")]
    pub path: PathBuf,
    /// What its name says of slot and hash; a file of another name tells them when it is read.
    #[serde(flatten, serialize_with = "name_parts")]
    pub name: Option<ArchiveName>,
    /// Its length in bytes.
    pub length_bytes: u64,
    /// Bytes that it unpacks to.
    pub unpacked_bytes: u64,
    /// Whether those follow from its index, and not from a sample.
    pub is_exact: bool,
}

impl RestorePlan {
    /// What executing the plan would read and write. Archives without an index are sampled.
    ///
    /// # Errors
    /// An archive comes from standard input, which cannot be sampled without consuming it; an archive is not what its expected
    /// root says, or cannot be read. That there is no room is in the preview.
    pub fn preview(&self, progress: &dyn Progress) -> Result<RestorePreview> {
        let Self { options, inputs, target, newer, .. } = self;
        if options.paths().any(|path| is_standard_input(path)) {
            return Err(Error::usage("standard input cannot be previewed without consuming it"));
        }
        // Without the index, an archive is compared with its root when all of it has been read.
        let compared = inputs.archives().filter(|_| options.index != IndexPolicy::Ignore);
        for (archive, root) in compared.zip(&options.expect_roots) {
            judge_root(Some(*root), archive.root(), &Findings::refusing(|_| true))
                .map_err(|error| error.within_damaged(archive.path().shown()))?;
        }
        progress.stage("Sampling", None);
        let threads = options.target.threads;
        let archives: Vec<ArchiveToRestore> =
            inputs.archives().map(|archive| look_at(archive, threads, progress)).collect::<Result<_>>()?;
        let is_copied = |archive: &&ArchiveToRestore| {
            options.target.layout == RestoreLayout::Boot && !lies_in(&archive.path, target.snapshots_dir.path())
        };
        let copied_bytes = archives.iter().filter(is_copied).map(|archive| archive.length_bytes).sum();
        let unpacked_bytes = archives.iter().map(|archive| archive.unpacked_bytes).sum();
        let space = target.space_for(unpacked_bytes, copied_bytes)?;
        let existing = target.existing().chain(newer.iter().cloned()).collect();
        Ok(RestorePreview { archives, space, existing })
    }
}

#[cfg(feature = "net")]
/// About what would be written, by file system, for archives of so many bytes, of which `fetched_bytes` are still to be
/// fetched; and what would be replaced. Refuses what [`restore_supplied`](super::restore_supplied) refuses.
pub fn preview_fetched(
    options: &super::RestoreTarget,
    archives_bytes: u64,
    fetched_bytes: u64,
) -> Result<(Vec<Space>, Vec<PathBuf>)> {
    let target = super::target::Target::prepare(options)?;
    let space = target.space_for(archives_bytes.saturating_mul(super::target::MAINNET_RATIO), fetched_bytes)?;
    Ok((space, target.existing().collect()))
}

/// Whether an archive stays where it is.
fn lies_in(path: &Path, dir: &Path) -> bool {
    let parent = path.canonicalize().ok().and_then(|path| path.parent().map(Path::to_path_buf));
    [dir.to_path_buf(), dir.join("remote")].iter().any(|dir| parent.is_some() && parent == dir.canonicalize().ok())
}

fn look_at(archive: &Archive, threads: usize, progress: &dyn Progress) -> Result<ArchiveToRestore> {
    let exact = archive.tail.as_ref().map(|tail| tail.index.tar_bytes());
    let unpacked_bytes = match exact {
        Some(bytes) => bytes,
        None => estimate(archive, threads, progress)?,
    };
    let (path, length_bytes) = (archive.path_buf(), archive.length_bytes());
    Ok(ArchiveToRestore { path, name: archive.name.clone(), length_bytes, unpacked_bytes, is_exact: exact.is_some() })
}

/// Bytes that an archive without an index unpacks to, as its beginning does.
fn estimate(archive: &Archive, threads: usize, progress: &dyn Progress) -> Result<u64> {
    let length_bytes = archive.length_bytes();
    let sample_bytes = length_bytes.min(SAMPLE_BYTES);
    let stream = archive.stream(progress);
    let mut content_bytes = 0u64;
    let decoded =
        decode_in_order(stream.reader.take(sample_bytes), stream.compression, threads, progress, &mut |bytes| {
            content_bytes += bytes.len() as u64;
            Ok(())
        });
    progress.check()?;
    match decoded {
        Err(error) if sample_bytes == length_bytes => Err(error.within_damaged(archive.path().shown())),
        Ok(_) if sample_bytes == length_bytes => Ok(content_bytes),
        // A sample ends inside a frame; of a frame that is longer than the sample, nothing may have come out.
        _ if content_bytes == 0 => Ok(length_bytes.saturating_mul(RATIO_TYPICAL)),
        _ => Ok((length_bytes as f64 * (content_bytes as f64 / sample_bytes.max(1) as f64)) as u64),
    }
}
