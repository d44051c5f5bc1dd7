//! Interface between the two loops that read archives ([`in_order`](super::in_order) and `by_index`) and the
//! code that uses the contents.
//!
//! A [`Visitor`] decides the role of each entry and handles faults. Its [`EntrySink`]s receive contents
//! as they are decoded. Its [`RecordVisitor`] receives the records of storages, on all workers.

use slotpress_base::{Error, Result};
use slotpress_format::{Entry, EntryParser, RecordSink, TarEnd};

use super::walk::SeenFrame;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorageRef {
    pub number: u32,
    pub slot: u64,
    pub id: u32,
}

/// Readers of an entry during a pass. By default, nothing reads it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryRole {
    /// Storage whose records are visited.
    pub storage: Option<StorageRef>,
    /// True for a document (version, status cache, bank file) that is to be parsed.
    pub is_document: bool,
    pub is_for_sink: bool,
}

impl EntryRole {
    pub fn is_wanted(&self) -> bool {
        self.storage.is_some() || self.is_document || self.is_for_sink
    }
}

#[derive(Debug)]
pub enum ReadFault<'a> {
    /// A frame does not decode. In an archive without an index, reading ends there.
    LostFrame {
        /// Number among the frames that hold tar data, from 0.
        number: u64,
        error: &'a Error,
        /// True if the tar stream ended in an earlier frame.
        is_after_end: bool,
    },
    /// A frame does not match its hash.
    WrongHash { number: u64, offset_bytes: u64 },
    /// Frame boundaries are lost, so reading ends.
    Unreadable { error: &'a Error, is_after_end: bool },
    /// A tar header cannot belong to a snapshot. `offset_bytes` is counted from the start of the tar stream.
    DamagedHeader { error: &'a Error, offset_bytes: u64 },
    /// The tar stream does not end as it should.
    End { parser: &'a EntryParser },
}

impl ReadFault<'_> {
    pub fn into_error(self) -> Error {
        match self {
            Self::LostFrame { error, .. } | Self::Unreadable { error, .. } | Self::DamagedHeader { error, .. } => {
                error.clone()
            }
            Self::End { parser } => match parser.finish() {
                Err(error) => error,
                Ok(()) if parser.end() == TarEnd::Junk => Error::damaged(
                    "bytes that are not zero follow the end of the tar stream",
                )
                .with_hint("Agave ignores them, other clients refuse the archive: find out where they come from"),
                Ok(()) => Error::damaged("too many zeros follow the end of the tar stream"),
            },
            Self::WrongHash { offset_bytes, .. } => {
                Error::damaged(format!("the frame at offset {offset_bytes} does not match its hash"))
                    .with_hint("get the archive from another source")
            }
        }
    }
}

/// Decides the roles of entries and handles faults. All workers share it.
pub trait Visitor: Sync {
    /// Decides an entry's role. Called for every entry in the order of the archive, before its content. When an
    /// archive is read by its index, this is called for all entries before any content.
    fn visit_entry(&self, entry: &Entry) -> Result<EntryRole>;

    /// Called for every frame whose header is read, in any order. When an archive is read by its index, this is
    /// not called for skippable frames.
    fn observe_frame(&self, _frame: SeenFrame) -> Result<()> {
        Ok(())
    }

    /// Called for every fault. If the fault loses records, `lost` says for the report which were not read. If this
    /// returns an error, reading ends. Otherwise, reading continues as far as possible.
    fn handle_fault(&self, fault: ReadFault<'_>, _lost: Option<&'static str>) -> Result<()> {
        Err(fault.into_error())
    }

    /// Creates a sink: for each frame if the archive is read by its index, or for each decoded part of an entry
    /// if it is read in order. Sinks work on several threads at once.
    fn new_sink(&self) -> Option<Box<dyn EntrySink + '_>> {
        None
    }

    fn records(&self) -> Option<&dyn RecordVisitor> {
        None
    }

    /// Returns an error if reading should end.
    fn check(&self) -> Result<()> {
        self.records().map_or(Ok(()), |records| records.check())
    }
}

pub trait RecordVisitor: Sync {
    /// Creates a worker. When the worker is dropped, its results are merged.
    fn new_worker(&self) -> Box<dyn RecordWorker + '_>;

    /// Returns an error if reading should end, for example because a worker's disk is full.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Called if records cannot be read, with their storage if it is known. If this returns an error, reading
    /// ends.
    fn report_lost(&self, _storage: Option<StorageRef>, error: Error) -> Result<()> {
        Err(error)
    }
}

pub trait RecordWorker: RecordSink {
    fn begin(&mut self, storage: StorageRef);
}

/// Receives the contents of entries. Depending on how the archive is read, these are the entries in a frame, a
/// part of one entry, or all entries of the archive.
pub trait EntrySink {
    fn begin(&mut self, number: u32, entry: &Entry) -> Result<()>;
    /// Receives content of the current entry. `offset_bytes` is counted from the start of the entry's content.
    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<()>;
    /// Called when the current entry is complete, or when another sink receives the rest of the entry.
    fn end(&mut self, entry: &Entry) -> Result<()>;
}
