//! The plan: every entry of the archive with its length, known before a storage is read.
//!
//! Lengths come from the bank file's storage map and the obsolete records, both streamed; append vecs are only looked
//! up, while the `.meta` files of split storages are read once, in parallel: nothing else tells their lengths. Reading
//! what the plan says lives in `source`, and what is in split storages in `split`.

mod file;
mod source;
mod split;
mod storage_length;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use slotpress_base::bytes::count;
use slotpress_base::{Error, Hint, IoContext, IoHint, IoPolicy, Progress, Result, ShowPath, to_usize};
use slotpress_format::{
    BankFile, BankSnapshot, ENTRIES_MAX, Entry, EntryKind, ObsoleteLists, StorageFile, StorageRoot, modified_ns,
    read_bank_file,
};
pub use storage_length::StorageFault;

use crate::plan::split::{Checkpoint, ToScan, scan_splits};
use crate::plan::storage_length::{Obsolete, StorageLength, read_obsolete, storage_length};

/// An entry that is not a storage: a directory, or a file that is archived as it is.
#[derive(Clone, Debug)]
pub struct PlannedFile {
    /// The entry.
    pub entry: Entry,
    /// The file; `None` for a directory.
    pub path: Option<PathBuf>,
    /// When the file was last modified, in nanoseconds since 1970.
    pub modified_ns: i64,
}

/// A storage: what of its file goes into the archive.
#[derive(Clone, Copy, Debug)]
pub struct PlannedStorage {
    /// The file.
    pub file: StorageFile,
    /// Length of the entry in bytes: the file without its obsolete records, up to its last record.
    pub content_bytes: u64,
    /// How many of those, at the end, are padding that is not in the file: 0 to 7.
    pub padding_bytes: u8,
    /// Where in `obsolete_accounts` the list of its obsolete records begins, in bytes.
    pub obsolete_list_offset: u64,
    /// How many of its records are obsolete.
    pub obsolete_count: u64,
    /// Of a split storage, the first of its [`Plan::checkpoints`], and how many it has.
    checkpoints: (u32, u32),
}

impl PlannedStorage {
    /// Its entry.
    pub fn entry(&self) -> Entry {
        let kind = EntryKind::Storage { slot: self.file.slot, id: self.file.id };
        Entry { kind, content_bytes: self.content_bytes }
    }
}

/// Every entry of the archive, in order.
#[derive(Debug)]
pub struct Plan {
    /// The bank.
    pub bank: BankFile,
    /// What comes first: version, status cache, bank file.
    pub files: Vec<PlannedFile>,
    /// Then the storages, ordered by (slot, id).
    pub storages: Vec<PlannedStorage>,
    /// The directories that hold them.
    pub roots: Vec<StorageRoot>,
    /// The obsolete records, open for reading each storage's.
    pub obsolete_accounts: Option<ObsoleteLists>,
    /// Places in split storages from which they can be read, in the order of the storages.
    checkpoints: Vec<Checkpoint>,
    /// Obsolete records of the storages, also of those of which nothing remains.
    pub obsolete_records: u64,
    /// What they would take in an archive, in bytes.
    pub obsolete_bytes: u64,
    /// Storages that are longer than the bank file says, and hold no obsolete records: all of each is taken.
    pub whole_storages: u64,
    /// How storages are read.
    pub io_hint: IoHint,
}

/// Missing storages that are told of, one by one.
const MISSING_MAX: usize = 1000;

/// How a plan is made.
#[derive(Clone, Debug)]
pub struct PlanOptions {
    /// Only storages newer than this are taken, for an incremental archive.
    pub base_slot: Option<u64>,
    /// Workers for reading the `.meta` files of split storages.
    pub threads: usize,
    /// How those, and later all storages, are read.
    pub io_policy: IoPolicy,
}

impl PlanOptions {
    /// With good io_policy.
    pub fn new(base_slot: Option<u64>, threads: usize) -> Self {
        Self { base_slot, threads, io_policy: IoPolicy::default() }
    }
}

impl Plan {
    /// Plans the archive of a bank snapshot with `threads` workers. With `base_slot`, only storages newer than it are taken.
    pub fn new(
        snapshot: BankSnapshot,
        base_slot: Option<u64>,
        threads: usize,
        progress: &dyn Progress,
    ) -> Result<Self> {
        Self::new_with(snapshot, &PlanOptions::new(base_slot, threads), progress, &mut |fault| Err(fault.error))
    }

