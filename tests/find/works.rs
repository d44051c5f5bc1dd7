//! `slotpress find` in a cluster of simulated peers of different age and rate.

use std::io::{self, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use std::{fs, thread};

use serde_json::{Value, json};
use slotpress_base::NoProgress;
use slotpress_net::find::find;
use slotpress_net::{Client, FindOptions, FindReport, MaxAge, SourceArg};

use crate::common::http::{Request, Server, Then, answer, file, head, redirect, stall};
use crate::common::*;
use crate::find::*;
use crate::net::url;

/// Starts a server with archives like Agave's RPC service, at about `bytes_per_second`.
fn peer(full_name: String, incremental_name: Option<String>, bytes_per_second: usize) -> Server {
    Server::start(move |request, stream| match request.path.as_str() {
        "/snapshot.tar.bz2" => redirect(stream, &format!("/{full_name}")),
        "/incremental-snapshot.tar.bz2" => match &incremental_name {
            Some(name) => redirect(stream, &format!("/{name}")),
            None => answer(stream, "404 Not Found", &[], b""),
        },
        path if path.ends_with(".tar.zst") => slow_file(request, stream, bytes_per_second),
        _ => answer(stream, "404 Not Found", &[], b""),
    })
}

/// Sends a file of 100 MB slowly. No test fetches it to its end.
fn slow_file(request: &Request, stream: &mut TcpStream, bytes_per_second: usize) -> io::Result<Then> {
    const TOTAL: usize = 100_000_000;
    let range = request.range();
    let length = range.as_ref().map_or(TOTAL as u64, |range| range.end - range.start).to_string();
    let place = range.map(|range| format!("bytes {}-{}/{TOTAL}", range.start, range.end - 1));
    let mut fields = vec![("Accept-Ranges", "bytes"), ("Content-Length", length.as_str())];
    let status = if place.is_some() { "206 Partial Content" } else { "200 OK" };
    fields.extend(place.as_deref().map(|place| ("Content-Range", place)));
    head(stream, status, &fields)?;
    if request.method == "HEAD" {
        return Ok(Then::Keep);
    }
    let start = Instant::now();
    let mut sent = 0;
    while start.elapsed() < Duration::from_secs(5) {
        let piece = vec![7; bytes_per_second / 50];
        stream.write_all(&piece)?;
        sent += piece.len();
        thread::sleep(Duration::from_secs_f64(sent as f64 / bytes_per_second as f64).saturating_sub(start.elapsed()));
    }
    Ok(Then::Close)
}

fn node(rpc: &str, shred_version: u16) -> Value {
    json!({"pubkey": "x", "gossip": "1.1.1.1:8001", "rpc": rpc, "shredVersion": shred_version, "version": "4.2.2"})
}

fn ranked(report: &FindReport) -> Vec<(u64, String)> {
    report.candidates.iter().map(|one| (one.slot(), one.source.clone())).collect()
}

#[test]
fn peers_are_ranked_by_age_at_boot() {
    let good = peer(full(1000), Some(incremental(1000, 99_900)), 20_000_000);
    let slow = peer(full(1000), Some(incremental(1000, 99_950)), 100_000);
    let old = peer(full(1000), Some(incremental(1000, 50_000)), 20_000_000);
    let other_base = peer(full(99_000), Some(incremental(98_000, 99_990)), 20_000_000);
    let future = peer(full(10_000_000), None, 20_000_000);
    let silent = Server::start(|_, stream| stall(stream));
    let page = Server::start(|_, stream| answer(stream, "200 OK", &[], b"<html>"));
    let other_cluster = peer(full(99_999), None, 20_000_000);
    let mut nodes: Vec<Value> = [&good, &slow, &old, &other_base, &future, &silent, &page]
        .iter()
        .map(|server| node(&server.address.to_string(), 7))
        .collect();
    nodes.push(node(&other_cluster.address.to_string(), 8));
    nodes.extend([json!({"rpc": null, "shredVersion": 7}), json!({"rpc": 5}), json!("x"), node("../../x", 7)]);
    let knows = rpc(100_000, nodes, GENESIS);
    let options = FindOptions::default().rpc(vec![url(&knows.url(""))]).max_age(MaxAge::Slots(20_000));
    let report = find(&client(), &options, &NoProgress).expect("found");
    assert_eq!(report.cluster.slot, Some(100_000));
    assert_eq!(report.cluster.shred_version, Some(7));
    assert_eq!(report.cluster.genesis_hash.map(|hash| hash.to_string()).as_deref(), Some(GENESIS));
    let best = report.require_candidate().expect("one");
    // The newest takes half an hour; a full archive of 1,000 slots ago arrives in seconds. On a
    // busy machine, measured rates are wrong by a small factor, which changes neither the order nor
    // the archives that are too old.
    let expected = [(99_900, good.url("/")), (99_000, other_base.url("/")), (99_950, slow.url("/"))];
    assert_eq!(ranked(&report), expected);
    let rates: Vec<_> = report.candidates.iter().map(|one| one.rate_bytes_per_second.expect("measured")).collect();
    assert!(rates[0] > rates[2], "{rates:?}");
    assert_eq!((best.age_slots, best.is_operator), (Some(100), false));
    let why = |server: &Server| {
        let found = report.refused.iter().find(|refused| refused.source == server.url("/"));
        found.map(|refused| refused.why.clone()).unwrap_or_default()
    };
    assert!(why(&old).contains("slots) old at boot"), "{}", why(&old));
    assert!(why(&future).contains("not reached"), "{}", why(&future));
    assert!(why(&silent).contains("no answer"), "{}", why(&silent));
    assert!(why(&page).contains("snapshot archive"), "{}", why(&page));
    assert!(other_cluster.requests().is_empty(), "another shred version");
    // Peers with private addresses are asked only if that is allowed.
    let strict = Client::new(&crate::net::options()).expect("a client");
    let before = good.requests().len();
    let report = find(&strict, &options, &NoProgress).expect("found");
    assert!(report.candidates.is_empty() && good.requests().len() == before);
    let error = report.require_candidate().expect_err("none");
    assert_eq!(error.kind().exit_code(), 4);
}

/// A mirror without times: no archive meets `--max-age`. An archive with an index tells its time
/// and the length of slots.
#[test]
fn an_unknown_age_is_not_zero() {
    let dir = temp_dir();
    let bytes = fs::read(archive(ledger("ledger-at-26").path(), dir.path(), &[])).expect("read");
    for (name, bytes, age) in [(full(30), vec![7; 1000], None), (full(26), bytes, Some(()))] {
        let listing = name.clone();
        let mirror = Server::start(move |request, stream| match request.path.as_str() {
            path if path.ends_with(".tar.zst") => file(request, stream, &bytes, "\"m\""),
            _ if request.method == "HEAD" => answer(stream, "404 Not Found", &[], b""),
            _ => answer(stream, "200 OK", &[], listing.as_bytes()),
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
            let (code, line, errors) = run(command, arguments);
            assert_eq!((code, line["age_seconds"].is_null()), (Some(0), age.is_none()), "{command}: {errors}");
            assert_eq!(line["expected_age_seconds"].is_null(), age.is_none(), "{command}");
            let (code, _, errors) = run(command, &[arguments, &["--max-age", "2h"]].concat());
            assert_eq!(code, Some(4), "{command}: {errors}");
            match age {
                None => assert!(errors.contains("is of unknown age") && errors.contains("--rpc"), "{errors}"),
                Some(()) => assert!(errors.contains("slots) old at boot"), "{errors}"),
            }
        }
    }
}

/// If slots take half the time, the same number of slots is half the age.
#[test]
fn ages_are_times() {
    let ages = |slot: u64, max_age: &str| {
        let peer = peer(full(1000), Some(incremental(1000, slot - 9_000)), 20_000_000);
        let knows = rpc(slot, vec![], GENESIS);
        let arguments = ["find", "--json", "--rpc", &knows.url(""), &peer.url(""), "--max-age", max_age];
        let output = slotpress().args(arguments).output().expect("runs");
        let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let lines: Vec<Value> = lines.map(|line| serde_json::from_slice(line).expect("JSON")).collect();
        let of = |name: &str| lines.iter().find(|line| line["type"] == name).cloned().unwrap_or_default();
        let age = of("candidate");
        ((age["age_slots"].clone(), age["age_seconds"].clone()), of("find"))
    };
    let (age, said) = ages(FAST_SLOT, "45m");
    assert_eq!(age, (json!(9_000), json!(1800.0)), "{said}");
    assert_eq!((&said["slot_ms"], &said["slot_time_source"], &said["notes"]), (&json!(200), &json!("rpc"), &json!([])));
    assert_eq!((&said["max_age_slots"], &said["max_age_seconds"]), (&json!(13_500), &json!(2700.0)));
    // No source tells: 400 ms are assumed, and `find` says so.
    let (age, said) = ages(100_000, "45m");
    assert_eq!(age, (Value::Null, Value::Null), "too old: {said}");
    assert_eq!((&said["slot_ms"], &said["slot_time_source"]), (&json!(400), &json!("assumed")));
    assert!(said["notes"][0].as_str().is_some_and(|note| note.contains("400 ms (assumed)")), "{said}");
    // A number without a unit means slots of any length.
    for slot in [FAST_SLOT, 100_000] {
        let (age, said) = ages(slot, "9500");
        assert_eq!((&age.0, &said["max_age_slots"]), (&json!(9_000), &json!(9_500)), "{said}");
    }
}

#[test]
fn sources_of_every_kind() {
    let dir = temp_dir();
    fs::write(dir.path().join(full(100)), filler(1000)).expect("written");
    fs::write(dir.path().join(incremental(100, 150)), filler(10)).expect("written");
    fs::write(dir.path().join("tmp-snapshot-archive-9.tar.zst"), b"").expect("written");
    fs::create_dir(dir.path().join(full(999))).expect("a directory with an archive's name");
    let listing = format!(
        "<html><a href=\"{0}\">{0}</a><a href=\"{1}\">x</a><a href=\"{2}\">gone</a><a href=\"http://10.0.0.1/{3}\">y</a>",
        full(120),
        incremental(120, 160),
        full(130),
        full(5)
    );
    let mirror = Server::start(move |request, stream| match request.path.as_str() {
        "/dir/" => answer(stream, "200 OK", &[], listing.as_bytes()),
        path if path.contains("-130-") => answer(stream, "404 Not Found", &[], b""),
        path if path.ends_with(".tar.zst") => file(request, stream, &[1; 5000], "\"m\""),
        _ => answer(stream, "404 Not Found", &[], b""),
    });
    let exact = mirror.url(&format!("/dir/{}", full(125)));
    let sources = [dir.path().to_str().expect("UTF-8").to_string(), mirror.url("/dir/"), exact.clone()];
    let sources: Vec<_> = sources.iter().map(|text| text.parse::<SourceArg>().expect("a source")).collect();
    let report = find(&client(), &FindOptions::default().sources(sources), &NoProgress).expect("found");
    let found: Vec<(u64, Option<u64>)> = report
        .candidates
        .iter()
        .map(|one| (one.full.name.slot, one.incremental.as_ref().map(|one| one.name.slot)))
        .collect();
    assert_eq!(found, [(120, Some(160)), (100, Some(150)), (125, None), (5, None)]);
    // The link of the listing was not followed; only its name was used.
    assert!(mirror.requests().iter().any(|request| request.path == format!("/dir/{}", full(5))));
    assert!(report.notes.iter().any(|note| note.contains("no RPC server")), "{:?}", report.notes);
}

#[test]
fn the_screen_and_the_json() {
    let peer = peer(full(1000), Some(incremental(1000, 99_900)), 20_000_000);
    let dead = "http://127.0.0.1:9";
    let knows = rpc(100_000, vec![], GENESIS);
    let arguments = ["find", "--rpc", &knows.url(""), &peer.url(""), dead];
    let output = slotpress().args(arguments).output().expect("runs");
    let said = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    for line in said.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert!(said.contains("99900") && said.contains("at boot") && said.contains("servers claim"), "{said}");
    assert!(said.contains("     1  127.0.0.1:9\n") && said.contains("        cannot connect"), "{said}");
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
    assert_eq!(lines[0]["full"]["name"], full(1000));
    assert_eq!(lines[3]["cluster"]["slot"], 100_000);
    // No usable source: exit code 4, and a hint.
    let output = slotpress().args(["find", "--max-age", "5"]).args(&arguments[1..]).output().expect("runs");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(4), "{error}");
    assert!(error.contains("old at boot") && error.contains("--max-age"), "{error}");
    let arguments = ["find", "--max-age", "1s", "--rpc", &knows.url(""), &peer.url("")];
    let error = String::from_utf8_lossy(&slotpress().args(arguments).output().expect("runs").stderr).into_owned();
    assert!(error.contains("old at boot, more than 1 s") && !error.contains(": 1 would be"), "{error}");
    let output = slotpress().arg("find").output().expect("runs");
    assert_eq!(output.status.code(), Some(2));
}

/// Agave's RPC service tells peers only with `--full-rpc-api`. Without it, the server itself is
/// still a source.
#[test]
fn an_rpc_server_that_tells_no_peers() {
    let archives = peer(full(1000), Some(incremental(1000, 1900)), 50_000_000);
    let tells_none = rpc_that_tells(2000, None, GENESIS);
    let tells = rpc(2000, vec![node(&archives.address.to_string(), 1)], GENESIS);
    for (servers, notes) in [(vec![&tells_none, &tells], 1), (vec![&tells], 0)] {
        let options = FindOptions::default().rpc(servers.iter().map(|server| url(&server.url(""))).collect::<Vec<_>>());
        let report = find(&client(), &options, &NoProgress).expect("found");
        assert_eq!(ranked(&report).len(), 1);
        let told: Vec<&String> = report.notes.iter().filter(|note| note.contains("lists no peers")).collect();
        assert_eq!(told.len(), notes, "{told:?}");
        assert!(told.iter().all(|note| note.contains(&tells_none.address.to_string())), "{told:?}");
        assert!(told.iter().all(|note| note.ends_with("getClusterNodes: Method not found")), "{told:?}");
    }
}
