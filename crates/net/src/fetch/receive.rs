//! Receives the bytes of one piece from one server: collects a frame in memory, compares it with its
//! hash, and only then writes it. So no wrong byte is ever in the file, and late bytes of a slow
//! connection change nothing.

use std::ops::Range;

use slotpress_base::bytes::saturating_add_to;
use slotpress_base::{Error, Result, panic_point, split_at_most, to_usize};
use slotpress_format::FrameHash;

use super::pieces::PieceRequest;
use super::ranged::Fetching;

/// Number of bytes that are written at a time where the archive has no frame hashes.
const UNFRAMED_BYTES: u64 = 256 * 1024;

/// Takes the bytes of a piece, in order.
pub struct Receiver<'a> {
    to: &'a Fetching<'a>,
    request: &'a PieceRequest,
    at: u64,
    buffer: Vec<u8>,
}

impl<'a> Receiver<'a> {
    pub fn new(to: &'a Fetching<'a>, request: &'a PieceRequest) -> Self {
        Self { to, request, at: request.range.start, buffer: Vec::new() }
    }

    /// Returns the part of the piece that has not arrived.
    pub fn missing(&self) -> Range<u64> {
        self.at.saturating_add(self.buffer.len() as u64)..self.request.range.end
    }

    /// Takes the next bytes. Returns their number.
    ///
    /// # Errors
    /// The file cannot be written, or a frame is wrong.
    pub fn take(&mut self, bytes: &[u8]) -> Result<u64> {
        panic_point("range");
        let mut rest = bytes;
        while !rest.is_empty() {
            let (frame, _) = self.frame();
            let wanted_bytes = frame.end.saturating_sub(self.missing().start);
            let (now, later) = split_at_most(rest, to_usize(wanted_bytes).max(1));
            self.buffer.extend_from_slice(now);
            rest = later;
            if self.missing().start >= frame.end {
                self.write()?;
            }
        }
        Ok(bytes.len() as u64)
    }

    /// Returns the frame that is being collected, and its hash. After the last frame, or without
    /// frames, returns a range of fixed length: bytes after the last frame need no hash, since
    /// servers were compared by them.
    fn frame(&self) -> (Range<u64>, Option<FrameHash>) {
        let frames = self.to.frames.as_ref();
        if let Some((frame, hash)) = frames.and_then(|frames| frames.frame_at(self.at)) {
            return (frame, Some(*hash));
        }
        let end = self.at.saturating_add(UNFRAMED_BYTES);
        (self.at..end.min(self.request.range.end), None)
    }

    fn write(&mut self) -> Result<()> {
        let (frame, hash) = self.frame();
        if hash.is_some_and(|hash| *blake3::hash(&self.buffer).as_bytes() != hash) {
            return Err(Error::damaged(format!("the frame at offset {} does not match its hash", frame.start)));
        }
        let new = self.to.download.file.write_marked(self.at, &self.buffer)?;
        self.to.progress.advance(new, new);
        saturating_add_to(&mut self.at, self.buffer.len() as u64);
        self.buffer.clear();
        self.to.pieces.lock().record_arrival(self.request.piece, self.at);
        Ok(())
    }

    /// Ends the piece, complete or not: writes what needs no hash.
    pub fn finish(&mut self) -> Result<()> {
        if self.buffer.is_empty() || self.frame().1.is_some() { Ok(()) } else { self.write() }
    }
}
