//! Prepares the target directories of a restore, and checks that no existing data can be lost.

use std::collections::BTreeMap;
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
use slotpress_read::remove_stale_dirs;
#[cfg(feature = "net")]
use slotpress_read::restore_journal;

use crate::restore::created_dirs::CreatedDirs;
use crate::restore::journal::{Move, REPLACED_PREFIX, recover};
use crate::restore::place::PARTIAL_PREFIX;
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
    // Dropped before `lock`, so that nobody else has the lock of a ledger that is removed.
    pub made: CreatedDirs,
    _lock: LedgerLock,
}

impl Target {
    /// Creates missing directories and takes the locks. Refuses a target that holds a state, unless
    /// the options allow replacing it; `newest` is the name of the archive whose state the ledger
    /// gets. The state is not touched yet.
    pub fn prepare(options: &TargetOptions, newest: Option<&ArchiveName>) -> Result<Self> {
        let paths = &options.paths;
        let mut made = CreatedDirs::default();
        let ledger = made.open_or_create(&paths.ledger, None)?;
        let owner = Owner::from_dir(&ledger)?;
        let lock = LedgerLock::acquire_in(&ledger)?;
        let snapshots_dir = match paths.snapshots_dir() {
            path if path == ledger.path() => ledger.clone(),
            path => made.open_or_create(path, Some(&owner))?,
        };
        let accounts_dirs = paths.accounts_dirs();
        let accounts = accounts_dirs.iter().map(|path| made.open_or_create(path, Some(&owner)));
        let accounts = accounts.collect::<Result<Vec<_>>>()?;
        check_accounts_paths(&accounts, &snapshots_dir, &ledger)?;
        for dir in [&ledger, &snapshots_dir].into_iter().chain(&accounts) {
            made.locks.add(dir)?;
        }
        recover(&snapshots_dir, &mut made.locks)?;
        let old = OldState::find(options, Some(&snapshots_dir), &accounts, newest)?;
        let bank_snapshots = made.open_or_create_in(&snapshots_dir, BANK_SNAPSHOTS_DIR, &owner)?;
        for dir in [&snapshots_dir].into_iter().chain(&accounts) {
            remove_stale_dirs(dir, PARTIAL_PREFIX, &mut |_| Ok(()))?;
        }
        Ok(Self { ledger, snapshots_dir, bank_snapshots, accounts, owner, old, made, _lock: lock })
    }

    /// Fails if the paths no longer lead to the written directories, since a validator would look
    /// elsewhere.
    pub fn check_paths(&self) -> Result<()> {
        let dirs = [&self.ledger, &self.snapshots_dir, &self.bank_snapshots];
        dirs.into_iter().chain(&self.accounts).try_for_each(|dir| dir.check_path())
    }
}

#[cfg(feature = "net")]
pub struct Preview {
    /// Bytes to write per file system.
    pub space: Vec<Space>,
    pub existing: Vec<PathBuf>,
    /// An error if there is no room.
    pub room: Result<()>,
}

/// Checks that the target holds no ledger. The files that a killed restore left do not count.
///
/// # Errors
/// [`ErrorKind::Exists`], with the path of a part of it.
#[cfg(feature = "net")]
pub fn check_is_new(paths: &LedgerPaths) -> Result<()> {
    if restore_journal(paths.snapshots_dir()).is_some() {
        return Ok(());
    }
    let snapshots_dir = open_existing(paths.snapshots_dir())?;
    let accounts: Result<Vec<_>> =
        paths.accounts_dirs().iter().filter_map(|path| open_existing(path).transpose()).collect();
    OldState::find(&TargetOptions::new(&paths.ledger), snapshots_dir.as_ref(), &accounts?, None)?;
    Ok(())
}

#[cfg(feature = "net")]
fn open_existing(path: &Path) -> Result<Option<Arc<KeptDir>>> {
    path.exists().then(|| KeptDir::open(path).map(Arc::new)).transpose()
}

