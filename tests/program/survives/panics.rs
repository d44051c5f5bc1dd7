//! A panic in any thread ends the run with an error, and so does a system that refuses to start threads. No file is
//! left.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;
use std::time::Duration;

use slotpress::archive::{ArchiveOptions, Codec, DirSink, EncodingOptions, archive};
use slotpress::recompress::{RecompressOptions, recompress};
use slotpress::restore::{RestoreOptions, TargetOptions, restore};
use slotpress::{Error, Result};
use slotpress_base::{Progress, ProgressEvent, catch_panic};
use slotpress_read::{CheckMode, CheckOptions, Snapshot, VerifyOptions, verify};

#[cfg(debug_assertions)]
use crate::common::faults::assert_panic_is_error;
use crate::common::{FULL_26, FULL_3500, fixture, ledger, relative_paths, slotpress_path, temp_dir};

/// A `Progress` that panics at one of its calls, which come from all stages and from several threads.
struct PanickingProgress(AtomicI64);

impl PanickingProgress {
    fn count(&self) {
        assert!(self.0.fetch_sub(1, Relaxed) != 0, "an injected panic");
    }
}

impl Progress for PanickingProgress {
    fn event(&self, event: ProgressEvent<'_>) {
        if matches!(event, ProgressEvent::Stage { .. } | ProgressEvent::Bytes { .. }) {
            self.count();
        }
    }
    fn is_interrupted(&self) -> bool {
        self.count();
        false
    }
}

type Run = fn(&Path, &Path, &dyn Progress) -> Result<()>;

fn state_check_options() -> CheckOptions {
    CheckOptions::default().mode(CheckMode::State)
}

fn run_archive(out: &Path, ledger: &Path, progress: &dyn Progress) -> Result<()> {
    let options = ArchiveOptions::new(ledger)
        .encoding(EncodingOptions::default().codec(Codec::zstd(1)).frame_size_bytes(64 * 1024).threads(3));
    archive(&options, &mut DirSink::open(out).expect("opened"), progress).map(drop)
}

fn run_recompress(out: &Path, _: &Path, progress: &dyn Progress) -> Result<()> {
    let options = RecompressOptions::new(fixture(FULL_3500))
        .encoding(EncodingOptions::default().codec(Codec::zstd(1)).frame_size_bytes(64 * 1024).threads(3))
        .check(state_check_options());
    let mut sink = DirSink::open(out).expect("opened");
    recompress(&options, &mut sink, progress).map(drop)
}

fn run_restore(out: &Path, _: &Path, progress: &dyn Progress) -> Result<()> {
    let options =
        RestoreOptions::new(fixture(FULL_3500), TargetOptions::new(out).threads(3).check(state_check_options()));
    restore(&options, progress).map(drop)
}

fn run_verify(out: &Path, _: &Path, progress: &dyn Progress) -> Result<()> {
    let options = VerifyOptions::default()
        .threads(3)
        .check(CheckOptions::default().memory_bytes(64 << 20).temporary_dir(out.to_path_buf()));
    verify(&Snapshot::archive(fixture(FULL_3500)), &options, progress).map(drop)
}

/// Runs a command whose progress panics at call number `call`. Returns the error, or `None` if the run
/// makes fewer calls.
fn run_with_panic(run: Run, call: i64, ledger: &Path) -> Option<Error> {
    let dir = temp_dir();
    let (done, ended) = mpsc::channel();
    let out = dir.path().to_path_buf();
    let ledger = ledger.to_path_buf();
    std::thread::spawn(move || {
        let progress = PanickingProgress(AtomicI64::new(call));
        let result = catch_panic(|| run(&out, &ledger, &progress));
        // The receiver is gone if the test has given up.
        let _ = done.send((result, progress.0.load(Relaxed)));
    });
    let (result, remaining_calls) = ended.recv_timeout(Duration::from_secs(60)).expect("the run ends");
    match result {
        Ok(()) => {
            assert!(remaining_calls >= 0, "call {call} panicked, but the run succeeded");
            None
        }
        Err(error) => {
            let found: Vec<PathBuf> = fs::read_dir(dir.path())
                .expect("read")
                .map(|entry| entry.expect("an entry").path())
                .filter(|path| !path.ends_with("ledger.lock"))
                .collect();
            assert_eq!(found, Vec::<PathBuf>::new(), "call {call}: {error}");
            Some(error)
        }
    }
}

/// Lets one of these tests run at a time: between fork and exec, a child that one test starts also holds the locks of
/// the other test.
static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[test]
fn a_panic_at_any_progress_call_ends_the_run() {
    let _lock = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let ledger = ledger("ledger-at-26");
    let runs: [(&str, Run); 4] =
        [("archive", run_archive), ("recompress", run_recompress), ("restore", run_restore), ("verify", run_verify)];
    for (name, run) in runs {
        let mut panics = 0;
        // Every call at the beginning, where stages change, and a sample of the later ones.
        for call in (0..40).chain((40..2000).step_by(37)) {
            let Some(error) = run_with_panic(run, call, ledger.path()) else { break };
            assert!(error.to_string().contains("an injected panic"), "{name}, call {call}: {error}");
            assert_eq!(error.kind().exit_code(), 1);
            panics += 1;
        }
        assert!(panics >= 5, "{name}: {panics}");
    }
}

