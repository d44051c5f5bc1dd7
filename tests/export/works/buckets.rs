//! Tables in a bucket: they appear whole, after the state was checked.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use sha2::{Digest, Sha256};

use crate::common::*;
use crate::export::works::changes::agave_chains;
use crate::export::works::engines::python;
use crate::export::{assert_exported, files, manifest, manifests, pair, stderr, tables};
use crate::stores::gateway::{BUCKET, Forwarded, Gateway, Instead, KEY, SECRET};
use crate::stores::{command, run, target};

#[test]
fn the_same_files_as_in_a_directory() {
    needs!("versitygw");
    let gateway = Gateway::start();
    let archives = pair("agave-4.2.2");
    let out = temp_dir();
    let [full, incremental] = archives.each_ref().map(|archive| text(archive));
    let arguments = ["export", full, incremental, "-o", &target(), "--table", "accounts,token-accounts"];
    gateway.fail(&["PUT "], 2, Instead::Refused(503, "SlowDown"));
    gateway.fail(&["PUT ", "_manifest"], 1, Instead::AnswerLost);
    let output = run(&gateway, &arguments);
    assert_eq!(output.code, Some(0), "{output:?}");
    let inputs = archives.each_ref().map(|archive| archive.as_path());
    assert_exported(&inputs, out.path(), &["--table", "accounts,token-accounts"]);
    let bucket = gateway.bucket().join("mainnet");
    assert_eq!(files(&bucket), files(out.path()));
    assert_eq!(gateway.left_parts(), 0);
    for table in manifest(&bucket)["tables"].as_array().expect("a list") {
        for file in table["files"].as_array().expect("a list") {
            let content = fs::read(bucket.join(file["path"].as_str().expect("a path"))).expect("read");
            let hash: String = Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(file["sha256"].as_str(), Some(&*hash));
        }
    }
    let again = run(&gateway, &arguments);
    assert_eq!(again.code, Some(5), "{again:?}");
    assert!(again.stderr.contains("_manifest-40.json"), "{again:?}");
    assert_engines_count(&gateway, manifest(out.path())["accounts"].as_u64().expect("a number"));
}

/// Reads the accounts from the bucket with the engines' own clients; prints their number.
const SCRIPT: &str = r#"
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

fn assert_engines_count(gateway: &Gateway, accounts: u64) {
    needs!("engines");
    let endpoint = gateway.endpoint().replace("http://", "");
    let output = python(SCRIPT).args([&endpoint, BUCKET, KEY, SECRET]).output().expect("runs");
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{accounts}\n{accounts}\n"));
}

#[test]
fn nothing_is_left_of_what_failed() {
    needs!("versitygw");
    let gateway = Gateway::start();
    let [full, incremental] = pair("agave-4.2.2");
    // An incremental archive alone, and another state than expected: nothing is sent.
    let hash = "5vEhTbsmLTSSQvMC1NEepXxVeVqpHmy8HCue69xKz9nt";
    for inputs in [vec![text(&incremental)], vec![text(&full), text(&incremental), "--expect-hash", hash]] {
        let target = target();
        let arguments = [&["export", "-o", &target][..], &inputs].concat();
        assert!(run(&gateway, &arguments).code.is_some_and(|code| code > 0));
    }
    assert_eq!(gateway.count_requests(&["PUT "]) + gateway.count_requests(&["POST "]), 0);
    for name in ["_unfinished-40", "part-00000", "_manifest-40"] {
        gateway.fail(&["PUT ", name], usize::MAX, Instead::Refused(403, "AccessDenied"));
        let output = run(&gateway, &["export", text(&full), text(&incremental), "-o", &target()]);
        assert!(output.code.is_some_and(|code| code > 0), "{name}: {output:?}");
        gateway.clear_faults();
        let left = gateway.bucket().join("mainnet");
        assert!(!left.exists() || files(&left).is_empty(), "{name}: {:?}", files(&left));
    }
    let output = run(&gateway, &["export", text(&full), text(&incremental), "-o", &target()]);
    assert_eq!(output.code, Some(0), "{output:?}");
}

