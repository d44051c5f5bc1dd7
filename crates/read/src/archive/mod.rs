//! Reading an archive: from any source, of any maker, for any purpose.
//!
//! [`Archive::open`] looks at the first bytes and, where there is one, at the index. Then one of two loops reads it:
//! `by_index`, every worker on its own, or [`in_order`], as a stream. Both tell a [`Visitor`] what
//! they find; what is wrong is the visitor's to judge, by the book of rules or by its own.
//!
//! Where bytes come from is a [`Source`](source::Source). Here live also the decoders of every compression that archives ever had, and
//! the parsing of documents while they stream by. Not here: what an archive may hold, and what becomes of it.

pub mod arriving;
mod batches;
pub(crate) mod by_index;
pub mod compression;
pub mod cut;
pub mod decode;
pub mod documents;
pub mod front;
pub mod in_order;
pub mod named;
pub mod passing;
mod peeker;
pub mod range;
pub mod shape;
pub mod size_limit;
pub mod source;
mod streams;
pub mod tail;
pub mod visit;
pub mod walk;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use slotpress_base::{Error, ErrorKind, Hint, IoContext, IoPolicy, Progress, Result, ShowPath, split_at_most};
use slotpress_format::{ArchiveName, BLOCK, Root};

use crate::archive::by_index::{Extent, read_by_index};
use crate::archive::compression::sniff;
use crate::archive::source::stream;
use crate::archive::walk::FrameStatistics;
use crate::{Compression, Documents, LocalFile, SharedSource, Tail, Visitor, read_in_order};

/// What to think of an archive's index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IndexPolicy {
    /// A hint: it is followed as long as it fits, and passed over where there is none or it does not.
    #[default]
    Hint,
    /// Not looked at.
    Ignore,
    /// Needed: without one that fits, opening fails.
    Require,
}

/// An archive that is open for reading.
#[derive(Debug)]
pub struct Archive {
    /// Where its bytes come from.
    pub source: SharedSource,
    /// What its name says.
    pub name: Option<ArchiveName>,
    /// How it is compressed.
    pub compression: Compression,
    /// Its seek table and index, where they are to be followed.
    pub tail: Option<Tail>,
    /// Why the index is not followed although there is one.
    pub index_error: Option<Error>,
    /// How it is read.
    pub io_policy: IoPolicy,
}

/// A stream that is an archive.
pub struct ArchiveStream<'a> {
    /// Its bytes.
    pub reader: Box<dyn Read + Send + 'a>,
    /// How it is compressed.
    pub compression: Compression,
}

/// Which frames are compared with their hashes, where there are some.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HashCheck {
    /// None.
    #[default]
    None,
    /// Those that are decoded.
    Decoded,
    /// All that are looked at: with `Extent::WantedAndHeaders`, every frame is read to its end.
    All,
}

/// How an archive is read.
pub struct Pass<'a> {
    /// Threads that work, 1 to 1024.
    pub threads: usize,
    /// Of those, workers that decode where records go to others; all of them unless told otherwise.
    pub decoders: Option<usize>,
    /// Which frames are read, where there is an index.
    pub extent: Extent,
    /// Where there is an index, the last storages of the archive, which are the newest, are read first.
    pub is_newest_first: bool,
    /// Where there is an index, which frames are compared with their hashes.
    pub hashes: HashCheck,
    /// Who is told.
    pub progress: &'a dyn Progress,
}

impl<'a> Pass<'a> {
    /// Reads everything.
    pub fn new(threads: usize, progress: &'a dyn Progress) -> Self {
        let (extent, hashes) = (Extent::Everything, HashCheck::None);
        Self { threads: threads.max(1), decoders: None, extent, is_newest_first: false, hashes, progress }
    }
}

/// What reading an archive found out, beside what its visitor was told.
#[derive(Debug, Default)]
pub struct ReadArchive {
    /// The documents that were wanted.
    pub documents: Documents,
    /// What its frames are like; by the index, only how many there are.
    pub frames: FrameStatistics,
    /// Bytes of tar, as far as they are known.
    pub tar_bytes: u64,
    /// Whether it was read to its end, and nothing lost.
    pub is_whole: bool,
}

/// Why an archive could not be read.
#[derive(Debug)]
pub enum ReadError {
    /// The index contradicts what is there: read the archive without it.
    Index(Error),
    /// Anything else.
    Other(Error),
}

/// Why archives could not be read, and which of them it was.
#[derive(Debug)]
pub struct FailedRead {
    /// Its number, in the order in which they are read; `None` where it is about all of them.
    pub archive: Option<usize>,
    /// What failed.
    pub error: ReadError,
}

