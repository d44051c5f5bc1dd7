//! Ctrl-C while the program waits for input that does not arrive, or for a reader that does not
//! read.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::{FULL_3500, exit_code, fixture, slotpress_path, temp_dir, wait_for, wait_for_handler};

fn quiet_command(arguments: &[&str]) -> Command {
    let mut command = Command::new(slotpress_path());
    command.args(arguments).args(["-q"]).stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

/// Interrupts a child that waits; returns its exit code.
fn interrupt(mut child: Child, signal: Signal) -> Option<i32> {
    wait_for_handler(&child, signal);
    assert_eq!(child.try_wait().expect("a child"), None, "it does not wait");
    kill_process(Pid::from_child(&child), signal).expect("sent");
    exit_code(&mut child)
}

fn files_in(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).expect("read").map(|entry| entry.expect("an entry").file_name());
    names.map(|name| name.to_string_lossy().into_owned()).filter(|name| name != "ledger.lock").collect()
}

/// An interrupt ends a run that waits for its standard input, at the start or in the middle.
#[test]
fn an_interrupt_ends_the_wait_for_standard_input() {
    let beginning = fs::read(fixture(FULL_3500)).expect("read");
    for (signal, length) in [(Signal::INT, 0), (Signal::TERM, 0), (Signal::INT, 30_000)] {
        for restores in [false, true] {
            let dir = temp_dir();
            let out = dir.path().to_str().expect("text");
            let arguments = if restores { ["restore", "-", "--ledger", out] } else { ["recompress", "-", "-o", out] };
            let mut child = quiet_command(&arguments).stdin(Stdio::piped()).spawn().expect("starts");
            let mut stdin = child.stdin.take().expect("a pipe");
            stdin.write_all(&beginning[..length.min(beginning.len())]).expect("written");
            wait_for("the reader", || rustix::io::ioctl_fionread(&stdin).expect("a pipe") == 0);
            assert_eq!(interrupt(child, signal), Some(130), "{arguments:?} after {length} bytes");
            assert_eq!(files_in(dir.path()), Vec::<String>::new(), "{arguments:?} after {length} bytes");
            drop(stdin);
        }
    }
}

/// An interrupt ends a run whose output nobody reads.
#[test]
fn an_interrupt_ends_the_wait_for_a_full_pipe() {
    let archive = fixture(FULL_3500);
    let arguments = ["recompress", archive.to_str().expect("text"), "-o", "-", "--format", "none"];
    let (read_end, write_end) = std::io::pipe().expect("a pipe");
    let child = quiet_command(&arguments).stdin(Stdio::null()).stdout(write_end.try_clone().expect("a copy")).spawn();
    let child = child.expect("starts");
    wait_for("a full pipe", || {
        let mut room = [PollFd::new(&write_end, PollFlags::OUT)];
        poll(&mut room, Some(&Timespec::default())).expect("polled") == 0
    });
    assert_eq!(interrupt(child, Signal::INT), Some(130));
    drop(read_end);
}
