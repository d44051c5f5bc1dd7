//! The index of entries that slotpress writes near the end of an archive, in a skippable frame that
//! other programs ignore. Together with the seek table it gives the position of each entry: a
//! reader takes one storage out of an archive of 110 GB, and workers unpack frames independently.
//!
//! The index is a hint: everything that is decoded is checked against the tar headers.
//! `docs/format.md` describes the layout.

use slotpress_base::{Error, Result, array_at, split_at_most, to_usize, u64_at};

use crate::{
    END_OF_ARCHIVE_BYTES, ENTRIES_MAX, ENTRY_BYTES_MAX, Entry, EntryKind, SKIPPABLE_HEADER_BYTES, skippable_frame,
};

/// Kind of the skippable frame that contains the index.
pub const INDEX_FRAME_KIND: u8 = 13;

/// Limit on the length of an index frame: 5,000,000 entries take about 30 MB; the rest is margin.
pub const INDEX_FRAME_BYTES_MAX: u64 = 256 * 1024 * 1024;

pub const INDEX_MAGIC: &[u8; 8] = b"slotidx1";

/// Length of the fixed fields: magic, number of entries, tar bytes, frame size, table bytes, blake3
/// of the table.
const HEADER_BYTES: usize = 8 + 8 * 4 + 32;

/// Maximum length of an entry in the table, in bytes: a tag, and three numbers of at most 10 bytes.
const ENTRY_TABLE_BYTES_MAX: u64 = 31;

/// Compression level of the table. A fast one, since the table is small.
const TABLE_LEVEL: i32 = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// Program that wrote the archive, for example "slotpress 0.2.0".
    pub writer: String,
    /// Settings of the writer, for example "zstd-level=1".
    pub settings: String,
    pub frame_size_bytes: u64,
    pub entries: Vec<Entry>,
}

impl Index {
    pub fn tar_bytes(&self) -> u64 {
        self.entries.iter().map(Entry::tar_bytes).fold(END_OF_ARCHIVE_BYTES, u64::saturating_add)
    }

    pub fn to_frame(&self) -> Result<Vec<u8>> {
        let too_large = || {
            let entries = self.entries.len();
            Error::failed(format!(
                "the archive's index of {entries} entries takes more than the 4 GiB that a frame has"
            ))
        };
        let table = write_table(&self.entries);
        let compressed = zstd::bulk::compress(&table, TABLE_LEVEL)
            .map_err(|error| Error::failed(format!("cannot compress the index: {error}")))?;
        let mut content = Vec::with_capacity(compressed.len().saturating_add(HEADER_BYTES + 64));
        content.extend_from_slice(INDEX_MAGIC);
        for number in [self.entries.len() as u64, self.tar_bytes(), self.frame_size_bytes, table.len() as u64] {
            content.extend_from_slice(&number.to_le_bytes());
        }
        content.extend_from_slice(blake3::hash(&table).as_bytes());
        for text in [&self.writer, &self.settings] {
            let length = u8::try_from(text.len()).unwrap_or(u8::MAX);
            content.push(length);
            content.extend_from_slice(split_at_most(text.as_bytes(), usize::from(length)).0);
        }
        content.extend_from_slice(&compressed);
        skippable_frame(INDEX_FRAME_KIND, &content).ok_or_else(too_large)
    }

    pub fn parse_frame(frame: &[u8]) -> Result<Self> {
        Self::parse_content(frame.get(SKIPPABLE_HEADER_BYTES..).unwrap_or_default())
    }

