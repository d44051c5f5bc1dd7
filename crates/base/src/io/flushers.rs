//! Writes back the new files of many workers, on separate threads: submitting pages to a disk takes as
//! long as writing them to the page cache, and a worker that waits for a disk decodes nothing.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::IoHint;
use super::calls::start_write_back;
use super::writer::write_out;
use crate::{Error, IoContext, Result, ThreadPool, catch_panic, panic_point, start_pool};

/// Number of threads. Each submits one range at a time, so several threads keep a fast disk busy.
const THREADS: usize = 4;

/// Largest result of [`flusher_memory_bytes`]: enough for a fast disk.
const FLUSHED_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// A shorter range counts as this number of bytes. About 256 files are then open at most, a quarter of
/// the usual limit of a process.
const RANGE_BYTES_MIN: u64 = FLUSHED_BYTES_MAX / 256;

/// Returns the share of a command's memory for [`Flushers`], in bytes.
pub fn flusher_memory_bytes(memory_bytes: u64) -> u64 {
    FLUSHED_BYTES_MAX.min(memory_bytes / 8)
}

/// Writes back ranges of new files, drops them from the page cache once they are on disk, and closes
/// the files.
#[derive(Debug)]
pub struct Flushers {
    /// `None` if the page cache is left to the kernel.
    pool: Option<ThreadPool>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Limit on the bytes that were handed over and are not yet dropped from the page cache. At the limit,
    /// workers wait. About half of these bytes are in the disk's queue, and the others wait for a thread.
    bytes_max: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes of all ranges that were handed over and not dropped.
    bytes: u64,
    submitted: VecDeque<WrittenRange>,
    error: Option<Error>,
}

#[derive(Debug)]
struct WrittenRange {
    file: File,
    path: PathBuf,
    range: Range<u64>,
}

impl WrittenRange {
    /// Returns the length of the range, or [`RANGE_BYTES_MIN`] if the range is shorter.
    fn counted_bytes(&self) -> u64 {
        (self.range.end - self.range.start).max(RANGE_BYTES_MIN)
    }
}

impl State {
    fn submitted_bytes(&self) -> u64 {
        self.submitted.iter().map(WrittenRange::counted_bytes).sum()
    }

    fn keep_first_error(&mut self, result: Result<()>) {
        self.error = self.error.take().or(result.err());
    }
}

impl Shared {
    /// Submits a range to the disk. Then, while too much is in the disk's queue, waits for older ranges.
    fn submit(&self, written: WrittenRange) {
        let submitted = catch_panic(|| {
            panic_point("flusher");
            start_write_back(&written.file, &written.range).or_path("write", &written.path)
        });
        let mut state = self.state.lock();
        state.keep_first_error(submitted);
        state.submitted.push_back(written);
        drop(state);
        self.changed.notify_all();
        self.drop_oldest(self.bytes_max / 2);
    }

    /// While more than `bytes_max` bytes are submitted, waits until the oldest range is on disk, drops
    /// its pages, and closes the file.
    fn drop_oldest(&self, bytes_max: u64) {
        loop {
            let mut state = self.state.lock();
            if state.submitted_bytes() <= bytes_max {
                return;
            }
            let Some(oldest) = state.submitted.pop_front() else { return };
            drop(state);
            let written = write_out(&oldest.file, &oldest.range).or_path("write", &oldest.path);
            let bytes = oldest.counted_bytes();
            drop(oldest);
            let mut state = self.state.lock();
            state.keep_first_error(written);
            state.bytes -= bytes;
            drop(state);
            self.changed.notify_all();
        }
    }

    fn wait_until_all_submitted(&self) {
        self.changed.wait_while(&mut self.state.lock(), |state| state.bytes > state.submitted_bytes());
    }
}

impl Flushers {
    /// Starts the threads, unless the page cache is left to the kernel. At most about `bytes_max` bytes are
    /// handed over and not yet dropped.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(hint: IoHint, bytes_max: u64) -> Result<Self> {
        let pool = if hint == IoHint::Gentle { Some(start_pool(THREADS)?) } else { None };
        Ok(Self { pool, shared: Arc::new(Shared { bytes_max, state: Mutex::default(), changed: Condvar::new() }) })
    }

    /// Takes over a range that was written. Waits while too many bytes are not yet dropped.
    ///
    /// # Errors
    /// The disk failed to write an earlier range.
    pub fn add(&self, file: File, path: PathBuf, range: Range<u64>) -> Result<()> {
        let pool = if range.is_empty() { None } else { self.pool.as_ref() };
        let Some(pool) = pool else { return Ok(()) };
        let written = WrittenRange { file, path, range };
        let shared = self.shared.clone();
        let mut state = shared.state.lock();
        shared.changed.wait_while(&mut state, |state| state.error.is_none() && state.bytes > shared.bytes_max);
        if let Some(error) = &state.error {
            return Err(error.clone());
        }
        state.bytes += written.counted_bytes();
        drop(state);
        pool.spawn_fifo(move || shared.submit(written));
        Ok(())
    }

    /// Waits until everything is on disk, and out of the page cache.
    ///
    /// # Errors
    /// The disk failed to write a range.
    pub fn finish(&self) -> Result<()> {
        self.shared.wait_until_all_submitted();
        self.shared.drop_oldest(0);
        self.shared.state.lock().error.clone().map_or(Ok(()), Err)
    }
}

impl Drop for Flushers {
    /// Waits for the threads, so that none has an open file in a directory that is then removed.
    fn drop(&mut self) {
        self.shared.wait_until_all_submitted();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Workers wait at the limit, so it is exceeded by at most one range of each worker.
    #[test]
    fn workers_wait_at_the_limit() {
        const RANGE_BYTES: u64 = 2 * RANGE_BYTES_MIN;
        const WORKERS: u64 = 3;
        for bytes_max in [0, RANGE_BYTES, 4 * RANGE_BYTES] {
            let flushers = Flushers::start(IoHint::Gentle, bytes_max).expect("started");
            std::thread::scope(|scope| {
                let work = || {
                    for _ in 0..20 {
                        let mut file = tempfile::tempfile().expect("a file");
                        file.write_all(&[7; RANGE_BYTES as usize]).expect("written");
                        flushers.add(file, PathBuf::from("a file"), 0..RANGE_BYTES).expect("handed over");
                        let bytes = flushers.shared.state.lock().bytes;
                        assert!(bytes <= bytes_max + WORKERS * RANGE_BYTES, "{bytes} of {bytes_max}");
                    }
                };
                (0..WORKERS).for_each(|_| drop(scope.spawn(work)));
            });
            flushers.finish().expect("on disk");
            assert_eq!(flushers.shared.state.lock().bytes, 0);
        }
    }

    #[test]
    fn less_memory_means_a_smaller_limit() {
        assert_eq!([0, 8 << 20, 1 << 30].map(flusher_memory_bytes), [0, 1 << 20, FLUSHED_BYTES_MAX]);
    }
}
