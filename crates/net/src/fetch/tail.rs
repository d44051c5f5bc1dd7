//! Fetches the end of an archive before everything else. The index there contains the position and the hash
//! of each frame. These hashes also decide which bytes of an earlier run are kept.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use std::{fmt, io};

use parking_lot::Mutex;
use rangemap::RangeSet;
use slotpress_base::{Error, ErrorKind, Forward, Progress, Result, prefix_mut, quantity, range_bytes, to_usize};
use slotpress_format::FrameHash;
use slotpress_read::{Source, Tail};

use super::Download;
use super::download::identity_of;
use super::journal::sum_bytes;
use super::mirrors::Mirror;
use super::partial::PartialFile;
use crate::{NetError, NetErrorKind};

/// Longest frame that is read into memory to compare its hash. A frame with 32 MiB of tar is shorter, even if
/// zstd cannot compress it. If an archive has a longer frame, all its frames are compared with their hashes
/// only after the download.
const FRAME_BYTES_MAX: u64 = 40 * 1024 * 1024;

/// Limit on the end of an archive (frame hashes, index, seek table) that is fetched before the rest.
/// If the end is longer, frames are also compared only after the download.
const TAIL_BYTES_MAX: u64 = 512 << 20;

impl Download {
    /// Fetches the end of the archive from a server. Other servers are compared with this server later.
    /// Returns the parsed end, and the fetched ranges, which are not marked yet.
    pub(super) fn fetch_tail(
        &self,
        mirror: &Mirror,
        length_bytes: u64,
        progress: &dyn Progress,
    ) -> Result<(Option<Tail>, RangeSet<u64>)> {
        let arriving = ArrivingTail { download: self, mirror, progress, length_bytes, fetched: Mutex::default() };
        let tail = match Tail::read(&arriving) {
            // The archive is then fetched without its index, and its readers report the damage.
            Err(error) if error.kind() == ErrorKind::Damaged => None,
            tail => tail?,
        };
        Ok((tail, arriving.fetched.into_inner()))
    }

    /// Keeps the bytes of an earlier run that are known to belong to the server's archive. With frame hashes,
    /// these are the frames that match, or all bytes if the earlier run compared them with hashes of the same
    /// root (`has_same_root`). Without hashes, these are all bytes if the archive is the same, and otherwise
    /// none.
    pub(super) fn keep_matching_bytes(
        &self,
        mirror: &Mirror,
        frames: Option<&Frames>,
        has_same_root: bool,
        progress: &dyn Progress,
    ) -> Result<()> {
        let mut matching_ranges = self.file.unchecked_ranges();
        match frames {
            Some(frames) if !has_same_root => {
                if !self.is_same_archive {
                    matching_ranges.remove(frames.end()..u64::MAX);
                }
                let earlier_bytes = sum_bytes(&matching_ranges);
                matching_ranges = frames.select_matching(&self.file, &matching_ranges, progress)?;
                let lost_bytes = earlier_bytes.saturating_sub(sum_bytes(&matching_ranges));
                if lost_bytes > 0 {
                    let [lost, earlier] = [lost_bytes, earlier_bytes].map(quantity::bytes);
                    progress.warn(&format!(
                        "{lost} of the {earlier} from an earlier run do not match, and are fetched again"
                    ));
                }
            }
            None if !self.is_same_archive => matching_ranges.clear(),
            _ => {}
        }
        let kept_bytes = sum_bytes(&matching_ranges);
        let reported_bytes = self.kept_bytes.swap(kept_bytes, Relaxed);
        progress.advance(kept_bytes.saturating_sub(reported_bytes), 0);
        self.file.keep_checked(identity_of(&mirror.remote), matching_ranges);
        Ok(())
    }
}

struct ArrivingTail<'a> {
    download: &'a Download,
    mirror: &'a Mirror,
    progress: &'a dyn Progress,
    length_bytes: u64,
    fetched: Mutex<RangeSet<u64>>,
}

impl ArrivingTail<'_> {
    fn read(&self, buf: &mut [u8], offset_bytes: u64) -> Result<usize> {
        let file = &self.download.file;
        let remaining_bytes = self.length_bytes.saturating_sub(offset_bytes);
        let buf = prefix_mut(buf, to_usize(remaining_bytes));
        let mut written = file.done_ranges();
        if self.download.is_same_archive {
            written.extend(file.unchecked_ranges());
        }
        written.extend(self.fetched.lock().iter().cloned());
        let end = offset_bytes.saturating_add(buf.len() as u64);
        if !buf.is_empty() && written.gaps(&(offset_bytes..end)).next().is_some() {
            if remaining_bytes > TAIL_BYTES_MAX {
                return Err(Error::damaged("the end of the archive is longer than allowed"));
            }
            // The reader needs all later bytes too.
            for gap in written.gaps(&(offset_bytes..self.length_bytes)) {
                self.fetch(gap)?;
            }
        }
        file.read_written(buf, offset_bytes)?;
        Ok(buf.len())
    }

    fn fetch(&self, gap: Range<u64>) -> Result<()> {
        let download = self.download;
        let start = Instant::now();
        let timeout = tail_timeout(range_bytes(&gap));
        let is_late = || download.mirrors.len() > 1 && start.elapsed() >= timeout;
        let until = Forward::until(self.progress, is_late);
        let mut write = |offset_bytes: u64, bytes: &[u8]| download.file.write(offset_bytes, bytes);
        match self.mirror.fetch_range(&download.client, gap.clone(), &until, &mut write) {
            Err(error) if error.kind() == ErrorKind::Interrupted && !self.progress.is_interrupted() => {
                let why = format!("the end of the archive did not arrive within {} s", timeout.as_secs());
                return Err(NetError::new(NetErrorKind::Timeout, &self.mirror.remote.url, why).into());
            }
            fetched => fetched?,
        }
        self.fetched.lock().insert(gap);
        Ok(())
    }
}

