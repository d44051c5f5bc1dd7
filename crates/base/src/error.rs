//! The one error type of the library: what failed, what to do about it, and which exit code it deserves.
//!
//! Lives here: [`Error`], [`ErrorKind`] and the small helpers that add a path or a hint. Not here: how an error is
//! printed (that is `cli::ui`).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

use crate::ShowPath;
pub use crate::hint::Hint;

/// Result of everything in this library.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What sort of failure it is; decides the exit code of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Something failed (exit code 1).
    Failed,
    /// The arguments make no sense together (exit code 2).
    Usage,
    /// An archive or a ledger is damaged, or is not what its name says (exit code 3).
    Damaged,
    /// The network failed and trying again may work (exit code 4).
    Network,
    /// What was to be written exists already (exit code 5).
    Exists,
    /// An archive that was named is not there, or not any more (exit code 6).
    Missing,
    /// The user interrupted the run (exit code 130).
    Interrupted,
}

impl ErrorKind {
    /// The documented exit code of the program for this kind of error.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Damaged => 3,
            Self::Network => 4,
            Self::Exists => 5,
            Self::Missing => 6,
            Self::Interrupted => 130,
        }
    }
}

/// What failed, on which path and why; and, where there is one, what to do next.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    hint: Option<Hint>,
    offset_bytes: Option<u64>,
    // Boxed, since hardly any error has one.
    existing_path: Option<Box<PathBuf>>,
    // Boxed too: an error is returned everywhere, and should be small.
    source: Option<Arc<Box<dyn std::error::Error + Send + Sync>>>,
}

impl Error {
    /// An error of the given kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None, offset_bytes: None, existing_path: None, source: None }
    }

    /// Something failed (exit code 1).
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Failed, message)
    }

    /// The arguments make no sense (exit code 2).
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, message)
    }

    /// The input is damaged or not what it says it is (exit code 3).
    pub fn damaged(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Damaged, message)
    }

    /// What was to be written exists already (exit code 5).
    pub fn exists(path: &Path) -> Self {
        let error = Self::new(ErrorKind::Exists, format!("{} exists already", path.shown()));
        Self { existing_path: Some(Box::new(path.to_path_buf())), ..error }
    }

    /// Of an archive that cannot be opened: [`ErrorKind::Missing`] where it is not there.
    pub fn of_open(path: &Path, error: &io::Error) -> Self {
        let made = Self::io("open", path, error);
        match error.kind() {
            io::ErrorKind::NotFound => Self { kind: ErrorKind::Missing, ..made }
                .with_hint("validators delete old archives: list the directory again for those that are there now"),
            _ => made,
        }
    }

    /// The user asked to stop (exit code 130).
    pub fn interrupted() -> Self {
        Self::new(ErrorKind::Interrupted, "interrupted")
    }

    /// An operation on a file failed. `doing` completes the sentence "cannot …".
    pub fn io(doing: &str, path: &Path, error: &io::Error) -> Self {
        // What is read may be no file: then it has said already what failed, where, and what to do.
        if let Some(inner) = inner(error) {
            return inner;
        }
        let hint = match error.kind() {
            io::ErrorKind::StorageFull => Some("free some space, or choose a directory on another disk"),
            io::ErrorKind::FileTooLarge => Some(
                "raise the limit on the length of files (ulimit -f, LimitFSIZE= of the service), or choose a file system without one",
            ),
            io::ErrorKind::PermissionDenied => Some("run as the user that owns the files, usually the validator's"),
            io::ErrorKind::ReadOnlyFilesystem => Some("choose a directory on a file system that can be written"),
            _ => None,
        };
        let error = Self::failed(format!("cannot {doing} {}: {}", path.shown(), plain(error))).caused_by(same(error));
        match hint {
            Some(hint) => error.with_hint(hint),
            None => error,
        }
    }

    /// Reading an archive failed, where its path is not known.
    pub fn of_reading(error: &io::Error) -> Self {
        inner(error).unwrap_or_else(|| Self::failed(format!("cannot read the archive: {error}")).caused_by(same(error)))
    }

    /// Keeps what it came from, for [`std::error::Error::source`]; the message says it already.
    #[must_use]
    pub fn caused_by(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(Box::new(source)));
        self
    }

    /// Adds what to do next.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<Hint>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Puts where it happened in front of the message.
    #[must_use]
    pub fn within(mut self, place: impl fmt::Display) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }

    /// The same for damage only: other errors name their path already.
    #[must_use]
    pub fn within_damaged(self, place: impl fmt::Display) -> Self {
        if self.kind == ErrorKind::Damaged { self.within(place) } else { self }
    }

    /// Adds where in the file it is; the message says it too.
    #[must_use]
    pub fn at_offset(mut self, offset_bytes: u64) -> Self {
        self.offset_bytes = Some(offset_bytes);
        self
    }

    /// Where in the file it is, where that is known.
    pub fn offset_bytes(&self) -> Option<u64> {
        self.offset_bytes
    }

    /// Of [`ErrorKind::Exists`]: what exists.
    pub fn existing_path(&self) -> Option<&Path> {
        self.existing_path.as_deref().map(PathBuf::as_path)
    }

    /// The kind, which decides the exit code.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What to do next, where that is known.
    pub fn hint(&self) -> Option<&Hint> {
        self.hint.as_ref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    /// The operating system's error, or the network's, with its code.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source.as_ref() as _)
    }
}

/// The same error once more: an [`io::Error`] cannot be cloned.
fn same(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

/// The error that an operating system's error carries.
fn inner(error: &io::Error) -> Option<Error> {
    error.get_ref()?.downcast_ref::<Error>().cloned()
}

/// An operating system error without the "(os error 2)" that means nothing to an operator.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error ") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}

/// Adds the path to an operating system error: `File::open(p).or_path("open", p)?`.
pub trait IoContext<T> {
    /// `doing` completes the sentence "cannot …".
    fn or_path(self, doing: &str, path: &Path) -> Result<T>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn or_path(self, doing: &str, path: &Path) -> Result<T> {
        self.map_err(|error| Error::io(doing, path, &error))
    }
}

impl<T> IoContext<T> for rustix::io::Result<T> {
    fn or_path(self, doing: &str, path: &Path) -> Result<T> {
        self.map_err(|error| Error::io(doing, path, &error.into()))
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn the_systems_error_is_kept() {
        let error = Error::io("open", Path::new("/x"), &io::Error::from_raw_os_error(13));
        let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
        assert_eq!(source.and_then(io::Error::raw_os_error), Some(13));
        assert_eq!(error.to_string(), "cannot open /x: permission denied");
        assert!(Error::damaged("x").source().is_none());
    }
}
