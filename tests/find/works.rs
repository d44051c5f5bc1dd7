//! `slotpress find` in a cluster of simulated peers of different age and rate.

use std::io::{self, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use std::{fs, thread};

use serde_json::{Value, json};
use slotpress_base::NoProgress;
use slotpress_net::find::find;
use slotpress_net::{Client, FindOptions, FindReport, MaxAge, SourceLocation};

use crate::common::http::{Connection, Request, Server, send_file, send_head, send_redirect, send_response, stall};
use crate::common::*;
use crate::find::*;
use crate::net::url;

/// Starts a server that serves archives as Agave's RPC service does, at about `bytes_per_second`.
fn start_peer(full_name: String, incremental_name: Option<String>, bytes_per_second: usize) -> Server {
    Server::start(move |request, stream| match request.path.as_str() {
        "/snapshot.tar.bz2" => send_redirect(stream, &format!("/{full_name}")),
        "/incremental-snapshot.tar.bz2" => match &incremental_name {
            Some(name) => send_redirect(stream, &format!("/{name}")),
            None => send_response(stream, "404 Not Found", &[], b""),
        },
        path if path.ends_with(".tar.zst") => slow_file(request, stream, bytes_per_second),
        _ => send_response(stream, "404 Not Found", &[], b""),
    })
}

/// Sends a file of 100 MB slowly. No test fetches it to its end.
fn slow_file(request: &Request, stream: &mut TcpStream, bytes_per_second: usize) -> io::Result<Connection> {
    const TOTAL: usize = 100_000_000;
    let range = request.range();
    let length = range.as_ref().map_or(TOTAL as u64, |range| range.end - range.start).to_string();
    let content_range = range.map(|range| format!("bytes {}-{}/{TOTAL}", range.start, range.end - 1));
    let mut fields = vec![("Accept-Ranges", "bytes"), ("Content-Length", length.as_str())];
    let status = if content_range.is_some() { "206 Partial Content" } else { "200 OK" };
    fields.extend(content_range.as_deref().map(|content_range| ("Content-Range", content_range)));
    send_head(stream, status, &fields)?;
    if request.method == "HEAD" {
        return Ok(Connection::KeepAlive);
    }
    let start = Instant::now();
    let mut sent = 0;
    while start.elapsed() < Duration::from_secs(5) {
        let piece = vec![7; bytes_per_second / 50];
        stream.write_all(&piece)?;
        sent += piece.len();
        thread::sleep(Duration::from_secs_f64(sent as f64 / bytes_per_second as f64).saturating_sub(start.elapsed()));
    }
    Ok(Connection::Close)
}

fn cluster_node(rpc: &str, shred_version: u16) -> Value {
    json!({"pubkey": "x", "gossip": "1.1.1.1:8001", "rpc": rpc, "shredVersion": shred_version, "version": "4.2.2"})
}

fn list_candidates(report: &FindReport) -> Vec<(u64, String)> {
    report.candidates.iter().map(|candidate| (candidate.slot(), candidate.source.clone())).collect()
}

#[test]
fn peers_are_ranked_by_age_at_boot() {
    let good = start_peer(full_name(1000), Some(incremental_name(1000, 99_900)), 20_000_000);
    let slow = start_peer(full_name(1000), Some(incremental_name(1000, 99_950)), 100_000);
    let old = start_peer(full_name(1000), Some(incremental_name(1000, 50_000)), 20_000_000);
    let other_base = start_peer(full_name(99_000), Some(incremental_name(98_000, 99_990)), 20_000_000);
    let future = start_peer(full_name(10_000_000), None, 20_000_000);
    let silent = Server::start(|_, stream| stall(stream));
    let page = Server::start(|_, stream| send_response(stream, "200 OK", &[], b"<html>"));
    let other_cluster = start_peer(full_name(99_999), None, 20_000_000);
    let mut nodes: Vec<Value> = [&good, &slow, &old, &other_base, &future, &silent, &page]
        .iter()
        .map(|server| cluster_node(&server.address.to_string(), 7))
        .collect();
    nodes.push(cluster_node(&other_cluster.address.to_string(), 8));
    nodes.extend([json!({"rpc": null, "shredVersion": 7}), json!({"rpc": 5}), json!("x"), cluster_node("../../x", 7)]);
    let rpc_server = start_rpc_with_peers(100_000, nodes, GENESIS);
    let options = FindOptions::default().rpc(vec![url(&rpc_server.url(""))]).max_age(MaxAge::Slots(20_000));
    let report = find(&client(), &options, &NoProgress).expect("found");
    assert_eq!(report.cluster.slot, Some(100_000));
    assert_eq!(report.cluster.shred_version, Some(7));
    assert_eq!(report.cluster.genesis_hash.map(|hash| hash.to_string()).as_deref(), Some(GENESIS));
    let best = report.require_candidate().expect("one");
    // The newest takes half an hour; a full archive of 1,000 slots ago arrives in seconds. On a
    // busy machine, measured rates are wrong by a small factor, which changes neither the order nor
    // which archives are too old.
    let expected = [(99_900, good.url("/")), (99_000, other_base.url("/")), (99_950, slow.url("/"))];
    assert_eq!(list_candidates(&report), expected);
    let rates: Vec<_> =
        report.candidates.iter().map(|candidate| candidate.rate_bytes_per_second.expect("measured")).collect();
    assert!(rates[0] > rates[2], "{rates:?}");
    assert_eq!(best.age_slots, Some(100));
    assert!(!best.named_by_operator);
    let reason = |server: &Server| {
        let refused = report.refused.iter().find(|refused| refused.source == server.url("/"));
        refused.map(|refused| refused.reason.clone()).unwrap_or_default()
    };
    assert!(reason(&old).contains("slots) old at boot"), "{}", reason(&old));
    assert!(reason(&future).contains("not reached"), "{}", reason(&future));
    assert!(reason(&silent).contains("no answer"), "{}", reason(&silent));
    assert!(reason(&page).contains("snapshot archive"), "{}", reason(&page));
    assert!(other_cluster.requests().is_empty(), "a different shred version");
    // Peers with private addresses are asked only if that is allowed.
    let strict = Client::new(&crate::net::options()).expect("a client");
    let before = good.requests().len();
    let report = find(&strict, &options, &NoProgress).expect("found");
    assert!(report.candidates.is_empty());
    assert_eq!(good.requests().len(), before);
    let error = report.require_candidate().expect_err("none");
    assert_eq!(error.kind().exit_code(), 4);
}

/// An archive of unknown age does not meet `--max-age`. An archive with an index contains its time and the
/// time per slot.
#[test]
fn an_unknown_age_is_not_zero() {
    let dir = temp_dir();
    let bytes = fs::read(archive(ledger("ledger-at-26").path(), dir.path(), &[])).expect("read");
    for (name, bytes, has_age) in [(full_name(30), vec![7; 1000], false), (full_name(26), bytes, true)] {
        let listing = name.clone();
        let mirror = Server::start(move |request, stream| match request.path.as_str() {
            path if path.ends_with(".tar.zst") => send_file(request, stream, &bytes, "\"m\""),
            _ if request.method == "HEAD" => send_response(stream, "404 Not Found", &[], b""),
            _ => send_response(stream, "200 OK", &[], listing.as_bytes()),
        });
        let run = |command: &str, arguments: &[&str]| {
            let output = slotpress().arg(command).args(arguments).output().expect("runs");
            let lines = String::from_utf8(output.stdout).expect("UTF-8");
            let line = lines.lines().next().and_then(|line| serde_json::from_str(line).ok()).unwrap_or(Value::Null);
            (output.status.code(), line, String::from_utf8_lossy(&output.stderr).into_owned())
        };
        let source = mirror.url("/dir/");
        let ledger = dir.path().join("ledger");
        let bootstrap = ["--json", "--dry-run", &source, "--ledger", ledger.to_str().expect("UTF-8")];
        for (command, arguments) in [("find", &["--json", &source][..]), ("bootstrap", &bootstrap)] {
            let (code, line, stderr) = run(command, arguments);
            assert_eq!(code, Some(0), "{command}: {stderr}");
            assert_eq!(line["age_seconds"].is_number(), has_age, "{command}: {line}");
            assert_eq!(line["expected_age_seconds"].is_number(), has_age, "{command}: {line}");
            let (code, _, stderr) = run(command, &[arguments, &["--max-age", "2h"]].concat());
            assert_eq!(code, Some(4), "{command}: {stderr}");
            let expected: &[&str] = if has_age { &["slots) old at boot"] } else { &["is of unknown age", "--rpc"] };
            assert!(expected.iter().all(|words| stderr.contains(words)), "{stderr}");
        }
    }
}

/// A state is half as old if its cluster's slots take 200 ms and not 400 ms.
#[test]
fn ages_follow_from_the_time_per_slot() {
    let find = |slot: u64, max_age: &str| {
        let peer = start_peer(full_name(1000), Some(incremental_name(1000, slot - 9_000)), 20_000_000);
        let rpc_server = start_rpc_with_peers(slot, vec![], GENESIS);
        let arguments = ["find", "--json", "--rpc", &rpc_server.url(""), &peer.url(""), "--max-age", max_age];
        let output = slotpress().args(arguments).output().expect("runs");
        let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let lines: Vec<Value> = lines.map(|line| serde_json::from_slice(line).expect("JSON")).collect();
        let line = |kind: &str| lines.iter().find(|line| line["type"] == kind).cloned().unwrap_or_default();
        (line("candidate"), line("find"))
    };
    let (candidate, summary) = find(FAST_SLOT, "45m");
    assert_eq!(candidate["age_slots"], 9_000, "{summary}");
    assert_eq!(candidate["age_seconds"], 1800.0, "{summary}");
    assert_eq!(summary["slot_ms"], 200);
    assert_eq!(summary["slot_time_source"], "rpc");
    assert_eq!(summary["notes"], json!([]));
    assert_eq!(summary["max_age_slots"], 13_500);
    assert_eq!(summary["max_age_seconds"], 2700.0);
    // No source states the time per slot: `find` assumes 400 ms, and adds a note.
    let (candidate, summary) = find(100_000, "45m");
    assert_eq!(candidate, Value::Null, "too old: {summary}");
    assert_eq!(summary["slot_ms"], 400);
    assert_eq!(summary["slot_time_source"], "assumed");
    assert!(summary["notes"][0].as_str().is_some_and(|note| note.contains("400 ms (assumed)")), "{summary}");
    // A number without a unit means slots of any length.
    for slot in [FAST_SLOT, 100_000] {
        let (candidate, summary) = find(slot, "9500");
        assert_eq!(candidate["age_slots"], 9_000, "{summary}");
        assert_eq!(summary["max_age_slots"], 9_500, "{summary}");
    }
}

#[test]
fn sources_of_every_kind_are_used() {
    let dir = temp_dir();
    fs::write(dir.path().join(full_name(100)), make_skippable_frames(1000)).expect("written");
    fs::write(dir.path().join(incremental_name(100, 150)), make_skippable_frames(10)).expect("written");
    fs::write(dir.path().join("tmp-snapshot-archive-9.tar.zst"), b"").expect("written");
    fs::create_dir(dir.path().join(full_name(999))).expect("a directory with an archive's name");
    let listing = format!(
        "<html><a href=\"{0}\">{0}</a><a href=\"{1}\">x</a><a href=\"{2}\">gone</a><a href=\"http://10.0.0.1/{3}\">y</a>",
        full_name(120),
        incremental_name(120, 160),
        full_name(130),
        full_name(5)
    );
    let mirror = Server::start(move |request, stream| match request.path.as_str() {
        "/dir/" => send_response(stream, "200 OK", &[], listing.as_bytes()),
        path if path.contains("-130-") => send_response(stream, "404 Not Found", &[], b""),
        path if path.ends_with(".tar.zst") => send_file(request, stream, &[1; 5000], "\"m\""),
        _ => send_response(stream, "404 Not Found", &[], b""),
    });
    let exact = mirror.url(&format!("/dir/{}", full_name(125)));
    let sources = [dir.path().to_str().expect("UTF-8").to_string(), mirror.url("/dir/"), exact.clone()];
    let sources: Vec<_> = sources.iter().map(|text| text.parse::<SourceLocation>().expect("a source")).collect();
    let report = find(&client(), &FindOptions::default().sources(sources), &NoProgress).expect("found");
    let slots: Vec<(u64, Option<u64>)> = report
        .candidates
        .iter()
        .map(|candidate| (candidate.full.name.slot, candidate.incremental.as_ref().map(|offer| offer.name.slot)))
        .collect();
    assert_eq!(slots, [(120, Some(160)), (100, Some(150)), (125, None), (5, None)]);
    // The link of the listing was not followed; only its name was used.
    assert!(mirror.requests().iter().any(|request| request.path == format!("/dir/{}", full_name(5))));
    assert!(report.notes.iter().any(|note| note.contains("no RPC server")), "{:?}", report.notes);
}

#[test]
fn screen_and_json_show_candidates_and_refused_sources() {
    let peer = start_peer(full_name(1000), Some(incremental_name(1000, 99_900)), 20_000_000);
    let dead = "http://127.0.0.1:9";
    let rpc_server = start_rpc_with_peers(100_000, vec![], GENESIS);
    let arguments = ["find", "--rpc", &rpc_server.url(""), &peer.url(""), dead];
    let output = slotpress().args(arguments).output().expect("runs");
    let stdout = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success(), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
    for line in stdout.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    for words in ["99900", "at boot", "servers claim", "     1  127.0.0.1:9\n", "        cannot connect"] {
        assert!(stdout.contains(words), "{words}: {stdout}");
    }
    let output = slotpress().args(arguments).arg("--json").output().expect("runs");
    let lines: Vec<Value> = output
        .stdout
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).expect("JSON"))
        .collect();
    let types: Vec<&str> = lines.iter().filter_map(|line| line["type"].as_str()).collect();
    assert_eq!(types, ["candidate", "refused", "refused", "find"]);
    assert_eq!(lines[0]["slot"], 99_900);
    assert_eq!(lines[0]["full"]["name"], full_name(1000));
    assert_eq!(lines[3]["cluster"]["slot"], 100_000);
}