    /// The same, leaving out storages that are missing or not as they should be, where `on_fault` does not return an
    /// error.
    pub fn new_with(
        snapshot: BankSnapshot,
        options: &PlanOptions,
        progress: &dyn Progress,
        on_fault: &mut dyn FnMut(StorageFault) -> Result<()>,
    ) -> Result<Self> {
        let BankSnapshot { slot, storages, roots, obsolete_accounts, .. } = &snapshot;
        if let Some(base) = options.base_slot.filter(|base| base >= slot) {
            return Err(Error::usage(format!("the base slot {base} is not below the bank snapshot's slot {slot}"))
                .with_hint("the base slot is the slot of the full archive that the incremental one builds on"));
        }
        let mut obsolete = vec![Obsolete::default(); storages.len()];
        let format = snapshot.layout.obsolete_format();
        if let Some(path) = obsolete_accounts {
            read_obsolete(path, format, storages, &mut obsolete, on_fault)?;
        }
        progress.check()?;
        let (bank, map_bytes) = read_bank(&snapshot, options.base_slot, on_fault)?;
        progress.check()?;
        let lists = obsolete_accounts.clone().map(|path| ObsoleteLists::open(path, format)).transpose()?;
        let wanted: Vec<Wanted<'_>> = storages
            .iter()
            .zip(&obsolete)
            .zip(map_bytes)
            .filter(|((file, _), _)| options.base_slot.is_none_or(|base| file.slot > base))
            .map(|((file, obsolete), map_bytes)| Wanted { file, obsolete, map_bytes })
            .collect();
        let scanned = scan_wanted(&wanted, lists.as_ref(), roots, options, progress)?;
        // Agave 4.4 and later write no storage map: then the files and the obsolete records tell the lengths, and for a
        // ledger, the storages list which files there are.
        let has_map = bank.storage_count > 0;
        let planned = plan_storages(&wanted, scanned, roots, has_map, on_fault)?;
        if planned.storages.last().is_some_and(|storage| storage.file.slot > u64::from(u32::MAX)) {
            progress.warn("slots of 2^32 and above: Firedancer cannot load this archive");
        }
        let files = plan_files(&snapshot)?;
        if files.len().saturating_add(planned.storages.len()) as u64 > ENTRIES_MAX {
            return Err(Error::failed(format!("more than {ENTRIES_MAX} entries: Agave would refuse the archive")));
        }
        let PlannedStorages { storages, checkpoints, obsolete_records, obsolete_bytes, whole_storages } = planned;
        Ok(Self {
            bank,
            files,
            storages,
            roots: snapshot.roots,
            obsolete_accounts: lists,
            checkpoints,
            obsolete_records,
            obsolete_bytes,
            whole_storages,
            io_hint: options.io_policy.io_hint,
        })
    }

    /// Places from which a split storage can be read.
    pub(super) fn checkpoints_of(&self, storage: &PlannedStorage) -> &[Checkpoint] {
        let (first, count) = storage.checkpoints;
        let own = to_usize(first)..to_usize(first.saturating_add(count));
        self.checkpoints.get(own).unwrap_or_default()
    }

    /// Every entry, in the order of the archive.
    pub fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        self.files.iter().map(|file| file.entry).chain(self.storages.iter().map(PlannedStorage::entry))
    }

    /// Bytes of the tar stream, with the end of archive.
    pub fn tar_bytes(&self) -> u64 {
        self.entry_lengths().sum()
    }

    /// Bytes of content: of all files and storages, as they go into the archive.
    pub fn content_bytes(&self) -> u64 {
        self.entries().map(|entry| entry.content_bytes).sum()
    }
}

/// A storage that goes into the archive.
struct Wanted<'a> {
    file: &'a StorageFile,
    obsolete: &'a Obsolete,
    /// Its length as the storage map has it.
    map_bytes: Option<u64>,
}

/// Storages as they go into the archive, and what was counted on the way.
#[derive(Default)]
struct PlannedStorages {
    storages: Vec<PlannedStorage>,
    checkpoints: Vec<Checkpoint>,
    obsolete_records: u64,
    obsolete_bytes: u64,
    whole_storages: u64,
}

