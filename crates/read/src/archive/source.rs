//! Where the bytes of an archive come from. A reader asks for bytes at a place; a source may have to wait until they
//! have arrived.
//!
//! A new kind of source (ranges of a server, an object store) is a file beside [`arriving`](super::arriving), and
//! nothing that reads archives knows of it.

use std::fmt::Debug;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use slotpress_base::bytes::count;
use slotpress_base::{Error, IoContext, IoHint, Result, ShowPath, StreamReader, range_bytes, to_usize};

use crate::Unpublished;

/// Bytes of an archive, at any place, in any order, on any thread.
pub trait Source: Debug + Send + Sync {
    /// What errors name.
    fn path(&self) -> &Path;

    /// How many bytes there are in all; `None` as long as that is not known.
    fn length_bytes(&self) -> Option<u64>;

    /// Reads some bytes, at least one, from `offset_bytes` on; waits until they are there. 0 at the end only. After an
    /// error the same bytes may be asked for again.
    fn read_at(&self, to: &mut [u8], offset_bytes: u64) -> io::Result<usize>;

    /// The file that holds all of it, where there is one: it is read with an eye on the page cache.
    fn file(&self) -> Option<&File> {
        None
    }

    /// Fills `to` with the bytes from `offset_bytes` on.
    fn read_exact_at(&self, to: &mut [u8], offset_bytes: u64) -> io::Result<()> {
        match self.read_up_to(to, offset_bytes)? == to.len() {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Fills `to` with the bytes from `offset_bytes` on, or what there is of them. Returns how many there are.
    fn read_up_to(&self, to: &mut [u8], mut offset_bytes: u64) -> io::Result<usize> {
        let mut read = 0usize;
        while let Some(left) = to.get_mut(read..).filter(|left| !left.is_empty()) {
            match self.read_at(left, offset_bytes) {
                Ok(0) => break,
                Ok(more) => {
                    read = read.saturating_add(more);
                    count(&mut offset_bytes, more as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }
}

/// A file on a local disk.
#[derive(Debug)]
pub struct LocalFile {
    path: PathBuf,
    file: File,
    length_bytes: u64,
}

impl LocalFile {
    /// Opens an ordinary file.
    ///
    /// # Errors
    /// It cannot be opened, or is something else: a directory, a pipe, a device.
    pub fn open(path: &Path) -> Result<Self> {
        // A pipe would block in open until another process writes to it: what it is comes first.
        let metadata = std::fs::metadata(path).map_err(|error| Error::of_open(path, &error))?;
        if !metadata.is_file() {
            return Err(Error::failed(format!("{} is not a file", path.shown()))
                .with_hint("`-` reads an archive from standard input, where the command can"));
        }
        let file = File::open(path).map_err(|error| Error::of_open(path, &error))?;
        let length_bytes = file.metadata().or_path("read", path)?.len();
        Ok(Self { path: path.to_path_buf(), file, length_bytes })
    }
}

impl LocalFile {
    /// Takes an open file of this path, which has this length.
    pub fn new(path: PathBuf, file: File, length_bytes: u64) -> Self {
        Self { path, file, length_bytes }
    }
}

/// A file that has just been written, which has no name yet: it is read by the directory that it was made in.
///
/// # Errors
/// Another file came to lie under its temporary name; the disk fails.
pub fn written(file: &Unpublished) -> Result<SharedSource> {
    let opened = file.reopen()?;
    let length_bytes = opened.metadata().or_path("read", file.path())?.len();
    Ok(Arc::new(LocalFile::new(file.path().to_path_buf(), opened, length_bytes)))
}

impl Source for LocalFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn length_bytes(&self) -> Option<u64> {
        Some(self.length_bytes)
    }

    fn read_at(&self, to: &mut [u8], offset_bytes: u64) -> io::Result<usize> {
        FileExt::read_at(&self.file, to, offset_bytes)
    }

    fn file(&self) -> Option<&File> {
        Some(&self.file)
    }
}

/// Reads a source from its beginning to its end.
pub fn stream(source: &dyn Source, hint: IoHint) -> Box<dyn Read + Send + '_> {
    match (source.file(), source.length_bytes()) {
        (Some(file), Some(length_bytes)) => Box::new(StreamReader::new(file, length_bytes, hint)),
        _ => Box::new(SourceStream::new(source)),
    }
}

/// Reads a source from its beginning to its end, and tells how far it is.
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
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read_at(to, self.position)?;
        count(&mut self.position, read as u64);
        Ok(read)
    }
}

/// Reads pieces of a source, on any thread, in any order, as a hint says.
#[derive(Debug)]
pub struct Pieces<'a> {
    source: &'a dyn Source,
    file: Option<(&'a File, u64)>,
    hint: IoHint,
}

impl<'a> Pieces<'a> {
    /// Reads `source`.
    pub fn new(source: &'a dyn Source, hint: IoHint) -> Self {
        Self { source, file: source.file().zip(source.length_bytes()), hint }
    }

    /// Reads a range through `buffer`, which is best used again.
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

/// A source that several readers share.
pub type SharedSource = Arc<dyn Source>;
