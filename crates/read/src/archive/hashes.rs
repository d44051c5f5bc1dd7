//! Compares the frames of an archive with the frame hashes in its tail.
//!
//! When an archive is read by its index, `by_index` compares the hashes itself.

use std::ops::Range;

use slotpress_base::bytes::count;
use slotpress_base::{Error, IoContext, Progress, Result, at_most_mut, to_usize};
use slotpress_format::{FrameHash, Root};

use super::source::Source;
use super::tail::Tail;

/// Bytes read at once: they stay in a core's cache.
const PIECE_BYTES: usize = 256 * 1024;

/// Compares all frames with their hashes except those for whose range `is_compared` is true, and
/// returns the root; `Ok(None)` if the archive has no frame hashes.
///
/// # Errors
/// Kind [`Damaged`](slotpress_base::ErrorKind::Damaged) if a frame does not match its hash.
pub fn check_hashes(
    source: &dyn Source,
    tail: &Tail,
    is_compared: &dyn Fn(&Range<u64>) -> bool,
    progress: &dyn Progress,
) -> Result<Option<Root>> {
    let Some(hashes) = &tail.hashes else { return Ok(None) };
    let mut piece = Vec::new();
    for (frame, hash) in tail.frames.iter().zip(&hashes.frames) {
        let range = frame.range();
        if is_compared(&range) {
            continue;
        }
        progress.check()?;
        if hash_range(source, range.clone(), &mut piece)? != *hash {
            let why = format!("the frame at offset {} does not match its hash", range.start);
            return Err(Error::damaged(why).with_hint("fetch it from another source").at_offset(range.start));
        }
        progress.advance(range.end.saturating_sub(range.start), 0);
    }
    Ok(Some(hashes.root))
}

/// Hashes a range of a source. `piece` is a buffer to reuse.
fn hash_range(source: &dyn Source, range: Range<u64>, piece: &mut Vec<u8>) -> Result<FrameHash> {
    let mut hasher = blake3::Hasher::new();
    piece.resize(PIECE_BYTES, 0);
    let mut at = range.start;
    while at < range.end {
        let piece = at_most_mut(piece, to_usize(range.end.saturating_sub(at)));
        source.read_exact_at(piece, at).or_path("read", source.path())?;
        hasher.update(piece);
        count(&mut at, piece.len() as u64);
    }
    Ok(hasher.finalize().into())
}
