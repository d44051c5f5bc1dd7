//! System calls that fail, because `strace` injects errors, and system calls that do less than asked, because of a
//! preloaded library. A run either succeeds in spite of the fault, and then its output is whole, or fails and leaves no
//! output. If the fault comes at or after the renaming of the output, there may be output, which is whole. Some faults,
//! such as those of the cleanup, leave temporary files, which the next run removes.
//!
//! By default, the tests run a sample. `FAULTS_ERRORS` sets the number of failing calls for each command and
//! fault, `FAULTS_SEED` selects them. Prints a table; docs/reliability.md has its sums.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use crate::common::runs::*;
use crate::common::scenarios::{RENAMING, STAGES, Scenario, scenarios, skip_loading};
use crate::common::seeded_rng::SeededRng;
use crate::common::strace::{Call, number_from_env, trace};
use crate::common::*;

const SEED_DEFAULT: u64 = 14;

/// Runs for each command and fault: few enough that all take half a minute.
const ERRORS_DEFAULT: u64 = 1;

/// A fault of a system call.
struct Fault {
    /// Name in the printed table.
    name: &'static str,
    /// Injection, in the form of strace.
    injection: &'static str,
    /// Names of the system calls that may fail.
    calls: &'static str,
    /// Exit code that is allowed besides 0 and 1, because a file that ends early is damaged.
    other_code: Option<i32>,
    /// True if SIGABRT may end the program, because the standard library aborts if it gets no memory.
    may_abort: bool,
}

const READING: &str = "openat,read,readv,pread64,preadv,getdents64,statx,newfstatat,fstat,lseek,statfs,fstatfs,flock";
const WRITING: &str = "write,writev,pwrite64,pwritev,copy_file_range,ftruncate,fallocate,fsync,fdatasync,syncfs,\
    rename,renameat,renameat2,mkdir,mkdirat,unlink,unlinkat,rmdir,linkat,fchmod,fchown,sync_file_range";

impl Fault {
    const fn new(name: &'static str, injection: &'static str, calls: &'static str) -> Self {
        Self { name, injection, calls, other_code: None, may_abort: false }
    }
}

const FAULTS: [Fault; 8] = [
    Fault::new("EIO when reading", "error=EIO", READING),
    Fault::new("EIO when writing", "error=EIO", WRITING),
    Fault::new(
        "ENOSPC",
        "error=ENOSPC",
        "openat,write,pwrite64,copy_file_range,ftruncate,fallocate,fsync,rename,renameat,mkdir,mkdirat",
    ),
    Fault::new(
        "EINTR",
        "error=EINTR",
        "openat,read,pread64,write,pwrite64,copy_file_range,ftruncate,fsync,syncfs,flock,fallocate,poll",
    ),
    Fault::new("nothing is written", "retval=0", "write,pwrite64,copy_file_range"),
    Fault { other_code: Some(3), ..Fault::new("a file ends early", "retval=0", "read,pread64,getdents64") },
    Fault::new("EAGAIN for a thread", "error=EAGAIN", "clone,clone3"),
    Fault { may_abort: true, ..Fault::new("ENOMEM", "error=ENOMEM", "mmap,mremap") },
];

/// Results of a number of runs.
#[derive(Default)]
struct Counts {
    succeeded: u64,
    failed: u64,
    damaged: u64,
    aborted: u64,
}

/// Returns the numbers of the calls at which a fault can be injected, by name.
fn injectable_calls(calls: &[Call]) -> BTreeMap<String, Vec<u64>> {
    let calls_while_loading: BTreeMap<&str, u64> =
        calls[..calls.len() - skip_loading(calls).len()].iter().map(|call| (call.name.as_str(), call.number)).collect();
    let mut numbers_by_call: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for call in calls {
        let numbers = numbers_by_call.entry(call.name.clone()).or_default();
        if call.number > calls_while_loading.get(call.name.as_str()).copied().unwrap_or(0)
            && !numbers.contains(&call.number)
        {
            numbers.push(call.number);
        }
    }
    numbers_by_call.retain(|_, numbers| !numbers.is_empty());
    numbers_by_call
}

