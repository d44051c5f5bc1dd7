//! Wrong clocks: before 1970, and after the year 9999. No command panics; a command that cannot
//! work says so.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::common::served::{ServeProcess, two_archives};
use crate::common::*;

/// Source of a library that shifts the time of day by a number of seconds. Elapsed times stay correct.
const LIBRARY_SOURCE: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *at) {
    long result = syscall(SYS_clock_gettime, id, at);
    const char *ahead = getenv("CLOCK_AHEAD_SECONDS");
    if (result == 0 && id == CLOCK_REALTIME && ahead) at->tv_sec += atoll(ahead);
    return (int)result;
}
"#;

fn clock_library() -> &'static Path {
    static LIBRARY: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, library) = LIBRARY.get_or_init(|| {
        let dir = temp_dir();
        let source = dir.path().join("clock.c");
        let library = dir.path().join("clock.so");
        fs::write(&source, LIBRARY_SOURCE).expect("written");
        let made = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).status();
        assert!(made.expect("runs").success());
        (dir, library)
    });
    library
}

/// Seconds by which the clock is shifted to a time before 1970, or after the year 9999.
const BEFORE_1970: &str = "-4000000000";
const AFTER_9999: &str = "300000000000";

/// Prepares a run with a shifted clock.
fn command_with_clock(ahead_seconds: &str) -> Command {
    let mut command = Command::new(slotpress_path());
    command.env("LD_PRELOAD", clock_library()).env("CLOCK_AHEAD_SECONDS", ahead_seconds).env_remove("RUST_BACKTRACE");
    command.stdin(Stdio::null());
    command
}

fn run_without_panic(ahead_seconds: &str, arguments: &[&str]) -> Output {
    let output = command_with_clock(ahead_seconds).args(arguments).output().expect("runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!stderr.contains("panic"), "{ahead_seconds} {arguments:?}: {stderr}");
    assert!(output.status.code().is_some(), "{ahead_seconds} {arguments:?}: {stderr}");
    output
}

fn assert_succeeds(ahead_seconds: &str, arguments: &[&str]) -> Output {
    let output = run_without_panic(ahead_seconds, arguments);
    assert!(output.status.success(), "{ahead_seconds} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
fn file_commands_work_with_wrong_clocks() {
    needs!("cc");
    for ahead in [BEFORE_1970, AFTER_9999] {
        let dir = temp_dir();
        let path = |name: &str| dir.path().join(name).to_str().expect("text").to_string();
        let ledger = ledger("ledger-at-40");
        for name in ["archives", "snapshots", "mirror"] {
            fs::create_dir(path(name)).expect("made");
        }
        for name in [FULL_26, INCREMENTAL_26_40] {
            fs::copy(fixture(name), dir.path().join("snapshots").join(name)).expect("copied");
        }
        let snapshots = path("snapshots");
        let mirror = path("mirror");
        let restored = path("restored");
        assert_succeeds(ahead, &["archive", text(ledger.path()), "-o", &path("archives")]);
        assert_succeeds(ahead, &["verify", &snapshots]);
        assert_succeeds(ahead, &["list", &snapshots]);
        assert_succeeds(ahead, &["list", "--json", &snapshots]);
        assert_succeeds(ahead, &["inspect", text(&fixture(FULL_26))]);
        assert_succeeds(ahead, &["recompress", text(&fixture(FULL_26)), "-o", &path("archives")]);
        assert_succeeds(ahead, &["restore", text(&fixture(FULL_26)), "--ledger", &restored]);
        assert_succeeds(ahead, &["restore", text(&fixture(FULL_26)), "--ledger", &restored, "--replace-state"]);
        assert_succeeds(ahead, &["prune", &snapshots, "--keep-full", "1", "--keep-incremental", "1", "--dry-run"]);
        run_without_panic(ahead, &["doctor", text(ledger.path())]);
        for flags in [&[][..], &["--json"]] {
            let to = ["publish", &snapshots, "--to", &mirror, "--once", "--writer", "agave", "--keep-full", "1"];
            assert_succeeds(ahead, &[&to, flags].concat());
        }
        assert_eq!(relative_paths(Path::new(&mirror)).iter().filter(|name| name.contains("snapshot-")).count(), 2);
    }
}

/// A server reports the wrong clock in its responses, and continues.
#[test]
fn a_server_without_a_date_answers_503() {
    needs!("cc");
    for ahead in [BEFORE_1970, AFTER_9999] {
        let server =
            ServeProcess::start_with_command(command_with_clock(ahead), two_archives(), &["--metrics", "127.0.0.1:0"]);
        for path in ["/", "/api/v1/archives"] {
            let response = server.get(path, "");
            assert_eq!(
                (response.status, response.text().as_str()),
                (503, "the clock of this server is outside the years 1970 to 9999")
            );
        }
    }
    // A fetch over HTTP needs no date.
    let server = ServeProcess::start(&[]);
    let to = temp_dir();
    for ahead in [BEFORE_1970, AFTER_9999] {
        let to = to.path().join(ahead);
        fs::create_dir(&to).expect("made");
        assert_succeeds(ahead, &["fetch", &server.url("/"), "-o", text(&to)]);
        assert!(relative_paths(&to).iter().any(|name| name == FULL_26));
    }
}

/// Signatures and certificates are valid only at certain times, so commands that need them report the wrong clock.
#[test]
fn commands_that_need_the_time_report_the_clock() {
    needs!("cc");
    for url in ["https://127.0.0.1:9/", "s3://bucket/prefix"] {
        let mut command = command_with_clock(BEFORE_1970);
        command.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "secret");
        command.args(["list", url, "--endpoint", "http://127.0.0.1:9"]);
        let output = command.output().expect("runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!stderr.contains("panic"), "{url}: {:?} {stderr}", output.status);
        assert_eq!(output.status.code(), Some(1), "{url}: {:?} {stderr}", output.status);
        assert!(stderr.contains("clock is outside the years 1970 to 9999"), "{url}: {stderr}");
        assert!(stderr.contains("set the clock"), "{url}: {stderr}");
    }
}
