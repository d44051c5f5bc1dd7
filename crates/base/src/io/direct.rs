//! Reads and writes files without the page cache (`O_DIRECT`): directly between the disk and a
//! buffer of this process. The kernel then need not fill, copy and drop pages.
//!
//! If a file system does not support this, callers use the page cache as usual. A file system may
//! refuse the flag or the first request, or accept both and still fill the page cache. Each
//! case is noticed at the first piece.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use parking_lot::Mutex;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use super::calls::{cached_pages, page_bytes};

/// Alignment of memory, offsets and lengths. Disks need 512 or 4,096 bytes. If a disk needs more,
/// the kernel refuses the first request, and the page cache is used.
pub const ALIGNMENT_BYTES: usize = 4096;

/// Length of a read request, and of the buffer of each reading thread: long enough for the full
/// rate of a disk with a few concurrent requests, and short enough to stay in a core's cache until
/// it is copied.
const REQUEST_BYTES: usize = 1024 * 1024;

/// Smallest piece that is read directly. For a smaller one, opening the file again costs more than
/// it saves.
const PIECE_BYTES_MIN: u64 = 64 * 1024;

/// Limit on the number of remembered file systems: more than a ledger and its archives use.
const FILE_SYSTEMS_MAX: usize = 64;

/// File systems that have been tried, by device: true if they support direct requests.
static FILE_SYSTEMS: Mutex<BTreeMap<u64, bool>> = Mutex::new(BTreeMap::new());

fn known_support(device: u64) -> Option<bool> {
    FILE_SYSTEMS.lock().get(&device).copied()
}

fn remember_support(device: u64, is_supported: bool) {
    let mut known = FILE_SYSTEMS.lock();
    if known.len() < FILE_SYSTEMS_MAX {
        known.entry(device).or_insert(is_supported);
    }
}

#[derive(Debug)]
pub struct DirectFile {
    file: File,
    device: u64,
}

impl DirectFile {
    /// Opens a file to read a piece of this length directly. Returns `None` if the file system does
    /// not support this, or if the piece is too short.
    pub fn open_for_reading(file: &File, piece_bytes: u64) -> Option<Self> {
        if piece_bytes < PIECE_BYTES_MIN { None } else { Self::open(file, OFlags::RDONLY) }
    }

    /// Opens a file to write it directly. Returns `None` if the file system does not support this.
    pub fn open_for_writing(file: &File) -> Option<Self> {
        Self::open(file, OFlags::WRONLY)
    }

    fn open(file: &File, access: OFlags) -> Option<Self> {
        let device = file.metadata().ok()?.dev();
        if known_support(device) == Some(false) {
            return None;
        }
        // This path leads to the open file, even if another file now has its name.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        match rustix::fs::openat(CWD, path, access | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty()) {
            Ok(descriptor) => Some(Self { file: File::from(descriptor), device }),
            Err(Errno::INVAL) => {
                remember_support(device, false);
                None
            }
            // Too many files are open, or /proc is missing: it may work for the next file.
            Err(_) => None,
        }
    }

    /// Fills `buf` with the bytes at `offset`. Returns false, and leaves arbitrary bytes in `buf`, if direct
    /// reads are not supported or the file ends first. The caller must then read through the page cache, which
    /// reports the early end.
    ///
    /// # Errors
    /// The disk fails.
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<bool> {
        self.note_refusal(BUFFER.with_borrow_mut(|buffer| self.fill(buffer.bytes(), buf, offset)))
    }

    /// Writes whole blocks, which must be in an [`AlignedBuffer`]. Returns false if direct writes are not
    /// supported; the caller must then write them through the page cache.
    ///
    /// # Errors
    /// The disk fails, or is full.
    pub fn write_all_at(&self, blocks: &[u8], offset: u64) -> io::Result<bool> {
        self.note_refusal(self.file.write_all_at(blocks, offset).map(|()| true))
    }

    fn note_refusal(&self, result: io::Result<bool>) -> io::Result<bool> {
        match result {
            Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::INVAL | Errno::OPNOTSUPP)) => {
                remember_support(self.device, false);
                Ok(false)
            }
            result => result,
        }
    }

    /// False if the file system still filled the page cache when a range was read or written. Examines the
    /// page cache only after the first request to a file system.
    pub fn has_bypassed_cache(&self, range: &Range<u64>) -> bool {
        if let Some(is_supported) = known_support(self.device) {
            return is_supported;
        }
        let page_bytes = page_bytes();
        let pages = range.start.next_multiple_of(page_bytes)..range.end / page_bytes * page_bytes;
        let count = pages.end.saturating_sub(pages.start) / page_bytes;
        let is_supported = count == 0 || cached_pages(&self.file, &pages) != Some(count);
        remember_support(self.device, is_supported);
        is_supported
    }

    fn fill(&self, aligned: &mut [u8], buf: &mut [u8], offset: u64) -> io::Result<bool> {
        let mut filled = 0;
        while filled < buf.len() {
            let position = offset + filled as u64;
            let skipped = position as usize % ALIGNMENT_BYTES;
            let unfilled = &mut buf[filled..];
            let request_bytes = (skipped + unfilled.len()).next_multiple_of(ALIGNMENT_BYTES).min(REQUEST_BYTES);
            let read = match self.file.read_at(&mut aligned[..request_bytes], position - skipped as u64) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            let Some(wanted) = aligned[..read].get(skipped..).filter(|wanted| !wanted.is_empty()) else {
                return Ok(false);
            };
            let length = wanted.len().min(unfilled.len());
            unfilled[..length].copy_from_slice(&wanted[..length]);
            filled += length;
        }
        Ok(true)
    }
}

