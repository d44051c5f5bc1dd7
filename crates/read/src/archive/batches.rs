//! Divides the content of storages in an archive that is read in order into batches for the workers.

use std::ops::Range;

use crossbeam_channel::{Receiver, Sender};
use slotpress_format::{NoSink, RecordWalker};

use super::visit::{RecordVisitor, StorageRef};

/// A batch is sent at this length: the cost of a send is negligible, and the batch stays in a
/// core's cache.
const BATCH_BYTES: usize = 512 * 1024;

#[derive(Default)]
pub struct StorageBatch {
    bytes: Vec<u8>,
    parts: Vec<BatchItem>,
}

struct BatchItem {
    storage: StorageRef,
    range: Range<usize>,
    walker: RecordWalker,
    is_last: bool,
}

pub struct Batcher {
    batches: Sender<StorageBatch>,
    free: Receiver<StorageBatch>,
    batch: StorageBatch,
    /// The current storage, where its part of the batch begins, and the state of the walk there.
    current: Option<(StorageRef, usize, RecordWalker)>,
}

impl Batcher {
    pub fn new(batches: Sender<StorageBatch>, free: Receiver<StorageBatch>) -> Self {
        Self { batches, free, batch: StorageBatch::default(), current: None }
    }

    /// Begins a storage; `None` for an entry whose records are not visited.
    pub fn begin(&mut self, storage: Option<StorageRef>) {
        let start = self.batch.bytes.len();
        self.current = storage.map(|storage| (storage, start, RecordWalker::default()));
    }

    pub fn content(&mut self, bytes: &[u8]) {
        // A part at a time, so that the batch does not grow much beyond its limit if a piece is long.
        if self.current.is_none() {
            return;
        }
        for piece in bytes.chunks(BATCH_BYTES) {
            self.batch.bytes.extend_from_slice(piece);
            if self.batch.bytes.len() >= BATCH_BYTES {
                self.cut();
            }
        }
    }

    /// Sends the batch within a storage. Walking over record headers gives the state in which the
    /// next batch begins.
    fn cut(&mut self) {
        let Some((storage, start, walker)) = self.current.take() else { return };
        let mut next = walker.clone();
        next.feed(self.batch.bytes.get(start..).unwrap_or_default(), &mut NoSink);
        self.end_part(storage, start, walker, false);
        self.send();
        self.current = Some((storage, 0, next));
    }

    fn end_part(&mut self, storage: StorageRef, start: usize, walker: RecordWalker, is_last: bool) {
        let range = start..self.batch.bytes.len();
        self.batch.parts.push(BatchItem { storage, range, walker, is_last });
    }

    pub fn end(&mut self) {
        let Some((storage, start, walker)) = self.current.take() else { return };
        self.end_part(storage, start, walker, true);
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
            // Fails only if all workers have ended: at the end, or by a panic, which they report
            // themselves.
            let _ = self.batches.send(batch);
        }
    }
}

pub fn visit_batches(visitor: &dyn RecordVisitor, batches: &Receiver<StorageBatch>, free: &Sender<StorageBatch>) {
    let mut worker = visitor.new_worker();
    for mut batch in batches {
        slotpress_base::threads::panic_point("record worker");
        for BatchItem { storage, range, mut walker, is_last } in batch.parts.drain(..) {
            worker.begin(storage);
            walker.feed(batch.bytes.get(range).unwrap_or_default(), worker.as_mut());
            if is_last {
                walker.finish(worker.as_mut());
            }
        }
        batch.bytes.clear();
        // Fails if the channel has enough free batches.
        let _ = free.try_send(batch);
    }
}
