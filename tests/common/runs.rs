//! Runs of the program that a test starts itself: exit code and standard error.

use std::process::{Command, Output};

use crate::common::*;

/// Prepares a run of the program. Unlike [`slotpress`], keeps the whole environment, and sets no time limit.
pub fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(slotpress_path());
    command.args(arguments);
    command
}

/// Runs the program. Returns its exit code and its standard error.
pub fn run_to_stderr(arguments: &[&str]) -> (Option<i32>, String) {
    code_and_stderr(&program(arguments).output().expect("runs"))
}

pub fn code_and_stderr(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}
