//! Publishing to a bucket of `versitygw`, behind a proxy that makes requests fail.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

#[cfg(debug_assertions)]
use crate::common::faults::assert_command_panic_is_error;
use crate::common::*;
use crate::publish::setup::*;
use crate::stores::gateway::{FaultKind, Gateway};
use crate::stores::{command, target};

fn arguments(setup: &Setup, flags: &[&str]) -> Vec<String> {
    let dir = setup.snapshots().to_str().expect("UTF-8").to_string();
    let mut arguments = vec!["publish".into(), dir, "--to".into(), target(), "--json".into()];
    arguments.extend(["--writer", "agave"].map(String::from));
    arguments.extend(flags.iter().map(ToString::to_string));
    arguments
}

fn publish_command(gateway: &Gateway, setup: &Setup, flags: &[&str]) -> Command {
    let arguments = arguments(setup, flags);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    command(gateway, &arguments)
}

/// Runs `publish --once` to the bucket.
pub fn publish_once_to_bucket(gateway: &Gateway, setup: &Setup, flags: &[&str]) -> Output {
    publish_command(gateway, setup, &[&["--once"], flags].concat()).output().expect("runs")
}

pub fn start_publishing(gateway: &Gateway, setup: &Setup, flags: &[&str]) -> Child {
    let mut command = publish_command(gateway, setup, flags);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts")
}

#[test]
fn a_bucket_receives_what_a_directory_receives() {
    needs!("versitygw");
    let (gateway, setup) = (Gateway::start(), Setup::with_pair());
    let mirror = setup.mirror();
    let flags = ["--to", mirror.to_str().expect("UTF-8")];
    // Two responses to requests that must not be retried are lost, and the store is busy once.
    gateway.fail(&["PUT ", "api/v1/archives"], 1, FaultKind::AnswerLost);
    gateway.fail(&["PUT ", "latest.json"], 1, FaultKind::AnswerLost);
    gateway.fail(&["PUT ", "partNumber=1&"], 1, FaultKind::Refused(503, "SlowDown"));
    let output = publish_once_to_bucket(&gateway, &setup, &flags);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let bucket = gateway.bucket().join("mainnet");
    assert_eq!(read_latest(&bucket), [FULL_26, INCREMENTAL_26_40]);
    for name in [FULL_26, INCREMENTAL_26_40] {
        assert!(fs::read(bucket.join(name)).expect("read") == fs::read(mirror.join(name)).expect("read"), "{name}");
    }
    let root = events_of_type(&parse_events(&output), "published")[0]["root"].as_str().expect("a root").to_string();
    assert!(
        gateway.count_requests(&["POST ", "uploads=", &format!("x-amz-meta-slotpress-root: {root}")]) > 0,
        "the object does not state the root"
    );
    assert_eq!(gateway.leftover_part_count(), 0);
    setup.assert_nothing_is_pinned();

    let puts = gateway.count_requests(&["PUT "]);
    let second_run = publish_once_to_bucket(&gateway, &setup, &flags);
    assert!(second_run.status.success());
    assert_eq!(gateway.count_requests(&["PUT "]), puts, "nothing is sent");
    let prune_flags = ["--keep-full", "1", "--keep-incremental", "0", "--grace", "0s"];
    fs::copy(fixture(FULL_3500), setup.snapshots().join(FULL_3500)).expect("copied");
    assert!(publish_once_to_bucket(&gateway, &setup, &prune_flags).status.success());
    assert_eq!(read_latest(&bucket), [FULL_3500]);
}

/// Makes a setup with an archive of three parts.
pub fn setup_with_three_parts() -> (Setup, PathBuf) {
    let setup = Setup::new_in(tempfile::tempdir().expect("a directory"), &[]);
    let ledger = setup.dir.path().join("ledger");
    slotpress().arg("synth").arg(&ledger).args(["--size", "40MiB", "--mix", "random"]).assert().success();
    let made = archive(&ledger, &setup.snapshots(), &[]);
    assert!(fs::metadata(&made).expect("metadata").len() > 2 * (16 << 20), "three parts");
    (setup, made)
}

/// Returns the uploads that a later run would continue.
pub fn unfinished_uploads(setup: &Setup) -> serde_json::Map<String, Value> {
    let journal = fs::read(setup.pins().join("journal.json")).unwrap_or_default();
    let journal: Value = serde_json::from_slice(&journal).unwrap_or_default();
    journal["uploads"].as_object().cloned().unwrap_or_default()
}

/// Returns the number of parts that a later run would not send again.
pub fn recorded_parts(setup: &Setup) -> usize {
    unfinished_uploads(setup).values().filter_map(|upload| upload["state"]["tags"].as_array()).map(Vec::len).sum()
}

