//! Writes the differences between two states: the documents of the new state, its marked records (those that
//! [`Changes`] lists) in the order of its archives, then tombstones of closed accounts in the order of the old archive. Adds up
//! the written and the outdated records, to check that the result is the new state.

use std::ops::Range;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use rayon::prelude::*;
use roaring::RoaringBitmap;
use slotpress_base::{Error, EscapePath, Progress, Result, ThreadPool, start_pool, to_usize};
use slotpress_format::{
    BankFile, Entry, EntryKind, LatticeAccumulator, RawRecord, Record, RecordFault, RecordHeader, RecordSink,
    RecordWalker, Records,
};
use slotpress_read::state::marks::{Marks, is_marked};
use slotpress_read::state::sums::StateSum;
use slotpress_read::{ArchivePass, EntryRole, EntrySink, OpenArchive, ReadFault, Visitor, read_in_order};

use super::changes::Changes;
use crate::archive::reframe::FrameFiller;
use crate::archive::writer::count_storages;

/// Limit on the length of a storage. A storage is collected in memory, because its length is written
/// before its records.
const STORAGE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Memory for outdated records, which are added up together when it is full.
const OUTDATED_BYTES: usize = 16 * 1024 * 1024;

#[derive(Debug, Default)]
pub struct RebasedTotals {
    pub entries: Vec<Entry>,
    /// Sum of all records and tombstones in the new archive, computed from its bytes.
    pub written: StateSum,
    /// Sum of the old state's records whose accounts changed or were closed.
    pub outdated: StateSum,
    pub records: u64,
    pub tombstones: u64,
}

pub struct OutputWriter<'a> {
    /// Archives of the new state, newest first.
    pub new_archives: &'a [OpenArchive],
    pub old_archive: &'a OpenArchive,
    pub new_bank: &'a BankFile,
    pub old_bank: &'a BankFile,
    pub changes: &'a Changes,
    pub threads: usize,
    pub ahead_bytes: u64,
    pub progress: &'a dyn Progress,
}

impl OutputWriter<'_> {
    pub fn write(self, frames: &mut FrameFiller<'_>) -> Result<RebasedTotals> {
        let changes = self.changes;
        let mut output = NewStorages {
            frames,
            old_slot: self.old_bank.slot,
            new_slot: self.new_bank.slot,
            buffer: Vec::new(),
            outdated: Vec::new(),
            pool: start_pool(self.threads)?,
            totals: RebasedTotals::default(),
        };
        let mut next_storage = 0;
        for (number, archive) in self.new_archives.iter().enumerate() {
            let role =
                if number == 0 { ArchiveRole::Newest(&self.new_bank.storage_map_range) } else { ArchiveRole::New };
            next_storage = self.read_archive(archive, role, next_storage, &changes.written, &mut output)?;
        }
        if changes.counts.accounts_changed + changes.counts.accounts_closed > 0 {
            let role = ArchiveRole::Old(&changes.closed);
            self.read_archive(self.old_archive, role, 0, &changes.outdated, &mut output)?;
        }
        output.finish()
    }

    /// Reads an archive whose first storage has the number `first_storage`. Returns the number for the
    /// first storage of the next archive.
    fn read_archive(
        &self,
        archive: &OpenArchive,
        role: ArchiveRole<'_>,
        first_storage: u32,
        wanted: &Marks,
        output: &mut NewStorages<'_, '_>,
    ) -> Result<u32> {
        let is_newest = matches!(role, ArchiveRole::Newest(_));
        let next_storage = AtomicU32::new(first_storage);
        let visitor = RereadVisitor { wanted, is_newest, first_storage, next_storage };
        let mut sink = OutputSink { output, visitor: &visitor, role, marks: None, walker: RecordWalker::default() };
        let pass = ArchivePass::new(self.threads, self.progress).decoders(self.threads.div_ceil(2));
        let read = archive.with_stream(self.ahead_bytes, self.progress, |stream| {
            read_in_order(stream, archive.compression, &pass, &visitor, Some(&mut sink))
        });
        read.map_err(|error| error.with_place_if_damaged(archive.path().escaped()))?;
        Ok(visitor.next_storage.load(Relaxed))
    }
}

/// Collects records into storages. The first storage has the new state's slot, and each following
/// one has the slot below.
struct NewStorages<'a, 'f> {
    frames: &'a mut FrameFiller<'f>,
    old_slot: u64,
    new_slot: u64,
    buffer: Vec<u8>,
    outdated: Vec<u8>,
    pool: ThreadPool,
    totals: RebasedTotals,
}

