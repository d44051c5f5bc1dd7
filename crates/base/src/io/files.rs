//! Writes many new files for many workers. Separate threads write large parts past the page cache,
//! so that no worker waits for the disk. Everything else goes through the page cache, from which
//! the oldest pages are dropped once they are on disk.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use parking_lot::{Condvar, Mutex};
use rustix::fs::{FallocateFlags, fallocate};

use super::IoHint;
use super::calls::{page_bytes, write_back};
use super::direct::{ALIGNMENT_BYTES, Buffer, DirectFile, tell_of_others};
use super::writer::write_out;
use crate::threads::{guarded, panic_point};
use crate::{Error, IoContext, Progress, Result};

/// Number of threads that write directly, and so of concurrent disk requests.
pub const WRITERS: usize = 4;

/// Name of the writing threads.
pub const WRITER_NAME: &str = "writes behind";

/// Length of a direct request in bytes.
const REQUEST_BYTES: usize = 1024 * 1024;

/// Smallest part that is written directly. For a smaller one, a second descriptor and a separate
/// request cost as much as the page cache does (docs/performance.md).
const PART_BYTES_MIN: usize = 512 * 1024;

/// Smallest rest of a directly written part that is also written directly.
const REST_BYTES_MIN: usize = 64 * 1024;

/// Disk space that is reserved for a file in advance, so that it is not fragmented. It never
/// exceeds the final length of the file.
const ROOM_BYTES: u64 = 16 * 1024 * 1024;

/// Limits on the ranges that are being written back: their bytes, and their number, since each
/// keeps a file open.
const UNDER_WAY_BYTES_MAX: u64 = 32 * 1024 * 1024;
const UNDER_WAY_FILES_MAX: usize = 128;

/// Writes new files. The first large one starts the writing threads. Dropping the writer ends them.
pub struct FilesWriter {
    hint: IoHint,
    shared: Arc<Shared>,
}

/// A new file, and its path for errors.
struct NewFile {
    file: File,
    path: PathBuf,
}

/// Whole blocks that are to be written directly.
struct Request {
    file: Arc<NewFile>,
    direct: Arc<DirectFile>,
    bytes: Lent,
    range: Range<u64>,
}

/// A lent buffer. Dropping this value gives it back.
struct Lent {
    buffer: Buffer,
    shared: Arc<Shared>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.free.push(std::mem::replace(&mut self.buffer, Buffer::new(0)));
        state.lent -= 1;
        self.shared.has_buffers.notify_all();
    }
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Limit on the number of buffers.
    buffers: usize,
    has_requests: Condvar,
    has_buffers: Condvar,
    under_way: Mutex<UnderWay>,
}

#[derive(Default)]
struct State {
    requests: VecDeque<Request>,
    free: Vec<Buffer>,
    /// Number of buffers that are being filled, or wait to be written.
    lent: usize,
    /// The writing threads; `None` until they are needed.
    writers: Option<Vec<JoinHandle<()>>>,
    failed: Option<Error>,
    is_over: bool,
}

/// Ranges that are being written back.
#[derive(Default)]
struct UnderWay {
    ranges: VecDeque<(Arc<NewFile>, Range<u64>)>,
    bytes: u64,
}

impl UnderWay {
    fn pop(&mut self) -> Option<(Arc<NewFile>, Range<u64>)> {
        let (file, range) = self.ranges.pop_front()?;
        self.bytes -= range.end - range.start;
        Some((file, range))
    }

    fn is_too_much(&self) -> bool {
        self.bytes > UNDER_WAY_BYTES_MAX || self.ranges.len() > UNDER_WAY_FILES_MAX
    }
}

impl FilesWriter {
    /// Makes a writer for this many workers, each of which writes one file at a time.
    pub fn new(hint: IoHint, workers: usize) -> Self {
        Self { hint, shared: Arc::new(Shared { buffers: workers + 2 * WRITERS, ..Shared::default() }) }
    }

