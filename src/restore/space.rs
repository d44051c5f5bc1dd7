//! Whether there is room for a restore, before anything is written.

use {
    crate::error::{Error, IoContext, Result},
    std::{
        collections::BTreeMap,
        fs,
        os::unix::fs::MetadataExt,
        path::{Path, PathBuf},
    },
};

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

    /// Refuses when a file system has less room than needed.
    pub fn check(&self) -> Result<()> {
        for (dir, needed_bytes) in self.0.values() {
            let stat = rustix::fs::statvfs(dir).or_path("read the free space of", dir)?;
            let free_bytes = stat.f_bavail.saturating_mul(stat.f_frsize);
            if free_bytes < *needed_bytes {
                return Err(Error::failed(format!(
                    "not enough space under {}: {needed_bytes} bytes needed, {free_bytes} free",
                    dir.display()
                ))
                .hint("free some space, or spread the accounts over several disks with --accounts"));
            }
        }
        Ok(())
    }
}
