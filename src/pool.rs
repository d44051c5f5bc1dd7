//! Threads for rayon, as many as the caller allows: its global pool, which takes every core, is never used.

use {
    crate::error::{Error, Result},
    rayon::{ThreadPool, ThreadPoolBuilder},
};

/// Threads that parallel iterators run on, for as long as it lives. Starting some takes tens of microseconds.
#[derive(Debug)]
pub struct Pool(ThreadPool);

impl Pool {
    /// Starts `threads` threads, at least one; where the system refuses so many, a single one.
    ///
    /// # Errors
    /// Not even one thread can be started.
    pub fn start(threads: usize) -> Result<Self> {
        // rayon takes 0 for every core.
        let build = |threads: usize| ThreadPoolBuilder::new().num_threads(threads.max(1)).build();
        let pool = build(threads).or_else(|_| build(1));
        pool.map(Self).map_err(|error| {
            Error::failed(format!("cannot start a thread: {error}"))
                .hint("allow the user more processes (ulimit -u), or the service more tasks")
        })
    }

    /// Runs `work`, whose parallel iterators use these threads only.
    pub fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.0.install(work)
    }
}

#[cfg(test)]
mod tests {
    use {super::*, rayon::prelude::*};

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
