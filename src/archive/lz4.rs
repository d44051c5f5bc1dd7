//! Makes one lz4 frame of independent blocks, which workers compress in parallel (LZ4 frame format
//! 1.6). The frame encoder of `lz4_flex` uses one core, so only its block compressor is used.

use lz4_flex::block::{compress_into, get_maximum_output_size};
use twox_hash::XxHash32;

pub const BLOCK_BYTES: usize = 4 * 1024 * 1024;

/// Flag in a block's length: the block is stored uncompressed.
pub const UNCOMPRESSED_FLAG: u32 = 1 << 31;

/// End of the frame: a block of length zero.
pub const END_MARK: [u8; 4] = [0; 4];

/// Returns the header of the frame: version 1, independent blocks of up to 4 MiB, each with
/// a checksum.
pub fn frame_header() -> [u8; 7] {
    let flags = 0b0111_0000;
    let block_size = 7 << 4;
    let header_checksum = (XxHash32::oneshot(0, &[flags, block_size]) >> 8) as u8;
    [0x04, 0x22, 0x4d, 0x18, flags, block_size, header_checksum]
}

/// Appends `content` as blocks. A block that would not shrink is stored uncompressed.
pub fn append_blocks(content: &[u8], output: &mut Vec<u8>) {
    for block in content.chunks(BLOCK_BYTES) {
        let length_offset = output.len();
        let start = length_offset + 4;
        output.resize(start + get_maximum_output_size(block.len()), 0);
        let compressed_bytes = compress_into(block, &mut output[start..]).unwrap_or(usize::MAX);
        let is_raw = compressed_bytes >= block.len();
        if is_raw {
            output.truncate(start);
            output.extend_from_slice(block);
        } else {
            output.truncate(start + compressed_bytes);
        }
        let length = (output.len() - start) as u32 | if is_raw { UNCOMPRESSED_FLAG } else { 0 };
        output[length_offset..start].copy_from_slice(&length.to_le_bytes());
        let checksum = XxHash32::oneshot(0, &output[start..]);
        output.extend_from_slice(&checksum.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn any_content_decodes(length in 0usize..9_000_000, noise in 0u8..3, piece_bytes in 1usize..5_000_000) {
            let mut state = 1u32;
            let content: Vec<u8> = (0..length).map(|index| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                if noise == 0 { (index / 7) as u8 } else { (state >> 24) as u8 & (0xff >> (noise - 1)) }
            }).collect();
            let mut frame = frame_header().to_vec();
            content.chunks(piece_bytes).for_each(|piece| append_blocks(piece, &mut frame));
            frame.extend_from_slice(&END_MARK);
            let mut decoded = Vec::new();
            lz4_flex::frame::FrameDecoder::new(frame.as_slice()).read_to_end(&mut decoded).expect("a good frame");
            prop_assert!(decoded == content);
        }
    }
}
