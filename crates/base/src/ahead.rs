//! Reads items that are not in the page cache before the workers need them. The number of concurrent
//! disk requests then does not depend on the number of workers, and workers seldom wait for the disk.
//!
//! Workers read items in the page cache themselves. The first item that is not in the page cache starts the
//! reading threads. A thread takes a free buffer before it takes an item. Therefore, the number of buffers
//! bounds what is read ahead, and the oldest item always has a buffer.

use std::iter::Enumerate;
use std::thread::{Builder, Scope};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use parking_lot::Mutex;

use crate::{Result, catch_panic, panic_point, spawn_error};

/// Number of reading threads, each with one disk request at a time: enough for the full rate of
/// most disks.
pub const READERS: usize = 4;

pub const READER_NAME: &str = "reads ahead";

/// Limit on the bytes that are read ahead.
pub const AHEAD_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// Limit on the number of items that are read ahead, if items are small.
const ITEMS_MAX: u64 = 32;

/// Reads items, and says which of them are worth reading ahead.
pub struct ItemReader<'a, T> {
    /// True if an item is probably not in the page cache. Called for each item, so it must
    /// be cheap.
    pub is_cold: &'a (dyn Fn(&T) -> bool + Sync),
    /// Reads an item into a buffer, whose content it replaces.
    pub read: &'a (dyn Fn(&T, &mut Vec<u8>) -> Result<()> + Sync),
    pub item_bytes_max: u64,
    /// Limit on the bytes that are read ahead; a limit above [`AHEAD_BYTES_MAX`] has no effect. If it is
    /// too small for one item, nothing is read ahead.
    pub ahead_bytes_max: u64,
}

/// An item that was read ahead, or is still to be read.
pub struct AheadItem<'a, T> {
    item: T,
    lent_buffer: Option<LentBuffer>,
    reader: &'a ItemReader<'a, T>,
}

impl<T> AheadItem<'_, T> {
    pub fn item(&self) -> &T {
        &self.item
    }

    /// Moves the bytes that were read ahead into `buffer`. Returns false, and may leave arbitrary bytes
    /// in `buffer`, if the item was not read ahead.
    pub fn take_bytes(&mut self, buffer: &mut Vec<u8>) -> bool {
        let Some(mut lent_buffer) = self.lent_buffer.take() else { return false };
        std::mem::swap(&mut lent_buffer.bytes, buffer);
        lent_buffer.is_read
    }

    /// Moves the bytes that were read ahead into `buffer`, or reads the item now.
    ///
    /// # Errors
    /// The item cannot be read.
    pub fn read(mut self, buffer: &mut Vec<u8>) -> Result<T> {
        if !self.take_bytes(buffer) {
            (self.reader.read)(&self.item, buffer)?;
        }
        Ok(self.item)
    }
}

/// A buffer that is lent to a worker. Dropping this value returns the buffer, or the buffer for which
/// the worker has exchanged it.
struct LentBuffer {
    bytes: Vec<u8>,
    /// False if the worker must read the item itself.
    is_read: bool,
    free_tx: Sender<Vec<u8>>,
}

impl Drop for LentBuffer {
    fn drop(&mut self) {
        // Cannot fail: the queue keeps a receiver, and the channel has room for all buffers.
        let _ = self.free_tx.send(std::mem::take(&mut self.bytes));
    }
}

/// An item that a reading thread has taken. `is_read` is true if it was read into the buffer.
struct TakenItem<T> {
    number: usize,
    item: T,
    buffer: Vec<u8>,
    is_read: bool,
}

