//! Finds and removes unfinished downloads, which stay until a later run resumes or removes them.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use slotpress_base::{EscapePath, IoContext, KeptDir, Result, clock};
use slotpress_format::{ArchiveName, lock_holder};

use super::REMOTE_DIR;
use super::scan::{modified_ns, regular_files};
use crate::{LockAttempt, try_lock, unix_ns};

/// Prefix of partial files and their journals. It does not begin with `tmp-snapshot-archive-`, because Agave
/// deletes files with that prefix when it starts.
pub const FETCH_PREFIX: &str = "slotpress-fetch-";

/// Suffix of the journal of an unfinished download.
pub const JOURNAL_SUFFIX: &str = ".journal";

/// A partial file of an unfinished download.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Partial {
    /// Name of the archive that was being fetched.
    pub name: ArchiveName,
    /// Directory of the partial file.
    pub dir: PathBuf,
    /// Space that the file occupies on the disk, in bytes.
    pub size_bytes: u64,
    /// Time of the last write, in nanoseconds since 1970.
    pub modified_ns: u64,
    /// True if a running process holds the file's lock.
    pub is_in_use: bool,
}

impl Partial {
    /// Returns the path of the partial file.
    pub fn path(&self) -> PathBuf {
        self.dir.join(self.file_name())
    }

    fn file_name(&self) -> String {
        format!("{FETCH_PREFIX}{}", self.name)
    }

    /// Returns the time since the last write, or 0 if that is in the future.
    pub fn age(&self, now: SystemTime) -> Duration {
        Duration::from_nanos(unix_ns(now).saturating_sub(self.modified_ns))
    }

    /// Removes the file and its journal; returns `false` if a running process holds the file's
    /// lock.
    ///
    /// # Errors
    /// The file cannot be opened, or one of the two cannot be removed.
    pub fn remove(&self) -> Result<bool> {
        let dir = KeptDir::open(&self.dir)?;
        let file_name = self.file_name();
        let file = dir.open_file(&file_name)?;
        if try_lock(&file).or_path("lock", &self.path())? == LockAttempt::Busy {
            return Ok(false);
        }
        // The journal is removed first, so that it never describes a new file of the same name.
        let journal = format!("{file_name}{JOURNAL_SUFFIX}");
        let names = dir.names()?.into_iter();
        let journals = names.filter(|name| name.to_string_lossy().starts_with(&journal));
        for name in journals.chain([file_name.into()]) {
            dir.remove_file(&name).or_path("remove", &dir.path_of(&name))?;
        }
        Ok(true)
    }
}

/// Finds unfinished downloads in a directory and its `remote`, oldest first.
///
/// # Errors
/// The directory cannot be read.
pub fn find_partials(dir: &Path) -> Result<Vec<Partial>> {
    let parse = |name: &str| name.strip_prefix(FETCH_PREFIX).and_then(ArchiveName::parse);
    let mut found = Vec::new();
    for (dir, is_remote) in [(dir.to_path_buf(), false), (dir.join(REMOTE_DIR), true)] {
        let opened = match KeptDir::open(&dir) {
            Err(_) if is_remote => continue,
            opened => opened?,
        };
        for (name, stat) in regular_files(&dir, &opened, &parse)? {
            // `st_blocks` counts blocks of 512 bytes on any file system.
            let size_bytes = u64::try_from(stat.st_blocks).unwrap_or_default().saturating_mul(512);
            let modified_ns = modified_ns(&stat);
            let mut partial = Partial { name, dir: dir.clone(), size_bytes, modified_ns, is_in_use: false };
            let file = opened.open_file(partial.file_name());
            partial.is_in_use = file.is_ok_and(|file| lock_holder(&file).is_some());
            found.push(partial);
        }
    }
    found.sort_by_key(|partial| (partial.modified_ns, partial.file_name()));
    Ok(found)
}

impl Serialize for Partial {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Partial", 5)?;
        fields.serialize_field("name", &self.name)?;
        fields.serialize_field("file", &self.path().to_string_lossy())?;
        fields.serialize_field("size_bytes", &self.size_bytes)?;
        fields.serialize_field("age_seconds", &self.age(clock::now()).as_secs())?;
        fields.serialize_field("in_use", &self.is_in_use)?;
        fields.end()
    }
}

impl std::fmt::Display for Partial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.path().escaped())
    }
}
