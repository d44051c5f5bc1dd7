//! Prepares the target directories of a restore, and checks that no existing data can be lost.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType};
use slotpress_base::kept_dir::changed;
use slotpress_base::{Error, ErrorKind, Found, Hint, IoContext, KeptDir, Owner, Result, ShowPath, Space, clock};
use slotpress_format::{LedgerLock, parse_number};
use slotpress_read::remove_stale_dirs;

use crate::restore::journal::{Location, REPLACED_PREFIX, recover};
use crate::restore::made_dirs::MadeDirs;
use crate::restore::newer::{RestoredSlots, archives_in_the_way};
use crate::restore::place::{PARTIAL_PREFIX, PartialDir};
use crate::restore::{ExistingState, RestoreTarget};

/// Target directories of a restore, created and checked. Holds the lock of the ledger, and of each
/// directory that is written.
#[derive(Debug)]
pub struct Target {
    pub ledger: Arc<KeptDir>,
    /// Directory of archives and of `snapshots/`.
    pub snapshots_dir: Arc<KeptDir>,
    /// `snapshots/`.
    pub bank_snapshots: Arc<KeptDir>,
    pub accounts: Vec<Arc<KeptDir>>,
    pub owner: Owner,
    existing: Vec<Replaced>,
    /// Name of the directories to which the old state and archives are moved; `None` if that is
    /// not allowed.
    replaced_name: Option<String>,
    // Dropped before `made`: the lock file is removed before the directory that was created for it.
    lock: LedgerLock,
    made: MadeDirs,
}

/// A file or directory that is moved aside.
#[derive(Clone, Debug)]
pub struct Replaced {
    pub from: Location,
    pub found: Found,
    pub to: Location,
}

impl Target {
    /// Creates missing directories and takes the locks. Refuses a target that holds a state, unless
    /// the options allow replacing it. The state is not touched yet.
    pub fn prepare(options: &RestoreTarget) -> Result<Self> {
        let paths = &options.paths;
        let mut made = MadeDirs::default();
        let ledger = made.open_or_make(&paths.ledger)?;
        let owner = Owner::of(&ledger)?;
        let mut lock = LedgerLock::acquire_in(&ledger)?;
        lock.remove_made();
        let snapshots_dir = match paths.snapshots_dir() {
            path if path == ledger.path() => ledger.clone(),
            path => made.open_or_make_owned(path, &owner)?,
        };
        let accounts: Vec<Arc<KeptDir>> =
            paths.accounts_dirs().iter().map(|path| made.open_or_make_owned(path, &owner)).collect::<Result<_>>()?;
        check_accounts_paths(&accounts, &snapshots_dir, &ledger)?;
        for dir in [&ledger, &snapshots_dir].into_iter().chain(&accounts) {
            made.locks.add(dir)?;
        }
        recover(&snapshots_dir, &mut made.locks)?;
        check_takes_directory(&snapshots_dir, BANK_SNAPSHOTS)?;
        let bank_snapshots = made.open_or_make_in(&snapshots_dir, BANK_SNAPSHOTS, &owner)?;
        check_same_file_system(bank_snapshots.path(), &bank_snapshots.itself()?, &snapshots_dir)?;
        let mut old = OldState::new(options.existing_state == ExistingState::MoveAside);
        let names = bank_snapshots.names()?;
        let mut slots: Vec<u64> = names.iter().filter_map(|name| name.to_str().and_then(parse_number)).collect();
        slots.sort_unstable_by(|one, other| other.cmp(one));
        for slot in slots {
            old.found(&bank_snapshots, slot.to_string().as_ref(), &snapshots_dir, &[BANK_SNAPSHOTS])?;
        }
        for dir in &accounts {
            for inner in [RUN, SNAPSHOT] {
                check_takes_directory(dir, inner)?;
                if !is_empty_or_missing(dir, inner)? {
                    old.found(dir, OsStr::new(inner), dir, &[])?;
                }
            }
        }
        for dir in [&snapshots_dir].into_iter().chain(&accounts) {
            remove_stale_dirs(dir, PARTIAL_PREFIX, &mut |_| Ok(()))?;
        }
        Ok(Self {
            ledger,
            snapshots_dir,
            bank_snapshots,
            accounts,
            owner,
            existing: old.moves,
            replaced_name: old.name,
            made,
            lock,
        })
    }

