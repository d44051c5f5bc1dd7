//! Finds a complete bank snapshot on disk, and its storages. Does not read the contents of the
//! storages.
//!
//! There are four layouts (docs/snapshot-format.md#bank-snapshot): a storages list (fastboot 3.x), a
//! list that distinguishes append vecs from split storages (4.x and 5.x), hard links (2.x), and an
//! unpacked archive.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use slotpress_base::{Error, EscapePath, IoContext, Result, hint, one_line, open_file, read_at_most};

use crate::ledger::storages::{APPEND_VEC_ENDINGS, ListedStorage, MissingFile, list_storages, stat_listed};
use crate::{
    FieldReader, ObsoleteFormat, StorageDir, StorageFile, parse_number, parse_storages_list, parse_tagged_storages_list,
};

/// Advice for stopping a validator so that it leaves a complete bank snapshot.
pub const GRACEFUL_STOP: &str = "stop the validator with `agave-validator --ledger LEDGER exit` and wait until its \
     process is gone; a killed validator leaves no complete bank snapshot";

/// Hint for a ledger whose files contradict each other.
const COPY_AGAIN_HINT: &str = "copy the ledger from its source again, or restore it from an archive";

/// Directories of a ledger. `None` or an empty list means the validator's default.
#[derive(Clone, Debug, Default)]
#[warn(missing_docs)]
pub struct LedgerPaths {
    /// The ledger directory, or an unpacked archive.
    pub ledger: PathBuf,
    /// Value of `agave-validator --snapshots`: the directory with the archives and `snapshots/`.
    pub snapshots: Option<PathBuf>,
    /// Values of `agave-validator --accounts`: directories that contain `run/`.
    pub accounts: Vec<PathBuf>,
}

#[warn(missing_docs)]
impl<P: AsRef<Path>> From<P> for LedgerPaths {
    fn from(ledger: P) -> Self {
        Self::new(ledger.as_ref())
    }
}

impl LedgerPaths {
    /// Describes a ledger with the validator's defaults.
    pub fn new(ledger: impl Into<PathBuf>) -> Self {
        Self { ledger: ledger.into(), ..Self::default() }
    }

    /// Returns the directory with the archives and `snapshots/`.
    pub fn snapshots_dir(&self) -> &Path {
        self.snapshots.as_deref().unwrap_or(&self.ledger)
    }

    /// Returns the accounts directories, or the default one.
    pub fn accounts_dirs(&self) -> Vec<PathBuf> {
        if self.accounts.is_empty() { vec![self.ledger.join("accounts")] } else { self.accounts.clone() }
    }

    /// True if the ledger directory is an unpacked archive.
    pub fn is_unpacked_archive(&self) -> bool {
        self.ledger.join("snapshots/status_cache").is_file() && self.ledger.join("version").is_file()
    }
}

/// Layout of a bank snapshot. It determines how the storages are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// fastboot 3.x: `storages_list` names files in `run/`.
    StoragesList,
    /// fastboot 4.x and 5.x: `storages_list` also distinguishes append vecs from split storages.
    TaggedList,
    /// fastboot 2.x: hard links under `snapshot/<slot>/`.
    HardLinks,
    Unpacked,
}

impl Layout {
    /// Returns the fastboot version and the layout in words.
    pub fn description(self) -> &'static str {
        match self {
            Self::StoragesList => "fastboot 3, storages list",
            Self::TaggedList => "fastboot 4 or 5, tagged storages list",
            Self::HardLinks => "fastboot 2, hard links",
            Self::Unpacked => "unpacked archive",
        }
    }

    #[doc(hidden)]
    pub fn obsolete_format(self) -> ObsoleteFormat {
        if self == Self::TaggedList { ObsoleteFormat::Compact } else { ObsoleteFormat::Wide }
    }
}

/// A complete bank snapshot: its files, and its storages ordered by (slot, id).
#[derive(Debug)]
pub struct BankSnapshot {
    pub slot: u64,
    pub layout: Layout,
    pub dir: PathBuf,
    pub bank_file: PathBuf,
    pub status_cache: PathBuf,
    pub version: PathBuf,
    /// Path of the lists of obsolete records, if the layout has them.
    pub obsolete_accounts: Option<PathBuf>,
    pub storage_dirs: Vec<StorageDir>,
    pub storages: Vec<StorageFile>,
    /// Files that the storages list names but none of these directories contains. Empty unless
    /// [`find_bank_snapshot_lenient`] was used.
    pub missing: Vec<MissingFile>,
}

