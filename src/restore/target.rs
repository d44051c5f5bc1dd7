//! The target of a restore: its directories, and that nothing is there that could be lost.

use {
    crate::restore::{
        RestoreLayout, journal,
        place::{Owner, PARTIAL_PREFIX, PartialDir},
    },
    slotpress_base::error::{Error, IoContext, Result},
    slotpress_format::ledger::{
        directory::{LedgerPaths, bank_snapshot_slots},
        lock::LedgerLock,
    },
    slotpress_read::store::{dir_lock::DirLocks, work_dir::remove_stale_dirs},
    std::{
        fs,
        io::ErrorKind,
        os::unix::fs::MetadataExt,
        path::{Path, PathBuf},
    },
};

/// The directories of a restore, made and checked. Holds the ledger's lock, and a lock on each directory that is written.
#[derive(Debug)]
pub struct Target {
    /// The ledger directory; for the archive layout, the directory of the tree.
    pub ledger: PathBuf,
    /// Where archives and `snapshots/` are.
    pub snapshots_dir: PathBuf,
    /// The accounts paths.
    pub accounts: Vec<PathBuf>,
    /// The directories in which storages are collected, beside their final place: one for each accounts path.
    pub root_parents: Vec<PathBuf>,
    /// Who owns what is written.
    pub owner: Owner,
    /// What is moved aside when the new state is complete: from where to where.
    pub replaced: Vec<(PathBuf, PathBuf)>,
    // Dropped in this order: the lock file goes before the directory that was made for it.
    lock: Option<LedgerLock>,
    made: MadeDirs,
    // Given back last: what is removed again is ours until then.
    _locks: DirLocks,
}

/// Directories that were made for the restore, which go again when it does not finish.
#[derive(Debug, Default)]
struct MadeDirs(Vec<PathBuf>);

impl MadeDirs {
    /// Makes a directory and those above it that are missing.
    fn make(&mut self, dir: &Path) -> Result<()> {
        let missing: Vec<&Path> =
            dir.ancestors().take_while(|dir| !dir.as_os_str().is_empty() && !dir.is_dir()).collect();
        for dir in missing.into_iter().rev() {
            fs::create_dir(dir).or_path("create", dir)?;
            self.0.push(dir.to_path_buf());
        }
        Ok(())
    }

    fn make_owned(&mut self, dir: &Path, owner: &Owner) -> Result<()> {
        if dir.is_dir() {
            return Ok(());
        }
        self.make(dir)?;
        owner.take_path(dir)
    }
}

impl Drop for MadeDirs {
    fn drop(&mut self) {
        for dir in self.0.iter().rev() {
            // One that is not empty stays.
            let _ = fs::remove_dir(dir);
        }
    }
}

impl Target {
    /// Makes the directories that are missing, takes the lock, and refuses a target that already holds a ledger.
    /// With `replaces`, one that is there is moved aside at the end.
    pub fn prepare(paths: &LedgerPaths, layout: RestoreLayout, replaces: bool) -> Result<Self> {
        match layout {
            RestoreLayout::Boot => Self::prepare_boot(paths, replaces),
            RestoreLayout::Archive => Self::prepare_archive(paths),
        }
    }

