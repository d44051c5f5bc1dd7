//! Exports that are killed, or whose system calls fail, at moments drawn from the whole run. They write to
//! directories and to a bucket: tables to an empty place, tables beside others, and changes. The next run always
//! completes the tables.
//!
//! By default, there are about 100 kills and 50 failures. `EXPORT_KILLS` and `EXPORT_FAILURES` set other numbers
//! (1,000 and 500 in a long run), and `EXPORT_SEED` chooses other moments.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use crate::common::seeded_rng::SeededRng;
use crate::common::strace::{Trace, number_from_env, trace_with};
use crate::common::*;
use crate::export::works::changes::agave_chains;
use crate::export::{list_files, read_manifests, sha256_hex, stderr_of};
use crate::stores::gateway::{BUCKET, Gateway, KEY, SECRET};

const KILLS_DEFAULT: u64 = 100;
const FAILURES_DEFAULT: u64 = 50;

/// System calls that read, write, sync, send, receive, lock, or change directory entries.
const CALLS: &str = "openat,read,pread64,write,pwrite64,sendto,recvfrom,writev,fsync,fdatasync,ftruncate,fallocate,\
                     rename,renameat,renameat2,linkat,unlinkat,mkdirat,getdents64,statx,flock";

const ERRORS: [&str; 4] = ["EIO", "ENOSPC", "ENOMEM", "EACCES"];

/// The arguments of an export, and of the exports before it in the same place.
struct Case {
    before: Vec<Vec<String>>,
    run: Vec<String>,
}

fn new_case(before: &[&[&str]], run: &[&str]) -> Case {
    let to_strings = |flags: &[&str]| flags.iter().map(ToString::to_string).collect();
    Case { before: before.iter().map(|flags| to_strings(flags)).collect(), run: to_strings(run) }
}

/// Output of an export: a directory, or a prefix of the store's bucket.
struct Place<'g> {
    /// With a gateway, the directory in which it keeps the prefix.
    dir: PathBuf,
    gateway: Option<&'g Gateway>,
}

impl Place<'_> {
    fn arguments(&self, flags: &[String]) -> Vec<String> {
        let prefix = name(&self.dir);
        let out = if self.gateway.is_some() { format!("s3://{BUCKET}/{prefix}") } else { text(&self.dir).to_string() };
        [&["export".to_string(), "-o".to_string(), out], flags].concat()
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        let Some(gateway) = self.gateway else { return Vec::new() };
        vec![
            ("AWS_ACCESS_KEY_ID", KEY.to_string()),
            ("AWS_SECRET_ACCESS_KEY", SECRET.to_string()),
            ("SLOTPRESS_ENDPOINT", gateway.endpoint()),
            ("SLOTPRESS_REGION", "us-east-1".to_string()),
        ]
    }

    fn run(&self, flags: &[String]) -> Output {
        slotpress().args(self.arguments(flags)).envs(self.variables()).output().expect("runs")
    }

    fn trace(&self, temporary: &Path, case: &Case, injection: Option<&str>) -> Trace {
        trace_with(&self.variables(), temporary, &self.arguments(&case.run), CALLS, injection)
    }

    /// Returns the published tables with their slots. Checks the hashes of their files.
    fn published_tables(&self, label: &str) -> Vec<(u64, Value)> {
        let manifests = if self.dir.exists() { read_manifests(&self.dir) } else { Vec::new() };
        let mut published = Vec::new();
        for manifest in manifests {
            for table in manifest["tables"].as_array().expect("a list") {
                for file in table["files"].as_array().expect("a list") {
                    let content = fs::read(self.dir.join(file["path"].as_str().expect("a path")));
                    let content = content.unwrap_or_else(|error| panic!("{label}: {file}: {error}"));
                    assert_eq!(file["sha256"], sha256_hex(&content), "{label}");
                }
                published.push((manifest["slot"].as_u64().expect("a slot"), table.clone()));
            }
        }
        published
    }
}

