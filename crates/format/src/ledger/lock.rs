//! The lock of a ledger, which a running validator holds.

use std::fs::{File, TryLockError};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use slotpress_base::{Error, ErrorKind, EscapePath, IoContext, KeptDir, Owner, Result};

use crate::ledger::held_lock::LockHolder;
use crate::{GRACEFUL_STOP, bank_snapshot_slots, lock_holder};

/// Holds `<ledger>/ledger.lock` until it is dropped. As in Agave, it is an exclusive `flock`, taken
/// without waiting, on a permanent file.
#[derive(Debug, Default)]
pub struct LedgerLock(Option<File>);

pub const LOCK_NAME: &str = "ledger.lock";

const WHILE_RUNNING_HINT: &str =
    "While a validator runs, slotpress can verify, recompress and serve the archives that it writes";

/// A directory that contains one of these names, or bank snapshots, is treated as a ledger.
const LEDGER_NAMES: [&str; 5] = [LOCK_NAME, "rocksdb", "genesis.bin", "genesis.tar.bz2", "accounts"];

fn looks_like_ledger(dir: &Path) -> bool {
    LEDGER_NAMES.iter().any(|name| dir.join(name).symlink_metadata().is_ok())
        || bank_snapshot_slots(dir).is_ok_and(|slots| !slots.is_empty())
}

impl LedgerLock {
    /// Takes the lock. Creates the lock file if it is missing, as a validator does. Takes no lock if the
    /// directory is not a ledger, or if the lock file is missing on a read-only file system: a running
    /// validator would have created the file.
    ///
    /// # Errors
    /// A validator or another slotpress holds the lock ([`ErrorKind::InUse`]), or the lock file cannot be
    /// opened or created.
    pub fn acquire(ledger: &Path) -> Result<Self> {
        if !looks_like_ledger(ledger) {
            return Ok(Self::default());
        }
        Self::acquire_in(&KeptDir::open(ledger)?)
    }

    /// Like [`acquire`](Self::acquire), but takes the lock even if the directory is not a ledger yet.
    ///
    /// # Errors
    /// See [`acquire`](Self::acquire).
    pub fn acquire_in(ledger: &KeptDir) -> Result<Self> {
        let path = ledger.path_of(LOCK_NAME);
        let Some(file) = open_lock_file(ledger, &path)? else { return Ok(Self::default()) };
        match file.try_lock() {
            Ok(()) => Ok(Self(Some(file))),
            Err(TryLockError::WouldBlock) => Err(in_use_error(ledger, &path, lock_holder(&file))),
            Err(TryLockError::Error(error)) => Err(Error::io("lock", &path, &error)),
        }
    }
}

/// Opens the lock file, or creates it. Returns `None` if it is missing on a read-only file system.
fn open_lock_file(ledger: &KeptDir, path: &Path) -> Result<Option<File>> {
    const ACTION: &str = "open the ledger's lock";
    let open = |flags| {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
        rustix::fs::openat(ledger, LOCK_NAME, flags, Mode::from_raw_mode(0o666)).map(File::from)
    };
    match open(OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL) {
        Ok(file) => {
            // A lock file owned by root would keep out a validator that runs as another user.
            Owner::from_dir(ledger)?.apply_to(&file, path)?;
            return Ok(Some(file));
        }
        Err(Errno::ROFS) => return Ok(None),
        Err(Errno::EXIST) => {}
        // A file can be locked without write permission.
        Err(Errno::ACCESS | Errno::PERM) if ledger.stat_entry(LOCK_NAME)?.is_some() => {}
        Err(error) => return Err(Error::io(ACTION, path, &error.into())),
    }
    // For a pipe, `open` may succeed, or fail with an error that does not say what is wrong.
    let stat = rustix::fs::statat(ledger, LOCK_NAME, AtFlags::empty());
    if stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile) {
        return Err(Error::failed(format!("{} is not a file", path.escaped()))
            .with_hint("a validator creates an empty ledger.lock: find out what created this one, and remove it"));
    }
    match open(OFlags::WRONLY | OFlags::NONBLOCK) {
        // Even if this mount is read-only, a validator may hold the lock through another mount.
        Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => {
            open(OFlags::RDONLY | OFlags::NONBLOCK).map(Some).or_path(ACTION, path)
        }
        opened => opened.map(Some).or_path(ACTION, path),
    }
}

fn in_use_error(ledger: &KeptDir, path: &Path, holder: Option<LockHolder>) -> Error {
    let holder = holder.filter(|holder| holder.pid.is_some());
    let hint = if holder.as_ref().is_some_and(LockHolder::is_slotpress) {
        "wait until it is done, or stop it".to_string()
    } else {
        format!("{GRACEFUL_STOP}. {WHILE_RUNNING_HINT}")
    };
    let holder = holder.map_or("a running validator or another slotpress".into(), |holder| holder.to_string());
    let message =
        format!("the ledger {} is in use: its lock {} is held by {holder}", ledger.path().escaped(), path.escaped());
    Error::new(ErrorKind::InUse, message).with_hint(hint)
}

impl Drop for LedgerLock {
    fn drop(&mut self) {
        // Closing the file is not enough: a child process that another thread has just forked may hold a
        // copy of the descriptor for a moment.
        if let Some(file) = &self.0 {
            let _ = file.unlock();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The copy imitates a program that another thread starts. Between fork and exec, the child process has
    /// a copy of every descriptor.
    #[test]
    fn a_copy_of_the_file_does_not_hold_the_lock() {
        let ledger = tempfile::tempdir().expect("a directory");
        let ledger = KeptDir::open(ledger.path()).expect("opened");
        let lock = LedgerLock::acquire_in(&ledger).expect("free");
        let copy = lock.0.as_ref().expect("a file").try_clone().expect("a copy");
        assert!(LedgerLock::acquire_in(&ledger).is_err());
        drop(lock);
        LedgerLock::acquire_in(&ledger).expect("free again");
        drop(copy);
    }
}
