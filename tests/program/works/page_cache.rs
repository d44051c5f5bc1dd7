//! `--io-hint gentle`: pages that were in the page cache before a run stay there, all other pages are dropped, and
//! results are the same as without the hint.
//!
//! Files are on a disk, next to the compiled tests, because pages of a file system in memory cannot
//! be dropped. TEST_DISK names another directory.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, Mode, OFlags, fadvise};
use slotpress::archive::{ArchiveOptions, Codec, DirSink, EncodingOptions, ZSTD_LEVEL_DEFAULT, archive};
use slotpress::recompress::{RecompressOptions, recompress};
use slotpress::restore::{RestoreOptions, TargetOptions, restore};
use slotpress_base::{IoHint, IoPolicy, NoProgress};
use slotpress_synth::{SynthOptions, synth};
use tempfile::TempDir;

use crate::common::runs::code_and_stderr;
use crate::common::strace::trace;
use crate::common::{XfsDisk, copy_without_index, needs, slotpress_path, text};

const THREADS: usize = 3;
/// Small and odd, so ends of frames cut many storages, and cut them in the middle of a page.
const FRAME_SIZE_BYTES: u64 = 1_000_001;

/// For each page of each file, whether it is in the page cache.
type Residency = BTreeMap<PathBuf, Vec<bool>>;

/// A directory, a synthetic ledger in it, and its archive.
struct TestLedger {
    dir: TempDir,
    ledger: PathBuf,
    archive: PathBuf,
}

impl TestLedger {
    fn new() -> Self {
        Self::new_in(
            &std::env::var_os("TEST_DISK").map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from),
        )
    }

    fn new_in(parent: &Path) -> Self {
        let dir = tempfile::tempdir_in(parent).expect("a directory");
        let ledger = dir.path().join("ledger");
        let options = SynthOptions::new(&ledger, 12 << 20).storage_count(40u64).threads(2);
        synth(&options, &NoProgress).expect("a ledger");
        let mut test = Self { dir, ledger, archive: PathBuf::new() };
        test.archive = test.make_archive("source", io_policy(IoHint::None));
        test
    }

    fn new_dir(&self, name: &str) -> PathBuf {
        let dir = self.dir.path().join(name);
        fs::create_dir(&dir).expect("created");
        dir
    }

    fn make_archive(&self, name: &str, io_policy: IoPolicy) -> PathBuf {
        let options = ArchiveOptions::new(&self.ledger).encoding(
            EncodingOptions::default()
                .codec(Codec::zstd(ZSTD_LEVEL_DEFAULT))
                .frame_size_bytes(FRAME_SIZE_BYTES)
                .threads(THREADS)
                .io_policy(io_policy),
        );
        archive(&options, &mut DirSink::open(self.new_dir(name)).expect("opened"), &NoProgress)
            .expect("archived")
            .archive
            .path
            .expect("a path")
    }

    fn recompress(&self, name: &str, io_policy: IoPolicy) -> PathBuf {
        let dir = self.new_dir(name);
        let options = RecompressOptions::new(&self.archive).encoding(
            EncodingOptions::default()
                .codec(Codec::zstd(ZSTD_LEVEL_DEFAULT))
                .frame_size_bytes(FRAME_SIZE_BYTES)
                .threads(THREADS)
                .io_policy(io_policy),
        );
        let mut sink = DirSink::open(dir).expect("opened");
        let report = recompress(&options, &mut sink, &NoProgress).expect("recompressed");
        report.archive.path.expect("a path")
    }

    fn restore(&self, name: &str, io_policy: IoPolicy) -> PathBuf {
        self.restore_from(&self.archive, name, io_policy)
    }

    fn restore_from(&self, archive: &Path, name: &str, io_policy: IoPolicy) -> PathBuf {
        let ledger = self.new_dir(name);
        let target = TargetOptions::new(&ledger).threads(THREADS).io_policy(io_policy);
        restore(&RestoreOptions::new(archive, target), &NoProgress).expect("restored");
        ledger
    }

    /// Syncs all files, and drops them from the page cache.
    fn make_cold(&self) {
        files_below(self.dir.path()).iter().for_each(|path| make_cold(path));
        let is_cold = resident_pages(&self.archive).iter().all(|page| !page);
        assert!(is_cold, "pages cannot be dropped in {}: TEST_DISK names a disk", self.dir.path().display());
    }
}

fn io_policy(io_hint: IoHint) -> IoPolicy {
    IoPolicy::default().io_hint(io_hint)
}

/// Returns every file below a directory.
fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() { found.extend(files_below(&path)) } else { found.push(path) }
    }
    found
}

fn contents_below(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    files_below(dir)
        .iter()
        .map(|path| (path.strip_prefix(dir).expect("inside").into(), fs::read(path).expect("read")))
        .collect()
}

