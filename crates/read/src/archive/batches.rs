//! Cuts the records of an archive that is read in order into batches of whole records for the
//! workers.

use std::ops::Range;

use crossbeam_channel::{Receiver, Sender};
use slotpress_base::bytes::count;
use slotpress_base::split_at_most;
use slotpress_format::{RECORD_ALIGNMENT, RawRecord, RecordWalker, Records, RecordsRest};

use super::visit::{RecordVisitor, StorageRef};

/// A batch is sent at this length: the cost of a send is negligible, and the batch stays in a
/// core's cache.
const BATCH_BYTES: usize = 512 * 1024;

#[derive(Default)]
pub struct Batch {
    bytes: Vec<u8>,
    parts: Vec<Part>,
}

struct Part {
    storage: StorageRef,
    range: Range<usize>,
    offset_bytes: u64,
    is_last: bool,
}

/// Sends batches to workers, which return emptied ones through `free`.
pub struct Batcher {
    batches: Sender<Batch>,
    free: Receiver<Batch>,
    batch: Batch,
    current: Option<CurrentStorage>,
}

#[derive(Clone, Copy)]
struct CurrentStorage {
    storage: StorageRef,
    /// Position of the storage's content in the batch; `offset_bytes` is the offset of that
    /// position in the storage.
    start: usize,
    offset_bytes: u64,
    /// Position in the batch of the first record that is not known to be complete.
    next_record: usize,
    /// True if a record has an impossible length: the rest of the storage cannot be split into
    /// records and is left out.
    is_broken: bool,
}

impl CurrentStorage {
    /// The storage's content in the batch up to a position.
    fn part(&self, end: usize, is_last: bool) -> Part {
        Part { storage: self.storage, range: self.start..end, offset_bytes: self.offset_bytes, is_last }
    }
}

impl Batcher {
    pub fn new(batches: Sender<Batch>, free: Receiver<Batch>) -> Self {
        Self { batches, free, batch: Batch::default(), current: None }
    }

    /// Begins a storage; `None` for an entry whose records are not visited.
    pub fn begin(&mut self, storage: Option<StorageRef>) {
        let start = self.batch.bytes.len();
        self.current = storage.map(|storage| CurrentStorage {
            storage,
            start,
            offset_bytes: 0,
            next_record: start,
            is_broken: false,
        });
    }

    pub fn content(&mut self, mut bytes: &[u8]) {
        while let Some(current) = self.current.filter(|current| !current.is_broken && !bytes.is_empty()) {
            // Appends a part at a time, so that the batch does not grow much beyond its limit if a
            // piece is long.
            let (part, rest) = split_at_most(bytes, BATCH_BYTES);
            self.batch.bytes.extend_from_slice(part);
            bytes = rest;
            if self.batch.bytes.len() >= BATCH_BYTES {
                self.cut(current);
            }
        }
    }

    /// Sends all complete records. The rest of the last record stays for the next batch.
    fn cut(&mut self, mut current: CurrentStorage) {
        let bytes = &self.batch.bytes;
        let mut records = Records::new(bytes.get(current.next_record..).unwrap_or_default());
        // A record without its padding stays for the next batch, so that every batch starts at a
        // record.
        let is_padded = |record: &RawRecord<'_>| (record.length() as u64).is_multiple_of(RECORD_ALIGNMENT);
        let whole = records.by_ref().take_while(is_padded).last().map_or(0, |record| record.end);
        let mut at = current.next_record.saturating_add(whole);
        if matches!(records.rest(), RecordsRest::End | RecordsRest::TooLong) {
            // The walker reports what is wrong with the record; nothing after it can be read.
            current.is_broken = true;
            at = bytes.len();
        }
        current.next_record = at;
        if at > current.start || current.start > 0 {
            let rest = self.batch.bytes.split_off(at);
            if at > current.start {
                self.batch.parts.push(current.part(at, current.is_broken));
                count(&mut current.offset_bytes, at.saturating_sub(current.start) as u64);
            }
            self.send();
            self.batch.bytes.extend_from_slice(&rest);
            (current.start, current.next_record) = (0, 0);
        }
        self.current = Some(current);
    }

    pub fn end(&mut self) {
        let Some(current) = self.current.take() else { return };
        if !current.is_broken {
            self.batch.parts.push(current.part(self.batch.bytes.len(), true));
        }
        if self.batch.bytes.len() >= BATCH_BYTES {
            self.send();
        }
    }

    /// Drops the current storage, whose content will not be complete, and sends the batch.
    pub fn abandon(&mut self) {
        self.current = None;
        self.send();
    }

    fn send(&mut self) {
        let next = self.free.try_recv().unwrap_or_default().cleared();
        let batch = std::mem::replace(&mut self.batch, next);
        if !batch.parts.is_empty() {
            // Fails only if all workers have ended: at the end, or by a panic, which they report
            // themselves.
            let _ = self.batches.send(batch);
        }
    }
}

impl Batch {
    fn cleared(mut self) -> Self {
        self.bytes.clear();
        self.parts.clear();
        self
    }
}

/// Visits batches until the channel closes, and returns each through `free`.
pub fn visit_batches(visitor: &dyn RecordVisitor, batches: &Receiver<Batch>, free: &Sender<Batch>) {
    let (mut worker, mut walker) = (visitor.new_worker(), RecordWalker::default());
    for batch in batches {
        slotpress_base::threads::panic_point("record worker");
        for part in &batch.parts {
            worker.begin(part.storage);
            walker.restart_at(part.offset_bytes);
            walker.feed(batch.bytes.get(part.range.clone()).unwrap_or_default(), worker.as_mut());
            if part.is_last {
                walker.finish(worker.as_mut());
            }
        }
        // Fails if the channel has enough free batches.
        let _ = free.try_send(batch);
    }
}
