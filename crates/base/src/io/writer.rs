//! Writing behind: data goes to disk soon after it was written, and then leaves the page cache. What is dirty is bounded,
//! so that the last sync is short and no other process waits behind it.

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::num::NonZeroU64;
use std::ops::Range;

use parking_lot::Mutex;
use rustix::fs::{Advice, fadvise};

use super::IoHint;
use super::calls::write_back;

/// Written back at a time.
const WINDOW_BYTES: u64 = 8 * 1024 * 1024;

/// Windows that may be on their way to the disk before a writer waits for the oldest.
const WINDOWS_UNDER_WAY: u64 = 4;

/// Many small files: bytes that may be on their way, and files, each of which is kept open.
const FILES_BYTES_MAX: u64 = WINDOW_BYTES * WINDOWS_UNDER_WAY;
const FILES_MAX: usize = 128;

/// Writes a new file from its beginning to its end, as a hint says. [`Write::flush`] ends it.
#[derive(Debug)]
pub struct StreamWriter<F> {
    file: F,
    mode: Mode,
    written: u64,
}

#[derive(Debug)]
enum Mode {
    Plain,
    Gentle { started: u64, on_disk: u64 },
}

impl<F: Borrow<File>> StreamWriter<F> {
    /// Writes to a file that was just made.
    pub fn new(file: F, hint: IoHint) -> Self {
        let mode = match hint {
            IoHint::None => Mode::Plain,
            IoHint::Gentle => Mode::Gentle { started: 0, on_disk: 0 },
        };
        Self { file, mode, written: 0 }
    }

    fn write_behind(&mut self) -> io::Result<()> {
        let Mode::Gentle { started, on_disk } = &mut self.mode else { return Ok(()) };
        while self.written - *started >= WINDOW_BYTES {
            write_back(self.file.borrow(), &(*started..*started + WINDOW_BYTES), false)?;
            *started += WINDOW_BYTES;
            if *started - *on_disk >= WINDOWS_UNDER_WAY * WINDOW_BYTES {
                write_back(self.file.borrow(), &(*on_disk..*on_disk + WINDOW_BYTES), true)?;
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
        let written = self.file.borrow().write(bytes)?;
        self.written += written as u64;
        self.write_behind()?;
        Ok(written)
    }

    /// Everything was written: what is left goes to disk, and from the page cache.
    fn flush(&mut self) -> io::Result<()> {
        if let Mode::Gentle { started, on_disk } = &mut self.mode {
            write_back(self.file.borrow(), &(*on_disk..self.written), true)?;
            (*started, *on_disk) = (self.written, self.written);
            drop_written(self.file.borrow(), self.written);
        }
        Ok(())
    }
}

/// Drops the pages up to `end`. From the beginning: a page in a large unit that reached beyond an earlier end is
/// dropped only now.
fn drop_written(file: &File, end: u64) {
    if let Some(length) = NonZeroU64::new(end) {
        // A hint: where it is not taken, pages stay until the memory is needed.
        let _ = fadvise(file, 0, Some(length), Advice::DontNeed);
    }
}

/// Writes a range of a new file to disk, waits for that, and drops its pages.
pub(super) fn write_out(file: &File, range: &Range<u64>) -> io::Result<()> {
    write_back(file, range, true)?;
    drop_written(file, range.end);
    Ok(())
}

/// Many new files, written by many workers: the oldest go to disk, and from the page cache, as newer ones come.
#[derive(Debug)]
pub struct WriteBehind {
    hint: IoHint,
    under_way: Mutex<UnderWay>,
}

#[derive(Debug, Default)]
struct UnderWay {
    files: VecDeque<(File, Range<u64>)>,
    bytes: u64,
}

impl UnderWay {
    fn pop(&mut self) -> Option<(File, Range<u64>)> {
        let (file, range) = self.files.pop_front()?;
        self.bytes -= range.end - range.start;
        Some((file, range))
    }

    fn is_too_much(&self) -> bool {
        self.bytes > FILES_BYTES_MAX || self.files.len() > FILES_MAX
    }
}

impl WriteBehind {
    /// As a hint says.
    pub fn new(hint: IoHint) -> Self {
        Self { hint, under_way: Mutex::default() }
    }

    /// A worker has written a range of a file. Waits for older ones where too much is on its way; an error may be about
    /// one of those.
    pub fn add(&self, file: File, range: Range<u64>) -> io::Result<()> {
        if self.hint == IoHint::None || range.is_empty() {
            return Ok(());
        }
        write_back(&file, &range, false)?;
        let mut under_way = self.under_way.lock();
        under_way.bytes += range.end - range.start;
        under_way.files.push_back((file, range));
        let mut oldest = Vec::new();
        while under_way.is_too_much() {
            oldest.extend(under_way.pop());
        }
        drop(under_way);
        oldest.iter().try_for_each(|(file, range)| write_out(file, range))
    }

    /// Waits for everything.
    pub fn finish(&self) -> io::Result<()> {
        let mut under_way = self.under_way.lock();
        std::iter::from_fn(|| under_way.pop()).try_for_each(|(file, range)| write_out(&file, &range))
    }
}
