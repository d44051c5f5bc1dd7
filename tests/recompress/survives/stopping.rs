//! Ctrl-C while the program waits for input.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::*;

/// The first line of the output says that the run is stopping.
#[test]
fn an_interrupt_ends_a_run_that_waits_for_input() {
    let dir = temp_dir();
    let beginning = fs::read(fixture(FULL_3500)).expect("read");
    for is_json in [false, true] {
        let mut command = Command::new(slotpress_path());
        command.args(["recompress", "-", "-o", text(dir.path())]);
        if is_json {
            command.arg("--json");
        }
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(&beginning[..20_000]).expect("written");
        wait_for("the reader", || rustix::io::ioctl_fionread(&stdin).expect("a pipe") == 0);
        wait_for_handler(&child, Signal::INT);
        kill_process(Pid::from_child(&child), Signal::INT).expect("sent");
        // The input never ends, so the run ends because of Ctrl-C or not at all.
        exit_code(&mut child);
        let output = child.wait_with_output().expect("ended");
        let stderr = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(130), "{stderr}");
        let line = stderr.lines().next().expect("a line");
        if is_json {
            assert_eq!(line, r#"{"type":"status","message":"stopping: removing what was written"}"#)
        } else {
            assert_eq!(line, "stopping: removing what was written")
        }
        drop(stdin);
    }
    assert_eq!(relative_paths(dir.path()), Vec::<String>::new());
}
