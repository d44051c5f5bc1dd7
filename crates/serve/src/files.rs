//! Shares open files among transfers, and keeps the page cache as it was: pages that a transfer brought
//! into the cache are dropped after the last transfer that needs them. A validator's pages stay in the
//! cache, and nodes that download the same archive share one read of the disk.
//!
//! `Windows` decides without I/O which windows are needed; [`SharedFile`] calls the kernel.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rustix::fs::Stat;
use slotpress_base::{ColdPages, IoHint, saturating_add_to};
use slotpress_read::FileId;
use slotpress_read::catalog::scan;

/// Length of a window. Pages are examined, prefetched and dropped window by window.
const WINDOW_BYTES: u64 = 1 << 20;

/// Number of windows (256 MiB) by which a transfer may lag behind others and still find their pages in the
/// cache. A slower transfer reads the disk again. This limit bounds the memory that a stalled transfer occupies.
const LAG_WINDOWS_MAX: u64 = 256;

#[derive(Debug, Default)]
pub struct OpenFiles(Mutex<HashMap<FileKey, Weak<SharedFile>>>);

#[derive(Debug, PartialEq, Eq, Hash)]
struct FileKey {
    id: FileId,
    modified_ns: u64,
    length_bytes: u64,
}

impl OpenFiles {
    /// Returns the shared file with the same identity, length and modification time if one is open.
    /// Otherwise, shares this file.
    pub fn share(&self, file: File, stat: &Stat, io_hint: IoHint) -> Arc<SharedFile> {
        let length_bytes = u64::try_from(stat.st_size).unwrap_or_default();
        let mut files = self.0.lock();
        files.retain(|_, file| file.strong_count() > 0);
        let key = FileKey { id: scan::file_id(stat), modified_ns: scan::modified_ns(stat), length_bytes };
        if let Some(file) = files.get(&key).and_then(Weak::upgrade) {
            return file;
        }
        let shared = Arc::new(SharedFile { file, length_bytes, io_hint, windows: Mutex::default() });
        files.insert(key, Arc::downgrade(&shared));
        shared
    }
}

#[derive(Debug)]
pub struct SharedFile {
    file: File,
    length_bytes: u64,
    io_hint: IoHint,
    windows: Mutex<Windows<ColdPages>>,
}

/// Reads a range of a file for one request, from start to end.
#[derive(Debug)]
pub struct SharedFileReader {
    shared: Arc<SharedFile>,
    reader_id: u64,
    pub range: Range<u64>,
}

impl SharedFileReader {
    pub fn new(shared: Arc<SharedFile>, range: Range<u64>) -> Self {
        let reader_id = shared.windows.lock().add_reader(range.clone());
        Self { shared, reader_id, range }
    }

    /// Reads the window at this offset and the next window into the page cache, except for pages that are
    /// already there. May block.
    pub fn prefetch(&self, offset: u64) {
        if self.shared.io_hint == IoHint::None {
            return;
        }
        let first = offset / WINDOW_BYTES;
        for window in [first, first.saturating_add(1)] {
            let range = window_range(window);
            let range = range.start..range.end.min(self.shared.length_bytes);
            let mut windows = self.shared.windows.lock();
            if range.start >= self.range.end || windows.prefetched.contains_key(&window) {
                continue;
            }
            let cold = ColdPages::find(&self.shared.file, &range, self.shared.length_bytes);
            if cold != ColdPages::default() {
                windows.prefetched.insert(window, cold.clone());
                drop(windows);
                cold.prefetch(&self.shared.file);
            }
        }
    }

    /// Returns true if the window at this offset and the next window are in the page cache, so reading does not
    /// block.
    pub fn is_resident(&self, offset: u64) -> bool {
        let window = window_range(offset / WINDOW_BYTES);
        let end = window.end.saturating_add(WINDOW_BYTES);
        let range = window.start..end.min(self.shared.length_bytes);
        ColdPages::find(&self.shared.file, &range, self.shared.length_bytes) == ColdPages::default()
    }

    /// Returns the length of the piece at an offset: at most `max`, and no further than the end of the
    /// window or of the range.
    pub fn piece_bytes(&self, offset: u64, max: u64) -> u64 {
        let end = window_range(offset / WINDOW_BYTES).end.min(self.range.end);
        end.saturating_sub(offset).min(max)
    }

    /// Reads bytes at an offset, at most [`piece_bytes`](Self::piece_bytes). Then drops the pages that no
    /// request needs any more.
    ///
    /// # Errors
    /// The disk fails, or the file has become shorter.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.shared.file.read_exact_at(buffer, offset)?;
        if self.shared.io_hint != IoHint::None {
            let end = offset.saturating_add(buffer.len() as u64);
            let windows = &self.shared.windows;
            let unneeded = windows.lock().advance_reader(self.reader_id, end);
            self.shared.drop_pages(&unneeded);
        }
        Ok(())
    }
}

