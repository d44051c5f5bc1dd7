//! Prepares the target directories of a restore, and checks that no existing data can be lost.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType};
use slotpress_base::{
    Error, ErrorKind, EscapePath, FileStat, IoContext, KeptDir, Owner, Result, Space, clock, hint, quantity,
};
use slotpress_format::{ArchiveName, LedgerLock, parse_number};
#[cfg(feature = "net")]
use slotpress_format::{LEDGER_LOCK_NAME, LedgerPaths};
#[cfg(feature = "net")]
use slotpress_read::find_restore_journal;
use slotpress_read::remove_stale_dirs;

use crate::restore::created_dirs::CreatedDirs;
use crate::restore::journal::{Move, REPLACED_PREFIX, recover};
use crate::restore::place::{PARTIAL_PREFIX, PartialDir};
use crate::restore::{ExistingState, TargetOptions};

/// Target directories of a restore, created and checked. Holds the lock of the ledger, and of each
/// directory that is written.
#[derive(Debug)]
pub struct Target {
    pub ledger: Arc<KeptDir>,
    /// Directory of archives and of `snapshots/`.
    pub snapshots_dir: Arc<KeptDir>,
    pub bank_snapshots: Arc<KeptDir>,
    pub accounts: Vec<Arc<KeptDir>>,
    pub owner: Owner,
    pub old: OldState,
    // Dropped before the lock, so that no other process locks a ledger that is being removed.
    pub created: CreatedDirs,
    _lock: LedgerLock,
}

impl Target {
    /// Creates missing directories and takes the locks. Refuses a target that holds a state, unless
    /// the options allow replacing it. Does not touch that state yet. `newest` names the archive
    /// whose state is restored.
    pub fn prepare(options: &TargetOptions, newest: Option<&ArchiveName>) -> Result<Self> {
        let paths = &options.paths;
        let mut created = CreatedDirs::default();
        let ledger = created.open_or_create(&paths.ledger, None)?;
        let owner = Owner::from_dir(&ledger)?;
        let lock = LedgerLock::acquire_in(&ledger)?;
        let snapshots_dir = match paths.snapshots_dir() {
            path if path == ledger.path() => ledger.clone(),
            path => created.open_or_create(path, Some(&owner))?,
        };
        let mut accounts = Vec::new();
        for path in paths.accounts_dirs() {
            accounts.push(created.open_or_create(&path, Some(&owner))?);
        }
        check_accounts_paths(&accounts, &snapshots_dir, &ledger)?;
        for dir in [&ledger, &snapshots_dir].into_iter().chain(&accounts) {
            created.locks.add(dir)?;
        }
        recover(&snapshots_dir, &mut created.locks)?;
        let old = OldState::find(options, Some(&snapshots_dir), &accounts, newest)?;
        let bank_snapshots = created.open_or_create_in(&snapshots_dir, BANK_SNAPSHOTS_DIR, &owner)?;
        for dir in [&snapshots_dir].into_iter().chain(&accounts) {
            remove_stale_dirs(dir, PARTIAL_PREFIX, &mut |_| Ok(()))?;
        }
        Ok(Self { ledger, snapshots_dir, bank_snapshots, accounts, owner, old, created, _lock: lock })
    }

    pub fn create_partial_dirs(&self, kind: &str) -> Result<Vec<PartialDir>> {
        let create = |accounts_dir| PartialDir::create(accounts_dir, kind, self.owner);
        self.accounts.iter().map(create).collect()
    }

    /// Fails if a path no longer leads to the directory that was written, since a validator would not
    /// find the ledger.
    pub fn check_paths(&self) -> Result<()> {
        let dirs = [&self.ledger, &self.snapshots_dir, &self.bank_snapshots];
        let mut dirs = dirs.into_iter().chain(&self.accounts);
        dirs.try_for_each(|dir| dir.check_path())
    }
}

#[cfg(feature = "net")]
pub struct Preview {
    /// Needed and free space of each file system.
    pub space: Vec<Space>,
    /// Paths of an existing state that would be moved aside.
    pub existing: Vec<PathBuf>,
    /// An error if there is not enough space.
    pub space_check: Result<()>,
}

