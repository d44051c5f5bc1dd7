//! Buckets with invalid lists, damaged archives, and endpoints that cannot be reached.

use std::fs;

use gateway::{FaultKind, Forwarded, Gateway, PAGE};

use crate::common::{FULL_26, fixture, needs, slotpress, temp_dir, text, wait_for};
use crate::stores::*;

/// A web server in place of a store, or a store with an endless list, is not mistaken for an empty bucket.
#[test]
fn invalid_lists_are_errors() {
    needs!("versitygw");
    const AGAIN: &str = "<ListBucketResult><IsTruncated>true</IsTruncated>\
                         <NextContinuationToken>again</NextContinuationToken></ListBucketResult>";
    let gateway = Gateway::start();
    let out = temp_dir();
    for (document, words) in [(PAGE, "does not speak S3"), (AGAIN, "has no end")] {
        gateway.fail(&["GET ", "list-type=2"], usize::MAX, FaultKind::Document(document, Forwarded::No));
        for command in [
            &["list", &target()][..],
            &["find", &target()],
            &["fetch", &target(), "-o", text(out.path())],
            &["prune", &target(), "--keep-full", "1", "--keep-incremental", "0"],
        ] {
            let requests_before = gateway.count_requests(&["list-type=2"]);
            let output = run_with_gateway(&gateway, command);
            assert_eq!(output.code, Some(4), "{command:?}: {output:?}");
            assert!(output.stderr.contains(words), "{command:?}: {output:?}");
            assert!(gateway.count_requests(&["list-type=2"]) - requests_before <= 4, "{command:?}");
        }
        gateway.clear_faults();
    }
}

/// An archive that fails its checks never appears under its name, and the bucket keeps no part of it.
#[test]
fn a_damaged_archive_is_not_uploaded() {
    needs!("versitygw");
    let gateway = Gateway::start();
    let dir = temp_dir();
    let mut bytes = fs::read(fixture(FULL_26)).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let damaged = dir.path().join(FULL_26);
    fs::write(&damaged, bytes).expect("written");
    let output = run_with_gateway(&gateway, &["recompress", text(&damaged), "-o", &target()]);
    assert_eq!(output.code, Some(3), "{output:?}");
    assert!(files_in_bucket(&gateway).is_empty());
    wait_for("the end of the upload", || gateway.leftover_part_count() == 0);
}

/// If nothing listens at the endpoint, commands fail without a second attempt.
#[test]
fn an_unreachable_endpoint_fails_at_once() {
    let out = temp_dir();
    let dir = temp_dir();
    let archive = format!("s3://bucket/{FULL_26}");
    for arguments in [
        &["list", "s3://bucket/"][..],
        &["find", "s3://bucket/"],
        &["fetch", "s3://bucket/", "-o", text(out.path())],
        &["prune", "s3://bucket/", "--keep-full", "1", "--keep-incremental", "0"],
        &["verify", &archive],
        &["publish", text(dir.path()), "--to", "s3://bucket/", "--writer", "agave", "--once"],
        &["verify", "http://127.0.0.1:1/snapshot.tar.zst"],
        &["list", "http://127.0.0.1:1/"],
    ] {
        let mut command = slotpress();
        command.args(arguments).env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "secret");
        let output = command.env("SLOTPRESS_ENDPOINT", "http://127.0.0.1:1").output().expect("runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{arguments:?}: {stderr}");
        assert!(stderr.contains("cannot connect"), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("asking again"), "{arguments:?}: {stderr}");
    }
}
