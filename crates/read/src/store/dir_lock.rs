//! Locks directories with `flock` on the directory itself, so that no lock file remains.

use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use slotpress_base::{Error, ErrorKind, EscapePath, FileStat, IoContext, KeptDir, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockAttempt {
    Acquired,
    /// Another process holds the lock, or this process holds it through another descriptor.
    Busy,
    /// The file system cannot lock directories. This is the case for some network file systems.
    Unsupported,
}

pub fn try_lock(dir: impl AsFd) -> rustix::io::Result<LockAttempt> {
    match rustix::fs::flock(dir, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(LockAttempt::Acquired),
        Err(Errno::WOULDBLOCK) => Ok(LockAttempt::Busy),
        // NFS emulates `flock` with a lock that requires a file to be open for writing, which is impossible
        // for a directory.
        Err(Errno::BADF | Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
            Ok(LockAttempt::Unsupported)
        }
        Err(error) => Err(error),
    }
}

#[derive(Debug, Default)]
pub struct DirLocks(Vec<HeldDir>);

#[derive(Debug)]
struct HeldDir {
    stat: FileStat,
    dir: Arc<KeptDir>,
}

impl Drop for HeldDir {
    fn drop(&mut self) {
        // Closing is not enough: a child process that another thread starts may hold a copy of the
        // descriptor for a moment.
        let _ = rustix::fs::flock(self.dir.as_fd(), FlockOperation::Unlock);
    }
}

impl DirLocks {
    /// Locks one more directory. Does nothing if `self` has already locked it, even under a different path.
    ///
    /// # Errors
    /// Another process holds the lock or removed the directory ([`ErrorKind::InUse`]); the disk
    /// fails.
    pub fn add(&mut self, dir: &Arc<KeptDir>) -> Result<()> {
        let locked = self.lock(dir)?;
        self.0.extend(locked.0);
        Ok(())
    }

    /// Locks one more directory for the lifetime of the result, which is empty if `self` has already locked
    /// the directory.
    ///
    /// # Errors
    /// See [`add`](Self::add).
    pub fn lock(&self, dir: &Arc<KeptDir>) -> Result<Self> {
        let stat = dir.stat()?;
        if self.0.iter().any(|held| held.stat.is_same_file(&stat)) {
            return Ok(Self::default());
        }
        let path = dir.path().escaped();
        if try_lock(dir.as_fd()).or_path("lock", dir.path())? == LockAttempt::Busy {
            let message = format!("the directory {path} is in use: another restore writes into it");
            return Err(Error::new(ErrorKind::InUse, message)
                .with_hint("wait until the other restore has ended, or choose another directory"));
        }
        let held = HeldDir { stat, dir: dir.clone() };
        // Between opening and locking, another restore may have removed the directory.
        if rustix::fs::fstat(&**dir).or_path("read", dir.path())?.st_nlink == 0 {
            let message = format!("the directory {path} was removed by another restore, which just ended");
            return Err(Error::new(ErrorKind::InUse, message).with_hint("try again"));
        }
        Ok(Self(vec![held]))
    }
}
