//! Threads for rayon, as many as the caller allows. rayon's global pool, which takes every core, is
//! never used.

use std::cell::RefCell;
use std::rc::Rc;

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::{Error, Result};

/// Threads for parallel iterators, which exist as long as the pool. Starting them takes tens
/// of microseconds.
#[derive(Debug)]
pub struct Pool(Rc<ThreadPool>);

thread_local! {
    /// Pool that consists of this thread. A thread can belong to only one pool.
    static HERE: RefCell<Option<Rc<ThreadPool>>> = const { RefCell::new(None) };
}

impl Pool {
    /// Starts `threads` threads, at least one. If the system refuses, starts one; if it refuses
    /// that, too, uses the calling thread.
    ///
    /// # Errors
    /// No thread can be started, and the calling thread belongs to another pool.
    pub fn start(threads: usize) -> Result<Self> {
        // rayon would start one thread per core for 0.
        let build = |threads: usize| ThreadPoolBuilder::new().num_threads(threads.max(1)).build();
        match build(threads).or_else(|_| build(1)) {
            Ok(pool) => Ok(Self(Rc::new(pool))),
            Err(_) => Self::here(),
        }
    }

    fn here() -> Result<Self> {
        HERE.with_borrow_mut(|here| {
            if let Some(pool) = here {
                return Ok(Self(Rc::clone(pool)));
            }
            let pool = ThreadPoolBuilder::new().num_threads(1).use_current_thread().build().map_err(|error| {
                Error::failed(format!("cannot start a thread: {error}"))
                    .with_hint("allow the user more processes (ulimit -u), or the service more tasks")
            })?;
            Ok(Self(Rc::clone(here.insert(Rc::new(pool)))))
        })
    }

    /// Runs `work`, whose parallel iterators use only these threads.
    pub fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.0.install(work)
    }
}

#[cfg(test)]
mod tests {
    use rayon::prelude::*;

    use super::*;

    /// If no thread can be started, the calling thread does the work, even repeatedly.
    #[test]
    fn the_calling_thread_suffices() {
        for _ in 0..2 {
            let pool = Pool::here().expect("needs nothing");
            let this = std::thread::current().id();
            let seen: Vec<_> = pool.run(|| (0..100).into_par_iter().map(|_| std::thread::current().id()).collect());
            assert!(seen.iter().all(|thread| *thread == this));
        }
    }

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
