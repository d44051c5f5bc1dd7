//! The error type of the library: what failed, what to do about it, and the exit code.
//!
//! [`Error`] and [`ErrorKind`] are here, with helpers that add a path or a hint. `cli::ui`
//! prints errors.

#![warn(missing_docs)]

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

use crate::EscapePath;

/// Result of this library's functions that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Kind of an [`Error`]. It says what a caller can do, and determines the program's exit code. Whatever
/// the kind, no incomplete file has its final name, so the same call can be made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Any other error (exit code 1): a disk fails, a ledger is not complete, memory runs out, a
    /// server refuses permanently. Message and hint are for an operator.
    Failed,
    /// There is not enough space (exit code 1): the file system is full or nearly full, a quota is used up,
    /// or the output would not fit, which is often known before a byte is written. Free some space,
    /// or choose another directory. The next call continues with the bytes that were fetched.
    NoSpace,
    /// Another process uses what is needed (exit code 1): a validator runs on the ledger, another
    /// run holds the lock of a directory or of a download, something listens at the address. Wait
    /// until that process has ended, or choose another directory or address.
    InUse,
    /// The operating system or a store denies access (exit code 1): owner, mode or an attribute of
    /// a file, a read-only file system, credentials. Call as a different user, or change the rights;
    /// until then, the same call fails again.
    PermissionDenied,
    /// The arguments contradict each other, or the files to which they refer (exit code 2). The
    /// same call always fails.
    Usage,
    /// An archive or a ledger is damaged, or is not what its name says (exit code 3). Get it from
    /// another source. As far as they are known, `verify::Failure::from_error` returns the broken rule,
    /// entry and account, and [`Error::offset_bytes`] the place in the file.
    Damaged,
    /// The archive is valid, but Agave does not load it (exit code 1): only Firedancer does, or Agave
    /// does not read its compression. Use another archive, or recompress this one.
    Unsupported,
    /// The network or a server failed (exit code 4). The same call may succeed later. It continues
    /// with the bytes that have arrived.
    Network,
    /// The output already exists, another run is making it, or a file such as a newer archive is in
    /// its way (exit code 5). Use what exists ([`Error::existing_path`]), or ask to replace it.
    Exists,
    /// The archive does not exist, or no longer does (exit code 6): validators delete old ones.
    /// List the archives again.
    Missing,
    /// The caller asked to stop, with [`Progress::is_interrupted`](crate::Progress::is_interrupted)
    /// or a [`CancelToken`](crate::CancelToken) (exit code 130). The next call continues with the bytes
    /// that were fetched.
    Interrupted,
}

impl ErrorKind {
    /// Returns the program's exit code for this kind of error.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Failed | Self::NoSpace | Self::InUse | Self::PermissionDenied | Self::Unsupported => 1,
            Self::Usage => 2,
            Self::Damaged => 3,
            Self::Network => 4,
            Self::Exists => 5,
            Self::Missing => 6,
            Self::Interrupted => 130,
        }
    }

    /// Returns the kind of an error of the operating system.
    pub fn from_io(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace,
            io::ErrorKind::AddrInUse => Self::InUse,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Self::PermissionDenied,
            _ => Self::Failed,
        }
    }
}

/// An error: what failed, on which path, why, and any advice.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    hint: Option<Cow<'static, str>>,
    offset_bytes: Option<u64>,
    // Boxed, since hardly any error has one.
    existing_path: Option<Box<PathBuf>>,
    // Boxed to keep the type small, since it is returned everywhere.
    cause: Option<Arc<Box<dyn std::error::Error + Send + Sync>>>,
}

impl Error {
    /// Makes an error of this kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None, offset_bytes: None, existing_path: None, cause: None }
    }

    /// Makes an error of [`ErrorKind::Failed`].
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Failed, message)
    }

    /// Makes an error of [`ErrorKind::Usage`].
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, message)
    }

    /// Makes an error of [`ErrorKind::Damaged`].
    pub fn damaged(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Damaged, message)
    }

    /// Makes an error of [`ErrorKind::Interrupted`].
    pub fn interrupted() -> Self {
        Self::new(ErrorKind::Interrupted, "interrupted")
    }

    /// Sets the [cause](Self::cause). The message does not change.
    #[must_use]
    pub fn with_cause(mut self, cause: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.cause = Some(Arc::new(Box::new(cause)));
        self
    }

    /// Adds advice for the operator. It may name flags of the program.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Prepends a place to the message.
    #[must_use]
    pub fn with_place(mut self, place: impl fmt::Display) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }

    /// Returns the offset of the damage in the file, if it is known.
    pub fn offset_bytes(&self) -> Option<u64> {
        self.offset_bytes
    }

    /// Returns the path of the existing file, for [`ErrorKind::Exists`]; `None` if another run is
    /// making it.
    pub fn existing_path(&self) -> Option<&Path> {
        self.existing_path.as_deref().map(PathBuf::as_path)
    }

    /// Returns the error that caused this one, such as an error of the operating system with its
    /// code. It is not the `source` of [`std::error::Error`], because the message already
    /// contains its text.
    pub fn cause(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_deref().map(|cause| cause.as_ref() as _)
    }

    /// Returns the kind of the error, which determines the exit code.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns advice for the operator, if there is any. It may name flags of the program.
    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

