//! `archive` is killed or interrupted at many moments: every file with a final name is whole, and the next run cleans up
//! and succeeds. An interrupted run cleans up after itself.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use rustix::process::Signal;

use crate::common::signals::*;
use crate::common::*;

/// Lets one test at a time archive the ledger, because `archive` holds its lock.
static LEDGER_IN_USE: Mutex<()> = Mutex::new(());

fn archive_command(source: &LargeLedger, out: &Path) -> Command {
    let mut command = Command::new(slotpress_path());
    command.arg("archive").arg(&source.ledger).arg("-o").arg(out).args(SLOW_ENCODING_FLAGS);
    command
}

fn archive_moments(out: &Path, whole_bytes: u64) -> Vec<Moment<'_>> {
    let mut moments: Vec<Moment<'_>> = vec![("at once", Box::new(|| true))];
    for percent in [0, 1, 10, 30, 60, 90, 99] {
        let at = whole_bytes * percent / 100;
        moments.push(("while writing", Box::new(move || temporary_bytes(out).is_some_and(|bytes| bytes >= at))));
    }
    moments.push((
        "at the end",
        Box::new(move || {
            fs::read_dir(out).is_ok_and(|mut dir| {
                dir.any(|entry| entry.is_ok_and(|entry| name(&entry.path()).starts_with("snapshot-")))
            })
        }),
    ));
    moments
}

#[test]
fn a_killed_archive_can_be_repeated() {
    let _turn = LEDGER_IN_USE.lock();
    let source = large_ledger();
    let expected = fs::read(&source.archive).expect("read");
    let out = temp_dir();
    let mut killed = 0;
    for moment in archive_moments(out.path(), expected.len() as u64) {
        let status = run_and_signal(&mut archive_command(source, out.path()), Signal::KILL, &moment);
        killed += usize::from(!status.success());
        for left in relative_paths(out.path()) {
            let is_temporary = left.starts_with("tmp-snapshot-archive-");
            let is_whole = || fs::read(out.path().join(&left)).expect("read") == expected;
            assert!(is_temporary || is_whole(), "{}: {left} is not whole", moment.0);
        }
        assert!(archive_command(source, out.path()).arg("--force").output().expect("runs").status.success());
        assert_eq!(relative_paths(out.path()), [name(&source.archive)], "{}", moment.0);
        assert!(fs::read(out.path().join(name(&source.archive))).expect("read") == expected);
        fs::remove_file(out.path().join(name(&source.archive))).expect("removed");
    }
    assert!(killed >= 5, "the moments were missed: {killed}");
}

#[test]
fn an_interrupted_archive_leaves_nothing() {
    let _turn = LEDGER_IN_USE.lock();
    let source = large_ledger();
    let whole_bytes = fs::metadata(&source.archive).expect("metadata").len();
    let out = temp_dir();
    let mut interrupted = 0;
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        for moment in archive_moments(out.path(), whole_bytes).into_iter().skip(1) {
            let status = run_and_signal(&mut archive_command(source, out.path()), signal, &moment);
            if status.success() {
                assert_eq!(relative_paths(out.path()), [name(&source.archive)]);
                fs::remove_file(out.path().join(name(&source.archive))).expect("removed");
            } else {
                assert_eq!(status.code(), Some(130), "{}", moment.0);
                assert_eq!(relative_paths(out.path()), Vec::<String>::new(), "{}", moment.0);
                interrupted += 1;
            }
        }
    }
    assert!(interrupted >= 10, "the moments were missed: {interrupted}");
}
