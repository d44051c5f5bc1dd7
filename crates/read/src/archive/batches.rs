//! Divides the contents of storages into batches for the workers, while an archive is read in order.

use std::ops::Range;

use crossbeam_channel::{Receiver, Sender};
use slotpress_base::panic_point;
use slotpress_format::{NoSink, RecordWalker};

use super::visit::{RecordVisitor, StorageRef};

/// Length at which a batch is sent, in bytes. Sending then takes negligible time, and the batch fits into a
/// core's cache.
const BATCH_BYTES: usize = 512 * 1024;

#[derive(Default)]
pub struct StorageBatch {
    bytes: Vec<u8>,
    parts: Vec<StoragePart>,
}

/// The range of a batch that belongs to one storage, and the state of the record walk at its start.
struct StoragePart {
    storage: StorageRef,
    range: Range<usize>,
    walker: RecordWalker,
    is_last: bool,
}

pub struct Batcher {
    batches: Sender<StorageBatch>,
    free: Receiver<StorageBatch>,
    batch: StorageBatch,
    /// Part of the current storage in this batch. Its end is not known yet.
    current: Option<StoragePart>,
}

impl Batcher {
    pub fn new(batches: Sender<StorageBatch>, free: Receiver<StorageBatch>) -> Self {
        Self { batches, free, batch: StorageBatch::default(), current: None }
    }

    /// Begins an entry. `storage` is `None` if its records are not visited.
    pub fn begin(&mut self, storage: Option<StorageRef>) {
        self.current = storage.map(|storage| self.new_part(storage, RecordWalker::default()));
    }

    fn new_part(&self, storage: StorageRef, walker: RecordWalker) -> StoragePart {
        let start = self.batch.bytes.len();
        StoragePart { storage, range: start..start, walker, is_last: false }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        if self.current.is_none() {
            return;
        }
        // Long content is divided, so that the batch does not grow much beyond its limit.
        for piece in bytes.chunks(BATCH_BYTES) {
            self.batch.bytes.extend_from_slice(piece);
            if self.batch.bytes.len() >= BATCH_BYTES {
                self.send_within_storage();
            }
        }
    }

    /// Sends the batch, although the current storage continues. Walking over the record headers yields the
    /// state of the walk at the start of the next batch.
    fn send_within_storage(&mut self) {
        let Some(part) = self.current.take() else { return };
        let storage = part.storage;
        let mut walker = part.walker.clone();
        walker.feed(self.batch.bytes.get(part.range.start..).unwrap_or_default(), &mut NoSink);
        self.end_part(part);
        self.send();
        self.current = Some(self.new_part(storage, walker));
    }

    fn end_part(&mut self, mut part: StoragePart) {
        part.range.end = self.batch.bytes.len();
        self.batch.parts.push(part);
    }

    pub fn end(&mut self) {
        let Some(part) = self.current.take() else { return };
        self.end_part(StoragePart { is_last: true, ..part });
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
        let next = self.free.try_recv().unwrap_or_default();
        let batch = std::mem::replace(&mut self.batch, next);
        if !batch.parts.is_empty() {
            // Sending fails only if all workers have panicked. They report the panics themselves.
            let _ = self.batches.send(batch);
        }
    }
}

pub fn visit_batches(visitor: &dyn RecordVisitor, batches: &Receiver<StorageBatch>, emptied: &Sender<StorageBatch>) {
    let mut worker = visitor.new_worker();
    for mut batch in batches {
        panic_point("record worker");
        for StoragePart { storage, range, mut walker, is_last } in batch.parts.drain(..) {
            worker.begin(storage);
            walker.feed(batch.bytes.get(range).unwrap_or_default(), worker.as_mut());
            if is_last {
                walker.finish(worker.as_mut());
            }
        }
        batch.bytes.clear();
        // Sending fails if the channel has enough free batches.
        let _ = emptied.try_send(batch);
    }
}
