//! Downloads by ranges, over several connections, from one or more servers. Compares frames with
//! the archive's hashes, if it has any.
//!
//! The end is fetched first, because its index says where frames begin. The rest is cut into pieces
//! of whole frames, which all connections fetch in the order of the file.

use std::ops::Range;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use slotpress_base::{
    Error, ErrorKind, Progress, Result, Until, catch_panic, panic_error, panic_point, progress, saturating_add_to,
    spawn,
};
use slotpress_read::tail_read_offset;

use super::accept::root_mismatch;
use super::mirrors::Mirror;
use super::pieces::{PieceRequest, Pieces, cut_pieces, group_frames, takeover_after};
use super::receive::PieceReceiver;
use super::tail::{Frames, mark_tail};
use super::{Download, DownloadFault, FetchLimits, STREAMS_MAX};
use crate::find::list_reasons;
use crate::{NetError, NetErrorKind};

/// Limit on the length of an archive's end (hashes and index) that is compared with another server's. The end
/// of a mainnet archive fits into 8 MiB.
const COMPARED_BYTES_MAX: u64 = 32 * 1024 * 1024;

const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Returns the length of the next piece when `remaining_bytes` remain. Pieces become shorter towards the end,
/// because `restore` can finish only after it has read the last pieces to arrive.
fn piece_bytes(remaining_bytes: u64, limits: &FetchLimits) -> u64 {
    let max = limits.piece_bytes_max.max(1);
    let connections = limits.streams.clamp(1, STREAMS_MAX) as u64;
    (remaining_bytes / 8).checked_div(connections).unwrap_or_default().clamp(max.div_ceil(16), max)
}

impl Download {
    /// Fetches the missing ranges of the first mirror's archive. Uses other mirrors only if they have the
    /// same frame hashes. Returns the length of the part that was compared with frame hashes.
    pub(super) fn fetch_ranges(&self, first: &Mirror, length_bytes: u64, progress: &dyn Progress) -> Result<u64> {
        let file = &self.file;
        first.approve();
        let (tail, fetched) = self.fetch_tail(first, length_bytes, progress)?;
        let hashes = tail.as_ref().and_then(|tail| tail.hashes.as_ref());
        let root = hashes.map(|hashes| hashes.root);
        if let Some(why) = root_mismatch(self.limits.expect_root, root) {
            return Err(Error::damaged(format!("{}: {why}", first.display_url())));
        }
        let has_same_root = root.is_some() && file.identity().root == root;
        let frames = Frames::new(tail.as_ref());
        self.keep_matching_bytes(first, frames.as_ref(), has_same_root, progress)?;
        // The journal may name this root, because from now on, frames are marked only if they match its hashes.
        if let (Some(root), Some(_)) = (root, &frames) {
            file.set_root(root);
        }
        mark_tail(file, frames.as_ref(), &fetched, progress)?;
        let widen = |missing: Range<u64>| match &frames {
            Some(frames) => frames.start_of(missing.start)..frames.end_of(missing.end),
            None => missing,
        };
        let ranges = ranges_to_fetch(frames.as_ref(), length_bytes, &self.limits);
        let pieces = Pieces::new(ranges, &file.done_ranges(), widen, takeover_after(&self.limits));
        let ranged_fetch = RangedFetch {
            download: self,
            frames,
            pieces: Mutex::new(pieces),
            progress,
            hashes_offset_bytes: hashes.map(|hashes| hashes.offset_bytes),
            length_bytes,
            changed: Condvar::new(),
            outcome: Mutex::new(None),
            started: Instant::now(),
        };
        ranged_fetch.run()?;
        Ok(ranged_fetch.frames.map_or(0, |frames| frames.end()))
    }
}

/// Returns ranges that cover the archive, in the order in which they are fetched. Where frames have
/// hashes, the ranges consist of whole frames.
fn ranges_to_fetch(frames: Option<&Frames>, length_bytes: u64, limits: &FetchLimits) -> Vec<Range<u64>> {
    let piece_bytes = |remaining_bytes| piece_bytes(remaining_bytes, limits);
    let Some(frames) = frames else { return cut_pieces(length_bytes, piece_bytes).collect() };
    let end = frames.end();
    // Readers first read the end of the archive, from `tail_read_offset`. So the frames from this offset on are
    // fetched first.
    let first_start = frames.start_of(tail_read_offset(length_bytes).min(end));
    let count = frames.ends.partition_point(|frame_end| *frame_end <= first_start);
    let mut ranges: Vec<Range<u64>> = [first_start..end, end..length_bytes].into();
    ranges.retain(|range| !range.is_empty());
    ranges.extend(group_frames(frames.ends.get(..count).unwrap_or_default(), piece_bytes));
    ranges
}

