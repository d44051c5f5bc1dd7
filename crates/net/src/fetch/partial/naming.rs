//! Renames and removes partial files: gives a complete file its final name, and removes what earlier
//! runs left.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use slotpress_base::{Error, EscapePath, FileStat, IoContext, KeptDir, Result, changed_error};
use slotpress_read::{Publishable, already_exists_error};

use super::{PartialFile, journal_name, partial_name};
use crate::fetch::journal::{DownloadJournal, temporary_name};

/// Returns the number of bytes of an archive that an earlier run left, according to the journal. The file's
/// length does not show this, because its end is written first.
pub fn kept_bytes(dir: &Path, archive_name: &str) -> u64 {
    let name = journal_name(&partial_name(archive_name));
    // If the journal cannot be read, no bytes are kept.
    let journal = KeptDir::open(dir).and_then(|dir| DownloadJournal::read(&dir, &name)).ok().flatten();
    journal.map_or(0, |journal| journal.done_bytes())
}

/// Returns the number of bytes on disk that an earlier run reserved for an archive.
pub fn reserved_bytes(dir: &Path, archive_name: &str) -> u64 {
    let metadata = dir.join(partial_name(archive_name)).symlink_metadata();
    metadata.map_or(0, |metadata| metadata.blocks().saturating_mul(512))
}

/// Removes the journal that a run left if it was killed after it had given the file its final name.
pub fn remove_leftover_journal(dir: &Path, archive_name: &str) -> Result<()> {
    let dir = KeptDir::open(dir)?;
    let name = partial_name(archive_name);
    // While the partial file exists, the journal is still needed.
    if dir.stat_entry(&name)?.is_some() {
        return Ok(());
    }
    remove_journal(&dir, &name)
}

fn remove_journal(dir: &KeptDir, partial: &str) -> Result<()> {
    let journal = journal_name(partial);
    dir.remove_if_exists(temporary_name(&journal))?;
    dir.remove_if_exists(journal)
}

impl Publishable for PartialFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn publish(&self, name: &str) -> Result<PathBuf> {
        let final_path = self.dir.path_of(name);
        if !self.state.lock().is_accepted || name != self.archive_name() {
            return Err(Error::failed(format!("{} was not accepted as {name}", self.path.escaped())));
        }
        self.file.sync_all().or_path("write", &self.path)?;
        let renamed = self.dir.rename_no_replace(&self.name, name);
        renamed.map_err(|error| match error {
            Errno::EXIST => {
                already_exists_error(&final_path).with_hint("move it away, or fetch into another directory")
            }
            _ => Error::io("publish", &final_path, &error.into()),
        })?;
        let file = FileStat::from(rustix::fs::fstat(&self.file).or_path("read", &final_path)?);
        let entry = self.dir.stat_entry(name)?;
        if !entry.is_some_and(|entry| entry.is_same_file(&file)) {
            return Err(changed_error(&final_path));
        }
        self.dir.sync()?;
        remove_journal(&self.dir, &self.name)?;
        Ok(final_path)
    }

    fn remove(&self) -> Result<()> {
        // The journal goes first, because it must never describe a new file of the same name.
        remove_journal(&self.dir, &self.name)?;
        self.dir.remove_if_exists(&self.name)
    }
}