/// Runs exports of each case with injections at moments drawn from the whole run, and checks that the
/// next run completes the tables. Returns how many exports were killed or failed.
fn assert_recovers(gateway: Option<&Gateway>, count: u64, inject: impl Fn(&mut SeededRng, &str) -> String) -> u64 {
    let chain = agave_chains().pop().expect("a chain");
    let [day_1, day_2] = [0, 1].map(|day| chain.archives_of_day(day).into_iter().map(text).collect::<Vec<&str>>());
    let tables = ["--table", "accounts,token-accounts"];
    let other_tables = ["--table", "votes,stakes"];
    let cases = [
        new_case(&[], &[&day_2[..], &tables].concat()),
        new_case(&[&[&day_2[..], &tables].concat()], &[&day_2[..], &other_tables].concat()),
        new_case(&[&[&day_1[..], &tables].concat()], &[&day_2[..], &tables, &["--since"], &day_1].concat()),
    ];
    let top = temp_dir();
    let scratch = temp_dir();
    let mut rng = SeededRng::new(number_from_env("EXPORT_SEED", 1));
    let mut unsuccessful_count = 0;
    let mut place_count = 0;
    let mut new_place = |case: &Case| {
        place_count += 1;
        let above = gateway.map_or_else(|| top.path().to_path_buf(), Gateway::bucket);
        let place = Place { dir: above.join(format!("place-{place_count}")), gateway };
        for flags in &case.before {
            assert_eq!(place.run(flags).status.code(), Some(0));
        }
        place
    };
    for (number, case) in cases.iter().enumerate() {
        let whole = new_place(case);
        let seen = whole.trace(scratch.path(), case, None);
        assert!(seen.output.status.success(), "{seen:?}");
        let expected = whole.published_tables("whole");
        let expected_files = list_files(&whole.dir);
        assert_eq!(expected.len(), case.before.len() * 2 + 2);
        for _ in 0..count.div_ceil(cases.len() as u64) {
            let call = &seen.calls[rng.below(seen.calls.len())];
            let injection = format!("{}:{}", call.name, inject(&mut rng, &call.number.to_string()));
            let label = format!("case {number}, {injection}");
            let place = new_place(case);
            let before = place.published_tables(&label);
            let run = place.trace(scratch.path(), case, Some(&injection));
            let run_stderr = stderr_of(&run.output);
            // tokio panics if the call that wakes its I/O driver fails, which does not happen on a real kernel.
            let has_panicked = run_stderr.contains("slotpress has a bug");
            assert!(!has_panicked || run_stderr.contains("failed to wake I/O driver"), "{label}: {run_stderr}");
            unsuccessful_count += u64::from(!run.output.status.success());
            let after = place.published_tables(&label);
            assert!(after.iter().all(|table| expected.contains(table)), "{label}: {after:?}");
            assert!(before.iter().all(|table| after.contains(table)), "{label}: {after:?}");
            let is_complete = after.len() == expected.len();
            assert!(is_complete || !run.output.status.success(), "{label}: {run_stderr}");
            let next = place.run(&case.run);
            assert_eq!(next.status.code(), Some(if is_complete { 5 } else { 0 }), "{label}: {}", stderr_of(&next));
            assert_eq!(place.published_tables(&label), expected, "{label}");
            assert_eq!(list_files(&place.dir), expected_files, "{label}");
            fs::remove_dir_all(&place.dir).expect("removed");
        }
    }
    unsuccessful_count
}

fn kill_at(_: &mut SeededRng, number: &str) -> String {
    format!("signal=KILL:when={number}")
}

fn fail_once_at(rng: &mut SeededRng, number: &str) -> String {
    format!("error={}:when={number}", ERRORS[rng.below(ERRORS.len())])
}

/// In half of the cases, all later calls of the same name fail too.
fn fail_at(rng: &mut SeededRng, number: &str) -> String {
    let suffix = if rng.below(2) == 0 { "" } else { "+" };
    fail_once_at(rng, number) + suffix
}

#[test]
fn kills_at_any_moment_are_survived() {
    needs!("strace");
    let kills = number_from_env("EXPORT_KILLS", KILLS_DEFAULT) / 2;
    assert!(assert_recovers(None, kills, kill_at) > kills * 9 / 10);
}

#[test]
fn kills_while_sending_to_a_bucket_are_survived() {
    needs!("strace", "versitygw");
    let kills = number_from_env("EXPORT_KILLS", KILLS_DEFAULT) / 2;
    assert!(assert_recovers(Some(&Gateway::start()), kills, kill_at) > kills * 9 / 10);
}

#[test]
fn failing_system_calls_are_survived() {
    needs!("strace");
    let failures = number_from_env("EXPORT_FAILURES", FAILURES_DEFAULT) / 2;
    assert!(assert_recovers(None, failures, fail_at) > failures / 4);
}

#[test]
fn failing_system_calls_while_sending_to_a_bucket_are_survived() {
    needs!("strace", "versitygw");
    let failures = number_from_env("EXPORT_FAILURES", FAILURES_DEFAULT) / 2;
    // A request that failed is sent again, so few failures end a run.
    assert!(assert_recovers(Some(&Gateway::start()), failures, fail_once_at) > 0);
}
