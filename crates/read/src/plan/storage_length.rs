//! Computes how many bytes of each append vec are archived: the file without obsolete records, truncated
//! at the length that the bank file states.
//!
//! Split storages need a scan ([`split`](super::split)).

use std::path::Path;

use slotpress_base::{Error, EscapePath, Result};
use slotpress_format::ledger::lists::ObsoleteSummary;
use slotpress_format::ledger::record::align8;
use slotpress_format::{FieldReader, ObsoleteFormat, ObsoleteItem, StorageFile, scan_obsolete_accounts};

use super::UnplannedStorage;

#[derive(Clone, Debug)]
pub struct StorageFault {
    pub slot: u64,
    pub id: u64,
    /// True if the file is missing; false if it is invalid.
    pub is_missing: bool,
    pub error: Error,
}

/// Receives a storage that is missing or invalid. Planning continues without it, unless the result is an
/// error.
pub type OnFault<'a> = dyn FnMut(StorageFault) -> Result<()> + 'a;

/// Reads how many obsolete records each storage has, and how many bytes they occupy. `storages` are the
/// files of `unplanned`, sorted by slot and id. A missing storage with obsolete records is a fault.
pub(super) fn read_obsolete(
    path: &Path,
    format: ObsoleteFormat,
    storages: &[StorageFile],
    unplanned: &mut [UnplannedStorage<'_>],
    on_fault: &mut OnFault<'_>,
) -> Result<()> {
    let index_of = |slot: u64, id: u64| {
        storages.binary_search_by_key(&(slot, id), |storage| (storage.slot, u64::from(storage.id))).ok()
    };
    scan_obsolete_accounts(
        FieldReader::open(path, "the obsolete records")?,
        format,
        &|slot, id| index_of(slot, id).and_then(|index| storages.get(index)).copied(),
        &mut |summary| {
            let slot = summary.slot;
            let id = summary.id;
            let damage = |why: &str| Error::damaged(format!("{}: storage {slot}.{id} {why}", path.escaped()));
            let Some(storage) = index_of(slot, id).and_then(|index| unplanned.get_mut(index)) else {
                let error = damage("has obsolete records, but is missing");
                return match summary.count {
                    0 => Ok(()),
                    _ => on_fault(StorageFault { slot, id, is_missing: true, error }),
                };
            };
            match storage.obsolete.replace(summary) {
                Some(_) => Err(damage("is listed twice")),
                None => Ok(()),
            }
        },
    )
}

/// A position from which a split storage can be read: the same record in the entry and in the `.meta` file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    pub entry_offset: u64,
    pub meta_offset: u64,
}

#[derive(Debug, Default)]
pub struct StorageLength {
    pub content_bytes: u64,
    pub padding_bytes: u8,
    /// True if the whole file is archived although the storage map states a shorter length, or none.
    pub is_whole: bool,
    pub checkpoints: Vec<Checkpoint>,
}

/// Computes the archived length of an append vec: the file without obsolete records, truncated at the
/// storage map's length. Without a storage map, it is not truncated, but padded to whole records as in
/// Agave 4.4.
pub fn storage_length(
    file: &StorageFile,
    obsolete: &ObsoleteSummary,
    map_bytes: Option<u64>,
    has_map: bool,
) -> Result<StorageLength> {
    let cut_file_bytes = file.file_bytes.checked_sub(obsolete.cut_bytes).ok_or_else(|| {
        Error::damaged(format!("its obsolete records occupy {} of {} bytes", obsolete.cut_bytes, file.file_bytes))
    })?;
    if !has_map {
        let content_bytes = align8(cut_file_bytes);
        let padding_bytes = u8::try_from(content_bytes.saturating_sub(cut_file_bytes)).unwrap_or(u8::MAX);
        return Ok(StorageLength { content_bytes, padding_bytes, ..StorageLength::default() });
    }
    let length = |content_bytes, is_whole| StorageLength { content_bytes, is_whole, ..StorageLength::default() };
    let Some(map_bytes) = map_bytes else {
        if cut_file_bytes > 0 && obsolete.count > 0 {
            return Err(Error::damaged("the bank file's storage map does not name it"));
        }
        // In a ledger restored from a full and an incremental archive, the map comes from the incremental one.
        // It omits storages of the full archive in which all records have become obsolete.
        return Ok(length(cut_file_bytes, cut_file_bytes > 0));
    };
    if map_bytes > cut_file_bytes {
        return Err(Error::damaged(format!(
            "it is too short: {cut_file_bytes} bytes without its obsolete records, where the bank file says {map_bytes}"
        ))
        .with_hint("the file was truncated or replaced: archive a ledger whose validator exited gracefully"));
    }
    if align8(map_bytes) >= cut_file_bytes {
        return Ok(length(map_bytes, false));
    }
    // The file is longer than the bank file says. This is normal in a ledger restored from a full
    // and an incremental archive: the bank file is newer than the full archive's storages, which
    // still hold records that became obsolete in between. Newer storages supersede these records,
    // so they are harmless, and no list names them. If a list names records of this storage, the
    // length must follow from it.
    if obsolete.count > 0 {
        return Err(Error::damaged(format!(
            "it is too long: {cut_file_bytes} bytes without its obsolete records, where the bank file says {map_bytes}"
        )));
    }
    Ok(length(cut_file_bytes, true))
}

