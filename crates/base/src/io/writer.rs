//! Writes a new file sequentially, bypassing the page cache where possible. Otherwise starts
//! writeback early, and drops pages once they are on disk. The amount of dirty data is bounded, so
//! the final sync is short and delays no other process.

use std::borrow::Borrow;
use std::fs::File;
use std::io::{self, Write};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rustix::fs::{Advice, fadvise};

use super::IoHint;
use super::calls::{start_write_back, write_back};
use super::direct::{AlignedBuffer, DirectFile};

/// Length of the pieces in which written bytes are written back.
const WINDOW_BYTES: u64 = 8 * 1024 * 1024;

/// Length of a direct request. It is long, because only one request is under way at a time. The end of
/// the file, which does not fill a request, goes through the page cache.
const DIRECT_BYTES: usize = 2 * 1024 * 1024;

/// Limit on the windows that are being written back. At the limit, the writer waits for the oldest.
const WINDOWS_IN_FLIGHT: u64 = 4;

/// Writes a new file from start to end with the given page cache policy. The last bytes may be written
/// only by [`StreamWriter::finish`].
#[derive(Debug)]
pub struct StreamWriter<F> {
    file: F,
    mode: Mode,
    written: u64,
}

#[derive(Debug)]
enum Mode {
    Plain,
    Direct(Box<Direct>),
    /// Bytes before `on_disk` are on disk, and bytes from there to `started` are being written back.
    Gentle {
        started: u64,
        on_disk: u64,
    },
}

#[derive(Debug)]
struct Direct {
    file: DirectFile,
    buffer: AlignedBuffer,
    filled: usize,
}

impl<F: Borrow<File>> StreamWriter<F> {
    pub fn new(file: F, hint: IoHint) -> Self {
        let mode = match hint {
            IoHint::None => Mode::Plain,
            IoHint::Gentle => Mode::Gentle { started: 0, on_disk: 0 },
        };
        Self { file, mode, written: 0 }
    }

    /// Makes a writer for a large file. Except with [`IoHint::None`], it bypasses the page cache
    /// where that is supported.
    pub fn direct(file: F, hint: IoHint) -> Self {
        let mut writer = Self::new(file, hint);
        if hint == IoHint::Gentle
            && let Some(file) = DirectFile::open_for_writing(writer.file.borrow())
        {
            writer.mode = Mode::Direct(Box::new(Direct { file, buffer: AlignedBuffer::new(DIRECT_BYTES), filled: 0 }));
        }
        writer
    }

    /// Collects bytes, and writes them directly when there are enough. Returns the number of bytes that
    /// were collected, or `None` if bytes go through the page cache.
    fn write_directly(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        let Mode::Direct(direct) = &mut self.mode else { return Ok(None) };
        let Direct { file, buffer, filled } = direct.as_mut();
        let room = &mut buffer.bytes()[*filled..];
        let taken = room.len().min(bytes.len());
        room[..taken].copy_from_slice(&bytes[..taken]);
        *filled += taken;
        if *filled == DIRECT_BYTES {
            let range = self.written..self.written + DIRECT_BYTES as u64;
            let is_written = file.write_all_at(buffer.bytes(), range.start)?;
            if is_written {
                *filled = 0;
                self.written = range.end;
            }
            if !is_written || !file.has_bypassed_cache(&range) {
                self.end_direct()?;
            }
        }
        Ok(Some(taken))
    }

    /// Ends direct writing: the collected bytes, and all later ones, go through the page cache.
    fn end_direct(&mut self) -> io::Result<()> {
        let gentle = Mode::Gentle { started: self.written, on_disk: self.written };
        if let Mode::Direct(mut direct) = std::mem::replace(&mut self.mode, gentle) {
            self.file.borrow().write_all_at(&direct.buffer.bytes()[..direct.filled], self.written)?;
            self.written += direct.filled as u64;
        }
        Ok(())
    }

    /// Writes the collected bytes, waits until all bytes are on disk, and drops them from the page cache.
    /// Does nothing with [`IoHint::None`].
    ///
    /// # Errors
    /// The disk fails, or is full.
    pub fn finish(&mut self) -> io::Result<()> {
        if let Mode::Direct(_) = self.mode {
            self.end_direct()?;
        }
        if let Mode::Gentle { started, on_disk } = &mut self.mode {
            write_back(self.file.borrow(), &(*on_disk..self.written))?;
            *started = self.written;
            *on_disk = self.written;
            drop_written(self.file.borrow(), self.written);
        }
        Ok(())
    }

    fn write_back_windows(&mut self) -> io::Result<()> {
        let Mode::Gentle { started, on_disk } = &mut self.mode else { return Ok(()) };
        while self.written - *started >= WINDOW_BYTES {
            start_write_back(self.file.borrow(), &(*started..*started + WINDOW_BYTES))?;
            *started += WINDOW_BYTES;
            if *started - *on_disk >= WINDOWS_IN_FLIGHT * WINDOW_BYTES {
                write_back(self.file.borrow(), &(*on_disk..*on_disk + WINDOW_BYTES))?;
                *on_disk += WINDOW_BYTES;
                drop_written(self.file.borrow(), *on_disk);
            }
        }
        Ok(())
    }
}

impl<F: Borrow<File>> Write for StreamWriter<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        crate::threads::panic_point("file writer");
        if let Some(taken) = self.write_directly(bytes)? {
            return Ok(taken);
        }
        let written = self.file.borrow().write_at(bytes, self.written)?;
        self.written += written as u64;
        self.write_back_windows()?;
        Ok(written)
    }

    /// Does nothing: only whole blocks can be written directly, and [`StreamWriter::finish`] writes the
    /// other bytes.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Drops pages up to `end`. Always begins at the start of the file, because a large page that extended
/// beyond an earlier end was not dropped then.
fn drop_written(file: &File, end: u64) {
    if let Some(length) = NonZeroU64::new(end) {
        // A hint: if the kernel ignores it, pages stay until memory is needed.
        let _ = fadvise(file, 0, Some(length), Advice::DontNeed);
    }
}

/// Writes a range of a new file to disk, waits until it is written, and drops its pages.
pub(super) fn write_out(file: &File, range: &Range<u64>) -> io::Result<()> {
    write_back(file, range)?;
    drop_written(file, range.end);
    Ok(())
}
