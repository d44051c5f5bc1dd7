//! System calls for page cache and I/O priority as safe functions. All `unsafe` code of the module
//! `io` is here.
//!
//! Queries of the page cache never fail: they return `None` if the kernel or the file system does not
//! support them. Writing back and setting a priority return their errors.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::{io, ptr};

/// `cachestat`, since Linux 6.5; the number on x86-64, AArch64 and RISC-V.
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

/// True if the kernel does not support `cachestat`. Remembering this saves a useless call for each
/// storage.
static LACKS_CACHESTAT: AtomicBool = AtomicBool::new(false);

pub fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// Returns how many pages of a range are in the page cache, or `None` if the kernel does not
/// report it.
pub fn cached_pages(file: &File, range: &Range<u64>) -> Option<u64> {
    if LACKS_CACHESTAT.load(Relaxed) {
        return None;
    }
    let queried_range = CachestatRange { offset: range.start, length: range.end - range.start };
    let mut counts = Cachestat::default();
    // SAFETY: both structures have the kernel's layout and live until the call returns; the
    // descriptor is open.
    let result = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_raw_fd(),
            ptr::from_ref(&queried_range),
            ptr::from_mut(&mut counts),
            0 as libc::c_uint,
        )
    };
    if result == 0 {
        return Some(counts.cached);
    }
    if io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS) {
        LACKS_CACHESTAT.store(true, Relaxed);
    }
    None
}

/// Returns for each page of a range whether it is in the page cache, or `None` if the file cannot be
/// mapped. The range must begin at a page boundary.
///
/// Linux reports this only to users who own the file or may write to it. To others, it reports every page
/// as resident.
pub fn resident_pages(file: &File, range: &Range<u64>) -> Option<Vec<bool>> {
    let length = usize::try_from(range.end.checked_sub(range.start)?).ok()?;
    if length == 0 {
        return Some(Vec::new());
    }
    let mut pages = vec![0u8; length.div_ceil(page_bytes() as usize)];
    // SAFETY: a new mapping of an open file at an address chosen by the kernel. It is never read,
    // so a truncated file cannot raise SIGBUS. `mincore` writes one byte per page, for which
    // `pages` has room, and only this mapping is unmapped.
    let result = unsafe {
        let start = range.start.try_into().ok()?;
        let mapping = libc::mmap(ptr::null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), start);
        if mapping == libc::MAP_FAILED {
            return None;
        }
        let result = libc::mincore(mapping, length, pages.as_mut_ptr().cast());
        libc::munmap(mapping, length);
        result
    };
    (result == 0).then(|| pages.iter().map(|page| page & 1 != 0).collect())
}

/// Starts writing a range to disk.
///
/// # Errors
/// See [`write_back`].
pub fn start_write_back(file: &File, range: &Range<u64>) -> io::Result<()> {
    sync_file_range(file, range, libc::SYNC_FILE_RANGE_WRITE)
}

/// Writes a range to disk, and waits until it is written.
///
/// # Errors
/// The disk failed. The caller must not ignore the error: the kernel reports it only once, so a later
/// `fsync` would succeed.
pub fn write_back(file: &File, range: &Range<u64>) -> io::Result<()> {
    const WAIT: u32 = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    sync_file_range(file, range, libc::SYNC_FILE_RANGE_WRITE | WAIT)
}

fn sync_file_range(file: &File, range: &Range<u64>, flags: u32) -> io::Result<()> {
    let out_of_range = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let offset = range.start.try_into().map_err(out_of_range)?;
    let length = (range.end - range.start).try_into().map_err(out_of_range)?;
    // SAFETY: no memory is passed; the descriptor is open.
    if unsafe { libc::sync_file_range(file.as_raw_fd(), offset, length, flags) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // Not supported by the file system or for this kind of file: the final `fsync` does all the
        // work.
        Some(libc::ENOSYS | libc::EINVAL | libc::ESPIPE | libc::EOPNOTSUPP) => Ok(()),
        _ => Err(error),
    }
}

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
