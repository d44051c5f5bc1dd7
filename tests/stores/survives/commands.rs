//! Runs that end while an archive is sent.

use std::process::Stdio;

use gateway::{FaultKind, Gateway};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::{exit_code, ledger, needs, text, wait_for, wait_for_handler};
use crate::stores::*;

#[test]
fn an_interrupted_upload_leaves_nothing() {
    needs!("versitygw");
    let gateway = Gateway::start();
    gateway.fail(&["PUT ", "partNumber=1&"], usize::MAX, FaultKind::Refused(503, "SlowDown"));
    let ledger = ledger("ledger-at-40");
    for signal in [Signal::INT, Signal::TERM] {
        let before = gateway.count_requests(&["partNumber=1&"]);
        let mut child = command(&gateway, &["-q", "archive", text(ledger.path()), "-o", &target()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("starts");
        wait_for("a part", || gateway.count_requests(&["partNumber=1&"]) > before);
        wait_for_handler(&child, signal);
        kill_process(Pid::from_child(&child), signal).expect("sent");
        assert_eq!(exit_code(&mut child), Some(130));
        assert!(files_in_bucket(&gateway).is_empty());
        assert_eq!(gateway.leftover_part_count(), 0);
    }
}

#[test]
fn a_panic_while_a_part_is_sent_leaves_nothing() {
    needs!("versitygw");
    let gateway = Gateway::start();
    let ledger = ledger("ledger-at-40");
    let mut archive = command(&gateway, &["archive", text(ledger.path()), "-o", &target()]);
    archive.env("FAULTS_PANIC_AT", "part sender").env_remove("RUST_BACKTRACE");
    let output = run_command(archive);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.stderr.contains("an injected panic"), "{output:?}");
    assert!(files_in_bucket(&gateway).is_empty());
    assert_eq!(gateway.leftover_part_count(), 0);
}
