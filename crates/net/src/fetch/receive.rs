//! Receives the bytes of one request: writes them, and marks them once they are known to be right.

use std::ops::Range;

use parking_lot::Mutex;
use slotpress_base::bytes::count;
use slotpress_base::{Error, Progress, Result, panic_point, range_bytes};

use super::lease::Lease;
use super::partial::PartialFile;
use super::pieces::{Job, Pieces};
use super::tail::Frames;

/// Number of bytes that are marked at a time if the archive has no frame hashes.
const MARK_BYTES: u64 = 256 * 1024;

/// What all requests of a download share.
pub struct Receiving<'a> {
    pub file: &'a PartialFile,
    /// Frames with hashes, if the archive has them.
    pub frames: Option<Frames>,
    pub pieces: Mutex<Pieces>,
    pub progress: &'a dyn Progress,
}

/// Takes the bytes of one request. If a transfer ends within a frame, its bytes stay, and the next
/// request for the piece continues after them.
pub struct Receiver<'a> {
    to: &'a Receiving<'a>,
    job: &'a Job,
    lease: &'a Lease<'a>,
    /// Offset of the next byte.
    at: u64,
    /// Offset up to which bytes are marked.
    marked: u64,
    buffer: Vec<u8>,
    /// A complete frame that does not match its hash.
    pub wrong_frame: Option<Range<u64>>,
}

impl<'a> Receiver<'a> {
    pub fn new(to: &'a Receiving<'a>, job: &'a Job, lease: &'a Lease<'a>) -> Self {
        let (at, buffer) = (job.range.start, Vec::new());
        let marked = to.frames.as_ref().map_or(at, |frames| frames.start_of(at));
        Self { to, job, lease, at, marked, buffer, wrong_frame: None }
    }

    /// Takes the next bytes. Returns how many of them are new.
    ///
    /// # Errors
    /// The file cannot be written or read; or the request is to end, because a frame is wrong or the
    /// lease was taken over.
    pub fn take(&mut self, bytes: &[u8]) -> Result<u64> {
        panic_point("range");
        let Some(new) = self.lease.put(self.at, bytes)? else { return Err(Error::interrupted()) };
        count(&mut self.at, bytes.len() as u64);
        if !self.mark_right(MARK_BYTES)? {
            return Err(Error::interrupted());
        }
        self.arrived();
        Ok(new)
    }

    /// Marks complete frames that match their hashes. Where there are no frames, marks all bytes if
    /// at least `least_bytes` have come. Returns false if a frame is wrong, or the lease was taken
    /// over.
    fn mark_right(&mut self, least_bytes: u64) -> Result<bool> {
        let (file, frames) = (self.to.file, self.to.frames.as_ref());
        while let Some((frames, (frame, hash))) = frames
            .and_then(|frames| Some((frames, frames.frame_at(self.marked)?)))
            .filter(|(_, (frame, _))| frame.end <= self.at)
        {
            let is_new = !file.is_marked(&frame);
            let buffer = &mut self.buffer;
            let is_right = || Ok(!is_new || frames.is_right(file, &frame, hash, buffer)?);
            match self.lease.mark(frame.clone(), is_right)? {
                None => return Ok(false),
                Some(false) => {
                    self.wrong_frame = Some(frame);
                    return Ok(false);
                }
                Some(true) => self.marked_to(frame.end, is_new),
            }
        }
        // Bytes after the last frame need no hash: servers were compared by them.
        let is_framed = frames.is_some_and(|frames| frames.frame_at(self.marked).is_some());
        if !is_framed && self.at.saturating_sub(self.marked) >= least_bytes.max(1) {
            if self.lease.mark(self.marked..self.at, || Ok(true))?.is_none() {
                return Ok(false);
            }
            self.marked_to(self.at, true);
        }
        Ok(true)
    }

    fn marked_to(&mut self, end: u64, is_new: bool) {
        if is_new {
            let bytes = range_bytes(&(self.marked..end));
            self.to.progress.advance(bytes, bytes);
        }
        self.marked = end;
    }

    /// Reports how far the piece has arrived. Within a frame all bytes count, elsewhere only marked
    /// ones.
    fn arrived(&self) {
        let is_framed = self.to.frames.as_ref().is_some_and(|frames| frames.frame_at(self.marked).is_some());
        self.to.pieces.lock().arrived(self.job.piece, if is_framed { self.at } else { self.marked });
    }

    /// Ends the request, successful or not: marks what can be marked.
    pub fn finish(&mut self) -> Result<()> {
        if self.wrong_frame.is_none() && self.mark_right(0)? {
            self.arrived();
        }
        Ok(())
    }
}
