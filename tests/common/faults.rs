//! Faults that the program injects into itself (`threads::panic_point`).

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::*;

/// Runs the program so that a thread panics at a place (`threads::panic_point`) when threads reach that place for
/// the `number`th time. The program must end with an error, exit code 1, and no message from the standard library.
/// Returns its stderr, or `None` if the place was reached fewer times.
#[cfg(debug_assertions)]
pub fn assert_panic_is_error(arguments: &[&str], place: &str, number: u64, stdin: Option<&Path>) -> Option<String> {
    let mut command = Command::new(slotpress_path());
    command.args(arguments);
    assert_command_panic_is_error(&command, place, number, stdin)
}

/// The same as [`assert_panic_is_error`], with a command that may set environment variables.
#[cfg(debug_assertions)]
pub fn assert_command_panic_is_error(
    original: &Command,
    place: &str,
    number: u64,
    stdin: Option<&Path>,
) -> Option<String> {
    let arguments: Vec<_> = original.get_args().collect();
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "60"]).arg(original.get_program()).args(&arguments);
    command.envs(original.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env("FAULTS_PANIC_AT", format!("{place}:{number}")).env_remove("RUST_BACKTRACE");
    command.stdin(stdin.map_or(Stdio::null(), |path| fs::File::open(path).expect("opened").into()));
    let output = command.output().expect("runs");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let at = format!("{arguments:?}, {place} {number}: {:?} {stderr}", output.status);
    if output.status.code() == Some(0) {
        assert!(number > 1, "no thread reaches the place: {at}");
        return None;
    }
    assert_eq!(output.status.code(), Some(1), "{at}");
    assert!(stderr.contains("error: "), "{at}");
    assert!(stderr.contains(&format!("an injected panic at {place}")), "{at}");
    assert!(!stderr.contains("thread '"), "{at}");
    Some(stderr)
}