impl BankSnapshot {
    pub fn describe_storage_dirs(&self) -> String {
        let paths = self.storage_dirs.iter().map(|dir| dir.path.escaped());
        Vec::from_iter(paths).join(" or ")
    }
}

/// The only snapshot version in use.
pub const SNAPSHOT_VERSION: &str = "1.2.0";

/// Limit of Agave on the length of a version file, in bytes (`MAX_SNAPSHOT_VERSION_FILE_SIZE` in
/// `agave-snapshots`).
pub const VERSION_BYTES_MAX: usize = 8;

/// True if a version file has the known version. Like Agave, ignores white space around it; Firedancer
/// refuses a version with a line end.
pub fn is_known_version(content: &[u8]) -> bool {
    content.len() <= VERSION_BYTES_MAX
        && std::str::from_utf8(content).is_ok_and(|version| version.trim() == SNAPSHOT_VERSION)
}

pub fn read_version(path: &Path) -> Result<Vec<u8>> {
    read_at_most(open_file(path)?, (VERSION_BYTES_MAX as u64).saturating_add(1), path)
}

/// Finds the bank snapshot at `slot`, or the newest complete one if `slot` is `None`. Looks up its
/// storages on `threads` threads. The caller must hold the lock of a validator's ledger.
///
/// # Errors
/// There is no complete bank snapshot, one of its storages is missing, or its files contradict each other.
pub fn find_bank_snapshot(paths: &LedgerPaths, slot: Option<u64>, threads: usize) -> Result<BankSnapshot> {
    let snapshot = find_bank_snapshot_lenient(paths, slot, threads)?;
    let Some(missing) = snapshot.missing.first() else { return Ok(snapshot) };
    Err(Error::damaged(format!(
        "storage {missing} of the storages list is not in {}",
        snapshot.describe_storage_dirs()
    ))
    .with_hint(hint::NAME_ACCOUNTS))
}

/// Like [`find_bank_snapshot`], but lists missing storages instead of failing.
pub fn find_bank_snapshot_lenient(paths: &LedgerPaths, slot: Option<u64>, threads: usize) -> Result<BankSnapshot> {
    if !is_dir(&paths.ledger)? {
        return Err(Error::failed(format!("{} is not a directory", paths.ledger.escaped()))
            .with_hint("pass the validator's ledger directory, or the directory into which an archive was unpacked"));
    }
    let mut snapshot = if paths.is_unpacked_archive() {
        open_unpacked_archive(&paths.ledger, slot, threads)?
    } else {
        open_ledger(paths, slot, threads)?
    };
    let version = read_version(&snapshot.version)?;
    if !is_known_version(&version) {
        let path = snapshot.version.escaped();
        let version = one_line(String::from_utf8_lossy(&version).trim());
        let message = format!("{path} says snapshot version {version:?}, but slotpress knows only {SNAPSHOT_VERSION}");
        return Err(Error::damaged(message).with_hint(hint::NEWER_LAYOUT));
    }
    snapshot.storages.sort_unstable_by_key(|storage| (storage.slot, storage.id));
    let mut by_slot = snapshot.storages.chunk_by(|first, second| first.slot == second.slot);
    if let Some([first, second, ..]) = by_slot.find(|storages| storages.len() > 1) {
        let StorageFile { slot, id, .. } = first;
        let message = format!("slot {slot} has two storages, {id} and {}; a snapshot has one per slot", second.id);
        return Err(Error::damaged(message).with_hint(COPY_AGAIN_HINT));
    }
    if let Some(StorageFile { slot, id, .. }) = snapshot.storages.last()
        && *slot > snapshot.slot
    {
        let message = format!("storage {slot}.{id} is newer than the bank snapshot at slot {}", snapshot.slot);
        return Err(Error::damaged(message).with_hint(COPY_AGAIN_HINT));
    }
    Ok(snapshot)
}

/// Returns the slots of the bank snapshot directories, newest first, complete or not.
pub fn bank_snapshot_slots(snapshots_dir: &Path) -> Result<Vec<u64>> {
    let dir = snapshots_dir.join("snapshots");
    let mut slots = Vec::new();
    let entries = match fs::read_dir(&dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(slots),
        Err(error) => return Err(Error::io("read", &dir, &error)),
    };
    for entry in entries {
        let name = entry.or_path("read", &dir)?.file_name();
        slots.extend(name.to_str().and_then(parse_number));
    }
    slots.sort_unstable_by(|a, b| b.cmp(a));
    Ok(slots)
}

