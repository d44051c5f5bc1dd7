//! Receives the bytes of one piece from one server. A frame that has a hash is collected in memory, and
//! written only if it matches. Bytes that the journal marks as arrived are never written again, so
//! late bytes of a slow connection change nothing.

use std::ops::Range;

use slotpress_base::{Error, Result, panic_point, saturating_add_to, split_at_most, to_usize};
use slotpress_format::FrameHash;

use super::pieces::PieceRequest;
use super::ranged::RangedFetch;

/// Number of bytes that are written at a time if they are not part of a frame with a hash.
const UNFRAMED_BYTES: u64 = 256 * 1024;

/// Receives the bytes of a piece, in order.
pub struct PieceReceiver<'a> {
    fetch: &'a RangedFetch<'a>,
    request: &'a PieceRequest,
    buffer_offset: u64,
    buffer: Vec<u8>,
}

impl<'a> PieceReceiver<'a> {
    pub fn new(fetch: &'a RangedFetch<'a>, request: &'a PieceRequest) -> Self {
        Self { fetch, request, buffer_offset: request.range.start, buffer: Vec::new() }
    }

    /// Returns the part of the piece that has not arrived.
    pub fn missing_range(&self) -> Range<u64> {
        self.buffer_offset.saturating_add(self.buffer.len() as u64)..self.request.range.end
    }

    /// Receives the next bytes. Returns their number.
    ///
    /// # Errors
    /// The file cannot be written, or a frame does not match its hash.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<u64> {
        panic_point("range");
        let mut remaining = bytes;
        while !remaining.is_empty() {
            let (frame, _) = self.current_frame();
            let wanted_bytes = frame.end.saturating_sub(self.missing_range().start);
            // At least one byte, so that the loop ends.
            let (wanted, after) = split_at_most(remaining, to_usize(wanted_bytes).max(1));
            self.buffer.extend_from_slice(wanted);
            remaining = after;
            if self.missing_range().start >= frame.end {
                self.write_buffer()?;
            }
        }
        Ok(bytes.len() as u64)
    }

    /// Returns the frame that is being collected, and its hash. After the last frame, or without frames,
    /// returns a range of at most [`UNFRAMED_BYTES`] without a hash. The bytes after the last frame need no hash,
    /// because other servers are used only if theirs are equal to those of the first server.
    fn current_frame(&self) -> (Range<u64>, Option<FrameHash>) {
        let frames = self.fetch.frames.as_ref();
        if let Some((frame, hash)) = frames.and_then(|frames| frames.frame_at(self.buffer_offset)) {
            return (frame, Some(*hash));
        }
        let end = self.buffer_offset.saturating_add(UNFRAMED_BYTES);
        (self.buffer_offset..end.min(self.request.range.end), None)
    }

    fn write_buffer(&mut self) -> Result<()> {
        let (frame, hash) = self.current_frame();
        if hash.is_some_and(|hash| *blake3::hash(&self.buffer).as_bytes() != hash) {
            return Err(Error::damaged(format!("the frame at offset {} does not match its hash", frame.start)));
        }
        let file = &self.fetch.download.file;
        let new_bytes = file.write_marked(self.buffer_offset, &self.buffer)?;
        self.fetch.progress.advance(new_bytes, new_bytes);
        saturating_add_to(&mut self.buffer_offset, self.buffer.len() as u64);
        self.buffer.clear();
        let mut pieces = self.fetch.pieces.lock();
        pieces.record_arrival(self.request.piece, self.buffer_offset);
        Ok(())
    }

    /// Ends the piece, complete or not: writes the buffered bytes, unless they are an incomplete frame that
    /// has a hash.
    pub fn finish(&mut self) -> Result<()> {
        let (_, hash) = self.current_frame();
        if self.buffer.is_empty() || hash.is_some() { Ok(()) } else { self.write_buffer() }
    }
}
