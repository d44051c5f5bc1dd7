//! LZO1X. lzokay compresses; the decoder is our own, since that library's neither bounds what it gives nor survives damage.
//!
//! The format is described in the Linux kernel's documentation ("LZO stream format as understood by Linux's LZO
//! decompressor"): instructions that copy a match from earlier output and then up to three literals; the number of literals
//! before an instruction changes what its lowest values mean.

use {
    super::{FrameCodec, FrameDecode, FrameEncoder, check_length, undecodable},
    crate::error::{Error, Result},
    lzokay_native::{Dict, compress_with_dict, compress_worst_size},
};

/// LZO1X, which has one level.
#[derive(Clone, Copy, Debug)]
pub struct Lzo;

/// What lzokay's dictionary holds: chains, heads and a window.
const ENCODER_BYTES: usize = 2 * (16_384 * 2 + 51_199 * 2 + 65_536) + 53_247;

impl FrameCodec for Lzo {
    fn name(&self) -> &str {
        "lzo"
    }

    fn level(&self) -> i32 {
        0
    }

    fn new_encoder(&self) -> Result<Box<dyn FrameEncoder>> {
        Ok(Box::new(Encoder(Dict::new())))
    }

    fn new_decoder(&self) -> Result<Box<dyn FrameDecode>> {
        Ok(Box::new(Decoder))
    }

    fn encoded_bytes_max(&self, content_bytes: usize) -> usize {
        compress_worst_size(content_bytes)
    }
}

struct Encoder(Dict);

impl FrameEncoder for Encoder {
    fn encode(&mut self, content: &[u8], to: &mut Vec<u8>) -> Result<()> {
        *to = compress_with_dict(content, &mut self.0)
            .map_err(|error| Error::failed(format!("lzo cannot compress a frame: {error}")))?;
        Ok(())
    }

    fn context_bytes(&self) -> usize {
        ENCODER_BYTES
    }
}

struct Decoder;

impl FrameDecode for Decoder {
    fn decode(&mut self, frame: &[u8], content_bytes: usize, to: &mut Vec<u8>) -> Result<()> {
        to.resize(content_bytes, 0);
        let mut output = Output { to, filled: 0 };
        let mut input = Input { bytes: frame };
        // The library makes nothing of nothing.
        if !frame.is_empty() {
            decode(&mut input, &mut output)?;
        }
        check_length(content_bytes, output.filled)
    }

    fn context_bytes(&self) -> usize {
        0
    }
}

/// Literals before an instruction: none, one to three, or more.
const MANY_LITERALS: usize = 4;

fn decode(input: &mut Input<'_>, output: &mut Output<'_>) -> Result<()> {
    let mut literals = 0;
    if let Some(first @ 18..) = input.bytes.first() {
        let length = usize::from(*first) - 17;
        input.byte()?;
        output.literals(input, length)?;
        literals = length.min(MANY_LITERALS);
    }
    loop {
        let instruction = usize::from(input.byte()?);
        let (length, distance, following) = match instruction {
            64.. => {
                let distance = (usize::from(input.byte()?) << 3) + (instruction >> 2 & 7) + 1;
                ((instruction >> 5) + 1, distance, instruction & 3)
            }
            32.. => {
                let length = input.length(instruction & 31, 31)? + 2;
                let word = input.word()?;
                (length, (word >> 2) + 1, word & 3)
            }
            16.. => {
                let length = input.length(instruction & 7, 7)? + 2;
                let word = input.word()?;
                let distance = (instruction & 8) << 11 | word >> 2;
                if distance == 0 {
                    return match input.bytes.is_empty() && length == 3 {
                        true => Ok(()),
                        false => Err(undecodable("lzo", "it does not end where it should")),
                    };
                }
                (length, distance + 16_384, word & 3)
            }
            _ if literals == 0 => {
                let length = input.length(instruction, 15)? + 3;
                output.literals(input, length)?;
                literals = MANY_LITERALS;
                continue;
            }
            _ => {
                let near = (usize::from(input.byte()?) << 2) + (instruction >> 2);
                match literals {
                    MANY_LITERALS => (3, near + 2049, instruction & 3),
                    _ => (2, near + 1, instruction & 3),
                }
            }
        };
        output.copy(distance, length)?;
        output.literals(input, following)?;
        literals = following;
    }
}

struct Input<'a> {
    bytes: &'a [u8],
}

