//! Headers of zstd frames, blocks and skippable frames (RFC 8878). Nothing here decompresses.

use slotpress_base::{Error, Result};

pub const ZSTD_MAGIC: u32 = 0xFD2F_B528;

/// First of the 16 consecutive magic numbers of skippable frames.
pub const SKIPPABLE_MAGIC: u32 = 0x184D_2A50;

/// Length of a skippable frame's magic and length fields.
pub const SKIPPABLE_HEADER_BYTES: usize = 8;

/// Maximum length of a frame header, in bytes: magic, descriptor, window, dictionary id, content
/// size.
pub const FRAME_HEADER_BYTES_MAX: usize = 4 + 1 + 1 + 4 + 8;

/// Maximum length of a decompressed block, in bytes.
pub const BLOCK_CONTENT_BYTES_MAX: u64 = 128 * 1024;

/// Makes a skippable frame of `kind` (0 to 15). Returns `None` if the content is 4 GiB or more.
pub fn skippable_frame(kind: u8, content: &[u8]) -> Option<Vec<u8>> {
    let length = u32::try_from(content.len()).ok()?;
    let mut frame = Vec::with_capacity(content.len().saturating_add(SKIPPABLE_HEADER_BYTES));
    frame.extend_from_slice(&(SKIPPABLE_MAGIC | u32::from(kind & 15)).to_le_bytes());
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(content);
    Some(frame)
}

/// Returns the length of a skippable frame, in bytes, with its header.
pub fn skippable_frame_len(content_bytes: u32) -> u64 {
    u64::from(content_bytes).saturating_add(SKIPPABLE_HEADER_BYTES as u64)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameStart {
    Zstd(FrameHeader),
    Skippable {
        /// 0 to 15, the low bits of the magic.
        kind: u8,
        content_bytes: u32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    pub header_bytes: usize,
    pub content_bytes: Option<u64>,
    pub window_bytes: u64,
    /// True if a checksum of four bytes follows the last block.
    pub has_checksum: bool,
    pub block_bytes_max: u64,
}

/// Parses the start of a frame. `bytes` must hold [`FRAME_HEADER_BYTES_MAX`] bytes, or all bytes to the
/// end of the archive.
pub fn parse_frame_start(bytes: &[u8]) -> Result<FrameStart> {
    let truncated_error = || Error::damaged("the archive is truncated inside a frame header");
    let (magic, mut rest) = bytes.split_first_chunk().ok_or_else(truncated_error)?;
    let kind = magic[0] & 15;
    let magic = u32::from_le_bytes(*magic);
    if magic & !15 == SKIPPABLE_MAGIC {
        let content_bytes = rest.first_chunk().copied().map(u32::from_le_bytes).ok_or_else(truncated_error)?;
        return Ok(FrameStart::Skippable { kind, content_bytes });
    }
    if magic != ZSTD_MAGIC {
        return Err(Error::damaged(format!("{magic:#010x} is not the start of a zstd frame")));
    }
    let (&descriptor, after) = rest.split_first().ok_or_else(truncated_error)?;
    rest = after;
    // Reads the next field, which has at most 8 bytes.
    let mut read_field = |length: usize| -> Result<u64> {
        let (bytes, after) = rest.split_at_checked(length).ok_or_else(truncated_error)?;
        rest = after;
        Ok(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    };
    if descriptor & 0b1000 != 0 {
        return Err(Error::damaged("a zstd frame header has its reserved bit set"));
    }
    let is_single_segment = descriptor & 0b10_0000 != 0;
    let mut window_bytes = 0;
    if !is_single_segment {
        let window = read_field(1)?;
        // The low 3 bits are the mantissa: the number of eighths of a KiB that are added to 1 KiB. The
        // other bits are the exponent.
        window_bytes = (1024 | (window & 7) << 7) << (window >> 3);
    }
    let dictionary_bytes = match descriptor & 3 {
        3 => 4,
        other => usize::from(other),
    };
    if read_field(dictionary_bytes)? != 0 {
        return Err(Error::damaged("a zstd frame needs a dictionary; snapshot archives have none"));
    }
    let content_bytes = match (descriptor >> 6, is_single_segment) {
        (0, false) => None,
        (0, true) => Some(read_field(1)?),
        (1, _) => Some(read_field(2)?.saturating_add(256)),
        (2, _) => Some(read_field(4)?),
        (_, _) => Some(read_field(8)?),
    };
    if is_single_segment {
        window_bytes = content_bytes.unwrap_or(0);
    }
    Ok(FrameStart::Zstd(FrameHeader {
        header_bytes: bytes.len().saturating_sub(rest.len()),
        content_bytes,
        window_bytes,
        has_checksum: descriptor & 0b100 != 0,
        block_bytes_max: window_bytes.clamp(1, BLOCK_CONTENT_BYTES_MAX),
    }))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    pub is_last: bool,
    pub stored_bytes: u32,
}

pub fn parse_block_header(bytes: [u8; 3]) -> Result<BlockHeader> {
    let value = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0]);
    let size = value >> 3;
    let stored_bytes = match (value >> 1) & 3 {
        0 | 2 => size,
        1 => 1,
        _ => return Err(Error::damaged("a zstd block has a reserved kind")),
    };
    if u64::from(size) > BLOCK_CONTENT_BYTES_MAX {
        return Err(Error::damaged(format!("a zstd block has {size} bytes, more than {BLOCK_CONTENT_BYTES_MAX}")));
    }
    Ok(BlockHeader { is_last: value & 1 == 1, stored_bytes })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn blocks_above_the_maximum_are_refused() {
        let header = |bytes: u64| ((bytes as u32) << 3 | 1).to_le_bytes()[..3].try_into().expect("3");
        let block = parse_block_header(header(BLOCK_CONTENT_BYTES_MAX)).expect("a block");
        assert_eq!((block.is_last, u64::from(block.stored_bytes)), (true, BLOCK_CONTENT_BYTES_MAX));
        assert!(parse_block_header(header(BLOCK_CONTENT_BYTES_MAX + 1)).is_err());
    }

    proptest! {
        #[test]
        fn hostile_headers_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..20)) {
            let _ = parse_frame_start(&bytes);
            let mut framed = ZSTD_MAGIC.to_le_bytes().to_vec();
            framed.extend(bytes);
            let _ = parse_frame_start(&framed);
        }

        #[test]
        fn headers_of_the_zstd_library_are_parsed(content in proptest::collection::vec(any::<u8>(), 0..70_000), level in 1i32..4) {
            let compressed = zstd::bulk::compress(&content, level).expect("compresses");
            let FrameStart::Zstd(header) = parse_frame_start(&compressed).expect("a frame") else {
                panic!("not a skippable frame");
            };
            prop_assert_eq!(header.content_bytes, Some(content.len() as u64));
            let mut offset = header.header_bytes;
            loop {
                let block = parse_block_header(compressed[offset..offset + 3].try_into().expect("3")).expect("a block");
                offset += 3 + block.stored_bytes as usize;
                if block.is_last {
                    break;
                }
            }
            prop_assert_eq!(offset + if header.has_checksum { 4 } else { 0 }, compressed.len());
        }
    }

    #[test]
    fn skippable_frames_round_trip() {
        for (kind, content) in [(0, &[77u8; 4][..]), (1, &[]), (15, &[1; 5])] {
            let frame = skippable_frame(kind, content).expect("small");
            let start = parse_frame_start(&frame).expect("skippable");
            assert_eq!(start, FrameStart::Skippable { kind, content_bytes: content.len() as u32 });
        }
    }
}
