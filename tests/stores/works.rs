//! Commands that read from buckets and write to them.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::{fs, thread};

use gateway::{FaultKind, Gateway, KEY, SECRET};
use tempfile::TempDir;

use crate::common::http::{Connection, Server};
use crate::common::site::{
    Files, TransferMode, archives, files_in, larger_archive, ledger_tree, pair_of_archives, respond, restore_files,
};
use crate::common::{FULL_26, INCREMENTAL_26_40, fixture, ledger, needs, relative_paths, temp_dir, text, wait_for};
use crate::stores::*;

/// The bucket receives the same bytes as a directory, and nothing is written to the working directory or the
/// temporary directory. An incremental archive builds on the full one in the bucket.
#[test]
fn an_archive_goes_straight_into_a_bucket() {
    needs!("versitygw");
    let gateway = Gateway::start();
    let ledger = ledger("ledger-at-40");
    let out = temp_dir();
    let elsewhere = temp_dir();
    let ledger = text(ledger.path());
    let out_dir = text(out.path());
    let archive = |to: &str, flags: &[&str]| {
        let mut command = command(&gateway, &["archive", ledger, "-o", to]);
        command.args(flags).current_dir(elsewhere.path()).env("TMPDIR", elsewhere.path());
        run_command(command)
    };
    let to_dir = archive(out_dir, &[]);
    let to_bucket = archive(&target(), &[]);
    assert_eq!((to_dir.code, to_bucket.code), (Some(0), Some(0)), "{to_bucket:?}");
    let name = to_bucket.line("archive")["path"].as_str().expect("a path").to_string();
    assert!(name.starts_with(&format!("{}/snapshot-40-", target())), "{name}");
    assert_eq!(to_dir.line("archive")["root"], to_bucket.line("archive")["root"]);
    assert_eq!(files_in(out.path()), files_in(&gateway.bucket().join("mainnet")));
    assert_eq!(relative_paths(elsewhere.path()), Vec::<String>::new());

    let puts = gateway.count_requests(&["PUT "]);
    let repeated = archive(&target(), &[]);
    assert_eq!(repeated.code, Some(5), "{repeated:?}");
    assert!(repeated.stderr.contains(&format!("{name} already exists")), "{repeated:?}");
    let skipped = archive(&target(), &["--skip-existing"]);
    assert_eq!((skipped.code, &skipped.line("skipped")["path"]), (Some(0), &name.clone().into()));
    assert_eq!(gateway.count_requests(&["PUT "]), puts, "nothing was sent");
    assert_eq!(archive(&target(), &["--force"]).code, Some(0));
    assert_eq!(gateway.leftover_part_count(), 0);

    // An incremental archive needs its full archive in the bucket.
    let refused = archive(&target(), &["--base-slot", "26"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("no full archive of slot 26"), "{refused:?}");
    let full = fixture(FULL_26);
    let recompressed = run_with_gateway(&gateway, &["recompress", text(&full), "-o", &target()]);
    assert_eq!(recompressed.code, Some(0), "{recompressed:?}");
    let incremental = archive(&target(), &["--base-slot", "26"]);
    assert_eq!(incremental.code, Some(0), "{incremental:?}");
    for flag in ["--verify", "--dry-run"] {
        assert_eq!(archive(&target(), &[flag]).code, Some(2), "{flag}");
    }
    assert_eq!(archive("https://host.example/x/", &[]).code, Some(2));
}

/// Starts a store with a full and an incremental archive.
fn gateway_with_pair() -> (Gateway, Files) {
    let gateway = Gateway::start();
    let files = pair_of_archives();
    put_files(&gateway, &files);
    (gateway, files)
}

#[test]
fn archives_in_a_bucket_are_listed_inspected_and_verified() {
    needs!("versitygw");
    let (gateway, files) = gateway_with_pair();
    let (full, bytes) = files.iter().find(|(name, _)| name.starts_with("snapshot-")).expect("a full archive");
    let url = format!("{}/{full}", target());

    let listed = run_with_gateway(&gateway, &["list", &target()]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    let sizes: Vec<_> = listed.lines.iter().filter_map(|line| line["size_bytes"].as_u64()).collect();
    assert_eq!(sizes.iter().sum::<u64>(), files.values().map(|bytes| bytes.len() as u64).sum::<u64>());
    assert_eq!(listed.line("choice")["full"], full.as_str());
    assert_eq!(listed.line("archive_listed")["file"], url.as_str());

    let inspected = run_with_gateway(&gateway, &["inspect", &url]);
    assert_eq!(inspected.code, Some(0), "{inspected:?}");
    assert_eq!(inspected.line("transfer")["file_bytes"], bytes.len());
    let verified = run_with_gateway(&gateway, &["verify", &url]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
    assert_eq!(verified.line("verify")["ok"], true, "{verified:?}");
    let all = run_with_gateway(&gateway, &["verify", &target()]);
    let good = all.lines.iter().filter(|line| line["type"] == "verify" && line["ok"] == true).count();
    assert_eq!((all.code, good), (Some(0), files.len()), "{all:?}");
    let found = run_with_gateway(&gateway, &["find", &target()]);
    assert!(found.line("candidate")["full"].to_string().contains(&url), "{found:?}");
}

#[test]
fn a_list_warns_if_the_index_cannot_be_read() {
    needs!("versitygw");
    let (gateway, files) = gateway_with_pair();
    gateway.fail(&["GET ", "api/v1/archives"], usize::MAX, FaultKind::Refused(403, "AccessDenied"));
    let listed = run_with_gateway(&gateway, &["list", &target()]);
    let archives = listed.lines.iter().filter(|line| line["type"] == "archive_listed").count();
    assert_eq!((listed.code, archives), (Some(0), files.len()), "{listed:?}");
    assert!(listed.stderr.contains("the reasons for keeping archives are not shown"), "{listed:?}");
}

#[test]
fn a_fetch_outlives_failures_of_a_bucket() {
    needs!("versitygw");
    let (gateway, files) = gateway_with_pair();
    let out = temp_dir();
    gateway.fail(&["GET ", "range: bytes="], 2, FaultKind::Refused(503, "SlowDown"));
    gateway.fail(&["GET ", "range: bytes="], 2, FaultKind::AnswerLost);
    let fetched = run_with_gateway(&gateway, &["fetch", &target(), "-o", text(out.path())]);
    assert_eq!(fetched.code, Some(0), "{fetched:?}");
    assert_eq!(files_in(out.path()), files);
    // The signatures are in the URLs.
    assert_eq!(gateway.count_requests(&["HEAD ", "authorization:"]), 0);
    assert_eq!(gateway.count_requests(&["range:", "authorization:"]), 0);
}

#[test]
fn a_ledger_is_bootstrapped_from_a_bucket() {
    needs!("versitygw");
    let (gateway, files) = gateway_with_pair();
    let out = temp_dir();
    let ledger = out.path().join("ledger");
    gateway.fail(&["GET ", "range: bytes="], 2, FaultKind::Closed);
    let output = run_with_gateway(&gateway, &["bootstrap", &target(), "--ledger", text(&ledger)]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let expected = restore_files(&files);
    assert_eq!(ledger_tree(&ledger), ledger_tree(&expected.path().join("ledger")));
}

/// A mirror, a peer and a bucket have the same archive, and more than one of them sends a part. The bucket
/// answers only after the mirror and the peer have answered two ranges each.
#[test]
fn one_download_comes_from_servers_and_a_bucket() {
    needs!("versitygw");
    let gateway = Gateway::start();
    let files = larger_archive();
    put_files(&gateway, &files);
    let start_limited_server = || {
        let served = files.clone();
        let remaining_ranges = Arc::new(AtomicUsize::new(2));
        let counter = remaining_ranges.clone();
        let server = Server::start(move |request, stream| {
            let is_range = request.method == "GET" && request.range().is_some();
            if is_range && counter.fetch_update(SeqCst, SeqCst, |count| count.checked_sub(1)).is_err() {
                return Ok(Connection::Close);
            }
            respond(&served, TransferMode::Ranges, request, stream)
        });
        (server, remaining_ranges)
    };
    let (mirror, mirror_ranges) = start_limited_server();
    let (peer, peer_ranges) = start_limited_server();
    gateway.fail(&["GET ", "range: bytes="], usize::MAX, FaultKind::Refused(503, "SlowDown"));
    let name = files.keys().next().expect("an archive");
    let url = format!("{}/{name}", target());
    let out = temp_dir();
    let mut fetch = command(&gateway, &["fetch", "-o", text(out.path()), "--no-incremental", "--streams", "6"]);
    fetch.args([&mirror.url(&format!("/{name}")), &peer.url(""), &url]);
    let fetched = thread::scope(|scope| {
        let fetched = scope.spawn(|| run_command(fetch));
        wait_for("both servers", || mirror_ranges.load(SeqCst) + peer_ranges.load(SeqCst) == 0);
        gateway.clear_faults();
        fetched.join().expect("no panic")
    });
    assert_eq!(fetched.code, Some(0), "{fetched:?}");
    assert_eq!(files_in(out.path()), files);
    let servers = &fetched.line("fetch")["archives"][0]["servers"];
    // One of the two servers may have sent only the bytes by which mirrors are compared.
    assert!(servers.as_array().map_or(0, Vec::len) >= 2, "{servers}");
    assert!(servers.to_string().contains(&format!("\"{url}\"")), "{servers}");
}

#[test]
fn a_bucket_is_pruned() {
    needs!("versitygw");
    let gateway = Gateway::start();
    let archive = |slot: u64| format!("snapshot-{slot}-5vEhTbsmLTSSQvMC1NEepXxVeVqpHmy8HCue69xKz9nt.tar.zst");
    let others = ["latest.json", "notes.txt"].map(String::from);
    let all = (1..6).map(archive).chain(others.clone());
    put_files(&gateway, &all.map(|name| (name, vec![1; 10])).collect());
    let prune = |flags: &[&str]| run_with_gateway(&gateway, &[&["prune", &target()], flags].concat());
    let rules = ["--keep-full", "2", "--keep-incremental", "0"];
    let dry_run = prune(&[&rules[..], &["--dry-run"]].concat());
    assert_eq!((dry_run.code, &dry_run.line("prune")["removed"]), (Some(0), &3.into()), "{dry_run:?}");
    assert_eq!(files_in_bucket(&gateway).len(), 7);
    let pruned = prune(&rules);
    assert_eq!((pruned.code, &pruned.line("prune")["removed_bytes"]), (Some(0), &30.into()), "{pruned:?}");
    let mut expected: Vec<String> = [archive(4), archive(5)].into_iter().chain(others).collect();
    expected.sort();
    assert_eq!(files_in_bucket(&gateway), expected);
    assert_eq!(prune(&["--keep-free", "1GiB"]).code, Some(2));
}

/// Days and epochs come from the bank files in the bucket; the first epoch ends with slot 31.
/// Archives without a readable bank file stay.
#[test]
fn a_bucket_is_pruned_by_days_and_epochs() {
    needs!("versitygw");
    let gateway = Gateway::start();
    put_files(&gateway, &archives(&[]));
    let reason = |flag: &str, name: &str| {
        let output = run_with_gateway(&gateway, &["prune", &target(), flag, "1", "--dry-run"]);
        let line = output.lines.iter().find(|line| line["name"] == name).unwrap_or_else(|| panic!("{output:?}"));
        line["kept_because"].clone()
    };
    assert_eq!(reason("--keep-epoch-ends", FULL_26), "epoch_end");
    assert_eq!(reason("--keep-weekly", INCREMENTAL_26_40), "weekly");
    let undated = FULL_26.replace("-26-", "-50-");
    put_files(&gateway, &[(undated.clone(), vec![1; 10])].into());
    assert_eq!(reason("--keep-daily", &undated), "undated");
}

/// A bucket with an archive, and profiles for it. `list` runs without credentials in the
/// environment.
struct Profiles {
    gateway: Gateway,
    dir: TempDir,
}

fn start_with_profiles() -> Profiles {
    let gateway = Gateway::start();
    put_files(&gateway, &larger_archive());
    let dir = temp_dir();
    let printed = format!("{{\"Version\":1,\"AccessKeyId\":\"{KEY}\",\"SecretAccessKey\":\"{SECRET}\"}}");
    fs::write(dir.path().join("printed"), &printed).expect("written");
    let program = format!("cat {}", text(&dir.path().join("printed")));
    let profiles = format!(
        "[profile program]\ncredential_process = {program}\n[profile fails]\ncredential_process = echo {SECRET}; exit 1\n\
         [profile keys]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n[profile none]\nregion = us-east-1\n"
    );
    fs::write(dir.path().join("config"), profiles).expect("written");
    Profiles { gateway, dir }
}

impl Profiles {
    fn list(&self, settings: &[(&str, &str)], flags: &[&str]) -> JsonOutput {
        let mut command = command(&self.gateway, &["list", &target()]);
        command.args(flags).env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
        command.env("AWS_CONFIG_FILE", self.dir.path().join("config"));
        // Nothing listens there, as on a machine without a metadata service.
        command.env("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9");
        command.envs(settings.iter().copied());
        run_command(command)
    }
}

#[test]
fn credentials_come_from_a_profile() {
    needs!("versitygw");
    let profiles = start_with_profiles();
    for profile in ["program", "keys"] {
        let listed = profiles.list(&[("AWS_PROFILE", profile)], &[]);
        assert_eq!(listed.code, Some(0), "{profile} {listed:?}");
        assert_eq!(listed.lines.len(), 2, "{profile} {listed:?}");
    }
}

#[test]
fn missing_and_wrong_credentials_are_errors_with_a_hint() {
    needs!("versitygw");
    let profiles = start_with_profiles();
    for (settings, words) in [
        (&[("AWS_PROFILE", "fails")][..], "credential_process failed"),
        (&[("AWS_PROFILE", "none")], "no credentials"),
        (&[], "no credentials"),
        (&[("AWS_PROFILE", "misspelt")], "no file has that profile"),
        (&[("AWS_ACCESS_KEY_ID", KEY), ("AWS_SECRET_ACCESS_KEY", "wrong")], "the server answers"),
    ] {
        let refused = profiles.list(settings, &[]);
        assert!(matches!(refused.code, Some(1 | 2)), "{words}: {refused:?}");
        assert!(refused.stderr.contains(words), "{words}: {refused:?}");
        assert!(refused.stderr.contains("\"hint\":"), "{refused:?}");
    }
}

#[test]
fn anonymous_requests_are_not_signed() {
    needs!("versitygw");
    let profiles = start_with_profiles();
    let refused = profiles.list(&[], &["--anonymous"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("the server answers 403"), "{refused:?}");
    assert_eq!(profiles.gateway.count_requests(&["uthorization:"]), 0);
}

/// A refused `HEAD` request is explained too, although its answer has no body. The gateway answers 404 to an
/// unknown key.
#[test]
fn refusals_are_explained() {
    needs!("versitygw");
    let gateway = Gateway::start();
    put_files(&gateway, &larger_archive());
    let name = files_in_bucket(&gateway).remove(0);
    for (variable, arguments) in [
        ("AWS_SECRET_ACCESS_KEY", ["inspect", &format!("{}/{name}", target())]),
        ("AWS_ACCESS_KEY_ID", ["inspect", &format!("{}/{name}", target())]),
        ("AWS_ACCESS_KEY_ID", ["list", &target()]),
        ("AWS_ACCESS_KEY_ID", ["verify", &target()]),
    ] {
        let mut read = command(&gateway, &arguments);
        read.env(variable, "wrong");
        let refused = run_command(read);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr.contains("the server answers"), "{refused:?}");
    }
    for (arguments, words) in [
        (&["list", "s3://no-such-bucket/x"][..], "NoSuchBucket"),
        (&["list", &target(), "--region", "eu-west-1"], "AWS_REGION"),
    ] {
        let refused = run_with_gateway(&gateway, arguments);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr.contains(words), "{refused:?}");
    }
}
