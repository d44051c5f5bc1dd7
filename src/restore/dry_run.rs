//! Previews a restore: makes all checks that precede writing, and computes how many bytes a restore
//! would write, from the index or from a sample.
//!
//! Missing directories are created for the checks, and removed again. Remains of a killed restore
//! are removed, as a restore would do.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Serialize;
use slotpress_base::{Error, Progress, Result, ShowPath, Space, text};
use slotpress_format::{ArchiveName, name_parts};
use slotpress_read::archive::Archive;
use slotpress_read::{Findings, RATIO_TYPICAL, decode_in_order, judge_root};

use super::{RestoreLayout, RestorePlan, is_standard_input};

/// Size of the sample in compressed bytes.
const SAMPLE_BYTES: u64 = 64 * 1024 * 1024;

/// What a restore would read and write.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct RestorePreview {
    /// Archives that would be read, the full one first.
    pub archives: Vec<ArchiveToRestore>,
    /// Bytes that would be written, and free bytes, per file system.
    pub space: Vec<Space>,
    /// Paths of an existing state and of archives that would be moved aside or deleted.
    #[serde(serialize_with = "text::paths")]
    pub existing: Vec<PathBuf>,
}

/// An archive of a restore.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ArchiveToRestore {
    /// Path of the archive.
    #[serde(serialize_with = "text::path")]
    pub path: PathBuf,
    /// Slot and hash, if the file has an archive's name. Otherwise they are known only when it is
    /// read.
    #[serde(flatten, serialize_with = "name_parts")]
    pub name: Option<ArchiveName>,
    /// Length of the archive, in bytes.
    pub length_bytes: u64,
    /// Length of its tar stream, in bytes.
    pub unpacked_bytes: u64,
    /// True if `unpacked_bytes` is known from the index; false if it is estimated from a sample.
    pub is_exact: bool,
}

impl RestorePlan {
    /// Returns what executing the plan would read and write. Samples archives without an index.
    ///
    /// # Errors
    /// An archive comes from standard input, which a sample would consume; it has another root than
    /// the expected one; or it cannot be read. A lack of space is no error: see
    /// [`RestorePreview::space`].
    pub fn preview(&self, progress: &dyn Progress) -> Result<RestorePreview> {
        let (options, target) = (&self.options, &self.target);
        if options.paths().any(|path| is_standard_input(path)) {
            return Err(Error::usage("standard input cannot be previewed without consuming it"));
        }
        for (archive, root) in self.inputs.archives().zip(&options.expect_roots) {
            judge_root(Some(*root), archive.root(), &Findings::refusing(|_| true))
                .map_err(|error| error.within_damaged(archive.path().shown()))?;
        }
        progress.stage("Sampling", None);
        let threads = options.target.threads;
        let archives: Vec<ArchiveToRestore> =
            self.inputs.archives().map(|archive| look_at(archive, threads, progress)).collect::<Result<_>>()?;
        let is_copied = |archive: &&ArchiveToRestore| {
            options.target.layout == RestoreLayout::Boot && !lies_in(&archive.path, target.snapshots_dir.path())
        };
        let copied_bytes = archives.iter().filter(is_copied).map(|archive| archive.length_bytes).sum();
        let unpacked_bytes = archives.iter().map(|archive| archive.unpacked_bytes).sum();
        let space = target.space_for(unpacked_bytes, copied_bytes)?;
        let existing = target.existing().chain(self.newer.iter().cloned()).collect();
        Ok(RestorePreview { archives, space, existing })
    }
}

#[cfg(feature = "net")]
/// Estimates the bytes to write per file system, for archives of `archives_bytes` in total, of
/// which `added_bytes` still have to be downloaded or copied. Also returns the paths that would be
/// replaced.
///
/// # Errors
/// [`restore_supplied`](super::restore_supplied) would refuse the target.
pub fn preview_fetched(
    options: &super::RestoreTarget,
    archives_bytes: u64,
    added_bytes: u64,
) -> Result<(Vec<Space>, Vec<PathBuf>)> {
    let target = super::target::Target::prepare(options)?;
    let space = target.space_for(archives_bytes.saturating_mul(super::target::MAINNET_RATIO), added_bytes)?;
    Ok((space, target.existing().collect()))
}

/// True if an archive is in the directory or in its subdirectory `remote`, so that it is
/// not copied.
pub fn lies_in(path: &Path, dir: &Path) -> bool {
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

/// Estimates the unpacked size of an archive without an index, from the ratio at its beginning.
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
        // The sample ends within a frame. If it is the first frame, nothing was decoded.
        _ if content_bytes == 0 => Ok(length_bytes.saturating_mul(RATIO_TYPICAL)),
        _ => Ok((length_bytes as f64 * (content_bytes as f64 / sample_bytes.max(1) as f64)) as u64),
    }
}
