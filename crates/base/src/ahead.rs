//! Reads items that are not in the page cache before the workers need them. So the number of
//! concurrent disk requests does not depend on the number of workers, and no worker waits for the
//! disk while another item is ready.
//!
//! Workers read items in the page cache themselves. The first item that is not in the page cache
//! starts the reading threads.

use std::collections::VecDeque;
use std::thread::{Builder, Scope};

use parking_lot::{Condvar, Mutex};

use crate::io::direct::tell_of_others;
use crate::threads::guarded;
use crate::{Progress, Result, panic_point};

/// Number of reading threads, and so of concurrent disk requests: enough for the full rate of
/// most disks.
pub const READERS: usize = 4;

/// Name of the reading threads.
pub const READER_NAME: &str = "reads ahead";

/// Limit on the bytes that are read ahead.
pub const AHEAD_BYTES: u64 = 32 * 1024 * 1024;

/// Limit on the number of items that are read ahead, if items are small.
const ITEMS_MAX: u64 = 32;

/// How items are read.
pub struct Reading<'a, T> {
    /// True if an item is probably not in the page cache. Called for each item, so it must
    /// be cheap.
    pub is_cold: &'a (dyn Fn(&T) -> bool + Sync),
    /// Reads an item into a buffer, whose content it replaces.
    pub read: &'a (dyn Fn(&T, &mut Vec<u8>) -> Result<()> + Sync),
    /// Limit on the bytes of an item.
    pub item_bytes_max: u64,
    /// Bytes that may be read ahead; [`AHEAD_BYTES`] limits them, too. If they do not suffice for
    /// an item, nothing is read ahead.
    pub ahead_bytes_max: u64,
}

/// Calls `work` with an iterator over the items in order. `work` gets the bytes of each by
/// [`Ahead::read`]. An item is an error only if a thread panicked.
///
/// # Errors
/// Those of `work`.
pub fn read_ahead<T: Send, R>(
    items: impl Iterator<Item = T> + Send,
    reading: &Reading<'_, T>,
    progress: &dyn Progress,
    work: impl FnOnce(&mut (dyn Iterator<Item = Result<Ahead<'_, T>>> + Send)) -> Result<R>,
) -> Result<R> {
    let count = reading.ahead_bytes_max.min(AHEAD_BYTES) / reading.item_bytes_max.max(1);
    let state =
        State { items, queue: VecDeque::new(), passed_on: 0, free: Vec::new(), lent: 0, readers: None, is_over: false };
    let queue = Queue {
        reading,
        progress,
        count: count.min(ITEMS_MAX) as usize,
        state: Mutex::new(state),
        is_read: Condvar::new(),
        has_room: Condvar::new(),
    };
    let result = std::thread::scope(|scope| {
        let _end = End(&queue);
        work(&mut std::iter::from_fn(|| queue.next(scope)))
    });
    tell_of_others(progress);
    result
}

/// An item that was read ahead, or is still to be read.
pub struct Ahead<'a, T> {
    item: T,
    read: Option<Lent<'a, T>>,
    source: &'a dyn Source<T>,
}

impl<T> Ahead<'_, T> {
    pub fn item(&self) -> &T {
        &self.item
    }

    /// Moves the bytes that were read ahead into `to`. Returns false if the item was not
    /// read ahead.
    pub fn take(&mut self, to: &mut Vec<u8>) -> bool {
        self.read.take().map(|mut read| std::mem::swap(&mut read.buffer, to)).is_some()
    }

    /// Moves the bytes that were read ahead into `to`, or reads the item now.
    ///
    /// # Errors
    /// The item cannot be read.
    pub fn read(mut self, to: &mut Vec<u8>) -> Result<T> {
        if !self.take(to) {
            self.source.read(&self.item, to)?;
        }
        Ok(self.item)
    }
}

/// A lent buffer. Dropping this value gives the buffer back, or the one for which it was swapped.
struct Lent<'a, T> {
    buffer: Vec<u8>,
    source: &'a dyn Source<T>,
}

impl<T> Drop for Lent<'_, T> {
    fn drop(&mut self) {
        self.source.give(std::mem::take(&mut self.buffer));
    }
}

trait Source<T>: Sync {
    fn read(&self, item: &T, to: &mut Vec<u8>) -> Result<()>;

    fn give(&self, buffer: Vec<u8>);
}

struct Queue<'a, I, T> {
    reading: &'a Reading<'a, T>,
    progress: &'a dyn Progress,
    /// Limit on the items in the queue, and on lent buffers.
    count: usize,
    state: Mutex<State<I, T>>,
    is_read: Condvar,
    has_room: Condvar,
}

/// An item in the queue; `None` while it is being read. It has no bytes if it is left to
/// the worker.
type Slot<T> = Option<Result<(T, Option<Vec<u8>>)>>;