#[cfg(feature = "net")]
impl Preview {
    /// Examines the target of a restore that writes `bytes`, and whose last archive is `newest`. A dry
    /// run writes nothing; others undo what a killed restore left.
    ///
    /// # Errors
    /// The restore would refuse the target.
    pub fn new(options: &TargetOptions, newest: &ArchiveName, bytes: RestoredBytes, is_dry: bool) -> Result<Self> {
        let paths = &options.paths;
        let accounts_dirs = options.paths.accounts_dirs();
        let is_to_be_undone = restore_journal(paths.snapshots_dir()).is_some();
        if is_to_be_undone && !is_dry {
            Target::prepare(options, Some(newest))?;
        }
        let ledger = open_existing(&paths.ledger)?;
        let snapshots_dir = open_existing(paths.snapshots_dir())?;
        let lock_in = |ledger: &&Arc<KeptDir>| ledger.path_of(LEDGER_LOCK_NAME).exists();
        let _lock = ledger.as_ref().filter(lock_in).map(|ledger| LedgerLock::acquire_in(ledger)).transpose()?;
        let accounts = accounts_dirs.iter().filter_map(|path| open_existing(path).transpose());
        let accounts = accounts.collect::<Result<Vec<_>>>()?;
        let old = if is_to_be_undone && is_dry {
            // It is not known yet what the directories will hold.
            OldState { name: None, moves: Vec::new() }
        } else {
            OldState::find(options, snapshots_dir.as_ref(), &accounts, Some(newest))?
        };
        // A directory that is missing will be on the file system of the one above it.
        let nearest = |path: &Path| {
            let path = std::path::absolute(path).or_path("find the absolute path of", path)?;
            let existing = path.ancestors().find_map(|above| open_existing(above).transpose());
            existing.unwrap_or_else(|| KeptDir::open(&path).map(Arc::new))
        };
        let accounts_on = accounts_dirs.iter().map(|path| nearest(path)).collect::<Result<Vec<_>>>()?;
        let archives_on = nearest(paths.snapshots_dir())?;
        let space = space_for(&accounts_on, &archives_on, bytes)?;
        let room = space.iter().try_for_each(Space::check);
        let room = room.map_err(|error| old.hint_to_remove(error, snapshots_dir.iter().chain(&accounts)));
        Ok(Self { space, existing: old.moves.iter().map(Move::source_path).collect(), room })
    }
}

/// Bytes that a restore writes: unpacked content, and archives.
#[derive(Clone, Copy)]
pub struct RestoredBytes {
    pub unpacked_bytes: u64,
    pub archives_bytes: u64,
}

/// Returns needed and free bytes per file system.
pub fn space_for(accounts: &[Arc<KeptDir>], snapshots_dir: &KeptDir, bytes: RestoredBytes) -> Result<Vec<Space>> {
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

/// Directory next to [`RUN_DIR`] that a starting validator requires.
pub const SNAPSHOT_DIR: &str = "snapshot";

/// The parts of an existing state.
#[derive(Debug)]
pub struct OldState {
    /// Name of the directories to which the old state and archives are moved; `None` if that is
    /// not allowed.
    pub name: Option<String>,
    pub moves: Vec<Move>,
}

impl OldState {
    /// Finds the parts of a state.
    ///
    /// # Errors
    /// A state exists, and moving it is not allowed; or a directory cannot be moved to its place.
    fn find(
        options: &TargetOptions,
        snapshots_dir: Option<&Arc<KeptDir>>,
        accounts: &[Arc<KeptDir>],
        newest: Option<&ArchiveName>,
    ) -> Result<Self> {
        let is_replaced = options.existing_state == ExistingState::MoveAside;
        let is_taken = |name: &String| {
            let has_name = |dir: &Arc<KeptDir>| dir.stat_entry(name).is_ok_and(|found| found.is_some());
            snapshots_dir.into_iter().chain(accounts).any(has_name)
        };
        let seconds = clock::since_1970(clock::now()).as_secs();
        let mut names = (seconds..).map(|number| format!("{REPLACED_PREFIX}{number}"));
        let free_name = names.find(|name| !is_taken(name));
        let name = if is_replaced { free_name } else { None };
        let mut old = Self { name, moves: Vec::new() };
        if let Some(snapshots_dir) = snapshots_dir {
            check_takes_directory(snapshots_dir, BANK_SNAPSHOTS_DIR)?;
        }
        if let Some(snapshots_dir) = snapshots_dir
            && let Some(bank_snapshots) = snapshots_dir.open_dir(BANK_SNAPSHOTS_DIR)?.map(Arc::new)
        {
            let names = bank_snapshots.names()?;
            let mut slots: Vec<u64> = names.iter().filter_map(|name| name.to_str().and_then(parse_number)).collect();
            slots.sort_unstable_by(|one, other| other.cmp(one));
            if let Some(newest) = newest
                && !is_replaced
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
                check_takes_directory(dir, inner)?;
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
        let Some(name) = &self.name else {
            let shown = path.escaped();
            let message = format!(
                "{shown} exists already: the target holds a ledger, or the remains of one; nothing was changed"
            );
            let error = Error::new(ErrorKind::Exists, message)
                .with_hint("restore into an empty directory, or replace that state with --replace-state");
            return Err(error.with_existing_path(&path));
        };
        if let Some(found) = dir.stat_entry(part)? {
            check_same_file_system(&path, &found, parent)?;
        }
        let to = format!("{name}/{inner}{part}");
        self.moves.push(Move::new((dir, part), (parent, &to))?);
        Ok(())
    }

    /// Adds a hint to an error for a lack of space: the old states in `dirs` that could be removed, with
    /// their sizes.
    pub fn hint_to_remove<'a>(&self, error: Error, dirs: impl Iterator<Item = &'a Arc<KeptDir>>) -> Error {
        if error.kind() != ErrorKind::NoSpace {
            return error;
        }
        let mut paths: Vec<PathBuf> = self.moves.iter().map(Move::source_path).collect();
        for dir in dirs {
            let names = dir.names().unwrap_or_default();
            let earlier = names.iter().filter(|name| name.to_string_lossy().starts_with(REPLACED_PREFIX));
            paths.extend(earlier.map(|name| dir.path_of(name)));
        }
        if paths.is_empty() {
            return error;
        }
        let shown = paths.iter().map(|path| format!("{} ({})", path.escaped(), quantity::bytes(disk_bytes(path))));
        let shown: Vec<String> = shown.collect();
        error.with_hint(format!("an old state could be removed, if you do not need it: {}", shown.join(", ")))
    }
}

/// Returns the bytes that a directory takes on the disk. Parts that cannot be read count as nothing.
fn disk_bytes(path: &Path) -> u64 {
    let Ok(found) = fs::symlink_metadata(path) else { return 0 };
    let mut bytes = found.blocks().saturating_mul(512);
    if found.is_dir() {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            bytes = bytes.saturating_add(disk_bytes(&entry.path()));
        }
    }
    bytes
}

