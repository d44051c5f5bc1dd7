//! Reads the two lists that a validator leaves beside the bank file when it stops gracefully: the
//! snapshot's storages, and their obsolete records (docs/snapshot-format.md#bank-snapshot).

use std::fs::File;
use std::io::BufRead;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use slotpress_base::{Error, IoContext, Result, array_at, hint, prefix_mut, range_bytes, to_usize, u32_at, u64_at};

use crate::ledger::record::{align8, record_bytes};
use crate::ledger::split::META_ALIGNMENT;
use crate::ledger::storages::{APPEND_VEC, ListedStorage, SPLIT, SPLIT_WITH_DATA};
use crate::{ACCOUNT_DATA_BYTES_MAX, FieldReader, RECORD_ALIGNMENT, RECORD_HEADER_BYTES, STORAGES_MAX, StorageFile};

/// Limit on the obsolete records of one storage. 16 GiB of the smallest records would hold 126
/// million, but Agave rewrites a storage long before. 8 million take 128 MiB in one worker.
pub const OBSOLETE_RECORDS_PER_STORAGE_MAX: u64 = 8 * 1024 * 1024;

/// Format of the lists of obsolete records, by the version in `fastboot_version`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObsoleteFormat {
    /// 2.x and 3.x, 24 bytes: u64 offset in the file, u64 data_len, u64 slot in which it
    /// was marked.
    Wide,
    /// 4.x and 5.x, 20 bytes: u32 offset in units, u64 data_len, u64 slot in which it was marked.
    /// The unit is 8 bytes in an append vec, and 32 bytes in the `.meta` file of a split storage.
    Compact,
}

impl ObsoleteFormat {
    const fn item_bytes(self) -> usize {
        match self {
            Self::Wide => WIDE_BYTES,
            Self::Compact => COMPACT_BYTES,
        }
    }

    fn read_item<R: BufRead>(self, r: &mut FieldReader<R>, is_split: bool) -> Result<ObsoleteItem> {
        let fields = match self {
            Self::Wide => array_at::<0, ITEM_FIELDS_BYTES, _>(&r.array::<WIDE_BYTES>()?),
            Self::Compact => array_at::<0, ITEM_FIELDS_BYTES, _>(&r.array::<COMPACT_BYTES>()?),
        };
        Ok(self.item(&fields, is_split))
    }

