//! A download from servers that send ranges: many at a time, from one server or several, checked frame by frame where
//! the archive has frame hashes.
//!
//! The end comes first: it holds the index, and tells by which frames the rest is cut. Then pieces come in the order of
//! the file, over as many connections as asked for.

use {
    super::{
        Ended, Limits,
        mirrors::{Mirror, Standing},
        partial::PartialFile,
        pieces::{Job, Pieces, cut_pieces, pieces_of_frames},
        tail::{Frames, fetch_tail, mark_tail},
    },
    crate::{Client, NetError, NetErrorKind},
    slotpress_base::{
        bytes::{count, range_bytes, split_at_most, to_usize},
        error::{Error, ErrorKind, Result},
        progress::Progress,
        threads::{guarded, panic_point, panicked, spawn},
    },
    slotpress_format::archive::frame_hashes::Root,
    slotpress_read::archive::tail::first_read_at,
    std::{
        ops::{ControlFlow, Range},
        sync::{Condvar, Mutex, MutexGuard, PoisonError},
        time::{Duration, Instant},
    },
};

/// Fetched by one request: long enough that the time between two requests does not count, short enough that a reader
/// who waits for the oldest does not wait for long.
const PIECE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The same, of a small archive: all connections have something to do.
const PIECE_BYTES_MIN: u64 = 1024 * 1024;

/// Bytes that are marked at a time where there are no frames to go by.
const MARK_BYTES: u64 = 256 * 1024;

/// Compared with another server's, to know whether it has the same archive: hashes and index of mainnet's take 8 MiB.
const COMPARED_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// Between two looks at whether there is something to do.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What one request fetches where so much is left. Pieces get shorter towards the end: what all connections fetch at the
/// same time is read by whoever waits for it in order, and what has come of the last pieces by then is read after the last
/// byte.
pub fn piece_bytes(left_bytes: u64, streams: usize) -> u64 {
    (left_bytes / 8).checked_div(streams.max(1) as u64).unwrap_or_default().clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX)
}

/// Fetches what is missing of an archive. The first mirror's bytes are the archive; others may give bytes where frame
/// hashes tell that theirs are the same.
pub fn fetch_ranges(
    client: &Client,
    file: &PartialFile,
    mirrors: &[Mirror],
    length_bytes: u64,
    limits: &Limits,
    progress: &dyn Progress,
) -> Result<Option<Root>, Ended> {
    let Some(first) = mirrors.first() else { return Err(Ended::Failed(Error::failed("no server to fetch from"))) };
    first.approve();
    let (tail, fetched) = fetch_tail(client, file, first, length_bytes, limits, progress)?;
    let hashes = tail.as_ref().and_then(|tail| tail.hashes.as_ref());
    let root = hashes.map(|hashes| hashes.root);
    if let Some(expected) = limits.expect_root.filter(|expected| Some(*expected) != root) {
        let found = root.map_or("it has no frame hashes".to_string(), |root| format!("its root is {root}"));
        let message = format!("{}: not the archive of root {expected}: {found}", first.shown());
        return Err(Ended::Lost(Error::damaged(message)));
    }
    if let Some(root) = root {
        file.set_root(root);
    }
    let frames = Frames::new(tail.as_ref());
    mark_tail(file, frames.as_ref(), &fetched, progress).map_err(Ended::Failed)?;
    let piece_bytes = |left_bytes| piece_bytes(left_bytes, limits.streams);
    let ranges = match &frames {
        Some(frames) => {
            let end = frames.ends.last().copied().unwrap_or(0);
            // Whoever reads what arrives begins with the last bytes of the archive, which begin in the middle of a frame: that
            // comes first, and not when all else is there.
            let window = frames.start_of(first_read_at(length_bytes).min(end));
            let before = frames.ends.partition_point(|frame_end| *frame_end <= window);
            let mut ranges: Vec<Range<u64>> = [window..end, end..length_bytes].into();
            ranges.retain(|range| !range.is_empty());
            ranges.extend(pieces_of_frames(frames.ends.get(..before).unwrap_or_default(), piece_bytes));
            ranges
        }
        None => cut_pieces(length_bytes, piece_bytes).collect(),
    };
    let widened = |missing: Range<u64>| match &frames {
        Some(frames) => frames.start_of(missing.start)..frames.end_of(missing.end),
        None => missing,
    };
    let pieces = Pieces::new(ranges, &file.done(), widened);
    let shared_from = hashes.map(|hashes| hashes.offset_bytes);
    let fetching = Fetching {
        client,
        file,
        mirrors,
        frames,
        shared_from,
        length_bytes,
        pieces: Mutex::new(pieces),
        changed: Condvar::new(),
        ended: Mutex::new(None),
        started: Instant::now(),
        progress,
    };
    fetching.run(limits.streams)?;
    Ok(root)
}

