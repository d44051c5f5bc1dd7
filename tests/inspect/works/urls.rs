//! `inspect` and `verify` of a URL: their requests and their output.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use tempfile::TempDir;

use crate::common::http::{Request, Server, send_file, send_redirect, send_response};
use crate::common::screen::run_to_text;
use crate::common::site::{self, TransferMode};
use crate::common::*;
use crate::inspect::*;

/// An archive with an index, of more than 12 MiB, and a server that has it.
struct ServedArchive {
    _dir: TempDir,
    path: PathBuf,
    length_bytes: u64,
    server: Server,
    /// URL of a redirect to the archive, with a user and a password.
    url: String,
}

impl ServedArchive {
    fn start() -> Self {
        let dir = temp_dir();
        let ledger = dir.path().join("ledger");
        let out = dir.path().join("out");
        slotpress().args(["synth", "--size", "48MiB", "-q"]).arg(&ledger).assert().success();
        fs::create_dir(&out).expect("made");
        let path = archive(&ledger, &out, &["--frame-size", "1MiB"]);
        let bytes = fs::read(&path).expect("read");
        let length_bytes = bytes.len() as u64;
        assert!(length_bytes > 12 << 20, "{length_bytes}: more than the tail");
        let name = name(&path);
        let server = Server::start(move |request, stream| match request.path.as_str() {
            "/snapshot.tar.bz2" => send_redirect(stream, &format!("/{name}")),
            _ => send_file(request, stream, &bytes, "\"a\""),
        });
        let url = server.url("/snapshot.tar.bz2").replace("http://", "http://user:secret@");
        Self { _dir: dir, path, length_bytes, server, url }
    }

    /// Runs a command on the file and on the URL. Checks that both have the same result, and returns the
    /// lines of the second run.
    fn assert_same_output(&self, command: &str, flags: &[&str]) -> Vec<Value> {
        let on_file = json_output(&[&[command, text(&self.path)], flags].concat());
        let on_url = json_output(&[&[command, &self.url], flags].concat());
        assert_eq!(without_path(on_url[0].clone()), without_path(on_file[0].clone()));
        on_url
    }
}

/// Returns a line of output without the archive's path, and without times.
fn without_path(mut line: Value) -> Value {
    for key in ["path", "paths", "elapsed_seconds", "cpu_seconds"] {
        line.as_object_mut().expect("an object").remove(key);
    }
    line
}

#[test]
fn inspect_reads_a_url_like_a_file_with_few_requests() {
    let served = ServedArchive::start();
    let output = served.assert_same_output("inspect", &[]);
    let transfer = &output[1];
    assert_eq!(transfer["type"], "transfer");
    let requests = transfer["requests"].as_u64().expect("a count");
    let transferred_bytes = transfer["transferred_bytes"].as_u64().expect("a count");
    let received = served.server.requests();
    let is_authorized =
        |request: &Request| request.headers.get("authorization").is_some_and(|text| text.starts_with("Basic "));
    assert!(received.iter().all(is_authorized), "a request has no user");
    assert!(requests <= 5, "{requests}");
    // A redirect takes two requests, which the report counts as one.
    assert_eq!(received.len() as u64, requests + 1);
    assert!(transferred_bytes < served.length_bytes * 3 / 4, "{transferred_bytes} of {}", served.length_bytes);
    assert!(!transfer["url"].as_str().expect("text").contains("secret"), "{transfer}");
}

/// Unneeded frames are not read, because each read would be a request.
#[test]
fn a_quick_check_of_a_url_needs_few_requests() {
    let served = ServedArchive::start();
    let output = served.assert_same_output("verify", &["--quick"]);
    assert!(output[0]["frames"].as_u64().is_some_and(|frames| frames > 30), "{}", output[0]);
    assert_eq!(output[0]["ok"], true);
    let requests = served.server.requests().len();
    assert!(requests <= 6, "{requests}");
}

#[test]
fn verify_transfers_each_byte_of_a_url_about_once() {
    let served = ServedArchive::start();
    let output = served.assert_same_output("verify", &[]);
    // A part of the tail is transferred again.
    let transferred_bytes = output[1]["transferred_bytes"].as_u64().expect("a count");
    assert!(transferred_bytes <= served.length_bytes * 11 / 10, "{transferred_bytes}");
}