/// The bank, and the length that its storage map gives each storage. What the map names, but is not there, is a fault.
fn read_bank(
    snapshot: &BankSnapshot,
    base_slot: Option<u64>,
    on_fault: &mut dyn FnMut(StorageFault) -> Result<()>,
) -> Result<(BankFile, Vec<Option<u64>>)> {
    let BankSnapshot { slot, storages, .. } = snapshot;
    let mut map_bytes: Vec<Option<u64>> = vec![None; storages.len()];
    let mut missing = Vec::new();
    let bank = read_bank_file(&snapshot.bank_file, &mut |item| {
        match storages.binary_search_by_key(&item.slot, |storage| storage.slot) {
            Ok(at) => map_bytes.get_mut(at).into_iter().for_each(|length| *length = Some(item.length_bytes)),
            // Emptied storages may be gone from disk.
            Err(_) if item.length_bytes == 0 => {}
            // An incremental archive needs only what is newer than its base; an unpacked one holds only that.
            Err(_) if base_slot.is_some_and(|base| item.slot <= base) => {}
            // More are no more damage; a hostile bank file must not fill the memory.
            Err(_) if missing.len() >= MISSING_MAX => {}
            Err(_) => missing.push(item),
        }
        Ok(())
    })?;
    if bank.slot != *slot {
        return Err(Error::damaged(format!(
            "{} is of slot {}, not of the slot that its directory names",
            snapshot.bank_file.shown(),
            bank.slot
        )));
    }
    for item in missing {
        let message = format!("storage {}.{} of the bank file's storage map is missing", item.slot, item.id);
        let error = Error::failed(message).with_hint(Hint::GiveBaseSlot);
        on_fault(StorageFault { slot: item.slot, id: item.id, is_missing: true, error })?;
    }
    Ok((bank, map_bytes))
}

/// Looks into the split storages among those that are wanted: one result for each, in their order.
fn scan_wanted(
    wanted: &[Wanted<'_>],
    lists: Option<&ObsoleteLists>,
    roots: &[StorageRoot],
    options: &PlanOptions,
    progress: &dyn Progress,
) -> Result<Vec<Result<StorageLength>>> {
    let splits = || wanted.iter().filter(|storage| storage.file.is_split());
    if splits().next().is_none() {
        return Ok(Vec::new());
    }
    progress.stage("Scanning", Some(splits().map(|storage| storage.file.file_bytes).sum()));
    let to_scan = splits().map(|Wanted { file, obsolete, .. }| ToScan {
        storage: file,
        obsolete_list_offset: obsolete.list_offset,
        obsolete_count: obsolete.count,
    });
    scan_splits(to_scan, lists, roots, (options.threads, &options.io_policy), progress)
}

/// How long each storage is in the archive; `scanned` has the split ones. Those of which nothing remains are left out, and
/// so are those that are not as they should be, where `on_fault` returns no error.
fn plan_storages(
    wanted: &[Wanted<'_>],
    scanned: Vec<Result<StorageLength>>,
    roots: &[StorageRoot],
    has_map: bool,
    on_fault: &mut dyn FnMut(StorageFault) -> Result<()>,
) -> Result<PlannedStorages> {
    let mut planned = PlannedStorages { storages: Vec::with_capacity(wanted.len()), ..PlannedStorages::default() };
    let mut scanned = scanned.into_iter();
    for Wanted { file, obsolete, map_bytes } in wanted {
        let length = match file.is_split() {
            true => scanned.next().unwrap_or_else(|| Ok(StorageLength::default())),
            false => storage_length(file, obsolete, *map_bytes, has_map).map_err(|error| {
                let root = roots.get(usize::from(file.root)).map(|root| root.path.as_path()).unwrap_or(Path::new(""));
                error.within(root.join(file.file_name()).shown())
            }),
        };
        let length = match length {
            Ok(length) => length,
            Err(error) => {
                let (slot, id) = (file.slot, u64::from(file.id));
                on_fault(StorageFault { slot, id, is_missing: false, error })?;
                continue;
            }
        };
        count(&mut planned.whole_storages, length.is_whole.into());
        count(&mut planned.obsolete_records, obsolete.count);
        count(&mut planned.obsolete_bytes, obsolete.cut_bytes);
        if length.content_bytes > 0 {
            let count = |checkpoints: &[Checkpoint]| u32::try_from(checkpoints.len()).unwrap_or(u32::MAX);
            let own = (count(&planned.checkpoints), count(&length.checkpoints));
            planned.checkpoints.extend(length.checkpoints);
            planned.storages.push(PlannedStorage {
                file: **file,
                content_bytes: length.content_bytes,
                padding_bytes: length.padding_bytes,
                obsolete_list_offset: obsolete.list_offset,
                obsolete_count: obsolete.count,
                checkpoints: own,
            });
        }
    }
    Ok(planned)
}

/// The entries before the storages, in Agave's own order, which Firedancer needs too: the bank file before accounts.
fn plan_files(snapshot: &BankSnapshot) -> Result<Vec<PlannedFile>> {
    let slot = snapshot.slot;
    let dir = |kind| PlannedFile { entry: Entry { kind, content_bytes: 0 }, path: None, modified_ns: 0 };
    let file = |kind, path: &Path| -> Result<PlannedFile> {
        let metadata = fs::metadata(path).or_path("read", path)?;
        if !metadata.is_file() {
            // Of a pipe, the length is 0, and nothing would be read of it.
            return Err(Error::failed(format!("{} is not a file", path.shown())));
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
