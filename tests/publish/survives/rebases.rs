//! Rebases that fail, are stopped or are killed, and what the next run does.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

use crate::common::strace::trace;
use crate::common::*;
use crate::publish::setup::*;
use crate::publish::works::rebased::{ONTO_ONE, assert_rebased_is_listed, setup_with_two_full_archives};
use crate::publish::works::running::PublishProcess;

/// Niceness of the rebasing thread. Tests look for it, because a rebase creates no file until it has read
/// both states.
const REBASE_NICENESS: i32 = 19;

/// Starts a run whose only work is a rebase of about five seconds.
fn start_slow_rebase() -> (Setup, PublishProcess) {
    let setup = setup_with_two_full_archives();
    setup.publish_once(&[]);
    let running = PublishProcess::start(&setup, &["--as-is", "--rebase-onto", "1", "--max-rate", "128KiB"]);
    wait_for("a rebase", || thread_niceness(running.pid()).contains(&REBASE_NICENESS));
    (setup, running)
}

/// Returns the niceness of a process's threads.
fn thread_niceness(pid: Pid) -> Vec<i32> {
    let threads = file_names(Path::new(&format!("/proc/{}/task", pid.as_raw_nonzero())));
    let stat = |thread| fs::read_to_string(format!("/proc/{}/task/{thread}/stat", pid.as_raw_nonzero())).ok();
    let nice = |stat: String| stat.rsplit(')').next().and_then(|fields| fields.split(' ').nth(17)?.parse().ok());
    threads.into_iter().filter_map(stat).filter_map(nice).collect()
}

#[test]
fn a_rebase_runs_at_the_lowest_priority_and_survives_a_kill() {
    let (setup, running) = start_slow_rebase();
    let niceness = thread_niceness(running.pid());
    assert!(niceness.iter().any(|nice| *nice < REBASE_NICENESS), "{niceness:?}");
    kill_process(running.pid(), Signal::KILL).expect("killed");
    drop(running);
    assert_eq!(setup.published(), [FULL_26, &name(&chain_archives()[2])]);
    setup.publish_once(&ONTO_ONE);
    assert_rebased_is_listed(&setup.mirror());
    setup.assert_nothing_is_pinned();
}

/// The next archive is of a different cluster, so it cannot be rebased. That is reported once.
#[test]
fn the_next_full_archive_comes_first() {
    let (setup, running) = start_slow_rebase();
    setup.write(&fixture(FULL_3500));
    running.wait_for_published(FULL_3500);
    running.stop();
    let events = setup.publish_once(&ONTO_ONE);
    assert_eq!(read_latest(&setup.mirror()), [FULL_3500]);
    assert_eq!(setup.published().len(), 3, "{events:?}");
    let skipped = events_of_type(&events, "publish_skipped");
    assert_eq!(skipped.len(), 1, "{skipped:?}");
    assert!(skipped[0]["reason"].as_str().expect("a reason").contains("of different clusters"), "{skipped:?}");
}

#[test]
fn a_stopped_rebase_leaves_nothing() {
    let (setup, running) = start_slow_rebase();
    assert_eq!(events_of_type(&running.stop(), "publish_failed").len(), 0);
    assert_eq!(file_names(&setup.pins().join("ready")), [""; 0]);
}

#[test]
fn kills_at_system_calls_are_survived() {
    needs!("strace");
    const CALLS: &str = "linkat,rename,renameat,renameat2,unlink,unlinkat,fsync";
    const KILLS: usize = 8;
    let setup = setup_with_two_full_archives();
    let arguments = |setup: &Setup| [setup.arguments(&ONTO_ONE), vec!["--once".into()]].concat();
    let undisturbed = trace(&arguments(&setup), CALLS, None);
    assert!(undisturbed.output.status.success(), "{:?}", undisturbed.output);
    for call in undisturbed.calls.iter().step_by(undisturbed.calls.len().div_ceil(KILLS)) {
        let moment = format!("{} {}", call.name, call.number);
        let setup = setup_with_two_full_archives();
        trace(&arguments(&setup), CALLS, Some(&format!("{}:signal=KILL:when={}", call.name, call.number)));
        assert_eq!(read_latest(&setup.mirror()).len(), 1, "{moment}");
        setup.publish_once(&ONTO_ONE);
        assert_rebased_is_listed(&setup.mirror());
        let names = file_names(&setup.mirror());
        assert!(names.iter().all(|name| !name.starts_with("tmp-")), "{moment}: {names:?}");
        setup.assert_nothing_is_pinned();
    }
}

#[test]
fn a_panic_while_rebasing_is_reported() {
    let setup = setup_with_two_full_archives();
    let mut command = slotpress();
    command.args(setup.arguments(&ONTO_ONE)).arg("--once").env("FAULTS_PANIC_AT", "rebasing");
    let output = command.env_remove("RUST_BACKTRACE").output().expect("runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("an injected panic"), "{stderr}");
    setup.publish_once(&ONTO_ONE);
    assert_rebased_is_listed(&setup.mirror());
}

/// A rebase onto a damaged full archive of the target is tried only once.
#[test]
fn a_rebase_onto_a_damaged_full_archive_is_not_repeated() {
    let setup = setup_with_two_full_archives();
    let path = setup.mirror().join(FULL_26);
    let mut bytes = fs::read(&path).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).expect("written");
    let output = setup.run_once(&ONTO_ONE);
    let events = parse_events(&output);
    assert_eq!(output.status.code(), Some(3), "{events:?}");
    let failed = events_of_type(&events, "publish_failed");
    assert_eq!((failed.len(), failed[0]["retry_seconds"].is_null()), (1, true), "{failed:?}");
    assert_eq!(read_latest(&setup.mirror()), [name(&chain_archives()[2])]);
    assert_eq!(setup.published().len(), 2);
    setup.assert_nothing_is_pinned();
}
