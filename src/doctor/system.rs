//! Limits of the process, and what the kernel can do.

use std::fs;
use std::fs::File;

use rustix::process::{Resource, getrlimit};
use slotpress::machine;
use slotpress_base::threads::available_threads;

use super::Finding;

/// Files that many workers, many accounts paths and the lists of a ledger have open at most.
const FILES_WANTED: u64 = 1024;

/// Memory for the buffers of one worker at level 1 with the usual frames, and a share of what the rest takes.
const WORKER_BYTES: u64 = 64 << 20;

/// Everything about the system.
pub fn examine() -> Vec<Finding> {
    vec![open_files(), memory_limit(), processors(), cachestat(), huge_pages()]
}

fn open_files() -> Finding {
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < FILES_WANTED => Finding::note(
            "open files",
            format!("{limit} at most"),
            "few for many workers or connections: raise it (ulimit -n, LimitNOFILE of the service)",
        ),
        Some(limit) => Finding::good("open files", format!("{limit} at most"), "enough for slotpress"),
        None => Finding::good("open files", "no limit", "enough for slotpress"),
    }
}

fn memory_limit() -> Finding {
    let (found, bytes) = match (machine::tightest_limit(), machine::available_bytes()) {
        (Some(limit), available) => {
            let left = available.map_or(limit.left_bytes, |available| available.min(limit.left_bytes));
            (format!("{} left by {}", slotpress_base::quantity::bytes(left), limit.name), left)
        }
        (None, Some(available)) => {
            (format!("{} available, no limit", slotpress_base::quantity::bytes(available)), available)
        }
        (None, None) => return Finding::note("memory", "unknown", "the system does not tell; --memory sets a bound"),
    };
    let threads = available_threads() as u64;
    match bytes < threads.saturating_mul(WORKER_BYTES) {
        true => Finding::note("memory", found, "little for all cores: fewer workers will run, or give --threads"),
        false => Finding::good("memory", found, "enough for a worker on every core"),
    }
}

fn processors() -> Finding {
    let usable = available_threads();
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let all = text.lines().filter(|line| line.starts_with("processor")).count().max(usable);
    match usable < all {
        true => Finding::note(
            "processors",
            format!("{usable} of {all} may be used"),
            "affinity or the control group (CPUQuota of the service) keeps the others away",
        ),
        false => Finding::good("processors", format!("{usable}, all may be used"), "one worker runs on each"),
    }
}

fn cachestat() -> Finding {
    match File::open("/proc/self/exe").is_ok_and(|file| machine::has_cachestat(&file)) {
        true => Finding::good(
            "cachestat",
            "there",
            "slotpress can check the page cache cheaply, and leaves a validator's pages in it",
        ),
        false => Finding::note(
            "cachestat",
            "missing (Linux before 6.5, or forbidden)",
            "slotpress checks the page cache through memory maps, which is slightly slower",
        ),
    }
}

fn huge_pages() -> Finding {
    let text = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let chosen = text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    match chosen {
        Some("never") => {
            Finding::note("huge pages", "never", "high zstd levels are somewhat slower: madvise or always")
        }
        Some(choice) => Finding::good("huge pages", choice, "large buffers may use them"),
        None => Finding::note("huge pages", "unknown", "the system does not tell"),
    }
}
