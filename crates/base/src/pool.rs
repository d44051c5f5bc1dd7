//! Threads of rayon, as many as the caller allows. rayon's global pool, which takes every core, is
//! never used.

use rayon::{Scope, ThreadPool, ThreadPoolBuilder};

use crate::{Result, cannot_start};

/// Threads for parallel iterators and tasks, which exist as long as the pool. Starting them takes tens
/// of microseconds.
#[derive(Debug)]
pub struct Pool(ThreadPool);

impl Pool {
    /// Starts `threads` threads, at least one.
    ///
    /// # Errors
    /// The system refuses.
    pub fn start(threads: usize) -> Result<Self> {
        // rayon would start one thread per core for 0.
        let pool = ThreadPoolBuilder::new().num_threads(threads.max(1)).build();
        pool.map(Self).map_err(|error| cannot_start(&std::io::Error::other(error)))
    }

    /// Runs `work`, whose parallel iterators use only these threads.
    pub fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.0.install(work)
    }

    /// Runs `work` on one of the threads, in the order of the calls. It must not panic.
    pub fn spawn(&self, work: impl FnOnce() + Send + 'static) {
        self.0.spawn_fifo(work);
    }

    /// Runs `work` on the calling thread, and what it spawns on these threads. Waits for all of them.
    pub fn scope<'scope, R>(&self, work: impl FnOnce(&Scope<'scope>) -> R) -> R {
        self.0.in_place_scope(work)
    }
}

#[cfg(test)]
mod tests {
    use rayon::prelude::*;

    use super::*;

    #[test]
    fn no_more_threads_than_asked_for() {
        for (asked, expected) in [(0, 1), (1, 1), (3, 3)] {
            let pool = Pool::start(asked).expect("starts");
            let seen: Vec<usize> =
                pool.run(|| (0..100).into_par_iter().map(|_| rayon::current_num_threads()).collect());
            assert!(seen.iter().all(|threads| *threads == expected), "{asked}: {seen:?}");
        }
    }
}
