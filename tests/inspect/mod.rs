//! `slotpress inspect` counts and finds the same as a plain walk over the tar.

mod works {
    mod accounts;
    mod ends;
    mod urls;
}
mod refused {
    mod accounts;
    mod urls;
}
mod survives {
    mod index;
    mod urls;
}

use std::path::Path;

use serde_json::Value;

use crate::common::listed::objects;
use crate::common::{json_lines, slotpress};

/// Runs `inspect`, which must succeed without a warning; returns its lines of JSON.
pub fn inspect(input: &Path, flags: &[&str]) -> Vec<Value> {
    let output = slotpress().arg("inspect").arg(input).args(flags).arg("--json").output().expect("runs");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {flags:?}: {stderr}", input.display());
    assert!(!stderr.contains("\"warning\""), "{stderr}");
    objects(&output.stdout)
}

/// Checks that `inspect` fails with this message, and prints no result.
pub fn assert_inspect_fails(input: &Path, flags: &[&str], code: i32, message: &str) {
    let output = slotpress().arg("inspect").arg(input).args(flags).output().expect("runs");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(stderr.contains(message), "{stderr}");
    assert!(output.stdout.is_empty());
}

/// Runs a command that must succeed; returns its lines of JSON.
pub fn json_output(arguments: &[&str]) -> Vec<Value> {
    json_lines(slotpress().args(arguments).arg("--json"))
}
