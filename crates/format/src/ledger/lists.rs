//! Reads and writes the two lists that a validator leaves beside the bank file when it stops gracefully: the
//! snapshot's storages, and their obsolete records (docs/snapshot-format.md#bank-snapshot).

use std::fs::File;
use std::io::BufRead;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use slotpress_base::{
    Error, IoContext, Result, array_at, hint, open_file, prefix_mut, range_bytes, to_usize, u32_at, u64_at,
};

use crate::ledger::record::{align8, record_bytes};
use crate::ledger::split::META_ALIGNMENT;
use crate::ledger::storages::{APPEND_VEC_ENDINGS, ListedStorage, SPLIT_ENDINGS, SPLIT_WITH_DATA_ENDINGS};
use crate::{ACCOUNT_DATA_BYTES_MAX, FieldReader, RECORD_ALIGNMENT, RECORD_HEADER_BYTES, STORAGES_MAX, StorageFile};

/// Limit on the obsolete records of one storage. 16 GiB hold 126 million of the smallest records, but Agave
/// rewrites a storage long before it has that many obsolete records. 8 million take 128 MiB in one worker.
pub const OBSOLETE_RECORDS_PER_STORAGE_MAX: u64 = 8 * 1024 * 1024;

/// Format of an item in the lists of obsolete records. The version in `fastboot_version` determines the
/// format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObsoleteFormat {
    /// Format of versions 2.x and 3.x, 24 bytes: u64 offset in the file, u64 data_len, u64 slot in which the
    /// record was marked.
    Wide,
    /// Format of versions 4.x and 5.x, 20 bytes: u32 offset in units, u64 data_len, u64 slot in which the
    /// record was marked. The unit is 8 bytes in an append vec, and 32 bytes in the `.meta` file of a split storage.
    Compact,
}

impl ObsoleteFormat {
    const fn item_bytes(self) -> usize {
        match self {
            Self::Wide => WIDE_BYTES,
            Self::Compact => COMPACT_BYTES,
        }
    }

    fn read_item<R: BufRead>(self, reader: &mut FieldReader<R>, is_split: bool) -> Result<ObsoleteItem> {
        let fields = match self {
            Self::Wide => array_at::<0, ITEM_FIELDS_BYTES, _>(&reader.array::<WIDE_BYTES>()?),
            Self::Compact => array_at::<0, ITEM_FIELDS_BYTES, _>(&reader.array::<COMPACT_BYTES>()?),
        };
        Ok(self.parse_item(&fields, is_split))
    }

    fn parse_item(self, fields: &[u8; ITEM_FIELDS_BYTES], is_split: bool) -> ObsoleteItem {
        match self {
            Self::Wide => ObsoleteItem { offset: u64_at::<0, _>(fields), data_len: u64_at::<8, _>(fields) },
            Self::Compact => {
                let unit = if is_split { META_ALIGNMENT } else { RECORD_ALIGNMENT };
                let offset = u64::from(u32_at::<0, _>(fields)).saturating_mul(unit);
                ObsoleteItem { offset, data_len: u64_at::<4, _>(fields) }
            }
        }
    }
}

const WIDE_BYTES: usize = 24;
const COMPACT_BYTES: usize = 20;

/// Number of bytes that are read at once. It is a multiple of the item lengths of both formats.
const BUFFER_BYTES: usize = 4080;
const _: () = assert!(BUFFER_BYTES.is_multiple_of(WIDE_BYTES) && BUFFER_BYTES.is_multiple_of(COMPACT_BYTES));

/// Number of bytes at the start of an item that contain its offset and data_len in both formats.
const ITEM_FIELDS_BYTES: usize = 16;

/// An obsolete record: its offset in the append vec or the `.meta` file, and the length of its data, both in
/// bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObsoleteItem {
    pub offset: u64,
    pub data_len: u64,
}

/// Parses a `storages_list`. Returns slot and id of each storage, in the order of the file.
pub fn parse_storages_list<R: BufRead>(reader: FieldReader<R>) -> Result<Vec<(u64, u32)>> {
    parse_list(reader, 12, |reader| Ok((reader.u64()?, reader.u32()?)))
}

