//! Frames that are not worth compressing: told by a sample, and stored raw.
//!
//! Whether a frame is stored depends on its own content and the settings only, not on the frames before it, so that the
//! archive does not depend on which worker made which frame.

use slotpress_format::{BLOCK_CONTENT_BYTES_MAX, ZSTD_MAGIC};
use twox_hash::XxHash64;

/// Pieces of a frame that a sample takes, spread evenly.
const SAMPLE_PIECES: usize = 8;

/// Length of each piece: long enough for repetition to show, short enough that the sample, 128 KiB of an 8 MiB frame,
/// costs little.
const SAMPLE_PIECE_BYTES: usize = 16 * 1024;

/// Whether `compressed_bytes` save less than `min_savings_percent` of `content_bytes`.
pub fn saves_too_little(content_bytes: usize, compressed_bytes: usize, min_savings_percent: u8) -> bool {
    // In whole numbers, so that every machine decides alike.
    let limit = content_bytes as u128 * u128::from(100 - min_savings_percent.min(100));
    compressed_bytes as u128 * 100 > limit
}

/// Takes a sample of a frame's content into `to`; `None` when the frame is too small to be worth sampling.
pub fn sample<'a>(content: &[u8], to: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    if content.len() < 4 * SAMPLE_PIECES * SAMPLE_PIECE_BYTES {
        return None;
    }
    to.clear();
    let step = content.len() / SAMPLE_PIECES;
    for piece in 0..SAMPLE_PIECES {
        to.extend_from_slice(&content[piece * step..][..SAMPLE_PIECE_BYTES]);
    }
    Some(to)
}

/// Writes `content` as a zstd frame of raw blocks (RFC 8878), replacing what `to` holds.
pub fn store_zstd(content: &[u8], to: &mut Vec<u8>) {
    /// Single segment, with the content size in four bytes, and a checksum.
    const DESCRIPTOR: u8 = 0b1010_0100;
    to.clear();
    to.extend_from_slice(&ZSTD_MAGIC.to_le_bytes());
    to.push(DESCRIPTOR);
    to.extend_from_slice(&(content.len() as u32).to_le_bytes());
    let mut blocks = content.chunks(BLOCK_CONTENT_BYTES_MAX as usize).peekable();
    if content.is_empty() {
        to.extend_from_slice(&[1, 0, 0]);
    }
    while let Some(block) = blocks.next() {
        let header = (block.len() as u32) << 3 | u32::from(blocks.peek().is_none());
        to.extend_from_slice(&header.to_le_bytes()[..3]);
        to.extend_from_slice(block);
    }
    to.extend_from_slice(&(XxHash64::oneshot(0, content) as u32).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn stored_frames_decode(length in 0usize..400_000, seed in any::<u8>()) {
            let content: Vec<u8> = (0..length).map(|at| (at as u8).wrapping_mul(31) ^ seed).collect();
            let mut frame = Vec::new();
            store_zstd(&content, &mut frame);
            prop_assert_eq!(zstd::bulk::decompress(&frame, length).expect("a good frame"), content);
            let last = frame.len() - 1;
            frame[last] ^= 1;
            prop_assert!(zstd::bulk::decompress(&frame, length).is_err(), "the checksum is checked");
        }
    }

    #[test]
    fn savings() {
        assert!(saves_too_little(100, 96, 5) && !saves_too_little(100, 95, 5));
        assert!(saves_too_little(100, 101, 0) && !saves_too_little(100, 100, 0));
    }
}
