//! The partial file of a download: bytes are written at any offset, in any order, and readers read them
//! as they arrive.
//!
//! Readers read from the file and not from the connections, so a slow reader delays no connection, and
//! bytes can be read again. The file is in the archives directory, which is held open. Because of its
//! name, neither a validator that starts nor another run removes it. It is locked during the download.
//! Its `DownloadJournal` lists the ranges that the next run may keep.
//!
//! Readers see only *marked* bytes. A ranged download checks a frame that has a hash before it marks the
//! frame, unless the archive has frames that are too long for this.

mod naming;
mod reading;

use std::fs::File;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use naming::{kept_bytes, remove_leftover_journal, reserved_bytes};
use parking_lot::{Condvar, Mutex};
use rangemap::RangeSet;
pub(in crate::fetch) use reading::UntimedReader;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use slotpress_base::files::not_a_file_error;
use slotpress_base::{
    Error, ErrorKind, EscapePath, IoContext, KeptDir, Result, range_bytes, saturating_add_to, split_at_most, to_usize,
};
use slotpress_format::ArchiveRoot;
pub use slotpress_read::catalog::partials::{FETCH_PREFIX, JOURNAL_SUFFIX};
use slotpress_read::{LockAttempt, tail_read_offset, try_lock};

use super::journal::{ArchiveIdentity, DownloadJournal};

fn partial_name(archive_name: &str) -> String {
    format!("{FETCH_PREFIX}{archive_name}")
}

fn journal_name(partial: &str) -> String {
    format!("{partial}{JOURNAL_SUFFIX}")
}

#[derive(Debug)]
pub struct PartialFile {
    dir: Arc<KeptDir>,
    name: String,
    path: PathBuf,
    file: File,
    state: Mutex<PartialState>,
    changed: Condvar,
    sync_lock: Mutex<()>,
    /// Held while bytes are written and marked, because another connection may fetch the same bytes.
    write_lock: Mutex<()>,
}

#[derive(Debug, Default)]
struct PartialState {
    journal: DownloadJournal,
    /// Result of the download; `None` while it runs.
    end: Option<Result<()>>,
    is_distrusted: bool,
    is_cancelled: bool,
    waiting_readers: usize,
    /// When the current wait began; `None` if no reader waits.
    waiting_since: Option<Instant>,
    /// Total time during which at least one reader waited. The current wait is not included.
    waited: Duration,
    /// Number of marked bytes that the journal does not list yet.
    unsynced_bytes: u64,
    /// Ranges of an earlier run that are not yet known to belong to this archive. Readers do not see
    /// them.
    unchecked: RangeSet<u64>,
    is_accepted: bool,
}

impl PartialState {
    /// Ranges that a later run may use.
    fn kept_ranges(&self) -> RangeSet<u64> {
        self.journal.ranges.union(&self.unchecked).collect()
    }
}

impl PartialFile {
    /// Opens or creates the partial file of an archive, and locks it.
    ///
    /// # Errors
    /// Another run is fetching the archive, the path is not a regular file, or the journal cannot be read.
    pub fn open(dir: &Arc<KeptDir>, archive_name: &str) -> Result<Self> {
        let name = partial_name(archive_name);
        let path = dir.path_of(&name);
        // Fails if the name contains a directory.
        dir.stat_entry(&name)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file: OwnedFd = rustix::fs::openat(dir, &name, flags, Mode::from_raw_mode(0o666)).or_path("open", &path)?;
        if try_lock(&file).or_path("lock", &path)? == LockAttempt::Busy {
            let message = format!("{} is in use: another slotpress is fetching into it", path.escaped());
            return Err(Error::new(ErrorKind::InUse, message).with_hint("wait for it, or choose another directory"));
        }
        let file = File::from(file);
        let metadata = file.metadata().or_path("read", &path)?;
        if !metadata.is_file() {
            return Err(not_a_file_error(&path));
        }
        let mut journal = DownloadJournal::read(dir, &journal_name(&name))?.unwrap_or_default();
        // The file may have been shortened since the journal was written.
        journal.ranges.remove(metadata.len()..u64::MAX);
        Ok(Self {
            dir: dir.clone(),
            name,
            path,
            file,
            state: Mutex::new(PartialState { journal, ..PartialState::default() }),
            changed: Condvar::new(),
            sync_lock: Mutex::default(),
            write_lock: Mutex::default(),
        })
    }

