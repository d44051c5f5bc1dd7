//! The seek table of the zstd seekable format: the last frame of an archive, which lists every frame before it.
//!
//! Layout (zstd's `contrib/seekable_format`): a skippable frame of kind 14 that holds, per frame, u32 compressed and
//! u32 decompressed bytes (and a u32 checksum where the descriptor says so), then u32 number of frames, u8 descriptor,
//! u32 magic. Skippable frames are listed with 0 decompressed bytes: offsets are running sums.

use crate::{
    error::{Error, Result},
    format::zstd_frame::{SKIPPABLE_HEADER_BYTES, SKIPPABLE_MAGIC},
};

/// The last four bytes of a seekable archive.
pub const SEEKABLE_MAGIC: u32 = 0x8F92_EAB1;

/// Bytes after the items: number of frames, descriptor, magic.
pub const SEEK_TABLE_FOOTER_BYTES: usize = 9;

/// The most frames that the format allows.
pub const SEEK_TABLE_FRAMES_MAX: u32 = 0x0800_0000;

const SEEK_TABLE_KIND: u32 = 14;

/// One frame of the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeekTableItem {
    /// Bytes in the file.
    pub compressed_bytes: u32,
    /// Bytes of tar; 0 for a skippable frame.
    pub content_bytes: u32,
}

/// The whole table as a frame; `None` when there are more frames than the format allows.
pub fn seek_table_frame(items: &[SeekTableItem]) -> Option<Vec<u8>> {
    let count = u32::try_from(items.len()).ok().filter(|count| *count <= SEEK_TABLE_FRAMES_MAX)?;
    let content_bytes = items.len() * 8 + SEEK_TABLE_FOOTER_BYTES;
    let mut frame = Vec::with_capacity(SKIPPABLE_HEADER_BYTES + content_bytes);
    frame.extend_from_slice(&(SKIPPABLE_MAGIC | SEEK_TABLE_KIND).to_le_bytes());
    frame.extend_from_slice(&(content_bytes as u32).to_le_bytes());
    for item in items {
        frame.extend_from_slice(&item.compressed_bytes.to_le_bytes());
        frame.extend_from_slice(&item.content_bytes.to_le_bytes());
    }
    frame.extend_from_slice(&count.to_le_bytes());
    frame.push(0);
    frame.extend_from_slice(&SEEKABLE_MAGIC.to_le_bytes());
    Some(frame)
}

/// Reads the footer: the length of the whole seek table frame in bytes, or `None` when there is no seek table.
pub fn seek_table_bytes(footer: &[u8; SEEK_TABLE_FOOTER_BYTES]) -> Option<u64> {
    if u32::from_le_bytes([footer[5], footer[6], footer[7], footer[8]]) != SEEKABLE_MAGIC {
        return None;
    }
    let count = u64::from(u32::from_le_bytes([footer[0], footer[1], footer[2], footer[3]]));
    if count > u64::from(SEEK_TABLE_FRAMES_MAX) {
        return None;
    }
    Some(count * item_bytes(footer[4]) + (SKIPPABLE_HEADER_BYTES + SEEK_TABLE_FOOTER_BYTES) as u64)
}

/// Reads a whole seek table frame, as long as [`seek_table_bytes`] said.
pub fn parse_seek_table(frame: &[u8]) -> Result<Vec<SeekTableItem>> {
    let wrong = || Error::damaged("the seek table at the archive's end contradicts itself");
    let field = |at: usize| -> Result<u32> {
        let bytes = frame.get(at..at + 4).ok_or_else(wrong)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    };
    let footer_at = frame.len().checked_sub(SEEK_TABLE_FOOTER_BYTES).ok_or_else(wrong)?;
    let item_bytes = item_bytes(*frame.get(footer_at + 4).ok_or_else(wrong)?) as usize;
    let count = field(footer_at)? as usize;
    if field(0)? != SKIPPABLE_MAGIC | SEEK_TABLE_KIND
        || field(4)? as usize != frame.len() - SKIPPABLE_HEADER_BYTES
        || count * item_bytes + SKIPPABLE_HEADER_BYTES != footer_at
    {
        return Err(wrong());
    }
    (0..count)
        .map(|item| {
            let at = SKIPPABLE_HEADER_BYTES + item * item_bytes;
            Ok(SeekTableItem { compressed_bytes: field(at)?, content_bytes: field(at + 4)? })
        })
        .collect()
}

fn item_bytes(descriptor: u8) -> u64 {
    if descriptor & 0x80 != 0 { 12 } else { 8 }
}

#[cfg(test)]
mod tests {
    use {super::*, proptest::prelude::*};

    proptest! {
        #[test]
        fn tables_round_trip(items in proptest::collection::vec(any::<(u32, u32)>(), 0..50)) {
            let items: Vec<SeekTableItem> = items
                .into_iter()
                .map(|(compressed_bytes, content_bytes)| SeekTableItem { compressed_bytes, content_bytes })
                .collect();
            let frame = seek_table_frame(&items).expect("few");
            let footer = frame[frame.len() - SEEK_TABLE_FOOTER_BYTES..].try_into().expect("9");
            prop_assert_eq!(seek_table_bytes(&footer), Some(frame.len() as u64));
            prop_assert_eq!(parse_seek_table(&frame).expect("own table"), items);
        }

        #[test]
        fn hostile_tables_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = parse_seek_table(&bytes);
        }
    }
}
