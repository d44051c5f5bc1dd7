//! A run of the program that a test starts itself: its exit code, and what it said on standard
//! error.

use std::process::{Command, Output};

use crate::common::*;

/// The program with arguments, to be started by the test itself.
pub fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(slotpress_path());
    command.args(arguments);
    command
}

/// Runs the program; exit code, and what it said on standard error.
pub fn run(arguments: &[&str]) -> (Option<i32>, String) {
    said(&program(arguments).output().expect("runs"))
}

pub fn said(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}
