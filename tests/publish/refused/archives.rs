//! Archives that are not published, and files that are not replaced.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde_json::Value;

use crate::common::strace::trace;
use crate::common::*;
use crate::publish::stage::*;

#[test]
fn what_is_damaged_is_kept_aside_and_told() {
    let stage = Stage::with_pair();
    let bytes = stage.write_damaged(&fixture(FULL_26));
    let told = stage.dir.path().join("told");
    let hook = stage.dir.path().join("hook");
    let script = format!("#!/bin/sh\necho \"$PUBLISH_NAME $PUBLISH_MESSAGE\" >> {}\n", told.display());
    write_program(&hook, &script);
    let flags = ["--on-failed", hook.to_str().expect("UTF-8"), "--on-published", "/nonexistent"];
    let output = stage.once(&flags);
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    let said = lines(&output);
    assert_eq!(of_type(&said, "publish_refused")[0]["name"], FULL_26);
    assert!(stage.published().is_empty() && latest(&stage.mirror()).is_empty());
    assert!(fs::read(stage.pins().join("quarantine").join(FULL_26)).expect("kept") == bytes);
    assert!(fs::read_to_string(&told).expect("told").starts_with(FULL_26));
    stage.assert_nothing_is_pinned();

    // The same file is not tried again, but is a failure until something as new is published, also
    // when the validator has removed it. A file that is written again is tried.
    for _ in 0..2 {
        let again = stage.once(&flags);
        let stderr = String::from_utf8_lossy(&again.stderr);
        assert!(
            again.status.code() == Some(3) && stderr.contains("no archive of its slot or newer is published"),
            "{stderr}"
        );
        assert_eq!(of_type(&lines(&again), "publish_refused").len(), 0);
        drop(fs::remove_file(stage.snapshots().join(FULL_26)));
    }
    stage.write(&fixture(FULL_26));
    stage.once_succeeds(&[]);
    assert_eq!(latest(&stage.mirror()), [FULL_26, INCREMENTAL_26_40]);
}

/// If the disk fails, archives moved to the quarantine were reported before.
#[test]
fn what_is_kept_aside_is_told_where_the_disk_fails() {
    needs!("strace");
    const CALLS: &str = "rename,renameat,renameat2,unlink,unlinkat,fsync,fdatasync";
    let stage = || {
        let stage = Stage::new(&[]);
        stage.write_damaged(&fixture(FULL_26));
        stage
    };
    let arguments = |stage: &Stage| [stage.arguments(&["--json"]), vec!["--once".into()]].concat();
    let whole = trace(&arguments(&stage()), CALLS, None);
    assert_eq!(whole.output.status.code(), Some(3), "{:?}", whole.output);
    let mut kept = 0;
    for call in &whole.calls {
        let stage = stage();
        let failing = format!("{}:error=ENOSPC:when={}", call.name, call.number);
        let said = lines(&trace(&arguments(&stage), CALLS, Some(&failing)).output);
        if stage.pins().join("quarantine").join(FULL_26).exists() {
            kept += 1;
            assert_ne!(of_type(&said, "publish_refused").len(), 0, "{failing}: {said:?}");
        }
    }
    assert!(kept > 0);
}

#[test]
fn two_at_once_and_wrong_places() {
    let stage = Stage::with_pair();
    let lock = fs::create_dir(stage.pins()).and_then(|()| fs::File::open(stage.pins())).expect("a directory");
    lock.lock().expect("locked");
    let output = stage.once(&[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is in use by"));
    release(lock);
    let own = stage.snapshots();
    let output = stage.once(&["--pins", own.to_str().expect("UTF-8")]);
    assert_eq!(output.status.code(), Some(2));
    if Path::new("/dev/shm").metadata().is_ok_and(|shm| shm.dev() != fs::metadata("/proc").expect("proc").dev()) {
        let output = stage.once(&["--pins", "/proc/self"]);
        assert!(!output.status.success());
    }
    assert!(stage.published().is_empty());
}

/// A cut file that changed a moment ago is being written, which is no failure. One that has not
/// changed for a while is damaged, and reported so.
#[test]
fn a_cut_archive_that_nobody_writes_is_damaged() {
    let stage = Stage::with_pair();
    let bytes = fs::read(fixture(FULL_26)).expect("read");
    let cut = stage.snapshots().join(FULL_26);
    for length_bytes in [0, 1000] {
        fs::write(&cut, &bytes[..length_bytes]).expect("written");
        let said = stage.once_succeeds(&[]);
        assert_eq!(of_type(&said, "publish_skipped")[0]["reason"], "it is being written", "{said:?}");
        assert!(stage.published().is_empty());
    }
    age(&cut);
    let output = stage.once(&[]);
    let said = lines(&output);
    assert_eq!(output.status.code(), Some(3), "{said:?}");
    assert_eq!(of_type(&said, "publish_refused")[0]["name"], FULL_26);
    assert!(fs::metadata(&cut).expect("metadata").nlink() == 1 && stage.published().is_empty());
    // When the archive is whole, it is published.
    fs::write(&cut, &bytes).expect("written");
    stage.once_succeeds(&[]);
    assert_eq!(latest(&stage.mirror()), [FULL_26, INCREMENTAL_26_40]);
}

/// A program copies an archive there under its name, out of order, and pauses: nothing is
/// quarantined, and the archive is published when it is whole.
#[test]
fn what_is_still_arriving_is_not_damaged() {
    let stage = Stage::new(&[]);
    let whole = fs::read(fixture(FULL_26)).expect("read");
    let mut bytes = whole.clone();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 1000].fill(0);
    let path = stage.snapshots().join(FULL_26);
    fs::write(&path, &bytes).expect("written");
    let said = stage.once_succeeds(&[]);
    assert_eq!(of_type(&said, "publish_skipped")[0]["reason"], "it is being written", "{said:?}");
    assert!(names_in(&stage.pins().join("quarantine")).is_empty() && stage.published().is_empty());
    fs::File::options().write(true).open(&path).and_then(|mut file| file.write_all(&whole)).expect("written");
    stage.once_succeeds(&[]);
    assert_eq!(latest(&stage.mirror()), [FULL_26]);
}

#[test]
fn a_file_that_has_the_name_already_is_not_replaced() {
    let stage = Stage::with_pair();
    fs::write(stage.mirror().join(FULL_26), "another's").expect("written");
    let output = stage.once(&[]);
    assert_eq!(output.status.code(), Some(5));
    let said = lines(&output);
    let failed = of_type(&said, "publish_failed");
    assert_eq!((failed.len(), &failed[0]["retry_seconds"]), (1, &Value::Null), "{failed:?}");
    assert_eq!(fs::read_to_string(stage.mirror().join(FULL_26)).expect("read"), "another's");
    assert!(latest(&stage.mirror()).is_empty());
}
