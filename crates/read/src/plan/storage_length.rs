//! How much of each storage's file an archive holds: without its obsolete records, as long as the bank file says.
//!
//! Not here: split storages, of which only a scan tells ([`split`](super::split)), and what becomes of the lengths
//! ([`plan`](crate::plan)).

use std::path::Path;

use slotpress_base::{Error, Result, ShowPath};
use slotpress_format::ledger::record::align8;
use slotpress_format::{FieldReader, ObsoleteFormat, StorageFile, scan_obsolete_accounts};

use crate::plan::split::Checkpoint;

/// What keeps a storage from being archived.
#[derive(Clone, Debug)]
pub struct StorageFault {
    /// Its slot.
    pub slot: u64,
    /// Its id.
    pub id: u64,
    /// Whether there is no such file; otherwise its length is wrong.
    pub is_missing: bool,
    /// The same in words.
    pub error: Error,
}

/// The obsolete records of a storage's file.
#[derive(Clone, Copy, Default)]
pub struct Obsolete {
    /// Where their list is in the file of lists.
    pub list_offset: u64,
    /// How many there are.
    pub count: u64,
    /// Bytes that they take of the file.
    pub cut_bytes: u64,
    /// Whether the storage is listed.
    pub is_seen: bool,
}

/// Reads how many obsolete records each of the storages has, which are in order. What is listed and not there is a fault.
pub fn read_obsolete(
    path: &Path,
    format: ObsoleteFormat,
    storages: &[StorageFile],
    obsolete: &mut [Obsolete],
    on_fault: &mut dyn FnMut(StorageFault) -> Result<()>,
) -> Result<()> {
    let find = |slot: u64, id: u64| {
        storages.binary_search_by_key(&(slot, id), |storage| (storage.slot, u64::from(storage.id))).ok()
    };
    scan_obsolete_accounts(
        FieldReader::open(path, "the obsolete records")?,
        format,
        &|slot, id| find(slot, id).and_then(|at| storages.get(at)).copied(),
        &mut |found| {
            let (slot, id) = (found.slot, found.id);
            let wrong = |why: &str| Error::damaged(format!("{}: storage {slot}.{id} {why}", path.shown()));
            let Some(obsolete) = find(slot, id).and_then(|at| obsolete.get_mut(at)) else {
                let error = wrong("has obsolete records, but is not there");
                return match found.count {
                    0 => Ok(()),
                    _ => on_fault(StorageFault { slot, id, is_missing: true, error }),
                };
            };
            if std::mem::replace(&mut obsolete.is_seen, true) {
                return Err(wrong("is listed twice"));
            }
            *obsolete = Obsolete {
                list_offset: found.list_offset,
                count: found.count,
                cut_bytes: found.cut_bytes,
                is_seen: true,
            };
            Ok(())
        },
    )
}

/// How much of a storage goes into an archive.
#[derive(Debug, Default)]
pub struct StorageLength {
    /// Bytes in the archive.
    pub content_bytes: u64,
    /// Of those, at the end, padding that is not in the file.
    pub padding_bytes: u8,
    /// The file is longer than the bank file says, without an obsolete record to explain it.
    pub is_whole: bool,
    /// Of a split storage.
    pub checkpoints: Vec<Checkpoint>,
}

/// How much of an append vec goes into the archive: `(file with obsolete records cut)[..accounts_current_len]`; without
/// a storage map, all of it, padded to whole records as Agave 4.4 does.
pub fn storage_length(
    file: &StorageFile,
    obsolete: &Obsolete,
    map_bytes: Option<u64>,
    has_map: bool,
) -> Result<StorageLength> {
    let cut_file_bytes = file.file_bytes.checked_sub(obsolete.cut_bytes).ok_or_else(|| {
        Error::damaged(format!("its obsolete records take {} of {} bytes", obsolete.cut_bytes, file.file_bytes))
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
        // Without obsolete records: all of a full archive's storage became obsolete before the incremental's slot.
        return Ok(length(cut_file_bytes, cut_file_bytes > 0));
    };
    if map_bytes > cut_file_bytes {
        return Err(Error::damaged(format!(
            "it is too short: {cut_file_bytes} bytes without its obsolete records, where the bank file says {map_bytes}"
        ))
        .with_hint("the file was cut or replaced; archive from a ledger that a validator left by a graceful exit"));
    }
    if align8(map_bytes) >= cut_file_bytes {
        return Ok(length(map_bytes, false));
    }
    // Longer than the bank file says. In a ledger restored from a full and an incremental archive, the bank file is
    // the newer one, while the storages of the full still hold what became obsolete in between: superseded by newer
    // storages, so harmless, and no list says where. With a list that disagrees, something is wrong.
    if obsolete.count > 0 {
        return Err(Error::damaged(format!(
            "it is too long: {cut_file_bytes} bytes without its obsolete records, where the bank file says {map_bytes}"
        )));
    }
    Ok(length(cut_file_bytes, true))
}

#[cfg(test)]
mod tests {
    use slotpress_format::StorageKind;

    use super::*;

    fn length(file_bytes: u64, cut_bytes: u64, map_bytes: Option<u64>) -> Result<(u64, bool)> {
        let file = StorageFile { slot: 1, id: 1, root: 0, file_bytes, modified_ns: 0, kind: StorageKind::AppendVec };
        let obsolete = Obsolete { count: u64::from(cut_bytes > 0), cut_bytes, ..Obsolete::default() };
        storage_length(&file, &obsolete, map_bytes, true).map(|length| (length.content_bytes, length.is_whole))
    }

    #[test]
    fn lengths_follow_the_bank_file() {
        assert_eq!(length(24440, 640, Some(23800)).expect("exact"), (23800, false));
        assert_eq!(length(22064, 2040, Some(20021)).expect("aligned"), (20021, false));
        assert_eq!(length(400, 400, Some(0)).expect("emptied"), (0, false));
        assert_eq!(length(400, 0, Some(200)).expect("restored"), (400, true));
        assert!(length(400, 0, Some(401)).is_err(), "shorter than the bank file says");
        assert!(length(400, 136, Some(100)).is_err(), "the list and the bank file disagree");
        assert!(length(400, 408, Some(0)).is_err(), "more obsolete than there is");
        assert_eq!(length(400, 0, None).expect("restored"), (400, true), "not in the map");
        assert!(length(400, 136, None).is_err(), "not in the map, but in the list of obsolete records");
        assert_eq!(length(136, 136, None).expect("emptied, not in the map"), (0, false));
    }

    /// Agave 4.4 and later: whole records, the last one padded though the file of an older version ends before that.
    #[test]
    fn lengths_without_a_map() {
        for (file_bytes, cut_bytes, expected) in [
            (400, 0, (400, 0)),
            (400, 136, (264, 0)),
            (301, 0, (304, 3)),
            (301, 136, (168, 3)),
            (301, 165, (136, 0)),
            (400, 400, (0, 0)),
        ] {
            let kind = StorageKind::AppendVec;
            let file = StorageFile { slot: 1, id: 1, root: 0, file_bytes, modified_ns: 0, kind };
            let obsolete = Obsolete { count: u64::from(cut_bytes > 0), cut_bytes, ..Obsolete::default() };
            let length = storage_length(&file, &obsolete, None, false).expect("a length");
            assert_eq!((length.content_bytes, length.padding_bytes), expected, "{file_bytes} without {cut_bytes}");
            assert!(!length.is_whole);
        }
    }
}
