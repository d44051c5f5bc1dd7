//! Which process writes into a directory: told by `flock` on the directory itself, so that no lock file is left.

use {
    rustix::{
        fs::{FlockOperation, Mode, OFlags},
        io::Errno,
    },
    slotpress_base::error::{Error, IoContext, Result},
    std::{
        os::fd::{AsFd, OwnedFd},
        path::Path,
    },
};

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

/// Opens a directory; a symbolic link as the last component is refused unless `follows`.
pub fn open_dir(path: &Path, follows: bool) -> rustix::io::Result<OwnedFd> {
    let link = if follows { OFlags::empty() } else { OFlags::NOFOLLOW };
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | link, Mode::empty())
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
    device: u64,
    inode: u64,
    dir: OwnedFd,
}

impl Drop for Held {
    fn drop(&mut self) {
        // Closing alone would not do: a program that another thread is starting holds a copy of the descriptor for a moment.
        let _ = rustix::fs::flock(&self.dir, FlockOperation::Unlock);
    }
}

impl DirLocks {
    /// Locks one more directory. One that is held already, under whatever path, stays so; one that another process
    /// holds is an error that names it.
    pub fn add(&mut self, path: &Path) -> Result<()> {
        let dir = open_dir(path, true).or_path("open", path)?;
        let stat = rustix::fs::fstat(&dir).or_path("read", path)?;
        let (device, inode) = (stat.st_dev, stat.st_ino);
        if self.0.iter().any(|held| (held.device, held.inode) == (device, inode)) {
            return Ok(());
        }
        match try_lock(&dir).or_path("lock", path)? {
            Locked::Ours | Locked::Unsupported => self.0.push(Held { device, inode, dir }),
            Locked::Busy => {
                return Err(Error::failed(format!(
                    "the directory {} is in use: another restore writes into it",
                    path.display()
                ))
                .hint("wait until the other restore has ended, or choose another directory"));
            }
        }
        Ok(())
    }
}
