//! Opening files that must be ordinary ones.

use std::fs::File;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use crate::{Error, IoContext, Result, ShowPath};

/// Opens an ordinary file for reading.
///
/// # Errors
/// It cannot be opened, or is something else: a directory, a pipe, a device. A pipe does not keep the caller waiting for
/// who might write to it.
pub fn open_file(path: &Path) -> Result<File> {
    // Without waiting: reading an ordinary file does not care.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).or_path("open", path)?);
    match file.metadata().or_path("read", path)?.is_file() {
        true => Ok(file),
        false => Err(Error::failed(format!("{} is not a file", path.shown()))),
    }
}
