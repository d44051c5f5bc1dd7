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
        pieces::{Job, Pieces, even_pieces, pieces_of_frames},
    },
    crate::{
        error::{Error, ErrorKind, Result},
        format::frame_hashes::{FrameHash, Root},
        net::{Client, NetError, NetErrorKind},
        progress::Progress,
        read::{
            source::Source,
            tail::{Tail, first_read_bytes},
        },
        threads::{guarded, panicked, spawn},
    },
    rangemap::RangeSet,
    std::{
        io,
        ops::{ControlFlow, Range},
        path::Path,
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

/// The longest frame that a connection holds in memory until its hash is known: one of 32 MiB of tar that zstd cannot
/// compress, with its mark, takes less. Archives with longer ones are fetched without a look at their hashes.
const FRAME_BYTES_MAX: u64 = 40 * 1024 * 1024;

/// Between two looks at whether there is something to do.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

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
    let piece_bytes = (length_bytes / (limits.streams as u64 * 4)).clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX);
    let ranges = match &frames {
        Some(frames) => {
            let end = frames.ends.last().copied().unwrap_or(0);
            let mut ranges = pieces_of_frames(frames.ends.iter().copied(), piece_bytes);
            ranges.extend((end < length_bytes).then_some(end..length_bytes));
            ranges
        }
        None => even_pieces(length_bytes, piece_bytes).collect(),
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

/// The last bytes, and what they say of the rest; and which bytes were fetched for it, which nobody has checked yet. They
/// come from the first server; others are compared with them.
fn fetch_tail(
    client: &Client,
    file: &PartialFile,
    mirror: &Mirror,
    length_bytes: u64,
    limits: &Limits,
    progress: &dyn Progress,
) -> Result<(Option<Tail>, RangeSet<u64>), Ended> {
    let mut fetched = RangeSet::new();
    let mut start = length_bytes - first_read_bytes(length_bytes);
    // An index that is longer than the first read is asked for once more.
    for _ in 0..2 {
        if length_bytes - start > limits.tail_bytes_max {
            break;
        }
        let mut there = file.done();
        there.extend(fetched.iter().cloned());
        for range in there.gaps(&(start..length_bytes)) {
            fetch_range(client, file, mirror, range.clone(), progress)?;
            fetched.insert(range);
        }
        there.extend(fetched.iter().cloned());
        let arrived = Arrived { file, there, wanted: Mutex::new(None) };
        match Tail::read(&arrived) {
            Ok(tail) => return Ok((tail, fetched)),
            // One that makes no sense is for the reader to tell of: the rest is fetched without it.
            Err(error) if error.kind() == ErrorKind::Damaged => break,
            Err(error) => match arrived.wanted.into_inner().unwrap_or_else(PoisonError::into_inner) {
                Some(wanted) if wanted < start => start = wanted,
                _ => return Err(Ended::Failed(error)),
            },
        }
    }
    Ok((None, fetched))
}

/// Fetches one range, however often it takes, from one server. Nothing is marked.
fn fetch_range(
    client: &Client,
    file: &PartialFile,
    mirror: &Mirror,
    mut range: Range<u64>,
    progress: &dyn Progress,
) -> Result<(), Ended> {
    while !range.is_empty() {
        super::pause(mirror.pause(), progress).map_err(Ended::Failed)?;
        let mut trouble = None;
        let result = client.get(&mirror.remote, Some(range.clone()), progress, &mut |offset_bytes, bytes| {
            if offset_bytes != range.start {
                return ControlFlow::Break(());
            }
            if let Err(error) = file.write(offset_bytes, bytes) {
                trouble = Some(error);
                return ControlFlow::Break(());
            }
            mirror.gave(bytes.len() as u64);
            range.start = offset_bytes + bytes.len() as u64;
            ControlFlow::Continue(())
        });
        if let Some(error) = trouble {
            return Err(Ended::Failed(error));
        }
        match result {
            Ok(transfer) if transfer.were_ranges_ignored => return Err(Ended::NoRanges),
            Ok(_) => {}
            Err(error) if error.kind() == NetErrorKind::Interrupted => return Err(Ended::Failed(error.into())),
            Err(error) => {
                if !mirror.failed(&error) {
                    return Err(Ended::of_net(error));
                }
            }
        }
    }
    Ok(())
}

/// Marks what was fetched to learn the index: of frames with hashes only those that are whole and right, the rest is
/// fetched again.
fn mark_tail(
    file: &PartialFile,
    frames: Option<&Frames>,
    fetched: &RangeSet<u64>,
    progress: &dyn Progress,
) -> Result<()> {
    let mark = |range: Range<u64>| {
        progress.advance(range.end - range.start, range.end - range.start);
        file.mark(range);
    };
    let Some(frames) = frames else {
        fetched.iter().cloned().for_each(mark);
        return Ok(());
    };
    let mut buffer = Vec::new();
    for range in fetched.iter() {
        let frames_end = frames.ends.last().copied().unwrap_or(0);
        let mut at = frames.start_of(range.start);
        while let Some(number) = frames.number_at(at).filter(|_| at < range.end) {
            let end = frames.ends[number];
            if at >= range.start && end <= range.end {
                buffer.resize((end - at) as usize, 0);
                file.read_written(&mut buffer, at)?;
                if *blake3::hash(&buffer).as_bytes() == frames.hashes[number] {
                    mark(at..end);
                }
            }
            at = end;
        }
        if range.end > frames_end {
            mark(range.start.max(frames_end)..range.end);
        }
    }
    Ok(())
}

/// The part of a file that has arrived, marked or not: asking for more is an error, and remembered.
#[derive(Debug)]
struct Arrived<'a> {
    file: &'a PartialFile,
    there: RangeSet<u64>,
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
        if self.there.gaps(&(offset_bytes..offset_bytes + to.len() as u64)).next().is_some() {
            *self.wanted.lock().unwrap_or_else(PoisonError::into_inner) = Some(offset_bytes);
            return Err(io::Error::other("not there yet"));
        }
        self.file.read_written(to, offset_bytes).map_err(io::Error::other)?;
        Ok(to.len())
    }
}

