//! Exports that are killed, or whose system calls fail, at moments drawn from the whole run: to
//! directories and to a bucket, into an empty place, beside other tables, and of changes. The next
//! run always ends with the right tables.
//!
//! By default, a tenth. `EXPORT_KILLS` (1,000 in a long run) and `EXPORT_FAILURES` (500) set the
//! numbers, `EXPORT_SEED` other moments.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::common::draws::Draws;
use crate::common::strace::{Trace, number_of, trace_with};
use crate::common::*;
use crate::export::works::changes::of_agave;
use crate::export::{files, manifests};
use crate::stores::gateway::{BUCKET, Gateway, KEY, SECRET};

const KILLS_DEFAULT: u64 = 100;
const FAILURES_DEFAULT: u64 = 50;

/// System calls that read, write, send, and change names.
const CALLS: &str = "openat,read,pread64,write,pwrite64,sendto,recvfrom,writev,fsync,fdatasync,ftruncate,fallocate,\
                     rename,renameat,renameat2,linkat,unlinkat,mkdirat,getdents64,statx,flock";

const ERRORS: [&str; 4] = ["EIO", "ENOSPC", "ENOMEM", "EACCES"];

/// An export, and those before it in the same place.
struct Case {
    before: Vec<Vec<String>>,
    run: Vec<String>,
}

fn case(before: &[&[&str]], run: &[&str]) -> Case {
    let owned = |flags: &[&str]| flags.iter().map(ToString::to_string).collect();
    Case { before: before.iter().map(|flags| owned(flags)).collect(), run: owned(run) }
}

/// Where an export goes: a directory, or a prefix of the store's bucket.
struct Place<'g> {
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

    /// Runs an export; returns its exit code and what it said.
    fn run(&self, flags: &[String]) -> (Option<i32>, String) {
        let output = slotpress().args(self.arguments(flags)).envs(self.variables()).output().expect("runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn trace(&self, temporary: &Path, case: &Case, injection: Option<&str>) -> Trace {
        trace_with(&self.variables(), temporary, &self.arguments(&case.run), CALLS, injection)
    }

    /// The tables that are there, by their manifests. Checks that these describe their files.
    fn tables(&self, at: &str) -> Vec<(u64, Value)> {
        let manifests = if self.dir.exists() { manifests(&self.dir) } else { Vec::new() };
        let mut found = Vec::new();
        for manifest in manifests {
            for table in manifest["tables"].as_array().expect("a list") {
                for file in table["files"].as_array().expect("a list") {
                    let content = fs::read(self.dir.join(file["path"].as_str().expect("a path")));
                    let content = content.unwrap_or_else(|error| panic!("{at}: {file}: {error}"));
                    let hash: String = Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
                    assert_eq!(file["sha256"].as_str(), Some(&*hash), "{at}");
                }
                found.push((manifest["slot"].as_u64().expect("a slot"), table.clone()));
            }
        }
        found
    }
}

/// Plays exports of each case with injections at moments drawn from the whole run. Returns how many
/// of them were killed or failed.
fn play(gateway: Option<&Gateway>, count: u64, inject: impl Fn(&mut Draws, &str) -> String) -> u64 {
    let chain = of_agave().pop().expect("a chain");
    let [day_1, day_2] = [0, 1].map(|day| chain.day(day).into_iter().map(text).collect::<Vec<&str>>());
    let (two, more) = (["--table", "accounts,token-accounts"], ["--table", "votes,stakes"]);
    let cases = [
        case(&[], &[&day_2[..], &two].concat()),
        case(&[&[&day_2[..], &two].concat()], &[&day_2[..], &more].concat()),
        case(&[&[&day_1[..], &two].concat()], &[&day_2[..], &two, &["--since"], &day_1].concat()),
    ];
    let (top, scratch, mut draws, mut ended) = (temp_dir(), temp_dir(), Draws(number_of("EXPORT_SEED", 1)), 0);
    let mut places = 0;
    let mut place = |case: &Case| {
        places += 1;
        let above = gateway.map_or_else(|| top.path().to_path_buf(), Gateway::bucket);
        let place = Place { dir: above.join(format!("place-{places}")), gateway };
        case.before.iter().for_each(|flags| assert_eq!(place.run(flags).0, Some(0)));
        place
    };
    for (number, case) in cases.iter().enumerate() {
        let whole = place(case);
        let seen = whole.trace(scratch.path(), case, None);
        assert!(seen.output.status.success(), "{seen:?}");
        let (tables, named) = (whole.tables("whole"), files(&whole.dir));
        assert_eq!(tables.len(), case.before.len() * 2 + 2);
        for _ in 0..count.div_ceil(cases.len() as u64) {
            let call = &seen.calls[draws.below(seen.calls.len())];
            let injection = format!("{}:{}", call.name, inject(&mut draws, &call.number.to_string()));
            let (at, place) = (format!("case {number}, {injection}"), place(case));
            let was = place.tables(&at);
            let run = place.trace(scratch.path(), case, Some(&injection));
            let said = String::from_utf8_lossy(&run.output.stderr);
            // tokio panics if it cannot wake itself up, which no kernel refuses.
            assert!(
                !said.contains("slotpress has a bug") || said.contains("failed to wake I/O driver"),
                "{at}: {said}"
            );
            ended += u64::from(!run.output.status.success());
            let there = place.tables(&at);
            let is_right = |table: &(u64, Value)| tables.contains(table);
            assert!(there.iter().all(is_right) && was.iter().all(|table| there.contains(table)), "{at}: {there:?}");
            let is_complete = there.len() == tables.len();
            assert!(is_complete || !run.output.status.success(), "{at}: {said}");
            let (code, said) = place.run(&case.run);
            assert_eq!(code, Some(if is_complete { 5 } else { 0 }), "{at}: {said}");
            assert_eq!(place.tables(&at), tables, "{at}");
            assert_eq!(files(&place.dir), named, "{at}");
            fs::remove_dir_all(&place.dir).expect("removed");
        }
    }
    ended
}

fn kill(_: &mut Draws, number: &str) -> String {
    format!("signal=KILL:when={number}")
}

fn fail_once(draws: &mut Draws, number: &str) -> String {
    format!("error={}:when={number}", ERRORS[draws.below(ERRORS.len())])
}

/// Half of the failures last.
fn fail(draws: &mut Draws, number: &str) -> String {
    let more = if draws.below(2) == 0 { "" } else { "+" };
    fail_once(draws, number) + more
}

#[test]
fn killed_at_any_moment() {
    needs!("strace");
    let kills = number_of("EXPORT_KILLS", KILLS_DEFAULT) / 2;
    assert!(play(None, kills, kill) > kills * 9 / 10);
}

#[test]
fn killed_while_a_bucket_gets_it() {
    needs!("strace", "versitygw");
    let kills = number_of("EXPORT_KILLS", KILLS_DEFAULT) / 2;
    assert!(play(Some(&Gateway::start()), kills, kill) > kills * 9 / 10);
}

#[test]
fn system_calls_that_fail() {
    needs!("strace");
    let failures = number_of("EXPORT_FAILURES", FAILURES_DEFAULT) / 2;
    assert!(play(None, failures, fail) > failures / 4);
}

#[test]
fn system_calls_that_fail_while_a_bucket_gets_it() {
    needs!("strace", "versitygw");
    let failures = number_of("EXPORT_FAILURES", FAILURES_DEFAULT) / 2;
    // A request that failed is sent again, so few failures end a run.
    assert!(play(Some(&Gateway::start()), failures, fail_once) > 0);
}