    fn prepare_boot(paths: &LedgerPaths, replaces: bool) -> Result<Self> {
        let mut made = MadeDirs::default();
        let ledger = paths.ledger.clone();
        made.make(&ledger)?;
        let owner = Owner::of(&ledger)?;
        let mut lock = LedgerLock::acquire_for_restore(&ledger)?;
        lock.remove_made();
        let snapshots_dir = paths.snapshots_dir().to_path_buf();
        made.make_owned(&snapshots_dir, &owner)?;
        let accounts = paths.accounts_dirs();
        for dir in &accounts {
            made.make_owned(dir, &owner)?;
        }
        check_accounts_paths(&accounts, &snapshots_dir, &ledger)?;
        let mut locks = DirLocks::default();
        for dir in [&ledger, &snapshots_dir].into_iter().chain(&accounts) {
            locks.add(dir)?;
        }
        journal::recover(&snapshots_dir, &mut locks)?;
        let mut old = OldState::new(replaces)?;
        for slot in bank_snapshot_slots(&snapshots_dir)? {
            let dir = snapshots_dir.join("snapshots").join(slot.to_string());
            old.found(&dir, &snapshots_dir, Path::new("snapshots"))?;
        }
        for dir in &accounts {
            for inner in ["run", "snapshot"] {
                let inner = dir.join(inner);
                if !is_empty_or_missing(&inner)? {
                    old.found(&inner, dir, Path::new(""))?;
                }
            }
            check_takes_directory(&dir.join("run"), dir)?;
        }
        let snapshots = snapshots_dir.join("snapshots");
        check_same_file_system(&snapshots, &snapshots_dir)?;
        made.make_owned(&snapshots, &owner)?;
        for dir in [&snapshots_dir].into_iter().chain(&accounts) {
            remove_stale_dirs(dir, PARTIAL_PREFIX)?;
        }
        Ok(Self {
            root_parents: accounts.clone(),
            ledger,
            snapshots_dir,
            accounts,
            owner,
            replaced: old.moves,
            made,
            lock: Some(lock),
            _locks: locks,
        })
    }

    fn prepare_archive(paths: &LedgerPaths) -> Result<Self> {
        if paths.snapshots.is_some() || !paths.accounts.is_empty() {
            return Err(Error::usage(
                "`RestoreLayout::Archive` writes one tree: `snapshots` and `accounts` have no place in it",
            ));
        }
        let mut made = MadeDirs::default();
        let dir = paths.ledger.clone();
        made.make(&dir)?;
        let mut locks = DirLocks::default();
        locks.add(&dir)?;
        journal::recover(&dir, &mut locks)?;
        for inner in ["version", "snapshots", "accounts", "ledger.lock", "rocksdb"] {
            // Even a link that leads nowhere is in the way.
            if dir.join(inner).symlink_metadata().is_ok() {
                return Err(holds_a_ledger(&dir.join(inner)));
            }
        }
        remove_stale_dirs(&dir, PARTIAL_PREFIX)?;
        Ok(Self {
            root_parents: vec![dir.clone()],
            snapshots_dir: dir.clone(),
            accounts: Vec::new(),
            owner: Owner::of(&dir)?,
            replaced: Vec::new(),
            ledger: dir,
            made,
            lock: None,
            _locks: locks,
        })
    }

    /// Makes the partial directories for storages, one per accounts path.
    pub fn create_partial_roots(&self) -> Result<Vec<PartialDir>> {
        self.root_parents.iter().map(|parent| PartialDir::create(parent, "run", &self.owner)).collect()
    }

    /// Makes the partial directory for version, status cache and bank file.
    pub fn create_partial_bank(&self) -> Result<PartialDir> {
        PartialDir::create(&self.snapshots_dir, "bank", &self.owner)
    }

    /// The directories that a former state is moved to.
    pub fn replaced_dirs(&self) -> Vec<PathBuf> {
        let is_one =
            |dir: &&Path| dir.file_name().is_some_and(|name| name.to_string_lossy().starts_with(REPLACED_PREFIX));
        let mut dirs: Vec<PathBuf> =
            self.replaced.iter().filter_map(|(_, to)| to.ancestors().find(is_one)).map(Path::to_path_buf).collect();
        dirs.sort();
        dirs.dedup();
        dirs
    }

    /// The restore is complete: its directories and its lock file stay.
    pub fn keep(&mut self) {
        self.made.0.clear();
        if let Some(lock) = &mut self.lock {
            lock.keep_made();
        }
    }
}

/// What names of directories begin with into which a former state is moved.
pub const REPLACED_PREFIX: &str = "slotpress-replaced-";