/// Refuses an accounts path that is the snapshots path (a validator does too), or that is given
/// twice, or is within another accounts path: a validator deletes unknown files in accounts paths.
fn check_accounts_paths(accounts: &[Arc<KeptDir>], snapshots_dir: &KeptDir, ledger: &KeptDir) -> Result<()> {
    let canonical = |dir: &KeptDir| fs::canonicalize(dir.path()).or_path("read", dir.path());
    let ledger = canonical(ledger)?;
    let snapshots = canonical(snapshots_dir)?;
    let mut seen: Vec<PathBuf> = Vec::new();
    for dir in accounts {
        let path = canonical(dir)?;
        let is_in_another = seen.iter().any(|other| path.starts_with(other) || other.starts_with(&path));
        if is_in_another || path == snapshots || path == ledger || path.starts_with(snapshots.join(BANK_SNAPSHOTS_DIR))
        {
            let message =
                format!("the accounts path {} is or overlaps another directory of this ledger", dir.path().escaped());
            return Err(Error::usage(message).with_hint(
                "a validator deletes unknown files in an accounts path: give each path once, and none inside another",
            ));
        }
        seen.push(path);
    }
    Ok(())
}

/// Fails if no directory can be renamed to `name` in `parent`. Checked before any work is done.
fn check_takes_directory(parent: &KeptDir, name: &str) -> Result<()> {
    let place = parent.path_of(name);
    match parent.stat_entry(name)? {
        Some(found) if found.kind == FileType::Symlink => {
            if let Ok(behind) = rustix::fs::statat(parent, name, AtFlags::empty()) {
                check_same_file_system(&place, &behind.into(), parent)?;
            }
            Err(Error::failed(format!("{} is a symbolic link, where a restore puts a directory", place.escaped()))
                .with_hint(hint::OTHER_DIRECTORIES))
        }
        Some(found) => check_same_file_system(&place, &found, parent),
        None => Ok(()),
    }
}

/// Fails if `place` is not on the file system of `parent`, since no rename would be possible.
pub fn check_same_file_system(place: &Path, found: &FileStat, parent: &KeptDir) -> Result<()> {
    if found.device == parent.stat()?.device {
        return Ok(());
    }
    Err(Error::failed(format!(
        "{} is on another file system than {}: restored directories cannot be moved there",
        place.escaped(),
        parent.path().escaped()
    ))
    .with_hint(hint::OTHER_DIRECTORIES))
}

/// Ratio of unpacked to compressed size of mainnet's archives: 450 GB to 110 GB.
pub const MAINNET_RATIO: u64 = 4;

/// Smallest ratio of unpacked to compressed size that is assumed of an archive.
pub const RATIO_MIN: u64 = 2;
