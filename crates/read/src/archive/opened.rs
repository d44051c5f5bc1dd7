//! An open archive, the input that it is opened from, and the settings for reading it.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use derive_setters::Setters;
use slotpress_base::{
    Error, ErrorKind, EscapePath, IoContext, IoPolicy, ItemReader, Progress, Result, range_bytes, read_ahead,
    split_at_most,
};
use slotpress_format::{ArchiveCompression, ArchiveName, ArchiveRoot, BLOCK_LEN};

use super::compression::detect_compression;
use super::decode::decode_stream;
use super::source::{PieceReader, PieceStream, SOURCE_PIECE_BYTES, SourceStream};
use super::walk::FrameStatistics;
use crate::{Documents, LocalFile, SharedSource, Tail};

#[derive(Debug)]
pub struct OpenArchive {
    pub source: SharedSource,
    pub name: Option<ArchiveName>,
    pub compression: ArchiveCompression,
    /// Seek table, index and frame hashes; `None` if there is no valid index, or if the index is ignored.
    pub tail: Option<Tail>,
    pub index_error: Option<Error>,
    pub io_policy: IoPolicy,
}

/// Settings for reading an archive. By default, all of it is read, in its order, without comparing hashes.
#[derive(Setters)]
pub struct ArchivePass<'a> {
    #[setters(skip)]
    pub threads: usize,
    /// Number of workers that decode when the archive is read in order. Default: one per thread.
    pub decoders: usize,
    /// Skips frames without wanted content, if there is an index.
    pub wanted_only: bool,
    /// Reads the newest (last) storages first, if there is an index.
    pub newest_first: bool,
    /// Compares the frames that are read with their hashes, if the archive has an index with frame hashes.
    pub check_hashes: bool,
    #[setters(skip)]
    pub progress: &'a dyn Progress,
}

impl<'a> ArchivePass<'a> {
    pub fn new(threads: usize, progress: &'a dyn Progress) -> Self {
        let threads = threads.max(1);
        Self { threads, decoders: threads, wanted_only: false, newest_first: false, check_hashes: false, progress }
    }
}

#[derive(Debug, Default)]
pub struct ArchiveContents {
    pub documents: Documents,
    /// Statistics of the frames. With an index, only `frames` and `skippable_bytes` are set.
    pub frames: FrameStatistics,
    /// Length of the tar stream in bytes, as far as it was read.
    pub tar_bytes: u64,
    /// True if all entries are known: the tar stream was read to its end, or the index lists them.
    pub has_all_entries: bool,
    /// True if Firedancer wrote the archive, or the archive from which it was recompressed. Tar
    /// headers, the index and a bank file without stakes show this.
    pub is_from_firedancer: bool,
}

impl OpenArchive {
    pub fn open(path: &Path, io_policy: &IoPolicy) -> Result<Self> {
        let source = LocalFile::open(path)?;
        Self::from_source(Arc::new(source), ArchiveName::from_path(path), io_policy)
    }

    /// Opens an archive from any source. The index of a source that is a stream is not read.
    pub fn from_source(source: SharedSource, name: Option<ArchiveName>, io_policy: &IoPolicy) -> Result<Self> {
        let path = source.path();
        let mut start = [0; BLOCK_LEN];
        let read = source.read_up_to(&mut start, 0).or_path("read", path)?;
        let compression =
            detect_compression(split_at_most(&start, read).0).map_err(|error| error.with_place(path.escaped()))?;
        let mut archive =
            Self { source, name, compression, tail: None, index_error: None, io_policy: io_policy.clone() };
        if compression == ArchiveCompression::Zstd && !archive.source.is_stream() {
            match Tail::read(archive.source.as_ref()) {
                Ok(tail) => archive.tail = tail,
                Err(error) if error.kind() == ErrorKind::Damaged => archive.index_error = Some(error),
                Err(error) => return Err(error),
            }
        }
        Ok(archive)
    }

    #[must_use]
    pub fn without_index(self) -> Self {
        Self { tail: None, index_error: None, ..self }
    }

    pub fn path(&self) -> &Path {
        self.source.path()
    }

    pub fn base_slot(&self) -> Option<u64> {
        self.name.as_ref().and_then(|name| name.base_slot)
    }

    /// Returns the root of the archive. `None` if there are no frame hashes, or if the index is ignored.
    pub fn root(&self) -> Option<ArchiveRoot> {
        Some(self.tail.as_ref()?.hashes.as_ref()?.root)
    }

