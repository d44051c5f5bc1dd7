//! Hashes the frames of an archive that is read in order as it arrives, and compares them at the
//! end with the frame hashes in its tail.
//!
//! When an archive is read by its index, `by_index` compares the hashes itself.

use std::ops::Range;

use parking_lot::Mutex;
use slotpress_base::bytes::count;
use slotpress_base::{Error, ErrorKind, IoContext, Result, at_most_mut, to_usize};
use slotpress_format::{FrameHash, FrameStart, Root};

use super::source::Source;
use super::tail::Tail;
use super::walk::SeenFrame;

/// Bytes read at once: they stay in a core's cache.
const PIECE_BYTES: usize = 256 * 1024;

pub struct PassingFrames<'a> {
    source: &'a dyn Source,
    state: Mutex<Passing>,
}

#[derive(Default)]
struct Passing {
    hashed_bytes: u64,
    /// True if the last seen frame holds tar data. It ends where the next one starts.
    is_tar: bool,
    /// Hash over the hashes of the frames in order, to compare them without keeping them.
    hashes: blake3::Hasher,
    piece: Vec<u8>,
}

impl<'a> PassingFrames<'a> {
    /// Hashes frames of `source`, from which bytes that have passed can be read again.
    pub fn new(source: &'a dyn Source) -> Self {
        Self { source, state: Mutex::default() }
    }

    /// Notes that a frame starts: all bytes before it have passed. Call in the order of the frames.
    pub fn frame(&self, frame: &SeenFrame) -> Result<()> {
        let mut state = self.state.lock();
        state.end_frame(self.source, frame.offset_bytes)?;
        state.is_tar = matches!(frame.start, FrameStart::Zstd(_));
        Ok(())
    }

    /// Compares the hashes after the source was read to its end, and returns the root; `Ok(None)`
    /// if the archive has no frame hashes.
    ///
    /// # Errors
    /// A frame does not match its hash.
    pub fn finish(self) -> Result<Option<Root>> {
        let mut state = self.state.into_inner();
        let Some(length_bytes) = self.source.length_bytes() else { return Ok(None) };
        state.end_frame(self.source, length_bytes)?;
        let tail = match Tail::read(self.source) {
            Err(error) if error.kind() == ErrorKind::Damaged => return Ok(None),
            tail => tail?,
        };
        let Some(hashes) = tail.and_then(|tail| tail.hashes) else { return Ok(None) };
        match state.hashes.finalize() == blake3::hash(hashes.frames.as_flattened()) {
            true => Ok(Some(hashes.root)),
            false => Err(Error::damaged("a frame of the archive does not match its hash")
                .with_hint("the archive's bytes are not those that were hashed: fetch it again, from another source")),
        }
    }
}

impl Passing {
    /// Ends the last seen frame at `end_bytes`. If it holds tar data, hashes it with the skippable
    /// frames in front of it.
    fn end_frame(&mut self, source: &dyn Source, end_bytes: u64) -> Result<()> {
        if !std::mem::take(&mut self.is_tar) {
            return Ok(());
        }
        let range = std::mem::replace(&mut self.hashed_bytes, end_bytes)..end_bytes;
        self.hashes.update(&hash_range(source, range, &mut self.piece)?);
        Ok(())
    }
}

/// Hashes a range of a source. `piece` is a buffer to reuse.
pub fn hash_range(source: &dyn Source, range: Range<u64>, piece: &mut Vec<u8>) -> Result<FrameHash> {
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
