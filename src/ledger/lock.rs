//! The lock that tells whether a validator runs on a ledger.

use {
    crate::error::{Error, IoContext, Result},
    std::{
        fs::{self, File, OpenOptions, TryLockError},
        io,
        os::unix::fs::MetadataExt,
        path::Path,
    },
};

/// Holds `<ledger>/ledger.lock` until it is dropped, in the way of Agave: an exclusive `flock`, taken without waiting.
#[derive(Debug)]
pub struct LedgerLock {
    _file: Option<File>,
}

impl LedgerLock {
    /// Takes the lock; an error when a validator (or another slotpress) holds it. The file is made when it is
    /// missing, as a validator would. Where it can be neither opened nor made because the file system is read-only,
    /// no validator can run on it either, and that counts as holding the lock.
    pub fn acquire(ledger: &Path) -> Result<Self> {
        let path = ledger.join("ledger.lock");
        let opened = match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => {
                give_to_owner_of(ledger, &file).or_path("change the owner of", &path)?;
                Ok(file)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => OpenOptions::new().write(true).open(&path),
            Err(error) => Err(error),
        };
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => return Ok(Self { _file: None }),
            // A ledger of another user: a lock does not need the right to write.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && path.exists() => {
                File::open(&path).or_path("open the ledger's lock", &path)?
            }
            Err(error) => return Err(Error::io("open the ledger's lock", &path, &error)),
        };
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: Some(file) }),
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

/// A lock that root made must not keep out the validator, which often runs as another user and opens it for writing.
fn give_to_owner_of(ledger: &Path, file: &File) -> io::Result<()> {
    let (wanted, own) = (fs::metadata(ledger)?, file.metadata()?);
    if !rustix::process::geteuid().is_root() || (wanted.uid(), wanted.gid()) == (own.uid(), own.gid()) {
        return Ok(());
    }
    std::os::unix::fs::fchown(file, Some(wanted.uid()), Some(wanted.gid()))
}

/// How to stop a validator so that what it leaves is complete.
pub const GRACEFUL_STOP: &str = "stop the validator with `agave-validator --ledger LEDGER exit` and wait until its \
     process is gone; a killed validator leaves no complete bank snapshot";
