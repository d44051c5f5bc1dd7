//! The lock of a ledger. A running validator holds it.

use std::fs::{File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use slotpress_base::{Error, ErrorKind, Found, IoContext, KeptDir, Owner, Result, ShowPath};

use crate::ledger::held_lock::LockHolder;
use crate::{GRACEFUL_STOP, bank_snapshot_slots, lock_holder};

/// Holds `<ledger>/ledger.lock` until it is dropped. As in Agave, it is an exclusive `flock`, taken
/// without waiting.
#[derive(Debug, Default)]
pub struct LedgerLock {
    file: Option<File>,
    /// Directory and identity of the lock file, if this lock made it.
    made: Option<(Arc<KeptDir>, Found)>,
    removes_made: bool,
}

const LOCK_NAME: &str = "ledger.lock";

/// Advice for a ledger whose validator is running.
const BESIDE_A_VALIDATOR: &str = "Beside a running validator, slotpress can verify, recompress and serve the archives \
     that the validator writes itself";

/// A directory with one of these names in it, or with bank snapshots, counts as a ledger.
const LEDGER_NAMES: [&str; 5] = ["ledger.lock", "rocksdb", "genesis.bin", "genesis.tar.bz2", "accounts"];

fn looks_like_ledger(dir: &Path) -> bool {
    LEDGER_NAMES.iter().any(|name| dir.join(name).symlink_metadata().is_ok())
        || bank_snapshot_slots(dir).is_ok_and(|slots| !slots.is_empty())
}

/// Attempts to take the lock. Another process may remove the file between opening and locking.
const TRIES_MAX: u32 = 8;

impl LedgerLock {
    /// Takes the lock. Makes the lock file if it is missing, as a validator would; but a directory
    /// that contains nothing of a ledger needs no lock. A read-only file system without a lock file
    /// counts as locked, since no validator can run there either.
    ///
    /// # Errors
    /// A validator or another slotpress holds the lock ([`ErrorKind::InUse`]).
    pub fn acquire(ledger: &Path) -> Result<Self> {
        if !looks_like_ledger(ledger) {
            return Ok(Self::default());
        }
        Self::acquire_in(&Arc::new(KeptDir::open(ledger)?))
    }

    /// Like [`acquire`](Self::acquire), for a directory that is to become a ledger: makes the lock
    /// file in any case.
    ///
    /// # Errors
    /// See [`acquire`](Self::acquire).
    pub fn acquire_in(ledger: &Arc<KeptDir>) -> Result<Self> {
        for _ in 0..TRIES_MAX {
            if let Some(lock) = Self::try_acquire(ledger)? {
                return Ok(lock);
            }
        }
        let message = format!(
            "the ledger {} is in use: its lock {LOCK_NAME} was removed by another process {TRIES_MAX} times while it was taken",
            ledger.path().shown()
        );
        Err(Error::new(ErrorKind::InUse, message).with_hint("wait until the other program has ended, then try again"))
    }

    /// Removes the lock file on drop if this lock made it, unless [`keep_made`](Self::keep_made) is
    /// called after this.
    pub fn remove_made(&mut self) {
        self.removes_made = true;
    }

    pub fn keep_made(&mut self) {
        self.removes_made = false;
    }

    fn try_acquire(ledger: &Arc<KeptDir>) -> Result<Option<Self>> {
        let path = ledger.path_of(LOCK_NAME);
        let mut made = None;
        let open = |flags| {
            rustix::fs::openat(ledger, LOCK_NAME, flags | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::from_raw_mode(0o666))
        };
        let opened = match open(OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL) {
            Ok(file) => {
                let file = File::from(file);
                // A lock file owned by root would keep out a validator that runs as another user.
                Owner::of(ledger)?.take(&file).or_path("change the owner of", &path)?;
                made = Some((ledger.clone(), rustix::fs::fstat(&file).or_path("read", &path)?.into()));
                Ok(file)
            }
            // The file may be a pipe, and opening a pipe for writing would wait for a reader.
            Err(Errno::EXIST) => match rustix::fs::statat(ledger, LOCK_NAME, AtFlags::empty()) {
                Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile => {
                    return Err(Error::failed(format!("{} is not a file", path.shown())).with_hint(
                        "a validator makes ledger.lock as an empty file: look who made this, and remove it",
                    ));
                }
                _ => open(OFlags::WRONLY | OFlags::NONBLOCK).map(File::from),
            },
            Err(error) => Err(error),
        };
        let file = match opened {
            Ok(file) => file,
            Err(Errno::ROFS) => return Ok(Some(Self::default())),
            // Another user's file can be locked without write permission.
            Err(Errno::ACCESS | Errno::PERM) if ledger.found(LOCK_NAME)?.is_some() => {
                open(OFlags::RDONLY | OFlags::NONBLOCK).map(File::from).or_path("open the ledger's lock", &path)?
            }
            Err(error) => return Err(Error::io("open the ledger's lock", &path, &error.into())),
        };
        match file.try_lock() {
            // Somebody removed the file after it was opened. Other processes would not see
            // this lock.
            Ok(()) if file.metadata().or_path("read", &path)?.nlink() == 0 => Ok(None),
            Ok(()) => Ok(Some(Self { file: Some(file), made, removes_made: false })),
            Err(TryLockError::WouldBlock) => {
                let holder = lock_holder(&file).flatten().filter(|holder| holder.pid.is_some());
                let hint = match holder.as_ref().is_some_and(LockHolder::is_slotpress) {
                    true => "wait until it is done, or stop it".to_string(),
                    false => format!("{GRACEFUL_STOP}. {BESIDE_A_VALIDATOR}"),
                };
                let holder = holder.map_or("a running validator or another slotpress".into(), |one| one.to_string());
                let (ledger, path) = (ledger.path().shown(), path.shown());
                let message = format!("the ledger {ledger} is in use: its lock {path} is held by {holder}");
                Err(Error::new(ErrorKind::InUse, message).with_hint(hint))
            }
            Err(TryLockError::Error(error)) => Err(Error::io("lock", &path, &error)),
        }
    }
}

impl Drop for LedgerLock {
    fn drop(&mut self) {
        // Removes the file while it is still locked.
        if let Some((ledger, made)) = self.made.take().filter(|_| self.removes_made)
            && ledger.found(LOCK_NAME).is_ok_and(|found| found.is_some_and(|found| found.is_same(&made)))
        {
            let _ = ledger.remove_file(LOCK_NAME);
        }
        // Closing is not enough: a child that another thread has just forked may hold a copy of the
        // descriptor for a moment.
        if let Some(file) = &self.file {
            let _ = file.unlock();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Imitates another thread that starts a program. Between fork and exec, the child has a copy
    /// of every descriptor.
    #[test]
    fn a_copy_of_the_file_does_not_hold_the_lock() {
        let ledger = tempfile::tempdir().expect("a directory");
        let ledger = Arc::new(KeptDir::open(ledger.path()).expect("opened"));
        let lock = LedgerLock::acquire_in(&ledger).expect("free");
        let copy = lock.file.as_ref().expect("a file").try_clone().expect("a copy");
        assert!(LedgerLock::acquire_in(&ledger).is_err());
        drop(lock);
        LedgerLock::acquire_in(&ledger).expect("free again");
        drop(copy);
    }
}
