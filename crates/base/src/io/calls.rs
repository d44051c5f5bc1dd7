//! The system calls behind good io_policy, as safe functions. All `unsafe` of this module is here.
//!
//! None of them is needed for a correct result: where a kernel or a file system lacks one, the answer is `None`, or
//! nothing happens. The exception is writing back: an error there is an error of the disk, and is handed on.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::{io, ptr};

/// `cachestat`, since Linux 6.5; the number is the same on every architecture but alpha.
const SYS_CACHESTAT: libc::c_long = 451;

#[repr(C)]
struct CachestatRange {
    offset: u64,
    length: u64,
}

#[repr(C)]
#[derive(Default)]
struct Cachestat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Set when the kernel turned out not to know `cachestat`, so that it is not asked 430,000 times.
static LACKS_CACHESTAT: AtomicBool = AtomicBool::new(false);

/// Bytes of a page.
pub fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// How many pages of a range are in the page cache. `None`: the kernel does not tell, or not for this file.
pub fn cached_pages(file: &File, range: &Range<u64>) -> Option<u64> {
    if LACKS_CACHESTAT.load(Relaxed) {
        return None;
    }
    let asked = CachestatRange { offset: range.start, length: range.end - range.start };
    let mut told = Cachestat::default();
    // SAFETY: both structures have the kernel's layout and live until the call returns; the descriptor is open.
    let result = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_raw_fd(),
            ptr::from_ref(&asked),
            ptr::from_mut(&mut told),
            0 as libc::c_uint,
        )
    };
    if result == 0 {
        return Some(told.cached);
    }
    if io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS) {
        LACKS_CACHESTAT.store(true, Relaxed);
    }
    None
}

/// Which pages of a range, that begins at a page, are in the page cache. `None`: the file cannot be mapped.
///
/// Linux tells only the owner of a file, and those who may write it; for others, every page counts as resident.
pub fn resident_pages(file: &File, range: &Range<u64>) -> Option<Vec<bool>> {
    let length = usize::try_from(range.end.checked_sub(range.start)?).ok()?;
    if length == 0 {
        return Some(Vec::new());
    }
    let mut pages = vec![0u8; length.div_ceil(page_bytes() as usize)];
    // SAFETY: a fresh mapping of an open file, at an address that the kernel chooses. It is never read, so that a file
    // that is cut meanwhile cannot raise SIGBUS; `mincore` writes one byte per page, for which `pages` has room; and
    // what is unmapped is what was mapped.
    let result = unsafe {
        let start = range.start.try_into().ok()?;
        let at = libc::mmap(ptr::null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), start);
        if at == libc::MAP_FAILED {
            return None;
        }
        let result = libc::mincore(at, length, pages.as_mut_ptr().cast());
        libc::munmap(at, length);
        result
    };
    (result == 0).then(|| pages.iter().map(|page| page & 1 != 0).collect())
}

/// Starts writing a range to disk, and with `is_awaited` waits until it is there.
///
/// An error is one of the disk, and must be handed on: the kernel tells it once, and `fsync` would not tell it again.
pub fn write_back(file: &File, range: &Range<u64>, is_awaited: bool) -> io::Result<()> {
    let mut flags = libc::SYNC_FILE_RANGE_WRITE;
    if is_awaited {
        flags |= libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    }
    let too_far = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let (offset, length) =
        (range.start.try_into().map_err(too_far)?, (range.end - range.start).try_into().map_err(too_far)?);
    // SAFETY: no memory is passed; the descriptor is open.
    if unsafe { libc::sync_file_range(file.as_raw_fd(), offset, length, flags) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // Not on this file system, or not for this kind of file: the last fsync does it all.
        Some(libc::ENOSYS | libc::EINVAL | libc::ESPIPE | libc::EOPNOTSUPP) => Ok(()),
        _ => Err(error),
    }
}

/// Puts the calling thread, and those that it starts later, into an I/O priority class.
pub fn set_io_priority(class: u32, level: u32) -> io::Result<()> {
    const WHO_PROCESS: libc::c_int = 1;
    const CLASS_SHIFT: u32 = 13;
    let priority = class << CLASS_SHIFT | level;
    // SAFETY: numbers only; 0 is the calling thread.
    match unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, priority) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
