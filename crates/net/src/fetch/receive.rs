//! Receives the bytes of one request: writes them, and marks them once they are known to be right.

use std::ops::{ControlFlow, Range};

use parking_lot::Mutex;
use slotpress_base::bytes::count;
use slotpress_base::{Error, Progress, Result, panic_point, range_bytes};

use super::lease::Lease;
use super::mirrors::{Mirror, TransferTally};
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

/// Why a transfer was ended.
pub enum ReceiveError {
    /// The file cannot be written or read.
    Disk(Error),
    /// This frame is complete, and does not match its hash.
    WrongFrame(Range<u64>),
}

/// Takes the bytes of one request. If a transfer ends within a frame, its bytes stay, and the next
/// request for the piece continues after them.
pub struct Receiver<'a> {
    to: &'a Receiving<'a>,
    job: &'a Job,
    tally: TransferTally<'a>,
    lease: &'a Lease<'a>,
    /// Offset of the next byte.
    at: u64,
    /// Offset up to which bytes are marked.
    marked: u64,
    buffer: Vec<u8>,
}

impl<'a> Receiver<'a> {
    pub fn new(to: &'a Receiving<'a>, job: &'a Job, mirror: &'a Mirror, lease: &'a Lease<'a>) -> Self {
        let (at, buffer) = (job.range.start, Vec::new());
        let marked = to.frames.as_ref().map_or(at, |frames| frames.start_of(at));
        Self { to, job, tally: mirror.tally(), lease, at, marked, buffer }
    }

    pub fn kept_bytes(&self) -> u64 {
        self.tally.kept_bytes
    }

    /// Takes the next bytes. Returns `Break` if the transfer should end: the piece is complete, the
    /// lease was taken over, or the server sends something else.
    pub fn take(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<ControlFlow<()>, ReceiveError> {
        panic_point("range");
        // The server sends the whole file instead of the range. The transfer's result reports it.
        if offset_bytes != self.at {
            return Ok(ControlFlow::Break(()));
        }
        let Some(kept) = self.lease.put(offset_bytes, bytes).map_err(ReceiveError::Disk)? else {
            return Ok(ControlFlow::Break(()));
        };
        self.tally.gave(kept);
        count(&mut self.at, bytes.len() as u64);
        match self.mark_right(MARK_BYTES)? && self.arrived() {
            true => Ok(ControlFlow::Continue(())),
            false => Ok(ControlFlow::Break(())),
        }
    }

    /// Marks complete frames that match their hashes. Where there are no frames, marks all bytes if
    /// at least `least_bytes` have come. Returns false if the lease was taken over.
    fn mark_right(&mut self, least_bytes: u64) -> Result<bool, ReceiveError> {
        let (file, frames) = (self.to.file, self.to.frames.as_ref());
        while let Some((frames, (frame, hash))) = frames
            .and_then(|frames| Some((frames, frames.frame_at(self.marked)?)))
            .filter(|(_, (frame, _))| frame.end <= self.at)
        {
            let is_new = !file.is_marked(&frame);
            let buffer = &mut self.buffer;
            let is_right = || Ok(!is_new || frames.is_right(file, &frame, hash, buffer)?);
            match self.lease.mark(frame.clone(), is_right).map_err(ReceiveError::Disk)? {
                None => return Ok(false),
                Some(false) => return Err(ReceiveError::WrongFrame(frame)),
                Some(true) => self.marked_to(frame.end, is_new),
            }
        }
        // Bytes after the last frame need no hash: servers were compared by them.
        let is_framed = frames.is_some_and(|frames| frames.frame_at(self.marked).is_some());
        if !is_framed && self.at.saturating_sub(self.marked) >= least_bytes.max(1) {
            if self.lease.mark(self.marked..self.at, || Ok(true)).map_err(ReceiveError::Disk)?.is_none() {
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

    /// Reports how far the piece has arrived. Returns true if more of it is missing. Within a frame
    /// all bytes count, elsewhere only marked ones.
    fn arrived(&self) -> bool {
        let is_framed = self.to.frames.as_ref().is_some_and(|frames| frames.frame_at(self.marked).is_some());
        self.to.pieces.lock().arrived(self.job.piece, if is_framed { self.at } else { self.marked })
    }

    /// Ends the transfer, successful or not: marks what can be marked.
    pub fn finish(&mut self) -> Result<()> {
        self.tally.end();
        match self.mark_right(0) {
            Ok(true) => drop(self.arrived()),
            // `take` has reported this already.
            Ok(false) | Err(ReceiveError::WrongFrame(_)) => {}
            Err(ReceiveError::Disk(error)) => return Err(error),
        }
        Ok(())
    }
}
