//! `--threads` limits all workers: threads are counted while the program works.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use slotpress_base::{READER_NAME, READERS};

use crate::common::{slotpress_path, temp_dir};

/// One worker, and the threads whose number does not depend on the workers, such as the main thread and
/// threads that decode, parse or read ahead.
const THREADS_MAX: usize = 6;

/// Threads that a pool would start if it ignored `--threads`, on any machine.
const UNLIMITED_THREADS: &str = "24";

/// Time for which a new thread may wait for a core before it sets its name.
const NAMELESS_MAX: Duration = Duration::from_millis(20);

/// Runs the program, which must succeed. Returns the largest number of threads at any time, without the
/// threads that wait for a disk.
fn run_and_count_threads(arguments: &[&str]) -> usize {
    let mut command = Command::new(slotpress_path());
    command.args(arguments).args(["--threads", "1", "-q"]).env("RAYON_NUM_THREADS", UNLIMITED_THREADS);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("starts");
    let tasks = Path::new("/proc").join(child.id().to_string()).join("task");
    let is_reader = |task: &fs::DirEntry| {
        fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim_end() == READER_NAME)
    };
    let start = Instant::now();
    let mut count_max = 0;
    let mut first_seen = HashMap::new();
    loop {
        let tasks = fs::read_dir(&tasks).into_iter().flatten().flatten();
        let (readers, others): (Vec<_>, Vec<_>) = tasks.partition(is_reader);
        // Threads for an archive that is read back may end while others for its full archive start.
        assert!(readers.len() <= 2 * READERS, "{arguments:?}: {} threads read", readers.len());
        // A new thread sets its name when it first runs. Until then, it may be a reader, and is not counted.
        let now = Instant::now();
        let others = others.iter().map(fs::DirEntry::file_name);
        first_seen = others.map(|id| (id.clone(), *first_seen.get(&id).unwrap_or(&now))).collect();
        let is_named = |seen: &&Instant| now.duration_since(**seen) >= NAMELESS_MAX;
        count_max = count_max.max(first_seen.values().filter(is_named).count());
        if let Some(status) = child.try_wait().expect("a child") {
            assert!(status.success(), "{arguments:?}");
            return count_max;
        }
        if start.elapsed() > Duration::from_secs(120) {
            let _ = child.kill();
            panic!("{arguments:?} does not end");
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[test]
fn commands_keep_to_one_worker_thread() {
    let dir = temp_dir();
    let path = |name: &str| dir.path().join(name).to_str().expect("text").to_string();
    let assert_few_threads = |arguments: &[&str]| {
        let max = run_and_count_threads(arguments);
        assert!((1..=THREADS_MAX).contains(&max), "{arguments:?}: {max} threads");
    };
    let ledger = path("ledger");
    let older = path("ledger/at-full");
    let out = path("archives");
    fs::create_dir(&out).expect("created");
    assert_few_threads(&["synth", &ledger, "--size", "24MiB", "--incremental", "4MiB"]);
    assert_few_threads(&["archive", &older, "-o", &out]);
    let archives = || -> Vec<String> {
        let entries = fs::read_dir(&out).expect("read").flatten();
        let mut paths: Vec<String> = entries.map(|entry| entry.path().to_str().expect("text").to_string()).collect();
        paths.sort_unstable_by_key(|path| path.contains("incremental"));
        paths
    };
    let full = archives().remove(0);
    let slot = full.rsplit("snapshot-").next().and_then(|name| name.split('-').next()).expect("a slot").to_string();
    assert_few_threads(&["archive", &ledger, "-o", &out, "--base-slot", &slot, "--verify"]);
    let incremental = archives().remove(1);
    assert_few_threads(&["verify", &full, &incremental]);
    assert_few_threads(&["verify", &ledger]);
    assert_few_threads(&["inspect", &ledger]);
    assert_few_threads(&["inspect", &full, "--by-owner"]);
    assert_few_threads(&["recompress", &full, "-o", &path("archives"), "--force", "--layout", "clustered"]);
    assert_few_threads(&["restore", &full, &incremental, "--ledger", &path("restored")]);
    assert_few_threads(&["levels", &ledger, "--levels", "1", "--repeat", "1", "--min-time", "0"]);
}