fn make_cold(path: &Path) {
    let file = File::open(path).expect("opened");
    file.sync_all().expect("synced");
    fadvise(&file, 0, None, Advice::DontNeed).expect("dropped");
}

/// Returns, for each page of a file, whether it is in the page cache.
fn resident_pages(path: &Path) -> Vec<bool> {
    let file = File::open(path).expect("opened");
    let length = file.metadata().expect("read").len() as usize;
    if length == 0 {
        return Vec::new();
    }
    let mut pages = vec![0u8; length.div_ceil(rustix::param::page_size())];
    // SAFETY: the mapping is new, and is never read. `mincore` writes one byte for each page, for which `pages` has
    // room.
    let result = unsafe {
        let mapped = libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0);
        assert_ne!(mapped, libc::MAP_FAILED);
        let result = libc::mincore(mapped, length, pages.as_mut_ptr().cast());
        libc::munmap(mapped, length);
        result
    };
    assert_eq!(result, 0);
    pages.iter().map(|page| page & 1 != 0).collect()
}

fn resident_pages_below(dir: &Path) -> Residency {
    files_below(dir).into_iter().map(|path| (path.clone(), resident_pages(&path))).collect()
}

fn assert_cold(dir: &Path) {
    for (path, pages) in resident_pages_below(dir) {
        let count = pages.iter().filter(|page| **page).count();
        assert_eq!(count, 0, "{} of {} pages of {} are resident", count, pages.len(), path.display());
    }
}

/// Reads a third of the files into the page cache, and the first pages of another third.
fn warm_some_files(dir: &Path) {
    use std::io::Read;
    for (number, path) in files_below(dir).iter().enumerate() {
        let mut file = File::open(path).expect("opened");
        fadvise(&file, 0, None, Advice::Random).expect("advised");
        let mut start = [0; 20_000];
        match number % 3 {
            0 => drop(fs::read(path).expect("read")),
            1 => drop(file.read(&mut start).expect("read")),
            _ => {}
        }
    }
}

/// Warms a directory, runs an action, and checks that the action neither brings pages into the page cache nor drops
/// any, except at the ends of files. Returns the pages that were there before.
///
/// The system may drop pages at any time, so missing pages are checked again: a page that the
/// action drops is missing each time.
fn assert_left_as_it_was(dir: &Path, warm: impl Fn(&Path), action: impl Fn(usize)) -> Residency {
    const ATTEMPTS: usize = 3;
    let mut lost = Vec::new();
    for attempt in 0..ATTEMPTS {
        warm(dir);
        let before = resident_pages_below(dir);
        action(attempt);
        let after = resident_pages_below(dir);
        let changed_pages = |was_resident: bool| {
            let pages_of = |path: &PathBuf| {
                let before = &before[path];
                let after = &after[path];
                (0..before.len()).filter(|page| before[*page] == was_resident && after[*page] != was_resident).collect()
            };
            // A page that two frames share is treated like its neighbors, so one page at each end of a file may
            // change.
            let files = before.keys().map(|path| (path.clone(), pages_of(path)));
            files.filter(|(_, pages): &(_, Vec<usize>)| pages.len() > 2).collect::<Vec<_>>()
        };
        let brought = changed_pages(false);
        assert!(brought.is_empty(), "pages were brought in: {brought:?}");
        lost = changed_pages(true);
        if lost.is_empty() {
            return before;
        }
    }
    panic!("pages were dropped in each of {ATTEMPTS} runs: {lost:?}");
}

#[test]
fn archiving_leaves_the_page_cache_as_it_was() {
    let test = TestLedger::new();
    test.make_cold();
    test.make_archive("cold", io_policy(IoHint::Gentle));
    assert_cold(test.dir.path());
    let before = assert_left_as_it_was(&test.ledger, warm_some_files, |attempt| {
        let archive = test.make_archive(&format!("warm-{attempt}"), io_policy(IoHint::Gentle));
        assert_cold(archive.parent().expect("a directory"));
    });

    // Shows that these checks can fail: without the hint, pages of archive and ledger stay in the page cache.
    test.make_archive("none", io_policy(IoHint::None));
    let pages: Vec<bool> = resident_pages_below(&test.dir.path().join("none")).into_values().flatten().collect();
    assert!(pages.iter().any(|page| *page));
    assert!(before != resident_pages_below(&test.ledger));
}

