//! Checks limits of the process: open files, memory, processors.

use std::fs;

use rustix::process::{Resource, getrlimit};
use slotpress_base::memory::available_bytes;
use slotpress_base::{available_threads, quantity, tightest_limit};

use super::Finding;

/// Upper estimate of the files that slotpress opens at once: for workers, accounts paths, and lists
/// of a ledger.
const FILES_WANTED: u64 = 1024;

/// Memory per worker in bytes: its buffers at level 1 with frames of default size, and its share of
/// everything else.
const WORKER_BYTES: u64 = 64 << 20;

pub fn examine() -> Vec<Finding> {
    vec![examine_open_files(), examine_memory_limit(), examine_processors()]
}

fn examine_open_files() -> Finding {
    let limit = getrlimit(Resource::Nofile).current;
    let found = limit.map_or("no limit".to_string(), |limit| format!("{limit} at most"));
    let few = "too few for many workers or connections: raise the limit (ulimit -n, LimitNOFILE of the service)";
    if limit.is_some_and(|limit| limit < FILES_WANTED) {
        Finding::note("open files", found, few)
    } else {
        Finding::good("open files", found, "enough for slotpress")
    }
}

fn examine_memory_limit() -> Finding {
    let limit = tightest_limit();
    let Some(bytes) = limit.iter().map(|limit| limit.left_bytes).chain(available_bytes()).min() else {
        return Finding::note("memory", "unknown", "the system does not report it; --memory sets a limit");
    };
    let few = "too little for a worker on every core: fewer workers will run";
    let by = limit.map_or("available, no limit".to_string(), |limit| format!("left by {}", limit.name));
    let found = format!("{} {by}", quantity::bytes(bytes));
    if bytes < (available_threads() as u64).saturating_mul(WORKER_BYTES) {
        Finding::note("memory", found, few)
    } else {
        Finding::good("memory", found, "enough for a worker on every core")
    }
}

fn examine_processors() -> Finding {
    let usable = available_threads();
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let all = text.lines().filter(|line| line.starts_with("processor")).count().max(usable);
    let kept_away = "affinity or the control group (CPUQuota of the service) keeps the others away";
    let found = format!("{usable} of {all} may be used");
    if usable < all {
        Finding::note("processors", found, kept_away)
    } else {
        Finding::good("processors", found, "one worker runs on each")
    }
}
