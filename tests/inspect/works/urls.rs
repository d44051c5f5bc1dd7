//! `inspect` and `verify` of a URL: their requests and their output.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use tempfile::TempDir;

use crate::common::http::{Request, Server, answer, file, redirect};
use crate::common::screen::run;
use crate::common::site::{self, Way};
use crate::common::*;
use crate::inspect::*;

/// Makes an archive of some MiB with an index; returns it and its bytes.
fn indexed_archive() -> (TempDir, PathBuf, Vec<u8>) {
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let out = dir.path().join("out");
    let made = slotpress().args(["synth", "--size", "48MiB", "-q"]).arg(&ledger).output().expect("runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    fs::create_dir(&out).expect("made");
    let path = archive(&ledger, &out, &["--frame-size", "1MiB"]);
    let bytes = fs::read(&path).expect("read");
    (dir, path, bytes)
}

/// Returns the output of a command without the archive's path.
fn without_path(mut line: Value) -> Value {
    for key in ["path", "paths", "elapsed_seconds", "cpu_seconds"] {
        line.as_object_mut().expect("an object").remove(key);
    }
    line
}

#[test]
fn a_url_gives_the_output_of_a_file_with_few_requests() {
    let (_dir, path, bytes) = indexed_archive();
    let total = bytes.len() as u64;
    assert!(total > 12 << 20, "{total}: more than the tail");
    let name = name(&path);
    let server = Server::start(move |request, stream| match request.path.as_str() {
        "/snapshot.tar.bz2" => redirect(stream, &format!("/{name}")),
        _ => file(request, stream, &bytes, "\"a\""),
    });
    let url = server.url("/snapshot.tar.bz2").replace("http://", "http://user:secret@");
    let expected = without_path(json_output(&["inspect", text(&path)]).remove(0));
    let mut output = json_output(&["inspect", &url]);
    assert_eq!(without_path(output.remove(0)), expected);
    let transfer = output.remove(0);
    assert_eq!(transfer["type"], "transfer");
    let requests = transfer["requests"].as_u64().expect("a count");
    let transferred = transfer["transferred_bytes"].as_u64().expect("a count");
    let received = server.requests();
    let is_authorized =
        |request: &Request| request.headers.get("authorization").is_some_and(|text| text.starts_with("Basic "));
    assert!(received.iter().all(is_authorized), "user and password stay with their server");
    assert!(requests <= 5, "{requests}");
    // The redirect takes two requests, and counts as one.
    assert_eq!(received.len() as u64, requests + 1);
    assert!(transferred < total * 3 / 4, "{transferred} of {total}");
    assert!(!transfer["url"].as_str().expect("text").contains("secret"), "{transfer}");

    // Frames that are not needed would take requests, and are not read.
    let before = server.requests().len();
    let expected = without_path(json_output(&["verify", text(&path), "--quick"]).remove(0));
    let output = json_output(&["verify", &url, "--quick"]);
    assert!(expected["frames"].as_u64().is_some_and(|frames| frames > 30), "{expected}");
    assert_eq!(without_path(output[0].clone()), expected);
    assert_eq!(output[0]["ok"], true);
    assert!(server.requests().len() - before <= 6, "{}", server.requests().len() - before);

    let expected = without_path(json_output(&["verify", text(&path)]).remove(0));
    let output = json_output(&["verify", &url]);
    assert_eq!(without_path(output[0].clone()), expected);
    // Every byte is transferred about once, and the end again.
    assert!(output[1]["transferred_bytes"].as_u64().expect("a count") < total + (20 << 20), "{}", output[1]);
}

#[test]
fn archives_without_an_index_are_verified_at_a_url() {
    for path in [fixture(FULL_26), fixture(FULL_3500)] {
        let bytes = fs::read(&path).expect("read");
        let server = Server::start(move |request, stream| file(request, stream, &bytes, "\"a\""));
        let url = server.url(&format!("/{}", name(&path)));
        let expected = without_path(json_output(&["verify", text(&path)]).remove(0));
        assert_eq!(without_path(json_output(&["verify", &url]).remove(0)), expected);
        // The file is not named like an archive, so nothing can be compared with its name.
        assert_eq!(json_output(&["inspect", &server.url("/other.tar.zst")])[0]["name_matches"], Value::Null);
    }
}

/// `verify` checks the archives of a server's list, and `inspect` those that a node would choose.
/// Agave's RPC port sends no ranges, so a command that reads once reads during the transfer.
#[test]
fn the_archives_of_a_server_are_verified_and_inspected() {
    let slotpress = served::Server::start(&[]);
    let agave = site::serve(&site::agaves_archives(), Way::Whole);
    let indexed = site::serve(&site::archives(&[]), Way::Whole);
    for (url, has_ranges) in [(slotpress.url(""), true), (agave.url(""), false), (indexed.url(""), false)] {
        for flags in [&["--quick"][..], &["--check", "frames"], &[]] {
            let (code, stdout, stderr) = run(&[&["verify", &url], flags].concat());
            let is_read = has_ranges || !flags.is_empty();
            assert_eq!(code, if is_read { 0 } else { 4 }, "{flags:?}: {stdout}{stderr}");
            let line_start = if flags.is_empty() { "ok      http://" } else { "partly  http://" };
            assert_eq!(stdout.matches(line_start).count(), if is_read { 2 } else { 0 }, "{flags:?}: {stdout}");
            if !is_read {
                assert!(stderr.contains("does not send ranges"), "{stderr}");
            }
        }
        let (code, stdout, stderr) = run(&["inspect", &url]);
        assert_eq!(code, 0, "{stderr}");
        for part in [FULL_26, INCREMENTAL_26_40, "transferred"] {
            assert!(stdout.contains(part), "{part}: {stdout}");
        }
        let (code, stdout, stderr) = run(&["inspect", &url, "--by-owner"]);
        assert_eq!(code, if has_ranges { 0 } else { 4 }, "{stdout}{stderr}");
    }
}

#[test]
fn a_server_that_requires_a_user_gets_it_for_listed_archives_too() {
    let bytes = fs::read(fixture(FULL_26)).expect("read");
    let closed = Server::start(move |request, stream| match request.path.as_str() {
        _ if !request.headers.contains_key("authorization") => answer(stream, "401 Unauthorized", &[], b""),
        "/snapshots/" => answer(stream, "200 OK", &[], format!("<a href=\"{FULL_26}\">").as_bytes()),
        path if path.ends_with(FULL_26) => file(request, stream, &bytes, "\"a\""),
        _ => answer(stream, "404 Not Found", &[], b""),
    });
    let url = closed.url("/snapshots/");
    assert_eq!(run(&["verify", &url]).0, 4);
    let (code, stdout, stderr) = run(&["verify", &url.replace("http://", "http://user:secret@")]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert!(stdout.starts_with("ok      http://127"), "{stdout}");
    assert!(!stdout.contains("secret"), "{stdout}");
}

#[test]
fn a_directory_and_a_server_give_the_output_of_a_file() {
    let agave = site::serve(&site::agaves_archives(), Way::Whole);
    let dir = served::two_archives();
    let expected = without_path(json_output(&["inspect", text(&fixture(FULL_26))]).remove(0));
    for place in [text(dir.path()), &agave.url(""), &agave.url("/snapshot.tar.bz2")] {
        assert_eq!(without_path(json_output(&["inspect", place]).remove(0)), expected, "{place}");
    }
}
