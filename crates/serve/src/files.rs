//! Shares open files among transfers, and spares the page cache: pages that were not in it before
//! are dropped after the last transfer that needs them. So a validator's pages stay, and nodes that
//! download the same archive share one read of the disk.
//!
//! `Windows` decides without I/O which windows are needed; [`SharedFile`] asks the kernel.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rustix::fs::Stat;
use slotpress_base::bytes::saturating_add_to;
use slotpress_base::{ColdPages, IoHint};
use slotpress_read::FileId;
use slotpress_read::catalog::scan;

/// Size of a window. Pages are examined, fetched and dropped window by window.
const WINDOW_BYTES: u64 = 1 << 20;

/// Number of windows (256 MiB) by which a transfer may lag behind others and still find its pages;
/// a slower one reads the disk again. This bounds the memory that stalled transfers hold.
const KEEP_WINDOWS: u64 = 256;

#[derive(Debug, Default)]
pub struct OpenFiles(Mutex<HashMap<(FileId, u64, u64), Weak<SharedFile>>>);

impl OpenFiles {
    /// Returns the shared file of this identity, length and modification time, if one is open, else
    /// shares this one.
    pub fn share(&self, file: File, stat: &Stat, hint: IoHint) -> Arc<SharedFile> {
        let length_bytes = u64::try_from(stat.st_size).unwrap_or_default();
        let mut files = self.0.lock();
        files.retain(|_, file| file.strong_count() > 0);
        let key = (scan::file_id(stat), scan::modified_ns(stat), length_bytes);
        if let Some(file) = files.get(&key).and_then(Weak::upgrade) {
            return file;
        }
        let windows = Mutex::default();
        let shared = Arc::new(SharedFile { file, length_bytes, hint, windows });
        files.insert(key, Arc::downgrade(&shared));
        shared
    }
}

#[derive(Debug)]
pub struct SharedFile {
    file: File,
    length_bytes: u64,
    hint: IoHint,
    windows: Mutex<Windows<ColdPages>>,
}

/// A transfer's reading of a range, from start to end.
#[derive(Debug)]
pub struct Reading {
    shared: Arc<SharedFile>,
    number: u64,
    pub range: Range<u64>,
}

impl Reading {
    pub fn new(shared: Arc<SharedFile>, range: Range<u64>) -> Self {
        let number = shared.windows.lock().join(range.clone());
        Self { shared, number, range }
    }

    /// Reads the window at this offset and the next one into the page cache, where they are not in
    /// it yet. May block.
    pub fn enter(&self, offset: u64) {
        if self.shared.hint == IoHint::None {
            return;
        }
        let first = offset / WINDOW_BYTES;
        for window in [first, first.saturating_add(1)] {
            let range = bytes_of(window);
            let range = range.start..range.end.min(self.shared.length_bytes);
            let mut windows = self.shared.windows.lock();
            if range.start >= self.range.end || windows.brought.contains_key(&window) {
                continue;
            }
            let cold = ColdPages::find(&self.shared.file, &range, self.shared.length_bytes);
            if cold != ColdPages::default() {
                windows.brought.insert(window, cold.clone());
                drop(windows);
                cold.prefetch(&self.shared.file);
            }
        }
    }

    /// Returns true if this window and the next are in the page cache, so that reading does not block.
    pub fn is_resident(&self, offset: u64) -> bool {
        let window = bytes_of(offset / WINDOW_BYTES);
        let end = window.end.saturating_add(WINDOW_BYTES);
        let range = window.start..end.min(self.shared.length_bytes);
        ColdPages::find(&self.shared.file, &range, self.shared.length_bytes) == ColdPages::default()
    }

    /// Returns the number of bytes to read at an offset: at most `max`, to the end of the window or of
    /// the range.
    pub fn piece_bytes(&self, offset: u64, max: u64) -> u64 {
        let end = bytes_of(offset / WINDOW_BYTES).end.min(self.range.end);
        end.saturating_sub(offset).min(max)
    }

    /// Reads bytes at an offset, at most [`piece_bytes`](Self::piece_bytes). Drops the pages before
    /// their end that no other transfer needs.
    ///
    /// # Errors
    /// The disk fails, or the file has become shorter.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.shared.file.read_exact_at(buffer, offset)?;
        if self.shared.hint != IoHint::None {
            let end = offset.saturating_add(buffer.len() as u64);
            let unneeded = self.shared.windows.lock().pass(self.number, end);
            self.shared.drop_pages(&unneeded);
        }
        Ok(())
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let unneeded = self.shared.windows.lock().leave(self.number);
        self.shared.drop_pages(&unneeded);
    }
}

impl SharedFile {
    fn drop_pages(&self, windows: &[ColdPages]) {
        for cold in windows {
            cold.drop_from(&self.file);
        }
    }
}

/// Windows of a file that readers fetched, and the readers that need them. `C` is kept for each
/// window until no reader needs it.
#[derive(Debug, Default)]
struct Windows<C> {
    next_number: u64,
    readers: BTreeMap<u64, Range<u64>>,
    brought: BTreeMap<u64, C>,
}

