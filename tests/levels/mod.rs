//! `slotpress levels`: every row adds up, for any input. No test depends on times.

mod works {
    mod codecs;
    mod frames;
    mod inputs;
    mod link;
    mod page;
}
mod refused {
    mod frames;
    mod inputs;
    mod link;
}

use std::path::Path;

use assert_cmd::Command;
use serde_json::Value;

use crate::common::{json_lines, slotpress};

/// Runs `levels --json` with one short run of each measurement, and returns its lines.
pub fn run_levels(input: &Path, arguments: &[&str]) -> Vec<Value> {
    json_lines(slotpress().args(QUICK_LEVELS).arg("--json").args(arguments).arg(input))
}

/// Runs a command with `--json` on an input, and returns its lines.
pub fn run_with_json(arguments: &[&str], input: &Path) -> Vec<Value> {
    json_lines(slotpress().args(arguments).arg("--json").arg(input))
}

/// Arguments of `levels` for one short run of each measurement.
pub const QUICK_LEVELS: [&str; 5] = ["levels", "--repeat", "1", "--min-time", "0"];

/// Creates the command `levels frames` with one short run for each size.
pub fn frames_command(arguments: &[&str]) -> Command {
    let mut command = slotpress();
    command.args(["levels", "frames", "--min-time", "0"]).args(arguments);
    command
}