    fn write_journal(&self, journal: &DownloadJournal) -> Result<()> {
        journal.write(&self.dir, &journal_name(&self.name))
    }

    pub fn identity(&self) -> ArchiveIdentity {
        self.state.lock().journal.identity.clone()
    }

    pub fn done_ranges(&self) -> RangeSet<u64> {
        self.state.lock().journal.ranges.clone()
    }

    pub fn done_bytes(&self) -> u64 {
        self.state.lock().journal.done_bytes()
    }

    /// Begins to fetch an archive. Bytes of an earlier run become *unchecked*, until
    /// [`keep_checked`](Self::keep_checked) says which of them belong to the archive.
    ///
    /// `length_bytes` is the length that the server states, if it does. Space for it is reserved if the file
    /// system supports that, so a full disk is reported now. `identity` has this length only if the archive is
    /// fetched by ranges. Otherwise, the length is not relied upon, and readers learn the length at the end.
    ///
    /// # Errors
    /// The file cannot be written, or the disk has no space for the archive.
    pub fn begin(&self, identity: ArchiveIdentity, length_bytes: Option<u64>) -> Result<()> {
        let mut state = self.state.lock();
        if let Some(length_bytes) = length_bytes {
            state.journal.ranges.remove(length_bytes..u64::MAX);
            if self.file.metadata().or_path("read", &self.path)?.len() > length_bytes {
                self.truncate(length_bytes)?;
            }
            let reserved = rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, length_bytes);
            if let Err(error @ (rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT)) = reserved {
                return Err(Error::io("reserve space for", &self.path, &error.into()));
            }
        }
        state.journal.identity = identity;
        (state.end, state.is_distrusted, state.is_accepted) = (None, false, false);
        state.unchecked = std::mem::take(&mut state.journal.ranges);
        Ok(())
    }

    /// Deletes the bytes of an earlier run, and then begins to fetch an archive.
    ///
    /// # Errors
    /// See [`begin`](Self::begin).
    pub fn restart(&self, identity: ArchiveIdentity, length_bytes: Option<u64>) -> Result<()> {
        let journal = DownloadJournal { identity: identity.clone(), ranges: RangeSet::new() };
        self.state.lock().journal = journal.clone();
        // The journal must not list ranges that are about to be overwritten.
        self.write_journal(&journal)?;
        self.truncate(0)?;
        self.begin(identity, length_bytes)
    }

    pub fn archive_name(&self) -> &str {
        self.name.strip_prefix(FETCH_PREFIX).unwrap_or_default()
    }

    /// Records that the file failed a check. The next run then fetches the end again. From the other bytes,
    /// it keeps the frames that match their hashes, or nothing if the archive has no hashes.
    pub fn distrust(&self) -> Result<()> {
        {
            let state = &mut *self.state.lock();
            if std::mem::replace(&mut state.is_distrusted, true) {
                return Ok(());
            }
            let identity = &mut state.journal.identity;
            let kept_bytes = match (identity.root.take(), identity.length_bytes) {
                (Some(_), Some(length)) => tail_read_offset(length),
                _ => 0,
            };
            state.journal.ranges.remove(kept_bytes..u64::MAX);
            state.unchecked.remove(kept_bytes..u64::MAX);
        }
        self.sync()
    }

    pub fn unchecked_ranges(&self) -> RangeSet<u64> {
        self.state.lock().unchecked.clone()
    }

    pub fn discard_unchecked_from(&self, offset_bytes: u64) {
        self.state.lock().unchecked.remove(offset_bytes..u64::MAX);
    }

    /// Marks the ranges of an earlier run that belong to the archive, and discards its other ranges.
    pub fn keep_checked(&self, identity: ArchiveIdentity, checked: impl IntoIterator<Item = Range<u64>>) {
        let mut state = self.state.lock();
        state.journal.identity = identity;
        state.unchecked.clear();
        state.journal.ranges.extend(checked);
        self.changed.notify_all();
    }

    pub(super) fn accept(&self) {
        self.state.lock().is_accepted = true;
    }

    pub fn set_root(&self, root: ArchiveRoot) {
        self.state.lock().journal.identity.root = Some(root);
    }

    /// Writes bytes, except where the file is marked. Does not mark them. Returns the number of bytes written.
    pub(super) fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<u64> {
        let end = offset_bytes.saturating_add(bytes.len() as u64);
        let mut written_bytes = 0;
        for gap in self.done_ranges().gaps(&(offset_bytes..end)) {
            let (_, from_gap) = split_at_most(bytes, to_usize(gap.start.saturating_sub(offset_bytes)));
            let (gap_bytes, _) = split_at_most(from_gap, to_usize(range_bytes(&gap)));
            self.file.write_all_at(gap_bytes, gap.start).or_path("write", &self.path)?;
            saturating_add_to(&mut written_bytes, range_bytes(&gap));
        }
        Ok(written_bytes)
    }

    /// Writes bytes, except where the file is marked, and marks their range. Returns the number of bytes
    /// written.
    pub(super) fn write_marked(&self, offset_bytes: u64, bytes: &[u8]) -> Result<u64> {
        let _writing = self.write_lock.lock();
        let written_bytes = self.write(offset_bytes, bytes)?;
        self.mark(offset_bytes..offset_bytes.saturating_add(bytes.len() as u64));
        Ok(written_bytes)
    }

    /// True if the file has these bytes at an offset, marked or not.
    pub fn has_bytes(&self, offset_bytes: u64, bytes: &[u8]) -> bool {
        let mut buffer = vec![0; bytes.len()];
        self.file.read_exact_at(&mut buffer, offset_bytes).is_ok() && buffer == bytes
    }

    /// Reads bytes that were written, marked or not.
    pub fn read_written(&self, buf: &mut [u8], offset_bytes: u64) -> Result<()> {
        self.file.read_exact_at(buf, offset_bytes).or_path("read", &self.path)
    }

    /// Marks a range for readers. Its bytes must have arrived and passed every possible check.
    pub(super) fn mark(&self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        saturating_add_to(&mut state.unsynced_bytes, range_bytes(&range));
        state.journal.ranges.insert(range);
        self.changed.notify_all();
    }

    pub fn truncate(&self, length_bytes: u64) -> Result<()> {
        self.file.set_len(length_bytes).or_path("write", &self.path)
    }

    /// Waits until the journal lacks at least `bytes_min` marked bytes, but no longer than `time_max`. Returns
    /// the number of bytes that it lacks, or `None` after the download has ended.
    pub fn wait_for_unsynced(&self, bytes_min: u64, time_max: Duration) -> Option<u64> {
        let mut state = self.state.lock();
        let is_early = |state: &mut PartialState| state.end.is_none() && state.unsynced_bytes < bytes_min;
        self.changed.wait_while_for(&mut state, is_early, time_max);
        state.end.is_none().then_some(state.unsynced_bytes)
    }

    /// Syncs the file, then writes the journal.
    pub fn sync(&self) -> Result<()> {
        let _syncing = self.sync_lock.lock();
        let (written, unsynced_bytes) = {
            let state = self.state.lock();
            (state.kept_ranges(), state.unsynced_bytes)
        };
        self.file.sync_data().or_path("write", &self.path)?;
        let journal = {
            let mut state = self.state.lock();
            state.unsynced_bytes = state.unsynced_bytes.saturating_sub(unsynced_bytes);
            // Ranges that were discarded during the sync must not be listed again.
            let ranges = written.intersection(&state.kept_ranges()).collect();
            DownloadJournal { identity: state.journal.identity.clone(), ranges }
        };
        // The state is unlocked, so connections and readers do not wait until the journal is synced.
        self.write_journal(&journal)
    }

    /// Tells readers that no more bytes will arrive, because the archive is complete or the download
    /// failed. Later calls have no effect.
    pub fn end(&self, result: Result<()>) {
        self.state.lock().end.get_or_insert(result);
        self.changed.notify_all();
    }

    /// Ends the download because no reader needs the file any more.
    pub fn cancel(&self) {
        self.state.lock().is_cancelled = true;
        self.changed.notify_all();
    }

    /// Returns the time during which readers have waited for bytes. In this time, the network was the
    /// bottleneck.
    pub fn reader_wait(&self) -> Duration {
        let state = self.state.lock();
        match state.waiting_since {
            Some(since) => state.waited.saturating_add(since.elapsed()),
            None => state.waited,
        }
    }

    pub fn is_cancelled(&self) -> bool {
        self.state.lock().is_cancelled
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        // Closing the file is not enough: a child process that another thread starts may hold a copy of
        // the descriptor for a moment.
        let _ = self.file.unlock();
    }
}

#[cfg(test)]
#[allow(clippy::expect_used, clippy::single_range_in_vec_init)]
mod tests;