/// Parses a list of storages. Each item occupies at least `item_bytes_min` bytes.
fn parse_list<R: BufRead, T>(
    mut reader: FieldReader<R>,
    item_bytes_min: u64,
    parse: impl Fn(&mut FieldReader<R>) -> Result<T>,
) -> Result<Vec<T>> {
    let count = reader.count("the list", item_bytes_min)?;
    if count > STORAGES_MAX {
        return Err(
            reader.damage_error(format!("{count} storages, more than the {STORAGES_MAX} that a snapshot can have"))
        );
    }
    let storages = (0..count).map(|_| parse(&mut reader)).collect::<Result<_>>()?;
    reader.expect_end()?;
    Ok(storages)
}

/// Parses a `storages_list` of fastboot 4.x and 5.x. It begins with a u64 count. An append vec has u32 0,
/// u32 id, u64 slot; a split storage has u32 1, u8 has_data_file, u32 id, u64 slot.
pub fn parse_tagged_storages_list<R: BufRead>(reader: FieldReader<R>) -> Result<Vec<ListedStorage>> {
    parse_list(reader, 16, |reader| {
        let endings = match reader.u32()? {
            0 => APPEND_VEC_ENDINGS,
            1 if reader.flag("a split storage")? => SPLIT_WITH_DATA_ENDINGS,
            1 => SPLIT_ENDINGS,
            kind => {
                let why = format!("a storage of kind {kind}; slotpress knows only 0 and 1");
                return Err(reader.damage_error(why).with_hint(hint::NEWER_LAYOUT));
            }
        };
        let id = reader.u32()?;
        let slot = reader.u64()?;
        Ok(ListedStorage { slot, id, endings })
    })
}

pub fn write_storages_list(
    to: &mut impl std::io::Write,
    storages: impl ExactSizeIterator<Item = (u64, u32)>,
) -> std::io::Result<()> {
    to.write_all(&(storages.len() as u64).to_le_bytes())?;
    for (slot, id) in storages {
        to.write_all(&slot.to_le_bytes())?;
        to.write_all(&id.to_le_bytes())?;
    }
    Ok(())
}

pub fn write_empty_obsolete_lists(
    to: &mut impl std::io::Write,
    storages: impl ExactSizeIterator<Item = (u64, u32)>,
) -> std::io::Result<()> {
    to.write_all(&(storages.len() as u64).to_le_bytes())?;
    for (slot, id) in storages {
        for field in [slot, u64::from(id), 0, 0] {
            to.write_all(&field.to_le_bytes())?;
        }
    }
    Ok(())
}

/// The obsolete records of one storage: where `obsolete_accounts` lists them, and by how many bytes the
/// storage shrinks without them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObsoleteSummary {
    pub slot: u64,
    pub id: u64,
    pub count: u64,
    pub list_offset: u64,
    pub cut_bytes: u64,
}

/// Reads `obsolete_accounts` (up to 12 GB on mainnet) as a stream. `find_storage` looks up a storage on disk.
/// `on_storage` receives the summary of each storage.
pub fn scan_obsolete_accounts<R: BufRead>(
    mut reader: FieldReader<R>,
    format: ObsoleteFormat,
    find_storage: &dyn Fn(u64, u64) -> Option<StorageFile>,
    on_storage: &mut dyn FnMut(ObsoleteSummary) -> Result<()>,
) -> Result<()> {
    let item_bytes = format.item_bytes() as u64;
    for _ in 0..reader.count("the list", 32)? {
        let slot = reader.u64()?;
        let id = reader.u64()?;
        let _claimed_bytes = reader.u64()?;
        let count = reader.count("the obsolete records of a storage", item_bytes)?;
        let list_offset = reader.position();
        if count > OBSOLETE_RECORDS_PER_STORAGE_MAX {
            return Err(reader.damage_error(format!(
                "storage {slot}.{id} has {count} obsolete records, more than the {OBSOLETE_RECORDS_PER_STORAGE_MAX} \
                 that slotpress handles"
            )));
        }
        let mut cut_bytes: u64 = 0;
        match find_storage(slot, id) {
            // The records of a missing storage cannot be checked.
            None => reader.skip(count.saturating_mul(item_bytes))?,
            Some(storage) => {
                for _ in 0..count {
                    let item = format.read_item(&mut reader, storage.is_split())?;
                    let item_cut_bytes = cut_bytes_of(item, &storage)
                        .map_err(|why| reader.damage_error(format!("storage {slot}.{id}: {why}")))?;
                    cut_bytes = cut_bytes.saturating_add(item_cut_bytes);
                }
            }
        }
        on_storage(ObsoleteSummary { slot, id, count, list_offset, cut_bytes })?;
    }
    reader.expect_end()
}