/// Checks that the target does not contain a ledger. Ignores files that a killed restore left.
///
/// # Errors
/// [`ErrorKind::Exists`], with the path of a part of the ledger.
#[cfg(feature = "net")]
pub fn check_is_new(paths: &LedgerPaths) -> Result<()> {
    if find_restore_journal(paths.snapshots_dir()).is_some() {
        return Ok(());
    }
    let snapshots_dir = open_existing(paths.snapshots_dir())?;
    let accounts = open_all_existing(&paths.accounts_dirs())?;
    let options = TargetOptions::new(&paths.ledger);
    OldState::find(&options, snapshots_dir.as_ref(), &accounts, None).map(drop)
}

#[cfg(feature = "net")]
fn open_existing(path: &Path) -> Result<Option<Arc<KeptDir>>> {
    if path.exists() { Ok(Some(Arc::new(KeptDir::open(path)?))) } else { Ok(None) }
}

#[cfg(feature = "net")]
fn open_all_existing(paths: &[PathBuf]) -> Result<Vec<Arc<KeptDir>>> {
    paths.iter().filter_map(|path| open_existing(path).transpose()).collect()
}

#[cfg(feature = "net")]
fn lock_existing(ledger: &Path) -> Result<Option<LedgerLock>> {
    match open_existing(ledger)? {
        Some(dir) if dir.path_of(LEDGER_LOCK_NAME).exists() => Ok(Some(LedgerLock::acquire_in(&dir)?)),
        _ => Ok(None),
    }
}

/// Opens the nearest existing directory at or above a path. Missing directories will be on its file
/// system.
#[cfg(feature = "net")]
fn open_nearest(path: &Path) -> Result<Arc<KeptDir>> {
    let path = std::path::absolute(path).or_path("find the absolute path of", path)?;
    for above in path.ancestors() {
        if let Some(dir) = open_existing(above)? {
            return Ok(dir);
        }
    }
    KeptDir::open(&path).map(Arc::new)
}

#[cfg(feature = "net")]
impl Preview {
    /// Examines the target of a restore that writes `bytes`, and whose last archive is `newest`.
    /// Undoes what a killed restore left, except in a dry run, which writes nothing.
    ///
    /// # Errors
    /// The restore would refuse the target.
    pub fn new(options: &TargetOptions, newest: &ArchiveName, bytes: RestoredBytes, dry_run: bool) -> Result<Self> {
        let paths = &options.paths;
        let accounts_dirs = paths.accounts_dirs();
        let has_journal = find_restore_journal(paths.snapshots_dir()).is_some();
        if has_journal && !dry_run {
            Target::prepare(options, Some(newest))?;
        }
        let _lock = lock_existing(&paths.ledger)?;
        let snapshots_dir = open_existing(paths.snapshots_dir())?;
        let accounts = open_all_existing(&accounts_dirs)?;
        let mut old = OldState::default();
        // With a journal, what the directories will hold is known only once its moves are undone.
        if !has_journal || !dry_run {
            old = OldState::find(options, snapshots_dir.as_ref(), &accounts, Some(newest))?;
        }
        let nearest = accounts_dirs.iter().map(|path| open_nearest(path));
        let nearest = nearest.collect::<Result<Vec<_>>>()?;
        let space = needed_spaces(&nearest, &*open_nearest(paths.snapshots_dir())?, bytes)?;
        let space_check = space.iter().try_for_each(Space::check);
        let dirs = snapshots_dir.iter().chain(&accounts);
        let space_check = space_check.map_err(|error| old.hint_at_old_states(error, dirs));
        let existing = old.moves.iter().map(Move::source_path).collect();
        Ok(Self { space, existing, space_check })
    }
}

/// Bytes that a restore writes.
#[derive(Clone, Copy)]
pub struct RestoredBytes {
    pub unpacked_bytes: u64,
    pub archives_bytes: u64,
}

/// Returns the needed and the free space of each file system.
pub fn needed_spaces(accounts: &[Arc<KeptDir>], snapshots_dir: &KeptDir, bytes: RestoredBytes) -> Result<Vec<Space>> {
    let mut spaces: BTreeMap<u64, Space> = BTreeMap::new();
    let unpacked = accounts.iter().map(|dir| (&**dir, bytes.unpacked_bytes / accounts.len() as u64));
    for (dir, needed_bytes) in unpacked.chain([(snapshots_dir, bytes.archives_bytes)]) {
        let device = dir.stat()?.device;
        if let Some(space) = spaces.get_mut(&device) {
            space.needed_bytes = space.needed_bytes.saturating_add(needed_bytes);
        } else {
            spaces.insert(device, Space::in_dir(dir, needed_bytes)?);
        }
    }
    Ok(spaces.into_values().collect())
}