#[test]
fn states_that_are_too_old_end_with_a_hint() {
    let peer = start_peer(full_name(1000), Some(incremental_name(1000, 99_900)), 20_000_000);
    let rpc = start_rpc_with_peers(100_000, vec![], GENESIS);
    for (max_age, words) in [("5", "--max-age"), ("1s", "old at boot, more than 1 s")] {
        let arguments = ["find", "--max-age", max_age, "--rpc", &rpc.url(""), &peer.url(""), "http://127.0.0.1:9"];
        let output = slotpress().args(arguments).output().expect("runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{stderr}");
        assert!(stderr.contains("old at boot"), "{stderr}");
        assert!(stderr.contains(words), "{stderr}");
        assert!(!stderr.contains(": 1 would be"), "{stderr}");
    }
}

#[test]
fn find_without_a_source_is_a_usage_error() {
    let output = slotpress().arg("find").output().expect("runs");
    assert_eq!(output.status.code(), Some(2));
}

/// Agave's RPC service lists peers only with `--full-rpc-api`. A note names a server that does not list them,
/// and the peers that another server lists are found.
#[test]
fn a_note_names_an_rpc_server_without_peers() {
    let archives = start_peer(full_name(1000), Some(incremental_name(1000, 1900)), 50_000_000);
    let without_peers = start_rpc(2000, None, GENESIS);
    let with_peers = start_rpc_with_peers(2000, vec![cluster_node(&archives.address.to_string(), 1)], GENESIS);
    for (servers, notes) in [(vec![&without_peers, &with_peers], 1), (vec![&with_peers], 0)] {
        let options = FindOptions::default().rpc(servers.iter().map(|server| url(&server.url(""))).collect::<Vec<_>>());
        let report = find(&client(), &options, &NoProgress).expect("found");
        assert_eq!(list_candidates(&report).len(), 1);
        let failed: Vec<&String> = report.notes.iter().filter(|note| note.contains("could not get peers")).collect();
        assert_eq!(failed.len(), notes, "{failed:?}");
        assert!(failed.iter().all(|note| note.contains(&without_peers.address.to_string())), "{failed:?}");
        assert!(failed.iter().all(|note| note.ends_with("getClusterNodes: Method not found")), "{failed:?}");
    }
}
