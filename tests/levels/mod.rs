//! `slotpress levels`: every row adds up, for any input. No test depends on times.

mod works {
    mod codecs;
    mod frames;
    mod inputs;
    mod link;
    mod page;
}
mod refused {
    mod codecs;
    mod frames;
    mod inputs;
    mod link;
}

use std::path::Path;

use assert_cmd::Command;
use serde_json::Value;

use crate::common::{json_lines, slotpress};

/// Runs `levels --json` with one short run each, and returns its lines.
pub fn levels(input: &Path, arguments: &[&str]) -> Vec<Value> {
    let short = ["levels", "--json", "--repeat", "1", "--min-time", "0"];
    json_lines(slotpress().args(short).args(arguments).arg(input))
}

pub fn json(arguments: &[&str], input: &Path) -> Vec<Value> {
    json_lines(slotpress().args(arguments).arg("--json").arg(input))
}

pub const QUICK: [&str; 5] = ["levels", "--repeat", "1", "--min-time", "0"];

pub fn frames(arguments: &[&str]) -> Command {
    let mut command = slotpress();
    command.args(["levels", "frames", "--min-time", "0"]).args(arguments);
    command
}
