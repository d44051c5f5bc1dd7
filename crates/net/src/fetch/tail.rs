//! Fetches the end of an archive, before all else: its index gives the position and the hash of
//! each frame. Also decides, by these hashes, which bytes of an earlier run are kept.

use std::io;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rangemap::RangeSet;
use slotpress_base::{ErrorKind, Forward, Progress, Result, quantity, range_bytes, to_usize};
use slotpress_format::FrameHash;
use slotpress_read::{Source, Tail, first_read_at};

use super::Download;
use super::journal::bytes_in;
use super::mirrors::Mirror;
use super::partial::PartialFile;
use crate::{NetError, NetErrorKind};

/// Longest frame that is read into memory to compare its hash. A frame of 32 MiB of tar is shorter
/// even if zstd cannot compress it. Archives with longer frames are fetched without comparing
/// hashes.
const FRAME_BYTES_MAX: u64 = 40 * 1024 * 1024;

impl Download {
    /// Fetches the end of the archive from the given server. Returns the parsed end, and the ranges
    /// that were fetched for it, which are not marked yet. Other servers are compared with this one
    /// later.
    pub(super) fn fetch_tail(
        &self,
        mirror: &Mirror,
        length_bytes: u64,
        progress: &dyn Progress,
    ) -> Result<(Option<Tail>, RangeSet<u64>)> {
        let Self { file, mirrors, limits, .. } = self;
        let mut fetched = RangeSet::new();
        let mut start = first_read_at(length_bytes);
        // An index longer than the first read takes a second request.
        for _ in 0..2 {
            if length_bytes.saturating_sub(start) > limits.tail_bytes_max {
                break;
            }
            let mut there = file.done();
            // Keeps what an earlier run fetched, unless a check failed: the end may be wrong then.
            if let (left, None) = file.unchecked() {
                there.extend(left);
            }
            there.extend(fetched.iter().cloned());
            for range in there.gaps(&(start..length_bytes)) {
                let time_max = (mirrors.len() > 1).then(|| time_max(range_bytes(&range)));
                self.fetch_range(mirror, range.clone(), time_max, progress)?;
                fetched.insert(range);
            }
            there.extend(fetched.iter().cloned());
            let arrived = Arrived { file, there, wanted: Mutex::new(None) };
            match Tail::read(&arrived) {
                Ok(tail) => return Ok((tail, fetched)),
                // Fetches the archive without its index; whoever reads it reports the damage.
                Err(error) if error.kind() == ErrorKind::Damaged => break,
                Err(error) => match arrived.wanted.into_inner() {
                    Some(wanted) if wanted < start => start = wanted,
                    _ => return Err(error),
                },
            }
        }
        Ok((None, fetched))
    }

    /// Fetches a range from one server, with as many requests as it takes. Does not mark it.
    fn fetch_range(
        &self,
        mirror: &Mirror,
        mut range: Range<u64>,
        time_max: Option<Duration>,
        progress: &dyn Progress,
    ) -> Result<()> {
        let start = Instant::now();
        let is_late = || time_max.is_some_and(|time_max| start.elapsed() >= time_max);
        let until = Forward::until(progress, is_late);
        let lease = self.file.lease(range.clone(), &mirror.shown());
        while !range.is_empty() {
            let mut written = Ok(());
            let transfer = mirror.ask(&until, || {
                let mut tally = mirror.tally();
                let transfer =
                    self.client.get(&mirror.remote, Some(range.clone()), &until, &mut |offset_bytes, bytes| {
                        if offset_bytes != range.start {
                            return ControlFlow::Break(());
                        }
                        written = lease.put(offset_bytes, bytes).map(|kept| tally.gave(kept.unwrap_or_default()));
                        range.start = offset_bytes.saturating_add(bytes.len() as u64);
                        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                    });
                tally.end();
                transfer
            });
            written?;
            match transfer {
                Ok(transfer) if transfer.is_whole => return Err(mirror.no_ranges().into()),
                Err(error) if error.kind() == ErrorKind::Interrupted && !progress.is_interrupted() => {
                    let seconds = time_max.unwrap_or_default().as_secs();
                    let why = format!("the end of the archive did not come within {seconds} s");
                    return Err(NetError::new(NetErrorKind::Timeout, &mirror.remote.url, why).into());
                }
                transfer => {
                    let _ = transfer?;
                }
            }
        }
        Ok(())
    }
}

/// Time after which a server is too slow for the end of an archive, if there are other servers:
/// nothing else is fetched before the end has come. A server that sends 64 KiB/s is fast enough.
fn time_max(bytes: u64) -> Duration {
    Duration::from_secs(5).saturating_add(Duration::from_secs(bytes / (64 * 1024)))
}

/// Marks the ranges that [`Download::fetch_tail`] fetched. Where frames have hashes, only complete
/// frames that match are marked; the rest is fetched again.
pub fn mark_tail(
    file: &PartialFile,
    frames: Option<&Frames>,
    fetched: &RangeSet<u64>,
    progress: &dyn Progress,
) -> Result<()> {
    let mark = |range: Range<u64>| {
        progress.advance(range_bytes(&range), range_bytes(&range));
        file.mark(range);
    };
    let Some(frames) = frames else {
        fetched.iter().cloned().for_each(mark);
        return Ok(());
    };
    for range in fetched.iter() {
        let frames_end = frames.end();
        frames.right_within(file, range, progress)?.into_iter().for_each(mark);
        if range.end > frames_end {
            mark(range.start.max(frames_end)..range.end);
        }
    }
    Ok(())
}