    /// Creates a partial directory for storages in each accounts path.
    pub fn create_partial_roots(&self) -> Result<Vec<PartialDir>> {
        self.accounts.iter().map(|parent| PartialDir::create(parent, "run", &self.owner)).collect()
    }

    /// Creates the partial directory for version, status cache and bank file.
    pub fn create_partial_bank(&self) -> Result<PartialDir> {
        PartialDir::create(&self.snapshots_dir, "bank", &self.owner)
    }

    /// Fails if the paths no longer lead to the written directories, since a validator would look
    /// elsewhere.
    pub fn check_paths(&self) -> Result<()> {
        let dirs = [&self.ledger, &self.snapshots_dir, &self.bank_snapshots];
        dirs.into_iter().chain(&self.accounts).try_for_each(|dir| dir.check_path())
    }

    /// Parts of the existing state that are moved aside.
    pub fn moved(&self) -> &[Replaced] {
        &self.existing
    }

    /// Finds archives that would keep a validator from using the restored state, so that they are
    /// moved aside too.
    ///
    /// # Errors
    /// There are such archives, and moving them is not allowed.
    pub fn archives_in_the_way(&self, slots: RestoredSlots) -> Result<Vec<Replaced>> {
        archives_in_the_way(&self.snapshots_dir, slots, self.replaced_name.as_deref())
    }

    /// Adds to an error for a lack of space what to remove, if there is an existing state.
    pub fn hint_to_remove(&self, error: Error) -> Error {
        match self.existing.as_slice() {
            existing if error.kind() == ErrorKind::NoSpace && !existing.is_empty() => {
                let paths: Vec<String> = existing.iter().map(|one| one.from.path().shown()).collect();
                error
                    .with_hint(format!("if there is no room for both states, remove the old one: {}", paths.join(", ")))
            }
            _ => error,
        }
    }

    /// Returns needed and free bytes per file system, for unpacked content and for archives.
    pub fn space_for(&self, unpacked_bytes: u64, archives_bytes: u64) -> Result<Vec<Space>> {
        let mut spaces: BTreeMap<u64, Space> = BTreeMap::new();
        let mut add = |dir: &KeptDir, needed_bytes: u64| {
            let space = match spaces.entry(dir.itself()?.device) {
                Entry::Occupied(there) => there.into_mut(),
                Entry::Vacant(none) => none.insert(Space::in_dir(dir, 0)?),
            };
            space.needed_bytes = space.needed_bytes.saturating_add(needed_bytes);
            Ok::<_, Error>(())
        };
        for dir in &self.accounts {
            add(dir, unpacked_bytes / self.accounts.len() as u64)?;
        }
        add(&self.snapshots_dir, archives_bytes)?;
        Ok(spaces.into_values().collect())
    }

    /// Directories to which the existing state and newer archives are moved.
    pub fn replaced_dirs(&self, newer: &[Replaced]) -> Vec<PathBuf> {
        let mut dirs: Vec<PathBuf> = self.moved().iter().chain(newer).map(|one| one.to.top()).collect();
        dirs.sort();
        dirs.dedup();
        dirs
    }

    /// Keeps created directories and the lock file, because the restore is complete.
    pub fn keep(&mut self) {
        self.made.keep();
        self.lock.keep_made();
    }
}

/// Directory of bank snapshots in the snapshots directory.
const BANK_SNAPSHOTS: &str = "snapshots";

/// Directory of storages in an accounts path.
pub const RUN: &str = "run";

/// Directory next to [`RUN`] that a starting validator requires.
pub const SNAPSHOT: &str = "snapshot";

/// Collects the parts of an existing state.
struct OldState {
    /// Name of the directories to which the parts are moved; `None` if that is not allowed.
    name: Option<String>,
    moves: Vec<Replaced>,
}

impl OldState {
    fn new(replaces: bool) -> Self {
        let now = clock::since_1970(clock::now());
        let name = replaces.then(|| format!("{REPLACED_PREFIX}{}", now.as_secs()));
        Self { name, moves: Vec::new() }
    }