impl<C> Windows<C> {
    fn join(&mut self, range: Range<u64>) -> u64 {
        saturating_add_to(&mut self.next_number, 1);
        self.readers.insert(self.next_number, range);
        self.next_number
    }

    fn is_needed(&self, window: u64) -> bool {
        let bytes = bytes_of(window);
        self.readers.values().any(|left| {
            let is_near = window.saturating_sub(left.start / WINDOW_BYTES) <= KEEP_WINDOWS;
            left.start < left.end.min(bytes.end) && left.end > bytes.start && is_near
        })
    }

    fn pass(&mut self, number: u64, offset: u64) -> Vec<C> {
        match self.readers.get_mut(&number) {
            Some(left) if left.start < offset => {
                let passed = left.start / WINDOW_BYTES..offset.div_ceil(WINDOW_BYTES);
                left.start = offset;
                self.take(passed)
            }
            _ => Vec::new(),
        }
    }

    fn leave(&mut self, number: u64) -> Vec<C> {
        self.readers.remove(&number);
        self.take(0..u64::MAX)
    }

    fn take(&mut self, windows: Range<u64>) -> Vec<C> {
        let numbers = self.brought.range(windows).map(|(number, _)| *number);
        let unneeded: Vec<u64> = numbers.filter(|number| !self.is_needed(*number)).collect();
        let removed = unneeded.iter().map(|number| self.brought.remove(number));
        removed.flatten().collect()
    }
}

fn bytes_of(window: u64) -> Range<u64> {
    let start = window.saturating_mul(WINDOW_BYTES);
    start..start.saturating_add(WINDOW_BYTES)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const END: u64 = 600 * WINDOW_BYTES + 5;

    proptest! {
        /// With any sequence of joining, reading and leaving: a window is dropped right after its
        /// last reader within reach, never while a reader in reach needs it, and nothing remains at
        /// the end.
        #[test]
        fn pages_stay_for_those_who_need_them(steps in proptest::collection::vec((0usize..4, 0u64..400, 0u8..8), 1..200)) {
            let mut windows = Windows::default();
            let mut readers: Vec<Option<(u64, u64)>> = vec![None; 4];
            for (reader, count, what) in steps {
                match readers[reader] {
                    None => readers[reader] = Some((windows.join(count * WINDOW_BYTES..END), count * WINDOW_BYTES)),
                    Some((number, _)) if what == 0 => {
                        windows.leave(number);
                        readers[reader] = None;
                    }
                    Some((number, offset)) => {
                        let window = offset / WINDOW_BYTES;
                        if offset >= END {
                            continue;
                        }
                        windows.brought.entry(window).or_insert(window);
                        let next = ((window + 1) * WINDOW_BYTES).min(END);
                        readers[reader] = Some((number, next));
                        // An earlier position than the reader's own drops nothing.
                        prop_assert!(windows.pass(number, offset).is_empty() && windows.pass(number, 0).is_empty());
                        let dropped = windows.pass(number, next);
                        let needed = readers.iter().flatten()
                            .any(|(_, at)| *at < next && window - at / WINDOW_BYTES <= KEEP_WINDOWS);
                        prop_assert_eq!(dropped.contains(&window), !needed);
                    }
                }
                for (_, at) in readers.iter().flatten() {
                    prop_assert!(*at <= END);
                }
            }
            for (number, _) in readers.into_iter().flatten() {
                windows.leave(number);
            }
            prop_assert!(windows.brought.is_empty() && windows.readers.is_empty());
        }
    }

    #[test]
    fn reads_are_cut_at_windows_and_ends() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        let content: Vec<u8> = (0..WINDOW_BYTES as usize * 2 + 100).map(|at| (at % 251) as u8).collect();
        std::fs::write(&path, &content).expect("written");
        let files = OpenFiles::default();
        let open = || {
            let file = File::open(&path).expect("opened");
            let stat = rustix::fs::fstat(&file).expect("its length");
            files.share(file, &stat, IoHint::Gentle)
        };
        let shared = open();
        assert!(Arc::ptr_eq(&shared, &open()), "one file for all");
        for range in [0..content.len() as u64, 5..6, WINDOW_BYTES - 1..WINDOW_BYTES + 1] {
            let reading = Reading::new(shared.clone(), range.clone());
            let mut read = Vec::new();
            let mut buffer = vec![0; 300_000];
            while (read.len() as u64) < range.end - range.start {
                let offset = range.start + read.len() as u64;
                let length = reading.piece_bytes(offset, buffer.len() as u64) as usize;
                assert!(length > 0);
                reading.enter(offset);
                reading.read(offset, &mut buffer[..length]).expect("read");
                read.extend_from_slice(&buffer[..length]);
            }
            assert!(read == content[range.start as usize..range.end as usize], "{range:?}");
        }
        assert!(shared.windows.lock().readers.is_empty());
        // The file is truncated while it is read.
        let reading = Reading::new(shared.clone(), 0..content.len() as u64);
        File::options().write(true).open(&path).expect("opened").set_len(10).expect("cut");
        assert!(reading.read(0, &mut vec![0; 1000]).is_err());
        drop((shared, reading));
        open();
        assert_eq!(files.0.lock().len(), 1);
    }
}
