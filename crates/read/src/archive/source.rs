//! The source of an archive's bytes, which can be read at any offset. A read may wait for bytes that have not
//! arrived.
//!
//! To add a source, such as ranges of a server or an object store, implement [`Source`], as
//! [`arriving`](super::arriving) does.

use std::fmt::Debug;
use std::fs::File;
use std::io::{self, BufRead, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use serde::Serialize;
use slotpress_base::{Error, EscapePath, IoContext, IoHint, Result, range_bytes, saturating_add_to, to_usize};

use crate::StagedFile;

/// Bytes of a stream that are read at a time. Disks are faster with large reads. A pipe returns fewer.
pub const SOURCE_PIECE_BYTES: usize = 1024 * 1024;

/// Requests to a remote source, and the bytes that it sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TransferTotals {
    /// Number of requests to the server.
    pub requests: u64,
    /// Number of bytes that arrived.
    pub transferred_bytes: u64,
}

/// Bytes of an archive, readable at any offset from any thread.
#[warn(missing_docs)]
pub trait Source: Debug + Send + Sync {
    /// Path, or another name that errors show.
    fn path(&self) -> &Path;

    /// Total number of bytes; `None` while it is unknown.
    fn length_bytes(&self) -> Option<u64>;

    /// Reads bytes from `offset_bytes` onwards, and returns their number. Waits for bytes that have not arrived.
    /// Returns 0 only at the end, or if `buf` is empty. After an error, the same range may be read again.
    fn read_at(&self, buf: &mut [u8], offset_bytes: u64) -> io::Result<usize>;

    /// The file that holds all bytes, if there is one. A file can be read without filling the page cache.
    fn file(&self) -> Option<&File> {
        None
    }

    /// True if the source sends its bytes only once and in order. Only the first bytes of such a source can be
    /// read again.
    fn is_stream(&self) -> bool {
        false
    }

    /// Requests so far, and the bytes that they transferred. `None` for a source on this machine.
    fn transfer_totals(&self) -> Option<TransferTotals> {
        None
    }

    /// Fills `buf` with the bytes from `offset_bytes` onwards.
    fn read_exact_at(&self, buf: &mut [u8], offset_bytes: u64) -> io::Result<()> {
        if self.read_up_to(buf, offset_bytes)? == buf.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// Fills `buf` with the bytes from `offset_bytes` onwards, or with fewer at the end, and returns their
    /// number.
    fn read_up_to(&self, buf: &mut [u8], mut offset_bytes: u64) -> io::Result<usize> {
        let mut read = 0usize;
        while let Some(rest) = buf.get_mut(read..).filter(|rest| !rest.is_empty()) {
            match self.read_at(rest, offset_bytes) {
                Ok(0) => break,
                Ok(count) => {
                    read = read.saturating_add(count);
                    saturating_add_to(&mut offset_bytes, count as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }
}

#[derive(Debug)]
pub struct LocalFile {
    path: PathBuf,
    file: File,
    length_bytes: u64,
}

impl LocalFile {
    /// Opens a regular file.
    ///
    /// # Errors
    /// The file cannot be opened, or is a directory, pipe or device.
    pub fn open(path: &Path) -> Result<Self> {
        // Another program may replace the file with a pipe at any moment. An ordinary `open` would then wait for
        // a writer.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = rustix::fs::open(path, flags, Mode::empty());
        let file = File::from(opened.map_err(|error| Error::from_open(path, &error.into()))?);
        if !file.metadata().or_path("read", path)?.is_file() {
            return Err(Error::failed(format!("{} is not a file", path.escaped()))
                .with_hint("pass `-` to read an archive from standard input, if the command can"));
        }
        Self::new(path.to_path_buf(), file)
    }

    pub fn new(path: PathBuf, file: File) -> Result<Self> {
        let length_bytes = file.metadata().or_path("read", &path)?.len();
        Ok(Self { path, file, length_bytes })
    }
}

/// Opens a file that has just been written and does not have its final name yet.
///
/// # Errors
/// Another file took its temporary name, or the disk fails.
pub fn open_written(file: &StagedFile) -> Result<SharedSource> {
    Ok(Arc::new(LocalFile::new(file.path().to_path_buf(), file.reopen()?)?))
}

impl Source for LocalFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn length_bytes(&self) -> Option<u64> {
        Some(self.length_bytes)
    }

    fn read_at(&self, buf: &mut [u8], offset_bytes: u64) -> io::Result<usize> {
        FileExt::read_at(&self.file, buf, offset_bytes)
    }

    fn file(&self) -> Option<&File> {
        Some(&self.file)
    }
}

pub(super) struct SourceStream<'a> {
    source: &'a dyn Source,
    pub position: u64,
}

impl<'a> SourceStream<'a> {
    pub fn new(source: &'a dyn Source) -> Self {
        Self { source, position: 0 }
    }
}

impl Read for SourceStream<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read_at(buf, self.position)?;
        saturating_add_to(&mut self.position, read as u64);
        Ok(read)
    }
}

/// Reads pieces of a source on any thread and in any order. If the source is a file, `hint` decides which of
/// its pages stay in the page cache.
#[derive(Debug)]
pub struct PieceReader<'a> {
    source: &'a dyn Source,
    file: Option<(&'a File, u64)>,
    hint: IoHint,
}

impl<'a> PieceReader<'a> {
    pub fn new(source: &'a dyn Source, hint: IoHint) -> Self {
        Self { source, file: source.file().zip(source.length_bytes()), hint }
    }

    pub(super) fn file_bytes(&self) -> Option<u64> {
        Some(self.file?.1)
    }

    /// True if the source is a file, and the kernel says that the range is not in the page cache.
    pub fn is_cold(&self, range: &Range<u64>) -> bool {
        self.file.is_some_and(|(file, length_bytes)| self.hint.is_cold(file, range, length_bytes))
    }

    pub fn read<'b>(&self, range: &Range<u64>, buffer: &'b mut Vec<u8>) -> Result<&'b [u8]> {
        let path = self.source.path();
        if let Some((file, length_bytes)) = self.file {
            return self.hint.read_range(file, range, length_bytes, buffer).or_path("read", path);
        }
        buffer.resize(to_usize(range_bytes(range)), 0);
        self.source.read_exact_at(buffer, range.start).or_path("read", path)?;
        Ok(buffer)
    }
}

/// Replaces the piece with the next one. An empty piece means the end.
type NextPiece<S> = fn(&mut S, &mut Vec<u8>) -> io::Result<()>;

/// A stream of pieces from `source`.
pub(super) struct PieceStream<S> {
    source: S,
    next: NextPiece<S>,
    piece: Vec<u8>,
    used: usize,
}

impl<S> PieceStream<S> {
    pub fn new(source: S, next: NextPiece<S>) -> Self {
        Self { source, next, piece: Vec::new(), used: 0 }
    }
}

impl<S> BufRead for PieceStream<S> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.used == self.piece.len() {
            (self.next)(&mut self.source, &mut self.piece)?;
            self.used = 0;
        }
        Ok(self.piece.get(self.used..).unwrap_or_default())
    }

    fn consume(&mut self, count: usize) {
        self.used = self.used.saturating_add(count).min(self.piece.len());
    }
}

impl<S> Read for PieceStream<S> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(buf)?;
        self.consume(read);
        Ok(read)
    }
}

pub type SharedSource = Arc<dyn Source>;
