//! Plans an archive: every entry with its length, before its contents are read.
//!
//! Lengths come from the bank file's storage map (without one, from file sizes) and the lists of
//! obsolete records. The map and the lists are streamed. Only names and sizes of append vecs are
//! read. The `.meta` files of split storages are read once, in parallel, because nothing else states
//! their lengths. `fill` reads the contents of planned entries, and `split` reads split storages.

mod file;
mod fill;
mod split;
mod storage_length;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use slotpress_base::files::not_a_file_error;
use slotpress_base::{
    Error, ErrorKind, EscapePath, IoContext, IoHint, IoPolicy, Progress, Result, Stage, hint, saturating_add_to,
    start_pool, to_usize,
};
use slotpress_format::ledger::lists::ObsoleteSummary;
use slotpress_format::{
    BankFile, BankSnapshot, ENTRIES_MAX, Entry, EntryKind, ObsoleteLists, StorageDir, StorageFile, modified_ns,
    read_bank_file,
};
pub use storage_length::StorageFault;

use crate::plan::file::dir_of;
use crate::plan::split::SplitStorage;
use crate::plan::storage_length::{Checkpoint, OnFault, StorageLength, read_obsolete, storage_length};

#[derive(Clone, Debug)]
pub struct PlannedFile {
    pub entry: Entry,
    /// Path of the file; `None` for a directory.
    pub path: Option<PathBuf>,
    pub modified_ns: i64,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct PlannedStorage {
    pub file: StorageFile,
    /// Length of the entry's content in bytes: the file without obsolete records, up to its last record.
    pub content_bytes: u64,
    /// Bytes of padding at the end of the entry that are not in the file: 0 to 7.
    pub padding_bytes: u8,
    /// Offset of the storage's list in `obsolete_accounts`.
    pub obsolete_list_offset: u64,
    pub obsolete_count: u64,
    /// For a split storage: index of its first checkpoint in [`Plan::checkpoints`].
    first_checkpoint: u32,
    checkpoint_count: u32,
}

impl PlannedStorage {
    pub fn entry(&self) -> Entry {
        let kind = EntryKind::Storage { slot: self.file.slot, id: self.file.id };
        Entry { kind, content_bytes: self.content_bytes }
    }
}

#[derive(Debug, Default)]
pub struct Plan {
    pub bank: BankFile,
    /// The first entries: version, status cache, bank file and their directories.
    pub files: Vec<PlannedFile>,
    /// The entries after them: storages, ordered by (slot, id).
    pub storages: Vec<PlannedStorage>,
    pub storage_dirs: Vec<StorageDir>,
    pub obsolete_accounts: Option<ObsoleteLists>,
    /// Positions in split storages from which they can be read, in the order of the storages.
    checkpoints: Vec<Checkpoint>,
    pub obsolete_records: u64,
    /// Bytes that the obsolete records would occupy in an archive.
    pub obsolete_bytes: u64,
    /// Number of storages that are archived whole although the bank file's storage map states a shorter
    /// length, or none, because no list names obsolete records in them.
    pub whole_storages: u64,
    pub io_hint: IoHint,
}

const MISSING_MAX: usize = 1000;

#[derive(Clone, Debug)]
pub struct PlanOptions {
    /// Slot of the base of an incremental archive. Only storages of newer slots are archived.
    pub base_slot: Option<u64>,
    pub threads: usize,
    pub io_policy: IoPolicy,
}

impl PlanOptions {
    pub fn new(base_slot: Option<u64>, threads: usize) -> Self {
        Self { base_slot, threads, io_policy: IoPolicy::default() }
    }
}

impl Plan {
    /// Plans the archive of a bank snapshot. A storage that is missing or invalid is an error.
    pub fn new(snapshot: BankSnapshot, options: &PlanOptions, progress: &dyn Progress) -> Result<Self> {
        Self::new_with_faults(snapshot, options, progress, &mut |fault| Err(fault.error))
    }