    fn parse_content(content: &[u8]) -> Result<Self> {
        let wrong = |why: &str| Error::damaged(format!("the archive's index is damaged: {why}"));
        let too_short = || wrong("too short");
        let (header, mut rest) = content.split_first_chunk::<HEADER_BYTES>().ok_or_else(too_short)?;
        if array_at::<0, 8, _>(header) != *INDEX_MAGIC {
            return Err(wrong("of an unknown version"));
        }
        let (count, tar_bytes) = (u64_at::<8, _>(header), u64_at::<16, _>(header));
        let (frame_size_bytes, table_bytes) = (u64_at::<24, _>(header), u64_at::<32, _>(header));
        if count > ENTRIES_MAX || table_bytes > count.saturating_mul(ENTRY_TABLE_BYTES_MAX) {
            return Err(wrong("it claims too many entries"));
        }
        let mut text = || -> Result<String> {
            let (length, after) = rest.split_first().ok_or_else(too_short)?;
            let (bytes, after) = after.split_at_checked(usize::from(*length)).ok_or_else(too_short)?;
            rest = after;
            // People see this text, and control characters could move their cursor.
            Ok(String::from_utf8_lossy(bytes).chars().filter(|char| !char.is_control()).collect())
        };
        let (writer, settings) = (text()?, text()?);
        let table = zstd::bulk::decompress(rest, to_usize(table_bytes)).map_err(|error| wrong(&error.to_string()))?;
        if *blake3::hash(&table).as_bytes() != array_at::<40, 32, _>(header) {
            return Err(wrong("its checksum differs"));
        }
        let entries = read_table(&table, count).ok_or_else(|| wrong("its table is invalid"))?;
        let index = Self { writer, settings, frame_size_bytes, entries };
        if index.tar_bytes() != tar_bytes {
            return Err(wrong("its entries do not add up"));
        }
        Ok(index)
    }
}

fn write_table(entries: &[Entry]) -> Vec<u8> {
    let mut table = Vec::with_capacity(entries.len().saturating_mul(8));
    let (mut slot_before, mut id_before) = (0, 0);
    for entry in entries {
        let (tag, slot) = match entry.kind {
            EntryKind::Version => (0, None),
            EntryKind::SnapshotsDir => (1, None),
            EntryKind::StatusCache => (2, None),
            EntryKind::SlotDir(slot) => (3, Some(slot)),
            EntryKind::BankFile(slot) => (4, Some(slot)),
            EntryKind::AccountsDir => (5, None),
            EntryKind::Storage { slot, id } => {
                table.push(6);
                write_number(&mut table, zigzag(slot.wrapping_sub(slot_before)));
                write_number(&mut table, zigzag(u64::from(id).wrapping_sub(id_before)));
                write_number(&mut table, entry.content_bytes);
                (slot_before, id_before) = (slot, u64::from(id));
                continue;
            }
        };
        table.push(tag);
        if let Some(slot) = slot {
            write_number(&mut table, slot);
        }
        write_number(&mut table, entry.content_bytes);
    }
    table
}

fn read_table(mut table: &[u8], count: u64) -> Option<Vec<Entry>> {
    let mut entries = Vec::with_capacity(to_usize(count).min(table.len()));
    let (mut slot_before, mut id_before) = (0u64, 0u64);
    for _ in 0..count {
        let (tag, rest) = table.split_first()?;
        table = rest;
        let kind = match tag {
            0 => EntryKind::Version,
            1 => EntryKind::SnapshotsDir,
            2 => EntryKind::StatusCache,
            3 => EntryKind::SlotDir(read_number(&mut table)?),
            4 => EntryKind::BankFile(read_number(&mut table)?),
            5 => EntryKind::AccountsDir,
            6 => {
                slot_before = slot_before.wrapping_add(unzigzag(read_number(&mut table)?));
                id_before = id_before.wrapping_add(unzigzag(read_number(&mut table)?));
                EntryKind::Storage { slot: slot_before, id: id_before.try_into().ok()? }
            }
            _ => return None,
        };
        let content_bytes = read_number(&mut table)?;
        if content_bytes > ENTRY_BYTES_MAX || (kind.is_dir() && content_bytes > 0) {
            return None;
        }
        entries.push(Entry { kind, content_bytes });
    }
    table.is_empty().then_some(entries)
}