/// Makes one run with a fault. Asserts that the run succeeds, or fails and leaves no output.
fn assert_survives_fault(scenario: &Scenario, fault: &Fault, call: &str, number: u64, counts: &mut Counts) {
    scenario.reset();
    let source = scenario.source_tree();
    // Calls that show the stage are also logged.
    let logged = format!("{},openat,mkdir,mkdirat,fsync,syncfs,rename,renameat,renameat2", fault.calls);
    let injection = format!("{call}:{}:when={number}", fault.injection);
    let run = trace(&scenario.arguments(), &logged, Some(&injection));
    let (code, stderr) = code_and_stderr(&run.output);
    let injected = run.calls.iter().rposition(|call| call.line.contains("(INJECTED)"));
    let stage = injected.map_or(0, |index| scenario.stages(&run.calls)[index]);
    let line = injected.map_or("", |index| run.calls[index].line.as_str());
    let context = format!("{}, {injection}, {}: {line}\n{code:?} {stderr}", scenario.name, STAGES[stage]);
    assert!(fault.may_abort || !stderr.contains("panicked"), "{context}");
    assert!(stderr.len() < 4096, "{context}");
    match code {
        Some(0) => {
            counts.succeeded += 1;
            assert!(scenario.looks_complete(), "{context}: no complete output");
        }
        Some(1) => counts.failed += 1,
        Some(code) if fault.other_code == Some(code) => counts.damaged += 1,
        None if fault.may_abort && run.output.status.signal() == Some(6) => counts.aborted += 1,
        _ => panic!("{context}"),
    }
    if let Some(code) = code.filter(|code| *code != 0) {
        assert!(stderr.contains("error: ") || line.contains("write(2,"), "{context}");
        // If the call was part of the cleanup, temporary files may remain.
        let is_cleanup =
            ["unlink", "rmdir", "openat", "getdents64", "flock", "stat"].iter().any(|name| call.contains(name));
        assert!(
            is_cleanup || code == 3 || scenario.partial_paths().is_empty(),
            "{context}: left {:?}",
            scenario.partial_paths()
        );
        let may_look_complete = stage >= RENAMING || !scenario.has_result();
        assert!(may_look_complete || !scenario.looks_complete(), "{context}: something looks complete");
    }
    scenario.check(&source, &context);
}

#[test]
fn failing_system_calls_are_survived_or_leave_no_output() {
    needs!("strace");
    let seed = number_from_env("FAULTS_SEED", SEED_DEFAULT);
    let errors = number_from_env("FAULTS_ERRORS", ERRORS_DEFAULT);
    let mut rng = SeededRng::new(seed);
    let mut table = format!("Seed {seed}, {errors} for each command and fault.\n\n");
    table += "| Command | Fault | Calls | Runs | Succeeded | Exit code 1 | Exit code 3 | Aborted |\n";
    table += "|---|---|---|---:|---:|---:|---:|---:|\n";
    let mut all = 0;
    let all_calls: Vec<&str> = FAULTS.iter().map(|fault| fault.calls).chain(["poll"]).collect();
    for scenario in scenarios() {
        scenario.reset();
        let whole = trace(&scenario.arguments(), &all_calls.join(","), None);
        assert_eq!(whole.output.status.code(), Some(0), "{}: {:?}", scenario.name, code_and_stderr(&whole.output));
        for fault in &FAULTS {
            let mut numbers_by_call = injectable_calls(&whole.calls);
            numbers_by_call.retain(|call, _| fault.calls.split(',').any(|name| name == call));
            let names: Vec<String> = numbers_by_call.keys().cloned().collect();
            if names.is_empty() {
                continue; // The command makes no such call.
            }
            let mut counts = Counts::default();
            let first = rng.below(names.len());
            for number in 0..errors as usize {
                // Each call in turn, whether it occurs once or a hundred times.
                let call = &names[(first + number) % names.len()];
                let numbers = &numbers_by_call[call];
                assert_survives_fault(&scenario, fault, call, numbers[rng.below(numbers.len())], &mut counts);
            }
            let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            let Counts { succeeded, failed, damaged, aborted } = counts;
            table += &format!(
                "| `{}` | {} | {} | {errors} | {succeeded} | {failed} | {damaged} | {aborted} |\n",
                scenario.name,
                fault.name,
                names.join(", ")
            );
            all += errors;
        }
    }
    table += &format!("| all | | | {all} | | | | |\n");
    println!("{table}");
}

/// Builds the library whose calls do less than asked.
fn build_short_calls(dir: &Path) -> std::path::PathBuf {
    let library = dir.join("short_calls.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/program/survives/short_calls.c");
    let output = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o", text(&library)]).arg(source).output();
    let output = output.expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    library
}

/// Most reads and writes of files do only a part of what was asked, and some are interrupted.
#[test]
fn short_reads_and_writes_are_continued() {
    needs!("cc");
    let dir = temp_dir();
    let library = build_short_calls(dir.path());
    for scenario in scenarios() {
        for seed in 1..=3 {
            scenario.reset();
            let source = scenario.source_tree();
            let count = dir.path().join("count");
            let arguments = scenario.arguments();
            let output = program(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
                .env("LD_PRELOAD", &library)
                .env("SHORT_CALLS_SEED", seed.to_string())
                .env("SHORT_CALLS_COUNT", &count)
                .output()
                .expect("runs");
            let context = format!("{}, seed {seed}: {:?}", scenario.name, code_and_stderr(&output));
            assert_eq!(output.status.code(), Some(0), "{context}");
            let calls: u64 = fs::read_to_string(&count).expect("a count").trim().parse().expect("a number");
            assert!(calls >= 10, "{context}: only {calls} short calls");
            scenario.check(&source, &context);
        }
    }
}