#[test]
fn archives_without_an_index_are_verified_at_a_url() {
    for path in [fixture(FULL_26), fixture(FULL_3500)] {
        let bytes = fs::read(&path).expect("read");
        let server = Server::start(move |request, stream| send_file(request, stream, &bytes, "\"a\""));
        let url = server.url(&format!("/{}", name(&path)));
        let expected = without_path(json_output(&["verify", text(&path)]).remove(0));
        assert_eq!(without_path(json_output(&["verify", &url]).remove(0)), expected);
        // The file is not named like an archive, so nothing can be compared with its name.
        assert_eq!(json_output(&["inspect", &server.url("/other.tar.zst")])[0]["name_matches"], Value::Null);
    }
}

/// `verify` checks the archives of a server's list, and `inspect` those that a node would choose. If a server sends
/// no ranges, like Agave's RPC port, only a command that reads an archive once can read it, during the transfer.
#[test]
fn the_archives_of_a_server_are_verified_and_inspected() {
    let slotpress = served::ServeProcess::start(&[]);
    let agave = site::serve(&site::agave_archives(), TransferMode::Whole);
    let indexed = site::serve(&site::archives(&[]), TransferMode::Whole);
    for (url, has_ranges) in [(slotpress.url(""), true), (agave.url(""), false), (indexed.url(""), false)] {
        for flags in [&["--quick"][..], &["--check", "frames"], &[]] {
            let (code, stdout, stderr) = run_to_text(&[&["verify", &url], flags].concat());
            let is_read = has_ranges || !flags.is_empty();
            assert_eq!(code, if is_read { 0 } else { 4 }, "{flags:?}: {stdout}{stderr}");
            let line_start = if flags.is_empty() { "ok      http://" } else { "partial http://" };
            assert_eq!(stdout.matches(line_start).count(), if is_read { 2 } else { 0 }, "{flags:?}: {stdout}");
            if !is_read {
                assert!(stderr.contains("does not send ranges"), "{stderr}");
            }
        }
        let (code, stdout, stderr) = run_to_text(&["inspect", &url]);
        assert_eq!(code, 0, "{stderr}");
        for part in [FULL_26, INCREMENTAL_26_40, "transferred"] {
            assert!(stdout.contains(part), "{part}: {stdout}");
        }
        let (code, stdout, stderr) = run_to_text(&["inspect", &url, "--by-owner"]);
        assert_eq!(code, if has_ranges { 0 } else { 4 }, "{stdout}{stderr}");
    }
}

#[test]
fn the_user_of_a_url_is_sent_for_listed_archives_too() {
    let bytes = fs::read(fixture(FULL_26)).expect("read");
    let protected = Server::start(move |request, stream| {
        if !request.headers.contains_key("authorization") {
            return send_response(stream, "401 Unauthorized", &[], b"");
        }
        match request.path.as_str() {
            "/snapshots/" => send_response(stream, "200 OK", &[], format!("<a href=\"{FULL_26}\">").as_bytes()),
            path if path.ends_with(FULL_26) => send_file(request, stream, &bytes, "\"a\""),
            _ => send_response(stream, "404 Not Found", &[], b""),
        }
    });
    let url = protected.url("/snapshots/");
    assert_eq!(run_to_text(&["verify", &url]).0, 4);
    let (code, stdout, stderr) = run_to_text(&["verify", &url.replace("http://", "http://user:secret@")]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert!(stdout.starts_with("ok      http://127"), "{stdout}");
    assert!(!stdout.contains("secret"), "{stdout}");
}

#[test]
fn a_directory_and_a_server_are_inspected_like_a_file() {
    let agave = site::serve(&site::agave_archives(), TransferMode::Whole);
    let dir = served::two_archives();
    let expected = without_path(json_output(&["inspect", text(&fixture(FULL_26))]).remove(0));
    for place in [text(dir.path()), &agave.url(""), &agave.url("/snapshot.tar.bz2")] {
        assert_eq!(without_path(json_output(&["inspect", place]).remove(0)), expected, "{place}");
    }
}