const BANK_SNAPSHOTS_DIR: &str = "snapshots";

/// Directory of storages in an accounts path.
pub const RUN_DIR: &str = "run";

/// Empty directory next to [`RUN_DIR`], which a starting validator requires.
pub const SNAPSHOT_DIR: &str = "snapshot";

/// Moves of an existing state.
#[derive(Debug, Default)]
pub struct OldState {
    /// Name of the directories to which the old state and archives are moved; `None` if that is
    /// not allowed.
    pub replaced_name: Option<String>,
    pub moves: Vec<Move>,
}

impl OldState {
    /// Finds the parts of a state, and plans their moves.
    ///
    /// # Errors
    /// A state exists, and the options do not allow moving it; or no directory can take its place.
    fn find(
        options: &TargetOptions,
        snapshots_dir: Option<&Arc<KeptDir>>,
        accounts: &[Arc<KeptDir>],
        newest: Option<&ArchiveName>,
    ) -> Result<Self> {
        let mut old = Self::default();
        if options.existing_state == ExistingState::MoveAside {
            old.replaced_name = Some(choose_replaced_name(snapshots_dir.into_iter().chain(accounts)));
        }
        if let Some(snapshots_dir) = snapshots_dir {
            check_rename_target(snapshots_dir, BANK_SNAPSHOTS_DIR)?;
        }
        if let Some(snapshots_dir) = snapshots_dir
            && let Some(bank_snapshots) = snapshots_dir.open_dir(BANK_SNAPSHOTS_DIR)?.map(Arc::new)
        {
            let names = bank_snapshots.names()?;
            let slots = names.iter().filter_map(|name| parse_number(name.to_str()?));
            let mut slots: Vec<u64> = slots.collect();
            slots.sort_unstable_by_key(|slot| Reverse(*slot));
            if let Some(newest) = newest
                && old.replaced_name.is_none()
                && slots.first() == Some(&newest.slot)
                && snapshots_dir.stat_entry(newest.to_string())?.is_some()
                && bank_snapshots.path_of(format!("{}/fastboot_version", newest.slot)).exists()
            {
                let message = format!("slot {} is already there: start the validator", newest.slot);
                let existing = bank_snapshots.path_of(newest.slot.to_string());
                return Err(Error::new(ErrorKind::Exists, message).with_existing_path(&existing));
            }
            for slot in slots {
                old.add_move(&bank_snapshots, &slot.to_string(), snapshots_dir, "snapshots/")?;
            }
        }
        for dir in accounts {
            for inner in [RUN_DIR, SNAPSHOT_DIR] {
                check_rename_target(dir, inner)?;
                if let Some(open) = dir.open_dir(inner)?
                    && !open.names()?.is_empty()
                {
                    old.add_move(dir, inner, dir, "")?;
                }
            }
        }
        Ok(old)
    }

    fn add_move(&mut self, dir: &Arc<KeptDir>, part: &str, parent: &Arc<KeptDir>, inner: &str) -> Result<()> {
        let path = dir.path_of(part);
        let Some(replaced_name) = &self.replaced_name else {
            let message = format!(
                "{} already exists: the target holds a ledger, or the remains of one; nothing was changed",
                path.escaped()
            );
            let error = Error::new(ErrorKind::Exists, message).with_existing_path(&path);
            return Err(error.with_hint("restore into an empty directory, or replace that state with --replace-state"));
        };
        if let Some(stat) = dir.stat_entry(part)? {
            check_same_file_system(&path, &stat, parent)?;
        }
        let to = format!("{replaced_name}/{inner}{part}");
        self.moves.push(Move::new((dir, part), (parent, &to))?);
        Ok(())
    }