/// Calls `work` with an iterator over the items in order. `work` reads each item with
/// [`AheadItem::read`]. The iterator returns an error only if a thread panics, or cannot be started.
///
/// # Errors
/// The errors of `work`.
pub fn read_ahead<T: Send, R>(
    items: impl Iterator<Item = T> + Send,
    reader: &ItemReader<'_, T>,
    work: impl FnOnce(&mut (dyn Iterator<Item = Result<AheadItem<'_, T>>> + Send)) -> Result<R>,
) -> Result<R> {
    let buffers = (reader.ahead_bytes_max.min(AHEAD_BYTES_MAX) / reader.item_bytes_max.max(1)).min(ITEMS_MAX) as usize;
    let (free_tx, free_rx) = bounded(buffers);
    let (taken_tx, taken_rx) = unbounded();
    let queue = ItemQueue { items: Mutex::new(items.enumerate()), reader, free_rx };
    std::thread::scope(|scope| {
        let early = (0..buffers).map(|_| None).collect();
        let mut in_order =
            ItemsInOrder { queue: &queue, scope, free_tx, taken_tx: Some(taken_tx), taken_rx, early, next: 0 };
        // Dropping the iterator closes the channels, which ends the threads.
        work(&mut in_order)
    })
}

struct ItemQueue<'a, I, T> {
    items: Mutex<Enumerate<I>>,
    reader: &'a ItemReader<'a, T>,
    free_rx: Receiver<Vec<u8>>,
}

impl<I: Iterator<Item = T>, T> ItemQueue<'_, I, T> {
    fn read_all(&self, taken_tx: &Sender<Result<TakenItem<T>>>) {
        for buffer in &self.free_rx {
            let Some(taken) = catch_panic(|| Ok(self.read_next(buffer))).transpose() else { return };
            // Fails when `work` has ended.
            if taken_tx.send(taken).is_err() {
                return;
            }
        }
    }

    fn read_next(&self, mut buffer: Vec<u8>) -> Option<TakenItem<T>> {
        panic_point("reading ahead");
        let reader = self.reader;
        let (number, item) = self.items.lock().next()?;
        // A vector that grows by itself may take twice as much memory.
        buffer.reserve_exact((reader.item_bytes_max as usize).saturating_sub(buffer.len()));
        // If reading fails, the worker reads the item again, and returns the error.
        let is_read = (reader.is_cold)(&item) && (reader.read)(&item, &mut buffer).is_ok();
        Some(TakenItem { number, item, buffer, is_read })
    }
}

struct ItemsInOrder<'s, 'e, I, T> {
    queue: &'s ItemQueue<'e, I, T>,
    scope: &'s Scope<'s, 'e>,
    free_tx: Sender<Vec<u8>>,
    /// Sender for the reading threads; `None` once they are started.
    taken_tx: Option<Sender<Result<TakenItem<T>>>>,
    taken_rx: Receiver<Result<TakenItem<T>>>,
    /// Items that arrived before their turn, each at its number modulo the vector's length. Their numbers
    /// differ by less than that length.
    early: Vec<Option<TakenItem<T>>>,
    next: usize,
}

impl<I: Iterator<Item = T> + Send, T: Send> ItemsInOrder<'_, '_, I, T> {
    fn start_threads(&mut self) -> Result<()> {
        let Some(taken_tx) = &self.taken_tx else { return Ok(()) };
        for _ in 0..READERS.min(self.early.len()) {
            let queue = self.queue;
            let taken_tx = taken_tx.clone();
            let thread = Builder::new().name(READER_NAME.into());
            let started = thread.spawn_scoped(self.scope, move || queue.read_all(&taken_tx));
            started.map_err(|error| spawn_error(&error))?;
        }
        self.taken_tx = None;
        for _ in 0..self.early.len() {
            // Cannot fail: the channel has room for all buffers.
            let _ = self.free_tx.send(Vec::new());
        }
        Ok(())
    }
}

