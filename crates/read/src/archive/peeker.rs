//! A buffered reader that can look ahead and knows its offset.

use std::io::Read;

use slotpress_base::{Error, Result, split_at_most, to_usize};

const READ_BUFFER_BYTES: usize = 1024 * 1024;

pub struct Peeker<R> {
    input: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    position: u64,
}

impl<R: Read> Peeker<R> {
    pub fn new(input: R) -> Self {
        Self { input, buffer: vec![0; READ_BUFFER_BYTES], start: 0, end: 0, position: 0 }
    }

    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the next bytes without consuming them: at least `count`, or fewer at the end of the
    /// stream.
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
                Err(error) => return Err(Error::of_reading(&error)),
            }
        }
        Ok(self.buffered())
    }

    fn buffered(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }

    pub fn consume(&mut self, count: usize) {
        let count = count.min(self.buffered().len());
        self.start = self.start.saturating_add(count);
        self.position = self.position.saturating_add(count as u64);
    }

    pub fn take(&mut self, count: usize, to: &mut Vec<u8>) -> Result<()> {
        self.pass(count as u64, |part| to.extend_from_slice(part))
    }

    pub fn skip(&mut self, count: u64) -> Result<()> {
        self.pass(count, |_| ())
    }

    fn pass(&mut self, mut count: u64, mut on_part: impl FnMut(&[u8])) -> Result<()> {
        while count > 0 {
            let (part, _) = split_at_most(self.peek(1)?, to_usize(count));
            let step = part.len();
            on_part(part);
            if step == 0 {
                return Err(cut_off(self.position));
            }
            self.consume(step);
            count = count.saturating_sub(step as u64);
        }
        Ok(())
    }
}

pub fn cut_off(position: u64) -> Error {
    Error::damaged(format!("the archive is cut off: it ends inside a frame, after {position} bytes"))
        .with_hint("the download did not finish: download it again")
        .at_offset(position)
}