impl FailedRead {
    /// Of one archive.
    pub fn of(number: usize, error: ReadError) -> Self {
        Self { archive: Some(number), error }
    }
}

impl From<Error> for FailedRead {
    fn from(error: Error) -> Self {
        Self { archive: None, error: error.into() }
    }
}

impl From<Error> for ReadError {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl From<ReadError> for Error {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Index(error) | ReadError::Other(error) => error,
        }
    }
}

impl Archive {
    /// Opens a file.
    pub fn open(path: &Path, policy: IndexPolicy, io_policy: &IoPolicy) -> Result<Self> {
        let source = LocalFile::open(path)?;
        Self::of_source(Arc::new(source), ArchiveName::from_path(path), policy, io_policy)
    }

    /// Opens any source. Of one whose length is not known yet, no index is known either.
    pub fn of_source(
        source: SharedSource,
        name: Option<ArchiveName>,
        policy: IndexPolicy,
        io_policy: &IoPolicy,
    ) -> Result<Self> {
        let path = source.path();
        let mut start = [0; BLOCK];
        let read = source.read_up_to(&mut start, 0).or_path("read", path)?;
        let compression = sniff(split_at_most(&start, read).0).map_err(|error| error.within(path.shown()))?;
        let mut archive =
            Self { source, name, compression, tail: None, index_error: None, io_policy: io_policy.clone() };
        if policy != IndexPolicy::Ignore && compression == Compression::Zstd {
            match Tail::read(archive.source.as_ref()) {
                Ok(tail) => archive.tail = tail,
                Err(error) if error.kind() == ErrorKind::Damaged => archive.index_error = Some(error),
                Err(error) => return Err(error),
            }
        }
        match (policy, &archive.tail, &archive.index_error) {
            (IndexPolicy::Require, None, Some(error)) => Err(error.clone().within(archive.path().shown())),
            (IndexPolicy::Require, None, None) => {
                Err(Error::failed(format!("{} has no index", archive.path().shown())).with_hint(Hint::UseRecompress))
            }
            _ => Ok(archive),
        }
    }

    /// Its path, or what stands for it.
    pub fn path(&self) -> &Path {
        self.source.path()
    }

    /// The same, for keeping.
    pub fn path_buf(&self) -> PathBuf {
        self.path().to_path_buf()
    }

    /// Its length in bytes; 0 as long as it is not known.
    pub fn length_bytes(&self) -> u64 {
        self.source.length_bytes().unwrap_or_default()
    }

    /// The base slot that its name gives.
    pub fn base_slot(&self) -> Option<u64> {
        self.name.as_ref().and_then(|name| name.base_slot)
    }

    /// The index is worthless: it is not followed any more. Why is kept.
    pub fn distrust_index(&mut self, error: Error) {
        self.tail = None;
        self.index_error = Some(error);
    }

    /// What stands for all of its bytes, where its frames are hashed, and its index is followed.
    pub fn root(&self) -> Option<Root> {
        Some(self.tail.as_ref()?.hashes.as_ref()?.root)
    }

    /// Says why the index is not followed, where there is one.
    pub fn warn_of_index(&self, progress: &dyn Progress) {
        if let Some(error) = &self.index_error {
            progress.warn(&format!("{}: {error}; reading it without its index", self.path().shown()));
        }
    }

    /// Its bytes from the first to the last.
    pub fn stream<'a>(&'a self, progress: &'a dyn Progress) -> ArchiveStream<'a> {
        let reader = stream(self.source.as_ref(), self.io_policy.io_hint);
        ArchiveStream { reader: Box::new(self.io_policy.paced(reader, progress)), compression: self.compression }
    }

    /// Reads it for a visitor: by its index where that is to be followed, in order otherwise.
    pub fn read(&self, pass: &Pass<'_>, visitor: &dyn Visitor) -> Result<ReadArchive, ReadError> {
        match &self.tail {
            Some(tail) => read_by_index(self, tail, pass, visitor),
            None => {
                let mut sink = visitor.new_sink();
                Ok(read_in_order(self.stream(pass.progress), pass, visitor, sink.as_mut())?)
            }
        }
    }

    /// Decodes it in order, and hands the tar stream over. Returns what its frames are like.
    pub fn decode_in_order(
        &self,
        threads: usize,
        progress: &dyn Progress,
        on_content: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<FrameStatistics> {
        let ArchiveStream { reader, compression } = self.stream(progress);
        decode::decode_in_order(reader, compression, threads, progress, on_content)
            .map_err(|error| error.within_damaged(self.path().shown()))
    }
}