/// Returns the number of bytes by which a storage shrinks when an obsolete record is cut out.
fn cut_bytes_of(item: ObsoleteItem, storage: &StorageFile) -> Result<u64, String> {
    if !storage.is_split() {
        let cut = obsolete_range(item.offset, item.data_len, storage.file_bytes);
        return cut.map(|cut| range_bytes(&cut));
    }
    // Whether a record begins at the offset is checked when the file is read.
    if item.offset >= storage.file_bytes || item.data_len > ACCOUNT_DATA_BYTES_MAX {
        return Err(format!(
            "an obsolete record at offset {} with {} bytes of data is outside the .meta file of {} bytes",
            item.offset, item.data_len, storage.file_bytes
        ));
    }
    Ok(record_bytes(item.data_len))
}

/// An open `obsolete_accounts`, from which the list of any storage can be read.
#[derive(Debug)]
pub struct ObsoleteLists {
    pub file: File,
    pub path: PathBuf,
    pub format: ObsoleteFormat,
}

impl ObsoleteLists {
    pub fn open(path: PathBuf, format: ObsoleteFormat) -> Result<Self> {
        Ok(Self { file: open_file(&path)?, path, format })
    }

    /// Reads a storage's obsolete records, sorted by offset. [`scan_obsolete_accounts`] refuses a larger `count`
    /// than this reads.
    pub fn read_items(&self, list_offset: u64, count: u64, is_split: bool) -> Result<Vec<ObsoleteItem>> {
        let item_bytes = self.format.item_bytes();
        let count = count.min(OBSOLETE_RECORDS_PER_STORAGE_MAX);
        let mut items = Vec::with_capacity(to_usize(count));
        let mut buffer = [0; BUFFER_BYTES];
        let mut offset = list_offset;
        let mut remaining_bytes = to_usize(count).saturating_mul(item_bytes);
        while remaining_bytes > 0 {
            let part = prefix_mut(&mut buffer, remaining_bytes);
            self.file.read_exact_at(part, offset).or_path("read", &self.path)?;
            offset = offset.saturating_add(part.len() as u64);
            remaining_bytes = remaining_bytes.saturating_sub(part.len());
            let fields = part.chunks_exact(item_bytes).filter_map(|item| item.first_chunk());
            items.extend(fields.map(|fields| self.format.parse_item(fields, is_split)));
        }
        items.sort_unstable_by_key(|item| item.offset);
        Ok(items)
    }

    /// Reads the obsolete records of an append vec. Returns the ranges of the file that remain without
    /// them, sorted and not adjacent.
    pub fn read_kept_ranges(&self, list_offset: u64, count: u64, file_bytes: u64) -> Result<Vec<Range<u64>>> {
        let items = self.read_items(list_offset, count, false)?;
        let cuts = items.into_iter().map(|item| obsolete_range(item.offset, item.data_len, file_bytes));
        let cuts = cuts.collect::<Result<Vec<_>, _>>().map_err(Error::damaged)?;
        kept_ranges(&cuts, file_bytes).map_err(Error::damaged)
    }
}