    /// Adds a hint to an error for a lack of space: the old states that could be removed, with their
    /// sizes. Those of earlier restores are in `dirs`.
    pub fn hint_at_old_states<'a>(&self, error: Error, dirs: impl Iterator<Item = &'a Arc<KeptDir>>) -> Error {
        if error.kind() != ErrorKind::NoSpace {
            return error;
        }
        let mut paths: Vec<PathBuf> = self.moves.iter().map(Move::source_path).collect();
        for dir in dirs {
            let names = dir.names().unwrap_or_default();
            let is_aside = |name: &&OsString| name.to_string_lossy().starts_with(REPLACED_PREFIX);
            paths.extend(names.iter().filter(is_aside).map(|name| dir.path_of(name)));
        }
        if paths.is_empty() {
            return error;
        }
        let states = paths.iter().map(|path| format!("{} ({})", path.escaped(), quantity::bytes(disk_bytes(path))));
        let states = states.collect::<Vec<_>>().join(", ");
        error.with_hint(format!("an old state could be removed, if you do not need it: {states}"))
    }
}

fn choose_replaced_name<'a>(dirs: impl Iterator<Item = &'a Arc<KeptDir>> + Clone) -> String {
    let mut number = clock::since_1970(clock::now()).as_secs();
    loop {
        let name = format!("{REPLACED_PREFIX}{number}");
        let is_taken = |dir: &Arc<KeptDir>| dir.stat_entry(&name).is_ok_and(|stat| stat.is_some());
        if !dirs.clone().any(is_taken) {
            return name;
        }
        number += 1;
    }
}

/// Returns the number of bytes that a file or directory occupies on the disk, without parts that cannot
/// be read.
fn disk_bytes(path: &Path) -> u64 {
    let Ok(metadata) = fs::symlink_metadata(path) else { return 0 };
    let mut bytes = metadata.blocks().saturating_mul(512);
    if metadata.is_dir() {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            bytes = bytes.saturating_add(disk_bytes(&entry.path()));
        }
    }
    bytes
}

/// Refuses an accounts path that is the ledger or the snapshots directory (as a validator does), that is
/// in the directory of bank snapshots, that is given twice, or that is within another accounts path: a
/// validator deletes unknown files in accounts paths.
fn check_accounts_paths(accounts: &[Arc<KeptDir>], snapshots_dir: &KeptDir, ledger: &KeptDir) -> Result<()> {
    let canonical_path = |dir: &KeptDir| fs::canonicalize(dir.path()).or_path("read", dir.path());
    let ledger = canonical_path(ledger)?;
    let snapshots = canonical_path(snapshots_dir)?;
    let mut seen: Vec<PathBuf> = Vec::new();
    for dir in accounts {
        let path = canonical_path(dir)?;
        let overlaps = |other: &PathBuf| path.starts_with(other) || other.starts_with(&path);
        if seen.iter().any(overlaps)
            || path == snapshots
            || path == ledger
            || path.starts_with(snapshots.join(BANK_SNAPSHOTS_DIR))
        {
            let message =
                format!("the accounts path {} is or overlaps another directory of this ledger", dir.path().escaped());
            return Err(Error::usage(message).with_hint(
                "a validator deletes unknown files in an accounts path: pass each path once, and none inside another",
            ));
        }
        seen.push(path);
    }
    Ok(())
}

/// Fails if no directory can be renamed to `name` in `parent`.
fn check_rename_target(parent: &KeptDir, name: &str) -> Result<()> {
    let place = parent.path_of(name);
    match parent.stat_entry(name)? {
        Some(stat) if stat.kind == FileType::Symlink => {
            if let Ok(linked) = rustix::fs::statat(parent, name, AtFlags::empty()) {
                check_same_file_system(&place, &linked.into(), parent)?;
            }
            let message = format!("{} is a symbolic link, where a restore puts a directory", place.escaped());
            Err(Error::failed(message).with_hint(hint::OTHER_DIRECTORIES))
        }
        Some(stat) => check_same_file_system(&place, &stat, parent),
        None => Ok(()),
    }
}

/// Fails if `place` and `parent` are on different file systems, because renames would be impossible.
pub fn check_same_file_system(place: &Path, stat: &FileStat, parent: &KeptDir) -> Result<()> {
    if stat.device == parent.stat()?.device {
        return Ok(());
    }
    let [place, parent] = [place, parent.path()].map(EscapePath::escaped);
    let message =
        format!("{place} is on a different file system than {parent}: restored directories cannot be moved there");
    Err(Error::failed(message).with_hint(hint::OTHER_DIRECTORIES))
}

/// Ratio of unpacked to compressed size of mainnet's archives: 450 GB to 110 GB.
pub const MAINNET_RATIO: u64 = 4;

/// Lowest ratio of unpacked to compressed size that is assumed for an archive.
pub const RATIO_MIN: u64 = 2;