impl Drop for SharedFileReader {
    fn drop(&mut self) {
        let unneeded = self.shared.windows.lock().remove_reader(self.reader_id);
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

/// Windows of a file that were prefetched, and the readers that need them. For each window, a value of type
/// `P` (the pages to drop) is kept until no reader needs the window.
#[derive(Debug, Default)]
struct Windows<P> {
    last_id: u64,
    /// Range that each reader still has to read.
    readers: BTreeMap<u64, Range<u64>>,
    prefetched: BTreeMap<u64, P>,
}

impl<P> Windows<P> {
    fn add_reader(&mut self, range: Range<u64>) -> u64 {
        saturating_add_to(&mut self.last_id, 1);
        self.readers.insert(self.last_id, range);
        self.last_id
    }

    fn is_needed(&self, window: u64) -> bool {
        let bytes = window_range(window);
        self.readers.values().any(|unread| {
            let is_near = window.saturating_sub(unread.start / WINDOW_BYTES) <= LAG_WINDOWS_MAX;
            unread.start < unread.end.min(bytes.end) && unread.end > bytes.start && is_near
        })
    }

    /// Records that a reader has read up to an offset. Returns the values of windows that no reader
    /// needs any more.
    fn advance_reader(&mut self, id: u64, offset: u64) -> Vec<P> {
        match self.readers.get_mut(&id) {
            Some(unread) if unread.start < offset => {
                let passed = unread.start / WINDOW_BYTES..offset.div_ceil(WINDOW_BYTES);
                unread.start = offset;
                self.take_unneeded(passed)
            }
            _ => Vec::new(),
        }
    }

    fn remove_reader(&mut self, id: u64) -> Vec<P> {
        self.readers.remove(&id);
        self.take_unneeded(0..u64::MAX)
    }

    fn take_unneeded(&mut self, windows: Range<u64>) -> Vec<P> {
        let numbers = self.prefetched.range(windows).map(|(number, _)| *number);
        let unneeded: Vec<u64> = numbers.filter(|number| !self.is_needed(*number)).collect();
        let removed = unneeded.iter().map(|number| self.prefetched.remove(number));
        removed.flatten().collect()
    }
}

fn window_range(window: u64) -> Range<u64> {
    let start = window.saturating_mul(WINDOW_BYTES);
    start..start.saturating_add(WINDOW_BYTES)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const END: u64 = 600 * WINDOW_BYTES + 5;

    #[derive(Clone, Copy)]
    struct Reader {
        id: u64,
        offset: u64,
    }

    proptest! {
        /// A window is dropped as soon as no reader needs it: each one has passed it, or lags too far behind. Once
        /// all readers are gone, no window remains.
        #[test]
        fn windows_stay_until_no_near_reader_needs_them(steps in proptest::collection::vec((0usize..4, 0u64..400, 0u8..8), 1..200)) {
            let mut windows = Windows::default();
            let mut readers: Vec<Option<Reader>> = vec![None; 4];
            for (number, start_window, action) in steps {
                match readers[number] {
                    None => {
                        let offset = start_window * WINDOW_BYTES;
                        readers[number] = Some(Reader { id: windows.add_reader(offset..END), offset });
                    }
                    Some(reader) if action == 0 => {
                        windows.remove_reader(reader.id);
                        readers[number] = None;
                    }
                    Some(Reader { id, offset }) => {
                        let window = offset / WINDOW_BYTES;
                        if offset >= END {
                            continue;
                        }
                        windows.prefetched.entry(window).or_insert(window);
                        let next = ((window + 1) * WINDOW_BYTES).min(END);
                        readers[number] = Some(Reader { id, offset: next });
                        // Going back drops nothing.
                        prop_assert!(windows.advance_reader(id, offset).is_empty());
                        prop_assert!(windows.advance_reader(id, 0).is_empty());
                        let dropped = windows.advance_reader(id, next);
                        let is_needed = readers.iter().flatten().any(|reader| {
                            reader.offset < next && window - reader.offset / WINDOW_BYTES <= LAG_WINDOWS_MAX
                        });
                        prop_assert_eq!(dropped.contains(&window), !is_needed);
                    }
                }
            }
            for reader in readers.into_iter().flatten() {
                windows.remove_reader(reader.id);
            }
            prop_assert!(windows.prefetched.is_empty());
            prop_assert!(windows.readers.is_empty());
        }
    }

    #[test]
    fn pieces_end_at_windows_and_ranges() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        let content: Vec<u8> = (0..WINDOW_BYTES as usize * 2 + 100).map(|offset| (offset % 251) as u8).collect();
        std::fs::write(&path, &content).expect("written");
        let files = OpenFiles::default();
        let open = || {
            let file = File::open(&path).expect("opened");
            let stat = rustix::fs::fstat(&file).expect("its length");
            files.share(file, &stat, IoHint::Gentle)
        };
        let shared = open();
        assert!(Arc::ptr_eq(&shared, &open()), "the open file is shared");
        for range in [0..content.len() as u64, 5..6, WINDOW_BYTES - 1..WINDOW_BYTES + 1] {
            let reader = SharedFileReader::new(shared.clone(), range.clone());
            let mut read = Vec::new();
            let mut buffer = vec![0; 300_000];
            while (read.len() as u64) < range.end - range.start {
                let offset = range.start + read.len() as u64;
                let length = reader.piece_bytes(offset, buffer.len() as u64) as usize;
                assert!(length > 0);
                reader.prefetch(offset);
                reader.read(offset, &mut buffer[..length]).expect("read");
                read.extend_from_slice(&buffer[..length]);
            }
            assert!(read == content[range.start as usize..range.end as usize], "{range:?}");
        }
        assert!(shared.windows.lock().readers.is_empty());
        // The file is truncated while it is read.
        let reader = SharedFileReader::new(shared.clone(), 0..content.len() as u64);
        File::options().write(true).open(&path).expect("opened").set_len(10).expect("truncated");
        assert!(reader.read(0, &mut vec![0; 1000]).is_err());
        drop((shared, reader));
        open();
        assert_eq!(files.0.lock().len(), 1);
    }
}
