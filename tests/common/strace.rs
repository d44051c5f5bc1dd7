//! Runs the program under `strace`, which makes system calls fail, or kills the program at them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::common::*;

/// Limit on the time of a run, far above what a run needs.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A system call in the log.
#[derive(Clone, Debug)]
pub struct Call {
    pub name: String,
    /// Number of the call among its thread's calls of this name, from 1, as strace counts.
    pub number: u64,
    pub line: String,
}

/// A run under strace.
#[derive(Debug)]
pub struct Trace {
    /// System calls, in order.
    pub calls: Vec<Call>,
    pub is_killed: bool,
    pub output: Output,
    /// The whole log.
    pub log: String,
}

/// Runs the program and logs `calls`. `injection` has the form of strace, such as
/// `rename:signal=KILL:when=2`.
pub fn trace(arguments: &[String], calls: &str, injection: Option<&str>) -> Trace {
    trace_in(&std::env::temp_dir(), arguments, calls, injection)
}

/// Like [`trace`], with a different directory for temporary files.
pub fn trace_in(temporary: &Path, arguments: &[String], calls: &str, injection: Option<&str>) -> Trace {
    trace_with(&[], temporary, arguments, calls, injection)
}

/// Like [`trace_in`], with more environment variables.
pub fn trace_with(
    variables: &[(&str, String)],
    temporary: &Path,
    arguments: &[String],
    calls: &str,
    injection: Option<&str>,
) -> Trace {
    let dir = temp_dir();
    let log = dir.path().join("log");
    let mut command = Command::new("timeout");
    command.arg("--signal=KILL").arg(TIMEOUT.as_secs().to_string());
    command.args(["strace", "-f", "-qq", "-s", "256", "-o", text(&log), "-e", &format!("trace={calls}")]);
    if let Some(injection) = injection {
        command.arg("-e").arg(format!("inject={injection}"));
    }
    command
        .arg(slotpress_path())
        .args(arguments)
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .env("TMPDIR", temporary)
        .env_remove("RUST_BACKTRACE")
        .env_remove("LD_LIBRARY_PATH")
        .stdin(std::process::Stdio::null());
    let start = Instant::now();
    let output = command.output().expect("runs");
    assert!(start.elapsed() < TIMEOUT, "{arguments:?} with {injection:?} does not end");
    let log = fs::read_to_string(&log).unwrap_or_else(|error| panic!("no log: {error}: {command:?}: {output:?}"));
    Trace { calls: parse(&log, calls), is_killed: log.contains("+++ killed by SIGKILL +++"), output, log }
}

/// Returns the calls of a log with these names. strace also logs calls whose names it does not know.
fn parse(log: &str, names: &str) -> Vec<Call> {
    let mut counts: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let mut calls = Vec::new();
    for line in log.lines().filter(|line| !line.contains(" resumed>")) {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let Some((name, _)) = rest.trim_start().split_once('(') else { continue };
        if !names.split(',').any(|traced| traced == name) {
            continue;
        }
        let number = counts.entry((thread, name)).or_default();
        *number += 1;
        calls.push(Call { name: name.to_string(), number: *number, line: line.to_string() });
    }
    calls
}

/// Reads a number from an environment variable.
pub fn number_from_env(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text}")),
        Err(_) => default,
    }
}

#[test]
fn calls_are_parsed_from_a_log() {
    let log = "1 open(1) = 3\n2 open(2 <unfinished ...>\n1 syscall_0x1c3(9) = 0\n1 open(3) = 4\n\
               2 <... open resumed>) = 5\n1 read(4) = ?\n1 +++ killed by SIGKILL +++\n";
    let calls: Vec<(String, u64)> = parse(log, "open,close").into_iter().map(|call| (call.name, call.number)).collect();
    assert_eq!(calls, [1, 1, 2].map(|number| ("open".to_string(), number)));
}