pub struct RangedFetch<'a> {
    pub download: &'a Download,
    pub frames: Option<Frames>,
    pub pieces: Mutex<Pieces>,
    pub progress: &'a dyn Progress,
    /// Offset of the frame hashes. Servers have the same archive if their files are equal from this offset to
    /// the end.
    hashes_offset_bytes: Option<u64>,
    length_bytes: u64,
    changed: Condvar,
    /// Set when nothing is missing, or after an error. Ends all requests.
    outcome: Mutex<Option<Result<()>>>,
    started: Instant,
}

impl RangedFetch<'_> {
    fn run(&self) -> Result<()> {
        let stopping = Until(|| self.progress.is_interrupted() || self.has_ended());
        std::thread::scope(|scope| -> Result<()> {
            let mut threads = Vec::new();
            for number in 0..self.download.limits.streams.clamp(1, STREAMS_MAX) {
                let stopping = &stopping;
                let connection = move || {
                    // Ends the download at once. Otherwise, other connections would wait for this one's piece.
                    if let Err(error) = catch_panic(|| self.run_connection(number, stopping)) {
                        self.end(Err(error));
                    }
                };
                match spawn(scope, connection) {
                    Ok(thread) => threads.push(thread),
                    // Fewer connections are enough.
                    Err(error) if threads.is_empty() => return Err(error),
                    Err(_) => break,
                }
            }
            for thread in threads {
                if let Err(payload) = thread.join() {
                    self.end(Err(panic_error(payload.as_ref())));
                }
            }
            Ok(())
        })?;
        self.outcome.lock().take().unwrap_or(Ok(()))
    }

    /// Ends the download. The first error is kept, and replaces a success.
    fn end(&self, result: Result<()>) {
        let mut outcome = self.outcome.lock();
        if !matches!(*outcome, Some(Err(_))) {
            *outcome = Some(result);
        }
        self.changed.notify_all();
    }

    fn has_ended(&self) -> bool {
        self.outcome.lock().is_some()
    }

    /// Fetches one piece after another over one connection, until all have arrived.
    fn run_connection(&self, number: usize, stopping: &dyn Progress) -> Result<()> {
        loop {
            self.progress.check()?;
            if self.has_ended() {
                return Ok(());
            }
            let Some((server_index, mirror)) = self.choose_mirror(number, stopping) else {
                let mirrors = &self.download.mirrors;
                if mirrors.iter().all(|mirror| mirror.exclusion_reason().is_some()) {
                    self.end(Err(self.no_servers_error()));
                }
                progress::wait(stopping, POLL_INTERVAL);
                continue;
            };
            let pause = mirror.retries.pause();
            if !pause.is_zero() {
                progress::wait(stopping, pause.min(POLL_INTERVAL));
                continue;
            }
            let request = {
                let mut pieces = self.pieces.lock();
                match pieces.take(self.started.elapsed(), server_index) {
                    Some(request) => request,
                    None if pieces.is_complete() => {
                        self.end(Ok(()));
                        return Ok(());
                    }
                    None => {
                        self.changed.wait_for(&mut pieces, POLL_INTERVAL);
                        continue;
                    }
                }
            };
            let result = self.fetch(&request, mirror, stopping);
            self.pieces.lock().give_back(request.piece);
            self.changed.notify_all();
            result?;
        }
    }

    /// Chooses the server for a connection. Spreads connections over all good servers, and prefers
    /// servers that are not pausing.
    fn choose_mirror(&self, number: usize, stopping: &dyn Progress) -> Option<(usize, &Mirror)> {
        let mirrors = self.download.mirrors.iter().enumerate();
        let mut pausing = None;
        for (server_index, mirror) in mirrors.clone().cycle().skip(number).take(mirrors.len()) {
            let is_ready = mirror.retries.pause().is_zero();
            if is_ready
                && let Some(_comparing) = mirror.compare_lock.try_lock()
                && mirror.is_unknown()
            {
                self.compare(mirror, stopping);
            }
            if mirror.is_approved() {
                if is_ready {
                    return Some((server_index, mirror));
                }
                pausing.get_or_insert((server_index, mirror));
            }
        }
        pausing
    }

    /// Compares a server's frame hashes with the hashes of the first server. Approves the server if they are
    /// equal, and otherwise excludes it.
    fn compare(&self, mirror: &Mirror, stopping: &dyn Progress) {
        const DIFFERENT: &str = "not used: it has a different archive of the same name";
        let not_used = |why| NetError::bad_answer(&mirror.remote.url, why);
        let start = match self.hashes_offset_bytes {
            Some(start) if self.length_bytes.saturating_sub(start) <= COMPARED_BYTES_MAX => start,
            _ => {
                let why = "not used: without frame hashes (or with too many), its archive cannot be compared";
                return mirror.exclude(not_used(why));
            }
        };
        if mirror.remote.length_bytes != Some(self.length_bytes) || !mirror.remote.accepts_ranges {
            return mirror.exclude(not_used(DIFFERENT));
        }
        match self.sends_same_bytes(mirror, start, stopping) {
            Ok(true) => mirror.approve(),
            Ok(false) => {
                let error = not_used(DIFFERENT);
                self.progress.warn(&error.to_string());
                mirror.exclude(error);
            }
            Err(error) if error.kind() == NetErrorKind::Interrupted => {}
            Err(error) => {
                let _ = mirror.record_failure(&error, self.progress);
            }
        }
    }

    /// True if the server's bytes from `start` to the end equal the bytes of the file.
    fn sends_same_bytes(&self, mirror: &Mirror, start: u64, stopping: &dyn Progress) -> Result<bool, NetError> {
        let client = &self.download.client;
        let mut body = client.open(&mirror.remote, Some(start..self.length_bytes), stopping)?;
        if body.is_whole {
            return Ok(false);
        }
        let mut offset_bytes = start;
        while let Some(bytes) = body.next(client, stopping)? {
            if !self.download.file.has_bytes(offset_bytes, &bytes) {
                return Ok(false);
            }
            saturating_add_to(&mut offset_bytes, bytes.len() as u64);
        }
        Ok(offset_bytes == self.length_bytes)
    }

    /// Fetches a piece from one server, and records the server's failures. If the server must pause while
    /// another server is ready, leaves the piece to the other server.
    ///
    /// # Errors
    /// The file cannot be written.
    fn fetch(&self, request: &PieceRequest, mirror: &Mirror, stopping: &dyn Progress) -> Result<()> {
        panic_point("stream");
        let mirrors = &self.download.mirrors;
        let mut receiver = PieceReceiver::new(self, request);
        // Stops if another connection finishes this piece first.
        let until = Until(|| self.pieces.lock().has_arrived(request.piece) || stopping.is_interrupted());
        while !receiver.missing_range().is_empty() {
            let missing = receiver.missing_range();
            let result = mirror.request(&self.download.client, missing, &until, &mut |bytes| receiver.receive(bytes));
            let Err(error) = result else { continue };
            match error.kind() {
                ErrorKind::Interrupted => break,
                ErrorKind::Damaged => {
                    let error = error.with_place(mirror.display_url());
                    self.progress.warn(&format!("{error}: this server is no longer used"));
                    mirror.exclude(error);
                    return Ok(());
                }
                _ => {}
            }
            let Some(cause) = NetError::find_in(&error) else {
                receiver.finish()?;
                return Err(error);
            };
            if !mirror.record_failure(cause, self.progress) {
                if mirrors.len() > 1 {
                    self.progress.warn(&format!("{error}: this server is no longer used"));
                }
                break;
            }
            if mirrors.iter().any(|other| other.is_approved() && other.retries.pause().is_zero()) {
                break;
            }
            progress::wait(&until, mirror.retries.pause());
        }
        receiver.finish()
    }

    /// Returns the error for a download that has no server left. The most serious fault decides the kind of
    /// the error.
    fn no_servers_error(&self) -> Error {
        let mirrors = self.download.mirrors.iter();
        let errors: Vec<Error> = mirrors.filter_map(Mirror::exclusion_reason).collect();
        let message = list_reasons("no server is left", errors.iter().map(ToString::to_string));
        let faults: Vec<_> = errors.iter().filter_map(DownloadFault::classify).collect();
        if faults.contains(&DownloadFault::Wrong) {
            Error::damaged(message)
        } else if faults.contains(&DownloadFault::Lost) {
            NetError::without_url(NetErrorKind::Changed, &message).into()
        } else {
            Error::new(ErrorKind::Network, message)
        }
    }
}
