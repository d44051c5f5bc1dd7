//! The lock that tells whether a validator runs on a ledger.

use {
    crate::ledger::directory::{GRACEFUL_STOP, bank_snapshot_slots},
    slotpress_base::error::{Error, IoContext, Result},
    std::{
        fs::{self, File, OpenOptions, TryLockError},
        io,
        os::unix::fs::{MetadataExt, OpenOptionsExt},
        path::{Path, PathBuf},
    },
};

/// Holds `<ledger>/ledger.lock` until it is dropped, in the way of Agave: an exclusive `flock`, taken without waiting.
#[derive(Debug)]
pub struct LedgerLock {
    file: Option<File>,
    /// The lock file, where it is to be removed again.
    made: Option<PathBuf>,
    removes_made: bool,
}

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
        Self::acquire_for_restore(ledger)
    }

    /// The same for a directory that becomes a ledger: the file is made whatever is there.
    pub fn acquire_for_restore(ledger: &Path) -> Result<Self> {
        for _ in 0..TRIES_MAX {
            if let Some(lock) = Self::try_acquire(ledger)? {
                return Ok(lock);
            }
        }
        Err(Error::failed(format!("the lock of the ledger {} is removed again and again", ledger.display())))
    }

    /// The file goes with this lock where this lock made it, unless [`keep_made`](Self::keep_made) says otherwise.
    pub fn remove_made(&mut self) {
        self.removes_made = true;
    }

    /// The file stays.
    pub fn keep_made(&mut self) {
        self.removes_made = false;
    }

    fn try_acquire(ledger: &Path) -> Result<Option<Self>> {
        let path = ledger.join("ledger.lock");
        let mut made = None;
        let opened = match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => {
                give_to_owner_of(ledger, &file).or_path("change the owner of", &path)?;
                made = Some(path.clone());
                Ok(file)
            }
            // Without waiting, for the case of a pipe: who opens one waits for a reader.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match fs::metadata(&path) {
                Ok(metadata) if !metadata.is_file() => {
                    return Err(Error::failed(format!("{} is not a file", path.display()))
                        .hint("a validator makes ledger.lock as an empty file: look who made this, and remove it"));
                }
                _ => OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&path),
            },
            Err(error) => Err(error),
        };
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                return Ok(Some(Self { file: None, made: None, removes_made: false }));
            }
            // A ledger of another user: a lock does not need the right to write.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && path.exists() => {
                File::open(&path).or_path("open the ledger's lock", &path)?
            }
            Err(error) => return Err(Error::io("open the ledger's lock", &path, &error)),
        };
        match file.try_lock() {
            // Whoever made it has removed it since: what is locked is not what the next one finds.
            Ok(()) if file.metadata().or_path("read", &path)?.nlink() == 0 => Ok(None),
            Ok(()) => Ok(Some(Self { file: Some(file), made, removes_made: false })),
            Err(TryLockError::WouldBlock) => Err(Error::failed(format!(
                "the ledger {} is in use: its lock {} is held by a running validator or another slotpress",
                ledger.display(),
                path.display()
            ))
            .hint(GRACEFUL_STOP)),
            Err(TryLockError::Error(error)) => Err(Error::io("lock", &path, &error)),
        }
    }
}

impl Drop for LedgerLock {
    fn drop(&mut self) {
        // While it is still locked.
        if let Some(path) = self.made.take().filter(|_| self.removes_made) {
            let _ = fs::remove_file(path);
        }
        // Closing alone would not do: a program that another thread is starting holds a copy of the file for a moment.
        if let Some(file) = &self.file {
            let _ = file.unlock();
        }
    }
}

/// A lock that root made must not keep out the validator, which often runs as another user and opens it for writing.
fn give_to_owner_of(ledger: &Path, file: &File) -> io::Result<()> {
    let (wanted, own) = (fs::metadata(ledger)?, file.metadata()?);
    if !rustix::process::geteuid().is_root() || (wanted.uid(), wanted.gid()) == (own.uid(), own.gid()) {
        return Ok(());
    }
    std::os::unix::fs::fchown(file, Some(wanted.uid()), Some(wanted.gid()))
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use super::*;

    /// As while another thread starts a program: between fork and exec, that holds a copy of every descriptor.
    #[test]
    fn a_copy_of_the_file_does_not_hold_the_lock() {
        let ledger = tempfile::tempdir().expect("a directory");
        let lock = LedgerLock::acquire_for_restore(ledger.path()).expect("free");
        let copy = lock.file.as_ref().expect("a file").try_clone().expect("a copy");
        assert!(LedgerLock::acquire_for_restore(ledger.path()).is_err());
        drop(lock);
        LedgerLock::acquire_for_restore(ledger.path()).expect("free again");
        drop(copy);
    }
}
