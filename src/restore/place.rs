//! Temporary directories for the files of a running restore. The files belong to the target's owner, and
//! are removed if the restore does not finish.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use slotpress_base::{IoContext, KeptDir, Owner, Result};
use slotpress_read::WorkDir;

/// Prefix of the directories in which a restore collects files, next to their final place.
/// Validators ignore such directories. Each is locked while its restore runs. The next restore
/// removes the directories that a killed restore left.
pub const PARTIAL_PREFIX: &str = "slotpress-partial-";

/// Name of the bank file in a partial directory. Its final name is its slot.
pub const BANK_FILE_PARTIAL: &str = "bank-file";

/// A temporary directory next to its final place, and the owner of its files. Dropping this value
/// removes the directory and its content, unless [`Self::keep`] was called.
#[derive(Debug)]
pub struct PartialDir {
    pub path: PathBuf,
    work: WorkDir,
    owner: Owner,
}

impl PartialDir {
    /// Creates an empty, locked directory in `parent`. Its name consists of `kind` and random
    /// characters.
    pub fn create(parent: &Arc<KeptDir>, kind: &str, owner: Owner) -> Result<Self> {
        let work = WorkDir::create(parent, &format!("{PARTIAL_PREFIX}{kind}-"))?;
        let path = work.path().to_path_buf();
        owner.apply_to(work.dir(), &path)?;
        Ok(Self { path, work, owner })
    }

    pub fn dir(&self) -> &KeptDir {
        self.work.dir()
    }

    /// Opens a file for writing, and creates it if it is missing. Several workers may write parts of it.
    pub fn create_file(&self, name: &str) -> Result<File> {
        let path = self.path.join(name);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(self.dir(), name, flags, Mode::from_raw_mode(0o644)).or_path("create", &path)?;
        self.owner.apply_to(&file, &path)?;
        Ok(file.into())
    }

    pub fn rename_within(&self, from: &str, to: &str) -> Result<()> {
        self.dir().rename(from, self.dir(), to).or_path("rename", &self.path.join(from))
    }

    pub fn sync(&self) -> Result<()> {
        // Syncs the file system, because a call for each of 430,000 files would take minutes.
        rustix::fs::syncfs(self.dir()).or_path("sync", &self.path)
    }

    pub fn keep(self) {
        self.work.keep();
    }
}