/// A state that is there already.
struct OldState {
    /// The name of the directories for it, where it may be moved.
    name: Option<String>,
    moves: Vec<(PathBuf, PathBuf)>,
}

impl OldState {
    fn new(replaces: bool) -> Result<Self> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let name = replaces.then(|| format!("{REPLACED_PREFIX}{}", now.as_secs()));
        Ok(Self { name, moves: Vec::new() })
    }

    /// A part of it, which would go to a directory in `parent`, on the same file system.
    fn found(&mut self, path: &Path, parent: &Path, inner: &Path) -> Result<()> {
        let Some(name) = &self.name else { return Err(holds_a_ledger(path)) };
        check_same_file_system(path, parent)?;
        let to = parent.join(name).join(inner);
        if parent.join(name).symlink_metadata().is_ok() {
            return Err(
                Error::failed(format!("{} exists already", parent.join(name).display())).hint("try again in a second")
            );
        }
        let last = path.file_name().unwrap_or_default();
        self.moves.push((path.to_path_buf(), to.join(last)));
        Ok(())
    }
}

fn holds_a_ledger(path: &Path) -> Error {
    Error::failed(format!("{} exists already: the target holds a ledger, or the remains of one", path.display()))
        .hint("restore into an empty directory, or delete the existing files yourself; they were not changed")
}

/// A validator refuses an accounts path that is the snapshots path, and one path given twice would hold everything
/// twice.
fn check_accounts_paths(accounts: &[PathBuf], snapshots_dir: &Path, ledger: &Path) -> Result<()> {
    let canonical = |path: &Path| fs::canonicalize(path).or_path("read", path);
    let (ledger, snapshots) = (canonical(ledger)?, canonical(snapshots_dir)?);
    let mut seen = Vec::new();
    for dir in accounts {
        let path = canonical(dir)?;
        if path == snapshots || path == ledger || path.starts_with(snapshots.join("snapshots")) {
            return Err(Error::usage(format!("the accounts path {} is the snapshots path", dir.display()))
                .hint("give the accounts a directory of their own"));
        }
        if seen.contains(&path) {
            return Err(Error::usage(format!("the accounts path {} is given twice", dir.display())));
        }
        if seen.iter().any(|other: &PathBuf| path.starts_with(other) || other.starts_with(&path)) {
            return Err(Error::usage(format!("the accounts path {} lies inside another, or around it", dir.display()))
                .hint("a validator deletes what it does not know in an accounts path: give each its own directory"));
        }
        seen.push(path);
    }
    Ok(())
}

/// Refuses a place onto which no directory can be moved from `parent`: before the work, not after it.
fn check_takes_directory(place: &Path, parent: &Path) -> Result<()> {
    match fs::symlink_metadata(place) {
        Ok(found) if found.is_symlink() => {
            Err(Error::failed(format!("{} is a symbolic link, where a restore puts a directory", place.display()))
                .hint("remove the link, or name the directory that the accounts should lie in with `accounts`"))
        }
        Ok(_) => check_same_file_system(place, parent),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::io("read", place, &error)),
    }
}

/// What is collected in `parent` is moved into `place`, or onto it: both must be on one file system.
fn check_same_file_system(place: &Path, parent: &Path) -> Result<()> {
    let found = match fs::metadata(place) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound && fs::symlink_metadata(place).is_err() => return Ok(()),
        Err(error) => return Err(Error::io("read", place, &error)),
    };
    if found.dev() == fs::metadata(parent).or_path("read", parent)?.dev() {
        return Ok(());
    }
    Err(Error::failed(format!(
        "{} is on another file system than {}: what is restored beside it cannot be moved there",
        place.display(),
        parent.display()
    ))
    .hint("remove the link or the mount, and name a directory on that file system with `snapshots` or `accounts`"))
}

fn is_empty_or_missing(dir: &Path) -> Result<bool> {
    match fs::read_dir(dir) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(Error::io("read", dir, &error)),
    }
}
