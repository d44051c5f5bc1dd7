//! Writes the differences between two states: documents of the new state, its marked records in the
//! order of its archives, then tombstones of closed accounts in the order of the old archive. Sums
//! up the written and the outdated records, to check that the result is the new state.

use std::ops::Range;

use parking_lot::Mutex;
use rayon::prelude::*;
use roaring::RoaringBitmap;
use slotpress_base::{Error, Pool, Progress, Result, ShowPath, to_usize};
use slotpress_format::{
    Entry, EntryKind, LatticeAccumulator, RECORD_HEADER_BYTES, Record, RecordFault, RecordHeader, RecordSink,
    RecordWalker, Records,
};
use slotpress_read::archive::OpenArchive;
use slotpress_read::archive::visit::{ReadFault, unread_records};
use slotpress_read::state::marks::{Marks, is_marked};
use slotpress_read::state::sums::StateSum;
use slotpress_read::{ArchivePass, EntrySink, EntryUse, Visitor, read_in_order};

use super::changes::Changes;
use crate::archive::reframe::FramesOut;

/// Limit on the length of a storage. A storage is collected in memory, because its length is
/// written before it.
const STORAGE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Records of the old state are summed up when they take this much memory.
const OUTDATED_BYTES: usize = 16 * 1024 * 1024;

#[derive(Debug, Default)]
pub struct RebasedTotals {
    pub entries: Vec<Entry>,
    /// Sum of all records and tombstones in the new archive, computed from its bytes.
    pub written: StateSum,
    /// Sum of the old state's records that changed or were closed.
    pub outdated: StateSum,
    /// Number of records, without tombstones.
    pub records: u64,
    pub tombstones: u64,
}

pub struct OutputWriter<'a> {
    /// Archives of the new state, newest first.
    pub new: &'a [OpenArchive],
    pub old: &'a OpenArchive,
    pub slots: SlotsBetween,
    /// Bytes of the new state's bank file that hold its storage map.
    pub storage_map_range: Range<u64>,
    pub changes: &'a Changes,
    pub threads: usize,
    /// Bytes of an archive that may be read ahead.
    pub ahead_bytes: u64,
    pub progress: &'a dyn Progress,
}

/// Range of slots for storages: above the old state's slot, up to that of the new one.
#[derive(Clone, Copy, Debug)]
pub struct SlotsBetween {
    pub old: u64,
    pub new: u64,
}

impl OutputWriter<'_> {
    pub fn run(self, frames: &mut FramesOut<'_>) -> Result<RebasedTotals> {
        let Self { new, old, slots, changes, .. } = self;
        let pool = Pool::start(self.threads)?;
        let buffer = Vec::new();
        let outdated = Vec::new();
        let mut output = NewStorages { frames, slots, buffer, outdated, pool, written: RebasedTotals::default() };
        let mut first_storage = 0;
        for (number, archive) in new.iter().enumerate() {
            let visitor = RereadVisitor::new(first_storage, &changes.written, number == 0);
            let of = WhichState::New(self.storage_map_range.clone());
            let mut sink = OutputSink { output: &mut output, visitor: &visitor, of, walk: MarkedWalk::default() };
            self.read(archive, &visitor, &mut sink)?;
            first_storage = visitor.state.lock().next_storage;
        }
        if changes.counts.accounts_changed + changes.counts.accounts_closed > 0 {
            let visitor = RereadVisitor::new(0, &changes.outdated, false);
            let of = WhichState::Old(&changes.closed);
            let mut sink = OutputSink { output: &mut output, visitor: &visitor, of, walk: MarkedWalk::default() };
            self.read(old, &visitor, &mut sink)?;
        }
        output.finish()
    }

    fn read(&self, archive: &OpenArchive, visitor: &RereadVisitor<'_>, sink: &mut dyn EntrySink) -> Result<()> {
        let pass = ArchivePass::new(self.threads, self.progress).decoders(self.threads.div_ceil(2));
        let read = archive.read_stream(self.ahead_bytes, self.progress, |stream| {
            read_in_order(stream, archive.compression, &pass, visitor, Some(sink))
        });
        read.map(drop).map_err(|error| error.within_damaged(archive.path().shown()))
    }
}

/// Collects records into storages. The first storage has the new state's slot, and each following
/// one has the slot below.
struct NewStorages<'a, 'f> {
    frames: &'a mut FramesOut<'f>,
    slots: SlotsBetween,
    buffer: Vec<u8>,
    outdated: Vec<u8>,
    pool: Pool,
    written: RebasedTotals,
}

impl NewStorages<'_, '_> {
    fn record(&mut self, header: &RecordHeader, data: &[u8]) -> Result<()> {
        if !self.buffer.is_empty() && self.buffer.len() + to_usize(header.stored_bytes()) > STORAGE_BYTES_MAX {
            self.end_storage()?;
        }
        push(&mut self.buffer, header, data);
        match header.lamports {
            0 => self.written.tombstones += 1,
            _ => self.written.records += 1,
        }
        Ok(())
    }

