//! In a bucket, tables appear only once they are complete, even if exports fail, are killed, or
//! run at the same time.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use crate::common::site::JsonOutput;
use crate::common::*;
use crate::export::works::changes::agave_chains;
use crate::export::works::engines::python_command;
use crate::export::{
    assert_exported, checked_table_names, fixture_pair, list_files, read_manifest, read_manifests, sha256_hex,
    stderr_of,
};
use crate::stores::gateway::{BUCKET, FaultKind, Forwarded, Gateway, KEY, SECRET};
use crate::stores::{command, run_with_gateway, target};

#[test]
fn a_bucket_receives_the_same_files_as_a_directory() {
    needs!("versitygw");
    let gateway = Gateway::start();
    let archives = fixture_pair("agave-4.2.2");
    let out = temp_dir();
    let [full, incremental] = archives.each_ref().map(|archive| text(archive));
    let arguments = ["export", full, incremental, "-o", &target(), "--table", "accounts,token-accounts"];
    gateway.fail(&["PUT "], 2, FaultKind::Refused(503, "SlowDown"));
    gateway.fail(&["PUT ", "_manifest"], 1, FaultKind::AnswerLost);
    let output = run_with_gateway(&gateway, &arguments);
    assert_eq!(output.code, Some(0), "{output:?}");
    let inputs = archives.each_ref().map(|archive| archive.as_path());
    assert_exported(&inputs, out.path(), &["--table", "accounts,token-accounts"]);
    let bucket = gateway.bucket().join("mainnet");
    assert_eq!(list_files(&bucket), list_files(out.path()));
    assert_eq!(gateway.leftover_part_count(), 0);
    for table in read_manifest(&bucket)["tables"].as_array().expect("a list") {
        for file in table["files"].as_array().expect("a list") {
            let content = fs::read(bucket.join(file["path"].as_str().expect("a path"))).expect("read");
            assert_eq!(file["sha256"], sha256_hex(&content));
        }
    }
    let again = run_with_gateway(&gateway, &arguments);
    assert_eq!(again.code, Some(5), "{again:?}");
    assert!(again.stderr.contains("_manifest-40.json"), "{again:?}");
    assert_engines_count(&gateway, read_manifest(out.path())["accounts"].as_u64().expect("a number"));
}

/// Reads the accounts from the bucket with the engines' own clients; prints their number.
const COUNT_ACCOUNTS_SCRIPT: &str = r#"
import sys
endpoint, bucket, key, secret = sys.argv[1:]
from pyarrow import fs, dataset
s3 = fs.S3FileSystem(endpoint_override=endpoint, scheme="http", access_key=key, secret_key=secret, region="us-east-1")
print(dataset.dataset(f"{bucket}/mainnet/accounts", filesystem=s3, partitioning="hive").count_rows())
import polars
options = {"aws_access_key_id": key, "aws_secret_access_key": secret, "aws_endpoint_url": f"http://{endpoint}",
           "aws_region": "us-east-1", "aws_allow_http": "true"}
files = f"s3://{bucket}/mainnet/accounts/*/*.parquet"
print(polars.scan_parquet(files, storage_options=options, hive_partitioning=True).select(polars.len()).collect().item())
"#;

/// Exports the accounts of the pair to the bucket.
fn export_pair(gateway: &Gateway) -> JsonOutput {
    let [full, incremental] = fixture_pair("agave-4.2.2");
    run_with_gateway(gateway, &["export", text(&full), text(&incremental), "-o", &target()])
}

fn assert_no_file_is_left(gateway: &Gateway) {
    let dir = gateway.bucket().join("mainnet");
    assert!(!dir.exists() || list_files(&dir).is_empty(), "{:?}", list_files(&dir));
}

fn assert_pair_exported(gateway: &Gateway) {
    let output = export_pair(gateway);
    assert_eq!(output.code, Some(0), "{output:?}");
}

