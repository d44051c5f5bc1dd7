//! Standard output that is full, closed, or a pipe without a reader.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::process::{Command, Output, Stdio};

use crate::common::runs::{code_and_stderr, program};
use crate::common::{FULL_26, fixture, ledger, slotpress_path, temp_dir, text};

fn command_without_input(arguments: &[&str]) -> Command {
    let mut command = program(arguments);
    command.stdin(Stdio::null()).env_remove("RUST_BACKTRACE");
    command
}

/// Asserts the exit code of a command; returns its standard error.
fn assert_exit_code(code: i32, output: &Output, context: &str) -> String {
    let (exit_code, stderr) = code_and_stderr(output);
    assert_eq!(exit_code, Some(code), "{context}: {stderr}");
    stderr
}

#[test]
fn standard_output_on_a_full_disk_is_an_error() {
    let archive = fixture(FULL_26);
    let archive = text(&archive);
    for arguments in [
        vec!["verify", "--json", archive],
        vec!["verify", archive],
        vec!["inspect", archive],
        vec!["levels", "--levels", "1", "--repeat", "1", archive],
        vec!["completions", "bash"],
        vec!["--help"],
    ] {
        let full = File::options().write(true).open("/dev/full").expect("opens");
        let output = command_without_input(&arguments).stdout(full).output().expect("runs");
        let stderr = assert_exit_code(1, &output, &format!("{arguments:?}"));
        assert!(stderr.contains("cannot write standard output: no space left"), "{stderr}");
    }
}

#[test]
fn a_reader_that_closes_the_pipe_is_not_an_error() {
    let ledger = ledger("ledger-at-26");
    let out = temp_dir();
    let archive = fixture(FULL_26);
    let archive = text(&archive);
    let archive_arguments = ["archive", text(ledger.path()), "-o", text(out.path()), "--force"];
    for arguments in
        [&archive_arguments[..], &["verify", archive], &["inspect", archive], &["completions", "bash"], &["--help"]]
    {
        for flags in [&[][..], &["--json"]] {
            let (read_end, write_end) = std::io::pipe().expect("a pipe");
            drop(read_end);
            let arguments = [arguments, flags].concat();
            let output = command_without_input(&arguments).stdout(write_end).output().expect("runs");
            assert_eq!(assert_exit_code(0, &output, &format!("{arguments:?}")), "", "{arguments:?}");
        }
    }
    assert!(out.path().join(FULL_26).exists());
}

/// Without standard output, the command fails; `/dev/null` is allowed.
#[test]
fn a_closed_standard_output_is_an_error() {
    let ledger = ledger("ledger-at-26");
    let archive = fixture(FULL_26);
    let ledger = text(ledger.path());
    let shell = |redirection: &str, arguments: &[&str]| {
        let script = format!("exec \"$0\" \"$@\" {redirection}");
        let mut command = Command::new("sh");
        command.args(["-c", &script, text(&slotpress_path())]).args(arguments);
        command.stdin(Stdio::null()).stderr(Stdio::piped()).output().expect("runs")
    };
    for arguments in [vec!["archive", ledger, "-o", "-", "-q"], vec!["verify", text(&archive), "--json"]] {
        for (redirection, code) in [(">&-", 1), (">/dev/null", 0), ("1<>/dev/null", 0)] {
            let output = shell(redirection, &arguments);
            assert_exit_code(code, &output, &format!("{arguments:?} {redirection}"));
        }
    }
}

#[test]
fn json_replaces_bytes_of_a_path_that_are_not_utf8() {
    let dir = temp_dir();
    let path = dir.path().join(std::ffi::OsString::from_vec(b"\xff\xfe.tar.zst".to_vec()));
    fs::copy(fixture(FULL_26), &path).expect("copied");
    for command in ["verify", "inspect"] {
        let output = command_without_input(&[command, "--json"]).arg(&path).output().expect("runs");
        let text = String::from_utf8(output.stdout.clone()).expect("UTF-8");
        let first = text.lines().next().expect("a line");
        let line: serde_json::Value = serde_json::from_str(first).expect("JSON");
        assert!(line.to_string().contains("\u{fffd}\u{fffd}.tar.zst"), "{command}: {text}");
    }
}

#[test]
fn an_archive_written_into_a_pipe_arrives_whole() {
    let ledger = ledger("ledger-at-26");
    let arguments = ["archive", text(ledger.path()), "-o", "-", "-q"];
    let mut child = command_without_input(&arguments).stdout(Stdio::piped()).spawn().expect("starts");
    let mut archive = Vec::new();
    child.stdout.take().expect("a pipe").read_to_end(&mut archive).expect("read");
    assert!(child.wait().expect("ends").success());
    let dir = temp_dir();
    let path = dir.path().join(FULL_26);
    fs::write(&path, archive).expect("written");
    let output = command_without_input(&["verify", "-q"]).arg(&path).output().expect("runs");
    assert_exit_code(0, &output, "verify");
}
