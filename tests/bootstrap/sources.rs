//! Sources that are dead, busy or wrong, alone and beside good ones.

use std::fs;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use super::site::*;
use crate::common::*;
use crate::net::server::{Request, Server, Then, answer, head};

/// Nothing listens there.
const DEAD: &str = "http://127.0.0.1:9";

fn full_only() -> Files {
    archives(&[]).into_iter().filter(|(name, _)| name.starts_with("snapshot-")).collect()
}

fn is_fetch(request: &Request) -> bool {
    request.method == "GET" && request.path.ends_with(".tar.zst")
}

/// A source that has not answered in this run is not waited for at its end.
#[test]
fn a_dead_source_beside_one_without_an_incremental() {
    let (good, dir) = (serve(&full_only(), Way::Ranges), temp_dir());
    let ledger = dir.path().join("ledger");
    let said = run(&["bootstrap", DEAD, &good.url(""), "--ledger", text(&ledger)]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(said.line("restore")["slot"], 26);
    assert!(!said.stderr.contains("asked again"), "it is not waited for: {said:?}");
}

/// Who cannot be asked has not said that it does not have the archive.
#[test]
fn a_trusted_server_that_cannot_be_asked() {
    let (good, dir) = (serve(&full_only(), Way::Ranges), temp_dir());
    for command in [["fetch", "-o"], ["bootstrap", "--ledger"]] {
        let to = dir.path().join(command[0]);
        let said = run(&[command[0], &good.url(""), command[1], text(&to), "--trust", DEAD]);
        assert_eq!(said.code, Some(4), "{said:?}");
        let is_told = said.stderr.contains("cannot ask whether a trusted server has") && said.stderr.contains(DEAD);
        assert!(is_told && !said.stderr.contains("does not have"), "{said:?}");
    }
}

/// A source that is busy at first is asked again, whatever sort of source it is.
#[test]
fn a_source_that_is_busy_at_first() {
    let files = full_only();
    let name = files.keys().next().expect("an archive").clone();
    for (command, flag, path) in [
        ("fetch", "-o", String::new()),
        ("fetch", "-o", "/archives/".to_string()),
        ("fetch", "-o", format!("/{name}")),
        ("bootstrap", "--ledger", String::new()),
    ] {
        let (served, busy) = (files.clone(), AtomicUsize::new(4));
        let server = Server::start(move |request, stream| {
            if busy.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
                return answer(stream, "429 Too Many Requests", &[("Retry-After", "1")], b"");
            }
            let mut request = request.clone();
            if request.path == "/archives/" {
                let page = served.keys().cloned().collect::<Vec<_>>().join("\n");
                return answer(stream, "200 OK", &[], page.as_bytes());
            }
            request.path = request.path.replace("/archives/", "/");
            respond(&served, Way::Ranges, &request, stream)
        });
        let dir = temp_dir();
        let said = run(&[command, &server.url(&path), flag, text(&dir.path().join("out"))]);
        assert_eq!(said.code, Some(0), "{command} {path}: {said:?}");
    }
    // Another one that has an archive is enough.
    let busy = Server::start(|_, stream| answer(stream, "429 Too Many Requests", &[("Retry-After", "90")], b""));
    let (good, dir) = (serve(&files, Way::Ranges), temp_dir());
    let said = run(&["fetch", &busy.url(""), &good.url(""), "-o", text(dir.path())]);
    assert_eq!(said.code, Some(0), "{said:?}");
}

/// A server that corrupts and tells nothing of its file's version: as it says, it is not used again.
#[test]
fn a_lone_server_that_corrupts() {
    let files = full_only();
    for (command, flag) in [("fetch", "-o"), ("bootstrap", "--ledger")] {
        let served = Arc::new(files.clone());
        let server = Server::start(move |request, stream| {
            let Some(bytes) = served.get(request.path.trim_start_matches('/')) else {
                return respond(&served, Way::Ranges, request, stream);
            };
            let mut bytes = bytes.clone();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            let Some(range) = request.range() else {
                head(stream, "200 OK", &[("Accept-Ranges", "bytes"), ("Content-Length", &bytes.len().to_string())])?;
                if request.method != "HEAD" {
                    stream.write_all(&bytes)?;
                }
                return Ok(Then::Keep);
            };
            let place = format!("bytes {}-{}/{}", range.start, range.end - 1, bytes.len());
            let body = &bytes[range.start as usize..range.end as usize];
            answer(stream, "206 Partial Content", &[("Content-Range", &place)], body)
        });
        let dir = temp_dir();
        let said = run(&[command, &server.url(""), flag, text(&dir.path().join("out"))]);
        assert_eq!(said.code, Some(3), "{said:?}");
        assert_eq!(said.stderr.matches("is no longer used").count(), 1, "{said:?}");
        assert!(said.stderr.contains("\"hint\":"), "{said:?}");
        let middle = files.values().next().expect("an archive").len() as u64 / 2;
        let is_of_middle = |request: &&Request| {
            is_fetch(request) && request.range().is_some_and(|range| range.contains(&middle) && range.end < 2 * middle)
        };
        let asked = server.requests().iter().filter(is_of_middle).count();
        assert_eq!(asked, 1, "{command} {said:?}");
    }
}

/// A genesis that is to be compared, and is not to be had: nothing is fetched.
#[test]
fn an_expected_genesis_that_no_source_has() {
    let (good, dir) = (serve(&full_only(), Way::Ranges), temp_dir());
    let ledger = dir.path().join("ledger");
    let hash = ["--expected-genesis-hash", "11111111111111111111111111111112"];
    let said = run(&[&["bootstrap", &good.url(""), "--ledger", text(&ledger)], &hash[..]].concat());
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(said.stderr.contains("no source has a genesis") && said.stderr.contains("\"hint\":"), "{said:?}");
    assert!(!good.requests().iter().any(is_fetch), "{said:?}");
}

#[test]
fn sources_of_a_file() {
    let (good, dir) = (serve(&full_only(), Way::Ranges), temp_dir());
    let (file, out) = (dir.path().join("mirrors"), dir.path().join("out"));
    let lines = format!("# ours\n\n  {}  \n{DEAD}\n", good.url(""));
    fs::write(&file, lines).expect("written");
    let fetch = || run(&["fetch", "--sources-from", text(&file), "-o", text(&out)]);
    let said = fetch();
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(run(&["find", "--sources-from", text(&file)]).code, Some(0));
    for (text, code, words) in
        [("ftp://x/\n", 2, "line 1"), ("# none\n", 2, "lists no source"), ("\n/no/such/path\n", 1, "line 2")]
    {
        fs::write(&file, text).expect("written");
        let said = fetch();
        assert!(said.code == Some(code) && said.stderr.contains(words), "{said:?}");
    }
}

/// How fast each of several sources is.
#[test]
fn rates_of_sources() {
    let files = larger_archive();
    let (one, two, dir) = (serve(&files, Way::Ranges), serve(&files, Way::Ranges), temp_dir());
    let ledger = dir.path().join("ledger");
    let flags = ["--no-incremental", "--max-rate", "1MiB", "--progress", "json", "--ledger", text(&ledger)];
    let said = run(&[&["bootstrap", &one.url(""), &two.url("")], &flags[..]].concat());
    assert_eq!(said.code, Some(0), "{said:?}");
    let is_rate = |line: &str| [&one, &two].iter().all(|server| line.contains(&format!("{} ", server.address)));
    assert!(said.stderr.lines().any(|line| line.contains("\"note\"") && is_rate(line)), "{said:?}");
}
