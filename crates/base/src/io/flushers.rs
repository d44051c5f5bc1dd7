//! Writes back the new files of many workers, on threads of its own: submitting pages to a disk takes
//! as long as writing them to the page cache, and a worker that waits for a disk decodes nothing.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::IoHint;
use super::calls::write_back;
use super::writer::write_out;
use crate::threads::{guarded, panic_point};
use crate::{Error, IoContext, Pool, Result};

/// Number of threads. A file is submitted by one of them, so several keep the queues of a fast disk full.
const THREADS: usize = 4;

/// Limit on the bytes that were handed over and are not yet dropped from the page cache. Workers
/// wait at the limit. Half of them are in the disk's queue, the others wait for a thread.
pub const FLUSHED_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Limit on the files that were handed over, which are open: a quarter of the usual limit of a process.
const FILES_MAX: usize = 256;

/// Writes back ranges of new files, drops them from the page cache once they are on disk, and closes
/// the files.
#[derive(Debug)]
pub struct Flushers {
    /// `None` if the page cache is left to the kernel.
    pool: Option<Pool>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Told when a range is done.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Ranges that were handed over and are not done, and their bytes.
    ranges: usize,
    bytes: u64,
    /// Those of them that the disk has, oldest first, and their bytes.
    submitted: VecDeque<Written>,
    submitted_bytes: u64,
    /// The first error.
    error: Option<Error>,
}

#[derive(Debug)]
struct Written {
    file: File,
    path: PathBuf,
    range: Range<u64>,
}

impl Written {
    fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }
}

impl State {
    /// Takes the oldest submitted ranges, until no more than `bytes` and `files` are left.
    fn take_oldest(&mut self, bytes: u64, files: usize) -> Vec<Written> {
        let mut oldest = Vec::new();
        while self.submitted_bytes > bytes || self.submitted.len() > files {
            let Some(one) = self.submitted.pop_front() else { break };
            self.submitted_bytes -= one.bytes();
            oldest.push(one);
        }
        oldest
    }

    fn note(&mut self, done: Result<()>) {
        self.error = self.error.take().or(done.err());
    }
}

impl Shared {
    /// Submits a range. Waits for older ones if the disk has enough.
    fn submit(&self, new: Written) {
        let submitted = guarded(|| {
            panic_point("flusher");
            write_back(&new.file, &new.range, false).or_path("write", &new.path)
        });
        let mut state = self.state.lock();
        state.note(submitted);
        state.submitted_bytes += new.bytes();
        state.submitted.push_back(new);
        let oldest = state.take_oldest(FLUSHED_BYTES_MAX / 2, FILES_MAX / 2);
        drop(state);
        self.changed.notify_all();
        self.end(oldest);
    }

    /// Waits until ranges are on disk, drops their pages, and closes the files.
    fn end(&self, ranges: Vec<Written>) {
        for one in ranges {
            let (bytes, written) = (one.bytes(), write_out(&one.file, &one.range).or_path("write", &one.path));
            drop(one);
            let mut state = self.state.lock();
            state.note(written);
            state.bytes -= bytes;
            state.ranges -= 1;
            drop(state);
            self.changed.notify_all();
        }
    }
}

impl Flushers {
    /// Starts the threads.
    ///
    /// # Errors
    /// The system refuses.
    pub fn start(hint: IoHint) -> Result<Self> {
        let pool = (hint == IoHint::Gentle).then(|| Pool::start(THREADS)).transpose()?;
        Ok(Self { pool, shared: Arc::default() })
    }

    /// Takes over a range that was written. Waits if too much was handed over.
    ///
    /// # Errors
    /// The disk failed to write this or an older range.
    pub fn add(&self, file: File, path: PathBuf, range: Range<u64>) -> Result<()> {
        let Some(pool) = self.pool.as_ref().filter(|_| !range.is_empty()) else { return Ok(()) };
        let new = Written { file, path, range };
        let mut state = self.shared.state.lock();
        self.shared.changed.wait_while(&mut state, |state| {
            state.error.is_none() && (state.bytes > FLUSHED_BYTES_MAX || state.ranges > FILES_MAX)
        });
        if let Some(error) = &state.error {
            return Err(error.clone());
        }
        state.bytes += new.bytes();
        state.ranges += 1;
        drop(state);
        let shared = self.shared.clone();
        pool.spawn(move || shared.submit(new));
        Ok(())
    }

    /// Waits until everything is on disk, and out of the page cache.
    ///
    /// # Errors
    /// The disk failed to write a range.
    pub fn finish(&self) -> Result<()> {
        let mut state = self.shared.state.lock();
        self.shared.changed.wait_while(&mut state, |state| state.ranges > state.submitted.len());
        let rest = state.take_oldest(0, 0);
        drop(state);
        self.shared.end(rest);
        self.shared.state.lock().error.clone().map_or(Ok(()), Err)
    }
}

impl Drop for Flushers {
    /// Waits for the threads, so that none holds a file of a directory that is removed.
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        self.shared.changed.wait_while(&mut state, |state| state.ranges > state.submitted.len());
    }
}
