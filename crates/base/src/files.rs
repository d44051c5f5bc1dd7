//! Opening files that must be ordinary ones.

use {
    crate::error::{Error, IoContext, Result},
    crate::text::ShowPath,
    rustix::fs::{Mode, OFlags},
    std::{fs::File, path::Path},
};

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
