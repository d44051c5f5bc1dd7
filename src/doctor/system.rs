//! Checks how many open files, how much memory and how many processors slotpress may use.

use std::fs;

use rustix::process::{Resource, getrlimit};
use slotpress_base::memory::machine_available_bytes;
use slotpress_base::{MemoryLimit, available_threads, quantity, tightest_limit};

use super::Finding;

/// Upper estimate of the files that slotpress opens at once for workers, accounts paths, and lists of a
/// ledger.
const OPEN_FILES_WANTED: u64 = 1024;

/// Memory of a worker: its buffers at level 1 with frames of default size, and its share of everything
/// else.
const WORKER_BYTES: u64 = 64 << 20;

pub fn examine() -> Vec<Finding> {
    vec![examine_open_files(), examine_memory(), examine_processors()]
}

fn examine_open_files() -> Finding {
    let limit = getrlimit(Resource::Nofile).current;
    let found = limit.map_or("no limit".to_string(), |limit| format!("{limit} at most"));
    if limit.is_some_and(|limit| limit < OPEN_FILES_WANTED) {
        let meaning =
            "too few for many workers or connections: raise the limit (ulimit -n, LimitNOFILE of the service)";
        Finding::note("open files", found, meaning)
    } else {
        Finding::good("open files", found, "enough for slotpress")
    }
}

fn examine_memory() -> Finding {
    let machine_bytes = machine_available_bytes();
    let limit = tightest_limit();
    let Some(bytes) = limit.iter().map(|limit| limit.left_bytes).chain(machine_bytes).min() else {
        let meaning = "the system does not report it; --memory sets a limit";
        return Finding::note("memory", "unknown", meaning);
    };
    let found = format!("{} {}", quantity::bytes(bytes), describe_bound(machine_bytes, limit));
    if bytes < (available_threads() as u64).saturating_mul(WORKER_BYTES) {
        let meaning = "too little for a worker on every core: fewer workers will run";
        Finding::note("memory", found, meaning)
    } else {
        Finding::good("memory", found, "enough for a worker on every core")
    }
}

/// Says whether the process's limit or the machine bounds the available memory.
fn describe_bound(machine_bytes: Option<u64>, limit: Option<MemoryLimit>) -> String {
    match limit {
        None => "available, no limit".to_string(),
        Some(limit) if machine_bytes.is_none_or(|bytes| limit.left_bytes <= bytes) => format!("left by {}", limit.name),
        Some(limit) => format!("available on this machine, less than {} leaves", limit.name),
    }
}

fn examine_processors() -> Finding {
    let usable = available_threads();
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let total = text.lines().filter(|line| line.starts_with("processor")).count().max(usable);
    let found = format!("{usable} of {total} may be used");
    if usable < total {
        let meaning = "affinity or the control group (CPUQuota of the service) excludes the others";
        Finding::note("processors", found, meaning)
    } else {
        Finding::good("processors", found, "one worker runs on each")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tighter_bound_on_memory_is_named() {
        let limit = Some(MemoryLimit { name: "the limit", left_bytes: 100 });
        assert_eq!(describe_bound(Some(50), None), "available, no limit");
        assert_eq!(describe_bound(Some(100), limit), "left by the limit");
        assert_eq!(describe_bound(None, limit), "left by the limit");
        assert_eq!(describe_bound(Some(99), limit), "available on this machine, less than the limit leaves");
    }
}