impl fmt::Debug for ArrivingTail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArrivingTail").field("file", &self.download.file).finish_non_exhaustive()
    }
}

impl Source for ArrivingTail<'_> {
    fn path(&self) -> &Path {
        self.download.file.path()
    }

    fn length_bytes(&self) -> Option<u64> {
        Some(self.length_bytes)
    }

    fn read_at(&self, buf: &mut [u8], offset_bytes: u64) -> io::Result<usize> {
        self.read(buf, offset_bytes).map_err(io::Error::other)
    }
}

/// Returns the time that a server may take to send the end of an archive, if there are other servers. All
/// other transfers wait for the end. A server that sends 64 KiB/s is fast enough.
fn tail_timeout(bytes: u64) -> Duration {
    Duration::from_secs(5).saturating_add(Duration::from_secs(bytes / (64 * 1024)))
}

/// Marks the ranges that [`Download::fetch_tail`] fetched. A frame with a hash is marked only if it is complete
/// and matches. The other frames are fetched again.
pub fn mark_tail(
    file: &PartialFile,
    frames: Option<&Frames>,
    fetched: &RangeSet<u64>,
    progress: &dyn Progress,
) -> Result<()> {
    let matching_ranges = match frames {
        Some(frames) => frames.select_matching(file, fetched, progress)?,
        None => fetched.clone(),
    };
    for range in matching_ranges {
        progress.advance(range_bytes(&range), range_bytes(&range));
        file.mark(range);
    }
    Ok(())
}

#[derive(Debug)]
pub struct Frames {
    /// End of each frame, where the next frame begins. Bytes before a frame, such as a `pzstd` header or
    /// padding, belong to that frame.
    pub ends: Vec<u64>,
    pub hashes: Vec<FrameHash>,
}

impl Frames {
    /// Returns the frames of an archive; `None` if it does not have a hash for each frame, or if a frame is too
    /// long to be checked.
    pub fn new(tail: Option<&Tail>) -> Option<Self> {
        let tail = tail?;
        let hashes = tail.hashes.as_ref()?;
        let ends: Vec<u64> = tail.frames.iter().map(|frame| frame.end_bytes()).collect();
        let mut start = 0;
        for end in ends.iter().copied() {
            if range_bytes(&(start..end)) > FRAME_BYTES_MAX {
                return None;
            }
            start = end;
        }
        (ends.len() == hashes.frames.len()).then(|| Self { ends, hashes: hashes.frames.clone() })
    }

    pub fn end(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Returns the range and hash of the frame that contains a byte; `None` after the last frame.
    pub fn frame_at(&self, offset_bytes: u64) -> Option<(Range<u64>, &FrameHash)> {
        let index = self.ends.partition_point(|end| *end <= offset_bytes);
        let start = match index.checked_sub(1) {
            Some(previous) => *self.ends.get(previous)?,
            None => 0,
        };
        Some((start..*self.ends.get(index)?, self.hashes.get(index)?))
    }

    /// Returns the parts of written ranges that are known to be correct: complete frames that match their
    /// hashes, and the bytes after the last frame, which contain the index that was read.
    fn select_matching(
        &self,
        file: &PartialFile,
        ranges: &RangeSet<u64>,
        progress: &dyn Progress,
    ) -> Result<RangeSet<u64>> {
        let mut matching_ranges = RangeSet::new();
        let mut buffer = Vec::new();
        for range in ranges.iter() {
            let mut offset_bytes = self.start_of(range.start);
            while offset_bytes < range.end
                && let Some((frame, hash)) = self.frame_at(offset_bytes)
            {
                offset_bytes = frame.end;
                progress.check()?;
                if frame.start < range.start || frame.end > range.end {
                    continue;
                }
                buffer.resize(to_usize(range_bytes(&frame)), 0);
                file.read_written(&mut buffer, frame.start)?;
                if blake3::hash(&buffer).as_bytes() == hash {
                    matching_ranges.insert(frame);
                }
            }
            if range.end > self.end() {
                matching_ranges.insert(range.start.max(self.end())..range.end);
            }
        }
        Ok(matching_ranges)
    }

    /// Returns the start of the frame that contains an offset; the offset itself if it is after the
    /// last frame.
    pub fn start_of(&self, offset_bytes: u64) -> u64 {
        self.frame_at(offset_bytes).map_or(offset_bytes, |(frame, _)| frame.start)
    }

    /// Returns the end of the frame that contains the byte before `end`; `end` itself if it is after
    /// the last frame.
    pub fn end_of(&self, end: u64) -> u64 {
        let frame = end.checked_sub(1).and_then(|last_byte| self.frame_at(last_byte));
        frame.map_or(end, |(frame, _)| frame.end)
    }
}
