//! Sources that send wrong archives, for `fetch` and `bootstrap`.

use std::io::Write;
use std::sync::Arc;

use crate::common::http::{Request, Server, Then, answer, head};
use crate::common::site::*;
use crate::common::*;

fn is_fetch(request: &Request) -> bool {
    request.method == "GET" && request.path.ends_with(".tar.zst")
}

/// A trusted server that cannot be asked has not denied the archive.
#[test]
fn a_trusted_server_that_cannot_be_asked() {
    let good = serve(&full_only(), Way::Ranges);
    let dir = temp_dir();
    for command in [["fetch", "-o"], ["bootstrap", "--ledger"]] {
        let to = dir.path().join(command[0]);
        let said = run(&[command[0], &good.url(""), command[1], text(&to), "--trust", DEAD]);
        assert_eq!(said.code, Some(4), "{said:?}");
        let is_told = said.stderr.contains("it cannot be asked") && said.stderr.contains(DEAD);
        assert!(is_told && !said.stderr.contains("does not have"), "{said:?}");
    }
}

/// A server that sends wrong bytes and no version of its file: it is not used again, as the message
/// says.
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
        // Requested twice if the first request stalled for 2 seconds and another connection took it
        // over.
        assert!((1..=2).contains(&asked), "{command} asked {asked} times: {said:?}");
    }
}

/// Where no source answers, no ledger is begun.
#[test]
fn an_unreachable_source() {
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let said = run(&["bootstrap", DEAD, "--ledger", text(&ledger)]);
    assert!(said.code == Some(4) && !ledger.exists(), "{said:?}");
}

/// Nothing is fetched that cannot be unpacked here, and nothing is left.
#[test]
fn an_archive_without_room() {
    let files = full_only();
    let name = files.keys().next().expect("an archive").clone();
    let server = Server::start(move |request, stream| {
        if request.path == format!("/{name}") {
            head(stream, "200 OK", &[("Accept-Ranges", "bytes"), ("Content-Length", &(3u64 << 40).to_string())])
                .map(|()| Then::Close)
        } else {
            respond(&files, Way::Ranges, request, stream)
        }
    });
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let said = run(&["bootstrap", &server.url(""), "--ledger", text(&ledger)]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains("not enough space") && !ledger.exists(), "{said:?}");
    assert!(!server.requests().iter().any(is_fetch), "{said:?}");
}

/// A trusted server that has archives, but fails when it is asked which, has not denied one.
#[test]
fn a_trusted_server_whose_list_fails() {
    let good = serve(&full_only(), Way::Ranges);
    let dir = temp_dir();
    let trusted = Server::start(|request, stream| {
        if request.path.ends_with(".tar.zst") {
            answer(stream, "404 Not Found", &[], b"")
        } else {
            answer(stream, "500 Internal Server Error", &[], b"")
        }
    });
    let to = dir.path().join("ledger");
    let said = run(&["bootstrap", &good.url(""), "--ledger", text(&to), "--trust", &trusted.url("")]);
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(said.stderr.contains("it cannot be asked") && !said.stderr.contains("does not have"), "{said:?}");
}

/// If the genesis is to be compared and no source has it, nothing is fetched.
#[test]
fn an_expected_genesis_that_no_source_has() {
    let good = serve(&full_only(), Way::Ranges);
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let hash = ["--expect-genesis-hash", "11111111111111111111111111111112"];
    let said = run(&[&["bootstrap", &good.url(""), "--ledger", text(&ledger)], &hash[..]].concat());
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(said.stderr.contains("no source has a genesis") && said.stderr.contains("\"hint\":"), "{said:?}");
    assert!(!good.requests().iter().any(is_fetch), "{said:?}");
}

/// Archives are restored only if they have the expected roots.
#[test]
fn roots_that_are_not_those_expected() {
    let files = archives(&[]);
    let server = serve(&files, Way::Ranges);
    let dir = temp_dir();
    let root_of = |prefix: &str| {
        let (name, bytes) = files.iter().find(|(name, _)| name.starts_with(prefix)).expect("an archive");
        std::fs::write(dir.path().join(name), bytes).expect("written");
        run(&["inspect", text(&dir.path().join(name))]).line("inspect")["root"].as_str().expect("a root").to_string()
    };
    let full = root_of("snapshot-");
    let incremental = root_of("incremental-");
    let bootstrap = |name: &str, roots: &str| {
        let ledger = dir.path().join(name);
        run(&["bootstrap", &server.url(""), "--ledger", text(&ledger), "--expect-root", roots])
    };
    let of_incremental = "no source has an incremental archive of root ";
    for (name, roots, code, words) in [
        ("one", incremental.clone(), 3, "not the archive that was asked for"),
        ("two", format!("{full},{full}"), 4, of_incremental),
    ] {
        let said = bootstrap(name, &roots);
        assert_eq!(said.code, Some(code), "{said:?}");
        assert!(said.stderr.contains(words), "{said:?}");
        assert!(!dir.path().join(name).join("snapshots").exists(), "{said:?}");
    }
    for (name, roots) in [("three", full.clone()), ("four", format!("{full},{incremental}"))] {
        let said = bootstrap(name, &roots);
        assert_eq!(said.code, Some(0), "{said:?}");
    }
}

/// The same from a server that does not say how long its archive is.
#[test]
fn a_root_of_an_archive_without_a_length() {
    let [right, other] = ["1", "9"].map(|level| archives(&["--zstd-level", level]));
    let (full, bytes) = right.iter().find(|(name, _)| name.starts_with("snapshot-")).expect("an archive");
    let dir = temp_dir();
    std::fs::write(dir.path().join(full), bytes).expect("written");
    let inspected = run(&["inspect", text(&dir.path().join(full))]);
    let root = inspected.line("inspect")["root"].as_str().expect("a root");
    let ledger = dir.path().join("ledger");
    for (files, code) in [(other, 3), (right.clone(), 0)] {
        let server = Server::start(move |request, stream| {
            let Some(bytes) = files.get(request.path.trim_start_matches('/')) else {
                return respond(&files, Way::Whole, request, stream);
            };
            head(stream, "200 OK", &[("Connection", "close")])?;
            if request.method != "HEAD" {
                stream.write_all(bytes)?;
            }
            Ok(Then::Close)
        });
        let url = server.url("");
        let said = run(&["bootstrap", &url, "--ledger", text(&ledger), "--no-incremental", "--expect-root", root]);
        assert_eq!(said.code, Some(code), "{said:?}");
        assert_eq!((ledger.join("snapshots").exists(), ledger.join(full).exists()), (code == 0, code == 0), "{said:?}");
    }
}
