//! Opens files that must be regular files.

#![warn(missing_docs)]

use std::fs::File;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use crate::{Error, EscapePath, IoContext, Result};

/// Opens a regular file for reading.
///
/// # Errors
/// The file cannot be opened, or is a directory, pipe or device. Opening a pipe does not block.
pub fn open_file(path: &Path) -> Result<File> {
    // Non-blocking, so that opening a pipe does not wait; regular files ignore the flag.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    require_regular(rustix::fs::open(path, flags, Mode::empty()).or_path("open", path)?.into(), path)
}

pub(crate) fn require_regular(file: File, path: &Path) -> Result<File> {
    if file.metadata().or_path("read", path)?.is_file() { Ok(file) } else { Err(not_a_file_error(path)) }
}

/// Makes the error for a directory, a pipe or a device where a file is read.
pub fn not_a_file_error(path: &Path) -> Error {
    Error::failed(format!("{} is not a file", path.escaped()))
        .with_hint("a regular file is needed there, not a directory, pipe or device")
}