impl NewStorages<'_, '_> {
    fn add(&mut self, header: &RecordHeader, data: &[u8]) -> Result<()> {
        if !self.buffer.is_empty() && self.buffer.len() + to_usize(header.stored_bytes()) > STORAGE_BYTES_MAX {
            self.end_storage()?;
        }
        push_record(&mut self.buffer, header, data);
        match header.lamports {
            0 => self.totals.tombstones += 1,
            _ => self.totals.records += 1,
        }
        Ok(())
    }

    fn add_outdated(&mut self, header: &RecordHeader, data: &[u8]) {
        push_record(&mut self.outdated, header, data);
        if self.outdated.len() >= OUTDATED_BYTES {
            self.sum_outdated();
        }
    }

    fn sum_outdated(&mut self) {
        let sum = sum_records(&self.pool, &self.outdated);
        self.totals.outdated.add(&sum);
        self.outdated.clear();
    }

    fn end_storage(&mut self) -> Result<()> {
        let Self { old_slot, new_slot, .. } = *self;
        let count = count_storages(&self.totals.entries);
        let id = u32::try_from(count + 1).ok();
        let slot = new_slot.checked_sub(count).filter(|slot| *slot > old_slot);
        let (Some(slot), Some(id)) = (slot, id) else {
            return Err(Error::usage(format!(
                "the changed accounts do not fit: there are only {} slots above slot {old_slot}, with one storage of 64 MiB each",
                new_slot - old_slot
            ))
            .with_hint("rebase onto an older full archive"));
        };
        let sum = sum_records(&self.pool, &self.buffer);
        self.totals.written.add(&sum);
        let entry = Entry { kind: EntryKind::Storage { slot, id }, content_bytes: self.buffer.len() as u64 };
        self.frames.begin(&entry)?;
        self.frames.append(&self.buffer)?;
        self.frames.end(&entry)?;
        self.totals.entries.push(entry);
        self.buffer.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<RebasedTotals> {
        self.sum_outdated();
        if !self.buffer.is_empty() {
            self.end_storage()?;
        }
        Ok(self.totals)
    }
}

fn push_record(records: &mut Vec<u8>, header: &RecordHeader, data: &[u8]) {
    let end = records.len() + to_usize(header.stored_bytes());
    records.extend_from_slice(&header.to_bytes());
    records.extend_from_slice(data);
    records.resize(end, 0);
}

fn sum_records(pool: &ThreadPool, records: &[u8]) -> StateSum {
    /// Number of records per task: enough to hash several accounts at a time.
    const RECORDS: usize = 1024;
    let records: Vec<_> = Records::new(records).collect();
    let sum_of = |records: &[RawRecord<'_>]| {
        let mut lattice = LatticeAccumulator::default();
        let mut lamports = 0u128;
        for record in records {
            let header = RecordHeader::parse(record.header);
            lattice.add(&header.account(record.data));
            lamports += u128::from(header.lamports);
        }
        StateSum { lattice: lattice.take(), lamports }
    };
    let add = |mut sum: StateSum, other: StateSum| {
        sum.add(&other);
        sum
    };
    pool.install(|| {
        let sums = records.par_chunks(RECORDS).map(sum_of);
        sums.reduce(StateSum::default, add)
    })
}

struct RereadVisitor<'a> {
    wanted: &'a Marks,
    is_newest: bool,
    first_storage: u32,
    /// Number of the next storage. `read_in_order` visits an entry just before the sink begins it, on one thread,
    /// so the current storage is the one before.
    next_storage: AtomicU32,
}

impl RereadVisitor<'_> {
    fn current_storage(&self) -> u32 {
        self.next_storage.load(Relaxed).saturating_sub(1)
    }
}