/// What all connections share.
struct Fetching<'a> {
    client: &'a Client,
    file: &'a PartialFile,
    mirrors: &'a [Mirror],
    frames: Option<Frames>,
    /// From where on the archives of two servers must be the same to be the same archive.
    shared_from: Option<u64>,
    length_bytes: u64,
    pieces: Mutex<Pieces>,
    changed: Condvar,
    ended: Mutex<Option<Ended>>,
    started: Instant,
    progress: &'a dyn Progress,
}

impl Fetching<'_> {
    fn run(&self, streams: usize) -> Result<(), Ended> {
        let stopping = Stopping { fetching: self };
        std::thread::scope(|scope| -> Result<()> {
            let mut threads = Vec::new();
            for number in 0..streams.max(1) {
                let stopping = &stopping;
                // Told at once: the others would wait for the piece of one that has died.
                let stream =
                    move || guarded(|| self.stream(number, stopping)).map_err(|error| self.end(Ended::Failed(error)));
                match spawn(scope, stream) {
                    Ok(thread) => threads.push(thread),
                    // Fewer do as well.
                    Err(error) if threads.is_empty() => return Err(error),
                    Err(_) => break,
                }
            }
            for thread in threads {
                if let Err(payload) = thread.join() {
                    self.end(Ended::Failed(panicked(payload.as_ref())));
                }
            }
            Ok(())
        })
        .map_err(Ended::Failed)?;
        if let Some(ended) = self.ended.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(ended);
        }
        Ok(())
    }

    fn pieces(&self) -> MutexGuard<'_, Pieces> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, ended: Ended) {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(ended);
        self.changed.notify_all();
    }

    fn is_ended(&self) -> bool {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// One connection: piece after piece, until all are there.
    fn stream(&self, number: usize, stopping: &Stopping<'_>) -> Result<()> {
        loop {
            self.progress.check()?;
            if self.is_ended() {
                return Ok(());
            }
            let Some(mirror) = self.mirror_for(number, stopping) else {
                if !self.is_ended() {
                    self.end(self.nobody_left());
                }
                return Ok(());
            };
            if !mirror.pause().is_zero() {
                super::pause(mirror.pause().min(LOOK_AGAIN), stopping).ok();
                continue;
            }
            let job = {
                let mut pieces = self.pieces();
                match pieces.take(self.started.elapsed()) {
                    Some(job) => job,
                    None if pieces.is_complete() => return Ok(()),
                    None => {
                        drop(self.changed.wait_timeout(pieces, LOOK_AGAIN));
                        continue;
                    }
                }
            };
            let result = self.fetch(&job, mirror, stopping);
            self.pieces().give_back(job.piece);
            self.changed.notify_all();
            result?;
        }
    }

    /// The server for a connection: they are spread over all that are good.
    fn mirror_for(&self, number: usize, stopping: &Stopping<'_>) -> Option<&Mirror> {
        for mirror in self.mirrors.iter().cycle().skip(number).take(self.mirrors.len()) {
            match mirror.standing() {
                Standing::Good => return Some(mirror),
                Standing::Dropped(_) => {}
                Standing::Unknown => {
                    self.compare(mirror, stopping);
                    if mirror.standing() == Standing::Good {
                        return Some(mirror);
                    }
                }
            }
        }
        None
    }

    /// Whether another server has the same archive: its hashes of all frames must be the same.
    fn compare(&self, mirror: &Mirror, stopping: &Stopping<'_>) {
        let Some(start) =
            self.shared_from.filter(|start| self.length_bytes.saturating_sub(*start) <= COMPARED_BYTES_MAX)
        else {
            return mirror.drop_for("not used yet: it is not known whether its archive has the same bytes");
        };
        if mirror.remote.length_bytes != Some(self.length_bytes) || !mirror.remote.accepts_ranges {
            return mirror.drop_for("another archive of the same name");
        }
        let mut buffer = Vec::new();
        let (mut at, mut is_same) = (start, true);
        let result = self.client.get(&mirror.remote, Some(start..self.length_bytes), stopping, &mut |offset, bytes| {
            let same = self.file.compare(offset, bytes, &mut buffer).unwrap_or(0);
            is_same &= offset == at && same == bytes.len();
            at = offset.saturating_add(bytes.len() as u64);
            if is_same { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        match result {
            Ok(_) if is_same && at == self.length_bytes => mirror.approve(),
            Ok(_) => {
                self.progress.warn(&format!("{}: another archive of the same name: not used", mirror.shown()));
                mirror.drop_for("another archive of the same name");
            }
            Err(error) if error.kind() == NetErrorKind::Interrupted => {}
            Err(error) => mirror.drop_for(&error.to_string()),
        }
    }

    /// Fetches one piece, as far as it goes.
    fn fetch(&self, job: &Job, mirror: &Mirror, stopping: &Stopping<'_>) -> Result<()> {
        panic_point("stream");
        let (at, marked) = (job.range.start, job.range.start);
        let mut receiver = Receiver { fetching: self, job, mirror, at, marked, frame: Vec::new() };
        let mut trouble = None;
        let result =
            self.client.get(&mirror.remote, Some(job.range.clone()), stopping, &mut |offset, bytes| match receiver
                .take(offset, bytes)
            {
                Ok(flow) => flow,
                Err(error) => {
                    trouble = Some(error);
                    ControlFlow::Break(())
                }
            });
        receiver.finish();
        match (trouble, result) {
            (Some(Trouble::Disk(error)), _) => Err(error),
            (Some(Trouble::WrongFrame { offset_bytes }), _) => {
                let why = format!("{}: the frame at offset {offset_bytes} does not match its hash", mirror.shown());
                self.progress.warn(&format!("{why}: this server is no longer used"));
                mirror.drop_for(&why);
                mirror.lose();
                Ok(())
            }
            (None, Ok(transfer)) if transfer.were_ranges_ignored => {
                self.end(Ended::NoRanges);
                Ok(())
            }
            (None, Ok(_)) => Ok(()),
            (None, Err(error)) if error.kind() == NetErrorKind::Interrupted => Ok(()),
            (None, Err(error)) => {
                self.failed(mirror, &error);
                Ok(())
            }
        }
    }

    fn failed(&self, mirror: &Mirror, error: &NetError) {
        if !mirror.failed(error) {
            self.progress.warn(&format!("{error}: nothing more is taken from there"));
        }
    }

    /// Why nobody is left to fetch from.
    fn nobody_left(&self) -> Ended {
        let whys = self.mirrors.iter().filter_map(|mirror| match mirror.standing() {
            Standing::Dropped(why) => Some(why),
            _ => None,
        });
        let whys: Vec<String> = whys.take(8).collect();
        let error = Error::new(ErrorKind::Network, format!("no server is left: {}", whys.join("; ")));
        match self.mirrors.first().is_some_and(Mirror::is_lost) {
            true => Ended::Lost(error),
            false => Ended::Failed(error),
        }
    }
}

/// What ends a transfer from this side.
enum Trouble {
    Disk(Error),
    WrongFrame { offset_bytes: u64 },
}

/// Takes the bytes of one piece, and marks what is right.
struct Receiver<'a> {
    fetching: &'a Fetching<'a>,
    job: &'a Job,
    mirror: &'a Mirror,
    at: u64,
    marked: u64,
    /// What has come of a frame that has a hash: only one that is right gets into the file, where another connection's
    /// may be already.
    frame: Vec<u8>,
}

impl Receiver<'_> {
    fn take(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<ControlFlow<()>, Trouble> {
        panic_point("range");
        // The whole file instead of a range: it is told by the transfer.
        if offset_bytes != self.at {
            return Ok(ControlFlow::Break(()));
        }
        self.mirror.gave(bytes.len() as u64);
        count(&mut self.at, bytes.len() as u64);
        match &self.fetching.frames {
            Some(frames) => self.collect(frames, offset_bytes, bytes)?,
            None => {
                self.fetching.file.write(offset_bytes, bytes).map_err(Trouble::Disk)?;
                if self.at.saturating_sub(self.marked) >= MARK_BYTES {
                    self.mark(self.at);
                }
            }
        }
        let wants_more = self.fetching.pieces().arrived(self.job.piece, self.marked);
        Ok(if wants_more { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    }

    /// Puts frames together, compares them with their hashes, and writes those that are right.
    fn collect(&mut self, frames: &Frames, mut at: u64, mut bytes: &[u8]) -> Result<(), Trouble> {
        let file = self.fetching.file;
        while !bytes.is_empty() {
            let Some((frame, hash)) = frames.frame_at(at) else {
                // Behind the last frame: the servers were compared there.
                file.write(at, bytes).map_err(Trouble::Disk)?;
                self.mark(at.saturating_add(bytes.len() as u64));
                return Ok(());
            };
            let (of_frame, rest) = split_at_most(bytes, to_usize(frame.end.saturating_sub(at)));
            self.frame.extend_from_slice(of_frame);
            count(&mut at, of_frame.len() as u64);
            bytes = rest;
            if at == frame.end {
                if blake3::hash(&self.frame).as_bytes() != hash {
                    return Err(Trouble::WrongFrame { offset_bytes: frame.start });
                }
                file.write(frame.start, &self.frame).map_err(Trouble::Disk)?;
                self.frame.clear();
                self.mark(at);
            }
        }
        Ok(())
    }

    fn mark(&mut self, end: u64) {
        if end > self.marked {
            let range = self.marked..end;
            self.fetching.progress.advance(range_bytes(&range), range_bytes(&range));
            self.fetching.file.mark(range);
            self.marked = end;
        }
    }

    /// The transfer has ended, however: what came is good, unless its frame is not whole.
    fn finish(&mut self) {
        if self.fetching.frames.is_none() {
            self.mark(self.at);
        }
        self.fetching.pieces().arrived(self.job.piece, self.marked);
    }
}

/// Ends transfers when somebody else has ended the download.
struct Stopping<'a> {
    fetching: &'a Fetching<'a>,
}

impl Progress for Stopping<'_> {
    fn is_interrupted(&self) -> bool {
        self.fetching.progress.is_interrupted() || self.fetching.is_ended()
    }
}