    /// Like [`new`](Self::new), but calls `on_fault` for each storage that is missing or invalid,
    /// and leaves it out unless `on_fault` returns an error.
    pub fn new_with_faults(
        snapshot: BankSnapshot,
        options: &PlanOptions,
        progress: &dyn Progress,
        on_fault: &mut OnFault<'_>,
    ) -> Result<Self> {
        let BankSnapshot { slot, storages, storage_dirs, obsolete_accounts, .. } = &snapshot;
        if let Some(base) = options.base_slot.filter(|base| *base >= *slot) {
            let message = format!("the base slot {base} is not below the bank snapshot's slot {slot}");
            return Err(Error::usage(message)
                .with_hint("the base slot is the slot of the full archive that the incremental one builds on"));
        }
        let mut unplanned: Vec<UnplannedStorage<'_>> =
            storages.iter().map(|file| UnplannedStorage { file, obsolete: None, map_bytes: None }).collect();
        let format = snapshot.layout.obsolete_format();
        if let Some(path) = obsolete_accounts {
            read_obsolete(path, format, storages, &mut unplanned, on_fault)?;
        }
        progress.check()?;
        let bank = read_bank(&snapshot, options.base_slot, &mut unplanned, on_fault)?;
        progress.check()?;
        let lists = obsolete_accounts.clone().map(|path| ObsoleteLists::open(path, format)).transpose()?;
        unplanned.retain(|storage| options.base_slot.is_none_or(|base| storage.file.slot > base));
        // Agave 4.4 and later write no storage map. Then the lengths follow from file sizes and
        // obsolete records, and for a ledger, the storages list says which files must exist.
        let has_map = bank.storage_count > 0;
        let lengths =
            LengthReader { lists: lists.as_ref(), storage_dirs, has_map, io_policy: &options.io_policy, progress };
        let planned = plan_storages(&unplanned, lengths.read_all(&unplanned, options.threads)?, on_fault)?;
        if planned.storages.last().is_some_and(|storage| storage.file.slot > u64::from(u32::MAX)) {
            progress.warn("slots of 2^32 and above: Firedancer cannot load this archive");
        }
        let files = plan_files(&snapshot)?;
        let entries = files.len().saturating_add(planned.storages.len()) as u64;
        if entries > ENTRIES_MAX {
            let message = format!("the archive would have {entries} entries: Agave loads at most {ENTRIES_MAX}");
            return Err(Error::failed(message)
                .with_hint("recompress the archives that the validator writes: the validator merges small storages"));
        }
        let io_hint = options.io_policy.io_hint;
        Ok(Self { bank, files, storage_dirs: snapshot.storage_dirs, obsolete_accounts: lists, io_hint, ..planned })
    }

    pub(super) fn checkpoints_of(&self, storage: &PlannedStorage) -> &[Checkpoint] {
        let first = storage.first_checkpoint;
        let end = first.saturating_add(storage.checkpoint_count);
        self.checkpoints.get(to_usize(first)..to_usize(end)).unwrap_or_default()
    }

    pub fn entries(&self) -> impl Iterator<Item = Entry> + Send + '_ {
        self.files.iter().map(|file| file.entry).chain(self.storages.iter().map(PlannedStorage::entry))
    }

    pub fn tar_bytes(&self) -> u64 {
        self.entry_lengths().sum()
    }

    pub fn content_bytes(&self) -> u64 {
        self.entries().map(|entry| entry.content_bytes).sum()
    }
}

struct UnplannedStorage<'a> {
    file: &'a StorageFile,
    obsolete: Option<ObsoleteSummary>,
    map_bytes: Option<u64>,
}

/// Reads the bank file, and the length that its storage map states for each storage. A storage that is
/// in the map but missing is a fault.
fn read_bank(
    snapshot: &BankSnapshot,
    base_slot: Option<u64>,
    storages: &mut [UnplannedStorage<'_>],
    on_fault: &mut OnFault<'_>,
) -> Result<BankFile> {
    let mut missing = Vec::new();
    let bank = read_bank_file(&snapshot.bank_file, &mut |item| {
        match storages.binary_search_by_key(&item.slot, |storage| storage.file.slot) {
            Ok(index) => {
                if let Some(storage) = storages.get_mut(index) {
                    storage.map_bytes = Some(item.length_bytes);
                }
            }
            // The validator may have removed an emptied storage from disk.
            Err(_) if item.length_bytes == 0 => {}
            // An incremental archive holds only newer storages.
            Err(_) if base_slot.is_some_and(|base| item.slot <= base) => {}
            // The number is limited, so that a hostile bank file cannot fill the memory.
            Err(_) if missing.len() >= MISSING_MAX => {}
            Err(_) => missing.push(item),
        }
        Ok(())
    })?;
    if bank.slot != snapshot.slot {
        return Err(Error::damaged(format!(
            "{} is of slot {}, not of the slot that its directory names",
            snapshot.bank_file.escaped(),
            bank.slot
        )));
    }
    for item in missing {
        let message = format!("storage {}.{} of the bank file's storage map is missing", item.slot, item.id);
        let error = Error::failed(message).with_hint(hint::PASS_BASE_SLOT);
        on_fault(StorageFault { slot: item.slot, id: item.id, is_missing: true, error })?;
    }
    Ok(bank)
}

struct LengthReader<'a> {
    lists: Option<&'a ObsoleteLists>,
    storage_dirs: &'a [StorageDir],
    has_map: bool,
    io_policy: &'a IoPolicy,
    progress: &'a dyn Progress,
}