/// Only the part in transfer is sent twice.
#[test]
fn an_upload_continues_after_a_kill() {
    needs!("versitygw");
    let (gateway, (setup, made)) = (Gateway::start(), setup_with_three_parts());
    gateway.fail(&["PUT ", "partNumber=3&"], usize::MAX, FaultKind::Refused(503, "SlowDown"));
    let mut child = start_publishing(&gateway, &setup, &[]);
    wait_for("two parts in the journal", || recorded_parts(&setup) == 2);
    child.kill().expect("killed");
    child.wait().expect("ended");
    gateway.clear_faults();
    let counts = || {
        [&["partNumber=1&"][..], &["partNumber=2&"], &["POST ", "uploads="]].map(|head| gateway.count_requests(head))
    };
    let before = counts();
    let output = publish_once_to_bucket(&gateway, &setup, &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(events_of_type(&parse_events(&output), "publish_prepared").len(), 0);
    assert_eq!(counts(), before);
    let bucket = gateway.bucket().join("mainnet");
    assert_eq!(read_latest(&bucket), [name(&made)]);
    verify_published(&bucket);
    assert_eq!(gateway.leftover_part_count(), 0);
    setup.assert_nothing_is_pinned();
}

/// The parts are removed, and the whole archive is sent again.
#[test]
fn an_upload_that_cannot_continue_leaves_no_parts() {
    needs!("versitygw");
    let (gateway, (setup, made)) = (Gateway::start(), setup_with_three_parts());
    gateway.fail(&["PUT ", "partNumber=3&"], usize::MAX, FaultKind::Refused(503, "SlowDown"));
    let mut child = start_publishing(&gateway, &setup, &[]);
    wait_for("an upload in the journal", || !unfinished_uploads(&setup).is_empty());
    child.kill().expect("killed");
    child.wait().expect("ended");
    gateway.clear_faults();
    let path = setup.pins().join("journal.json");
    let mut journal: Value = serde_json::from_slice(&fs::read(&path).expect("read")).expect("JSON");
    let (key, _) = unfinished_uploads(&setup).into_iter().next().expect("an upload");
    journal["uploads"][key]["state"]["part_bytes"] = 1.into();
    fs::write(&path, journal.to_string()).expect("written");
    let output = publish_once_to_bucket(&gateway, &setup, &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(read_latest(&gateway.bucket().join("mainnet")), [name(&made)]);
    assert_eq!((gateway.leftover_part_count(), unfinished_uploads(&setup).len()), (0, 0));
}

/// The planning thread panics while another thread waits for it. The run ends, and the next run continues.
#[cfg(debug_assertions)]
#[test]
fn a_panic_while_a_bucket_waits_is_survived() {
    needs!("versitygw");
    let (gateway, (setup, made)) = (Gateway::start(), setup_with_three_parts());
    let arguments = arguments(&setup, &["--once"]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).filter(|argument| *argument != "--json").collect();
    let is_reached =
        |number| assert_command_panic_is_error(&command(&gateway, &arguments), "planning", number, None).is_some();
    let reached = (1..).take_while(|number| is_reached(*number)).count();
    assert!(reached >= 2, "the answer of a target, and the end of a preparation: {reached}");
    assert_eq!(read_latest(&gateway.bucket().join("mainnet")), [name(&made)]);
    assert_eq!((gateway.leftover_part_count(), unfinished_uploads(&setup).len()), (0, 0));
}

/// The store receives the newest pair once it can be reached.
#[test]
fn an_unreachable_store_delays_no_other_target() {
    needs!("versitygw");
    let (gateway, setup) = (Gateway::start(), Setup::with_pair());
    gateway.set_unreachable(true);
    let mirror = setup.mirror();
    let mut child = start_publishing(&gateway, &setup, &["--to", mirror.to_str().expect("UTF-8")]);
    wait_for("the directory", || read_latest(&mirror).len() == 2);
    gateway.set_unreachable(false);
    let bucket = gateway.bucket().join("mainnet");
    wait_for("the bucket", || read_latest(&bucket).len() == 2);
    child.kill().expect("killed");
    child.wait().expect("ended");
}

/// The store refuses the credentials, so a second attempt would fail too.
#[test]
fn wrong_credentials_are_tried_once() {
    needs!("versitygw");
    let (gateway, setup) = (Gateway::start(), Setup::with_pair());
    let mut command = publish_command(&gateway, &setup, &["--once"]);
    let output = command.env("AWS_SECRET_ACCESS_KEY", "wrong").output().expect("runs");
    assert_eq!(output.status.code(), Some(1));
    let events = parse_events(&output);
    let failed = events_of_type(&events, "publish_failed");
    assert_eq!((failed.len(), &failed[0]["retry_seconds"]), (1, &Value::Null), "{failed:?}");
}

/// An archive is not published if the store confirms a document but does not keep it.
#[test]
fn files_that_a_store_does_not_keep_are_not_published() {
    needs!("versitygw");
    for name in ["api/v1/archives", "latest.json"] {
        let (gateway, setup) = (Gateway::start(), Setup::with_pair());
        gateway.fail(&["PUT ", name], usize::MAX, FaultKind::Discarded);
        let output = publish_once_to_bucket(&gateway, &setup, &[]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{name}: {stderr}");
        assert!(stderr.contains("does not exist, although"), "{name}: {stderr}");
        assert_eq!(events_of_type(&parse_events(&output), "published").len(), 0, "{name}");
        gateway.clear_faults();
        assert!(publish_once_to_bucket(&gateway, &setup, &[]).status.success());
        assert_eq!(read_latest(&gateway.bucket().join("mainnet")), [FULL_26, INCREMENTAL_26_40], "{name}");
    }
}