impl Input<'_> {
    fn byte(&mut self) -> Result<u8> {
        let (byte, rest) = self.bytes.split_first().ok_or_else(cut_off)?;
        self.bytes = rest;
        Ok(*byte)
    }

    /// Little-endian.
    fn word(&mut self) -> Result<usize> {
        Ok(usize::from(self.byte()?) | usize::from(self.byte()?) << 8)
    }

    /// A length that follows where the instruction has no room for it: 255 for each zero byte, then what is left.
    fn length(&mut self, in_instruction: usize, base: usize) -> Result<usize> {
        if in_instruction != 0 {
            return Ok(in_instruction);
        }
        let mut length = base;
        loop {
            match self.byte()? {
                0 => length += 255,
                last => return Ok(length + usize::from(last)),
            }
        }
    }
}

/// Content so far, in a buffer of the stated length.
struct Output<'a> {
    to: &'a mut [u8],
    filled: usize,
}

impl Output<'_> {
    fn literals(&mut self, input: &mut Input<'_>, length: usize) -> Result<()> {
        let (literals, rest) = input.bytes.split_at_checked(length).ok_or_else(cut_off)?;
        self.room(length)?.copy_from_slice(literals);
        self.filled += length;
        input.bytes = rest;
        Ok(())
    }

    /// Copies what was written `distance` bytes ago, which may reach into what it writes.
    fn copy(&mut self, distance: usize, length: usize) -> Result<()> {
        self.room(length)?;
        let from = self.filled.checked_sub(distance).ok_or_else(|| undecodable("lzo", "it refers to no content"))?;
        let mut copied = 0;
        while copied < length {
            // What has been copied repeats what it was copied from, so that twice as much can be copied at once.
            let part = (distance + copied).min(length - copied);
            self.to.copy_within(from..from + part, self.filled + copied);
            copied += part;
        }
        self.filled += length;
        Ok(())
    }

    fn room(&mut self, length: usize) -> Result<&mut [u8]> {
        let room = self.filled.checked_add(length).and_then(|end| self.to.get_mut(self.filled..end));
        room.ok_or_else(|| undecodable("lzo", "it holds too much"))
    }
}

fn cut_off() -> Error {
    undecodable("lzo", "it is cut off")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(frame: &[u8], content_bytes: usize) -> Option<Vec<u8>> {
        let mut content = Vec::new();
        Decoder.decode(frame, content_bytes, &mut content).ok()?;
        Some(content)
    }

    /// Written by hand, after the description of the format.
    #[test]
    fn every_instruction() {
        const END: [u8; 3] = [17, 0, 0];
        let frame = |parts: &[&[u8]]| [parts.concat(), END.to_vec()].concat();
        assert_eq!(decoded(&frame(&[&[17 + 5], b"abcde"]), 5), Some(b"abcde".to_vec()));
        // A run of 4 literals, then a match of 3 at distance 1 with one literal after it.
        assert_eq!(decoded(&frame(&[&[1], b"abcd", &[0b0100_0001, 0], b"x"]), 8), Some(b"abcddddx".to_vec()));
        // One literal, then a match of 2 at distance 1; with one literal before it, 0..15 is such a match.
        assert_eq!(decoded(&frame(&[&[17 + 1], b"a", &[0, 0]]), 3), Some(b"aaa".to_vec()));
        // 0 0 1: length 2 + 31 + 255 + 1, distance 1.
        assert_eq!(decoded(&frame(&[&[17 + 1], b"a", &[32, 0, 1, 0, 0]]), 290), Some(vec![b'a'; 290]));
        // A long run of literals: 3 + 15 + 7.
        assert_eq!(decoded(&frame(&[&[0, 7], &[b'z'; 25]]), 25), Some(vec![b'z'; 25]));
        // A match of 3 at distance 2049, after many literals.
        let literals: Vec<u8> = (0..2049u32).map(|at| (at % 251) as u8).collect();
        let mut run = vec![0];
        run.extend_from_slice(&[0; 7]);
        run.push((2049 - 18 - 7 * 255) as u8);
        let content = [&literals[..], &literals[..3]].concat();
        assert_eq!(decoded(&frame(&[&run, &literals, &[0, 0]]), 2052), Some(content));
        // 0 0 0 1: beyond 16 KiB.
        let literals: Vec<u8> = (0..16_400u32).map(|at| (at % 251) as u8).collect();
        let rest = 16_400 - 18;
        let mut run = vec![0; 1 + rest / 255];
        run.push((rest % 255) as u8);
        let content = [&literals[..], &literals[15..15 + 4]].concat();
        assert_eq!(decoded(&frame(&[&run, &literals, &[16 | 2, 1 << 2, 0]]), 16_404), Some(content));
    }

    #[test]
    fn what_is_no_frame() {
        for frame in [&[17, 0][..], &[17, 0, 0, 0], &[64, 0, 17, 0, 0], &[0; 100], &[255], &[16, 1, 0, 0]] {
            assert_eq!(decoded(frame, 50), None, "{frame:?}");
        }
    }
}
