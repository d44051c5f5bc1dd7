//! `O_DIRECT`: between the disk and our own memory, without the page cache. Addresses, offsets and lengths must be
//! multiples of the disk's block; 4 KiB suits every disk.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

/// What everything is a multiple of.
const ALIGN: usize = 4096;

/// Large, since nothing reads ahead and nothing writes behind: the next read or write starts when this one has ended.
const BUFFER_BYTES: usize = 4 * 1024 * 1024;

/// Memory that begins at a multiple of [`ALIGN`].
#[derive(Debug)]
pub(super) struct Buffer {
    memory: Vec<u8>,
    start: usize,
}

impl Buffer {
    pub(super) fn new() -> Self {
        let memory = vec![0; BUFFER_BYTES + ALIGN];
        let start = aligned_start(&memory);
        Self { memory, start }
    }

    pub(super) fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + BUFFER_BYTES]
    }
}

fn aligned_start(memory: &[u8]) -> usize {
    memory.as_ptr().align_offset(ALIGN).min(ALIGN)
}

/// Opens a file, that is open already, again with `O_DIRECT`. `None`: the file system does not do that, or another file
/// has taken the path.
pub(super) fn open(path: &Path, file: &File) -> Option<File> {
    let direct = OpenOptions::new().read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(path).ok()?;
    let (one, other) = (direct.metadata().ok()?, file.metadata().ok()?);
    if (one.dev(), one.ino()) != (other.dev(), other.ino()) {
        return None;
    }
    // Some file systems accept the flag, and refuse to read.
    let mut memory = vec![0; 2 * ALIGN];
    let start = aligned_start(&memory);
    direct.read_at(&mut memory[start..start + ALIGN], 0).ok()?;
    Some(direct)
}

/// Reads a range, whole blocks at a time.
pub(super) fn read_range<'b>(file: &File, range: &Range<u64>, buffer: &'b mut Vec<u8>) -> io::Result<&'b [u8]> {
    let align = ALIGN as u64;
    let first = range.start / align * align;
    let skip = (range.start - first) as usize;
    let wanted = (range.end - first) as usize;
    let padded = wanted.next_multiple_of(ALIGN);
    if buffer.len() < padded + ALIGN {
        buffer.resize(padded + ALIGN, 0);
    }
    let start = aligned_start(buffer);
    let to = &mut buffer[start..start + padded];
    let mut read = 0;
    while read < wanted {
        match file.read_at(&mut to[read..], first + read as u64) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if read < wanted && !read.is_multiple_of(ALIGN) {
            // Only the end of a file is not a whole block.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(&to[skip..wanted])
}

/// Reads a file from its beginning to its end.
#[derive(Debug)]
pub(super) struct Reader {
    file: File,
    buffer: Buffer,
    used: usize,
    filled: usize,
    /// Where the next block is read from.
    position: u64,
    is_over: bool,
}

impl Reader {
    pub(super) fn open(path: &Path, file: &File) -> Option<Self> {
        let file = open(path, file)?;
        Some(Self { file, buffer: Buffer::new(), used: 0, filled: 0, position: 0, is_over: false })
    }
}

impl Reader {
    /// Reads the next piece, and drops it; returns its length, 0 at the end.
    pub(super) fn read_piece(&mut self) -> io::Result<usize> {
        (self.used, self.filled) = (0, 0);
        if self.is_over {
            return Ok(0);
        }
        let read = self.file.read_at(self.buffer.bytes(), self.position)?;
        self.position += read as u64;
        self.is_over = read == 0 || !read.is_multiple_of(ALIGN);
        Ok(read)
    }
}

impl Read for Reader {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.used == self.filled && !self.is_over {
            let read = self.file.read_at(self.buffer.bytes(), self.position)?;
            (self.used, self.filled) = (0, read);
            self.position += read as u64;
            // Only the end of a file is not a whole block; nothing can be read from inside one.
            self.is_over = read == 0 || !read.is_multiple_of(ALIGN);
        }
        let length = to.len().min(self.filled - self.used);
        to[..length].copy_from_slice(&self.buffer.bytes()[self.used..self.used + length]);
        self.used += length;
        Ok(length)
    }
}

/// Turns `O_DIRECT` on or off for an open file. `false`: the file system does not do that.
pub(super) fn set(file: &File, is_direct: bool) -> bool {
    fcntl_getfl(file).and_then(|flags| fcntl_setfl(file, with_direct(flags, is_direct))).is_ok()
}

fn with_direct(flags: OFlags, is_direct: bool) -> OFlags {
    if is_direct { flags | OFlags::DIRECT } else { flags & !OFlags::DIRECT }
}

/// Whether an error says that a write cannot be direct, rather than that the disk has failed.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    [Errno::INVAL, Errno::OPNOTSUPP].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
