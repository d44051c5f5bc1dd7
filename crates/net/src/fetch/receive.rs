//! The bytes of one request for a piece: put at their place, and marked when they are right as far as can be told.

use std::ops::{ControlFlow, Range};

use parking_lot::Mutex;
use slotpress_base::bytes::count;
use slotpress_base::{Error, Progress, Result, panic_point, range_bytes};

use super::lease::Lease;
use super::mirrors::{Mirror, TransferTally};
use super::partial::PartialFile;
use super::pieces::{Job, Pieces};
use super::tail::Frames;

/// Bytes that are marked at a time where there are no frames to go by.
const MARK_BYTES: u64 = 256 * 1024;

/// Where the bytes of all requests go, and what they are.
pub struct Receiving<'a> {
    pub file: &'a PartialFile,
    pub frames: Option<Frames>,
    pub pieces: Mutex<Pieces>,
    pub progress: &'a dyn Progress,
}

pub enum ReceiveError {
    /// The file cannot be written or read.
    Disk(Error),
    /// This frame, which came whole, does not match its hash.
    WrongFrame(Range<u64>),
}

/// Takes the bytes of one piece. What has come of a frame when a transfer ends stays: the next one goes on behind it.
pub struct Receiver<'a> {
    to: &'a Receiving<'a>,
    job: &'a Job,
    tally: TransferTally<'a>,
    lease: &'a Lease<'a>,
    at: u64,
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

    pub fn take(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<ControlFlow<()>, ReceiveError> {
        panic_point("range");
        // The whole file instead of a range: it is told by the transfer.
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

    /// Marks frames that are whole and right; where there are none, what has come, if it is so much. Whether the lease is
    /// still held.
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
        // Where no frames are, or behind the last, where servers were compared.
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

    /// Whether more of the piece is wanted. Of a frame all bytes count, of others only those that are marked.
    fn arrived(&self) -> bool {
        let is_framed = self.to.frames.as_ref().is_some_and(|frames| frames.frame_at(self.marked).is_some());
        self.to.pieces.lock().arrived(self.job.piece, if is_framed { self.at } else { self.marked })
    }

    /// The transfer has ended, however: what came stays.
    pub fn finish(&mut self) -> Result<()> {
        self.tally.end();
        match self.mark_right(0) {
            Ok(true) => drop(self.arrived()),
            // Told before.
            Ok(false) | Err(ReceiveError::WrongFrame(_)) => {}
            Err(ReceiveError::Disk(error)) => return Err(error),
        }
        Ok(())
    }
}