struct State<I, T> {
    items: I,
    queue: VecDeque<Slot<T>>,
    /// Number of items that left the queue.
    passed_on: usize,
    /// Buffers that are not lent.
    free: Vec<Vec<u8>>,
    /// Number of buffers lent to items, in the queue or passed on but not yet read.
    lent: usize,
    /// Number of reading threads; `None` until they are needed.
    readers: Option<usize>,
    is_over: bool,
}

impl<I: Send, T: Send> Source<T> for Queue<'_, I, T> {
    fn read(&self, item: &T, to: &mut Vec<u8>) -> Result<()> {
        (self.reading.read)(item, to)
    }

    fn give(&self, buffer: Vec<u8>) {
        let mut state = self.state.lock();
        state.free.push(buffer);
        state.lent -= 1;
        self.has_room.notify_all();
    }
}

impl<I: Iterator<Item = T> + Send, T: Send> Queue<'_, I, T> {
    fn next<'s>(&'s self, scope: &'s Scope<'s, '_>) -> Option<Result<Ahead<'s, T>>> {
        let ahead = |(item, buffer): (T, Option<Vec<u8>>)| {
            let read = buffer.map(|buffer| Lent { buffer, source: self });
            Ahead { item, read, source: self }
        };
        let mut state = self.state.lock();
        loop {
            match state.queue.front() {
                Some(Some(_)) => {
                    let read = state.queue.pop_front().flatten();
                    state.passed_on += 1;
                    self.has_room.notify_all();
                    return read.map(|read| read.map(ahead));
                }
                None if state.is_over => return None,
                None if state.readers.is_none_or(|readers| readers == 0) => {
                    let Some(item) = state.items.next() else {
                        state.is_over = true;
                        return None;
                    };
                    if self.count > 0 && state.readers.is_none() && (self.reading.is_cold)(&item) {
                        state.readers = Some(self.start(scope));
                    }
                    return Some(Ok(ahead((item, None))));
                }
                _ => self.is_read.wait(&mut state),
            }
        }
    }

    /// Starts the reading threads. If none can be started, workers read all items themselves, so
    /// nobody is warned.
    fn start<'s>(&'s self, scope: &'s Scope<'s, '_>) -> usize {
        let start = |_: &usize| {
            let thread = Builder::new().name(READER_NAME.into());
            thread.spawn_scoped(scope, || self.read_all()).is_ok()
        };
        (0..READERS.min(self.count)).take_while(start).count()
    }

    fn read_all(&self) {
        while let Some((number, item, mut buffer)) = self.take() {
            let read = guarded(|| {
                panic_point("reading ahead");
                // If reading fails, the worker reads the item again, and handles the error.
                let is_read = (self.reading.is_cold)(&item) && (self.reading.read)(&item, &mut buffer).is_ok();
                tell_of_others(self.progress);
                Ok(is_read)
            });
            let is_read = matches!(read, Ok(true));
            let mut buffer = Some(buffer);
            if !is_read {
                buffer.take().into_iter().for_each(|buffer| self.give(buffer));
            }
            let mut state = self.state.lock();
            let at = number - state.passed_on;
            state.queue[at] = Some(read.map(|_| (item, buffer)));
            self.is_read.notify_all();
        }
    }

    /// Takes the next item when the queue has room for it; `None` at the end.
    fn take(&self) -> Option<(usize, T, Vec<u8>)> {
        let mut state = self.state.lock();
        self.has_room.wait_while(&mut state, |state| {
            (state.lent >= self.count || state.queue.len() >= self.count) && !state.is_over
        });
        let item = match guarded(|| Ok(if state.is_over { None } else { state.items.next() })) {
            Ok(item) => item,
            Err(died) => {
                state.queue.push_back(Some(Err(died)));
                None
            }
        };
        let Some(item) = item else {
            state.is_over = true;
            self.is_read.notify_all();
            self.has_room.notify_all();
            return None;
        };
        state.queue.push_back(None);
        let number = state.passed_on + state.queue.len() - 1;
        state.lent += 1;
        let mut buffer = state.free.pop().unwrap_or_default();
        drop(state);
        // A vector that grows by itself may take twice as much memory.
        buffer.reserve_exact((self.reading.item_bytes_max as usize).saturating_sub(buffer.len()));
        Some((number, item, buffer))
    }
}

/// Ends the reading threads when it is dropped.
struct End<'a, 'q, I, T>(&'a Queue<'q, I, T>);