    /// Adds a part of the state, which will be moved to a directory in `parent`.
    ///
    /// # Errors
    /// Moving is not allowed, or `parent` is on another file system.
    fn found(&mut self, dir: &Arc<KeptDir>, part: &OsStr, parent: &Arc<KeptDir>, inner: &[&str]) -> Result<()> {
        let path = dir.path_of(part);
        let Some(name) = &self.name else {
            let path = path.shown();
            let message =
                format!("{path} exists already: the target holds a ledger, or the remains of one; nothing was changed");
            return Err(Error::new(ErrorKind::Exists, message).with_hint(Hint::ReplaceState));
        };
        let Some(found) = dir.found(part)? else { return Err(changed(&path)) };
        check_same_file_system(&path, &found, parent)?;
        if parent.found(name)?.is_some() {
            let path = parent.path_of(name);
            return Err(Error::failed(format!("{} exists already", path.shown())).with_hint("try again in a second"));
        }
        let below = [name.as_str()].iter().chain(inner).map(OsString::from).collect();
        let from = Location::new(dir, part);
        self.moves.push(Replaced { from, found, to: Location::new_below(parent, below, part) });
        Ok(())
    }
}

/// Refuses an accounts path that is the snapshots path (a validator does too), or that is given
/// twice, or is within another one: a validator deletes unknown files in an accounts path.
fn check_accounts_paths(accounts: &[Arc<KeptDir>], snapshots_dir: &KeptDir, ledger: &KeptDir) -> Result<()> {
    let canonical = |dir: &KeptDir| fs::canonicalize(dir.path()).or_path("read", dir.path());
    let (ledger, snapshots) = (canonical(ledger)?, canonical(snapshots_dir)?);
    let mut seen = Vec::new();
    for dir in accounts {
        let path = canonical(dir)?;
        let shown = dir.path().shown();
        if path == snapshots || path == ledger || path.starts_with(snapshots.join("snapshots")) {
            return Err(Error::usage(format!("the accounts path {shown} is the snapshots path"))
                .with_hint("give the accounts a directory of their own"));
        }
        if seen.contains(&path) {
            return Err(Error::usage(format!("the accounts path {shown} is given twice"))
                .with_hint("give each accounts path once"));
        }
        if seen.iter().any(|other: &PathBuf| path.starts_with(other) || other.starts_with(&path)) {
            return Err(Error::usage(format!("the accounts path {shown} is inside another one, or contains it"))
                .with_hint(
                    "a validator deletes unknown files in an accounts path: give each path a directory of its own",
                ));
        }
        seen.push(path);
    }
    Ok(())
}

/// Fails if no directory can be renamed to `name` in `parent`. Checked before any work is done.
fn check_takes_directory(parent: &KeptDir, name: &str) -> Result<()> {
    let place = parent.path_of(name);
    match parent.found(name)? {
        Some(found) if found.kind == FileType::Symlink => {
            if let Ok(behind) = rustix::fs::statat(parent, name, AtFlags::empty()) {
                check_same_file_system(&place, &behind.into(), parent)?;
            }
            Err(Error::failed(format!("{} is a symbolic link, where a restore puts a directory", place.shown()))
                .with_hint(Hint::OtherDirectories))
        }
        Some(found) => check_same_file_system(&place, &found, parent),
        None => Ok(()),
    }
}

/// Fails if `place` is not on the file system of `parent`, since no rename would be possible.
pub fn check_same_file_system(place: &Path, found: &Found, parent: &KeptDir) -> Result<()> {
    if found.device == parent.itself()?.device {
        return Ok(());
    }
    Err(Error::failed(format!(
        "{} is on another file system than {}: restored directories cannot be moved there",
        place.shown(),
        parent.path().shown()
    ))
    .with_hint(Hint::OtherDirectories))
}

fn is_empty_or_missing(dir: &KeptDir, name: &str) -> Result<bool> {
    dir.open_dir(name)?.map_or(Ok(true), |dir| Ok(dir.names()?.is_empty()))
}

/// Ratio of unpacked to compressed size of mainnet's archives: 450 GB to 110 GB.
pub const MAINNET_RATIO: u64 = 4;

/// Least ratio of unpacked to compressed size that is assumed of an archive.
pub const RATIO_MIN: u64 = 2;