/// Returns the ranges of a file outside the sorted cuts. Fails if cuts overlap, because a record cannot be
/// obsolete twice.
fn kept_ranges(cuts: &[Range<u64>], file_bytes: u64) -> Result<Vec<Range<u64>>, String> {
    let mut kept = Vec::with_capacity(cuts.len().saturating_add(1));
    let mut last_end = 0;
    for cut in cuts {
        if cut.start < last_end {
            return Err(format!("obsolete records overlap at offset {}", cut.start));
        }
        if cut.start > last_end {
            kept.push(last_end..cut.start);
        }
        last_end = cut.end;
    }
    if last_end < file_bytes {
        kept.push(last_end..file_bytes);
    }
    Ok(kept)
}

/// Returns the range of an obsolete record, `[offset, align8(offset + 136 + data_len))`, but not beyond the
/// end of the file.
fn obsolete_range(offset: u64, data_len: u64, file_bytes: u64) -> Result<Range<u64>, String> {
    let end = offset.saturating_add(RECORD_HEADER_BYTES as u64).saturating_add(data_len);
    if !offset.is_multiple_of(RECORD_ALIGNMENT) {
        return Err(format!("an obsolete record at offset {offset}, which is not a multiple of {RECORD_ALIGNMENT}"));
    }
    if end > align8(file_bytes) {
        return Err(format!("an obsolete record at {offset}..{end} is outside the file of {file_bytes} bytes"));
    }
    Ok(offset..align8(end).min(file_bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use slotpress_base::ErrorKind;

    use super::*;
    use crate::StorageKind;

    #[test]
    fn ranges_outside_the_file_are_refused() {
        assert_eq!(obsolete_range(0, 0, 136), Ok(0..136));
        assert_eq!(obsolete_range(8, 1, 148), Ok(8..148), "the last record's padding may be missing");
        assert!(obsolete_range(8, 0, 136).is_err());
        assert!(obsolete_range(4, 0, 1000).is_err());
        assert!(obsolete_range(u64::MAX - 7, u64::MAX, 1000).is_err());
    }

    proptest! {
        #[test]
        fn kept_ranges_are_all_bytes_outside_cuts(pieces in proptest::collection::vec((1u64..50, any::<bool>()), 0..50)) {
            let mut file_bytes = 0;
            let mut cuts = Vec::new();
            let mut expected = Vec::new();
            for (length, is_cut) in pieces {
                let piece = file_bytes..file_bytes + length;
                file_bytes = piece.end;
                if is_cut {
                    cuts.push(piece);
                } else {
                    expected.extend(piece);
                }
            }
            let kept: Vec<u64> = kept_ranges(&cuts, file_bytes).expect("no overlap").into_iter().flatten().collect();
            prop_assert_eq!(kept, expected);
        }
    }

    fn reader(bytes: &[u8]) -> FieldReader<&[u8]> {
        FieldReader::new(bytes, bytes.len() as u64, "the list")
    }

    #[test]
    fn tagged_lists_are_parsed() {
        let append_vec = [&[0; 4][..], &[7, 0, 0, 0], &9u64.to_le_bytes()].concat();
        let split = |has_data: u8| [&[1, 0, 0, 0][..], &[has_data], &[8, 0, 0, 0], &10u64.to_le_bytes()].concat();
        let list = |count: u64, items: &[Vec<u8>]| [&count.to_le_bytes()[..], &items.concat()].concat();
        let intact = list(3, &[append_vec.clone(), split(0), split(1)]);
        let parsed = parse_tagged_storages_list(reader(&intact)).expect("valid");
        let expected = [(9, 7, APPEND_VEC_ENDINGS), (10, 8, SPLIT_ENDINGS), (10, 8, SPLIT_WITH_DATA_ENDINGS)];
        assert_eq!(parsed, expected.map(|(slot, id, endings)| ListedStorage { slot, id, endings }));
        for (fault, bytes) in [
            ("an unknown kind", list(1, &[[&[2, 0, 0, 0][..], &[0; 13]].concat()])),
            ("a flag of 2", list(1, &[split(2)])),
            ("one item too many", list(1, &[append_vec.clone(), split(0)])),
            ("one item too few", list(2, &[append_vec.clone(), append_vec[..15].to_vec()])),
            ("far too many", list(u64::MAX, &[append_vec])),
        ] {
            assert_eq!(
                parse_tagged_storages_list(reader(&bytes)).expect_err(fault).kind(),
                ErrorKind::Damaged,
                "{fault}"
            );
        }
    }

    proptest! {
        #[test]
        fn hostile_lists_never_panic(bytes in proptest::collection::vec(0u8..4, 0..200), is_split in any::<bool>()) {
            if let Ok(list) = parse_tagged_storages_list(reader(&bytes)) {
                prop_assert!(list.len() * 16 <= bytes.len());
            }
            let kind = if is_split { StorageKind::Split { data: None } } else { StorageKind::AppendVec };
            for format in [ObsoleteFormat::Wide, ObsoleteFormat::Compact] {
                let storage = |slot, _| Some(StorageFile { slot, file_bytes: 1 << 20, kind, ..StorageFile::default() });
                let _ = scan_obsolete_accounts(reader(&bytes), format, &storage, &mut |summary| {
                    assert!(summary.list_offset + summary.count * format.item_bytes() as u64 <= bytes.len() as u64);
                    Ok(())
                });
            }
        }
    }

    #[test]
    fn storages_lists_round_trip() {
        let storages = [(5u64, 1u32), (9, u32::MAX)];
        let mut list = Vec::new();
        write_storages_list(&mut list, storages.into_iter()).expect("written");
        assert_eq!(parse_storages_list(reader(&list)).expect("valid"), storages);
        assert!(parse_storages_list(reader(&list[..list.len() - 1])).is_err());
        assert!(parse_storages_list(reader(&[&list[..], &[0]].concat())).is_err());
    }

    #[test]
    fn lists_without_obsolete_records_round_trip() {
        let mut lists = Vec::new();
        write_empty_obsolete_lists(&mut lists, [(5u64, 1u32), (9, u32::MAX)].into_iter()).expect("written");
        let mut summaries = Vec::new();
        scan_obsolete_accounts(reader(&lists), ObsoleteFormat::Wide, &|_, _| None, &mut |summary| {
            summaries.push((summary.slot, summary.id, summary.count, summary.cut_bytes));
            Ok(())
        })
        .expect("valid");
        assert_eq!(summaries, [(5, 1, 0, 0), (9, u64::from(u32::MAX), 0, 0)]);
    }

    /// In a split storage, the offset must be in the `.meta` file, and an account must be able to hold the
    /// data.
    #[test]
    fn cuts_have_the_length_of_their_records() {
        let storage = |kind| StorageFile { file_bytes: 1000, kind, ..StorageFile::default() };
        let split = storage(StorageKind::Split { data: None });
        let cut_bytes = |offset, data_len| cut_bytes_of(ObsoleteItem { offset, data_len }, &split).ok();
        assert_eq!([cut_bytes(64, 5), cut_bytes(999, 0), cut_bytes(1000, 0)], [Some(144), Some(136), None]);
        assert_eq!(cut_bytes(64, ACCOUNT_DATA_BYTES_MAX), Some(ACCOUNT_DATA_BYTES_MAX + 136));
        assert_eq!(cut_bytes(64, ACCOUNT_DATA_BYTES_MAX + 1), None);
        let item = ObsoleteItem { offset: 8, data_len: 5 };
        assert_eq!(cut_bytes_of(item, &storage(StorageKind::AppendVec)), Ok(144));
    }

    #[test]
    fn overlaps_are_refused() {
        let kept = kept_ranges(&[0..10, 10..12], 20).expect("adjacent records do not overlap");
        assert_eq!((kept.len(), &kept[0]), (1, &(12..20)));
        assert!(kept_ranges(&[0..10, 8..12], 20).is_err());
        assert!(kept_ranges(&[0..10, 0..10], 20).is_err());
    }
}
