//! Opens and reads files.

#![warn(missing_docs)]

use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use crate::{Error, EscapePath, IoContext, Result};

/// Opens a regular file for reading.
///
/// # Errors
/// The file cannot be opened, or is a directory, pipe or device.
pub fn open_file(path: &Path) -> Result<File> {
    // With `NONBLOCK`, opening a pipe does not wait for a writer. Regular files ignore the flag.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    require_regular(rustix::fs::open(path, flags, Mode::empty()).or_path("open", path)?.into(), path)
}

/// Reads a file to its end, but at most `bytes_max` bytes. `path` is for the error.
pub fn read_at_most(file: impl Read, bytes_max: u64, path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(bytes_max).read_to_end(&mut bytes).or_path("read", path)?;
    Ok(bytes)
}

/// Returns the directory part of a path, or `.` if there is none.
pub fn parent_dir(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

pub(crate) fn require_regular(file: File, path: &Path) -> Result<File> {
    if file.metadata().or_path("read", path)?.is_file() { Ok(file) } else { Err(not_a_file_error(path)) }
}

/// Makes the error for a path that leads to a directory, pipe or device instead of a regular file.
pub fn not_a_file_error(path: &Path) -> Error {
    Error::failed(format!("{} is not a file", path.escaped()))
        .with_hint("a regular file is needed there, not a directory, pipe or device")
}