    /// Begins a new file, or a part of it from `start` on. Parts must not overlap. `direct_end` is
    /// the final length of the file if it may be written past the page cache, and 0 otherwise.
    pub fn begin(&self, file: File, path: PathBuf, start: u64, direct_end: u64) -> PartWriter<'_> {
        let is_large = self.hint == IoHint::Gentle && direct_end.saturating_sub(start) >= PART_BYTES_MIN as u64;
        PartWriter {
            writer: self,
            may_be_direct: is_large && DirectFile::may_work(&file),
            file: Arc::new(NewFile { file, path }),
            direct_end,
            direct: None,
            collected: None,
            count: 0,
            at: start,
            cached: start..start,
            has_room_to: 0,
        }
    }

    /// Waits until everything is written, and out of the page cache. The caller must still sync
    /// the files.
    ///
    /// # Errors
    /// The disk is full, or failed.
    pub fn finish(&self, progress: &dyn Progress) -> Result<()> {
        let mut state = self.shared.state.lock();
        self.shared.has_buffers.wait_while(&mut state, |state| state.lent > 0);
        let failed = state.failed.clone();
        drop(state);
        tell_of_others(progress);
        failed.map_or(Ok(()), Err)?;
        let mut under_way = self.shared.under_way.lock();
        std::iter::from_fn(|| under_way.pop()).try_for_each(|one| end_write_back(&one))
    }
}

impl Drop for FilesWriter {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.is_over = true;
        let (requests, writers) = (std::mem::take(&mut state.requests), state.writers.take());
        drop(state);
        drop(requests);
        self.shared.has_requests.notify_all();
        writers.into_iter().flatten().for_each(|writer| drop(writer.join()));
    }
}

fn end_write_back((file, range): &(Arc<NewFile>, Range<u64>)) -> Result<()> {
    write_out(&file.file, range).or_path("write", &file.path)
}

/// Length of a block. Direct requests consist of whole blocks, so that they share no page with
/// bytes that go through the page cache.
fn block_bytes() -> u64 {
    page_bytes().max(ALIGNMENT_BYTES as u64)
}

impl Shared {
    /// Starts to write back a range that went through the page cache. Waits for older ranges if too
    /// much is being written back.
    fn write_back(&self, file: &Arc<NewFile>, range: Range<u64>) -> Result<()> {
        write_back(&file.file, &range, false).or_path("write", &file.path)?;
        let mut under_way = self.under_way.lock();
        under_way.bytes += range.end - range.start;
        under_way.ranges.push_back((file.clone(), range));
        let mut oldest = Vec::new();
        while under_way.is_too_much() {
            oldest.extend(under_way.pop());
        }
        drop(under_way);
        oldest.iter().try_for_each(end_write_back)
    }

    /// Waits for a free buffer, and takes it.
    fn lend(self: &Arc<Self>) -> Lent {
        let mut state = self.state.lock();
        self.has_buffers.wait_while(&mut state, |state| state.lent >= self.buffers);
        state.lent += 1;
        let buffer = state.free.pop().unwrap_or(Buffer::new(REQUEST_BYTES));
        Lent { buffer, shared: self.clone() }
    }

    /// Passes a request to the writing threads, or writes it if none can be started.
    ///
    /// # Errors
    /// Writing this or an older request failed.
    fn submit(self: &Arc<Self>, request: Request) -> Result<()> {
        let mut state = self.state.lock();
        if let Some(failed) = state.failed.clone() {
            drop(state);
            return Err(failed);
        }
        let writers = state.writers.get_or_insert_with(|| {
            let start = |_| {
                let shared = self.clone();
                Builder::new().name(WRITER_NAME.into()).spawn(move || shared.write_all()).ok()
            };
            (0..WRITERS).map_while(start).collect()
        });
        if writers.is_empty() {
            drop(state);
            return self.write(&request);
        }
        state.requests.push_back(request);
        self.has_requests.notify_one();
        Ok(())
    }

    fn write_all(&self) {
        while let Some(request) = self.next() {
            if let Err(error) = guarded(|| self.write(&request)) {
                self.state.lock().failed.get_or_insert(error);
            }
        }
    }

    /// Waits for a request; `None` at the end.
    fn next(&self) -> Option<Request> {
        let mut state = self.state.lock();
        self.has_requests.wait_while(&mut state, |state| state.requests.is_empty() && !state.is_over);
        state.requests.pop_front()
    }

    fn write(&self, request: &Request) -> Result<()> {
        panic_point("writing behind");
        let Request { file, direct, bytes, range } = request;
        let bytes = bytes.buffer.first((range.end - range.start) as usize);
        let write = || -> io::Result<bool> {
            let is_written = direct.write_all_at(bytes, range.start)?;
            if !is_written {
                file.file.write_all_at(bytes, range.start)?;
            }
            Ok(is_written && direct.is_direct(range))
        };
        if write().or_path("write", &file.path)? { Ok(()) } else { self.write_back(file, range.clone()) }
    }
}