    fn outdated(&mut self, header: &RecordHeader, data: &[u8]) {
        push(&mut self.outdated, header, data);
        if self.outdated.len() >= OUTDATED_BYTES {
            self.sum_outdated();
        }
    }

    fn sum_outdated(&mut self) {
        let sum = sum(&self.pool, &self.outdated);
        self.written.outdated.add(&sum);
        self.outdated.clear();
    }

    fn end_storage(&mut self) -> Result<()> {
        let SlotsBetween { old, new } = self.slots;
        let count = self.written.entries.iter().filter(|entry| is_storage(entry)).count() as u64;
        let id = u32::try_from(count + 1).ok();
        let slot = new.checked_sub(count).filter(|slot| *slot > old);
        let (Some(slot), Some(id)) = (slot, id) else {
            return Err(Error::usage(format!(
                "there are {} slots above slot {old}: with one storage of 64 MiB each, they are too few for the changed accounts",
                new - old
            ))
            .with_hint("rebase onto an older full archive"));
        };
        self.written.written.add(&sum(&self.pool, &self.buffer));
        let entry = Entry { kind: EntryKind::Storage { slot, id }, content_bytes: self.buffer.len() as u64 };
        self.frames.begin(&entry)?;
        self.frames.content(&self.buffer)?;
        self.frames.end(&entry)?;
        self.written.entries.push(entry);
        self.buffer.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<RebasedTotals> {
        self.sum_outdated();
        if !self.buffer.is_empty() {
            self.end_storage()?;
        }
        Ok(self.written)
    }
}

fn push(records: &mut Vec<u8>, header: &RecordHeader, data: &[u8]) {
    let end = records.len() + to_usize(header.stored_bytes());
    records.extend_from_slice(&header.to_bytes());
    records.extend_from_slice(data);
    records.resize(end, 0);
}

/// Sums up records that lie one after another.
fn sum(pool: &Pool, records: &[u8]) -> StateSum {
    /// Number of records per task: enough to hash several accounts at a time.
    const RECORDS: usize = 1024;
    let records: Vec<_> = Records::new(records).collect();
    let sums = || {
        records.par_chunks(RECORDS).map(|records| {
            let mut lattice = LatticeAccumulator::new();
            let mut lamports = 0u128;
            for record in records {
                let header = RecordHeader::parse(record.header);
                lattice.add(&header.account(record.data));
                lamports += u128::from(header.lamports);
            }
            StateSum { lattice: lattice.take(), lamports }
        })
    };
    pool.run(|| {
        sums().reduce(StateSum::default, |mut sum, other| {
            sum.add(&other);
            sum
        })
    })
}

fn is_storage(entry: &Entry) -> bool {
    matches!(entry.kind, EntryKind::Storage { .. })
}

struct RereadVisitor<'a> {
    wanted: &'a Marks,
    has_documents: bool,
    state: Mutex<RereadState>,
}

#[derive(Default)]
struct RereadState {
    next_storage: u32,
    has_storages: bool,
}

impl<'a> RereadVisitor<'a> {
    fn new(next_storage: u32, wanted: &'a Marks, has_documents: bool) -> Self {
        Self { wanted, has_documents, state: Mutex::new(RereadState { next_storage, has_storages: false }) }
    }

    fn storage(&self) -> u32 {
        self.state.lock().next_storage.saturating_sub(1)
    }
}

impl Visitor for RereadVisitor<'_> {
    fn entry(&self, entry: &Entry) -> Result<EntryUse> {
        let mut state = self.state.lock();
        if !is_storage(entry) {
            if self.has_documents && state.has_storages && matches!(entry.kind, EntryKind::BankFile(_)) {
                return Err(Error::damaged("its bank file is not in front of its storages")
                    .with_hint("only archives in an order of entries that both clients read can be rebased"));
            }
            return Ok(EntryUse { is_for_sink: self.has_documents, ..EntryUse::default() });
        }
        if entry.content_bytes == 0 {
            return Ok(EntryUse::default());
        }
        let is_for_sink = self.wanted.of_storage(state.next_storage).is_some();
        (state.next_storage, state.has_storages) = (state.next_storage.saturating_add(1), true);
        Ok(EntryUse { is_for_sink, ..EntryUse::default() })
    }

    fn fault(&self, _: ReadFault<'_>, lost: Option<&'static str>) -> Result<()> {
        // The first reading has judged the fault.
        match lost {
            Some(which) => Err(unread_records(which)),
            None => Ok(()),
        }
    }
}

