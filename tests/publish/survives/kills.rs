//! Runs that are killed at system calls that change files (`strace --inject`), that panic, or whose target is
//! full. The archives in `latest.json` always exist with their lengths. The next run finishes the work and
//! unpins archives.

use std::collections::BTreeSet;
use std::fs;

use crate::common::disk::Disk;
use crate::common::strace::{number_from_env, trace};
use crate::common::*;
use crate::publish::setup::*;
use crate::publish::works::running::PublishProcess;

/// System calls that change directory entries, or sync.
const CALLS: &str = "linkat,rename,renameat,renameat2,unlink,unlinkat,fsync,mkdir,mkdirat";

/// Maximum number of kills, spread over all calls of a run. `PUBLISH_KILLS` sets a different number.
const KILLS_DEFAULT: u64 = 24;

fn assert_kills_are_survived(flags: &[&str]) {
    let setup = Setup::with_pair();
    let undisturbed = trace(&[setup.arguments(flags), vec!["--once".into()]].concat(), CALLS, None);
    assert!(undisturbed.output.status.success(), "{:?}", undisturbed.output);
    let moments: BTreeSet<(String, u64)> =
        undisturbed.calls.iter().map(|call| (call.name.clone(), call.number)).collect();
    let step = (moments.len() as u64).div_ceil(number_from_env("PUBLISH_KILLS", KILLS_DEFAULT)).max(1) as usize;
    let mut kills = 0;
    for (call, number) in moments.iter().step_by(step) {
        let moment = format!("{call} {number}");
        let setup = Setup::with_pair();
        let before = file_states(&setup.snapshots());
        let arguments = [setup.arguments(flags), vec!["--once".into()]].concat();
        let killed = trace(&arguments, CALLS, Some(&format!("{call}:signal=KILL:when={number}")));
        kills += usize::from(killed.is_killed);
        let published = read_latest(&setup.mirror());
        assert!(published.is_empty() || published[0] == FULL_26, "{moment}: {published:?}");
        // The killed run may have left a pin, which is a second link. Everything else is unchanged.
        let now = file_states(&setup.snapshots());
        assert_eq!(now.len(), before.len(), "{moment}");
        for (name, file) in now {
            let unpinned = FileState { links: before[&name].links, ..file };
            assert!(unpinned == before[&name], "{moment}: {name}");
        }

        let events = setup.publish_once(flags);
        assert_eq!(read_latest(&setup.mirror()), [FULL_26, INCREMENTAL_26_40], "{moment}: {events:?}");
        let names = file_names(&setup.mirror());
        assert!(names.iter().all(|name| !name.starts_with("tmp-")), "{moment}: {names:?}");
        setup.assert_nothing_is_pinned();
        let links = if flags.contains(&"--as-is") { 2 } else { 1 };
        assert!(file_states(&setup.snapshots()).values().all(|file| file.links == links), "{moment}: pins are left");
        // Archives that the target already had are not prepared a second time.
        let prepared_again = events_of_type(&events, "publish_prepared")
            .into_iter()
            .filter(|event| published.iter().any(|name| event["name"] == **name));
        assert_eq!(prepared_again.count(), 0, "{moment}");
    }
    assert!(kills >= 10, "too few moments were hit: {kills}");
}

/// The next run removes temporary files of a killed run even if it has no work.
#[test]
fn temporary_files_are_removed_at_the_next_start() {
    let setup = Setup::with_pair();
    setup.publish_once(&[]);
    for dir in ["pinned", "ready"] {
        let temporary = setup.pins().join(dir).join("tmp-snapshot-archive-slotpress-0");
        fs::write(temporary, "half of an archive").expect("written");
    }
    setup.publish_once(&[]);
    setup.assert_nothing_is_pinned();
}

#[test]
fn kills_at_system_calls_are_survived() {
    needs!("strace");
    assert_kills_are_survived(&[]);
}

#[test]
fn kills_of_as_is_runs_are_survived() {
    needs!("strace");
    assert_kills_are_survived(&["--as-is"]);
}

/// The next run does the work that the panic interrupted.
#[test]
fn a_panic_on_the_thread_of_a_target_is_reported() {
    let setup = Setup::with_pair();
    let output = slotpress()
        .args(setup.arguments(&["--once"]))
        .env("FAULTS_PANIC_AT", "publishing")
        .env_remove("RUST_BACKTRACE")
        .output()
        .expect("runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("an injected panic"), "{stderr}");
    setup.publish_once(&[]);
    assert_eq!(read_latest(&setup.mirror()), [FULL_26, INCREMENTAL_26_40]);
}

/// The archives have been prepared, and are published when the target's disk has space again.
#[test]
fn archives_wait_until_a_full_target_has_space() {
    needs!("sys_admin", "mount", "umount");
    let (setup, disk) = (Setup::with_pair(), Disk::mount("size=64k"));
    let to = ["--to", text(disk.path())];
    let output = setup.run_once(&to);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(read_latest(disk.path()).is_empty());
    disk.remount("size=64m");
    let events = setup.publish_once(&to);
    assert_eq!(events_of_type(&events, "publish_prepared").len(), 0, "all were ready");
    assert_eq!(read_latest(disk.path()), [FULL_26, INCREMENTAL_26_40]);
    let names = file_names(disk.path());
    assert!(names.iter().all(|name| !name.starts_with("tmp-")), "{names:?}");
    setup.assert_nothing_is_pinned();
}

/// A running program removes older archives when the target lacks space.
#[test]
fn a_target_that_becomes_full_is_pruned() {
    needs!("sys_admin", "mount", "umount");
    let (setup, disk) = (Setup::new(&[&fixture(FULL_26)]), Disk::mount("size=64m"));
    let keep = ["--as-is", "--keep-full", "1", "--keep-incremental", "0", "--grace", "1h"];
    let running = PublishProcess::start(&setup, &[&["--to", text(disk.path())], &keep[..]].concat());
    let wait_until_latest = |name: &str| wait_for(name, || read_latest(disk.path()) == [name]);
    wait_until_latest(FULL_26);
    let full_40 = &chain_archives()[2];
    setup.write(full_40);
    wait_until_latest(&name(full_40));
    setup.wait_until_nothing_is_pinned();
    assert_eq!(archives_in(disk.path()).len(), 2, "both are younger than the grace period");
    // Dates the archives in the index to 1970, so that their grace period is over.
    let mut index = read_index(disk.path());
    for archive in index["archives"].as_array_mut().expect("archives") {
        archive["modified_unix_seconds"] = 1.into();
    }
    fs::write(disk.path().join("api/v1/archives"), index.to_string()).expect("written");
    // Another file fills the disk, so that the space for the next archive falls short by half of the oldest archive's
    // length.
    let free_bytes = rustix::fs::statvfs(disk.path()).map(|stat| stat.f_bavail * stat.f_frsize).expect("known");
    let bytes_of = |name: &str| fs::metadata(fixture(name)).expect("metadata").len();
    let remaining_bytes = bytes_of(FULL_3500) - bytes_of(FULL_26) / 2;
    fs::write(disk.path().join("other"), vec![1; (free_bytes - remaining_bytes) as usize]).expect("written");
    setup.write(&fixture(FULL_3500));
    wait_until_latest(FULL_3500);
    let events = running.stop();
    assert_eq!(events_of_type(&events, "publish_failed").len(), 0, "{events:?}");
    assert_eq!(read_latest(disk.path()), [FULL_3500]);
}
