//! Runs of the program, as an operator sees them.

use crate::common::*;

/// Runs the program. Returns its exit code, stdout and stderr.
pub fn run_to_text(arguments: &[&str]) -> (i32, String, String) {
    let output = slotpress().args(arguments).output().expect("runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code().expect("a code"), text(output.stdout), text(output.stderr))
}

/// Asserts that the program fails with this exit code, and that its stderr contains these texts. Returns
/// the stderr.
pub fn assert_fails(arguments: &[&str], expected_code: i32, texts: &[&str]) -> String {
    let (code, stdout, stderr) = run_to_text(arguments);
    assert_eq!(code, expected_code, "{arguments:?}: {stdout}{stderr}");
    for text in texts {
        assert!(stderr.contains(text), "{arguments:?}: {text:?} is not in: {stderr}");
    }
    stderr
}