/// Decides which bytes of an earlier run are kept.
///
/// Frames are compared with their hashes, unless that run has done so (`is_known`) and no check has
/// failed since. Without hashes, all bytes are kept, unless a check has failed: then only those
/// from the server that is asked now are kept, and none if that server sent all of them.
pub fn check_kept(
    file: &PartialFile,
    frames: Option<&Frames>,
    is_known: bool,
    mirror: &Mirror,
    progress: &dyn Progress,
) -> Result<()> {
    let (unchecked, failed_check) = file.unchecked();
    let mut right: RangeSet<u64> = RangeSet::new();
    match frames {
        _ if failed_check.is_none() && (is_known || frames.is_none()) => right = unchecked.clone(),
        Some(frames) => {
            // The part after the last frame is right: the index in it could be read.
            let end = frames.end();
            let behind = unchecked.iter().filter(|range| failed_check.is_none() && range.end > end);
            right.extend(behind.map(|range| range.start.max(end)..range.end));
            for range in unchecked.iter() {
                right.extend(frames.right_within(file, range, progress)?);
            }
        }
        None => {
            let given = file.given_by(&mirror.shown());
            let of_others = unchecked.iter().any(|range| given.gaps(range).next().is_some());
            for range in unchecked.iter().filter(|_| of_others) {
                right.extend(given.overlapping(range).map(|part| part.start.max(range.start)..part.end.min(range.end)));
            }
        }
    }
    let lost_bytes = bytes_in(&unchecked).saturating_sub(bytes_in(&right));
    if let Some(why) = &failed_check {
        let (again, all) = (quantity::bytes(lost_bytes), quantity::bytes(bytes_in(&unchecked)));
        progress
            .warn(&format!("what an earlier run fetched failed a check ({why}): {again} of {all} are fetched again"));
        progress.advance(bytes_in(&right), 0);
    }
    file.keep_checked(right);
    Ok(())
}

/// The part of a file that has arrived, marked or not. Reading elsewhere is an error.
#[derive(Debug)]
struct Arrived<'a> {
    file: &'a PartialFile,
    there: RangeSet<u64>,
    /// Offset of the last read that failed because the bytes have not arrived.
    wanted: Mutex<Option<u64>>,
}

impl Source for Arrived<'_> {
    fn path(&self) -> &Path {
        self.file.path()
    }

    fn length_bytes(&self) -> Option<u64> {
        self.file.length_bytes()
    }

    fn read_at(&self, to: &mut [u8], offset_bytes: u64) -> io::Result<usize> {
        if self.there.gaps(&(offset_bytes..offset_bytes.saturating_add(to.len() as u64))).next().is_some() {
            *self.wanted.lock() = Some(offset_bytes);
            return Err(io::Error::other("not there yet"));
        }
        self.file.read_written(to, offset_bytes).map_err(io::Error::other)?;
        Ok(to.len())
    }
}

/// Frames of an archive with their hashes.
#[derive(Debug)]
pub struct Frames {
    /// End of each frame, where the next one begins: what precedes a frame (a `pzstd` mark,
    /// padding) counts as part of it.
    pub ends: Vec<u64>,
    pub hashes: Vec<FrameHash>,
}

impl Frames {
    /// Frames of an archive; `None` if it has no hashes, or a frame is too long to be checked.
    pub fn new(tail: Option<&Tail>) -> Option<Self> {
        let tail = tail?;
        let hashes = tail.hashes.as_ref()?;
        let ends: Vec<u64> = tail.frames.iter().map(|frame| frame.end_bytes()).collect();
        let starts = std::iter::once(&0).chain(&ends);
        let is_bounded = starts.zip(&ends).all(|(start, end)| range_bytes(&(*start..*end)) <= FRAME_BYTES_MAX);
        let is_sound = ends.len() == hashes.frames.len() && is_bounded;
        is_sound.then(|| Self { ends, hashes: hashes.frames.clone() })
    }

    /// End of the last frame.
    pub fn end(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Range and hash of the frame that contains a byte; `None` after the last frame.
    pub fn frame_at(&self, at: u64) -> Option<(Range<u64>, &FrameHash)> {
        let number = self.ends.partition_point(|end| *end <= at);
        let start = number.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        Some((start..*self.ends.get(number)?, self.hashes.get(number)?))
    }

    /// True if the frame in the file matches its hash.
    pub fn is_right(
        &self,
        file: &PartialFile,
        frame: &Range<u64>,
        hash: &FrameHash,
        buffer: &mut Vec<u8>,
    ) -> Result<bool> {
        buffer.resize(to_usize(range_bytes(frame)), 0);
        file.read_written(buffer, frame.start)?;
        Ok(blake3::hash(buffer).as_bytes() == hash)
    }

    /// Frames that lie completely within a written range and match their hashes.
    fn right_within(&self, file: &PartialFile, range: &Range<u64>, progress: &dyn Progress) -> Result<Vec<Range<u64>>> {
        let (mut right, mut buffer, mut at) = (Vec::new(), Vec::new(), self.start_of(range.start));
        while let Some((frame, hash)) = self.frame_at(at).filter(|_| at < range.end) {
            at = frame.end;
            progress.check()?;
            let is_whole = frame.start >= range.start && frame.end <= range.end;
            if is_whole && self.is_right(file, &frame, hash, &mut buffer)? {
                right.push(frame);
            }
        }
        Ok(right)
    }

    /// Start of the frame that contains an offset; the offset itself after the last frame.
    pub fn start_of(&self, at: u64) -> u64 {
        self.frame_at(at).map_or(at, |(frame, _)| frame.start)
    }

    /// End of the frame that contains the byte before `end`; `end` itself after the last frame.
    pub fn end_of(&self, end: u64) -> u64 {
        end.checked_sub(1).and_then(|at| self.frame_at(at)).map_or(end, |(frame, _)| frame.end)
    }
}
