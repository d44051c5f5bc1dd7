//! What is around the blocks of a frame: RFC 8878, section 3.1.1.1.

use std::hash::Hasher;

use twox_hash::XxHash64;

/// How far back decoders must keep content, in bits.
pub(crate) const WINDOW_LOG: u32 = 23;

const MAGIC: u32 = 0xfd2f_b528;

// Bits of the descriptor.
const CONTENT_BYTES_IN_4: u8 = 2 << 6;
const IS_ONE_SEGMENT: u8 = 1 << 5;
const HAS_CHECKSUM: u8 = 1 << 2;

/// Writes the header of a frame of `content_bytes`, of 32 MiB at most.
pub(crate) fn begin(content_bytes: usize, has_checksum: bool, to: &mut Vec<u8>) {
    to.extend(MAGIC.to_le_bytes());
    let checksum = if has_checksum { HAS_CHECKSUM } else { 0 };
    // A frame that is shorter than the window is its own.
    if content_bytes <= 1 << WINDOW_LOG {
        to.push(CONTENT_BYTES_IN_4 | IS_ONE_SEGMENT | checksum);
    } else {
        to.extend([CONTENT_BYTES_IN_4 | checksum, (WINDOW_LOG as u8 - 10) << 3]);
    }
    to.extend((content_bytes as u32).to_le_bytes());
}

/// Ends a frame with the checksum of its content.
pub(crate) fn end(content: &[u8], to: &mut Vec<u8>) {
    let mut hasher = XxHash64::with_seed(0);
    hasher.write(content);
    to.extend((hasher.finish() as u32).to_le_bytes());
}
