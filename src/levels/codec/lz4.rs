//! lz4 as `archive --format lz4` uses it: blocks of up to 4 MiB, each with its length and a checksum.

use {
    super::{FrameCodec, FrameDecode, FrameEncoder, check_length, undecodable},
    crate::archive::lz4::{BLOCK_BYTES, IS_RAW, append_blocks},
    lz4_flex::block::{decompress_into, get_maximum_output_size},
    slotpress_base::error::Result,
    twox_hash::XxHash32,
};

/// The fast compressor, which has one level.
#[derive(Clone, Copy, Debug)]
pub struct Lz4;

/// Before a block its length, after it its checksum.
const BLOCK_OVERHEAD_BYTES: usize = 8;

/// The library's hash table.
const ENCODER_BYTES: usize = 16 * 1024;

impl FrameCodec for Lz4 {
    fn name(&self) -> &str {
        "lz4"
    }

    fn level(&self) -> i32 {
        0
    }

    fn new_encoder(&self) -> Result<Box<dyn FrameEncoder>> {
        Ok(Box::new(Self))
    }

    fn new_decoder(&self) -> Result<Box<dyn FrameDecode>> {
        Ok(Box::new(BlockDecoder))
    }

    fn encoded_bytes_max(&self, content_bytes: usize) -> usize {
        blocks_bytes_max(content_bytes)
    }
}

/// The most that blocks take while they are made.
pub fn blocks_bytes_max(content_bytes: usize) -> usize {
    get_maximum_output_size(content_bytes) + content_bytes.div_ceil(BLOCK_BYTES) * BLOCK_OVERHEAD_BYTES
}

impl FrameEncoder for Lz4 {
    fn encode(&mut self, content: &[u8], to: &mut Vec<u8>) -> Result<()> {
        to.clear();
        append_blocks(content, true, 0, to);
        Ok(())
    }

    fn context_bytes(&self) -> usize {
        ENCODER_BYTES
    }
}

/// Decodes blocks, whichever compressor made them.
pub struct BlockDecoder;

impl FrameDecode for BlockDecoder {
    fn decode(&mut self, mut frame: &[u8], content_bytes: usize, to: &mut Vec<u8>) -> Result<()> {
        to.resize(content_bytes, 0);
        let mut filled = 0;
        while let Some((length, rest)) = frame.split_first_chunk::<4>() {
            let length = u32::from_le_bytes(*length);
            let (is_raw, length) = (length & IS_RAW != 0, (length & !IS_RAW) as usize);
            let (block, rest) = rest.split_at_checked(length).ok_or_else(|| undecodable("lz4", "it is cut off"))?;
            let (checksum, rest) =
                rest.split_first_chunk::<4>().ok_or_else(|| undecodable("lz4", "its checksum is missing"))?;
            if XxHash32::oneshot(0, block) != u32::from_le_bytes(*checksum) {
                return Err(undecodable("lz4", "its checksum is of other bytes"));
            }
            let room = &mut to[filled..];
            filled += match is_raw {
                true => {
                    let room = room.get_mut(..length).ok_or_else(|| undecodable("lz4", "it holds too much"))?;
                    room.copy_from_slice(block);
                    length
                }
                false => decompress_into(block, room).map_err(|error| undecodable("lz4", &error.to_string()))?,
            };
            frame = rest;
        }
        if !frame.is_empty() {
            return Err(undecodable("lz4", "it is cut off"));
        }
        check_length(content_bytes, filled)
    }

    fn context_bytes(&self) -> usize {
        0
    }
}
