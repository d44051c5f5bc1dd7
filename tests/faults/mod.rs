//! Faults: what shares a directory, what a killed run leaves, what the system refuses. `kills.rs` is the harness that
//! kills at every system call.

mod errors;
mod kills;
mod left_behind;
mod pipes;
mod refused;
mod scenarios;
mod shared;
pub mod strace;

use std::path::Path;
use std::process::{Command, Output};

use crate::common::*;

/// The program with arguments, to be started by the test itself.
fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(slotpress_path());
    command.args(arguments);
    command
}

/// Runs the program; exit code, and what it said on standard error.
fn run(arguments: &[&str]) -> (Option<i32>, String) {
    said(&program(arguments).output().expect("runs"))
}

fn said(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}