impl LengthReader<'_> {
    /// Reads the lengths of all storages, in the given order. The inner error is damage to one storage.
    fn read_all(&self, storages: &[UnplannedStorage<'_>], threads: usize) -> Result<Vec<Result<StorageLength>>> {
        let splits = storages.iter().map(|storage| storage.file).filter(|file| file.is_split());
        if splits.clone().next().is_some() {
            self.progress.stage(Stage::Scanning, Some(splits.map(|file| file.file_bytes).sum()));
        }
        let lengths = || storages.par_iter().map_init(Vec::new, |window, storage| self.read(storage, window)).collect();
        start_pool(threads)?.install(lengths)
    }

    /// Reads the length of a storage. For a split storage, reads the whole `.meta` file through `window`.
    fn read(&self, storage: &UnplannedStorage<'_>, window: &mut Vec<u8>) -> Result<Result<StorageLength>> {
        let UnplannedStorage { file, map_bytes, .. } = *storage;
        let obsolete = storage.obsolete.unwrap_or_default();
        let dir = dir_of(file, self.storage_dirs)?;
        if !file.is_split() {
            let length = storage_length(file, &obsolete, map_bytes, self.has_map);
            return Ok(length.map_err(|error| error.with_place(dir.path.join(file.file_name()).escaped())));
        }
        let items = match self.lists {
            Some(lists) => lists.read_items(obsolete.list_offset, obsolete.count, true)?,
            None => Vec::new(),
        };
        let on_read = &mut |bytes| {
            self.progress.check()?;
            self.io_policy.wait(bytes, self.progress);
            self.progress.advance(bytes, 0);
            Ok(())
        };
        let opened = SplitStorage::open(dir, file, self.io_policy.io_hint)?;
        match opened.scan(&items, window, on_read) {
            Err(error) if error.kind() != ErrorKind::Damaged => Err(error),
            length => Ok(length),
        }
    }
}

/// Plans storages with these lengths. Leaves out storages in which all records are obsolete, and invalid
/// storages if `on_fault` returns no error.
fn plan_storages(
    storages: &[UnplannedStorage<'_>],
    lengths: Vec<Result<StorageLength>>,
    on_fault: &mut OnFault<'_>,
) -> Result<Plan> {
    let mut planned = Plan { storages: Vec::with_capacity(storages.len()), ..Plan::default() };
    for (UnplannedStorage { file, obsolete, .. }, length) in storages.iter().zip(lengths) {
        let obsolete = obsolete.unwrap_or_default();
        let length = match length {
            Ok(length) => length,
            Err(error) => {
                on_fault(StorageFault { slot: file.slot, id: file.id.into(), is_missing: false, error })?;
                continue;
            }
        };
        saturating_add_to(&mut planned.whole_storages, length.is_whole.into());
        saturating_add_to(&mut planned.obsolete_records, obsolete.count);
        saturating_add_to(&mut planned.obsolete_bytes, obsolete.cut_bytes);
        if length.content_bytes > 0 {
            let count = |checkpoints: &[Checkpoint]| u32::try_from(checkpoints.len()).unwrap_or(u32::MAX);
            let first_checkpoint = count(&planned.checkpoints);
            let checkpoint_count = count(&length.checkpoints);
            planned.checkpoints.extend(length.checkpoints);
            planned.storages.push(PlannedStorage {
                file: **file,
                content_bytes: length.content_bytes,
                padding_bytes: length.padding_bytes,
                obsolete_list_offset: obsolete.list_offset,
                obsolete_count: obsolete.count,
                first_checkpoint,
                checkpoint_count,
            });
        }
    }
    Ok(planned)
}

/// Returns the entries before the storages, in Agave's order. Firedancer requires the bank file before
/// the accounts.
fn plan_files(snapshot: &BankSnapshot) -> Result<Vec<PlannedFile>> {
    let slot = snapshot.slot;
    let dir = |kind| PlannedFile { entry: Entry { kind, content_bytes: 0 }, path: None, modified_ns: 0 };
    let file = |kind, path: &Path| -> Result<PlannedFile> {
        let metadata = fs::metadata(path).or_path("read", path)?;
        if !metadata.is_file() {
            // The length of a pipe is 0, so nothing would be read from it.
            return Err(not_a_file_error(path));
        }
        let modified_ns = modified_ns(metadata.mtime(), metadata.mtime_nsec());
        let entry = Entry { kind, content_bytes: metadata.len() };
        Ok(PlannedFile { entry, path: Some(path.to_path_buf()), modified_ns })
    };
    Ok(vec![
        file(EntryKind::Version, &snapshot.version)?,
        dir(EntryKind::SnapshotsDir),
        file(EntryKind::StatusCache, &snapshot.status_cache)?,
        dir(EntryKind::SlotDir(slot)),
        file(EntryKind::BankFile(slot), &snapshot.bank_file)?,
    ])
}
