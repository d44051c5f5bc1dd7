//! What a restore will write, by file system.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use slotpress_base::{IoContext, Result, Space};

/// What mainnet's archives unpack to: 450 GB from 110 GB.
pub const MAINNET_RATIO: u64 = 4;

/// What archives of accounts unpack to at least.
pub const RATIO_MIN: u64 = 2;

/// Bytes that will be written under directories, added up by file system.
#[derive(Debug, Default)]
pub struct SpaceNeeded(BTreeMap<u64, OnFileSystem>);

#[derive(Debug, Default)]
struct OnFileSystem {
    dir: PathBuf,
    needed_bytes: u64,
    freed_bytes: u64,
}

impl SpaceNeeded {
    /// Adds bytes that will be written under `dir`.
    pub fn add(&mut self, dir: &Path, bytes: u64) -> Result<()> {
        let on = self.on(dir)?;
        on.needed_bytes = on.needed_bytes.saturating_add(bytes);
        Ok(())
    }

    /// Adds bytes under `dir` that are deleted first.
    pub fn add_freed(&mut self, dir: &Path, bytes: u64) -> Result<()> {
        let on = self.on(dir)?;
        on.freed_bytes = on.freed_bytes.saturating_add(bytes);
        Ok(())
    }

    fn on(&mut self, dir: &Path) -> Result<&mut OnFileSystem> {
        let device = fs::metadata(dir).or_path("read", dir)?.dev();
        Ok(self.0.entry(device).or_insert_with(|| OnFileSystem { dir: dir.to_path_buf(), ..OnFileSystem::default() }))
    }

    /// What is needed and what is free, by file system.
    pub fn rooms(&self) -> Result<Vec<Space>> {
        let room = |on: &OnFileSystem| {
            let mut space = Space::new(&on.dir, on.needed_bytes)?;
            space.free_bytes = space.free_bytes.saturating_add(on.freed_bytes);
            Ok(space)
        };
        self.0.values().map(room).collect()
    }

    /// Refuses when a file system has less room than needed.
    pub fn check(&self) -> Result<()> {
        self.rooms()?.iter().try_for_each(Space::check)
    }
}
