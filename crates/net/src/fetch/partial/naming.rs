//! The names of a partial file, of its journal and of the archive that it becomes: taking up, publishing, removing.

use {
    super::{FETCH_PREFIX, JOURNAL_SUFFIX, PartialFile},
    crate::fetch::journal::{Journal, new_path},
    slotpress_base::error::{Error, IoContext, Result},
    slotpress_base::text::ShowPath,
    slotpress_read::store::publish::{Publishable, already_exists, rename_no_replace, sync_dir},
    std::{
        fs, io,
        path::{Path, PathBuf},
    },
};

impl PartialFile {
    /// Makes a file that has its final name, and is not whole, the partial file of its archive.
    ///
    /// # Errors
    /// An earlier run has left more of it; somebody is fetching it.
    pub(in crate::fetch) fn take_up(path: &Path, length_bytes: u64) -> Result<()> {
        let dir = path.parent().unwrap_or(Path::new("."));
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let partial = Self::open(dir, name)?;
        if partial.done_bytes() > 0 && partial.done_bytes() >= length_bytes {
            return Err(Error::failed(format!(
                "{} is not whole, and {} holds more of it",
                path.shown(),
                partial.path.shown()
            ))
            .hint(format!("remove {}, then run the same command again", path.shown())));
        }
        // The journal first: a partial file that it does not tell of is begun anew.
        let mut journal = Journal::default();
        journal.ranges.extend(Some(0..length_bytes).filter(|range| !range.is_empty()));
        journal.write(&journal_path(&partial.path))?;
        fs::rename(path, &partial.path).or_path("rename", path)?;
        sync_dir(dir)
    }

    /// Removes file and journal.
    pub fn remove(&self) -> Result<()> {
        // The journal first: it must not tell of a file that is made anew.
        remove_journal(&self.path)?;
        remove_if_there(&self.path)
    }
}

/// Removes what a killed run has left of a download that has its final name: it had not come to removing its journal.
pub fn remove_left_journal(dir: &Path, archive_name: &str) -> Result<()> {
    let path = dir.join(format!("{FETCH_PREFIX}{archive_name}"));
    // There is no journal before there is a partial file, and none after it.
    if path.exists() { Ok(()) } else { remove_journal(&path) }
}

fn remove_journal(partial: &Path) -> Result<()> {
    let journal = journal_path(partial);
    remove_if_there(&new_path(&journal))?;
    remove_if_there(&journal)
}

/// Where the journal of a partial file is.
pub(super) fn journal_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(JOURNAL_SUFFIX);
    PathBuf::from(name)
}

fn remove_if_there(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", path, &error)),
        _ => Ok(()),
    }
}

impl Publishable for PartialFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn publish(&self, name: &str) -> Result<PathBuf> {
        let dir = self.path.parent().unwrap_or(Path::new("."));
        let to = dir.join(name);
        if self.lock().accepted.is_none() || name != self.archive_name() {
            return Err(Error::failed(format!("{} was not checked as {name}", self.path.shown())));
        }
        self.file.sync_all().or_path("write", &self.path)?;
        rename_no_replace(&self.path, &to).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => already_exists(&to).hint("move it away, or fetch into another directory"),
            _ => Error::io("publish", &to, &error),
        })?;
        sync_dir(dir)?;
        remove_journal(&self.path)?;
        Ok(to)
    }
}
