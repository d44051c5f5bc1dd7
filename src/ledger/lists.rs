//! The two lists that a gracefully stopped validator leaves beside the bank file: the storages that belong to the
//! snapshot, and the obsolete records inside them (format page, section "A bank snapshot directory").

use {
    crate::{
        error::{Error, IoContext, Result},
        ledger::{
            fields::FieldReader,
            record::{RECORD_ALIGNMENT, RECORD_HEADER_BYTES, align8},
        },
    },
    std::{fs::File, io::BufRead, ops::Range, os::unix::fs::FileExt, path::Path},
};

/// The most storages of one snapshot. Agave refuses archives of more than 5,000,000 entries; mainnet has about 430,000.
pub const STORAGES_MAX: u64 = 5_000_000;

/// The most obsolete records of one storage: 16 GiB of the smallest records would be 126 million, and Agave rewrites
/// a storage long before; 8 million bound the memory of one worker to 128 MiB.
pub const OBSOLETE_RECORDS_PER_STORAGE_MAX: u64 = 8 * 1024 * 1024;

const OBSOLETE_RECORD_BYTES: u64 = 24;

/// Reads a `storages_list`: (slot, id) of every storage, in the file's order.
pub fn read_storages_list(path: &Path) -> Result<Vec<(u64, u32)>> {
    let mut r = FieldReader::open(path, "the storages list")?;
    let count = r.count("the list", 12)?;
    if count > STORAGES_MAX {
        return Err(r.damaged(format!("{count} storages, more than the {STORAGES_MAX} that a snapshot can have")));
    }
    let mut storages = Vec::with_capacity(count as usize);
    for _ in 0..count {
        storages.push((r.u64()?, r.u32()?));
    }
    r.end()?;
    Ok(storages)
}

/// Writes a `storages_list`.
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

/// Writes an `obsolete_accounts` in which no storage has an obsolete record.
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

/// The obsolete records of one storage, as the plan sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObsoleteSummary {
    /// The storage's slot.
    pub slot: u64,
    /// The storage's id.
    pub id: u64,
    /// How many records are obsolete.
    pub count: u64,
    /// Where in `obsolete_accounts` their list begins, in bytes.
    pub list_offset: u64,
    /// Bytes that cutting them takes out of the storage.
    pub cut_bytes: u64,
}

/// Streams `obsolete_accounts` (up to 12 GB on mainnet), storage by storage. `storage_bytes` tells the length of a
/// storage's file, or `None` when the storage is unknown; `on_storage` gets what was found.
pub fn scan_obsolete_accounts<R: BufRead>(
    mut r: FieldReader<R>,
    storage_bytes: &dyn Fn(u64, u64) -> Option<u64>,
    on_storage: &mut dyn FnMut(ObsoleteSummary) -> Result<()>,
) -> Result<()> {
    for _ in 0..r.count("the list", 32)? {
        let (slot, id) = (r.u64()?, r.u64()?);
        let _claimed_bytes = r.u64()?;
        let count = r.count("the obsolete records of a storage", OBSOLETE_RECORD_BYTES)?;
        let list_offset = r.position();
        let Some(file_bytes) = storage_bytes(slot, id) else {
            if count == 0 {
                continue;
            }
            return Err(r.damaged(format!("storage {slot}.{id} has obsolete records, but is not there")));
        };
        if count > OBSOLETE_RECORDS_PER_STORAGE_MAX {
            return Err(r.damaged(format!(
                "storage {slot}.{id} has {count} obsolete records, more than the {OBSOLETE_RECORDS_PER_STORAGE_MAX} \
                 that slotpress handles"
            )));
        }
        let mut cut_bytes: u64 = 0;
        for _ in 0..count {
            let record = obsolete_range(r.u64()?, r.u64()?, file_bytes)
                .map_err(|why| r.damaged(format!("storage {slot}.{id}: {why}")))?;
            cut_bytes += record.end - record.start;
            r.skip(8)?; // the slot at which it was marked
        }
        on_storage(ObsoleteSummary { slot, id, count, list_offset, cut_bytes })?;
    }
    r.end()
}

/// Reads one storage's obsolete records again and returns what remains of its file: sorted ranges that do not touch.
pub fn read_kept_ranges(
    obsolete_accounts: &File,
    path: &Path,
    list_offset: u64,
    count: u64,
    file_bytes: u64,
) -> Result<Vec<Range<u64>>> {
    let count = count.min(OBSOLETE_RECORDS_PER_STORAGE_MAX);
    let mut cuts: Vec<Range<u64>> = Vec::with_capacity(count as usize);
    let mut buffer = [0; 4096 / OBSOLETE_RECORD_BYTES as usize * OBSOLETE_RECORD_BYTES as usize];
    let mut offset = list_offset;
    while (cuts.len() as u64) < count {
        let left = (count - cuts.len() as u64) * OBSOLETE_RECORD_BYTES;
        let part = &mut buffer[..left.min(4080) as usize];
        obsolete_accounts.read_exact_at(part, offset).or_path("read", path)?;
        offset += part.len() as u64;
        for item in part.chunks_exact(OBSOLETE_RECORD_BYTES as usize) {
            let field = |at: usize| {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(&item[at..at + 8]);
                u64::from_le_bytes(bytes)
            };
            cuts.push(obsolete_range(field(0), field(8), file_bytes).map_err(Error::damaged)?);
        }
    }
    cuts.sort_unstable_by_key(|cut| cut.start);
    kept_between(&cuts, file_bytes).map_err(Error::damaged)
}

/// The complement of sorted cuts. Overlapping cuts are damage: a record cannot be obsolete twice.
fn kept_between(cuts: &[Range<u64>], file_bytes: u64) -> Result<Vec<Range<u64>>, String> {
    let mut kept = Vec::with_capacity(cuts.len() + 1);
    let mut at = 0;
    for cut in cuts {
        if cut.start < at {
            return Err(format!("obsolete records overlap at offset {}", cut.start));
        }
        if cut.start > at {
            kept.push(at..cut.start);
        }
        at = cut.end;
    }
    if at < file_bytes {
        kept.push(at..file_bytes);
    }
    Ok(kept)
}

/// The bytes of an obsolete record: `[offset, align8(offset + 136 + data_len))`, clipped to the file's end.
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
    use {super::*, proptest::prelude::*};

    #[test]
    fn ranges_outside_the_file_are_refused() {
        assert_eq!(obsolete_range(0, 0, 136), Ok(0..136));
        assert_eq!(obsolete_range(8, 1, 148), Ok(8..148), "the last record's padding may be missing");
        assert!(obsolete_range(8, 0, 136).is_err());
        assert!(obsolete_range(4, 0, 1000).is_err());
        assert!(obsolete_range(u64::MAX - 7, u64::MAX, 1000).is_err());
    }

    proptest! {
        /// What is kept and what is cut make up the file, each byte once.
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
            let kept: Vec<u64> = kept_between(&cuts, at).expect("no overlap").into_iter().flatten().collect();
            prop_assert_eq!(kept, expected);
        }
    }

    #[test]
    fn overlaps_are_refused() {
        assert!(kept_between(&[0..10, 8..12], 20).is_err());
        assert!(kept_between(&[0..10, 0..10], 20).is_err());
    }
}
