//! Sources and trusted servers that are wrong, fail or do not answer, for `fetch` and `bootstrap`.

use std::io::Write;
use std::sync::Arc;

use crate::common::http::{Connection, Request, Server, send_head, send_response};
use crate::common::site::*;
use crate::common::*;

fn is_archive_download(request: &Request) -> bool {
    request.method == "GET" && request.path.ends_with(".tar.zst")
}

#[test]
fn an_unreachable_trusted_server_is_not_said_to_lack_the_archive() {
    let good = serve(&full_archive_only(), TransferMode::Ranges);
    let dir = temp_dir();
    for command in [["fetch", "-o"], ["bootstrap", "--ledger"]] {
        let to = dir.path().join(command[0]);
        let output = run_to_json(&[command[0], &good.url(""), command[1], text(&to), "--trust", DEAD_URL]);
        assert_eq!(output.code, Some(4), "{output:?}");
        assert!(output.stderr.contains("it cannot be asked"), "{output:?}");
        assert!(output.stderr.contains(DEAD_URL), "{output:?}");
        assert!(!output.stderr.contains("does not have"), "{output:?}");
    }
}

/// The server sends a wrong byte and no ETag. It is not used again, as the message says.
#[test]
fn a_corrupting_server_is_dropped() {
    let files = full_archive_only();
    for (command, flag) in [("fetch", "-o"), ("bootstrap", "--ledger")] {
        let served = Arc::new(files.clone());
        let server = Server::start(move |request, stream| {
            let Some(bytes) = served.get(request.path.trim_start_matches('/')) else {
                return respond(&served, TransferMode::Ranges, request, stream);
            };
            let mut bytes = bytes.clone();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            let Some(range) = request.range() else {
                send_head(
                    stream,
                    "200 OK",
                    &[("Accept-Ranges", "bytes"), ("Content-Length", &bytes.len().to_string())],
                )?;
                if request.method != "HEAD" {
                    stream.write_all(&bytes)?;
                }
                return Ok(Connection::KeepAlive);
            };
            let place = format!("bytes {}-{}/{}", range.start, range.end - 1, bytes.len());
            let body = &bytes[range.start as usize..range.end as usize];
            send_response(stream, "206 Partial Content", &[("Content-Range", &place)], body)
        });
        let dir = temp_dir();
        let output = run_to_json(&[command, &server.url(""), flag, text(&dir.path().join("out"))]);
        assert_eq!(output.code, Some(3), "{output:?}");
        assert_eq!(output.stderr.matches("is no longer used").count(), 1, "{output:?}");
        assert!(output.stderr.contains("\"hint\":"), "{output:?}");
        let middle = files.values().next().expect("an archive").len() as u64 / 2;
        let asks_for_middle = |request: &&Request| {
            is_archive_download(request)
                && request.range().is_some_and(|range| range.contains(&middle) && range.end < 2 * middle)
        };
        let requests = server.requests().iter().filter(asks_for_middle).count();
        // There are two requests if the first one stalled for 2 seconds, and another connection took over.
        assert!((1..=2).contains(&requests), "{command} sent {requests} requests: {output:?}");
    }
}

#[test]
fn an_unreachable_source_leaves_no_ledger() {
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let output = run_to_json(&["bootstrap", DEAD_URL, "--ledger", text(&ledger)]);
    assert_eq!(output.code, Some(4), "{output:?}");
    assert!(!ledger.exists(), "{output:?}");
}

/// The server states a length for which no disk has space.
#[test]
fn an_archive_without_space_is_not_fetched() {
    let files = full_archive_only();
    let name = files.keys().next().expect("an archive").clone();
    let server = Server::start(move |request, stream| {
        if request.path == format!("/{name}") {
            send_head(stream, "200 OK", &[("Accept-Ranges", "bytes"), ("Content-Length", &(3u64 << 40).to_string())])
                .map(|()| Connection::Close)
        } else {
            respond(&files, TransferMode::Ranges, request, stream)
        }
    });
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let output = run_to_json(&["bootstrap", &server.url(""), "--ledger", text(&ledger)]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.stderr.contains("not enough space"), "{output:?}");
    assert!(!ledger.exists(), "{output:?}");
    assert!(!server.requests().iter().any(is_archive_download), "{output:?}");
}

