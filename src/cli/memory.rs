//! Fits a command into the memory limits of the process before its work begins, by starting fewer workers. A
//! command for which not even one worker fits is refused.

use slotpress::{Error, Progress, Result};
use slotpress_base::memory::available_bytes;
use slotpress_base::{MemoryLimit, available_threads, tightest_limit};
use slotpress_format::FRAME_SIZE_BYTES_DEFAULT;

use super::ui::Ui;
use super::values;

/// Memory of a thread: its stack, and freed memory that the allocator keeps for it.
const THREAD_BYTES: u64 = 4 << 20;

/// Memory that every command needs besides buffers, for parsed documents and the lists of a small archive.
const COMMAND_BYTES: u64 = 16 << 20;

const MEMORY_HINT: &str = "raise the limit, or ask for less memory";

/// Memory of a worker that decodes frames of the default size: one compressed frame, two decoded ones, and the
/// decoder's context.
pub const DECODING_WORKER_BYTES: u64 = 3 * FRAME_SIZE_BYTES_DEFAULT + (1 << 20);

/// Memory of a worker that inspects a ledger's files: read buffers for a few files.
pub const INSPECTING_WORKER_BYTES: u64 = 2 << 20;

/// Memory of a download's connection: one frame, which is held until its hash is checked, and socket buffers.
pub const STREAM_BYTES: u64 = FRAME_SIZE_BYTES_DEFAULT + (1 << 20);

/// Returns the number of workers (`requested`, or one per core), reduced to what fits into the memory
/// limit of the process. Each worker needs `worker_bytes`, and the rest of the command `other_bytes`.
/// Warns if the number is reduced.
///
/// # Errors
/// If there is not enough memory for one worker.
pub fn threads_that_fit(
    requested: Option<usize>,
    worker_bytes: impl FnOnce() -> Result<u64>,
    other_bytes: u64,
    ui: &Ui,
) -> Result<usize> {
    let threads = requested.unwrap_or_else(available_threads);
    let Some(limit) = tightest_limit() else { return Ok(threads) };
    // `worker_bytes` allocates a compressor to measure it, which fails if memory is this short.
    let worker_bytes = worker_bytes().map_err(|error| {
        let left = values::show_bytes(limit.left_bytes);
        Error::failed(format!("not enough memory: {} leaves {left}, in which no worker can start: {error}", limit.name))
            .with_hint(MEMORY_HINT)
    })?;
    let fitting_threads = fit_threads(&limit, threads, worker_bytes, other_bytes)?;
    if fitting_threads < threads {
        ui.warn(&format!(
            "{} leaves {}: only {fitting_threads} of {threads} workers are used",
            limit.name,
            values::show_bytes(limit.left_bytes)
        ));
    }
    Ok(fitting_threads)
}

fn fit_threads(limit: &MemoryLimit, threads: usize, worker_bytes: u64, other_bytes: u64) -> Result<usize> {
    let worker_bytes = worker_bytes.saturating_add(THREAD_BYTES);
    let other_bytes = other_bytes.saturating_add(COMMAND_BYTES);
    let Some(left_bytes) = limit.left_bytes.checked_sub(other_bytes.saturating_add(worker_bytes)) else {
        return Err(Error::failed(format!(
            "not enough memory: {} leaves {}; one worker needs {}, and the rest of the command {}",
            limit.name,
            values::show_bytes(limit.left_bytes),
            values::show_bytes(worker_bytes),
            values::show_bytes(other_bytes)
        ))
        .with_hint(MEMORY_HINT));
    };
    Ok(threads.min(1 + (left_bytes / worker_bytes) as usize))
}

/// Returns the requested memory. If none was requested, returns the default, but at most a quarter of what the
/// tightest limit leaves.
pub fn requested_memory_or(requested: Option<u64>, default_bytes: u64) -> u64 {
    if let Some(bytes) = requested {
        return bytes;
    }
    tightest_limit().map_or(default_bytes, |limit| default_bytes.min(limit.left_bytes / 4))
}

/// Returns the requested memory. If none was requested, returns half of the free memory, but at most a quarter
/// of what the tightest limit leaves.
pub fn requested_memory_or_half_of_free(requested: Option<u64>) -> u64 {
    /// Used if free memory cannot be determined.
    const DEFAULT_BYTES: u64 = 2 << 30;
    let half_bytes = available_bytes().map_or(DEFAULT_BYTES, |bytes| bytes / 2);
    requested_memory_or(requested, half_bytes)
}

/// Divides memory between workers and two equal shares of at least `share_bytes_min`. The workers are at most
/// `threads`, and use at most half of the memory if they are more than one. Returns their number, and the bytes
/// of a share.
///
/// # Errors
/// If one worker and the shares do not fit into the requested memory.
#[cfg(feature = "export")]
pub fn divide_memory(
    requested: Option<u64>,
    threads: usize,
    worker_bytes: u64,
    share_bytes_min: u64,
) -> Result<(usize, u64)> {
    let worker_bytes = worker_bytes + THREAD_BYTES;
    let bytes_min = COMMAND_BYTES + worker_bytes + 2 * share_bytes_min;
    if let Some(requested) = requested.filter(|requested| *requested < bytes_min) {
        let [requested, needed] = [requested, bytes_min].map(values::show_bytes);
        return Err(Error::usage(format!(
            "--memory {requested} is too little: one worker and the files that it writes need {needed}"
        ))
        .with_hint(format!("set --memory to at least {needed}, or export fewer tables")));
    }
    let bytes = requested_memory_or_half_of_free(requested).max(bytes_min);
    let fitting_threads = (bytes / 2).saturating_sub(COMMAND_BYTES) / worker_bytes;
    let threads = (threads as u64).min(fitting_threads).max(1);
    let shares_bytes = bytes - COMMAND_BYTES - threads * worker_bytes;
    Ok((threads as usize, shares_bytes / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_reduced_to_what_fits() {
        let limit = |left_bytes| MemoryLimit { name: "the limit", left_bytes };
        let worker = 100 << 20;
        let other = 50 << 20;
        assert_eq!(fit_threads(&limit(1 << 40), 8, worker, other).expect("fits"), 8);
        assert_eq!(fit_threads(&limit(300 << 20), 8, worker, other).expect("two fit"), 2);
        let error = fit_threads(&limit(150 << 20), 8, worker, other).expect_err("none fits");
        assert!(error.to_string().contains("the limit leaves 150 MiB"), "{error}");
        assert!(fit_threads(&limit(150 << 20), 8, worker, u64::MAX).is_err());
    }

    #[cfg(feature = "export")]
    proptest::proptest! {
        #[test]
        fn shares_fit_into_the_memory(
            bytes in 0u64..1 << 40,
            threads in 1usize..512,
            worker_bytes in 1u64 << 20..200 << 20,
            share_bytes_min in 0u64..100 << 20,
        ) {
            match divide_memory(Some(bytes), threads, worker_bytes, share_bytes_min) {
                Ok((workers, share_bytes)) => {
                    let used_bytes = workers as u64 * (worker_bytes + THREAD_BYTES) + 2 * share_bytes + COMMAND_BYTES;
                    proptest::prop_assert!(used_bytes <= bytes);
                    proptest::prop_assert!(share_bytes >= share_bytes_min);
                    proptest::prop_assert!((1..=threads).contains(&workers));
                }
                Err(_) => proptest::prop_assert!(bytes < 512 << 20),
            }
        }
    }
}