impl<I, T> Drop for End<'_, '_, I, T> {
    fn drop(&mut self) {
        self.0.state.lock().is_over = true;
        self.0.has_room.notify_all();
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

    fn reading<'a>(
        is_cold: &'a (dyn Fn(&u64) -> bool + Sync),
        read: &'a (dyn Fn(&u64, &mut Vec<u8>) -> Result<()> + Sync),
        count: u64,
    ) -> Reading<'a, u64> {
        Reading { is_cold, read, item_bytes_max: 1000, ahead_bytes_max: count * 1000 }
    }

    fn write(item: u64, to: &mut Vec<u8>) {
        to.clear();
        to.extend_from_slice(&item.to_le_bytes());
    }

    fn read_each(items: &mut (dyn Iterator<Item = Result<Ahead<'_, u64>>> + Send)) -> Result<()> {
        let mut to = Vec::new();
        for item in items {
            item?.read(&mut to)?;
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        /// All items arrive in order with their bytes, whichever of them are cold, and whichever
        /// cannot be read ahead.
        #[test]
        fn all_is_read_in_order(
            cold in proptest::collection::vec(any::<bool>(), 0..80),
            failing in proptest::collection::btree_set(0u64..80, 0..5),
            count in 0u64..7,
            workers in 1usize..4,
        ) {
            let read = |item: &u64, to: &mut Vec<u8>| {
                let is_ahead = std::thread::current().name() == Some(READER_NAME);
                if is_ahead && failing.contains(item) { return Err(Error::failed("not now")) }
                write(*item, to);
                Ok(())
            };
            let is_cold = |item: &u64| cold[*item as usize];
            let new_worker = || Ok(|item: Ahead<'_, u64>, to: &mut Vec<u8>| item.read(to));
            let mut arrived = Vec::new();
            read_ahead(0..cold.len() as u64, &reading(&is_cold, &read, count), &NoProgress, |items| {
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
        fn an_end_ends_all(at in 0usize..40, count in 1u64..7, is_error in any::<bool>()) {
            let read = |item: &u64, to: &mut Vec<u8>| { write(*item, to); Ok(()) };
            let result = read_ahead(0..100, &reading(&|_| true, &read, count), &NoProgress, |items| {
                assert_eq!(items.take(at).count(), at);
                if is_error { Err(Error::failed("enough")) } else { Ok(()) }
            });
            prop_assert_eq!(result.is_err(), is_error);
        }
    }

    /// All reading threads read cold items at the same time, although there is one worker. The
    /// worker reads the other items.
    #[test]
    fn a_disk_gets_several_requests() {
        let (together, ahead) = (Barrier::new(READERS), AtomicUsize::new(0));
        let read = |item: &u64, to: &mut Vec<u8>| {
            if std::thread::current().name() == Some(READER_NAME) {
                // Passes only when all reading threads read.
                together.wait();
                ahead.fetch_add(1, SeqCst);
            }
            write(*item, to);
            Ok(())
        };
        for is_cold in [false, true] {
            // The first cold item is not read ahead: it starts the threads.
            let count = 3 * READERS as u64 + 1;
            read_ahead(0..count, &reading(&|_| is_cold, &read, count), &NoProgress, |items| read_each(items))
                .expect("read");
            assert_eq!(ahead.swap(0, SeqCst), if is_cold { 3 * READERS } else { 0 });
        }
    }

    /// No more items are read ahead than there is memory for.
    #[test]
    fn what_is_read_ahead_is_bounded() {
        const COUNT: usize = 5;
        let (read_ahead_count, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let read = |item: &u64, to: &mut Vec<u8>| {
            assert!(read_ahead_count.fetch_add(1, SeqCst) < taken.load(SeqCst) + COUNT + 1);
            write(*item, to);
            Ok(())
        };
        read_ahead(0..100, &reading(&|_| true, &read, COUNT as u64), &NoProgress, |items| {
            read_each(&mut items.inspect(|_| {
                taken.fetch_add(1, SeqCst);
            }))
        })
        .expect("read");
    }

    /// Items that are left to the worker do not pile up in the queue either.
    #[test]
    fn what_is_left_to_the_work_is_bounded() {
        const COUNT: usize = 5;
        let (made, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let items = (0..200u64).inspect(|_| {
            assert!(made.fetch_add(1, SeqCst) < taken.load(SeqCst) + COUNT + 1);
        });
        let read = |item: &u64, to: &mut Vec<u8>| {
            write(*item, to);
            Ok(())
        };
        read_ahead(items, &reading(&|item| *item == 0, &read, COUNT as u64), &NoProgress, |items| {
            read_each(&mut items.inspect(|_| {
                taken.fetch_add(1, SeqCst);
            }))
        })
        .expect("read");
    }

    /// A panic in the items, or while one is read, ends the work with an error.
    #[test]
    fn panics_end_the_work() {
        for place in 0..2 {
            let items = (0..50u64).inspect(|item| assert!(place != 0 || *item != 20, "it breaks"));
            let read = |item: &u64, to: &mut Vec<u8>| {
                assert!(place != 1 || *item != 20, "it breaks");
                write(*item, to);
                Ok(())
            };
            let error = read_ahead(items, &reading(&|_| true, &read, 4), &NoProgress, |items| read_each(items))
                .expect_err("an error");
            assert!(error.to_string().contains("it breaks"), "{place}: {error}");
        }
    }
}