    pub fn warn_of_damaged_index(&self, progress: &dyn Progress) {
        if let Some(error) = &self.index_error {
            progress.warn(&format!("{}: {error}; reading it without its index", self.path().escaped()));
        }
    }

    /// Calls `work` with a stream of the compressed bytes, whose rate the I/O policy limits. Parts of a file
    /// that are not in the page cache are read ahead, up to `ahead_bytes_max`, without filling the cache.
    pub fn with_stream<R>(
        &self,
        ahead_bytes_max: u64,
        progress: &dyn Progress,
        work: impl FnOnce(Box<dyn BufRead + Send + '_>) -> Result<R>,
    ) -> Result<R> {
        let reader = PieceReader::new(self.source.as_ref(), self.io_policy.io_hint);
        let Some(end) = reader.file_bytes() else {
            let stream = self.io_policy.pace(SourceStream::new(self.source.as_ref()), progress);
            return work(Box::new(BufReader::with_capacity(SOURCE_PIECE_BYTES, stream)));
        };
        let piece_bytes = SOURCE_PIECE_BYTES as u64;
        let piece_range = |number: u64| {
            let start = number.saturating_mul(piece_bytes);
            start..end.min(start.saturating_add(piece_bytes))
        };
        let item_reader = ItemReader {
            is_cold: &|range| reader.is_cold(range),
            read: &|range: &Range<u64>, buf| {
                self.io_policy.wait(range_bytes(range), progress);
                reader.read(range, buf).map(drop)
            },
            item_bytes_max: piece_bytes,
            ahead_bytes_max,
        };
        read_ahead((0..end.div_ceil(piece_bytes)).map(piece_range), &item_reader, |pieces| {
            work(Box::new(PieceStream::new(pieces, |pieces, piece| {
                let Some(next) = pieces.next() else {
                    piece.clear();
                    return Ok(());
                };
                next.and_then(|next| next.read(piece)).map(drop).map_err(io::Error::other)
            })))
        })
    }

    /// Decodes the archive from its start. The first frame that does not decode is an error.
    pub fn decode_stream(
        &self,
        threads: usize,
        ahead_bytes_max: u64,
        progress: &dyn Progress,
        on_content: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.with_stream(ahead_bytes_max, progress, |stream| {
            let on_frame = Box::new(|_| Ok(()));
            decode_stream(stream, self.compression, threads, progress, on_frame, &mut |decoded| {
                on_content(decoded.map_err(|fault| fault.error)?)
            })
        })
        .map_err(|error| error.with_place_if_damaged(self.path().escaped()))
    }
}

/// An archive in a file or in another source, with its name.
#[derive(Clone, Debug)]
#[warn(missing_docs)]
pub struct ArchiveInput {
    /// Path of the file, or the name that errors show for another source.
    pub path: PathBuf,
    /// Parsed name of the archive, or the name that the archive will get. `None` if the file does not have an
    /// archive's name.
    pub name: Option<ArchiveName>,
    /// Source of the bytes. `None` for the file at `path`.
    pub source: Option<SharedSource>,
}

impl ArchiveInput {
    /// Creates an input from a file. The last component of its path is the archive's name.
    pub fn from_path(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        // The name is parsed leniently, because the rules check it later.
        let name = path.file_name().and_then(|name| ArchiveName::parse_lenient(name.to_str()?));
        Self { path, name, source: None }
    }

    /// Creates an input from any source. Errors show the source's path.
    pub fn from_source(source: SharedSource, name: Option<ArchiveName>) -> Self {
        Self { path: source.path().to_path_buf(), name, source: Some(source) }
    }

    #[doc(hidden)]
    pub fn open(&self, io_policy: &IoPolicy) -> Result<OpenArchive> {
        let mut archive = match &self.source {
            Some(source) => OpenArchive::from_source(source.clone(), None, io_policy)?,
            None => OpenArchive::open(&self.path, io_policy)?,
        };
        archive.name = self.name.clone();
        Ok(archive)
    }

    /// Returns the length in bytes; `None` while it is unknown.
    ///
    /// # Errors
    /// The file does not exist, or its metadata cannot be read.
    pub fn length_bytes(&self) -> Result<Option<u64>> {
        match &self.source {
            Some(source) => Ok(source.length_bytes()),
            None => Ok(Some(fs::metadata(&self.path).map_err(|error| Error::from_open(&self.path, &error))?.len())),
        }
    }
}

impl<P: AsRef<Path>> From<P> for ArchiveInput {
    fn from(path: P) -> Self {
        Self::from_path(path.as_ref())
    }
}
