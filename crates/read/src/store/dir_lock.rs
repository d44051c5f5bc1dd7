//! Which process writes into a directory: told by `flock` on the directory itself, so that no lock file is left.

use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use slotpress_base::{Error, Found, IoContext, KeptDir, Result, ShowPath};

/// What trying to lock found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locked {
    /// It is ours until the descriptor is closed.
    Ours,
    /// Another process, or another descriptor of this one, holds it.
    Busy,
    /// The file system does not lock directories (some network file systems): nothing is told.
    Unsupported,
}

/// Locks an open directory without waiting.
pub fn try_lock(dir: impl AsFd) -> rustix::io::Result<Locked> {
    match rustix::fs::flock(dir, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Locked::Ours),
        Err(Errno::WOULDBLOCK) => Ok(Locked::Busy),
        // NFS emulates flock by locks that need a file open for writing, which no directory is.
        Err(Errno::BADF | Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(Locked::Unsupported),
        Err(error) => Err(error),
    }
}

/// Directories that are ours to write into, until this is dropped.
#[derive(Debug, Default)]
pub struct DirLocks(Vec<Held>);

#[derive(Debug)]
struct Held {
    found: Found,
    dir: Arc<KeptDir>,
}

impl Drop for Held {
    fn drop(&mut self) {
        // Closing alone would not do: a program that another thread is starting holds a copy of the descriptor for a moment.
        let _ = rustix::fs::flock(self.dir.as_fd(), FlockOperation::Unlock);
    }
}

impl DirLocks {
    /// Locks one more directory. One that is held already, under whatever path, stays so; one that another process
    /// holds is an error that names it.
    ///
    /// # Errors
    /// It is held by another process, or was removed by one; the disk fails.
    pub fn add(&mut self, dir: &Arc<KeptDir>) -> Result<()> {
        let added = self.also(dir)?;
        self.0.extend(added.0);
        Ok(())
    }

    /// Locks one more directory, for as long as the result lives; nothing if it is held already.
    ///
    /// # Errors
    /// As of [`add`](Self::add).
    pub fn also(&self, dir: &Arc<KeptDir>) -> Result<Self> {
        let found = dir.itself()?;
        if self.0.iter().any(|held| held.found.is_same(&found)) {
            return Ok(Self::default());
        }
        let path = dir.path().shown();
        match try_lock(dir.as_fd()).or_path("lock", dir.path())? {
            Locked::Ours | Locked::Unsupported => {}
            Locked::Busy => {
                return Err(Error::failed(format!("the directory {path} is in use: another restore writes into it"))
                    .with_hint("wait until the other restore has ended, or choose another directory"));
            }
        }
        let held = Held { found, dir: dir.clone() };
        // Another restore that made it may have ended between our opening and our locking.
        if rustix::fs::fstat(&**dir).or_path("read", dir.path())?.st_nlink == 0 {
            return Err(Error::failed(format!(
                "the directory {path} was removed by another restore, which just ended"
            ))
            .with_hint("try again"));
        }
        Ok(Self(vec![held]))
    }
}
