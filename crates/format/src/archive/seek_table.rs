//! The seek table of the zstd seekable format: the last frame of an archive, which lists every
//! frame before it.
//!
//! The seek table is a skippable frame of kind 14 (zstd's `contrib/seekable_format`). Each frame has an
//! item: u32 compressed bytes, u32 decompressed bytes, and a u32 checksum if the descriptor says so. A
//! footer follows: u32 number of frames, u8 descriptor, u32 magic. Skippable frames have 0
//! decompressed bytes, so running sums of the items are the offsets.

use slotpress_base::{Error, Result, to_usize, u32_at};

use crate::{SKIPPABLE_HEADER_BYTES, SKIPPABLE_MAGIC, skippable_frame};

/// The last four bytes of a seekable archive.
pub const SEEKABLE_MAGIC: u32 = 0x8F92_EAB1;

/// Length of the fields after the items: number of frames, descriptor, magic.
pub const SEEK_TABLE_FOOTER_BYTES: usize = 9;

/// Maximum number of frames in the seekable format.
pub const SEEK_TABLE_FRAMES_MAX: u32 = 0x0800_0000;

const SEEK_TABLE_KIND: u8 = 14;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeekTableItem {
    pub compressed_bytes: u32,
    /// Bytes of tar; 0 for a skippable frame.
    pub content_bytes: u32,
}

/// Makes the seek table's frame. Returns `None` if there are more frames than the format allows.
pub fn seek_table_frame(items: &[SeekTableItem]) -> Option<Vec<u8>> {
    let count = u32::try_from(items.len()).ok()?;
    if count > SEEK_TABLE_FRAMES_MAX {
        return None;
    }
    let mut content = Vec::with_capacity(items.len().saturating_mul(8).saturating_add(SEEK_TABLE_FOOTER_BYTES));
    for item in items {
        content.extend_from_slice(&item.compressed_bytes.to_le_bytes());
        content.extend_from_slice(&item.content_bytes.to_le_bytes());
    }
    content.extend_from_slice(&count.to_le_bytes());
    content.push(0);
    content.extend_from_slice(&SEEKABLE_MAGIC.to_le_bytes());
    skippable_frame(SEEK_TABLE_KIND, &content)
}

/// Returns the length in bytes of the seek table's frame, given the last bytes of the archive.
/// Returns `None` if these bytes are not the end of a seek table.
pub fn seek_table_len(footer: &[u8; SEEK_TABLE_FOOTER_BYTES]) -> Option<u64> {
    let count = u32_at::<0, _>(footer);
    if u32_at::<5, _>(footer) != SEEKABLE_MAGIC || count > SEEK_TABLE_FRAMES_MAX {
        return None;
    }
    let items_bytes = u64::from(count).checked_mul(item_len(footer[4])?)?;
    items_bytes.checked_add((SKIPPABLE_HEADER_BYTES + SEEK_TABLE_FOOTER_BYTES) as u64)
}

/// Parses a seek table's frame, of the length that [`seek_table_len`] returned.
pub fn parse_seek_table(frame: &[u8]) -> Result<Vec<SeekTableItem>> {
    let inconsistent_error = || Error::damaged("the seek table at the archive's end is inconsistent");
    let (header, content) = frame.split_first_chunk::<SKIPPABLE_HEADER_BYTES>().ok_or_else(inconsistent_error)?;
    let (items, footer) = content.split_last_chunk::<SEEK_TABLE_FOOTER_BYTES>().ok_or_else(inconsistent_error)?;
    let count = to_usize(u32_at::<0, _>(footer));
    let item_bytes = to_usize(item_len(footer[4]).ok_or_else(inconsistent_error)?);
    if u32_at::<0, _>(header) != SKIPPABLE_MAGIC | u32::from(SEEK_TABLE_KIND)
        || to_usize(u32_at::<4, _>(header)) != content.len()
        || count.checked_mul(item_bytes) != Some(items.len())
    {
        return Err(inconsistent_error());
    }
    let parse_item =
        |item: &[u8; 8]| SeekTableItem { compressed_bytes: u32_at::<0, _>(item), content_bytes: u32_at::<4, _>(item) };
    Ok(items.chunks_exact(item_bytes).filter_map(|item| item.first_chunk()).map(parse_item).collect())
}

/// Returns the length of an item, or `None` if the descriptor is unknown.
fn item_len(descriptor: u8) -> Option<u64> {
    match descriptor {
        0 => Some(8),
        0x80 => Some(12),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn tables_round_trip(items in proptest::collection::vec(any::<(u32, u32)>(), 0..50)) {
            let items: Vec<SeekTableItem> = items
                .into_iter()
                .map(|(compressed_bytes, content_bytes)| SeekTableItem { compressed_bytes, content_bytes })
                .collect();
            let frame = seek_table_frame(&items).expect("made");
            let footer = frame[frame.len() - SEEK_TABLE_FOOTER_BYTES..].try_into().expect("9");
            prop_assert_eq!(seek_table_len(&footer), Some(frame.len() as u64));
            prop_assert_eq!(parse_seek_table(&frame).expect("a table"), items);
        }

        /// The header of the skippable frame, and the number of frames, must agree with the items.
        #[test]
        fn inconsistent_tables_are_refused(count in 0u32..20, header_offset in 0usize..8) {
            let items = vec![SeekTableItem { compressed_bytes: 1, content_bytes: 2 }; count as usize];
            let frame = seek_table_frame(&items).expect("made");
            for offset in [header_offset, frame.len() - SEEK_TABLE_FOOTER_BYTES] {
                let mut altered = frame.clone();
                altered[offset] ^= 1;
                prop_assert!(parse_seek_table(&altered).is_err());
            }
        }

        #[test]
        fn hostile_tables_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = parse_seek_table(&bytes);
        }
    }

    #[test]
    fn tables_of_too_many_frames_or_another_magic_are_refused() {
        let frame_bytes = |count: u32, magic: u32| {
            let mut footer = [0; SEEK_TABLE_FOOTER_BYTES];
            footer[..4].copy_from_slice(&count.to_le_bytes());
            footer[5..].copy_from_slice(&magic.to_le_bytes());
            seek_table_len(&footer)
        };
        assert_eq!(frame_bytes(SEEK_TABLE_FRAMES_MAX, SEEKABLE_MAGIC), Some(u64::from(SEEK_TABLE_FRAMES_MAX) * 8 + 17));
        assert_eq!(frame_bytes(SEEK_TABLE_FRAMES_MAX + 1, SEEKABLE_MAGIC), None);
        assert_eq!(frame_bytes(1, SEEKABLE_MAGIC ^ 1), None);
    }
}