/// Covers the threads and stages of commands that need only files. `page_cache` covers the threads that read ahead.
#[cfg(debug_assertions)]
#[test]
fn a_panic_in_any_thread_ends_the_program() {
    let source = ledger("ledger-at-26");
    let made = temp_dir();
    let indexed = crate::common::archive(source.path(), made.path(), &["--frame-size", "64KiB"]);
    let source = source.path();
    let indexed = indexed.as_path();
    let plain = fixture(FULL_26);
    let text = |path: &Path| path.to_str().expect("UTF-8").to_string();
    let source = text(source);
    let indexed = text(indexed);
    let plain_text = text(&plain);
    let by_index = ["frame by index", "entries by index", "document", "sorting"];
    let in_order = ["decoder", "entries in order", "record worker", "document", "sorting"];
    let cases: [(&[&str], &[&str], &[&str]); 6] = [
        (
            &["archive", &source, "-o", "OUT", "--frame-size", "64KiB"],
            &["source", "encoder", "frame writer", "file writer"],
            &["status cache"],
        ),
        (
            &["recompress", &plain_text, "-o", "OUT"],
            &in_order,
            &["assembling", "encoder", "frame writer", "file writer"],
        ),
        (&["recompress", "-", "-o", "OUT"], &["entries in order"], &["assembling", "encoder", "frame writer"]),
        (&["restore", &plain_text, "--ledger", "OUT"], &in_order, &["unpacking", "flusher", "placing"]),
        (
            &["restore", &indexed, "--ledger", "OUT", "--check", "state"],
            &by_index,
            &["unpacking", "flusher", "placing"],
        ),
        (&["restore", "-", "--ledger", "OUT"], &["standard input"], &["unpacking"]),
    ];
    for (arguments, places, more) in cases {
        for place in places.iter().chain(more) {
            for number in [1, 2, 7] {
                let dir = temp_dir();
                let out = text(dir.path());
                let arguments: Vec<&str> =
                    arguments.iter().map(|word| if *word == "OUT" { &out } else { *word }).collect();
                let arguments = [&arguments[..], &["--threads", "3"]].concat();
                let stdin = arguments.contains(&"-").then_some(plain.as_path());
                if assert_panic_is_error(&arguments, place, number, stdin).is_none() {
                    continue;
                }
                let left: Vec<String> =
                    relative_paths(dir.path()).into_iter().filter(|name| name != "ledger.lock").collect();
                assert_eq!(left, Vec::<String>::new(), "{arguments:?}, {place} {number}");
            }
        }
    }
    for (arguments, places) in [(["verify", &indexed], &by_index[..]), (["verify", &plain_text], &in_order[..])] {
        for place in places {
            for number in [1, 3] {
                assert_panic_is_error(
                    &[&arguments[..], &["--threads", "3", "--memory", "64MiB"]].concat(),
                    place,
                    number,
                    None,
                );
            }
        }
    }
}

#[test]
fn a_system_that_refuses_threads_is_an_error() {
    let _lock = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let archive = fixture(FULL_3500);
    let archive = archive.to_str().expect("text");
    let ledger = ledger("ledger-at-26");
    let dir = temp_dir();
    let out = |name: &str| {
        let path = dir.path().join(name);
        fs::create_dir(&path).expect("created");
        path.to_str().expect("text").to_string()
    };
    let restored = out("restored");
    let archived = out("archived");
    let recompressed = out("recompressed");
    for arguments in [
        vec!["verify", archive],
        vec!["inspect", archive, "--by-owner"],
        vec!["restore", archive, "--ledger", &restored],
        vec!["archive", ledger.path().to_str().expect("text"), "-o", &archived],
        vec!["recompress", archive, "-o", &recompressed],
        // With several frames, because a single frame is measured without another thread.
        vec!["levels", archive, "--levels", "1", "--repeat", "1", "--frame-size", "64KiB"],
    ] {
        let mut command = Command::new(slotpress_path());
        // No address space has room for such a stack, so the standard library cannot start a thread.
        command.args(&arguments).args(["--threads", "4"]).env("RUST_MIN_STACK", "140737488355328");
        command.env_remove("RUST_BACKTRACE");
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
        let id = rustix::process::Pid::from_child(&child);
        let (done, ended) = mpsc::channel();
        std::thread::spawn(move || done.send(child.wait_with_output()));
        let Ok(output) = ended.recv_timeout(Duration::from_secs(60)) else {
            rustix::process::kill_process(id, rustix::process::Signal::KILL).expect("killed");
            panic!("{arguments:?} does not end");
        };
        let output = output.expect("ended");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {stderr}");
        assert_eq!(stderr.matches("cannot start a thread").count(), 1, "{arguments:?}: {stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
    }
    for dir in [&archived, &recompressed] {
        assert_eq!(fs::read_dir(dir).expect("read").count(), 0, "a file is left");
    }
}