    fn item(self, fields: &[u8; ITEM_FIELDS_BYTES], is_split: bool) -> ObsoleteItem {
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

/// Bytes of items that are read at once. A multiple of both item lengths.
const ITEMS_BYTES: usize = 4080;
const _: () = assert!(ITEMS_BYTES.is_multiple_of(WIDE_BYTES) && ITEMS_BYTES.is_multiple_of(COMPACT_BYTES));

/// Length of offset and data_len, with which an item begins in both formats.
const ITEM_FIELDS_BYTES: usize = 16;

/// An obsolete record: its offset in the file (the `.meta` file of a split storage), and the length
/// of its data, both in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObsoleteItem {
    pub offset: u64,
    pub data_len: u64,
}

/// Parses a `storages_list`: slot and id of each storage, in the file's order.
pub fn parse_storages_list<R: BufRead>(r: FieldReader<R>) -> Result<Vec<(u64, u32)>> {
    parse_list(r, 12, |r| Ok((r.u64()?, r.u32()?)))
}

/// Parses a list of storages whose items have at least `storage_bytes_min` bytes.
fn parse_list<R: BufRead, T>(
    mut r: FieldReader<R>,
    storage_bytes_min: u64,
    parse: impl Fn(&mut FieldReader<R>) -> Result<T>,
) -> Result<Vec<T>> {
    let count = r.count("the list", storage_bytes_min)?;
    if count > STORAGES_MAX {
        return Err(r.damaged(format!("{count} storages, more than the {STORAGES_MAX} that a snapshot can have")));
    }
    let storages = (0..count).map(|_| parse(&mut r)).collect::<Result<_>>()?;
    r.expect_end()?;
    Ok(storages)
}

/// Parses a `storages_list` of fastboot 4.x and 5.x. A u64 count comes first. An append vec has u32
/// 0, u32 id, u64 slot; a split storage has u32 1, u8 has_data_file, u32 id, u64 slot.
pub fn parse_tagged_storages_list<R: BufRead>(r: FieldReader<R>) -> Result<Vec<ListedStorage>> {
    parse_list(r, 16, |r| {
        let endings = match r.u32()? {
            0 => APPEND_VEC,
            1 if r.flag("a split storage")? => SPLIT_WITH_DATA,
            1 => SPLIT,
            kind => {
                let why = format!("a storage of kind {kind}, where slotpress knows 0 and 1");
                return Err(r.damaged(why).with_hint(hint::NEWER_LAYOUT));
            }
        };
        let id = r.u32()?;
        let slot = r.u64()?;
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

pub fn write_no_obsolete_accounts(
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

/// Obsolete records of one storage: where they are listed, and how much they cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObsoleteSummary {
    pub slot: u64,
    pub id: u64,
    pub count: u64,
    pub list_offset: u64,
    pub cut_bytes: u64,
}

/// Streams `obsolete_accounts` (up to 12 GB on mainnet), storage by storage. `storage` looks up a
/// storage that exists; `on_storage` receives each summary.
pub fn scan_obsolete_accounts<R: BufRead>(
    mut r: FieldReader<R>,
    format: ObsoleteFormat,
    storage: &dyn Fn(u64, u64) -> Option<StorageFile>,
    on_storage: &mut dyn FnMut(ObsoleteSummary) -> Result<()>,
) -> Result<()> {
    let item_bytes = format.item_bytes() as u64;
    for _ in 0..r.count("the list", 32)? {
        let slot = r.u64()?;
        let id = r.u64()?;
        let _claimed_bytes = r.u64()?;
        let count = r.count("the obsolete records of a storage", item_bytes)?;
        let list_offset = r.position();
        if count > OBSOLETE_RECORDS_PER_STORAGE_MAX {
            return Err(r.damaged(format!(
                "storage {slot}.{id} has {count} obsolete records, more than the {OBSOLETE_RECORDS_PER_STORAGE_MAX} \
                 that slotpress handles"
            )));
        }
        let mut cut_bytes: u64 = 0;
        match storage(slot, id) {
            // The records of a missing storage cannot be checked.
            None => r.skip(count.saturating_mul(item_bytes))?,
            Some(storage) => {
                for _ in 0..count {
                    let item = format.read_item(&mut r, storage.is_split())?;
                    let cut = cut_by(item, &storage).map_err(|why| r.damaged(format!("storage {slot}.{id}: {why}")))?;
                    cut_bytes = cut_bytes.saturating_add(cut);
                }
            }
        }
        on_storage(ObsoleteSummary { slot, id, count, list_offset, cut_bytes })?;
    }
    r.expect_end()
}

/// Returns the bytes by which a storage shrinks when an obsolete record is cut out.
fn cut_by(item: ObsoleteItem, storage: &StorageFile) -> Result<u64, String> {
    if !storage.is_split() {
        let cut = obsolete_range(item.offset, item.data_len, storage.file_bytes);
        return cut.map(|cut| range_bytes(&cut));
    }
    // Reading the file shows later whether a record begins there.
    if item.offset >= storage.file_bytes || item.data_len > ACCOUNT_DATA_BYTES_MAX {
        return Err(format!(
            "an obsolete record at offset {} with {} bytes of data is outside the .meta file of {} bytes",
            item.offset, item.data_len, storage.file_bytes
        ));
    }
    Ok(record_bytes(item.data_len))
}

/// An open `obsolete_accounts`, which can read the list of any storage.
#[derive(Debug)]
pub struct ObsoleteLists {
    pub file: File,
    pub path: PathBuf,
    pub format: ObsoleteFormat,
}

impl ObsoleteLists {
    pub fn open(path: PathBuf, format: ObsoleteFormat) -> Result<Self> {
        Ok(Self { file: slotpress_base::files::open_file(&path)?, path, format })
    }

    /// Reads a storage's obsolete records, sorted by offset.
    pub fn read_items(&self, list_offset: u64, count: u64, is_split: bool) -> Result<Vec<ObsoleteItem>> {
        let item_bytes = self.format.item_bytes();
        let count = count.min(OBSOLETE_RECORDS_PER_STORAGE_MAX);
        let mut items = Vec::with_capacity(to_usize(count));
        let mut buffer = [0; ITEMS_BYTES];
        let mut offset = list_offset;
        let mut left_bytes = to_usize(count).saturating_mul(item_bytes);
        while left_bytes > 0 {
            let part = prefix_mut(&mut buffer, left_bytes);
            self.file.read_exact_at(part, offset).or_path("read", &self.path)?;
            offset = offset.saturating_add(part.len() as u64);
            left_bytes = left_bytes.saturating_sub(part.len());
            let fields = part.chunks_exact(item_bytes).filter_map(|item| item.first_chunk());
            items.extend(fields.map(|fields| self.format.item(fields, is_split)));
        }
        items.sort_unstable_by_key(|item| item.offset);
        Ok(items)
    }

    /// Reads an append vec's obsolete records. Returns the ranges of the file that remain, sorted
    /// and not adjacent.
    pub fn read_kept_ranges(&self, list_offset: u64, count: u64, file_bytes: u64) -> Result<Vec<Range<u64>>> {
        let items = self.read_items(list_offset, count, false)?;
        let cuts = items.into_iter().map(|item| obsolete_range(item.offset, item.data_len, file_bytes));
        let cuts = cuts.collect::<Result<Vec<_>, _>>().map_err(Error::damaged)?;
        kept_ranges(&cuts, file_bytes).map_err(Error::damaged)
    }
}

/// Returns what lies between sorted cuts. Overlapping cuts are damage: a record cannot be
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

/// Returns the range of an obsolete record, `[offset, align8(offset + 136 + data_len))`, cut at the
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
        /// Kept ranges and cuts together contain each byte of the file once.
        #[test]
        fn kept_ranges_are_the_complement(lengths in proptest::collection::vec((1u64..50, any::<bool>()), 0..50)) {
            let mut at = 0;
            let mut cuts = Vec::new();
            let mut expected = Vec::new();
            for (length, is_cut) in lengths {
                if is_cut {
                    cuts.push(at..at + length);
                } else {
                    expected.extend(at..at + length);
                }
                at += length;
            }
            let kept: Vec<u64> = kept_ranges(&cuts, at).expect("no overlap").into_iter().flatten().collect();
            prop_assert_eq!(kept, expected);
        }
    }

    fn tagged(bytes: &[u8]) -> Result<Vec<ListedStorage>> {
        parse_tagged_storages_list(FieldReader::new(bytes, bytes.len() as u64, "the storages list"))
    }

    #[test]
    fn tagged_lists_are_read() {
        let append_vec = [&[0; 4][..], &[7, 0, 0, 0], &9u64.to_le_bytes()].concat();
        let split = |has_data: u8| [&[1, 0, 0, 0][..], &[has_data], &[8, 0, 0, 0], &10u64.to_le_bytes()].concat();
        let list = |count: u64, items: &[Vec<u8>]| [&count.to_le_bytes()[..], &items.concat()].concat();
        let found = tagged(&list(3, &[append_vec.clone(), split(0), split(1)])).expect("sound");
        let expected = [(9, 7, APPEND_VEC), (10, 8, SPLIT), (10, 8, SPLIT_WITH_DATA)];
        assert_eq!(found, expected.map(|(slot, id, endings)| ListedStorage { slot, id, endings }));
        for (what, bytes) in [
            ("a kind of tomorrow", list(1, &[[&[2, 0, 0, 0][..], &[0; 13]].concat()])),
            ("a flag of 2", list(1, &[split(2)])),
            ("an item too many", list(1, &[append_vec.clone(), split(0)])),
            ("an item too few", list(2, &[append_vec.clone(), append_vec[..15].to_vec()])),
            ("far too many", list(u64::MAX, &[append_vec])),
        ] {
            assert_eq!(tagged(&bytes).expect_err(what).kind(), ErrorKind::Damaged, "{what}");
        }
    }

    proptest! {
        /// Any bytes give an error, or a list that can have that many items; never a panic.
        #[test]
        fn hostile_lists_never_panic(bytes in proptest::collection::vec(0u8..4, 0..200), is_split in any::<bool>()) {
            if let Ok(list) = tagged(&bytes) {
                prop_assert!(list.len() * 16 <= bytes.len());
            }
            let kind = if is_split { StorageKind::Split { data: None } } else { StorageKind::AppendVec };
            for format in [ObsoleteFormat::Wide, ObsoleteFormat::Compact] {
                let r = FieldReader::new(bytes.as_slice(), bytes.len() as u64, "the obsolete records");
                let storage = |slot, _| Some(StorageFile { slot, id: 0, root: 0, file_bytes: 1 << 20, modified_ns: 0, kind });
                let _ = scan_obsolete_accounts(r, format, &storage, &mut |found| {
                    assert!(found.list_offset + found.count * format.item_bytes() as u64 <= bytes.len() as u64);
                    Ok(())
                });
            }
        }
    }

    #[test]
    fn written_lists_are_read() {
        let storages = [(5u64, 1u32), (9, u32::MAX)];
        let mut list = Vec::new();
        write_storages_list(&mut list, storages.into_iter()).expect("written");
        let read = |bytes: &[u8]| parse_storages_list(FieldReader::new(bytes, bytes.len() as u64, "the list"));
        assert_eq!(read(&list).expect("sound"), storages);
        assert!(read(&list[..list.len() - 1]).is_err());
        assert!(read(&[&list[..], &[0]].concat()).is_err());
        let mut obsolete = Vec::new();
        write_no_obsolete_accounts(&mut obsolete, storages.into_iter()).expect("written");
        let mut found = Vec::new();
        let r = FieldReader::new(obsolete.as_slice(), obsolete.len() as u64, "the obsolete records");
        scan_obsolete_accounts(r, ObsoleteFormat::Wide, &|_, _| None, &mut |summary| {
            found.push((summary.slot, summary.id, summary.count, summary.cut_bytes));
            Ok(())
        })
        .expect("sound");
        assert_eq!(found, [(5, 1, 0, 0), (9, u64::from(u32::MAX), 0, 0)]);
    }

    /// In a split storage, the offset must lie in the `.meta` file, and the data be no longer than
    /// an account's.
    #[test]
    fn cuts_have_the_length_of_their_records() {
        let storage = |kind| StorageFile { slot: 1, id: 1, root: 0, file_bytes: 1000, modified_ns: 0, kind };
        let split = storage(StorageKind::Split { data: None });
        let cut = |offset, data_len| cut_by(ObsoleteItem { offset, data_len }, &split).ok();
        assert_eq!([cut(64, 5), cut(999, 0), cut(1000, 0)], [Some(144), Some(136), None]);
        assert_eq!(cut(64, ACCOUNT_DATA_BYTES_MAX), Some(ACCOUNT_DATA_BYTES_MAX + 136));
        assert_eq!(cut(64, ACCOUNT_DATA_BYTES_MAX + 1), None);
        let item = ObsoleteItem { offset: 8, data_len: 5 };
        assert_eq!(cut_by(item, &storage(StorageKind::AppendVec)), Ok(144));
    }

    #[test]
    fn overlaps_are_refused() {
        let after = kept_ranges(&[0..10, 10..12], 20).map(|kept| kept.len());
        assert_eq!(after, Ok(1), "nothing is kept between two that touch");
        assert!(kept_ranges(&[0..10, 8..12], 20).is_err());
        assert!(kept_ranges(&[0..10, 0..10], 20).is_err());
    }
}
