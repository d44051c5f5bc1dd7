//! An archive in a file on this machine, or in a stream that is read once, in order.

#![warn(missing_docs)]

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use slotpress_base::{IoContext, Result};

/// Name of a stream in errors.
pub const STANDARD_INPUT: &str = "standard input";

/// An archive in a local file, or in a stream without a name.
#[derive(Clone, Debug)]
pub enum LocalArchive {
    /// Path of an archive's file.
    File(PathBuf),
    /// A stream, which has no name with which its content could be compared.
    Stream(Arc<File>),
}

impl LocalArchive {
    /// Creates an archive from a stream with a file descriptor, such as an open file, a pipe or a socket. A
    /// read that is waiting for bytes can be interrupted.
    pub fn from_stream(stream: impl Into<OwnedFd>) -> Self {
        Self::Stream(Arc::new(File::from(stream.into())))
    }

    /// Opens standard input as an archive. Do not also read from [`std::io::stdin`], whose buffer would keep
    /// some of the bytes.
    ///
    /// # Errors
    /// Standard input is closed.
    pub fn from_stdin() -> Result<Self> {
        let input = std::io::stdin().as_fd().try_clone_to_owned();
        Ok(Self::from_stream(input.or_path("open", Path::new(STANDARD_INPUT))?))
    }

    /// Returns the path of a file; `None` for a stream.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Stream(_) => None,
        }
    }
}

impl<P: AsRef<Path>> From<P> for LocalArchive {
    fn from(path: P) -> Self {
        Self::File(path.as_ref().to_path_buf())
    }
}