/// Runs an export, and kills it while it waits for an answer of the store.
fn kill_at(gateway: &Gateway, arguments: &[&str], request: &[&'static str], done: Forwarded, scratch: &Path) {
    gateway.fail(request, usize::MAX, Instead::Silence(done));
    let mut child = command(gateway, arguments).env("TMPDIR", scratch).spawn().expect("starts");
    wait_for("the request", || gateway.unanswered_requests() > 0);
    child.kill().expect("killed");
    child.wait().expect("ended");
    gateway.clear_faults();
}

/// After a kill at each request to the store, the next run, which does not know of the killed one,
/// makes the tables whole.
#[test]
fn killed_at_each_request() {
    needs!("versitygw");
    let archives = pair("agave-4.2.2");
    let [full, incremental] = archives.each_ref().map(|archive| text(archive));
    let target = target();
    let scratch = temp_dir();
    let arguments = ["export", full, incremental, "-o", &target, "--table", "accounts,token-accounts"];
    for (request, is_reported) in [
        (&["PUT ", "_unfinished-40"][..], true),
        (&["POST ", "uploads="], true),
        (&["PUT ", "partNumber=1"], true),
        (&["POST ", "token_accounts", "uploadId="], true),
        (&["PUT ", "accounts/_manifest-40"], true),
        (&["PUT ", "token_accounts/_manifest-40"], true),
        (&["DELETE ", "_unfinished-40"], false),
    ] {
        for done in [Forwarded::No, Forwarded::Yes] {
            let label = format!("{request:?} {done:?}");
            let gateway = Gateway::start();
            kill_at(&gateway, &arguments, request, done, scratch.path());
            let bucket = gateway.bucket().join("mainnet");
            let manifests = ["accounts", "token_accounts"].map(|table| bucket.join(table).join("_manifest-40.json"));
            let is_complete = manifests.iter().all(|manifest| manifest.exists());
            let output = run(&gateway, &arguments);
            let was_begun = is_reported && (done == Forwarded::Yes || !request[1].starts_with("_unfinished"));
            assert_eq!(output.code, Some(if is_complete { 5 } else { 0 }), "{label}: {output:?}");
            let message = "removed the files of an unfinished export of slot 40";
            assert_eq!(output.stderr.contains(message), was_begun && !is_complete, "{label}: {output:?}");
            assert_eq!(tables(&bucket), ["accounts", "token_accounts"], "{label}");
        }
    }
}

/// A store that confirms files that it does not have. (A store that loses parts does not list them:
/// `a_list_without_a_part`.)
#[test]
fn a_store_that_keeps_nothing() {
    needs!("versitygw");
    let [full, incremental] = pair("agave-4.2.2");
    for name in ["_unfinished-40", "_manifest-40"] {
        let gateway = Gateway::start();
        gateway.fail(&["PUT ", name], usize::MAX, Instead::NotKept);
        let output = run(&gateway, &["export", text(&full), text(&incremental), "-o", &target()]);
        assert_eq!(output.code, Some(1), "{name}: {output:?}");
        assert!(output.stderr.contains("is not there, though"), "{name}: {output:?}");
        gateway.clear_faults();
        let left = gateway.bucket().join("mainnet");
        assert!(!left.exists() || files(&left).is_empty(), "{name}: {:?}", files(&left));
        let output = run(&gateway, &["export", text(&full), text(&incremental), "-o", &target()]);
        assert_eq!(output.code, Some(0), "{output:?}");
    }
}

/// Answer of S3 for a prefix without files.
const EMPTY: &str = r#"<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>archives</Name><KeyCount>0</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated></ListBucketResult>"#;

#[test]
fn a_list_without_a_part() {
    needs!("versitygw");
    let [full, incremental] = pair("agave-4.2.2");
    let gateway = Gateway::start();
    gateway.fail(&["GET ", "list-type=2"], usize::MAX, Instead::Says(EMPTY, Forwarded::No));
    let output = run(&gateway, &["export", text(&full), text(&incremental), "-o", &target()]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.stderr.contains("does not have the files that were sent"), "{output:?}");
    gateway.clear_faults();
    let left = gateway.bucket().join("mainnet");
    assert!(!left.exists() || files(&left).is_empty());
    let output = run(&gateway, &["export", text(&full), text(&incremental), "-o", &target()]);
    assert_eq!(output.code, Some(0), "{output:?}");
}

/// Two exports of one slot to one place. The first waits for the store, and is stopped after the
/// second has ended: it removes nothing of the second.
#[test]
fn another_export_takes_over() {
    needs!("versitygw");
    let [full, incremental] = pair("agave-4.2.2");
    let gateway = Gateway::start();
    let target = target();
    let arguments = ["export", text(&full), text(&incremental), "-o", &target];
    gateway.fail(&["POST ", "uploadId="], 1, Instead::Silence(Forwarded::No));
    let first = command(&gateway, &arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("starts");
    wait_for("its first file", || gateway.unanswered_requests() > 0);
    let second = run(&gateway, &arguments);
    assert_eq!(second.code, Some(0), "{second:?}");
    let whole = files(&gateway.bucket().join("mainnet"));
    rustix::process::kill_process(rustix::process::Pid::from_child(&first), rustix::process::Signal::TERM)
        .expect("sent");
    let first = first.wait_with_output().expect("ended");
    assert_ne!(first.status.code(), Some(0));
    assert_eq!(files(&gateway.bucket().join("mainnet")), whole);
}

/// Changes in a bucket are those in a directory, and must follow the newest state there, even if
/// another state is added while they are sent.
#[test]
fn changes_since_what_is_there() {
    needs!("versitygw");
    let chain = agave_chains().pop().expect("a chain");
    let gateway = Gateway::start();
    let target = target();
    let out = temp_dir();
    let [day_1, day_2, day_3] = [0, 1, 2].map(|day| chain.day(day).into_iter().map(text).collect::<Vec<&str>>());
    let export = |new: &[&str], since: &[&str]| {
        let since = if since.is_empty() { Vec::new() } else { [&["--since"], since].concat() };
        run(&gateway, &[&["export", "-o", &target, "--table", "accounts,stakes"], new, &since].concat())
    };
    let refused = export(&day_2, &day_1);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("must follow a state that is there, and there is none"), "{refused:?}");
    assert_eq!(export(&day_1, &[]).code, Some(0));
    // The manifest of another slot comes while ours is written.
    let bucket = gateway.bucket().join("mainnet");
    let before = files(&bucket);
    gateway.fail(&["PUT ", "_manifest-3575"], usize::MAX, Instead::Refused(503, "SlowDown"));
    let arguments =
        [&["export", "-o", &target, "--table", "accounts,stakes"], &day_3[..], &["--since"], &day_1].concat();
    let first = command(&gateway, &arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("starts");
    wait_for("its manifest", || gateway.count_requests(&["PUT ", "_manifest-3575"]) > 0);
    let second = export(&day_2, &day_1);
    assert_eq!(second.code, Some(0), "{second:?}");
    let mut whole = files(&bucket);
    whole.retain(|path| !path.contains("3575"));
    assert!(before.len() < whole.len());
    gateway.clear_faults();
    let first = first.wait_with_output().expect("ended");
    let first_stderr = stderr(&first);
    assert_eq!(first.status.code(), Some(2), "{first_stderr}");
    assert!(first_stderr.contains("the newest state there: slot 3550"), "{first_stderr}");
    assert_eq!(files(&bucket), whole);
    let third = export(&day_3, &day_2);
    assert_eq!(third.code, Some(0), "{third:?}");
    for day in 0..3 {
        let flags = [&["--table", "accounts,stakes"], &chain.since(day)[..]].concat();
        assert_exported(&chain.day(day), out.path(), &flags);
    }
    assert_eq!(files(&bucket), files(out.path()));
    let all_tables = |dir: &Path| manifests(dir).iter().map(|manifest| manifest["tables"].clone()).collect::<Vec<_>>();
    assert_eq!(all_tables(&bucket), all_tables(out.path()));
}

/// Exports accounts to the bucket. Returns the arguments that add token accounts to them.
fn arguments_that_add<'a>(gateway: &Gateway, archives: &'a [std::path::PathBuf; 2], target: &'a str) -> [&'a str; 7] {
    let [full, incremental] = archives.each_ref().map(|archive| text(archive));
    let output = run(gateway, &["export", full, incremental, "-o", target]);
    assert_eq!(output.code, Some(0), "{output:?}");
    ["export", full, incremental, "-o", target, "--table", "token-accounts"]
}

/// Whichever request was the last one, the tables before it stay, and the next run adds its own.
#[test]
fn killed_at_each_request_that_adds() {
    needs!("versitygw");
    let archives = pair("agave-4.2.2");
    let target = target();
    let scratch = temp_dir();
    for request in [
        &["PUT ", "_unfinished-40"][..],
        &["POST ", "uploads="],
        &["PUT ", "partNumber=1"],
        &["POST ", "token_accounts", "uploadId="],
        &["PUT ", "_manifest-40"],
        &["DELETE ", "_unfinished-40"],
    ] {
        for done in [Forwarded::No, Forwarded::Yes] {
            let label = format!("{request:?} {done:?}");
            let gateway = Gateway::start();
            let arguments = arguments_that_add(&gateway, &archives, &target);
            kill_at(&gateway, &arguments, request, done, scratch.path());
            let bucket = gateway.bucket().join("mainnet");
            let count = manifest(&bucket)["tables"].as_array().expect("a list").len();
            // The next run exports another table, and also removes the files of the killed run.
            let other = [&arguments[..6], &["votes"]].concat();
            let output = run(&gateway, &other);
            assert_eq!(output.code, Some(0), "{label}: {output:?}");
            let output = run(&gateway, &arguments);
            assert_eq!(output.code, Some(if count == 2 { 5 } else { 0 }), "{label}: {output:?}");
            let mut tables = tables(&bucket);
            tables.sort();
            assert_eq!(tables, ["accounts", "token_accounts", "votes"], "{label}");
        }
    }
}
