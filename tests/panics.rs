//! A panic anywhere ends the run, and leaves nothing behind; so does a system that refuses threads.

use {
    crate::common::{FULL_3500, fixture, ledger, slotpress_path, temp_dir},
    slotpress::{
        Error, Result,
        archive::{ArchiveOptions, archive, encode::Codec, sink::Sink},
        io::Manners,
        ledger::directory::LedgerPaths,
        progress::Progress,
        read::IndexPolicy,
        recompress::{RecompressOptions, Source, recompress},
        restore::{RestoreLayout, RestoreOptions, restore},
        state::check::{CheckMode, CheckOptions},
        threads::guarded,
        verify::{NamedArchive, VerifyOptions, verify_archives},
    },
    std::{
        fs,
        path::{Path, PathBuf},
        process::{Command, Stdio},
        sync::{
            atomic::{AtomicI64, Ordering::Relaxed},
            mpsc,
        },
        time::Duration,
    },
};

/// Panics at one of its calls, which come from every stage of the work and from every thread.
struct Breaks(AtomicI64);

impl Breaks {
    fn count(&self) {
        assert!(self.0.fetch_sub(1, Relaxed) != 0, "an injected panic");
    }
}

impl Progress for Breaks {
    fn stage(&self, _: &str, _: Option<u64>) {
        self.count();
    }
    fn advance(&self, _: u64, _: u64) {
        self.count();
    }
    fn is_interrupted(&self) -> bool {
        self.count();
        false
    }
}

type Run = fn(&Path, &Path, &dyn Progress) -> Result<()>;

fn check_state() -> CheckOptions {
    CheckOptions { mode: CheckMode::State, ..CheckOptions::default() }
}

fn run_archive(out: &Path, ledger: &Path, progress: &dyn Progress) -> Result<()> {
    let options = ArchiveOptions {
        paths: LedgerPaths { ledger: ledger.to_path_buf(), ..LedgerPaths::default() },
        out_dir: out.to_path_buf(),
        slot: None,
        base_slot: None,
        codec: Codec::zstd(1),
        frame_size_bytes: 64 * 1024,
        threads: 3,
        memory_bytes: None,
        replace: false,
        force_base: false,
        read_back: None,
        manners: Manners::default(),
    };
    archive(&options, progress).map(drop)
}

fn run_recompress(out: &Path, _: &Path, progress: &dyn Progress) -> Result<()> {
    let options = RecompressOptions {
        codec: Codec::zstd(1),
        frame_size_bytes: 64 * 1024,
        threads: 3,
        memory_bytes: None,
        base_slot: None,
        check: check_state(),
        manners: Manners::default(),
    };
    let sink = Sink::Dir { dir: out, replace: false };
    recompress(Source::File(fixture(FULL_3500)), sink, &options, progress).map(drop)
}

fn restore_with(index: IndexPolicy, out: &Path, progress: &dyn Progress) -> Result<()> {
    let options = RestoreOptions {
        expect_roots: Vec::new(),
        archive: fixture(FULL_3500),
        incremental: None,
        paths: LedgerPaths { ledger: out.to_path_buf(), ..LedgerPaths::default() },
        layout: RestoreLayout::Boot,
        threads: 3,
        index,
        convert: None,
        check: check_state(),
        read_back: None,
        manners: Manners::default(),
    };
    restore(&options, progress).map(drop)
}

fn run_restore_in_order(out: &Path, _: &Path, progress: &dyn Progress) -> Result<()> {
    restore_with(IndexPolicy::Ignore, out, progress)
}

fn run_verify(out: &Path, _: &Path, progress: &dyn Progress) -> Result<()> {
    let options = VerifyOptions {
        clients: Vec::new(),
        is_quick: false,
        threads: 3,
        memory_bytes: 64 << 20,
        temporary_dir: out.to_path_buf(),
        expect_hash: None,
        expect_slot: None,
        expect_roots: Vec::new(),
    };
    let path = fixture(FULL_3500);
    let archive = NamedArchive::of_path(&path);
    verify_archives(&archive, None, &options, progress).map(drop)
}

/// How a run ends that panics at its `call`-th call; `None` where it has not so many.
fn end_of(run: Run, call: i64, ledger: &Path) -> Option<Error> {
    let dir = temp_dir();
    let (done, ended) = mpsc::channel();
    let (out, ledger) = (dir.path().to_path_buf(), ledger.to_path_buf());
    std::thread::spawn(move || {
        let breaks = Breaks(AtomicI64::new(call));
        let result = guarded(|| run(&out, &ledger, &breaks));
        // A run that ends before has succeeded.
        let _ = done.send((result, breaks.0.load(Relaxed)));
    });
    let (result, left) = ended.recv_timeout(Duration::from_secs(60)).expect("it ends");
    match result {
        Ok(()) => {
            assert!(left >= 0, "call {call} has panicked, and the run succeeds");
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

/// One test at a time: a program that one starts holds the other's locks for a moment, between fork and exec.
static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[test]
fn a_panic_anywhere_ends_the_run() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let ledger = ledger("ledger-at-26");
    let runs: [(&str, Run); 4] = [
        ("archive", run_archive),
        ("recompress", run_recompress),
        ("restore", run_restore_in_order),
        ("verify", run_verify),
    ];
    for (name, run) in runs {
        let mut panics = 0;
        // Every call at the beginning, where stages change; then some.
        for call in (0..40).chain((40..2000).step_by(37)) {
            let Some(error) = end_of(run, call, ledger.path()) else { break };
            assert!(error.to_string().contains("an injected panic"), "{name}, call {call}: {error}");
            assert_eq!(error.kind().exit_code(), 1);
            panics += 1;
        }
        assert!(panics >= 5, "{name}: {panics}");
    }
}

/// No thread at all can be started: the calling thread does the work, or the run fails with an error.
#[test]
fn without_threads() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let archive = fixture(FULL_3500);
    let archive = archive.to_str().expect("text");
    let ledger = ledger("ledger-at-26");
    let dir = temp_dir();
    let out = |name: &str| {
        let path = dir.path().join(name);
        fs::create_dir(&path).expect("created");
        path.to_str().expect("text").to_string()
    };
    let (one, two, three) = (out("1"), out("2"), out("3"));
    for (arguments, code) in [
        (vec!["verify", archive], 0),
        (vec!["inspect", archive, "--accounts"], 0),
        (vec!["restore", archive, "--ledger", &one], 0),
        (vec!["archive", ledger.path().to_str().expect("text"), "-o", &two], 0),
        (vec!["recompress", archive, "-o", &three], 1),
        (vec!["levels", archive, "--levels", "1", "--repeat", "1"], 1),
    ] {
        let mut command = Command::new(slotpress_path());
        // A stack larger than any address space: no thread of the standard library starts.
        command.args(&arguments).args(["--threads", "4"]).env("RUST_MIN_STACK", "140737488355328");
        command.env_remove("RUST_BACKTRACE");
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
        let id = child.id();
        let (done, ended) = mpsc::channel();
        std::thread::spawn(move || done.send(child.wait_with_output()));
        let Ok(output) = ended.recv_timeout(Duration::from_secs(60)) else {
            let _ = Command::new("kill").args(["-9", &id.to_string()]).status();
            panic!("{arguments:?} does not end");
        };
        let output = output.expect("ended");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        let expected = if code == 0 { "going on with fewer" } else { "cannot start a thread" };
        assert_eq!(stderr.matches(expected).count(), 1, "{arguments:?}: {stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
    }
    assert_eq!(fs::read_dir(&three).expect("read").count(), 0, "nothing is left");
}
