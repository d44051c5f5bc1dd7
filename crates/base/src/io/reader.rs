//! Reads a file from start to end without filling the page cache.

use std::borrow::Borrow;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use super::IoHint;
use super::residency::Cold;

/// Bytes that are checked, prefetched and dropped at a time. At most two windows are in the page
/// cache.
const WINDOW_BYTES: u64 = 4 * 1024 * 1024;

#[derive(Debug)]
pub struct StreamReader<F: Borrow<File>> {
    file: F,
    file_bytes: u64,
    position: u64,
    /// The windows that are read now and next, with [`IoHint::Gentle`].
    windows: Option<[Window; 2]>,
}

#[derive(Debug, Default)]
struct Window {
    range: Range<u64>,
    cold: Cold,
}

impl Window {
    fn open(file: &File, start: u64, file_bytes: u64) -> Self {
        let range = start..file_bytes.min(start.saturating_add(WINDOW_BYTES)).max(start);
        let cold = Cold::look(file, &range, file_bytes);
        cold.prefetch(file);
        Self { range, cold }
    }
}

impl<F: Borrow<File>> StreamReader<F> {
    /// Reads `file`, which has the given length.
    pub fn new(file: F, file_bytes: u64, hint: IoHint) -> Self {
        let windows = (hint == IoHint::Gentle).then(|| {
            let current = Window::open(file.borrow(), 0, file_bytes);
            let next = Window::open(file.borrow(), current.range.end, file_bytes);
            [current, next]
        });
        Self { file, file_bytes, position: 0, windows }
    }
}

impl<F: Borrow<File>> Read for StreamReader<F> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let file = self.file.borrow();
        let mut length = to.len();
        // Data that was appended after opening is read without this policy.
        if let Some([current, next]) = self.windows.as_mut().filter(|_| self.position < self.file_bytes) {
            if self.position >= current.range.end {
                current.cold.drop_from(file);
                *current = std::mem::take(next);
                *next = Window::open(file, current.range.end, self.file_bytes);
            }
            length = length.min((current.range.end - self.position) as usize);
        }
        let read = file.read_at(&mut to[..length], self.position)?;
        self.position += read as u64;
        Ok(read)
    }
}

impl<F: Borrow<File>> Drop for StreamReader<F> {
    fn drop(&mut self) {
        self.windows.iter().flatten().for_each(|window| window.cold.drop_from(self.file.borrow()));
    }
}
