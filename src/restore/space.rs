//! Whether there is room for a restore: before anything is written, and while it is.

use {
    slotpress_base::text::ShowPath,
    slotpress_base::{
        error::{Error, IoContext, Result},
        quantity,
    },
    std::{
        collections::BTreeMap,
        fs,
        os::{fd::AsFd, unix::fs::MetadataExt},
        path::{Path, PathBuf},
        sync::atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Room on a file system.
#[derive(Clone, Debug)]
pub struct Space {
    /// A directory on it.
    pub dir: PathBuf,
    /// Bytes that would be written.
    pub needed_bytes: u64,
    /// Bytes that are free.
    pub free_bytes: u64,
}

/// Bytes that will be written under directories, added up by file system.
#[derive(Debug, Default)]
pub struct SpaceNeeded(BTreeMap<u64, (PathBuf, u64)>);

impl SpaceNeeded {
    /// Adds bytes that will be written under `dir`.
    pub fn add(&mut self, dir: &Path, bytes: u64) -> Result<()> {
        let device = fs::metadata(dir).or_path("read", dir)?.dev();
        self.0.entry(device).or_insert_with(|| (dir.to_path_buf(), 0)).1 += bytes;
        Ok(())
    }

    /// What is needed and what is free, by file system.
    pub fn rooms(&self) -> Result<Vec<Space>> {
        let room = |(dir, needed_bytes): &(PathBuf, u64)| {
            let stat = rustix::fs::statvfs(dir).or_path("read the free space of", dir)?;
            let free_bytes = stat.f_bavail.saturating_mul(stat.f_frsize);
            Ok(Space { dir: dir.clone(), needed_bytes: *needed_bytes, free_bytes })
        };
        self.0.values().map(room).collect()
    }

    /// Refuses when a file system has less room than needed.
    pub fn check(&self) -> Result<()> {
        self.rooms()?.iter().try_for_each(Space::check)
    }
}

impl Space {
    /// Refuses when there is less room than needed.
    pub fn check(&self) -> Result<()> {
        let Self { dir, needed_bytes, free_bytes } = self;
        if free_bytes < needed_bytes {
            let [needed, free] = [*needed_bytes, *free_bytes].map(quantity::bytes);
            return Err(Error::failed(format!("not enough space under {}: {needed} needed, {free} free", dir.shown()))
                .hint("free some space, or spread the accounts over several disks with `accounts`"));
        }
        Ok(())
    }
}

/// Left free on every file system, or a hundredth of it where that is less: a validator, its log and its database need
/// some, and a file system that is full to the last block harms everybody on it.
const LEFT_FREE_BYTES: u64 = 1024 * 1024 * 1024;

/// Written between two looks at the free space: seldom enough to cost nothing, far below what is left free.
const LOOK_BYTES: u64 = 64 * 1024 * 1024;

/// Looks at the free space while files are written. Without an index, or with one that lies, nobody knows before how
/// much an archive unpacks to. Shared by all writers.
#[derive(Debug, Default)]
pub struct SpaceWatch {
    written_bytes: AtomicU64,
}

impl SpaceWatch {
    /// Some bytes are about to be written to a file; `dir` is what the error names.
    ///
    /// # Errors
    /// Its file system is nearly full.
    pub fn before_writing(&self, bytes: u64, file: &impl AsFd, dir: &Path) -> Result<()> {
        let before = self.written_bytes.fetch_add(bytes, Relaxed);
        if before / LOOK_BYTES == before.saturating_add(bytes) / LOOK_BYTES {
            return Ok(());
        }
        let stat = rustix::fs::fstatvfs(file).or_path("read the free space of", dir)?;
        let free_bytes = stat.f_bavail.saturating_mul(stat.f_frsize);
        if free_bytes >= left_free_bytes(stat.f_blocks.saturating_mul(stat.f_frsize)) {
            return Ok(());
        }
        Err(Error::failed(format!(
            "the archive unpacks to more than there is room for: {} are left on the file system of {} or of an \
             accounts path, and some must stay free",
            quantity::bytes(free_bytes),
            dir.shown()
        ))
        .hint("free some space, or spread the accounts over several disks with `accounts`"))
    }
}

fn left_free_bytes(all_bytes: u64) -> u64 {
    LEFT_FREE_BYTES.min(all_bytes / 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_space_stays_free() {
        assert_eq!(left_free_bytes(1 << 30), (1 << 30) / 100);
        assert_eq!(left_free_bytes(1 << 50), LEFT_FREE_BYTES);
    }
}