thread_local! {
    static BUFFER: RefCell<AlignedBuffer> = const { RefCell::new(AlignedBuffer::new(REQUEST_BYTES)) };
}

/// Aligned memory inside a vector, which is allocated at first use.
#[derive(Debug)]
pub struct AlignedBuffer {
    memory: Vec<u8>,
    length: usize,
}

impl AlignedBuffer {
    /// Makes a buffer of this length, which must be a multiple of [`ALIGNMENT_BYTES`].
    pub const fn new(length: usize) -> Self {
        Self { memory: Vec::new(), length }
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        if self.memory.is_empty() {
            self.memory = vec![0; self.length + ALIGNMENT_BYTES];
        }
        let start = self.memory.as_ptr().align_offset(ALIGNMENT_BYTES).min(ALIGNMENT_BYTES);
        &mut self.memory[start..start + self.length]
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::Path;
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use super::*;
    use crate::IoHint;

    static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| (0..2_500_123usize).map(|at| (at * 31 % 251) as u8).collect());

    /// Makes a file that is not in the page cache. It is next to the test program, which is on a
    /// disk more often than `/tmp`.
    fn cold_file() -> File {
        let program = std::env::current_exe().expect("the path of the program");
        file_in(program.parent().expect("a directory"))
    }

    fn file_in(dir: &Path) -> File {
        let mut file = tempfile::tempfile_in(dir).expect("a temporary file");
        file.write_all(&BYTES).expect("written");
        crate::io::writer::write_out(&file, &(0..BYTES.len() as u64)).expect("on disk");
        file
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        /// Reading any range directly returns the bytes of the file, and leaves none of them in the page
        /// cache, except at the ends of the range. Reading beyond the end of the file fails.
        #[test]
        fn ranges_have_the_bytes_of_the_file(start in 0usize..3_000_000, length in 0usize..3_000_000) {
            let file = cold_file();
            let range = start as u64..(start + length) as u64;
            let whole = 0..BYTES.len() as u64;
            let mut to = vec![0; length];
            let read = IoHint::Gentle.open_range(&file, &range, whole.end).read_exact_at(&mut to, range.start);
            match BYTES.get(start..start + length) {
                Some(expected) => {
                    read.expect("a range of the file");
                    prop_assert!(to == expected);
                }
                None if length == 0 => {}
                None => prop_assert!(read.is_err_and(|error| error.kind() == io::ErrorKind::UnexpectedEof)),
            }
            // The pages at the ends of the range may belong to other ranges, too, so they may stay.
            prop_assert!(cached_pages(&file, &whole).is_none_or(|pages| pages <= 2));
        }
    }

    #[test]
    fn cold_pieces_are_read_directly() {
        let file = cold_file();
        let whole = 0..BYTES.len() as u64;
        let is_read_directly = |range: &Range<u64>, hint: IoHint| {
            let mut to = vec![0; (range.end - range.start) as usize];
            let mut piece = hint.open_range(&file, range, whole.end);
            piece.read_exact_at(&mut to, range.start).expect("read");
            piece.direct.is_some()
        };
        if !is_read_directly(&whole, IoHint::Gentle) {
            println!(
                "skipped: direct::cold_pieces_are_read_directly: the tests are not on a disk that can be read directly"
            );
            return;
        }
        file.read_exact_at(&mut [0; 512], 0).expect("read");
        assert!(is_read_directly(&whole, IoHint::Gentle), "only the header is in the page cache");
        assert!(cached_pages(&file, &(0..512)).is_none_or(|pages| pages == 1), "its header stays in the page cache");
        assert!(!is_read_directly(&(0..10_000), IoHint::Gentle), "a small range");
        assert!(!is_read_directly(&whole, IoHint::None), "the page cache is left to the kernel");
        assert!(!is_read_directly(&whole, IoHint::Gentle), "the file is in the page cache now");
    }

    /// A file system in memory refuses direct requests, or still uses the page cache. This
    /// is noticed at the first piece.
    #[test]
    fn file_systems_without_direct_requests_are_noticed() {
        let memory = Path::new("/dev/shm");
        if !memory.is_dir() {
            println!(
                "skipped: direct::file_systems_without_direct_requests_are_noticed: there is no file system in memory"
            );
            return;
        }
        let file = file_in(memory);
        let mut to = vec![0; BYTES.len()];
        if let Some(direct) = DirectFile::open_for_reading(&file, to.len() as u64) {
            let is_read = direct.read_exact_at(&mut to, 0).expect("the disk works");
            assert!(!is_read || to == *BYTES);
            assert!(!is_read || !direct.has_bypassed_cache(&(0..BYTES.len() as u64)));
        }
        assert!(DirectFile::open_for_reading(&file, to.len() as u64).is_none());
    }
}