/// Writes a file, or a part of it, from start to end.
pub struct PartWriter<'a> {
    writer: &'a FilesWriter,
    file: Arc<NewFile>,
    direct_end: u64,
    may_be_direct: bool,
    direct: Option<Arc<DirectFile>>,
    /// Bytes for the next direct request, which begins at a block: the `count` bytes before `at`.
    collected: Option<Lent>,
    count: usize,
    at: u64,
    /// Range that was written through the page cache, and is not yet being written back.
    cached: Range<u64>,
    /// End of the disk space that was reserved.
    has_room_to: u64,
}

impl PartWriter<'_> {
    pub fn file(&self) -> &File {
        &self.file.file
    }

    /// Writes the next bytes of the part.
    ///
    /// # Errors
    /// The disk is full, or failed to write these bytes or earlier ones.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            // Bytes that share a block with another part go through the page cache.
            let to_block = (self.at.next_multiple_of(block_bytes()) - self.at) as usize;
            let is_collected = self.may_be_direct && (self.collected.is_some() || to_block == 0);
            let room = match (is_collected, self.may_be_direct) {
                (true, _) => REQUEST_BYTES - self.count,
                (false, true) => to_block,
                (false, false) => bytes.len(),
            };
            let (these, rest) = bytes.split_at(room.min(bytes.len()));
            if is_collected {
                let collected = self.collected.get_or_insert_with(|| self.writer.shared.lend());
                collected.buffer.bytes()[self.count..self.count + these.len()].copy_from_slice(these);
                self.count += these.len();
            } else {
                self.write_cached(these, self.at)?;
            }
            self.at += these.len() as u64;
            bytes = rest;
            if self.count == REQUEST_BYTES {
                self.write_collected(0)?;
            }
        }
        Ok(())
    }

    /// Ends the part.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn end(mut self) -> Result<()> {
        self.write_collected(if self.direct.is_some() { REST_BYTES_MIN } else { PART_BYTES_MIN })?;
        self.end_cached()
    }

    /// Writes the collected blocks directly if they have at least `min` bytes and that is
    /// supported. All other collected bytes go through the page cache.
    fn write_collected(&mut self, min: usize) -> Result<()> {
        let Some(bytes) = self.collected.take() else { return Ok(()) };
        let count = std::mem::take(&mut self.count);
        let start = self.at - count as u64;
        let mut range = start..self.at / block_bytes() * block_bytes();
        if range.end - range.start < min as u64 || !self.open_direct() {
            range.end = start;
        }
        let left = &bytes.buffer.first(count)[(range.end - start) as usize..];
        self.write_cached(left, range.end)?;
        let Some(direct) = self.direct.clone().filter(|_| !range.is_empty()) else { return Ok(()) };
        self.make_room(&range);
        self.writer.shared.submit(Request { file: self.file.clone(), direct, bytes, range })
    }

    fn open_direct(&mut self) -> bool {
        if self.direct.is_none() {
            self.direct = DirectFile::writing(&self.file.file).map(Arc::new);
            self.may_be_direct = self.direct.is_some();
        }
        self.may_be_direct
    }

    fn make_room(&mut self, range: &Range<u64>) {
        if range.end > self.has_room_to {
            self.has_room_to = range.end.max(self.direct_end.min(range.start.saturating_add(ROOM_BYTES)));
            // If there is no space, writing fails.
            let _ = fallocate(self.file(), FallocateFlags::KEEP_SIZE, range.start, self.has_room_to - range.start);
        }
    }

    fn write_cached(&mut self, bytes: &[u8], at: u64) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.cached.end != at {
            self.end_cached()?;
            self.cached = at..at;
        }
        self.file.file.write_all_at(bytes, at).or_path("write", &self.file.path)?;
        self.cached.end += bytes.len() as u64;
        Ok(())
    }

    fn end_cached(&mut self) -> Result<()> {
        let range = std::mem::take(&mut self.cached);
        let is_gentle = self.writer.hint == IoHint::Gentle && !range.is_empty();
        if is_gentle { self.writer.shared.write_back(&self.file, range) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::OpenOptionsExt;
    use std::path::Path;

    use proptest::prelude::*;

    use super::super::calls::cached_pages;
    use super::*;
    use crate::NoProgress;

    fn byte(at: u64) -> u8 {
        (at * 31 % 251) as u8
    }

    fn create(path: &Path) -> File {
        std::fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o644).open(path).expect("created")
    }

    /// Makes a directory next to the test program, which is on a disk more often than `/tmp`.
    fn dir_on_disk() -> tempfile::TempDir {
        let program = std::env::current_exe().expect("it has a path");
        tempfile::tempdir_in(program.parent().expect("it has one")).expect("a directory")
    }

    /// Writes each file in parts that end at its cuts. Each part has a thread of its own, which
    /// writes pieces of `piece` bytes.
    fn write(dir: &Path, hint: IoHint, files: &[(u64, Vec<u64>)], piece: u64) -> Result<()> {
        let writer = FilesWriter::new(hint, 2);
        let parts = files.iter().enumerate().flat_map(|(number, (length, cuts))| {
            let mut ends: Vec<u64> = cuts.iter().map(|cut| cut % (length + 1)).chain([*length]).collect();
            ends.sort_unstable();
            let starts: Vec<u64> = [0].into_iter().chain(ends.iter().copied()).collect();
            starts.into_iter().zip(ends).map(move |(start, end)| (number, *length, start..end))
        });
        std::thread::scope(|scope| {
            let write = |(number, length, range): (usize, u64, Range<u64>)| {
                let path = dir.join(number.to_string());
                let mut part = writer.begin(create(&path), path, range.start, length);
                let mut at = range.start;
                while at < range.end {
                    let end = range.end.min(at + piece);
                    part.write(&(at..end).map(byte).collect::<Vec<_>>())?;
                    at = end;
                }
                part.end()
            };
            let threads: Vec<_> = parts.map(|part| scope.spawn(move || write(part))).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
        })?;
        writer.finish(&NoProgress)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        /// Files of any length have the right bytes, whatever the lengths of the parts and pieces
        /// in which they are written at the same time. On a disk, none of them stays in the page
        /// cache, unless the policy leaves that to the kernel.
        #[test]
        fn parts_make_whole_files(
            files in proptest::collection::vec(
                (0u64..3_500_000, proptest::collection::vec(any::<u64>(), 0..3)), 1..5),
            piece in 1000u64..2_500_000,
            is_in_memory in any::<bool>(),
            is_gentle in any::<bool>(),
        ) {
            let dir = if is_in_memory { tempfile::tempdir_in("/dev/shm").ok() } else { None };
            let is_on_disk = dir.is_none();
            let dir = dir.unwrap_or_else(dir_on_disk);
            write(dir.path(), if is_gentle { IoHint::Gentle } else { IoHint::None }, &files, piece).expect("written");
            for (number, (length, _)) in files.iter().enumerate() {
                let file = File::open(dir.path().join(number.to_string())).expect("opened");
                let cached = cached_pages(&file, &(0..(*length).max(1)));
                prop_assert!(!is_on_disk || !is_gentle || cached.is_none_or(|pages| pages == 0), "{cached:?}");
                let mut bytes = Vec::new();
                std::io::Read::read_to_end(&mut &file, &mut bytes).expect("read");
                prop_assert_eq!(bytes.len() as u64, *length);
                prop_assert!((0..*length).zip(&bytes).all(|(at, is)| byte(at) == *is));
            }
        }
    }

    /// An error of a writing thread reaches the worker or `finish`, with its path, and nobody waits
    /// for ever.
    #[test]
    fn errors_arrive() {
        let dir = dir_on_disk();
        let path = dir.path().join("read-only");
        drop(create(&path));
        let writer = FilesWriter::new(IoHint::Gentle, 1);
        let file = Arc::new(NewFile { file: create(&path), path });
        let read_only = File::open(&file.path).expect("opened");
        let Some(direct) = DirectFile::reading(&read_only, REQUEST_BYTES as u64).map(Arc::new) else {
            println!("skipped: files::errors_arrive: the tests are not on a disk that can be written directly");
            return;
        };
        for number in 0..100u64 {
            let mut bytes = writer.shared.lend();
            bytes.buffer.bytes();
            let range = number * 4096..(number + 1) * 4096;
            let submitted = writer.shared.submit(Request { file: file.clone(), direct: direct.clone(), bytes, range });
            if let Err(error) = submitted {
                assert!(error.to_string().contains("read-only"), "{error}");
                break;
            }
        }
        let error = writer.finish(&NoProgress).expect_err("it cannot be written");
        assert!(error.to_string().contains("read-only"), "{error}");
    }
}
