//! The target of a restore: its directories, and that nothing is there that could be lost.

use {
    crate::{
        error::{Error, IoContext, Result},
        ledger::{
            directory::{LedgerPaths, bank_snapshot_slots},
            lock::LedgerLock,
        },
        restore::{
            RestoreLayout,
            place::{Owner, PARTIAL_PREFIX, PartialDir},
        },
    },
    std::{
        fs,
        path::{Path, PathBuf},
        sync::{Mutex, PoisonError},
    },
};

/// The directories of a restore, made and checked. Holds the ledger's lock.
#[derive(Debug)]
pub struct Target {
    /// The ledger directory; for the archive layout, the directory of the tree.
    pub ledger: PathBuf,
    /// Where archives and `snapshots/` are.
    pub snapshots_dir: PathBuf,
    /// The accounts paths.
    pub accounts: Vec<PathBuf>,
    /// Where each accounts path's storages are collected.
    pub partial_roots: Vec<PathBuf>,
    /// Where the bank snapshot is collected.
    pub partial_bank: PathBuf,
    /// Who owns what is written.
    pub owner: Owner,
    made: Mutex<MadeDirs>,
    _lock: Option<LedgerLock>,
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
            // A lock file in a directory that is ours is ours. A directory that is not empty stays.
            let _ = fs::remove_file(dir.join("ledger.lock"));
            let _ = fs::remove_dir(dir);
        }
    }
}

impl Target {
    /// Makes the directories that are missing, takes the lock, and refuses a target that already holds a ledger.
    pub fn prepare(paths: &LedgerPaths, layout: RestoreLayout) -> Result<Self> {
        match layout {
            RestoreLayout::Boot => Self::prepare_boot(paths),
            RestoreLayout::Archive => Self::prepare_archive(paths),
        }
    }

    fn prepare_boot(paths: &LedgerPaths) -> Result<Self> {
        let mut made = MadeDirs::default();
        let ledger = paths.ledger.clone();
        made.make(&ledger)?;
        let owner = Owner::of(&ledger)?;
        let lock = LedgerLock::acquire(&ledger)?;
        let snapshots_dir = paths.snapshots_dir().to_path_buf();
        made.make_owned(&snapshots_dir, &owner)?;
        let slots = bank_snapshot_slots(&snapshots_dir)?;
        if let Some(slot) = slots.first() {
            return Err(holds_a_ledger(&snapshots_dir.join("snapshots").join(slot.to_string())));
        }
        let accounts = paths.accounts_dirs();
        for dir in &accounts {
            made.make_owned(dir, &owner)?;
            for inner in ["run", "snapshot"] {
                let inner = dir.join(inner);
                if !is_empty_or_missing(&inner)? {
                    return Err(holds_a_ledger(&inner));
                }
            }
        }
        check_accounts_paths(&accounts, &snapshots_dir, &ledger)?;
        made.make_owned(&snapshots_dir.join("snapshots"), &owner)?;
        Ok(Self {
            partial_roots: accounts.iter().map(|dir| dir.join(format!("{PARTIAL_PREFIX}run"))).collect(),
            partial_bank: snapshots_dir.join(format!("{PARTIAL_PREFIX}bank")),
            ledger,
            snapshots_dir,
            accounts,
            owner,
            made: Mutex::new(made),
            _lock: Some(lock),
        })
    }

    fn prepare_archive(paths: &LedgerPaths) -> Result<Self> {
        if paths.snapshots.is_some() || !paths.accounts.is_empty() {
            return Err(Error::usage("--tree archive writes one tree: --snapshots and --accounts have no place in it"));
        }
        let mut made = MadeDirs::default();
        let dir = paths.ledger.clone();
        made.make(&dir)?;
        for inner in ["version", "snapshots", "accounts", "ledger.lock", "rocksdb"] {
            if dir.join(inner).exists() {
                return Err(holds_a_ledger(&dir.join(inner)));
            }
        }
        Ok(Self {
            partial_roots: vec![dir.join(format!("{PARTIAL_PREFIX}accounts"))],
            partial_bank: dir.join(format!("{PARTIAL_PREFIX}snapshots")),
            snapshots_dir: dir.clone(),
            accounts: Vec::new(),
            owner: Owner::of(&dir)?,
            ledger: dir,
            made: Mutex::new(made),
            _lock: None,
        })
    }

    /// Makes the partial directories for storages, one per accounts path.
    pub fn create_partial_roots(&self) -> Result<Vec<PartialDir>> {
        self.partial_roots.iter().map(|path| PartialDir::create(path, &self.owner)).collect()
    }

    /// The restore is complete: its directories stay.
    pub fn keep(&self) {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).0.clear();
    }
}

fn holds_a_ledger(path: &Path) -> Error {
    Error::failed(format!("{} is there already: the target holds a ledger, or the rest of one", path.display()))
        .hint("restore into an empty directory; what is there is not touched, and yours to delete")
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

fn is_empty_or_missing(dir: &Path) -> Result<bool> {
    match fs::read_dir(dir) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(Error::io("read", dir, &error)),
    }
}
