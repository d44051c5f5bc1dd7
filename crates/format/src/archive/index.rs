//! The index of an archive: a hash of each frame, and a list of the entries. slotpress writes it
//! between the last frame and the seek table, in a skippable frame that other programs ignore.
//!
//! With the hashes, a client checks each frame as it arrives, and needs to trust only one hash, the
//! [`ArchiveRoot`](crate::ArchiveRoot). With the entries and the seek table, a reader can extract one storage from
//! an archive of 110 GB, and workers unpack frames independently. The entries are only a hint: readers
//! compare each tar header that they decode with them.
//!
//! `docs/format.md` describes the layout.

use std::fmt;

use serde::{Deserialize, Serialize};
use slotpress_base::{Error, Result, to_usize};

use crate::{
    END_OF_ARCHIVE_BYTES, ENTRIES_MAX, ENTRY_BYTES_MAX, Entry, FrameHash, FrameStart, SKIPPABLE_HEADER_BYTES,
    parse_frame_start, skippable_frame,
};

const INDEX_FRAME_KIND: u8 = 13;

const INDEX_MAGIC: &[u8; 8] = b"slotidx2";

/// Limit on the length of an index frame, and on its uncompressed content. 5,000,000 entries take
/// about 80 MB, and the hashes of 450 GB in the smallest frames take 220 MB.
pub const INDEX_FRAME_BYTES_MAX: u64 = 384 * 1024 * 1024;

/// Maximum length of `writer` and of `settings`, which users see.
const TEXT_BYTES_MAX: usize = 255;

/// Compression level. It is a fast one, because the index is a small part of the archive.
const LEVEL: i32 = 3;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    /// Program that wrote the archive, for example "slotpress 0.2.0".
    pub writer: String,
    /// Settings of the writer, for example "zstd-level=1".
    pub settings: String,
    pub frame_size_bytes: u64,
    /// Hash of each frame with content, in order; empty if the archive has no frame hashes.
    pub hashes: Vec<FrameHash>,
    /// Serialized one by one after the other fields, so that a reader can stop at a limit.
    #[serde(skip)]
    pub entries: Vec<Entry>,
}

impl Index {
    pub fn tar_bytes(&self) -> u64 {
        self.entries.iter().map(Entry::tar_bytes).fold(END_OF_ARCHIVE_BYTES, u64::saturating_add)
    }

    /// Makes the skippable frame.
    ///
    /// # Errors
    /// The frame would be 4 GiB or more, or zstd fails.
    pub fn to_frame(&self) -> Result<Vec<u8>> {
        let failed = |why: &dyn fmt::Display| Error::failed(format!("cannot write the archive's index: {why}"));
        let mut content = postcard::to_extend(self, Vec::new()).map_err(|error| failed(&error))?;
        for entry in &self.entries {
            content = postcard::to_extend(entry, content).map_err(|error| failed(&error))?;
        }
        let mut compressor = zstd::bulk::Compressor::new(LEVEL).map_err(|error| failed(&error))?;
        compressor.include_checksum(true).map_err(|error| failed(&error))?;
        let compressed = compressor.compress(&content).map_err(|error| failed(&error))?;
        skippable_frame(INDEX_FRAME_KIND, &[INDEX_MAGIC, compressed.as_slice()].concat())
            .ok_or_else(|| failed(&"it takes 4 GiB or more"))
    }

    /// Parses the bytes between the last frame and the seek table. Returns `None` if they are not one
    /// skippable frame with an index of this version.
    ///
    /// # Errors
    /// The index is damaged.
    pub fn parse_frame(frame: &[u8]) -> Result<Option<Self>> {
        let damaged = |why: &dyn fmt::Display| Error::damaged(format!("the archive's index is damaged: {why}"));
        let Ok(FrameStart::Skippable { kind: INDEX_FRAME_KIND, content_bytes }) = parse_frame_start(frame) else {
            return Ok(None);
        };
        let content = frame.get(SKIPPABLE_HEADER_BYTES..).unwrap_or_default();
        let Some(compressed) = content.strip_prefix(INDEX_MAGIC) else { return Ok(None) };
        if content.len() as u64 != u64::from(content_bytes) {
            return Ok(None);
        }
        let content = zstd::bulk::decompress(compressed, to_usize(INDEX_FRAME_BYTES_MAX));
        let content = content.map_err(|error| damaged(&error))?;
        let (mut index, mut rest): (Self, _) = postcard::take_from_bytes(&content).map_err(|error| damaged(&error))?;
        for text in [&mut index.writer, &mut index.settings] {
            if text.len() > TEXT_BYTES_MAX {
                return Err(damaged(&format_args!("its writer or settings take more than {TEXT_BYTES_MAX} bytes")));
            }
            // Control characters could move the cursor of a terminal.
            text.retain(|character| !character.is_control());
        }
        while !rest.is_empty() {
            let (entry, after): (Entry, _) = postcard::take_from_bytes(rest).map_err(|error| damaged(&error))?;
            if entry.content_bytes > if entry.kind.is_dir() { 0 } else { ENTRY_BYTES_MAX } {
                return Err(damaged(&format_args!("it lists {} with {} bytes", entry.kind, entry.content_bytes)));
            }
            if index.entries.len() as u64 == ENTRIES_MAX {
                return Err(damaged(&format_args!("it lists more than {ENTRIES_MAX} entries")));
            }
            index.entries.push(entry);
            rest = after;
        }
        Ok(Some(index))
    }
}