pub struct ObsoleteEntries<'a>(pub &'a [ObsoleteItem]);

impl ObsoleteEntries<'_> {
    /// If the entry is the next obsolete one, removes it from the list and returns true. Call this for each
    /// entry in order. A listed record that is not in the file is damage.
    pub fn is_next(&mut self, offset: u64, data_len: u32) -> Result<bool> {
        match self.0 {
            [item, rest @ ..] if item.offset == offset && item.data_len == u64::from(data_len) => {
                self.0 = rest;
                Ok(true)
            }
            [item, ..] if item.offset <= offset => Err(foreign_item_error(item)),
            _ => Ok(false),
        }
    }

    pub fn finish(&self) -> Result<()> {
        match self.0.first() {
            Some(item) => Err(foreign_item_error(item)),
            None => Ok(()),
        }
    }
}

fn foreign_item_error(item: &ObsoleteItem) -> Error {
    let ObsoleteItem { offset, data_len } = item;
    let why = "which is not an entry of the file, or is listed twice";
    Error::damaged(format!("an obsolete record at offset {offset} with {data_len} bytes of data, {why}"))
        .at_offset(*offset)
}

#[cfg(test)]
mod tests {
    use slotpress_format::StorageKind;

    use super::*;

    fn length(file_bytes: u64, cut_bytes: u64, map_bytes: Option<u64>) -> Result<(u64, bool)> {
        let file =
            StorageFile { slot: 1, id: 1, dir_index: 0, file_bytes, modified_ns: 0, kind: StorageKind::AppendVec };
        let obsolete = ObsoleteSummary { count: u64::from(cut_bytes > 0), cut_bytes, ..ObsoleteSummary::default() };
        storage_length(&file, &obsolete, map_bytes, true).map(|length| (length.content_bytes, length.is_whole))
    }

    #[test]
    fn the_storage_map_decides_the_archived_length() {
        assert_eq!(length(24440, 640, Some(23800)).expect("exact"), (23800, false));
        assert_eq!(length(22064, 2040, Some(20021)).expect("aligned"), (20021, false));
        assert_eq!(length(400, 400, Some(0)).expect("emptied"), (0, false));
        assert_eq!(length(400, 0, Some(200)).expect("restored"), (400, true));
        assert!(length(400, 0, Some(401)).is_err(), "shorter than the bank file says");
        assert!(length(400, 136, Some(100)).is_err(), "the list and the bank file disagree");
        assert!(length(400, 408, Some(0)).is_err(), "more obsolete bytes than the file has");
        assert_eq!(length(400, 0, None).expect("restored"), (400, true), "not in the map");
        assert!(length(400, 136, None).is_err(), "not in the map, but in the list of obsolete records");
        assert_eq!(length(136, 136, None).expect("emptied, not in the map"), (0, false));
    }

    /// Agave 4.4 and later archive whole records: the last record is padded even if the file,
    /// written by an older version, ends before the padding.
    #[test]
    fn records_are_padded_without_a_storage_map() {
        for (file_bytes, cut_bytes, expected) in [
            (400, 0, (400, 0)),
            (400, 136, (264, 0)),
            (301, 0, (304, 3)),
            (301, 136, (168, 3)),
            (301, 165, (136, 0)),
            (400, 400, (0, 0)),
        ] {
            let kind = StorageKind::AppendVec;
            let file = StorageFile { slot: 1, id: 1, dir_index: 0, file_bytes, modified_ns: 0, kind };
            let obsolete = ObsoleteSummary { count: u64::from(cut_bytes > 0), cut_bytes, ..ObsoleteSummary::default() };
            let length = storage_length(&file, &obsolete, None, false).expect("a length");
            assert_eq!((length.content_bytes, length.padding_bytes), expected, "{file_bytes} without {cut_bytes}");
            assert!(!length.is_whole);
        }
    }
}
