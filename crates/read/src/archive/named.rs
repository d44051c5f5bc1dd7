//! Which archive is meant: a path, or a source of any kind, and the name that counts.

use std::fs;
use std::path::PathBuf;

use slotpress_base::{Error, IoPolicy, Result};
use slotpress_format::ArchiveName;

use super::source::SharedSource;
use super::{Archive, IndexPolicy};

/// An archive: where it is, and the name that it has or is to have.
#[derive(Clone, Debug)]
pub struct NamedArchive {
    /// Where it is; of a source, what errors name.
    pub path: PathBuf,
    /// What its name says.
    pub name: Option<ArchiveName>,
    /// Where its bytes come from, if not from the file at `path`.
    pub source: Option<SharedSource>,
}

impl NamedArchive {
    /// A file, of the name that its path has.
    pub fn from_path(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        // Whether a name can be an archive's is for the rules to judge.
        let name = path.file_name().and_then(|name| ArchiveName::parse_loosely(name.to_str()?));
        Self { path, name, source: None }
    }

    /// What comes from elsewhere.
    pub fn from_source(source: SharedSource, name: Option<ArchiveName>) -> Self {
        Self { path: source.path().to_path_buf(), name, source: Some(source) }
    }

    /// Opens it; its index is a hint.
    ///
    /// # Errors
    /// It cannot be read, or is nothing that an archive could be.
    pub(crate) fn open(&self, io_policy: &IoPolicy) -> Result<Archive> {
        let mut archive = match &self.source {
            Some(source) => Archive::of_source(source.clone(), None, IndexPolicy::Hint, io_policy)?,
            None => Archive::open(&self.path, IndexPolicy::Hint, io_policy)?,
        };
        archive.name = self.name.clone();
        Ok(archive)
    }

    /// Its length; 0 as long as it is not known.
    ///
    /// # Errors
    /// It cannot be found.
    pub fn length_bytes(&self) -> Result<u64> {
        match &self.source {
            Some(source) => Ok(source.length_bytes().unwrap_or_default()),
            None => Ok(fs::metadata(&self.path).map_err(|error| Error::of_open(&self.path, &error))?.len()),
        }
    }
}