fn assert_engines_count(gateway: &Gateway, accounts: u64) {
    needs!("engines");
    let endpoint = gateway.endpoint().replace("http://", "");
    let output = python_command(COUNT_ACCOUNTS_SCRIPT).args([&endpoint, BUCKET, KEY, SECRET]).output().expect("runs");
    assert!(output.status.success(), "{}", stderr_of(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{accounts}\n{accounts}\n"));
}

#[test]
fn failed_exports_leave_no_files() {
    needs!("versitygw");
    let gateway = Gateway::start();
    let [full, incremental] = fixture_pair("agave-4.2.2");
    // For an incremental archive alone, and for an unexpected state, nothing is sent.
    let hash = "5vEhTbsmLTSSQvMC1NEepXxVeVqpHmy8HCue69xKz9nt";
    for inputs in [vec![text(&incremental)], vec![text(&full), text(&incremental), "--expect-hash", hash]] {
        let target = target();
        let arguments = [&["export", "-o", &target][..], &inputs].concat();
        assert!(run_with_gateway(&gateway, &arguments).code.is_some_and(|code| code > 0));
    }
    assert_eq!(gateway.count_requests(&["PUT "]) + gateway.count_requests(&["POST "]), 0);
    for name in ["_unfinished-40", "part-00000", "_manifest-40"] {
        gateway.fail(&["PUT ", name], usize::MAX, FaultKind::Refused(403, "AccessDenied"));
        let output = export_pair(&gateway);
        assert!(output.code.is_some_and(|code| code > 0), "{name}: {output:?}");
        gateway.clear_faults();
        assert_no_file_is_left(&gateway);
    }
    assert_pair_exported(&gateway);
}

/// Runs an export, and kills it while it waits for the store's answer to `request`.
fn kill_export_at(
    gateway: &Gateway,
    arguments: &[&str],
    request: &[&'static str],
    forwarded: Forwarded,
    scratch: &Path,
) {
    gateway.fail(request, usize::MAX, FaultKind::Silence(forwarded));
    let mut child = command(gateway, arguments).env("TMPDIR", scratch).spawn().expect("starts");
    wait_for("the request", || gateway.unanswered_request_count() > 0);
    child.kill().expect("killed");
    child.wait().expect("ended");
    gateway.clear_faults();
}

/// The next run learns about the killed one only from the bucket.
#[test]
fn the_next_run_completes_the_tables_after_a_kill_at_each_request() {
    needs!("versitygw");
    let archives = fixture_pair("agave-4.2.2");
    let [full, incremental] = archives.each_ref().map(|archive| text(archive));
    let target = target();
    let scratch = temp_dir();
    let arguments = ["export", full, incremental, "-o", &target, "--table", "accounts,token-accounts"];
    for request in [
        &["PUT ", "_unfinished-40"][..],
        &["POST ", "uploads="],
        &["PUT ", "partNumber=1"],
        &["POST ", "token_accounts", "uploadId="],
        &["PUT ", "accounts/_manifest-40"],
        &["PUT ", "token_accounts/_manifest-40"],
        &["DELETE ", "_unfinished-40"],
    ] {
        for forwarded in [Forwarded::No, Forwarded::Yes] {
            let label = format!("{request:?} {forwarded:?}");
            let gateway = Gateway::start();
            kill_export_at(&gateway, &arguments, request, forwarded, scratch.path());
            let bucket = gateway.bucket().join("mainnet");
            let manifests = ["accounts", "token_accounts"].map(|table| bucket.join(table).join("_manifest-40.json"));
            let is_complete = manifests.iter().all(|manifest| manifest.exists());
            let output = run_with_gateway(&gateway, &arguments);
            let was_begun = forwarded == Forwarded::Yes || request[1] != "_unfinished-40";
            assert_eq!(output.code, Some(if is_complete { 5 } else { 0 }), "{label}: {output:?}");
            let message = "removed the files of an unfinished export of slot 40";
            assert_eq!(output.stderr.contains(message), was_begun && !is_complete, "{label}: {output:?}");
            assert_eq!(checked_table_names(&bucket), ["accounts", "token_accounts"], "{label}");
        }
    }
}

/// The store confirms small files, but discards them. A store that discards a data file does not list it: see
/// `a_list_that_lacks_a_file_is_an_error`.
#[test]
fn files_that_a_store_does_not_keep_are_reported() {
    needs!("versitygw");
    for name in ["_unfinished-40", "_manifest-40"] {
        let gateway = Gateway::start();
        gateway.fail(&["PUT ", name], usize::MAX, FaultKind::Discarded);
        let output = export_pair(&gateway);
        assert_eq!(output.code, Some(1), "{name}: {output:?}");
        assert!(output.stderr.contains("does not exist, although"), "{name}: {output:?}");
        gateway.clear_faults();
        assert_no_file_is_left(&gateway);
        assert_pair_exported(&gateway);
    }
}

/// S3's list of a prefix without files.
const EMPTY_LIST: &str = r#"<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>archives</Name><KeyCount>0</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated></ListBucketResult>"#;

#[test]
fn a_list_that_lacks_a_file_is_an_error() {
    needs!("versitygw");
    let gateway = Gateway::start();
    gateway.fail(&["GET ", "list-type=2"], usize::MAX, FaultKind::Document(EMPTY_LIST, Forwarded::No));
    let output = export_pair(&gateway);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.stderr.contains("does not have the files that were sent"), "{output:?}");
    gateway.clear_faults();
    assert_no_file_is_left(&gateway);
    assert_pair_exported(&gateway);
}

/// Two exports send the same slot to the same place. The first export waits for the store, and is stopped
/// after the second has ended. It must not remove the files of the second.
#[test]
fn an_export_removes_no_files_of_a_later_one() {
    needs!("versitygw");
    let [full, incremental] = fixture_pair("agave-4.2.2");
    let gateway = Gateway::start();
    let target = target();
    let arguments = ["export", text(&full), text(&incremental), "-o", &target];
    gateway.fail(&["POST ", "uploadId="], 1, FaultKind::Silence(Forwarded::No));
    let first = command(&gateway, &arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("starts");
    wait_for("its first file", || gateway.unanswered_request_count() > 0);
    let second = run_with_gateway(&gateway, &arguments);
    assert_eq!(second.code, Some(0), "{second:?}");
    let whole = list_files(&gateway.bucket().join("mainnet"));
    rustix::process::kill_process(rustix::process::Pid::from_child(&first), rustix::process::Signal::TERM)
        .expect("sent");
    let first = first.wait_with_output().expect("ended");
    assert_ne!(first.status.code(), Some(0));
    assert_eq!(list_files(&gateway.bucket().join("mainnet")), whole);
}

/// This holds even if another state is added while changes are sent. In the end, the bucket has the same
/// files as a directory.
#[test]
fn changes_must_follow_the_newest_state_in_the_bucket() {
    needs!("versitygw");
    let chain = agave_chains().pop().expect("a chain");
    let gateway = Gateway::start();
    let target = target();
    let out = temp_dir();
    let [day_1, day_2, day_3] =
        [0, 1, 2].map(|day| chain.archives_of_day(day).into_iter().map(text).collect::<Vec<&str>>());
    let export = |new: &[&str], since: &[&str]| {
        let since = if since.is_empty() { Vec::new() } else { [&["--since"], since].concat() };
        run_with_gateway(&gateway, &[&["export", "-o", &target, "--table", "accounts,stakes"], new, &since].concat())
    };
    let refused = export(&day_2, &day_1);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("must follow an exported state, and none exists"), "{refused:?}");
    assert_eq!(export(&day_1, &[]).code, Some(0));
    // Another export adds its manifest while the first one cannot write its own.
    let bucket = gateway.bucket().join("mainnet");
    let before = list_files(&bucket);
    gateway.fail(&["PUT ", "_manifest-3575"], usize::MAX, FaultKind::Refused(503, "SlowDown"));
    let arguments =
        [&["export", "-o", &target, "--table", "accounts,stakes"], &day_3[..], &["--since"], &day_1].concat();
    let first = command(&gateway, &arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("starts");
    wait_for("its manifest", || gateway.count_requests(&["PUT ", "_manifest-3575"]) > 0);
    let second = export(&day_2, &day_1);
    assert_eq!(second.code, Some(0), "{second:?}");
    let mut whole = list_files(&bucket);
    whole.retain(|path| !path.contains("3575"));
    assert!(before.len() < whole.len());
    gateway.clear_faults();
    let first = first.wait_with_output().expect("ended");
    let first_stderr = stderr_of(&first);
    assert_eq!(first.status.code(), Some(2), "{first_stderr}");
    assert!(first_stderr.contains("the newest state there: slot 3550"), "{first_stderr}");
    assert_eq!(list_files(&bucket), whole);
    let third = export(&day_3, &day_2);
    assert_eq!(third.code, Some(0), "{third:?}");
    for day in 0..3 {
        let flags = [&["--table", "accounts,stakes"], &chain.flags_since_day_before(day)[..]].concat();
        assert_exported(&chain.archives_of_day(day), out.path(), &flags);
    }
    assert_eq!(list_files(&bucket), list_files(out.path()));
    let all_tables =
        |dir: &Path| read_manifests(dir).iter().map(|manifest| manifest["tables"].clone()).collect::<Vec<_>>();
    assert_eq!(all_tables(&bucket), all_tables(out.path()));
}

/// Tables that were complete before the kill stay, whichever request was the last.
#[test]
fn tables_are_added_after_a_kill_at_each_request() {
    needs!("versitygw");
    let archives = fixture_pair("agave-4.2.2");
    let [full, incremental] = archives.each_ref().map(|archive| text(archive));
    let target = target();
    let scratch = temp_dir();
    let arguments = ["export", full, incremental, "-o", &target, "--table", "token-accounts"];
    for request in [
        &["PUT ", "_unfinished-40"][..],
        &["POST ", "uploads="],
        &["PUT ", "partNumber=1"],
        &["POST ", "token_accounts", "uploadId="],
        &["PUT ", "_manifest-40"],
        &["DELETE ", "_unfinished-40"],
    ] {
        for forwarded in [Forwarded::No, Forwarded::Yes] {
            let label = format!("{request:?} {forwarded:?}");
            let gateway = Gateway::start();
            assert_pair_exported(&gateway);
            kill_export_at(&gateway, &arguments, request, forwarded, scratch.path());
            let bucket = gateway.bucket().join("mainnet");
            let count = read_manifest(&bucket)["tables"].as_array().expect("a list").len();
            // The next run exports another table, and also removes the files of the killed run.
            let other = [&arguments[..6], &["votes"]].concat();
            let output = run_with_gateway(&gateway, &other);
            assert_eq!(output.code, Some(0), "{label}: {output:?}");
            let output = run_with_gateway(&gateway, &arguments);
            assert_eq!(output.code, Some(if count == 2 { 5 } else { 0 }), "{label}: {output:?}");
            let mut tables = checked_table_names(&bucket);
            tables.sort();
            assert_eq!(tables, ["accounts", "token_accounts", "votes"], "{label}");
        }
    }
}
