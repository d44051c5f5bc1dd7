//! Lets a partial file be read while it arrives.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use slotpress_base::{prefix_mut, to_usize};
use slotpress_read::Source;

use super::PartialFile;

impl Source for PartialFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn length_bytes(&self) -> Option<u64> {
        let state = self.state.lock();
        let at_end = || matches!(state.end, Some(Ok(()))).then(|| state.journal.done_bytes());
        state.journal.identity.length_bytes.or_else(at_end)
    }

    fn read_at(&self, buf: &mut [u8], offset_bytes: u64) -> io::Result<usize> {
        self.read_arrived(buf, offset_bytes, true)
    }
}

impl PartialFile {
    /// Reads bytes that have arrived, and waits while there are none at this offset. If `counts_wait`,
    /// [`PartialFile::reader_wait`] includes the wait.
    fn read_arrived(&self, buf: &mut [u8], offset_bytes: u64, counts_wait: bool) -> io::Result<usize> {
        let counted_readers = usize::from(counts_wait);
        let mut state = self.state.lock();
        loop {
            let arrived = state.journal.ranges.get(&offset_bytes).cloned();
            if let Some(range) = arrived {
                drop(state);
                let arrived_bytes = to_usize(range.end.saturating_sub(offset_bytes));
                return self.file.read_at(prefix_mut(buf, arrived_bytes), offset_bytes);
            }
            let length_bytes = state.journal.identity.length_bytes;
            let is_end = matches!(state.end, Some(Ok(())))
                || buf.is_empty()
                || length_bytes.is_some_and(|length| offset_bytes >= length);
            if is_end {
                return Ok(0);
            }
            if let Some(Err(error)) = &state.end {
                return Err(io::Error::other(error.to_string()));
            }
            if state.is_cancelled {
                return Err(io::Error::other("the download was cancelled"));
            }
            state.waiting_readers = state.waiting_readers.saturating_add(counted_readers);
            if state.waiting_readers > 0 {
                state.waiting_since.get_or_insert_with(Instant::now);
            }
            self.changed.wait(&mut state);
            state.waiting_readers = state.waiting_readers.saturating_sub(counted_readers);
            if state.waiting_readers == 0
                && let Some(since) = state.waiting_since.take()
            {
                state.waited = state.waited.saturating_add(since.elapsed());
            }
        }
    }
}

/// Reads the file, but [`PartialFile::reader_wait`] does not include the time for which it waits.
#[derive(Debug)]
pub(in crate::fetch) struct UntimedReader<'a>(pub &'a PartialFile);

impl Source for UntimedReader<'_> {
    fn path(&self) -> &Path {
        &self.0.path
    }

    fn length_bytes(&self) -> Option<u64> {
        self.0.length_bytes()
    }

    fn read_at(&self, buf: &mut [u8], offset_bytes: u64) -> io::Result<usize> {
        self.0.read_arrived(buf, offset_bytes, false)
    }
}