impl<'s, I: Iterator<Item = T> + Send, T: Send> Iterator for ItemsInOrder<'s, '_, I, T> {
    type Item = Result<AheadItem<'s, T>>;

    fn next(&mut self) -> Option<Self::Item> {
        let reader = self.queue.reader;
        let buffers = self.early.len();
        if self.taken_tx.is_some() {
            let (number, item) = self.queue.items.lock().next()?;
            self.next = number + 1;
            // The first cold item starts the reading threads.
            if buffers > 0
                && (reader.is_cold)(&item)
                && let Err(error) = self.start_threads()
            {
                return Some(Err(error));
            }
            return Some(Ok(AheadItem { item, lent_buffer: None, reader }));
        }
        loop {
            if let Some(TakenItem { item, buffer, is_read, .. }) = self.early[self.next % buffers].take() {
                self.next += 1;
                let lent_buffer = Some(LentBuffer { bytes: buffer, is_read, free_tx: self.free_tx.clone() });
                return Some(Ok(AheadItem { item, lent_buffer, reader }));
            }
            match self.taken_rx.recv().ok()? {
                Ok(taken) => {
                    let index = taken.number % buffers;
                    self.early[index] = Some(taken);
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::SeqCst;

    use proptest::prelude::*;

    use super::*;
    use crate::{Error, NoProgress, run_in_order};

    fn new_reader<'a>(
        is_cold: &'a (dyn Fn(&u64) -> bool + Sync),
        read: &'a (dyn Fn(&u64, &mut Vec<u8>) -> Result<()> + Sync),
        count: u64,
    ) -> ItemReader<'a, u64> {
        ItemReader { is_cold, read, item_bytes_max: 1000, ahead_bytes_max: count * 1000 }
    }

    fn write_item(item: &u64, buffer: &mut Vec<u8>) -> Result<()> {
        buffer.clear();
        buffer.extend_from_slice(&item.to_le_bytes());
        Ok(())
    }

    fn read_each(items: &mut (dyn Iterator<Item = Result<AheadItem<'_, u64>>> + Send)) -> Result<()> {
        let mut buffer = Vec::new();
        for item in items {
            item?.read(&mut buffer)?;
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        /// All items arrive in order with their bytes, whichever of them are cold, and whichever
        /// cannot be read ahead.
        #[test]
        fn all_items_are_read_in_order(
            cold in proptest::collection::vec(any::<bool>(), 0..80),
            failing in proptest::collection::btree_set(0u64..80, 0..5),
            buffers in 0u64..7,
            workers in 1usize..4,
        ) {
            let read = |item: &u64, buffer: &mut Vec<u8>| {
                let is_ahead = std::thread::current().name() == Some(READER_NAME);
                if is_ahead && failing.contains(item) { return Err(Error::failed("not now")) }
                write_item(item, buffer)
            };
            let is_cold = |item: &u64| cold[*item as usize];
            let new_worker = || Ok(|item: AheadItem<'_, u64>, buffer: &mut Vec<u8>| item.read(buffer));
            let mut arrived = Vec::new();
            read_ahead(0..cold.len() as u64, &new_reader(&is_cold, &read, buffers), |items| {
                run_in_order(items, workers, &new_worker, &NoProgress, &mut |bytes, item| {
                    assert_eq!(bytes, item.to_le_bytes());
                    arrived.push(item);
                    Ok(())
                })
            }).expect("read");
            prop_assert_eq!(arrived, (0..cold.len() as u64).collect::<Vec<_>>());
        }

        /// The reading threads end if `work` fails, or ends before it has taken all items.
        #[test]
        fn reading_threads_end_with_the_work(taken in 0usize..40, buffers in 1u64..7, is_error in any::<bool>()) {
            let result = read_ahead(0..100, &new_reader(&|_| true, &write_item, buffers), |items| {
                assert_eq!(items.take(taken).count(), taken);
                if is_error { Err(Error::failed("enough")) } else { Ok(()) }
            });
            prop_assert_eq!(result.is_err(), is_error);
        }
    }

    /// All reading threads read cold items at the same time, although there is only one worker. The worker
    /// itself reads items that are in the page cache.
    #[test]
    fn a_disk_receives_several_requests_at_once() {
        let all_reading = Barrier::new(READERS);
        let ahead = AtomicUsize::new(0);
        let read = |item: &u64, buffer: &mut Vec<u8>| {
            if std::thread::current().name() == Some(READER_NAME) {
                // Returns only when all reading threads are reading.
                all_reading.wait();
                ahead.fetch_add(1, SeqCst);
            }
            write_item(item, buffer)
        };
        for is_cold in [false, true] {
            // The first cold item is not read ahead: it starts the threads.
            let count = 3 * READERS as u64 + 1;
            read_ahead(0..count, &new_reader(&|_| is_cold, &read, count), |items| read_each(items)).expect("read");
            assert_eq!(ahead.swap(0, SeqCst), if is_cold { 3 * READERS } else { 0 });
        }
    }

    /// Only as many items are taken as there are buffers, whether they are read ahead or by the worker.
    #[test]
    fn the_items_read_ahead_are_bounded() {
        const BUFFERS: usize = 5;
        for all_are_cold in [false, true] {
            let taken = AtomicUsize::new(0);
            let passed_on = AtomicUsize::new(0);
            let items = (0..200u64).inspect(|_| {
                assert!(taken.fetch_add(1, SeqCst) < passed_on.load(SeqCst) + BUFFERS + 1);
            });
            let is_cold = |item: &u64| all_are_cold || *item == 0;
            let count_items = |items: &mut (dyn Iterator<Item = Result<AheadItem<'_, u64>>> + Send)| {
                read_each(&mut items.inspect(|_| assert!(passed_on.fetch_add(1, SeqCst) < 200)))
            };
            read_ahead(items, &new_reader(&is_cold, &write_item, BUFFERS as u64), count_items).expect("read");
        }
    }

    #[test]
    fn panics_end_the_work() {
        for breaks_while_read in [false, true] {
            let items = (0..50u64).inspect(|item| assert!(breaks_while_read || *item != 20, "it breaks"));
            let read = |item: &u64, buffer: &mut Vec<u8>| {
                assert!(!breaks_while_read || *item != 20, "it breaks");
                write_item(item, buffer)
            };
            let error =
                read_ahead(items, &new_reader(&|_| true, &read, 4), |items| read_each(items)).expect_err("an error");
            assert!(error.to_string().contains("it breaks"), "while read: {breaks_while_read}: {error}");
        }
    }
}