// Only the crates of the workspace use these functions.
#[doc(hidden)]
impl Error {
    /// Makes an error of [`ErrorKind::Exists`] for an output at `path`.
    pub fn exists(path: &Path) -> Self {
        Self::new(ErrorKind::Exists, format!("{} already exists", path.escaped())).with_existing_path(path)
    }

    /// Sets the [path of the existing output](Self::existing_path).
    pub fn with_existing_path(self, path: &Path) -> Self {
        Self { existing_path: Some(Box::new(path.to_path_buf())), ..self }
    }

    /// Makes an error for an archive that cannot be opened. Its kind is [`ErrorKind::Missing`] if the
    /// archive does not exist.
    pub fn from_open(path: &Path, error: &io::Error) -> Self {
        let open_error = Self::io("open", path, error);
        match error.kind() {
            io::ErrorKind::NotFound => Self { kind: ErrorKind::Missing, ..open_error }
                .with_hint("validators delete old archives: list the directory again to see those that exist now"),
            _ => open_error,
        }
    }

    /// Makes an error for a failed file operation. Its [kind](ErrorKind::from_io) follows from the
    /// operating system's error. `action` completes the sentence "cannot …".
    pub fn io(action: &str, path: &Path, error: &io::Error) -> Self {
        // A reader that is not a file may wrap an error of this library, which has its own message and
        // hint.
        if let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<Self>()) {
            return error.clone();
        }
        let hint = match error.kind() {
            io::ErrorKind::StorageFull => Some("free some space, or choose a directory on another disk"),
            io::ErrorKind::QuotaExceeded => {
                Some("the quota of this user is used up: raise it, remove files, or choose a directory on another disk")
            }
            io::ErrorKind::FileTooLarge => Some(
                "raise the limit on the length of files (ulimit -f, LimitFSIZE= of the service), or choose a file system without one",
            ),
            io::ErrorKind::PermissionDenied => Some("run as the user that owns the files, usually the validator's"),
            io::ErrorKind::ReadOnlyFilesystem => Some("choose a directory on a writable file system"),
            _ => None,
        };
        let message = format!("cannot {action} {}: {}", path.escaped(), text_without_code(error));
        Self {
            hint: hint.map(Cow::from),
            ..Self::new(ErrorKind::from_io(error), message).with_cause(copy_error(error))
        }
    }

    /// Prepends a place if the error is of [`ErrorKind::Damaged`] or [`ErrorKind::Unsupported`].
    /// Other errors already name their path.
    #[must_use]
    pub fn with_place_if_damaged(self, place: impl fmt::Display) -> Self {
        if matches!(self.kind, ErrorKind::Damaged | ErrorKind::Unsupported) { self.with_place(place) } else { self }
    }

    /// Sets the [offset of the damage](Self::offset_bytes). The message does not change.
    #[must_use]
    pub fn at_offset(mut self, offset_bytes: u64) -> Self {
        self.offset_bytes = Some(offset_bytes);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// Copies an [`io::Error`], which cannot be cloned.
fn copy_error(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

/// Returns the text of an I/O error. Text of the operating system becomes lower case, and loses
/// "(os error 2)", which means nothing to an operator.
fn text_without_code(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error ") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}

/// Adds the path to an I/O error: `File::open(p).or_path("open", p)?`.
pub trait IoContext<T> {
    /// Adds the path. `action` completes the sentence "cannot …".
    fn or_path(self, action: &str, path: &Path) -> Result<T>;
}

impl<T, E: Into<io::Error>> IoContext<T> for std::result::Result<T, E> {
    fn or_path(self, action: &str, path: &Path) -> Result<T> {
        self.map_err(|error| Error::io(action, path, &error.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_error_is_kept() {
        let error = Error::io("open", Path::new("/x"), &io::Error::from_raw_os_error(13));
        let cause = error.cause().and_then(|cause| cause.downcast_ref::<io::Error>());
        assert_eq!(cause.and_then(io::Error::raw_os_error), Some(13));
        assert_eq!(error.to_string(), "cannot open /x: permission denied");
        assert!(Error::damaged("x").cause().is_none());
    }

    /// The kind follows from the system's error code, whichever function makes the error.
    #[test]
    fn kinds_follow_from_the_systems_codes() {
        use rustix::io::Errno;
        for (code, kind) in [
            (Errno::NOSPC, ErrorKind::NoSpace),
            (Errno::DQUOT, ErrorKind::NoSpace),
            (Errno::ADDRINUSE, ErrorKind::InUse),
            (Errno::ACCESS, ErrorKind::PermissionDenied),
            (Errno::PERM, ErrorKind::PermissionDenied),
            (Errno::ROFS, ErrorKind::PermissionDenied),
            (Errno::IO, ErrorKind::Failed),
        ] {
            let path = Path::new("/x");
            let error = io::Error::from(code);
            let write_error = Error::io("write", path, &error);
            let kinds = [write_error.kind(), Error::from_open(path, &error).kind()];
            assert_eq!(kinds.map(|found_kind| (found_kind, found_kind.exit_code())), [(kind, 1); 2], "{code}");
            // A reader may return the error inside an I/O error.
            let read_error = Error::io("read", path, &io::Error::other(write_error.clone()));
            assert_eq!((read_error.kind(), read_error.to_string()), (kind, write_error.to_string()));
        }
        assert_eq!(Error::from_open(Path::new("/x"), &Errno::NOENT.into()).kind(), ErrorKind::Missing);
    }
}
