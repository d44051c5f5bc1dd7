//! Looks ahead in a buffered stream, and counts the bytes that have been consumed.

use std::io::{self, BufRead};
use std::path::Path;

use slotpress_base::{Error, Result, fill_buf, split_at_most, to_usize};

pub struct Peeker<R> {
    input: R,
    /// Bytes that were peeked across the end of the input's buffer.
    carried: Vec<u8>,
    position: u64,
}

impl<R: BufRead> Peeker<R> {
    pub fn new(input: R) -> Self {
        Self { input, carried: Vec::new(), position: 0 }
    }

    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the next bytes without consuming them: at least `count`, or fewer at the end of the
    /// stream.
    pub fn peek(&mut self, count: usize) -> Result<&[u8]> {
        if self.carried.is_empty() && fill(&mut self.input)?.len() >= count {
            return fill(&mut self.input);
        }
        while self.carried.len() < count {
            let missing = count.saturating_sub(self.carried.len());
            let (part, _) = split_at_most(fill(&mut self.input)?, missing);
            let step = part.len();
            if step == 0 {
                break;
            }
            self.carried.extend_from_slice(part);
            self.input.consume(step);
        }
        Ok(&self.carried)
    }

    pub fn consume(&mut self, count: usize) {
        self.position = self.position.saturating_add(count as u64);
        if self.carried.is_empty() {
            self.input.consume(count);
        } else {
            self.carried.drain(..count.min(self.carried.len()));
        }
    }

    pub fn take(&mut self, count: usize, buf: &mut Vec<u8>) -> Result<()> {
        self.consume_in_parts(count as u64, |part| buf.extend_from_slice(part))
    }

    pub fn skip(&mut self, count: u64) -> Result<()> {
        self.consume_in_parts(count, |_| ())
    }

    fn consume_in_parts(&mut self, mut count: u64, mut on_part: impl FnMut(&[u8])) -> Result<()> {
        while count > 0 {
            let (part, _) = split_at_most(self.peek(1)?, to_usize(count));
            let step = part.len();
            on_part(part);
            if step == 0 {
                return Err(truncated_error(self.position));
            }
            self.consume(step);
            count = count.saturating_sub(step as u64);
        }
        Ok(())
    }
}

fn fill<R: BufRead>(input: &mut R) -> Result<&[u8]> {
    fill_buf(input).map_err(|error| read_error(&error))
}

/// Creates the error of a stream. A stream has no path, so the error names the archive in its place.
pub fn read_error(error: &io::Error) -> Error {
    Error::io("read", Path::new("the archive"), error)
}

pub fn truncated_error(position: u64) -> Error {
    Error::damaged(format!("the archive is truncated: it ends inside a frame, after {position} bytes"))
        .with_hint("the download did not finish: download it again")
        .at_offset(position)
}