/// Where frames end, and what their hashes are.
#[derive(Debug)]
struct Frames {
    /// Where each ends; it starts, with its mark, where the one before ends.
    ends: Vec<u64>,
    hashes: Vec<FrameHash>,
}

impl Frames {
    fn new(tail: Option<&Tail>) -> Option<Self> {
        let tail = tail?;
        let hashes = tail.hashes.as_ref()?;
        let ends: Vec<u64> = tail.frames.iter().map(|frame| frame.end_bytes()).collect();
        let frames = Self { ends, hashes: hashes.frames.clone() };
        let is_bounded = |number| frames.ends[number] - frames.start(number) <= FRAME_BYTES_MAX;
        let is_sound = frames.ends.len() == frames.hashes.len() && (0..frames.ends.len()).all(is_bounded);
        is_sound.then_some(frames)
    }

    /// The frame that holds a byte; `None` behind the last.
    fn number_at(&self, at: u64) -> Option<usize> {
        let number = self.ends.partition_point(|end| *end <= at);
        (number < self.ends.len()).then_some(number)
    }

    fn start(&self, number: usize) -> u64 {
        number.checked_sub(1).map_or(0, |before| self.ends[before])
    }

    /// Where the frame that holds a byte starts; the byte itself behind the last.
    fn start_of(&self, at: u64) -> u64 {
        self.number_at(at).map_or(at, |number| self.start(number))
    }

    /// Where the frame ends that holds the byte before this one; the place itself behind the last.
    fn end_of(&self, end: u64) -> u64 {
        end.checked_sub(1).and_then(|at| self.number_at(at)).map_or(end, |number| self.ends[number])
    }
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
                match spawn(scope, move || guarded(|| self.stream(number, stopping))) {
                    Ok(thread) => threads.push(thread),
                    // Fewer do as well.
                    Err(error) if threads.is_empty() => return Err(error),
                    Err(_) => break,
                }
            }
            for thread in threads {
                let result = thread.join().unwrap_or_else(|payload| Err(panicked(payload.as_ref())));
                if let Err(error) = result {
                    self.end(Ended::Failed(error));
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
        for at in 0..self.mirrors.len() {
            let mirror = &self.mirrors[(number + at) % self.mirrors.len()];
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
        let Some(start) = self.shared_from.filter(|start| self.length_bytes - start <= COMPARED_BYTES_MAX) else {
            return mirror.drop_for("held in reserve: nothing tells whether its archive is the same");
        };
        if mirror.remote.length_bytes != Some(self.length_bytes) || !mirror.remote.accepts_ranges {
            return mirror.drop_for("another archive of the same name");
        }
        let mut buffer = Vec::new();
        let (mut at, mut is_same) = (start, true);
        let result = self.client.get(&mirror.remote, Some(start..self.length_bytes), stopping, &mut |offset, bytes| {
            let same = self.file.compare(offset, bytes, &mut buffer).unwrap_or(0);
            is_same &= offset == at && same == bytes.len();
            at = offset + bytes.len() as u64;
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
                let why = format!("{}: the frame at offset {offset_bytes} is not what its hash says", mirror.shown());
                self.progress.warn(&format!("{why}: nothing more is taken from there"));
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
        // The whole file instead of a range: it is told by the transfer.
        if offset_bytes != self.at {
            return Ok(ControlFlow::Break(()));
        }
        self.mirror.gave(bytes.len() as u64);
        self.at += bytes.len() as u64;
        match &self.fetching.frames {
            Some(frames) => self.collect(frames, offset_bytes, bytes)?,
            None => {
                self.fetching.file.write(offset_bytes, bytes).map_err(Trouble::Disk)?;
                if self.at - self.marked >= MARK_BYTES {
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
            let Some(number) = frames.number_at(at) else {
                // Behind the last frame: the servers were compared there.
                file.write(at, bytes).map_err(Trouble::Disk)?;
                self.mark(at + bytes.len() as u64);
                return Ok(());
            };
            let (start, end) = (frames.start(number), frames.ends[number]);
            let length = bytes.len().min((end - at) as usize);
            let (of_frame, rest) = bytes.split_at(length);
            self.frame.extend_from_slice(of_frame);
            at += length as u64;
            bytes = rest;
            if at == end {
                if *blake3::hash(&self.frame).as_bytes() != frames.hashes[number] {
                    return Err(Trouble::WrongFrame { offset_bytes: start });
                }
                file.write(start, &self.frame).map_err(Trouble::Disk)?;
                self.frame.clear();
                self.mark(at);
            }
        }
        Ok(())
    }

    fn mark(&mut self, end: u64) {
        if end > self.marked {
            self.fetching.progress.advance(end - self.marked, end - self.marked);
            self.fetching.file.mark(self.marked..end);
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
