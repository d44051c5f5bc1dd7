//! Archives that are refused, and files that are not replaced.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;

use serde_json::Value;

use crate::common::strace::trace;
use crate::common::*;
use crate::publish::setup::*;

#[test]
fn damaged_archives_are_quarantined_and_reported() {
    let setup = Setup::with_pair();
    let bytes = setup.write_damaged(&fixture(FULL_26));
    let hook_output = setup.dir.path().join("hook-output");
    let hook = setup.dir.path().join("hook");
    let script = format!("#!/bin/sh\necho \"$PUBLISH_NAME $PUBLISH_MESSAGE\" >> {}\n", hook_output.display());
    write_program(&hook, &script);
    let flags = ["--on-failed", hook.to_str().expect("UTF-8"), "--on-published", "/nonexistent"];
    let output = setup.run_once(&flags);
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    let events = parse_events(&output);
    assert_eq!(events_of_type(&events, "publish_refused")[0]["name"], FULL_26);
    assert_eq!(setup.published(), [""; 0]);
    assert_eq!(read_latest(&setup.mirror()), [""; 0]);
    assert!(fs::read(setup.pins().join("quarantine").join(FULL_26)).expect("kept") == bytes);
    assert!(fs::read_to_string(&hook_output).expect("read").starts_with(FULL_26));
    setup.assert_nothing_is_pinned();
}

/// The refused file is not checked again. Runs fail until an archive at its slot or a newer one is published,
/// even if the validator has removed the file.
#[test]
fn a_refused_file_is_a_failure_until_it_is_written_again() {
    let setup = Setup::with_pair();
    setup.write_damaged(&fixture(FULL_26));
    assert_eq!(setup.run_once(&[]).status.code(), Some(3));
    for _ in 0..2 {
        let output = setup.run_once(&[]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{stderr}");
        assert!(stderr.contains("no archive of its slot or newer is published"), "{stderr}");
        assert_eq!(events_of_type(&parse_events(&output), "publish_refused").len(), 0);
        let _ = fs::remove_file(setup.snapshots().join(FULL_26));
    }
    setup.write(&fixture(FULL_26));
    setup.publish_once(&[]);
    assert_eq!(read_latest(&setup.mirror()), [FULL_26, INCREMENTAL_26_40]);
}

/// In each run, one call that changes the disk fails. An archive in quarantine is reported nevertheless.
#[test]
fn quarantined_archives_are_reported_even_if_the_disk_fails() {
    needs!("strace");
    const CALLS: &str = "rename,renameat,renameat2,unlink,unlinkat,fsync,fdatasync";
    let with_damaged_archive = || {
        let setup = Setup::new(&[]);
        setup.write_damaged(&fixture(FULL_26));
        setup
    };
    let arguments = |setup: &Setup| [setup.arguments(&["--json"]), vec!["--once".into()]].concat();
    let undisturbed = trace(&arguments(&with_damaged_archive()), CALLS, None);
    assert_eq!(undisturbed.output.status.code(), Some(3), "{:?}", undisturbed.output);
    let mut quarantined = 0;
    for call in &undisturbed.calls {
        let setup = with_damaged_archive();
        let failing = format!("{}:error=ENOSPC:when={}", call.name, call.number);
        let events = parse_events(&trace(&arguments(&setup), CALLS, Some(&failing)).output);
        if setup.pins().join("quarantine").join(FULL_26).exists() {
            quarantined += 1;
            assert_ne!(events_of_type(&events, "publish_refused").len(), 0, "{failing}: {events:?}");
        }
    }
    assert!(quarantined > 0);
}

#[test]
fn a_second_run_is_refused() {
    let setup = Setup::with_pair();
    let lock = fs::create_dir(setup.pins()).and_then(|()| fs::File::open(setup.pins())).expect("a directory");
    lock.lock().expect("locked");
    let output = setup.run_once(&[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is in use by"));
    unlock(lock);
    assert_eq!(setup.published(), [""; 0]);
}

#[test]
fn pins_in_wrong_places_are_refused() {
    let setup = Setup::with_pair();
    let output = setup.run_once(&["--pins", text(&setup.snapshots())]);
    assert_eq!(output.status.code(), Some(2));
    let on_another_file_system = setup.run_once(&["--pins", "/proc/self"]);
    assert!(!on_another_file_system.status.success());
    assert_eq!(setup.published(), [""; 0]);
}

/// A truncated file that changed a moment ago may be unfinished, so it is not a failure. A truncated file
/// that has not changed for a while is damaged.
#[test]
fn a_truncated_archive_that_nobody_writes_is_damaged() {
    let setup = Setup::with_pair();
    let bytes = fs::read(fixture(FULL_26)).expect("read");
    let cut = setup.snapshots().join(FULL_26);
    for length_bytes in [0, 1000] {
        fs::write(&cut, &bytes[..length_bytes]).expect("written");
        let events = setup.publish_once(&[]);
        assert_eq!(events_of_type(&events, "publish_skipped")[0]["reason"], "it is being written", "{events:?}");
        assert_eq!(setup.published(), [""; 0]);
    }
    backdate(&cut);
    let output = setup.run_once(&[]);
    let events = parse_events(&output);
    assert_eq!(output.status.code(), Some(3), "{events:?}");
    assert_eq!(events_of_type(&events, "publish_refused")[0]["name"], FULL_26);
    assert_eq!(fs::metadata(&cut).expect("metadata").nlink(), 1);
    assert_eq!(setup.published(), [""; 0]);
    // When the archive is whole, it is published.
    fs::write(&cut, &bytes).expect("written");
    setup.publish_once(&[]);
    assert_eq!(read_latest(&setup.mirror()), [FULL_26, INCREMENTAL_26_40]);
}

/// A program writes an archive under its final name, out of order, and pauses. The archive is published
/// once it is whole.
#[test]
fn archives_that_are_still_being_written_are_not_damaged() {
    let setup = Setup::new(&[]);
    let whole = fs::read(fixture(FULL_26)).expect("read");
    let mut bytes = whole.clone();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 1000].fill(0);
    let path = setup.snapshots().join(FULL_26);
    fs::write(&path, &bytes).expect("written");
    let events = setup.publish_once(&[]);
    assert_eq!(events_of_type(&events, "publish_skipped")[0]["reason"], "it is being written", "{events:?}");
    assert_eq!(file_names(&setup.pins().join("quarantine")), [""; 0]);
    assert_eq!(setup.published(), [""; 0]);
    fs::File::options().write(true).open(&path).and_then(|mut file| file.write_all(&whole)).expect("written");
    setup.publish_once(&[]);
    assert_eq!(read_latest(&setup.mirror()), [FULL_26]);
}

#[test]
fn existing_files_are_not_replaced() {
    let setup = Setup::with_pair();
    fs::write(setup.mirror().join(FULL_26), "another's").expect("written");
    let output = setup.run_once(&[]);
    assert_eq!(output.status.code(), Some(5));
    let events = parse_events(&output);
    let failed = events_of_type(&events, "publish_failed");
    assert_eq!((failed.len(), &failed[0]["retry_seconds"]), (1, &Value::Null), "{failed:?}");
    assert_eq!(fs::read_to_string(setup.mirror().join(FULL_26)).expect("read"), "another's");
    assert_eq!(read_latest(&setup.mirror()), [""; 0]);
}
