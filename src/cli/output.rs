//! Destination of a new archive: a directory or a store.

use std::path::Path;

use slotpress::stores::Store;
use slotpress::{Result, Sink};
use slotpress_read::check_output_dir;

use super::network::ConnectionArgs;

pub enum Output<'a> {
    /// A directory; also used, unchecked, for `-` (standard output).
    Dir(&'a Path),
    Store(Store),
}

impl<'a> Output<'a> {
    /// Checks a directory, or prepares a store without a request to it. An upload may use at most
    /// half of `memory_bytes`.
    pub fn open(output: &'a Path, memory_bytes: Option<u64>, args: &ConnectionArgs) -> Result<Self> {
        if let Some(store) = super::stores::store_of(output, memory_bytes, args)? {
            return Ok(Self::Store(store));
        }
        if output.as_os_str() != "-" {
            check_output_dir(output)?;
        }
        Ok(Self::Dir(output))
    }

    pub fn memory_bytes(&self) -> u64 {
        match self {
            Self::Dir(_) => 0,
            Self::Store(store) => store.options().memory_bytes,
        }
    }

    /// The rest of the command's memory limit after the upload's share.
    pub fn left_of(&self, memory_bytes: Option<u64>) -> Option<u64> {
        memory_bytes.map(|bytes| bytes.saturating_sub(self.memory_bytes()))
    }

    pub fn is_store(&self) -> bool {
        !matches!(self, Self::Dir(_))
    }

    pub fn sink(&self, replace: bool) -> Result<Sink<'_>> {
        let sink = match self {
            Self::Dir(dir) => Sink::dir(dir)?,
            Self::Store(store) => Sink::store(store),
        };
        Ok(sink.replace(replace))
    }
}