#[derive(Default)]
struct MarkedWalk<'a> {
    walker: RecordWalker,
    marks: Option<&'a RoaringBitmap>,
}

impl<'a> MarkedWalk<'a> {
    fn begin(&mut self, marks: Option<&'a RoaringBitmap>) {
        self.walker.restart();
        self.marks = marks;
    }

    fn feed(&mut self, bytes: &[u8], on_record: &mut dyn FnMut(&Record<'_>) -> Result<()>) -> Result<()> {
        let mut marked = MarkedSink { marks: self.marks, on_record, result: Ok(()) };
        self.walker.feed(bytes, &mut marked);
        marked.result
    }
}

struct MarkedSink<'a, 'f> {
    marks: Option<&'a RoaringBitmap>,
    on_record: &'f mut dyn FnMut(&Record<'_>) -> Result<()>,
    result: Result<()>,
}

impl RecordSink for MarkedSink<'_, '_> {
    fn record(&mut self, record: Record<'_>) {
        if self.result.is_ok() && is_marked(self.marks, record.offset_bytes) {
            self.result = (self.on_record)(&record);
        }
    }

    fn fault(&mut self, _: RecordFault) {}
}

enum WhichState<'a> {
    /// The new one, with the place of the storage map in its bank file.
    New(Range<u64>),
    /// The old one, with its marked records whose accounts were closed.
    Old(&'a Marks),
}

/// Copies documents and marked records of the new state. Sums up marked records of the old state,
/// and writes tombstones for closed accounts.
struct OutputSink<'a, 'o, 'p, 'f> {
    output: &'o mut NewStorages<'p, 'f>,
    visitor: &'a RereadVisitor<'a>,
    of: WhichState<'a>,
    walk: MarkedWalk<'a>,
}

/// An empty storage map, which consists of a count only. It replaces the new state's map, which
/// names storages that the result does not have.
const EMPTY_MAP: [u8; 8] = [0; 8];

impl OutputSink<'_, '_, '_, '_> {
    fn map_of(&self, kind: EntryKind) -> Option<Range<u64>> {
        match (&self.of, kind) {
            (WhichState::New(storage_map_range), EntryKind::BankFile(_)) => Some(storage_map_range.clone()),
            _ => None,
        }
    }

    fn entry_of(&self, entry: &Entry) -> Entry {
        let map_bytes = self.map_of(entry.kind).map_or(0, |map| map.end - map.start);
        let removed_bytes = map_bytes.saturating_sub(EMPTY_MAP.len() as u64);
        Entry { content_bytes: entry.content_bytes.saturating_sub(removed_bytes), ..*entry }
    }
}

impl EntrySink for OutputSink<'_, '_, '_, '_> {
    fn begin(&mut self, _: u32, entry: &Entry) -> Result<()> {
        let marks = self.visitor.wanted.of_storage(self.visitor.storage());
        self.walk.begin(marks.filter(|_| is_storage(entry)));
        if is_storage(entry) {
            return Ok(());
        }
        let entry = self.entry_of(entry);
        // Firedancer writes the status cache after the storages.
        if !self.output.buffer.is_empty() {
            self.output.end_storage()?;
        }
        self.output.frames.begin(&entry)?;
        self.output.written.entries.push(entry);
        Ok(())
    }

    fn content(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<()> {
        if self.walk.marks.is_some() {
            let output = &mut self.output;
            let storage = self.visitor.storage();
            return match &self.of {
                WhichState::New(_) => self.walk.feed(bytes, &mut |record| output.record(record.header, record.data)),
                WhichState::Old(closed) => self.walk.feed(bytes, &mut |record| {
                    output.outdated(record.header, record.data);
                    let is_closed = is_marked(closed.of_storage(storage), record.offset_bytes);
                    if is_closed { output.record(&tombstone(record.header.pubkey), &[]) } else { Ok(()) }
                }),
            };
        }
        let map = self.output.written.entries.last().and_then(|entry| self.map_of(entry.kind));
        let frames = &mut self.output.frames;
        let Some(map) = map else { return frames.content(bytes) };
        let end = offset_bytes + bytes.len() as u64;
        let at = |place: u64| to_usize(place.clamp(offset_bytes, end) - offset_bytes);
        frames.content(&bytes[..at(map.start)])?;
        if (offset_bytes..end).contains(&map.start) {
            frames.content(&EMPTY_MAP)?;
        }
        frames.content(&bytes[at(map.end)..])
    }

    fn end(&mut self, entry: &Entry) -> Result<()> {
        if is_storage(entry) { Ok(()) } else { self.output.frames.end(&self.entry_of(entry)) }
    }
}

fn tombstone(pubkey: [u8; 32]) -> RecordHeader {
    RecordHeader { pubkey, ..RecordHeader::parse(&[0; RECORD_HEADER_BYTES]) }
}
