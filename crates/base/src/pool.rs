//! Starts rayon pools of the size that the caller allows. slotpress never uses rayon's global pool, which
//! has a thread for every core.

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::{Result, spawn_error};

/// Starts a pool of `threads` threads, or of one thread if `threads` is 0.
///
/// # Errors
/// A thread cannot be started.
pub fn start_pool(threads: usize) -> Result<ThreadPool> {
    // rayon would start one thread per core for 0.
    let pool = ThreadPoolBuilder::new().num_threads(threads.max(1)).build();
    pool.map_err(|error| spawn_error(&std::io::Error::other(error)))
}

#[cfg(test)]
mod tests {
    use rayon::prelude::*;

    use super::*;

    #[test]
    fn a_pool_has_the_requested_number_of_threads() {
        for (requested, expected) in [(0, 1), (1, 1), (3, 3)] {
            let pool = start_pool(requested).expect("starts");
            let seen: Vec<usize> =
                pool.install(|| (0..100).into_par_iter().map(|_| rayon::current_num_threads()).collect());
            assert!(seen.iter().all(|threads| *threads == expected), "{requested}: {seen:?}");
        }
    }
}