#[test]
fn recompressing_and_restoring_leave_the_page_cache_as_it_was() {
    let test = TestLedger::new();
    let in_order = copy_without_index(&test.archive, test.dir.path());
    test.make_cold();
    test.recompress("recompressed", io_policy(IoHint::Gentle));
    assert_cold(test.dir.path());
    for (name, archive) in [("by-index", &test.archive), ("in-order", &in_order)] {
        test.restore_from(archive, name, io_policy(IoHint::Gentle));
        assert_cold(test.dir.path());
    }
    let source = test.archive.parent().expect("a directory");
    assert_left_as_it_was(
        source,
        |_| drop(fs::read(&test.archive).expect("read")),
        |attempt| {
            test.recompress(&format!("warm-{attempt}"), io_policy(IoHint::Gentle));
            test.restore(&format!("warm-restored-{attempt}"), io_policy(IoHint::Gentle));
        },
    );
}

#[test]
fn results_do_not_depend_on_the_io_policy() {
    let test = TestLedger::new();
    let expected = fs::read(&test.archive).expect("read");
    let restored = test.restore("restored", io_policy(IoHint::None));
    let restored = contents_below(&restored);
    let in_order = copy_without_index(&test.archive, test.dir.path());
    let in_order_restored = contents_below(&test.restore_from(&in_order, "restored-in-order", io_policy(IoHint::None)));
    // At this rate, reading the archive takes an eighth of a second, and reading the ledger takes longer.
    let rate = expected.len() as u64 * 8;
    let [gentle, none] = [IoHint::Gentle, IoHint::None].map(|hint| IoPolicy::default().io_hint(hint));
    for (name, io_policy) in
        [("gentle", gentle.clone()), ("none-slow", none.rate(rate)), ("gentle-slow", gentle.rate(rate))]
    {
        for archive in
            [test.make_archive(name, io_policy.clone()), test.recompress(&format!("re-{name}"), io_policy.clone())]
        {
            assert!(fs::read(archive).expect("read") == expected, "{name}");
        }
        let ledger = test.restore(&format!("{name}-by-index"), io_policy.clone());
        assert!(contents_below(&ledger) == restored, "{name}");
        let ledger = test.restore_from(&in_order, &format!("{name}-in-order"), io_policy);
        assert!(contents_below(&ledger) == in_order_restored, "{name}");
    }
}

#[test]
fn reading_is_no_faster_than_allowed() {
    let test = TestLedger::new();
    let bytes = fs::metadata(&test.archive).expect("read").len();
    let start = Instant::now();
    test.recompress("slow", IoPolicy::default().io_hint(IoHint::Gentle).rate(bytes));
    // At this rate, reading takes about a second.
    assert!(start.elapsed() > Duration::from_millis(700), "{:?}", start.elapsed());
}

/// Returns the arguments of the program's runs in tests of direct reading.
fn cold_run_arguments(test: &TestLedger, number: usize) -> [Vec<String>; 6] {
    let [ledger, archive] = [&test.ledger, &test.archive].map(|path| text(path).to_string());
    let out = text(&test.new_dir(&format!("out-{number}"))).to_string();
    let restored = format!("{out}/ledger");
    let in_order = copy_without_index(&test.archive, test.dir.path());
    let in_order = text(&in_order);
    let again = text(&test.new_dir(&format!("again-{number}"))).to_string();
    [
        format!("archive {ledger} -o {out} --frame-size {FRAME_SIZE_BYTES} -v"),
        format!("verify {ledger} -v"),
        format!("verify {archive} -v"),
        format!("restore {archive} --ledger {restored} -v"),
        format!("verify {in_order} -v"),
        format!("recompress {in_order} -o {again} --check frames -v"),
    ]
    .map(|line| line.split(' ').map(str::to_string).collect())
}

/// Returns the archives that [`cold_run_arguments`] made: one of the ledger, one copied by `restore`.
fn made_archives(test: &TestLedger, number: usize) -> Vec<Vec<u8>> {
    let made = files_below(&test.dir.path().join(format!("out-{number}")));
    let made = made.iter().filter(|path| path.extension().is_some_and(|extension| extension == "zst"));
    made.map(|path| fs::read(path).expect("read")).collect()
}