/// Writes a number in little-endian base 128: seven bits a byte, the high bit set on all but
/// the last.
fn write_number(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    to.push(value.to_le_bytes()[0]);
}

fn read_number(from: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return None;
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Maps a wrapping difference to a number that is small if the difference is near zero, above
/// or below.
fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ (difference.cast_signed() >> 63).cast_unsigned()
}

fn unzigzag(value: u64) -> u64 {
    (value >> 1) ^ (value & 1).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entries() -> impl Strategy<Value = Vec<Entry>> {
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
        proptest::collection::vec(entry, 0..100)
    }

    /// A header whose numbers cannot be true is refused before anything is unpacked or allocated.
    #[test]
    fn impossible_counts() {
        let index = Index { writer: String::new(), settings: String::new(), frame_size_bytes: 1, entries: Vec::new() };
        let frame = index.to_frame().expect("small");
        let with = |count: u64, table_bytes: u64| {
            let mut content = frame[SKIPPABLE_HEADER_BYTES..].to_vec();
            content[8..16].copy_from_slice(&count.to_le_bytes());
            content[32..40].copy_from_slice(&table_bytes.to_le_bytes());
            Index::parse_content(&content).err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert_eq!(with(0, 0), "");
        for (count, table_bytes) in [(ENTRIES_MAX + 1, 0), (1, ENTRY_TABLE_BYTES_MAX + 1), (0, 1)] {
            assert!(with(count, table_bytes).contains("too many entries"), "{count}, {table_bytes}");
        }
        for (count, table_bytes) in [(ENTRIES_MAX, 0), (1, ENTRY_TABLE_BYTES_MAX)] {
            assert!(!with(count, table_bytes).contains("too many entries"), "{count}, {table_bytes}");
        }
    }

    /// A table made by an attacker may claim impossible entries.
    #[test]
    fn impossible_entries() {
        let table = |kind, content_bytes| {
            let table = write_table(&[Entry { kind, content_bytes }]);
            read_table(&table, 1).map(|entries| entries.len())
        };
        assert_eq!(table(EntryKind::StatusCache, ENTRY_BYTES_MAX), Some(1));
        assert_eq!(table(EntryKind::StatusCache, ENTRY_BYTES_MAX + 1), None);
        assert_eq!(table(EntryKind::AccountsDir, 0), Some(1));
        assert_eq!(table(EntryKind::AccountsDir, 1), None);
    }

    proptest! {
        #[test]
        fn indexes_round_trip(entries in entries(), frame_size_bytes in any::<u64>()) {
            let index = Index { writer: "slotpress 1".into(), settings: "level=1".into(), frame_size_bytes, entries };
            let frame = index.to_frame().expect("small");
            prop_assert_eq!(Index::parse_frame(&frame).expect("own frame"), index);
        }

        /// A damaged index is refused, unless only labels or the frame size are damaged.
        #[test]
        fn damage_is_found(entries in entries(), at in any::<prop::sample::Index>(), flip in 1u8..) {
            let index = Index { writer: "w".into(), settings: "s".into(), frame_size_bytes: 1 << 20, entries };
            let mut frame = index.to_frame().expect("small");
            let at = at.index(frame.len());
            frame[at] ^= flip;
            if let Ok(read) = Index::parse_frame(&frame) {
                prop_assert_eq!(read.entries, index.entries);
            }
        }

        #[test]
        fn numbers_round_trip(value in any::<u64>()) {
            let mut bytes = Vec::new();
            write_number(&mut bytes, value);
            prop_assert_eq!(read_number(&mut bytes.as_slice()), Some(value));
            prop_assert_eq!(unzigzag(zigzag(value)), value);
        }

        #[test]
        fn hostile_tables_never_panic(table in proptest::collection::vec(any::<u8>(), 0..200), count in 0u64..100) {
            let _ = read_table(&table, count);
        }
    }
}
