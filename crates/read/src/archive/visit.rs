//! What the two loops over an archive ([`in_order`](super::in_order), `by_index`) tell the code that reads
//! it, and what they ask.
//!
//! A [`Visitor`] says what each entry is wanted for, and judges what is wrong. Its [`EntrySink`]s get contents as they
//! are decoded (to put them into files, or into another archive), its [`RecordVisitor`] the records of storages, on all
//! workers.

use slotpress_base::{Error, Result};
use slotpress_format::{Entry, EntryParser, Oddity, RecordSink, TarEnd, TarHeader};

use super::walk::SeenFrame;

/// A storage that is being read: its number, and its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorageRef {
    /// Its number, over all archives that make up a state.
    pub number: u32,
    /// Its slot.
    pub slot: u64,
    /// Its id.
    pub id: u32,
}

/// What an entry is wanted for; nothing unless told otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryUse {
    /// Its records are to be visited, as those of this storage.
    pub records_of: Option<StorageRef>,
    /// It is a document (version, status cache, bank file) that is to be parsed.
    pub is_document: bool,
    /// Its content is for the sink.
    pub is_for_sink: bool,
}

impl EntryUse {
    /// Whether its content must be decoded.
    pub fn is_wanted(&self) -> bool {
        self.records_of.is_some() || self.is_document || self.is_for_sink
    }
}

/// What is wrong with an archive.
#[derive(Debug)]
pub enum Problem<'a> {
    /// A frame does not decode, but where the next one starts is known.
    LostFrame {
        /// Which of the frames that hold tar it is, from 0.
        number: u64,
        /// Why; says where it starts.
        error: &'a Error,
        /// Whether the tar stream was over before it.
        is_after_end: bool,
    },
    /// A mark of `pzstd` does not fit the frame after it.
    WrongMark {
        /// Which frame.
        number: u64,
        /// Where it starts in the file.
        offset_bytes: u64,
        /// Its length.
        compressed_bytes: u32,
        /// What the mark says.
        mark: u32,
    },
    /// A frame, with what stands in front of it, is not what its hash says.
    WrongHash {
        /// Which frame.
        number: u64,
        /// Where it starts in the file.
        offset_bytes: u64,
    },
    /// Frames cannot be told apart any more: reading ends.
    Unreadable {
        /// Why, and where.
        error: &'a Error,
        /// Whether the tar stream was over before it.
        is_after_end: bool,
    },
    /// A tar header makes no sense.
    DamagedHeader {
        /// Why.
        error: &'a Error,
        /// Where in the tar stream.
        offset_bytes: u64,
    },
    /// A tar header that not every client reads.
    OddHeader {
        /// In what way.
        oddity: Oddity,
        /// The header.
        header: &'a TarHeader,
    },
    /// The tar stream does not end as it should.
    End {
        /// How it ends.
        end: TarEnd,
        /// How many zeros there are.
        zero_bytes: u64,
        /// Where.
        offset_bytes: u64,
        /// Whether it ends between two entries.
        is_between_entries: bool,
        /// What that is as an error.
        error: &'a Error,
    },
    /// So much of the archive could not be read that records are missing.
    LostRecords {
        /// Which, in words: "not those in …".
        which: &'static str,
    },
}

impl Problem<'_> {
    /// The problem as an error, for who reads no further.
    pub fn into_error(self) -> Error {
        match self {
            Self::LostFrame { error, .. } | Self::Unreadable { error, .. } | Self::DamagedHeader { error, .. } => {
                error.clone()
            }
            Self::End { error, .. } => error.clone(),
            Self::OddHeader { oddity, header } => oddity.error(header),
            Self::WrongMark { offset_bytes, .. } => {
                Error::damaged(format!("the mark in front of the frame at offset {offset_bytes} does not fit it"))
            }
            Self::WrongHash { offset_bytes, .. } => {
                Error::damaged(format!("the frame at offset {offset_bytes} does not match its hash"))
                    .with_hint("take the archive from another source")
            }
            Self::LostRecords { which } => Error::damaged(format!("not all records can be read: {which}")),
        }
    }

    /// How a tar stream ends that is over, or that no more of can be read.
    pub(super) fn of_end(parser: &EntryParser, tell: &mut dyn FnMut(Problem<'_>) -> Result<()>) -> Result<()> {
        let end = parser.end();
        if end == TarEnd::Clean {
            return Ok(());
        }
        let error = match parser.finish() {
            Err(error) => error,
            Ok(()) if end == TarEnd::Junk => Error::damaged("bytes that are not zero follow the end of the tar stream")
                .with_hint("Agave ignores them, others refuse the archive: find out where they come from"),
            Ok(()) => Error::damaged("more zeros than belong there follow the end of the tar stream"),
        };
        tell(Problem::End {
            end,
            zero_bytes: parser.end_zero_bytes(),
            offset_bytes: parser.position(),
            is_between_entries: parser.is_between_entries(),
            error: &error,
        })
    }
}

/// Decides how entries are read, and judges problems. Shared by all workers.
pub trait Visitor: Sync {
    /// An entry, in the order of the archive, before its content; says what it is wanted for. With an index, all entries
    /// come before any content.
    fn entry(&self, number: u32, entry: &Entry) -> Result<EntryUse>;

    /// A frame, skippable or not, in any order.
    fn frame(&self, frame: SeenFrame<'_>) -> Result<()> {
        let _ = frame;
        Ok(())
    }

    /// Something is wrong. An error ends the reading; otherwise it goes on as well as it can.
    fn problem(&self, problem: Problem<'_>) -> Result<()> {
        Err(problem.into_error())
    }

    /// What takes the content of entries that are for a sink: of one frame, or of all of them.
    fn new_sink(&self) -> Box<dyn EntrySink + '_> {
        Box::new(NoEntrySink)
    }

    /// What looks at records.
    fn records(&self) -> Option<&dyn RecordVisitor> {
        None
    }

    /// An error when something outside the archive failed, such as a full disk: ends the reading.
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

/// Looks at records. Shared by all workers.
pub trait RecordVisitor: Sync {
    /// One worker's part of it, which is merged when it is dropped.
    fn new_worker(&self) -> Box<dyn RecordWorker + '_>;

    /// An error when something failed that ends the reading.
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

/// One worker's part of a [`RecordVisitor`].
pub trait RecordWorker: RecordSink {
    /// The records that follow are of this storage.
    fn begin(&mut self, storage: StorageRef);
}

/// Takes the content of entries; one on each worker, or one in all.
pub trait EntrySink {
    /// An entry begins, or goes on from `offset_bytes` of its tar bytes: 0 is its header.
    fn begin(&mut self, number: u32, entry: &Entry, offset_bytes: u64) -> Result<()>;
    /// Some of its content, from `offset_bytes` of the content on.
    fn content(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<()>;
    /// It is complete, or the rest of it comes to another worker.
    fn end(&mut self, entry: &Entry) -> Result<()>;
}

/// Takes nothing.
pub struct NoEntrySink;

impl EntrySink for NoEntrySink {
    fn begin(&mut self, _: u32, _: &Entry, _: u64) -> Result<()> {
        Ok(())
    }
    fn content(&mut self, _: u64, _: &[u8]) -> Result<()> {
        Ok(())
    }
    fn end(&mut self, _: &Entry) -> Result<()> {
        Ok(())
    }
}
