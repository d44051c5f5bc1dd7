//! Decides which files that are named like archives are usable, for every command that lists,
//! serves, finds, chooses or prunes.

use std::io;

use slotpress_base::{ErrorKind, IoHint, Result, split_at_most};
use slotpress_format::{ArchiveCompression, BLOCK_LEN, FrameHashesLocation};

use super::{FileFault, FrameHashes, ListedArchive};
use crate::archive::compression::detect_compression;
use crate::archive::truncation::is_plainly_truncated;
use crate::rules::pair::rebased_on;
use crate::{LocalFile, Source, Tail, tail_read_offset};

/// Decides from the first and last bytes of a file whether it is a usable archive, and returns the position
/// and root of its frame hashes if it has them. Whole archives always pass. Only `verify` finds changed bytes,
/// truncation between two frames or at a block boundary of a plain tar, and truncated bzip2 and gzip archives.
///
/// # Errors
/// The fault that makes the file unusable.
pub fn judge_source(source: &dyn Source) -> Result<Option<FrameHashes>, FileFault> {
    let mut start = [0; BLOCK_LEN];
    let read = source.read_up_to(&mut start, 0).map_err(|_| FileFault::Unreadable)?;
    if read == 0 {
        return Err(FileFault::Empty);
    }
    let compression = detect_compression(split_at_most(&start, read).0).map_err(|_| FileFault::NotAnArchive)?;
    let length_bytes = source.length_bytes().unwrap_or_default();
    let end = tail_read_offset(length_bytes)..length_bytes;
    let _page_dropper = source.file().map(|file| IoHint::Gentle.prefetch_range(file, &end, length_bytes));
    let tail = match Tail::read(source) {
        Ok(tail) => tail,
        Err(error) if error.kind() == ErrorKind::Damaged => None,
        Err(_) => return Err(FileFault::Unreadable),
    };
    if let Some(tail) = tail
        && let Some(hashes) = tail.hashes
    {
        let location = FrameHashesLocation { offset_bytes: hashes.offset_bytes, frames: hashes.frames.len() as u64 };
        let rebased_on = rebased_on(&tail.index.settings).and_then(|hash| hash.parse().ok());
        return Ok(Some(FrameHashes { root: hashes.root, location, rebased_on }));
    }
    let is_truncated = match compression {
        ArchiveCompression::Zstd => is_plainly_truncated(source).map_err(|_| FileFault::Unreadable)?,
        ArchiveCompression::Lz4 => !has_end_mark(source, length_bytes).map_err(|_| FileFault::Unreadable)?,
        ArchiveCompression::None => !length_bytes.is_multiple_of(BLOCK_LEN as u64),
        ArchiveCompression::Bzip2 | ArchiveCompression::Gzip => false,
    };
    if is_truncated { Err(FileFault::Truncated) } else { Ok(None) }
}

/// True if the file ends with the end mark of an lz4 frame, which is four zero bytes, with or without a
/// checksum of four bytes after it.
fn has_end_mark(source: &dyn Source, length_bytes: u64) -> io::Result<bool> {
    let mut last = [0; 8];
    let read = source.read_up_to(&mut last, length_bytes.saturating_sub(8))?;
    Ok(read == last.len() && (last.starts_with(&[0; 4]) || last.ends_with(&[0; 4])))
}

pub fn judge_file(archive: &ListedArchive) -> Result<Option<FrameHashes>, FileFault> {
    let (file, _) = archive.open().map_err(|_| FileFault::Unreadable)?;
    judge_source(&LocalFile::new(archive.path(), file).map_err(|_| FileFault::Unreadable)?)
}
