//! Whether the memory that a command is going to use fits into the limits of the process, before it starts to work.

use slotpress::codec::FRAME_SIZE_BYTES_DEFAULT;
use slotpress::machine::{Limit, tightest_limit};
use slotpress::{Error, Progress, Result};

use super::ui::Ui;
use super::values;

/// A worker's stack and what its allocator keeps for it.
const THREAD_BYTES: u64 = 4 << 20;

/// Addresses that the C library sets apart for each thread but the first, used or not, as long as there are enough.
const THREAD_ADDRESSES_BYTES: u64 = 64 << 20;

/// What every command takes beside buffers: parsed documents, the lists of a small archive.
const COMMAND_BYTES: u64 = 16 << 20;

/// What to do about too little memory.
const SMALLER: &str = "raise the limit, or reduce --memory, --sample or --frame-size (if the command has them)";

/// A worker that decodes frames of the usual size: one compressed, two decoded, the context.
pub const DECODING_WORKER_BYTES: u64 = 3 * FRAME_SIZE_BYTES_DEFAULT + (1 << 20);

/// A worker that looks at files of a ledger: a window of each of a few.
pub const LOOKING_WORKER_BYTES: u64 = 2 << 20;

/// What one connection holds of a transfer: a frame until it is known to be right, and the buffers of its socket.
pub const STREAM_BYTES: u64 = FRAME_SIZE_BYTES_DEFAULT + (1 << 20);

/// As many workers as fit into the limits: what was asked for, or all cores. Each takes `worker_bytes`; the command takes
/// `other_bytes` beside them. Warns of fewer.
///
/// # Errors
/// Not even one fits.
pub fn threads_that_fit(
    asked: Option<usize>,
    worker_bytes: impl FnOnce() -> Result<u64>,
    other_bytes: u64,
    ui: &Ui,
) -> Result<usize> {
    let threads = values::threads_or_all(asked);
    let Some(limit) = tightest_limit() else {
        if ui.is_verbose() {
            ui.detail(&describe(threads, worker_bytes()?, other_bytes));
        }
        return Ok(threads);
    };
    // What a worker needs is measured by what it allocates: where that fails, there is no more to know.
    let worker_bytes = worker_bytes().map_err(|error| {
        let left = values::show_bytes(limit.left_bytes);
        Error::failed(format!("not enough memory: {} leaves {left}: not even one worker starts: {error}", limit.name))
            .with_hint(SMALLER)
    })?;
    let fitting = fitting(&limit, threads, worker_bytes, other_bytes)?;
    if fitting < threads {
        ui.warn(&format!(
            "{} leaves {}: only {fitting} of {threads} workers are used",
            limit.name,
            values::show_bytes(limit.left_bytes)
        ));
    }
    ui.detail(&describe(fitting, worker_bytes, other_bytes));
    Ok(fitting)
}

/// What is going to be used at most.
fn describe(threads: usize, worker_bytes: u64, other_bytes: u64) -> String {
    let all_bytes = (threads as u64).saturating_mul(worker_bytes).saturating_add(other_bytes);
    let [all, worker, other] = [all_bytes, worker_bytes, other_bytes].map(values::show_bytes);
    let shared = if other_bytes > 0 { format!(", {other} that they share") } else { String::new() };
    format!("memory: at most {all}: {worker} for each worker ({threads}){shared}")
}

fn fitting(limit: &Limit, threads: usize, worker_bytes: u64, other_bytes: u64) -> Result<usize> {
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
        .with_hint(SMALLER));
    };
    let addresses_bytes = if limit.is_of_addresses { THREAD_ADDRESSES_BYTES } else { 0 };
    Ok(threads.min(1 + (left_bytes / (worker_bytes + addresses_bytes)) as usize))
}

/// As much memory as asked for, or the default; without a wish, no more than a quarter of what a limit leaves.
pub fn memory_or(asked: Option<u64>, default_bytes: u64) -> u64 {
    asked.unwrap_or_else(|| tightest_limit().map_or(default_bytes, |limit| default_bytes.min(limit.left_bytes / 4)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_workers_or_none() {
        let limit = |left_bytes| Limit { name: "the limit", left_bytes, is_of_addresses: false };
        let (worker, other) = (100 << 20, 50 << 20);
        assert_eq!(fitting(&limit(1 << 40), 8, worker, other).expect("fits"), 8);
        assert_eq!(fitting(&limit(300 << 20), 8, worker, other).expect("two fit"), 2);
        let error = fitting(&limit(150 << 20), 8, worker, other).expect_err("none fits");
        assert!(error.to_string().contains("the limit leaves 150 MiB"), "{error}");
        assert!(fitting(&limit(150 << 20), 8, worker, u64::MAX).is_err());
        let addresses = Limit { is_of_addresses: true, ..limit(450 << 20) };
        assert_eq!(fitting(&addresses, 8, worker, other).expect("fits"), 2, "threads reserve addresses");
    }
}
