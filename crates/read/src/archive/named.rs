//! An archive that a caller names by a path or by a source.

#![warn(missing_docs)]

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use slotpress_base::{Error, IoPolicy, Result};
use slotpress_format::ArchiveName;

use super::opened::{Archive, IndexPolicy};
use super::source::Source;

/// An archive in a file or another source, and its name.
#[derive(Clone, Debug)]
pub struct NamedArchive {
    /// Path of the file; for another source, the name that errors show.
    pub path: PathBuf,
    /// Parsed name of the archive, or the name that it will get.
    pub name: Option<ArchiveName>,
    /// Source of the bytes; the file at `path` if `None`.
    pub source: Option<Arc<dyn Source>>,
}

impl NamedArchive {
    /// An archive in a file, with the name that the path ends in.
    pub fn from_path(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        // Parsed loosely, because the rules check the name later.
        let name = path.file_name().and_then(|name| ArchiveName::parse_loosely(name.to_str()?));
        Self { path, name, source: None }
    }

    /// An archive in any source.
    pub fn from_source(source: Arc<dyn Source>, name: Option<ArchiveName>) -> Self {
        Self { path: source.path().to_path_buf(), name, source: Some(source) }
    }

    /// Opens the archive with [`IndexPolicy::Hint`].
    ///
    /// # Errors
    /// It cannot be read, or is not an archive by its first bytes.
    pub(crate) fn open(&self, io_policy: &IoPolicy) -> Result<Archive> {
        let mut archive = match &self.source {
            Some(source) => Archive::of_source(source.clone(), None, IndexPolicy::Hint, io_policy)?,
            None => Archive::open(&self.path, IndexPolicy::Hint, io_policy)?,
        };
        archive.name = self.name.clone();
        Ok(archive)
    }

    /// Length in bytes; 0 while it is unknown.
    ///
    /// # Errors
    /// The file cannot be found.
    pub fn length_bytes(&self) -> Result<u64> {
        match &self.source {
            Some(source) => Ok(source.length_bytes().unwrap_or_default()),
            None => Ok(fs::metadata(&self.path).map_err(|error| Error::of_open(&self.path, &error))?.len()),
        }
    }
}