#[test]
fn a_trusted_server_whose_list_fails_is_not_said_to_lack_the_archive() {
    let good = serve(&full_archive_only(), TransferMode::Ranges);
    let dir = temp_dir();
    let trusted = Server::start(|request, stream| {
        if request.path.ends_with(".tar.zst") {
            send_response(stream, "404 Not Found", &[], b"")
        } else {
            send_response(stream, "500 Internal Server Error", &[], b"")
        }
    });
    let to = dir.path().join("ledger");
    let output = run_to_json(&["bootstrap", &good.url(""), "--ledger", text(&to), "--trust", &trusted.url("")]);
    assert_eq!(output.code, Some(4), "{output:?}");
    assert!(output.stderr.contains("it cannot be asked"), "{output:?}");
    assert!(!output.stderr.contains("does not have"), "{output:?}");
}

#[test]
fn a_missing_expected_genesis_fails_before_the_fetch() {
    let good = serve(&full_archive_only(), TransferMode::Ranges);
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let hash = ["--expect-genesis-hash", "11111111111111111111111111111112"];
    let output = run_to_json(&[&["bootstrap", &good.url(""), "--ledger", text(&ledger)], &hash[..]].concat());
    assert_eq!(output.code, Some(4), "{output:?}");
    assert!(output.stderr.contains("no source has a genesis"), "{output:?}");
    assert!(output.stderr.contains("\"hint\":"), "{output:?}");
    assert!(!good.requests().iter().any(is_archive_download), "{output:?}");
}

#[test]
fn only_archives_with_the_expected_roots_are_restored() {
    let files = archives(&[]);
    let server = serve(&files, TransferMode::Ranges);
    let dir = temp_dir();
    let root_of = |prefix: &str| {
        let (name, bytes) = files.iter().find(|(name, _)| name.starts_with(prefix)).expect("an archive");
        std::fs::write(dir.path().join(name), bytes).expect("written");
        run_to_json(&["inspect", text(&dir.path().join(name))]).line("inspect")["root"]
            .as_str()
            .expect("a root")
            .to_string()
    };
    let full = root_of("snapshot-");
    let incremental = root_of("incremental-");
    let bootstrap = |name: &str, roots: &str| {
        let ledger = dir.path().join(name);
        run_to_json(&["bootstrap", &server.url(""), "--ledger", text(&ledger), "--expect-root", roots])
    };
    for (name, roots, code, message) in [
        ("one", incremental.clone(), 3, "not the archive that was asked for"),
        ("two", format!("{full},{full}"), 4, "no source has an incremental archive with root "),
    ] {
        let output = bootstrap(name, &roots);
        assert_eq!(output.code, Some(code), "{output:?}");
        assert!(output.stderr.contains(message), "{output:?}");
        assert!(!dir.path().join(name).join("snapshots").exists(), "{output:?}");
    }
    for (name, roots) in [("three", full.clone()), ("four", format!("{full},{incremental}"))] {
        let output = bootstrap(name, &roots);
        assert_eq!(output.code, Some(0), "{output:?}");
    }
}

/// The server does not state the length of its archive.
#[test]
fn the_expected_root_is_checked_if_the_length_is_unknown() {
    let [right, other] = ["1", "9"].map(|level| archives(&["--zstd-level", level]));
    let (full, bytes) = right.iter().find(|(name, _)| name.starts_with("snapshot-")).expect("an archive");
    let dir = temp_dir();
    std::fs::write(dir.path().join(full), bytes).expect("written");
    let inspected = run_to_json(&["inspect", text(&dir.path().join(full))]);
    let root = inspected.line("inspect")["root"].as_str().expect("a root");
    let ledger = dir.path().join("ledger");
    for (files, code) in [(other, 3), (right.clone(), 0)] {
        let server = Server::start(move |request, stream| {
            let Some(bytes) = files.get(request.path.trim_start_matches('/')) else {
                return respond(&files, TransferMode::Whole, request, stream);
            };
            send_head(stream, "200 OK", &[("Connection", "close")])?;
            if request.method != "HEAD" {
                stream.write_all(bytes)?;
            }
            Ok(Connection::Close)
        });
        let url = server.url("");
        let output =
            run_to_json(&["bootstrap", &url, "--ledger", text(&ledger), "--no-incremental", "--expect-root", root]);
        assert_eq!(output.code, Some(code), "{output:?}");
        assert_eq!(ledger.join("snapshots").exists(), code == 0, "{output:?}");
        assert_eq!(ledger.join(full).exists(), code == 0, "{output:?}");
    }
}
