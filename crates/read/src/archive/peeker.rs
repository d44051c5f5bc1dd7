//! Looking ahead in a stream of bytes.

use std::io::Read;

use slotpress_base::{Error, Result, split_at_most, to_usize};

/// Read-ahead.
const READ_BUFFER_BYTES: usize = 1024 * 1024;

/// A reader that can look ahead, and knows where it is.
pub struct Peeker<R> {
    input: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    position: u64,
}

impl<R: Read> Peeker<R> {
    /// At the beginning of `input`.
    pub fn new(input: R) -> Self {
        Self { input, buffer: vec![0; READ_BUFFER_BYTES], start: 0, end: 0, position: 0 }
    }

    /// Where the next byte is in the stream.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The next bytes: at least `count`, or all that are left.
    pub fn peek(&mut self, count: usize) -> Result<&[u8]> {
        while self.buffered().len() < count {
            if self.start > 0 {
                self.buffer.copy_within(self.start..self.end, 0);
                self.end = self.end.saturating_sub(self.start);
                self.start = 0;
            }
            match self.input.read(self.buffer.get_mut(self.end..).unwrap_or_default()) {
                Ok(0) => break,
                Ok(read) => self.end = self.end.saturating_add(read),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::failed(format!("cannot read the archive: {error}"))),
            }
        }
        Ok(self.buffered())
    }

    fn buffered(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }

    /// Passes over bytes that were looked at.
    pub fn consume(&mut self, count: usize) {
        let count = count.min(self.buffered().len());
        self.start = self.start.saturating_add(count);
        self.position = self.position.saturating_add(count as u64);
    }

    /// Appends the next `count` bytes.
    pub fn take(&mut self, mut count: usize, to: &mut Vec<u8>) -> Result<()> {
        while count > 0 {
            let available = self.peek(1)?;
            if available.is_empty() {
                return Err(cut_off(self.position));
            }
            let (part, _) = split_at_most(available, count);
            to.extend_from_slice(part);
            let step = part.len();
            self.consume(step);
            count = count.saturating_sub(step);
        }
        Ok(())
    }

    /// Passes over the next `count` bytes.
    pub fn skip(&mut self, mut count: u64) -> Result<()> {
        while count > 0 {
            let available = self.peek(1)?.len();
            if available == 0 {
                return Err(cut_off(self.position));
            }
            let step = available.min(to_usize(count));
            self.consume(step);
            count = count.saturating_sub(step as u64);
        }
        Ok(())
    }
}

/// The error for a stream that ends too early.
pub fn cut_off(position: u64) -> Error {
    Error::damaged(format!("the archive is cut off: it ends inside a frame, after {position} bytes"))
        .with_hint("the download did not finish: download it again")
        .at_offset(position)
}