/// True if the content of a skippable frame is an index.
pub fn is_index(content: &[u8]) -> bool {
    content.starts_with(INDEX_MAGIC)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::EntryKind;

    fn index_of(entries: Vec<Entry>) -> Index {
        let writer = "slotpress 1".to_string();
        let settings = "level=1".to_string();
        Index { writer, settings, frame_size_bytes: 1 << 20, hashes: vec![[7; 32]; 3], entries }
    }

    fn write_and_parse(index: &Index) -> Result<Index> {
        Index::parse_frame(&index.to_frame()?).map(|index| index.expect("an index"))
    }

    fn any_index() -> impl Strategy<Value = Index> {
        let entry = (0..7u8, any::<u64>(), any::<u32>(), 0..=ENTRY_BYTES_MAX).prop_map(|(tag, slot, id, size)| {
            let kind = match tag {
                0 => EntryKind::Version,
                1 => EntryKind::SnapshotsDir,
                2 => EntryKind::StatusCache,
                3 => EntryKind::SlotDir(slot),
                4 => EntryKind::BankFile(slot),
                5 => EntryKind::AccountsDir,
                _ => EntryKind::Storage { slot, id },
            };
            Entry { kind, content_bytes: if kind.is_dir() { 0 } else { size } }
        });
        (proptest::collection::vec(entry, 0..100), any::<u64>(), any::<Vec<FrameHash>>())
            .prop_map(|(entries, frame_size_bytes, hashes)| Index { frame_size_bytes, hashes, ..index_of(entries) })
    }

    #[test]
    fn impossible_entries_are_refused() {
        let is_possible = |kind, content_bytes| write_and_parse(&index_of(vec![Entry { kind, content_bytes }])).is_ok();
        assert!(is_possible(EntryKind::StatusCache, ENTRY_BYTES_MAX));
        assert!(!is_possible(EntryKind::StatusCache, ENTRY_BYTES_MAX + 1));
        assert!(is_possible(EntryKind::AccountsDir, 0));
        assert!(!is_possible(EntryKind::AccountsDir, 1));
    }

    /// An index made by an attacker must not use unlimited memory.
    #[test]
    fn too_many_entries_are_refused() {
        let with_entries =
            |count| write_and_parse(&index_of(vec![Entry { kind: EntryKind::AccountsDir, content_bytes: 0 }; count]));
        assert!(with_entries(ENTRIES_MAX as usize).is_ok());
        assert!(with_entries(ENTRIES_MAX as usize + 1).is_err());
    }

    #[test]
    fn texts_are_limited_and_have_no_control_characters() {
        let with_settings =
            |settings: &str| write_and_parse(&Index { settings: settings.to_string(), ..index_of(Vec::new()) });
        assert_eq!(with_settings("level\x1b[2J=1").expect("an index").settings, "level[2J=1");
        assert!(with_settings(&"x".repeat(TEXT_BYTES_MAX)).is_ok());
        assert!(with_settings(&"x".repeat(TEXT_BYTES_MAX + 1)).is_err());
    }

    #[test]
    fn the_layout_is_the_documented_one() {
        let kind = EntryKind::Storage { slot: 300, id: 2 };
        let frame = index_of(vec![Entry { kind, content_bytes: 5 }]).to_frame().expect("small");
        assert_eq!((&frame[..4], &frame[8..16]), (&[0x5d, 0x2a, 0x4d, 0x18][..], b"slotidx2".as_slice()));
        let content = zstd::decode_all(&frame[16..]).expect("one zstd frame");
        let texts = [b"\x0bslotpress 1".as_slice(), b"\x07level=1"].concat();
        let hashes = [&[3][..], [[7; 32]; 3].as_flattened()].concat();
        let expected = [&texts[..], &[0x80, 0x80, 0x40], &hashes, &[6, 0xac, 0x02, 2, 5]].concat();
        assert_eq!(content, expected);
    }

    proptest! {
        #[test]
        fn indexes_round_trip(index in any_index()) {
            prop_assert_eq!(write_and_parse(&index).expect("a frame"), index);
        }

        /// A damaged index is refused or ignored, unless its content stays the same.
        #[test]
        fn a_damaged_index_never_yields_other_content(index in any_index(), at in any::<prop::sample::Index>(), flip in 1u8..) {
            let mut frame = index.to_frame().expect("small");
            let at = at.index(frame.len());
            frame[at] ^= flip;
            if let Ok(Some(parsed)) = Index::parse_frame(&frame) {
                prop_assert_eq!(parsed, index);
            }
        }

        #[test]
        fn hostile_frames_never_panic(content in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut compressed = INDEX_MAGIC.to_vec();
            compressed.extend(zstd::bulk::compress(&content, 1).expect("compresses"));
            let _ = Index::parse_frame(&skippable_frame(INDEX_FRAME_KIND, &compressed).expect("small"));
            let _ = Index::parse_frame(&content);
        }
    }
}