impl Visitor for RereadVisitor<'_> {
    fn visit_entry(&self, entry: &Entry) -> Result<EntryRole> {
        let number = self.next_storage.load(Relaxed);
        if !entry.is_storage() {
            let is_late = matches!(entry.kind, EntryKind::BankFile(_)) && number > self.first_storage;
            if self.is_newest && is_late {
                return Err(Error::damaged("its bank file is not in front of its storages")
                    .with_hint("an archive can be rebased only if both clients accept the order of its entries"));
            }
            return Ok(EntryRole { is_for_sink: self.is_newest, ..EntryRole::default() });
        }
        if entry.content_bytes == 0 {
            return Ok(EntryRole::default());
        }
        self.next_storage.store(number.saturating_add(1), Relaxed);
        Ok(EntryRole { is_for_sink: self.wanted.storage_marks(number).is_some(), ..EntryRole::default() })
    }

    fn handle_fault(&self, fault: ReadFault<'_>, lost: Option<&'static str>) -> Result<()> {
        // The pass that checked the state has judged the fault.
        match lost {
            Some(_) => Err(fault.into_error()),
            None => Ok(()),
        }
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

#[derive(Clone, Copy)]
enum ArchiveRole<'a> {
    /// The newest archive of the new state. Its documents are copied. The range is that of the storage map
    /// in its bank file.
    Newest(&'a Range<u64>),
    /// The full archive of the new state, on which its newest archive builds.
    New,
    /// The archive of the old state, with marks of the records whose accounts were closed.
    Old(&'a Marks),
}

/// Copies documents and marked records of the new state. Sums up marked records of the old state,
/// and writes tombstones for closed accounts.
struct OutputSink<'a, 'p, 'f> {
    output: &'a mut NewStorages<'p, 'f>,
    visitor: &'a RereadVisitor<'a>,
    role: ArchiveRole<'a>,
    marks: Option<&'a RoaringBitmap>,
    walker: RecordWalker,
}

/// An empty storage map, which consists of a count only. It replaces the new state's map, which
/// names storages that the result does not have.
const EMPTY_MAP: [u8; 8] = [0; 8];

impl OutputSink<'_, '_, '_> {
    fn storage_map_of(&self, kind: EntryKind) -> Option<Range<u64>> {
        match (self.role, kind) {
            (ArchiveRole::Newest(storage_map_range), EntryKind::BankFile(_)) => Some(storage_map_range.clone()),
            _ => None,
        }
    }

    fn written_entry(&self, entry: &Entry) -> Entry {
        let map_bytes = self.storage_map_of(entry.kind).map_or(0, |map| map.end - map.start);
        let removed_bytes = map_bytes.saturating_sub(EMPTY_MAP.len() as u64);
        Entry { content_bytes: entry.content_bytes.saturating_sub(removed_bytes), ..*entry }
    }

    fn feed_storage(&mut self, bytes: &[u8]) -> Result<()> {
        let output = &mut *self.output;
        let role = self.role;
        let storage = self.visitor.current_storage();
        let mut on_record = |record: &Record<'_>| {
            let ArchiveRole::Old(closed) = role else { return output.add(record.header, record.data) };
            output.add_outdated(record.header, record.data);
            let is_closed = is_marked(closed.storage_marks(storage), record.offset_bytes);
            if is_closed { output.add(&tombstone(record.header.pubkey), &[]) } else { Ok(()) }
        };
        let mut marked = MarkedSink { marks: self.marks, on_record: &mut on_record, result: Ok(()) };
        self.walker.feed(bytes, &mut marked);
        marked.result
    }
}

impl EntrySink for OutputSink<'_, '_, '_> {
    fn begin(&mut self, _: u32, entry: &Entry) -> Result<()> {
        self.marks = None;
        if entry.is_storage() {
            self.walker.restart();
            let storage = self.visitor.current_storage();
            self.marks = self.visitor.wanted.storage_marks(storage);
            return Ok(());
        }
        let entry = self.written_entry(entry);
        // Firedancer writes the status cache after the storages.
        if !self.output.buffer.is_empty() {
            self.output.end_storage()?;
        }
        self.output.frames.begin(&entry)?;
        self.output.totals.entries.push(entry);
        Ok(())
    }

    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<()> {
        if self.marks.is_some() {
            return self.feed_storage(bytes);
        }
        let entry = self.output.totals.entries.last();
        let map = entry.and_then(|entry| self.storage_map_of(entry.kind));
        let frames = &mut self.output.frames;
        let Some(map) = map else { return frames.append(bytes) };
        let end = offset_bytes + bytes.len() as u64;
        let index_of = |offset: u64| to_usize(offset.clamp(offset_bytes, end) - offset_bytes);
        frames.append(&bytes[..index_of(map.start)])?;
        if (offset_bytes..end).contains(&map.start) {
            frames.append(&EMPTY_MAP)?;
        }
        frames.append(&bytes[index_of(map.end)..])
    }

    fn end(&mut self, entry: &Entry) -> Result<()> {
        if entry.is_storage() { Ok(()) } else { self.output.frames.end(&self.written_entry(entry)) }
    }
}

fn tombstone(pubkey: [u8; 32]) -> RecordHeader {
    RecordHeader { pubkey, ..RecordHeader::default() }
}
