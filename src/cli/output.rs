//! Where a command puts an archive: a directory, or a store.

use std::path::Path;

use slotpress::catalog::check_output_dir;
use slotpress::stores::Store;
use slotpress::{Result, Sink};

use super::network::ConnectionArgs;

/// What `--output` names, unless that is standard output.
pub enum Output<'a> {
    /// A directory.
    Dir(&'a Path),
    /// A bucket.
    Store(Store),
}

impl<'a> Output<'a> {
    /// Looks at it, and asks no store yet. An upload takes at most half of the memory that the command may take.
    pub fn open(output: &'a Path, memory_bytes: Option<u64>, args: &ConnectionArgs) -> Result<Self> {
        if let Some(store) = super::stores::store_of(output, memory_bytes, args)? {
            return Ok(Self::Store(store));
        }
        if output.as_os_str() != "-" {
            check_output_dir(output)?;
        }
        Ok(Self::Dir(output))
    }

    /// What an upload takes.
    pub fn memory_bytes(&self) -> u64 {
        match self {
            Self::Dir(_) => 0,
            Self::Store(store) => store.options().memory_bytes,
        }
    }

    /// What it leaves of the memory that the command may take.
    pub fn left_of(&self, memory_bytes: Option<u64>) -> Option<u64> {
        memory_bytes.map(|bytes| bytes.saturating_sub(self.memory_bytes()))
    }

    /// Whether its space cannot be looked at.
    pub fn is_store(&self) -> bool {
        !matches!(self, Self::Dir(_))
    }

    /// For writing.
    pub fn sink(&self, replace: bool) -> Sink<'_> {
        match self {
            Self::Dir(dir) => Sink::dir(*dir).replace(replace),
            Self::Store(store) => Sink::store(store).replace(replace),
        }
    }
}
