//! Uploads of `publish` that end while the store joins their parts, and uploads with parts that the store has
//! lost. Once the store works again, later runs complete each upload, and list the archive in the index.

use std::fs;
use std::path::Path;
use std::process::Child;

use rustix::process::{Pid, Signal, kill_process};

use crate::common::*;
use crate::publish::setup::{Setup, read_latest, verify_published};
use crate::publish::survives::stores::{
    publish_once_to_bucket, setup_with_three_parts, start_publishing, unfinished_uploads,
};
use crate::stores::gateway::{FaultKind, Forwarded, Gateway, PAGE};

const COMPLETE: [&str; 2] = ["POST ", "uploadId="];

/// Checks that a run against the repaired store publishes the archive. If the store has dropped the upload,
/// the first run may only find that out, and the second one publishes.
fn assert_published_after_repair(context: &str, gateway: &Gateway, setup: &Setup, archive: &Path) {
    gateway.clear_faults();
    let mut output = publish_once_to_bucket(gateway, setup, &[]);
    if output.status.code() == Some(4) {
        output = publish_once_to_bucket(gateway, setup, &[]);
    }
    assert!(output.status.success(), "{context}: {}", String::from_utf8_lossy(&output.stderr));
    let bucket = gateway.bucket().join("mainnet");
    assert_eq!(read_latest(&bucket), [name(archive)], "{context}");
    verify_published(&bucket);
    assert_eq!((gateway.leftover_part_count(), unfinished_uploads(setup).len()), (0, 0), "{context}");
    setup.assert_nothing_is_pinned();
}

fn end_by_signal(mut child: Child, signal: Signal) {
    if signal != Signal::KILL {
        wait_for_handler(&child, signal);
    }
    kill_process(Pid::from_child(&child), signal).expect("sent");
    child.wait().expect("ended");
}

/// A signal ends the run before or after the store has joined the parts.
#[test]
fn a_run_that_ends_during_the_completion_loses_nothing() {
    needs!("versitygw");
    for signal in [Signal::TERM, Signal::INT, Signal::KILL] {
        for forwarded in [Forwarded::No, Forwarded::Yes] {
            let gateway = Gateway::start();
            let (setup, archive) = setup_with_three_parts();
            gateway.fail(&COMPLETE, usize::MAX, FaultKind::Silence(forwarded));
            let child = start_publishing(&gateway, &setup, &[]);
            wait_for("the completion", || gateway.unanswered_request_count() > 0);
            end_by_signal(child, signal);
            assert_published_after_repair(&format!("{signal:?} {forwarded:?}"), &gateway, &setup, &archive);
        }
    }
}

/// A signal also ends the comparison with an archive that already has the name.
#[test]
fn a_run_that_ends_during_a_comparison_loses_nothing() {
    needs!("versitygw");
    let gateway = Gateway::start();
    let (setup, archive) = setup_with_three_parts();
    assert!(publish_once_to_bucket(&gateway, &setup, &[]).status.success());
    let bucket = gateway.bucket().join("mainnet");
    fs::remove_dir_all(bucket.join("api")).expect("removed");
    fs::remove_file(bucket.join("latest.json")).expect("removed");
    fs::remove_dir_all(setup.pins()).expect("removed");
    gateway.fail(&["GET ", ".tar.zst"], usize::MAX, FaultKind::Silence(Forwarded::No));
    let mut child = start_publishing(&gateway, &setup, &[]);
    wait_for("the comparison", || gateway.unanswered_request_count() > 0);
    wait_for_handler(&child, Signal::TERM);
    kill_process(Pid::from_child(&child), Signal::TERM).expect("sent");
    assert_eq!(exit_code(&mut child), Some(0));
    assert_published_after_repair("comparing", &gateway, &setup, &archive);
}

/// The completion fails, or the request that checks its result does.
#[test]
fn a_completion_that_fails_is_repeated_later() {
    needs!("versitygw");
    let head = &["HEAD ", ".tar.zst"][..];
    for (requests, fault_kind) in [
        (&COMPLETE[..], FaultKind::Refused(503, "SlowDown")),
        (&COMPLETE, FaultKind::Refused(403, "AccessDenied")),
        (&COMPLETE, FaultKind::Document(PAGE, Forwarded::No)),
        (&COMPLETE, FaultKind::Document(PAGE, Forwarded::Yes)),
        (head, FaultKind::Refused(404, "")),
        (head, FaultKind::Document(PAGE, Forwarded::No)),
    ] {
        let context = format!("{requests:?} {fault_kind:?}");
        let gateway = Gateway::start();
        let (setup, archive) = setup_with_three_parts();
        // `HEAD` requests also precede the upload, so it must reach its completion before they fail.
        gateway.fail(&COMPLETE, usize::MAX, FaultKind::Silence(Forwarded::No));
        let child = start_publishing(&gateway, &setup, &[]);
        wait_for("the completion", || gateway.unanswered_request_count() > 0);
        end_by_signal(child, Signal::TERM);
        gateway.clear_faults();
        gateway.fail(requests, usize::MAX, fault_kind);
        let requests_before = gateway.count_requests(requests);
        let child = start_publishing(&gateway, &setup, &[]);
        wait_for("the failing request", || gateway.count_requests(requests) > requests_before);
        end_by_signal(child, Signal::TERM);
        assert_published_after_repair(&context, &gateway, &setup, &archive);
    }
}

/// The store has lost a part, or has a different part in its place.
#[test]
fn an_upload_with_a_lost_part_is_sent_again() {
    needs!("versitygw");
    for is_replaced in [true, false] {
        let gateway = Gateway::start();
        let (setup, archive) = setup_with_three_parts();
        gateway.fail(&COMPLETE, usize::MAX, FaultKind::Silence(Forwarded::No));
        let child = start_publishing(&gateway, &setup, &[]);
        wait_for("the completion", || gateway.unanswered_request_count() > 0);
        end_by_signal(child, Signal::TERM);
        if is_replaced {
            let path = setup.pins().join("journal.json");
            let text = fs::read(&path).expect("read");
            let mut journal: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
            let (key, _) = unfinished_uploads(&setup).into_iter().next().expect("an upload");
            journal["uploads"][key]["state"]["tags"].as_array_mut().expect("tags").swap(0, 1);
            fs::write(&path, journal.to_string()).expect("written");
        } else {
            fs::remove_file(gateway.leftover_parts().first().expect("a part")).expect("removed")
        }
        assert_published_after_repair(&format!("is_replaced: {is_replaced}"), &gateway, &setup, &archive);
    }
}
