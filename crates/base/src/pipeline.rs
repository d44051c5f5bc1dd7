//! Runs work on several threads, in bounded memory, and passes on the results in order.
//!
//! Each worker takes the next item, processes it into an output buffer, and sends the buffer to the
//! calling thread, which puts the results in order. A worker takes a free buffer before it takes an
//! item, so the oldest unfinished item always has a buffer, and the pipeline cannot stall. The number of
//! buffers bounds memory.

use std::iter::Enumerate;
use std::sync::Mutex;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::{Progress, Result, catch_panic, spawn_workers};

/// Output buffers for each worker: one that it fills, and one that it has sent. The calling thread
/// holds one more.
pub const OUTPUT_BUFFERS_PER_WORKER: usize = 2;

/// Processes every item on a worker thread. Passes the results to `on_result` on the calling
/// thread, in the order of the items.
///
/// Calls `new_worker` at most once on each of `workers` threads. A worker turns an item into a value, and
/// into bytes in the given buffer, which it must clear first. Workers take items under a lock, so
/// an iterator that does work itself (reading, or decoding that cannot be split) runs on one thread
/// at a time.
///
/// The first error in the order of the items ends the run. It is returned after the results of all earlier
/// items, so errors do not depend on timing. A panic in the items, a worker or `on_result` also ends the run
/// with an error, and so does a thread that cannot be started.
pub fn run_in_order<T, U, W>(
    items: impl Iterator<Item = Result<T>> + Send,
    workers: usize,
    new_worker: &(dyn Fn() -> Result<W> + Sync),
    progress: &dyn Progress,
    on_result: &mut dyn FnMut(&[u8], U) -> Result<()>,
) -> Result<()>
where
    T: Send,
    U: Send,
    W: FnMut(T, &mut Vec<u8>) -> Result<U>,
{
    let workers = workers.max(1);
    let buffers = workers * OUTPUT_BUFFERS_PER_WORKER + 1;
    let (free_tx, free_rx) = bounded::<Vec<u8>>(buffers);
    for _ in 0..buffers {
        // Cannot fail: the channel has room for all buffers, and its receiver exists.
        let _ = free_tx.send(Vec::new());
    }
    let (done_tx, done_rx) = bounded::<Result<FinishedItem<U>>>(buffers);
    let items = Mutex::new(items.enumerate());
    std::thread::scope(|scope| {
        let items = &items;
        let started = spawn_workers(scope, workers, || {
            let thread =
                WorkerThread { items, new_worker, progress, free_rx: free_rx.clone(), done_tx: done_tx.clone() };
            move || thread.run()
        });
        drop((free_rx, done_tx));
        let result = started.and_then(|()| catch_panic(|| order_results(&done_rx, &free_tx, buffers, on_result)));
        // After an error, this wakes waiting workers. Otherwise they have already ended.
        drop((done_rx, free_tx));
        result
    })
}

struct WorkerThread<'a, I, W, U> {
    items: &'a Mutex<Enumerate<I>>,
    new_worker: &'a (dyn Fn() -> Result<W> + Sync),
    progress: &'a dyn Progress,
    free_rx: Receiver<Vec<u8>>,
    done_tx: Sender<Result<FinishedItem<U>>>,
}

impl<T, U, W, I> WorkerThread<'_, I, W, U>
where
    I: Iterator<Item = Result<T>>,
    W: FnMut(T, &mut Vec<u8>) -> Result<U>,
{
    fn run(self) {
        if let Err(error) = catch_panic(|| self.process_all()) {
            // Later results would wait for this item forever, so the run must end.
            let _ = self.done_tx.send(Err(error));
        }
    }

    fn process_all(&self) -> Result<()> {
        let mut worker = None;
        for mut bytes in &self.free_rx {
            // If the iterator panicked, the poisoned lock ends the other workers, too.
            let next = self.items.lock().map(|mut items| items.next()).unwrap_or_default();
            let Some((number, item)) = next else { break };
            let result = self.process(item, &mut worker, &mut bytes);
            let is_error = result.is_err();
            if self.done_tx.send(Ok(FinishedItem { number, bytes, result })).is_err() || is_error {
                break;
            }
        }
        Ok(())
    }

    fn process(&self, item: Result<T>, worker: &mut Option<W>, bytes: &mut Vec<u8>) -> Result<U> {
        self.progress.check()?;
        let worker = match worker {
            Some(worker) => worker,
            None => worker.insert((self.new_worker)()?),
        };
        worker(item?, bytes)
    }
}

