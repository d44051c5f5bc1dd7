//! The records of an archive that is read in order, in batches of whole records for the workers.

use std::ops::Range;

use crossbeam_channel::{Receiver, Sender};
use slotpress_base::bytes::count;
use slotpress_base::split_at_most;
use slotpress_format::{RECORD_ALIGNMENT, RawRecord, RecordWalker, Records, RecordsRest};

use super::visit::{RecordVisitor, RecordWorker, StorageRef};

/// A batch is handed on when it is this long: large enough to cost nothing, small enough to stay in the caches.
const BATCH_BYTES: usize = 512 * 1024;

/// Whole records of one or more storages.
#[derive(Default)]
pub struct Batch {
    bytes: Vec<u8>,
    parts: Vec<Part>,
}

/// Records of one storage in a batch.
struct Part {
    storage: StorageRef,
    range: Range<usize>,
    /// Where in the storage they start.
    offset_bytes: u64,
    /// Whether the storage ends with them.
    is_last: bool,
}

/// Puts batches together.
pub struct Batcher<'a> {
    to: Workers<'a>,
    batch: Batch,
    current: Option<CurrentStorage>,
}

/// Who visits the records of batches.
pub enum Workers<'a> {
    /// Other threads. Batches that have been read come back through `free`.
    Threads {
        /// Where batches go.
        batches: Sender<Batch>,
        /// Where they come back.
        free: Receiver<Batch>,
    },
    /// The thread that fills them, where no other can be started.
    Here(BatchVisitor<'a>),
}

/// The storage that is coming in.
#[derive(Clone, Copy)]
struct CurrentStorage {
    storage: StorageRef,
    /// Where in the batch it starts, and where in the storage that is.
    start: usize,
    offset_bytes: u64,
    /// Where in the batch the next record starts, as far as is known.
    next_record: usize,
    /// What follows cannot be told apart, and is left out.
    is_broken: bool,
}

impl<'a> Batcher<'a> {
    /// Fills batches for workers.
    pub fn new(to: Workers<'a>) -> Self {
        Self { to, batch: Batch::default(), current: None }
    }

    /// A storage begins; `None`: an entry that is not read.
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

    /// Some of its bytes.
    pub fn content(&mut self, mut bytes: &[u8]) {
        while let Some(current) = self.current.filter(|current| !current.is_broken && !bytes.is_empty()) {
            // A part at a time, so that a batch does not grow with the piece.
            let (part, rest) = split_at_most(bytes, BATCH_BYTES);
            self.batch.bytes.extend_from_slice(part);
            bytes = rest;
            if self.batch.bytes.len() >= BATCH_BYTES {
                self.cut(current);
            }
        }
    }

    /// Hands on all records that are complete; what is left of the last stays for the next batch.
    fn cut(&mut self, mut current: CurrentStorage) {
        let bytes = &self.batch.bytes;
        let mut records = Records::new(bytes.get(current.next_record..).unwrap_or_default());
        // A record whose padding has not come yet waits for it: the next batch begins with a record.
        let is_padded = |record: &RawRecord<'_>| (record.length() as u64).is_multiple_of(RECORD_ALIGNMENT);
        let whole = records.by_ref().take_while(is_padded).last().map_or(0, |record| record.end);
        let mut at = current.next_record.saturating_add(whole);
        if matches!(records.rest(), RecordsRest::End | RecordsRest::TooLong) {
            // The walker says what is wrong with it; nothing after it can be read.
            current.is_broken = true;
            at = bytes.len();
        }
        current.next_record = at;
        if at > current.start || current.start > 0 {
            let rest = self.batch.bytes.split_off(at);
            if at > current.start {
                let CurrentStorage { storage, start, offset_bytes, is_broken, .. } = current;
                self.batch.parts.push(Part { storage, range: start..at, offset_bytes, is_last: is_broken });
                count(&mut current.offset_bytes, at.saturating_sub(start) as u64);
            }
            self.send();
            self.batch.bytes.extend_from_slice(&rest);
            (current.start, current.next_record) = (0, 0);
        }
        self.current = Some(current);
    }

    /// It is complete.
    pub fn end(&mut self) {
        let Some(CurrentStorage { storage, start, offset_bytes, is_broken, .. }) = self.current.take() else { return };
        if !is_broken {
            let range = start..self.batch.bytes.len();
            self.batch.parts.push(Part { storage, range, offset_bytes, is_last: true });
        }
        if self.batch.bytes.len() >= BATCH_BYTES {
            self.send();
        }
    }

    /// It will never be complete.
    pub fn abandon(&mut self) {
        self.current = None;
        self.send();
    }

    fn send(&mut self) {
        match &mut self.to {
            Workers::Threads { batches, free } => {
                let next = free.try_recv().unwrap_or_default().cleared();
                let batch = std::mem::replace(&mut self.batch, next);
                if !batch.parts.is_empty() {
                    // Fails only when all workers have ended: after this, or because they died, which they tell.
                    let _ = batches.send(batch);
                }
            }
            Workers::Here(visitor) => {
                visitor.visit(&self.batch);
                self.batch = std::mem::take(&mut self.batch).cleared();
            }
        }
    }
}

impl Batch {
    /// The same memory for other records.
    fn cleared(mut self) -> Self {
        self.bytes.clear();
        self.parts.clear();
        self
    }
}

/// Walks what is in batches, and shows it to a visitor.
pub struct BatchVisitor<'a> {
    worker: Box<dyn RecordWorker + 'a>,
    walker: RecordWalker,
}

impl<'a> BatchVisitor<'a> {
    /// One worker's.
    pub fn new(visitor: &'a dyn RecordVisitor) -> Self {
        Self { worker: visitor.new_worker(), walker: RecordWalker::default() }
    }

    fn visit(&mut self, batch: &Batch) {
        for part in &batch.parts {
            self.worker.begin(part.storage);
            self.walker.restart_at(part.offset_bytes);
            let bytes = batch.bytes.get(part.range.clone()).unwrap_or_default();
            self.walker.feed(bytes, self.worker.as_mut());
            if part.is_last {
                self.walker.finish(self.worker.as_mut());
            }
        }
    }
}

/// Visits batches until there are no more.
pub fn visit_batches(visitor: &dyn RecordVisitor, batches: &Receiver<Batch>, free: &Sender<Batch>) {
    let mut visitor = BatchVisitor::new(visitor);
    for batch in batches {
        slotpress_base::threads::panic_point("record worker");
        visitor.visit(&batch);
        // A full store of free batches has enough.
        let _ = free.try_send(batch);
    }
}
