//! Free space on file systems, before and during writing.

#![warn(missing_docs)]

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::fs::{StatVfs, fstatvfs};
use serde::Serialize;

use crate::{Error, ErrorKind, EscapePath, IoContext, KeptDir, Result, quantity, text};

/// Needed and free space on a file system.
#[derive(Clone, Debug, Serialize)]
pub struct Space {
    /// A directory on the file system.
    #[serde(serialize_with = "text::path")]
    pub dir: PathBuf,
    /// Bytes that are going to be written.
    pub needed_bytes: u64,
    /// Free bytes, without those reserved for root.
    pub free_bytes: u64,
}

impl Space {
    /// Reads the free space at a directory.
    ///
    /// # Errors
    /// The directory cannot be opened, or the file system does not report its free space.
    pub fn new(dir: &Path, needed_bytes: u64) -> Result<Self> {
        Self::in_dir(&KeptDir::open(dir)?, needed_bytes)
    }

    /// Reads the free space at an open directory.
    ///
    /// # Errors
    /// The file system does not report its free space.
    #[doc(hidden)]
    pub fn in_dir(dir: &KeptDir, needed_bytes: u64) -> Result<Self> {
        let path = dir.path();
        let stat = fstatvfs(dir).or_path("read the free space of", path)?;
        Ok(Self { dir: path.to_path_buf(), needed_bytes, free_bytes: free_bytes_of(&stat) })
    }

    /// Checks that the free space suffices.
    ///
    /// # Errors
    /// The free space does not suffice: [`ErrorKind::NoSpace`].
    pub fn check(&self) -> Result<()> {
        if self.free_bytes >= self.needed_bytes {
            return Ok(());
        }
        let [needed, free] = [self.needed_bytes, self.free_bytes].map(quantity::bytes);
        let message = format!("not enough space under {}: {needed} needed, {free} free", self.dir.escaped());
        Err(no_space_error(message))
    }
}

/// Space to leave free on every file system, or a hundredth of the file system if that is less: a
/// validator needs space for its logs and database, and a full file system harms all programs that
/// use it.
const RESERVED_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Bytes written between two checks: enough to make checks cheap, and few compared with the space that
/// must stay free on a large disk.
const CHECK_BYTES: u64 = 64 * 1024 * 1024;

/// Checks the free space while files are written. Neither the length of a new archive nor the unpacked size
/// of an archive without an index is known in advance. Shared by all writers.
#[derive(Debug, Default)]
pub struct SpaceWatch {
    written_bytes: AtomicU64,
}

impl SpaceWatch {
    /// Counts bytes before they are written to a file, and checks the space regularly. Errors name
    /// `dir`.
    ///
    /// # Errors
    /// The file system is nearly full: [`ErrorKind::NoSpace`].
    pub fn check_before_writing(&self, bytes: u64, file: &impl AsFd, dir: &Path) -> Result<()> {
        let bytes_before = self.written_bytes.fetch_add(bytes, Relaxed);
        if bytes_before / CHECK_BYTES == bytes_before.saturating_add(bytes) / CHECK_BYTES {
            return Ok(());
        }
        let stat = fstatvfs(file).or_path("read the free space of", dir)?;
        let free_bytes = free_bytes_of(&stat);
        let reserved_bytes = reserved_bytes_of(&stat);
        if free_bytes >= reserved_bytes {
            return Ok(());
        }
        Err(no_space_error(format!(
            "the disk is nearly full: the file system of {}, or of another output path, has {} left, and {} must stay \
             free",
            dir.escaped(),
            quantity::bytes(free_bytes),
            quantity::bytes(reserved_bytes)
        )))
    }
}

/// Makes an error for a lack of space. The message must name the disk.
fn no_space_error(message: String) -> Error {
    Error::new(ErrorKind::NoSpace, message).with_hint("free some space, or choose a directory on another disk")
}

/// Returns the free bytes on a file system, or `None` if it does not report them.
pub fn free_bytes(dir: &impl AsFd) -> Option<u64> {
    fstatvfs(dir).ok().map(|stat| free_bytes_of(&stat))
}

/// True if a file system has space for this many bytes and for the space that must stay free, or does
/// not report its space.
pub fn has_room(dir: &impl AsFd, bytes: u64) -> bool {
    let Ok(stat) = fstatvfs(dir) else { return true };
    free_bytes_of(&stat) >= bytes.saturating_add(reserved_bytes_of(&stat))
}

fn free_bytes_of(stat: &StatVfs) -> u64 {
    stat.f_bavail.saturating_mul(stat.f_frsize)
}

fn reserved_bytes_of(stat: &StatVfs) -> u64 {
    reserved_share(stat.f_blocks.saturating_mul(stat.f_frsize))
}

fn reserved_share(total_bytes: u64) -> u64 {
    RESERVED_BYTES_MAX.min(total_bytes / 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_space_stays_free() {
        assert_eq!(reserved_share(1 << 30), (1 << 30) / 100);
        assert_eq!(reserved_share(1 << 50), RESERVED_BYTES_MAX);
    }
}