struct FinishedItem<U> {
    number: usize,
    bytes: Vec<u8>,
    result: Result<U>,
}

fn order_results<U>(
    done_rx: &Receiver<Result<FinishedItem<U>>>,
    free_tx: &Sender<Vec<u8>>,
    buffers: usize,
    on_result: &mut dyn FnMut(&[u8], U) -> Result<()>,
) -> Result<()> {
    // Each item that waits here keeps its buffer, so the numbers of waiting items differ by less than
    // `buffers`.
    let mut early: Vec<Option<FinishedItem<U>>> = (0..buffers).map(|_| None).collect();
    let mut next = 0;
    for finished in done_rx {
        let finished = finished?;
        let index = finished.number % buffers;
        early[index] = Some(finished);
        while let Some(finished) = early[next % buffers].take() {
            on_result(&finished.bytes, finished.result?)?;
            next += 1;
            // Fails only if all workers have ended.
            let _ = free_tx.send(finished.bytes);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Error, NoProgress};

    type Worker = fn(u64, &mut Vec<u8>) -> Result<u64>;

    fn new_doubling_worker() -> Result<Worker> {
        Ok(|item, buffer| {
            buffer.clear();
            buffer.extend_from_slice(&item.to_le_bytes());
            // Later items finish earlier.
            std::thread::sleep(std::time::Duration::from_micros(item % 7 * 50));
            if item == 1_000 { Err(Error::failed("item 1000")) } else { Ok(item * 2) }
        })
    }

    #[test]
    fn panics_end_the_run() {
        for place in ["items", "new_worker", "worker", "on_result"] {
            for (at, workers) in [(0u64, 1usize), (0, 4), (7, 2), (7, 4), (99, 3)] {
                let items =
                    (0..100u64).map(|item| if item == at && place == "items" { panic!("it breaks") } else { Ok(item) });
                let new_worker = || -> Result<_> {
                    assert!(place != "new_worker", "it breaks");
                    Ok(
                        |item: u64, _: &mut Vec<u8>| {
                            if item == at && place == "worker" { panic!("it breaks") } else { Ok(item) }
                        },
                    )
                };
                let error = run_in_order(items, workers, &new_worker, &NoProgress, &mut |_, item| {
                    assert!(item != at || place != "on_result", "it breaks");
                    Ok(())
                })
                .expect_err("an error");
                assert!(error.to_string().contains("it breaks"), "{place}, {at}, {workers}: {error}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn results_come_in_order(count in 0u64..100, workers in 1usize..9) {
            let mut results = Vec::new();
            run_in_order((0..count).map(Ok), workers, &new_doubling_worker, &NoProgress, &mut |bytes, value| {
                assert_eq!(bytes, (value / 2).to_le_bytes());
                results.push(value);
                Ok(())
            }).expect("no error");
            prop_assert_eq!(results, (0..count).map(|item| item * 2).collect::<Vec<_>>());
        }

        /// An error in the items, in a worker or in the consumer ends the run, wherever it is.
        #[test]
        fn errors_end_the_run(
            at in 0u64..60,
            expected in prop::sample::select(&["bad item", "item 1000", "bad result"][..]),
            workers in 1usize..5,
        ) {
            let items = (0..100u64).map(|item| match expected {
                "bad item" if item == at => Err(Error::failed("bad item")),
                "item 1000" if item == at => Ok(1_000),
                _ => Ok(item),
            });
            let result = run_in_order(items, workers, &new_doubling_worker, &NoProgress, &mut |_, value| {
                if expected == "bad result" && value == at * 2 { Err(Error::failed("bad result")) } else { Ok(()) }
            });
            prop_assert_eq!(result.expect_err("an error").to_string(), expected);
        }
    }
}
