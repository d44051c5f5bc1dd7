//! lz4 in the blocks of `archive --format lz4`: up to 4 MiB, each with its length and a checksum.

use lz4_flex::block::{decompress_into, get_maximum_output_size};
use twox_hash::XxHash32;

use super::{Parts, decoder, encoder};
use crate::archive::lz4::{BLOCK_BYTES, IS_RAW, append_blocks};

/// Length before a block, and checksum after it.
const BLOCK_OVERHEAD_BYTES: usize = 8;

/// Size of the library's hash table.
const ENCODER_BYTES: usize = 16 * 1024;

pub const PARTS: Parts = Parts {
    encoder: |_| {
        encoder("lz4", ENCODER_BYTES, |content, to| {
            append_blocks(content, to);
            Ok(())
        })
    },
    decoder: |_| decoder("lz4", 0, decode_blocks),
    bytes_max: |content_bytes| {
        get_maximum_output_size(content_bytes) + content_bytes.div_ceil(BLOCK_BYTES) * BLOCK_OVERHEAD_BYTES
    },
};

fn decode_blocks(mut frame: &[u8], to: &mut [u8]) -> Result<usize, String> {
    let mut filled = 0;
    while let Some((length, rest)) = frame.split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length);
        let (is_raw, length) = (length & IS_RAW != 0, (length & !IS_RAW) as usize);
        let (block, rest) = rest.split_at_checked(length).ok_or("it is cut off")?;
        let (checksum, rest) = rest.split_first_chunk::<4>().ok_or("its checksum is missing")?;
        if XxHash32::oneshot(0, block) != u32::from_le_bytes(*checksum) {
            return Err("its checksum is wrong".to_string());
        }
        let room = &mut to[filled..];
        filled += match is_raw {
            true => {
                room.get_mut(..length).ok_or("it holds too much")?.copy_from_slice(block);
                length
            }
            false => decompress_into(block, room).map_err(|error| error.to_string())?,
        };
        frame = rest;
    }
    if frame.is_empty() { Ok(filled) } else { Err("it is cut off".to_string()) }
}
