//! Files of a restore in the making: written under temporary directories, owned as the target is, removed when the
//! restore does not finish.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use slotpress_base::{Found, IoContext, KeptDir, Owner, Result};
use slotpress_read::WorkDir;

/// Directories of this prefix are where a restore collects its files, beside their final place. A validator does not
/// look at them. Each is locked while its restore runs; the next restore removes those that a killed one left.
pub const PARTIAL_PREFIX: &str = "slotpress-partial-";

/// The name of the bank file while it is in a partial directory; its final name is its slot.
pub const BANK_FILE_PARTIAL: &str = "bank-file";

/// A temporary directory beside the final place of its content. What is in it goes when it is dropped, wherever it lies,
/// unless it is kept.
#[derive(Debug)]
pub struct PartialDir {
    /// Its path before it was moved, for messages.
    pub path: PathBuf,
    work: WorkDir,
}

impl PartialDir {
    /// Makes an empty one in `parent`, locked, of the name that `kind` tells and something random.
    pub fn create(parent: &Arc<KeptDir>, kind: &str, owner: &Owner) -> Result<Self> {
        let work = WorkDir::create_in(parent, &format!("{PARTIAL_PREFIX}{kind}-"))?;
        let path = work.path().to_path_buf();
        owner.take(work.dir()).or_path("change the owner of", &path)?;
        Ok(Self { path, work })
    }

    /// Itself, wherever it lies by now.
    pub fn dir(&self) -> &KeptDir {
        self.work.dir()
    }

    /// What it is, by which it is known wherever it lies.
    pub fn found(&self) -> &Found {
        self.work.found()
    }

    /// Makes a new file in it for writing; with `is_shared`, several workers may each open it and write a part.
    pub fn create_file(&self, name: &str, owner: &Owner, is_shared: bool) -> Result<File> {
        let exclusive = if is_shared { OFlags::empty() } else { OFlags::EXCL };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | exclusive;
        let file = rustix::fs::openat(self.work.dir(), name, flags, Mode::from_raw_mode(0o644))
            .or_path("create", &self.path.join(name))?;
        owner.take(&file).or_path("change the owner of", &self.path.join(name))?;
        Ok(file.into())
    }

    /// Opens a file in it for reading.
    pub fn open_file(&self, name: &str) -> Result<File> {
        self.dir().open_file(name)
    }

    /// Removes the files in it: the next archive brings its own.
    pub fn clear(&self) -> Result<()> {
        self.work.clear()
    }

    /// Makes a directory in it.
    pub fn create_dir(&self, name: &str, owner: &Owner) -> Result<KeptDir> {
        let made = self.dir().make_dir(name)?;
        owner.take(&made).or_path("change the owner of", made.path())?;
        Ok(made)
    }

    /// Renames a file in it, to a name in it or in a directory in it.
    pub fn rename_within(&self, from: &str, to_dir: &KeptDir, to: &str) -> Result<()> {
        self.dir().rename(from, to_dir, to).or_path("rename", &self.path.join(from))
    }

    /// Writes everything under it to disk.
    pub fn sync(&self) -> Result<()> {
        // One call for all files; a call for each of 430,000 takes minutes.
        rustix::fs::syncfs(self.work.dir()).or_path("sync", &self.path)
    }

    /// Moves it to its final place, where at most an empty directory may be.
    pub fn place(&mut self, to_dir: &KeptDir, to: &str) -> Result<()> {
        self.work.move_to(to_dir, to)
    }

    /// The restore is complete: it stays.
    pub fn keep(self) {
        self.work.keep();
    }
}