/// Checks that cached pieces are read from the page cache, and that others bypass it, with the same results.
fn assert_direct_reading(test: &TestLedger) {
    let expected = fs::read(&test.archive).expect("read");
    let count_direct_opens = |number: usize, prepare: &dyn Fn(), more: &str| -> Vec<usize> {
        let opened = cold_run_arguments(test, number).into_iter().map(|mut arguments| {
            if arguments[0] != "verify" {
                arguments.extend(more.split_whitespace().map(str::to_string));
            }
            prepare();
            let run = trace(&arguments, "openat", None);
            assert_eq!(run.output.status.code(), Some(0), "{arguments:?}: {:?}", code_and_stderr(&run.output));
            let is_direct = |line: &str| line.contains("/proc/self/fd/") && line.contains("O_RDONLY");
            run.calls.iter().filter(|call| is_direct(&call.line)).count()
        });
        let opened = opened.collect();
        assert!(made_archives(test, number) == [expected.as_slice(); 2]);
        opened
    };
    let warm = || files_below(test.dir.path()).iter().for_each(|path| drop(fs::read(path).expect("read")));
    // Pieces of the ledger's storages that are large enough, and frames of the archive, are read directly.
    let opened = count_direct_opens(1, &|| test.make_cold(), "");
    assert!(opened[..2].iter().all(|opened| *opened >= 10), "{opened:?}");
    assert!(opened[2..].iter().all(|opened| *opened >= 3), "{opened:?}");
    test.make_cold();
    assert_eq!(count_direct_opens(2, &warm, ""), [0; 6]);
    let opened = count_direct_opens(3, &|| test.make_cold(), "--io-hint none");
    assert_eq!([opened[0], opened[3], opened[5]], [0; 3]);
}

/// Returns true, and prints that a test is skipped, if the disk of a directory cannot be read directly.
fn skips_direct_reading(dir: &Path, test: &str) -> bool {
    let path = dir.join("direct");
    fs::write(&path, [0; 8192]).expect("written");
    let opened = rustix::fs::open(&path, OFlags::RDONLY | OFlags::DIRECT, Mode::empty());
    let is_in_memory = rustix::fs::statfs(dir).is_ok_and(|stat| stat.f_type == TMPFS_MAGIC);
    let is_refused = opened.is_err() || is_in_memory;
    if is_refused {
        eprintln!("skipped: {test}: {} cannot be read directly", dir.display());
    }
    is_refused
}

const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

#[test]
fn uncached_files_are_read_directly() {
    needs!("strace");
    let test = TestLedger::new();
    if !skips_direct_reading(test.dir.path(), "program::works::page_cache::uncached_files_are_read_directly") {
        assert_direct_reading(&test);
    }
}

#[test]
fn uncached_files_are_read_directly_from_xfs() {
    needs!("strace", "sys_admin", "loop_xfs", "mount", "umount", "mkfs.xfs");
    let disk = XfsDisk::new();
    assert_direct_reading(&TestLedger::new_in(disk.path()));
}

/// If direct requests are refused, files are read through the page cache. Requests that do only a part are continued.
/// If the disk fails, the run ends with an error that names a path of the test.
#[test]
fn faults_of_direct_reading_are_handled() {
    needs!("cc");
    let test = TestLedger::new();
    if skips_direct_reading(test.dir.path(), "program::works::page_cache::faults_of_direct_reading_are_handled") {
        return;
    }
    let expected = fs::read(&test.archive).expect("read");
    let library = build_direct_faults(test.dir.path());
    let faults = [None, Some(libc::EINTR), Some(libc::EINVAL), Some(libc::EOPNOTSUPP), Some(libc::EIO)];
    for (number, fault) in faults.into_iter().enumerate() {
        for arguments in cold_run_arguments(&test, number) {
            test.make_cold();
            let mut command = Command::new(slotpress_path());
            command.args(&arguments).env("LD_PRELOAD", &library);
            if let Some(fault) = fault {
                command.env("DIRECT_ERROR", fault.to_string());
            }
            let (code, stderr) = code_and_stderr(&command.output().expect("runs"));
            let context = format!("{fault:?}, {arguments:?}: {stderr}");
            assert_eq!(code, Some(i32::from(fault == Some(libc::EIO))), "{context}");
            if code != Some(0) {
                assert!(stderr.contains("error: "), "{context}");
                assert!(stderr.contains(text(test.dir.path())), "{context}");
            }
        }
        let archives = made_archives(&test, number);
        assert_eq!(archives.len(), if fault == Some(libc::EIO) { 0 } else { 2 }, "{fault:?}");
        assert!(archives.iter().all(|archive| *archive == expected), "{fault:?}");
    }
}

/// Builds the library whose direct requests fail.
fn build_direct_faults(dir: &Path) -> PathBuf {
    let library = dir.join("direct_faults.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/program/works/direct_faults.c");
    let output = Command::new("cc").args(["-shared", "-fPIC", "-o", text(&library)]).arg(source).output();
    assert!(output.expect("runs").status.success());
    library
}

/// A thread that panics while it reads ahead ends the run.
#[cfg(debug_assertions)]
#[test]
fn a_panic_while_reading_ahead_ends_the_program() {
    let test = TestLedger::new();
    for (number, panics) in [1, 3].into_iter().enumerate() {
        for arguments in cold_run_arguments(&test, number) {
            test.make_cold();
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            crate::common::faults::assert_panic_is_error(&arguments, "reading ahead", panics, None);
        }
    }
}
