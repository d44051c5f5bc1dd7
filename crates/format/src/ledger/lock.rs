//! The lock that tells whether a validator runs on a ledger.

use std::fs::{File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use slotpress_base::{Error, Found, IoContext, KeptDir, Owner, Result, ShowPath};

use crate::ledger::held_lock::LockHolder;
use crate::{GRACEFUL_STOP, bank_snapshot_slots, lock_holder};

/// Holds `<ledger>/ledger.lock` until it is dropped, in the way of Agave: an exclusive `flock`, taken without waiting.
#[derive(Debug)]
pub struct LedgerLock {
    file: Option<File>,
    /// The directory of the lock file, and what it is, where it is to be removed again.
    made: Option<(Arc<KeptDir>, Found)>,
    removes_made: bool,
}

/// Its name in a ledger.
const LOCK_NAME: &str = "ledger.lock";

/// What can be done while the lock is held.
const BESIDE_A_VALIDATOR: &str = "Beside a running validator, slotpress can verify, recompress and serve the archives \
     that the validator writes itself";

/// What a ledger directory holds: one of these, or bank snapshots.
const LEDGER_NAMES: [&str; 5] = ["ledger.lock", "rocksdb", "genesis.bin", "genesis.tar.bz2", "accounts"];

/// Whether there is anything of a ledger in a directory.
fn looks_like_ledger(dir: &Path) -> bool {
    LEDGER_NAMES.iter().any(|name| dir.join(name).symlink_metadata().is_ok())
        || bank_snapshot_slots(dir).is_ok_and(|slots| !slots.is_empty())
}

/// A lock file may be removed between being opened and being locked: then it is made again.
const TRIES_MAX: u32 = 8;

impl LedgerLock {
    /// Takes the lock; an error when a validator (or another slotpress) holds it. The file is made when it is
    /// missing, as a validator would; but not in a directory that holds nothing of a ledger, which needs no lock. Where it
    /// can be neither opened nor made because the file system is read-only, no validator can run on it either, and that
    /// counts as holding the lock.
    pub fn acquire(ledger: &Path) -> Result<Self> {
        if !looks_like_ledger(ledger) {
            return Ok(Self { file: None, made: None, removes_made: false });
        }
        Self::acquire_in(&Arc::new(KeptDir::open(ledger)?))
    }

    /// The same for a directory that becomes a ledger: the file is made whatever is there.
    ///
    /// # Errors
    /// As of [`acquire`](Self::acquire).
    pub fn acquire_in(ledger: &Arc<KeptDir>) -> Result<Self> {
        for _ in 0..TRIES_MAX {
            if let Some(lock) = Self::try_acquire(ledger)? {
                return Ok(lock);
            }
        }
        Err(Error::failed(format!("the lock of the ledger {} is removed again and again", ledger.path().shown())))
    }

    /// The file goes with this lock where this lock made it, unless [`keep_made`](Self::keep_made) says otherwise.
    pub fn remove_made(&mut self) {
        self.removes_made = true;
    }

    /// The file stays.
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
                // One that root made must not keep out the validator, which often runs as another user.
                Owner::of(ledger)?.take(&file).or_path("change the owner of", &path)?;
                made = Some((ledger.clone(), rustix::fs::fstat(&file).or_path("read", &path)?.into()));
                Ok(file)
            }
            // Without waiting, for the case of a pipe: who opens one waits for a reader.
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
            Err(Errno::ROFS) => return Ok(Some(Self { file: None, made: None, removes_made: false })),
            // A ledger of another user: a lock does not need the right to write.
            Err(Errno::ACCESS | Errno::PERM) if ledger.found(LOCK_NAME)?.is_some() => {
                open(OFlags::RDONLY | OFlags::NONBLOCK).map(File::from).or_path("open the ledger's lock", &path)?
            }
            Err(error) => return Err(Error::io("open the ledger's lock", &path, &error.into())),
        };
        match file.try_lock() {
            // It was removed since it was made: what is locked is not what the next one finds.
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
                Err(Error::failed(format!("the ledger {ledger} is in use: its lock {path} is held by {holder}"))
                    .with_hint(hint))
            }
            Err(TryLockError::Error(error)) => Err(Error::io("lock", &path, &error)),
        }
    }
}

impl Drop for LedgerLock {
    fn drop(&mut self) {
        // While it is still locked.
        if let Some((ledger, made)) = self.made.take().filter(|_| self.removes_made)
            && ledger.found(LOCK_NAME).is_ok_and(|found| found.is_some_and(|found| found.is_same(&made)))
        {
            let _ = ledger.remove_file(LOCK_NAME);
        }
        // Closing alone would not do: a program that another thread is starting holds a copy of the file for a moment.
        if let Some(file) = &self.file {
            let _ = file.unlock();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As while another thread starts a program: between fork and exec, that holds a copy of every descriptor.
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