/// True if a bank snapshot directory has `fastboot_version`, which a validator writes last.
pub fn is_complete(snapshots_dir: &Path, slot: u64) -> Result<bool> {
    let layout_file = metadata(&bank_snapshot_dir(snapshots_dir, slot).join(LAYOUT_FILE))?;
    Ok(layout_file.is_some_and(|metadata| metadata.is_file()))
}

/// File that names the layout of a bank snapshot. A validator writes it last.
const LAYOUT_FILE: &str = "fastboot_version";

fn bank_snapshot_dir(snapshots_dir: &Path, slot: u64) -> PathBuf {
    snapshots_dir.join("snapshots").join(slot.to_string())
}

fn open_ledger(paths: &LedgerPaths, slot: Option<u64>, threads: usize) -> Result<BankSnapshot> {
    let slot = find_complete_slot(paths.snapshots_dir(), slot)?;
    let dir = bank_snapshot_dir(paths.snapshots_dir(), slot);
    let layout = read_layout(&dir.join(LAYOUT_FILE))?;
    let (storage_dirs, storages, missing) = if layout == Layout::HardLinks {
        let storage_dirs = open_hard_link_dirs(paths, &dir, slot)?;
        let storages = list_storages(&storage_dirs, threads)?;
        (storage_dirs, storages, Vec::new())
    } else {
        let run_dirs = paths.accounts_dirs().into_iter().map(|accounts| accounts.join("run"));
        let storage_dirs = run_dirs.map(|dir| open_storage_dir(dir, "")).collect::<Result<Vec<_>>>()?;
        let list = FieldReader::open(&require_path(dir.join("storages_list"))?, "the storages list")?;
        let list = if layout == Layout::TaggedList {
            parse_tagged_storages_list(list)?
        } else {
            let append_vec = |(slot, id)| ListedStorage { slot, id, endings: APPEND_VEC_ENDINGS };
            parse_storages_list(list)?.into_iter().map(append_vec).collect()
        };
        let (storages, missing) = stat_listed(&list, &storage_dirs, threads)?;
        (storage_dirs, storages, missing)
    };
    Ok(BankSnapshot {
        slot,
        layout,
        bank_file: require_path(dir.join(slot.to_string()))?,
        status_cache: require_path(dir.join("status_cache"))?,
        version: require_path(dir.join("version"))?,
        obsolete_accounts: Some(require_path(dir.join("obsolete_accounts"))?),
        dir,
        storage_dirs,
        storages,
        missing,
    })
}

/// Returns `slot` if it has a complete bank snapshot; without `slot`, the newest slot that has one.
fn find_complete_slot(snapshots_dir: &Path, slot: Option<u64>) -> Result<u64> {
    let slots = bank_snapshot_slots(snapshots_dir)?;
    if let Some(slot) = slot
        && !slots.contains(&slot)
    {
        let dir = bank_snapshot_dir(snapshots_dir, slot).escaped();
        return Err(Error::failed(format!("there is no bank snapshot {dir}"))
            .with_hint(format!("bank snapshots there: {}", format_slots(&slots))));
    }
    if slots.is_empty() {
        let dir = snapshots_dir.escaped();
        return Err(Error::failed(format!("{dir} holds no bank snapshot: its snapshots/ is empty or missing"))
            .with_hint(
                "pass the validator's ledger directory; if the validator runs with --snapshots, pass that too",
            ));
    }
    let candidates = slot.map_or(slots, |slot| vec![slot]);
    for slot in &candidates {
        if is_complete(snapshots_dir, *slot)? {
            return Ok(*slot);
        }
    }
    Err(Error::failed(format!(
        "no complete bank snapshot in {}: the file that a validator writes last, {LAYOUT_FILE}, is missing in {}",
        snapshots_dir.join("snapshots").escaped(),
        format_slots(&candidates)
    ))
    .with_hint(GRACEFUL_STOP))
}

fn read_layout(path: &Path) -> Result<Layout> {
    /// More bytes than any version has.
    const VERSION_FILE_BYTES_MAX: u64 = 64;
    let version = read_at_most(open_file(path)?, VERSION_FILE_BYTES_MAX, path)?;
    let version = String::from_utf8_lossy(&version);
    let version = version.trim();
    let path = path.escaped();
    let mut numbers = version.split('.').map(parse_number);
    // Agave promises no compatibility within 4.x and 5.x: the next minor version may differ in
    // any way.
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(3), _) => Ok(Layout::StoragesList),
        (Some(2), _) => Ok(Layout::HardLinks),
        (Some(4..=5), Some(0)) => Ok(Layout::TaggedList),
        (Some(4..), _) => Err(Error::failed(format!(
            "{path} says {version}, but slotpress knows only the layouts of Agave up to 4.5 (2.x, 3.x, 4.0, 5.0)"
        ))
        .with_hint(hint::NEWER_LAYOUT)),
        _ => Err(Error::failed(format!(
            "{path} says {version:?}, which is not a layout that slotpress knows (2.x, 3.x, 4.0, 5.0)"
        ))
        .with_hint("recompress the validator's own archives")),
    }
}

