//! Reads the records of all or some storages of an open archive or ledger, as often as needed.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use slotpress_base::{
    AHEAD_BYTES_MAX, AheadItem, ErrorKind, EscapePath, ItemReader, Progress, Result, read_ahead, run_in_order, to_usize,
};
use slotpress_format::{Entry, EntryKind, RecordWalker, StorageFile};

use crate::plan::PlannedStorage;
use crate::{ArchivePass, EntryRole, OpenArchive, Plan, ReadFault, RecordVisitor, StorageRef, Visitor};

/// Passes the records of all storages, or of the `wanted` ones, to `records`. `first_storage` is the number
/// of the archive's first storage that is not empty. Reports lost records to `records`, and ignores all other
/// faults.
pub fn read_archive_storages(
    archive: &OpenArchive,
    first_storage: u32,
    wanted: Option<&HashSet<u32>>,
    records: &dyn RecordVisitor,
    threads: usize,
    progress: &dyn Progress,
) -> Result<()> {
    let visitor = StorageVisitor { records, wanted, next_storage: AtomicU32::new(first_storage) };
    let pass = ArchivePass::new(threads, progress).wanted_only(wanted.is_some());
    archive.read(&pass, &visitor).map(drop)
}

struct StorageVisitor<'a> {
    records: &'a dyn RecordVisitor,
    wanted: Option<&'a HashSet<u32>>,
    next_storage: AtomicU32,
}

impl Visitor for StorageVisitor<'_> {
    fn visit_entry(&self, entry: &Entry) -> Result<EntryRole> {
        let EntryKind::Storage { slot, id } = entry.kind else { return Ok(EntryRole::default()) };
        if entry.content_bytes == 0 {
            return Ok(EntryRole::default());
        }
        let storage = StorageRef { number: self.next_storage.fetch_add(1, Relaxed), slot, id };
        let is_wanted = self.wanted.is_none_or(|wanted| wanted.contains(&storage.number));
        Ok(EntryRole { storage: is_wanted.then_some(storage), ..EntryRole::default() })
    }

    fn handle_fault(&self, fault: ReadFault<'_>, lost: Option<&'static str>) -> Result<()> {
        match lost {
            Some(_) => self.records.report_lost(None, fault.into_error()),
            None => Ok(()),
        }
    }

    fn records(&self) -> Option<&dyn RecordVisitor> {
        Some(self.records)
    }
}

/// Bytes read at a time: enough for a disk, and not too many for the caches.
const READ_BYTES: u64 = 1024 * 1024;

/// Bytes at the start of a storage that are read ahead. Most storages are not longer.
const AHEAD_OF_STORAGE_BYTES: u64 = 4 * READ_BYTES;

/// Passes the records of all storages of a ledger, or of the `wanted` ones, to `records`. Reports damaged
/// storages to `records`. Storages are numbered in the order of the plan.
fn read_ledger_storages(
    plan: &Plan,
    wanted: Option<&HashSet<u32>>,
    records: &dyn RecordVisitor,
    threads: usize,
    progress: &dyn Progress,
) -> Result<()> {
    let is_wanted = |(number, _): &(u32, _)| wanted.is_none_or(|wanted| wanted.contains(number));
    let storages = (0..).zip(&plan.storages).filter(is_wanted);
    let new_worker = || {
        let mut worker = records.new_worker();
        let mut walker = RecordWalker::default();
        Ok(move |mut ahead: AheadItem<'_, (u32, &PlannedStorage)>, buffer: &mut Vec<u8>| {
            let (number, storage) = *ahead.item();
            let StorageFile { slot, id, .. } = storage.file;
            let storage_ref = StorageRef { number, slot, id };
            worker.begin(storage_ref);
            walker.restart();
            let mut offset = 0u64;
            while offset < storage.content_bytes {
                progress.check()?;
                records.check()?;
                // Only the start of the storage is read ahead.
                if !ahead.take_bytes(buffer) {
                    match read_piece(plan, storage, offset, READ_BYTES, buffer) {
                        // The accounts in the `.data` file of a split storage are checked only here.
                        Err(error) if error.kind() == ErrorKind::Damaged => {
                            return records.report_lost(Some(storage_ref), error);
                        }
                        read => read?,
                    }
                }
                walker.feed(buffer, worker.as_mut());
                offset = offset.saturating_add(buffer.len() as u64);
                progress.advance(buffer.len() as u64, 0);
            }
            walker.finish(worker.as_mut());
            Ok(())
        })
    };
    let item_reader = ItemReader::<(u32, &PlannedStorage)> {
        is_cold: &|(_, storage)| plan.is_storage_cold(storage, 0, AHEAD_OF_STORAGE_BYTES),
        read: &|(_, storage), buf| read_piece(plan, storage, 0, AHEAD_OF_STORAGE_BYTES, buf),
        item_bytes_max: AHEAD_OF_STORAGE_BYTES,
        ahead_bytes_max: AHEAD_BYTES_MAX,
    };
    read_ahead(storages, &item_reader, |storages| {
        run_in_order(storages, threads, &new_worker, progress, &mut |_, ()| Ok(()))
    })?;
    records.check()
}

fn read_piece(plan: &Plan, storage: &PlannedStorage, offset: u64, bytes_max: u64, buf: &mut Vec<u8>) -> Result<()> {
    buf.resize(to_usize(storage.content_bytes.saturating_sub(offset).min(bytes_max)), 0);
    plan.read_storage(storage, offset, buf)
}

pub struct ListedStorage {
    pub number: u32,
    pub slot: u64,
    pub content_bytes: u64,
}

/// Reads the storages of an archive or a ledger, which are numbered in the order of the archive or the plan.
pub enum StorageReader {
    Archive(Box<OpenArchive>),
    Ledger(Box<Plan>),
}

impl StorageReader {
    /// Lists the storages in the order of their numbers. `None` for an archive without an index.
    pub fn list(&self) -> Option<Vec<ListedStorage>> {
        let entries: Box<dyn Iterator<Item = Entry>> = match self {
            Self::Archive(archive) => {
                let tail = archive.tail.as_ref()?;
                Box::new(tail.index.entries.iter().copied())
            }
            Self::Ledger(plan) => Box::new(plan.entries()),
        };
        let mut storages = Vec::new();
        for Entry { kind, content_bytes } in entries {
            // An empty storage has no number.
            if let EntryKind::Storage { slot, .. } = kind
                && content_bytes > 0
            {
                let number = storages.len() as u32;
                storages.push(ListedStorage { number, slot, content_bytes });
            }
        }
        Some(storages)
    }

    pub fn length_bytes(&self) -> Option<u64> {
        match self {
            Self::Archive(archive) => archive.source.length_bytes(),
            Self::Ledger(plan) => {
                let lengths = plan.storages.iter().map(|storage| storage.content_bytes);
                Some(lengths.sum())
            }
        }
    }

    /// Passes the records of all storages, or of the `wanted` ones, to `records`. The first storage has the
    /// number `first_storage`, which is 0 for a ledger.
    pub fn read(
        &self,
        first_storage: u32,
        wanted: Option<&HashSet<u32>>,
        records: &dyn RecordVisitor,
        threads: usize,
        progress: &dyn Progress,
    ) -> Result<()> {
        match self {
            Self::Archive(archive) => read_archive_storages(archive, first_storage, wanted, records, threads, progress)
                .map_err(|error| error.with_place_if_damaged(archive.path().escaped())),
            Self::Ledger(plan) => read_ledger_storages(plan, wanted, records, threads, progress),
        }
    }
}
