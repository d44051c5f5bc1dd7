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

    fn read_at(&self, to: &mut [u8], offset_bytes: u64) -> io::Result<usize> {
        self.read_arrived(to, offset_bytes, 1)
    }
}

impl PartialFile {
    /// Reads what has arrived, and waits if nothing has. `readers` is the number of readers that
    /// the wait delays; if it is 0, [`PartialFile::waited`] does not count the wait.
    fn read_arrived(&self, to: &mut [u8], offset_bytes: u64, readers: usize) -> io::Result<usize> {
        let mut state = self.state.lock();
        loop {
            if let Some(end) = state.journal.ranges.get(&offset_bytes).map(|range| range.end) {
                drop(state);
                let arrived = to_usize(end.saturating_sub(offset_bytes));
                return self.file.read_at(prefix_mut(to, arrived), offset_bytes);
            }
            let is_end = matches!(state.end, Some(Ok(())))
                || to.is_empty()
                || state.journal.identity.length_bytes.is_some_and(|end| offset_bytes >= end);
            if is_end {
                return Ok(0);
            }
            if let Some(Err(error)) = &state.end {
                return Err(io::Error::other(error.to_string()));
            }
            if state.is_unwanted {
                return Err(io::Error::other("the download was ended"));
            }
            state.waiting = state.waiting.saturating_add(readers);
            if state.waiting > 0 {
                state.waiting_since.get_or_insert_with(Instant::now);
            }
            self.changed.wait(&mut state);
            state.waiting = state.waiting.saturating_sub(readers);
            if state.waiting == 0
                && let Some(since) = state.waiting_since.take()
            {
                state.waited = state.waited.saturating_add(since.elapsed());
            }
        }
    }
}

/// The file, for a reader whose waits do not count in [`PartialFile::waited`].
#[derive(Debug)]
pub(in crate::fetch) struct Patient<'a>(pub &'a PartialFile);

impl Source for Patient<'_> {
    fn path(&self) -> &Path {
        &self.0.path
    }

    fn length_bytes(&self) -> Option<u64> {
        self.0.length_bytes()
    }

    fn read_at(&self, to: &mut [u8], offset_bytes: u64) -> io::Result<usize> {
        self.0.read_arrived(to, offset_bytes, 0)
    }
}