fn open_unpacked_archive(dir: &Path, slot: Option<u64>, threads: usize) -> Result<BankSnapshot> {
    let slots = bank_snapshot_slots(dir)?;
    let slot = match (slot, slots.as_slice()) {
        (Some(slot), slots) if slots.contains(&slot) => slot,
        (None, [only]) => *only,
        _ => {
            return Err(Error::failed(format!(
                "{} looks like an unpacked archive, but its snapshots/ contains these slots: {}",
                dir.escaped(),
                format_slots(&slots)
            ))
            .with_hint("unpack one archive into one empty directory, or choose with --slot"));
        }
    };
    let bank_dir = bank_snapshot_dir(dir, slot);
    let storage_dirs = vec![StorageDir::open(dir.join("accounts"))?];
    let storages = list_storages(&storage_dirs, threads)?;
    Ok(BankSnapshot {
        slot,
        layout: Layout::Unpacked,
        bank_file: require_path(bank_dir.join(slot.to_string()))?,
        status_cache: require_path(dir.join("snapshots/status_cache"))?,
        version: require_path(dir.join("version"))?,
        dir: bank_dir,
        obsolete_accounts: None,
        storage_dirs,
        storages,
        missing: Vec::new(),
    })
}

/// Opens a directory of storages. If there is no such directory, the error ends with `explanation`.
fn open_storage_dir(dir: PathBuf, explanation: &str) -> Result<StorageDir> {
    if is_dir(&dir)? {
        return StorageDir::open(dir);
    }
    Err(Error::failed(format!("{} is not a directory{explanation}", dir.escaped())).with_hint(hint::NAME_ACCOUNTS))
}

/// Opens the directories to which `accounts_hardlinks/account_path_N` points. These symbolic links are
/// absolute, so they are broken if the ledger was moved. If they are broken, or if the caller passes
/// accounts paths, opens `<accounts>/snapshot/<slot>` instead.
fn open_hard_link_dirs(paths: &LedgerPaths, dir: &Path, slot: u64) -> Result<Vec<StorageDir>> {
    let links_dir = require_path(dir.join("accounts_hardlinks"))?;
    let mut targets = Vec::new();
    if paths.accounts.is_empty() {
        for entry in fs::read_dir(&links_dir).or_path("read", &links_dir)? {
            targets.push(entry.or_path("read", &links_dir)?.path());
        }
        targets.sort_unstable();
    }
    if targets.is_empty() || !targets.iter().all(|target| target.is_dir()) {
        let links_in = |accounts: PathBuf| accounts.join("snapshot").join(slot.to_string());
        targets = paths.accounts_dirs().into_iter().map(links_in).collect();
    }
    targets.into_iter().map(|dir| open_storage_dir(dir, ", but should contain hard links to the storages")).collect()
}

fn require_path(path: PathBuf) -> Result<PathBuf> {
    if metadata(&path)?.is_some() {
        return Ok(path);
    }
    Err(Error::damaged(format!("{} is missing: the bank snapshot is not complete", path.escaped()))
        .with_hint(GRACEFUL_STOP))
}

fn is_dir(path: &Path) -> Result<bool> {
    Ok(metadata(path)?.is_some_and(|metadata| metadata.is_dir()))
}

/// Returns `None` only if the path does not exist. Any other failure, such as a missing permission,
/// is an error.
fn metadata(path: &Path) -> Result<Option<fs::Metadata>> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(Error::io("read", path, &error)),
    }
}

fn format_slots(slots: &[u64]) -> String {
    /// Limit on the slots in a message. More slots would not help the user to choose.
    const SHOWN_MAX: usize = 8;
    if slots.is_empty() {
        return "none".to_string();
    }
    let shown: Vec<String> = slots.iter().take(SHOWN_MAX).map(u64::to_string).collect();
    let ellipsis = if slots.len() > SHOWN_MAX { ", …" } else { "" };
    format!("{}{ellipsis}", shown.join(", "))
}
