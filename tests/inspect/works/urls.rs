//! `inspect` and `verify` of a URL: what is fetched, and what they say.

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
fn indexed() -> (TempDir, PathBuf, Vec<u8>) {
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
fn a_url_says_what_a_file_says_in_few_requests() {
    let (_dir, path, bytes) = indexed();
    let total = bytes.len() as u64;
    assert!(total > 12 << 20, "{total}: more than the tail");
    let name = name(&path);
    let server = Server::start(move |request, stream| match request.path.as_str() {
        "/snapshot.tar.bz2" => redirect(stream, &format!("/{name}")),
        _ => file(request, stream, &bytes, "\"a\""),
    });
    let url = server.url("/snapshot.tar.bz2").replace("http://", "http://user:secret@");
    let own = without_path(lines(&["inspect", text(&path)]).remove(0));
    let mut said = lines(&["inspect", &url]);
    assert_eq!(without_path(said.remove(0)), own);
    let transfer = said.remove(0);
    assert_eq!(transfer["type"], "transfer");
    let requests = transfer["requests"].as_u64().expect("a count");
    let got = transfer["transferred_bytes"].as_u64();
    let asked = server.requests();
    let is_authorized =
        |request: &Request| request.headers.get("authorization").is_some_and(|text| text.starts_with("Basic "));
    assert!(asked.iter().all(is_authorized), "user and password stay with their server");
    // The redirect takes two, and counts as one.
    assert!(requests <= 5 && asked.len() as u64 == requests + 1, "{requests}, {}", asked.len());
    assert!(got.is_some_and(|got| got < total * 3 / 4), "{got:?} of {total}");
    assert!(!transfer["url"].as_str().expect("text").contains("secret"), "{transfer}");

    // Frames that are not needed would take requests, and are not read.
    let before = server.requests().len();
    let own = without_path(lines(&["verify", text(&path), "--quick"]).remove(0));
    let said = lines(&["verify", &url, "--quick"]);
    assert!(own["frames"].as_u64().is_some_and(|frames| frames > 30), "{own}");
    assert_eq!(without_path(said[0].clone()), own);
    assert_eq!(said[0]["ok"], true);
    assert!(server.requests().len() - before <= 6, "{}", server.requests().len() - before);

    let own = without_path(lines(&["verify", text(&path)]).remove(0));
    let said = lines(&["verify", &url]);
    assert_eq!(without_path(said[0].clone()), own);
    // Every byte is transferred about once, and the end again.
    assert!(said[1]["transferred_bytes"].as_u64().expect("a count") < total + (20 << 20), "{}", said[1]);
}

#[test]
fn archives_without_an_index_and_of_other_compressions() {
    for path in [fixture(FULL_26), fixture(FULL_3500)] {
        let bytes = fs::read(&path).expect("read");
        let server = Server::start(move |request, stream| file(request, stream, &bytes, "\"a\""));
        let url = server.url(&format!("/{}", name(&path)));
        let own = without_path(lines(&["verify", text(&path)]).remove(0));
        assert_eq!(without_path(lines(&["verify", &url]).remove(0)), own);
        // Values of the name are unknown, because the file has another name.
        assert_eq!(lines(&["inspect", &server.url("/other.tar.zst")])[0]["name_matches"], Value::Null);
    }
}

/// The URL of a server: `verify` checks the archives of its list, `inspect` those that a node would
/// choose. Agave's RPC port sends no ranges, so a command that needs one read reads during the
/// transfer.
#[test]
fn a_server_is_a_source_like_any_other() {
    let slotpress = served::Server::start(&[]);
    let agave = site::serve(&site::agaves_archives(), Way::Whole);
    let indexed = site::serve(&site::archives(&[]), Way::Whole);
    for (url, has_ranges) in [(slotpress.url(""), true), (agave.url(""), false), (indexed.url(""), false)] {
        for flags in [&["--quick"][..], &["--check", "frames"], &[]] {
            let (code, said, errors) = run(&[&["verify", &url], flags].concat());
            let is_read = has_ranges || !flags.is_empty();
            assert_eq!(code, if is_read { 0 } else { 4 }, "{flags:?}: {said}{errors}");
            let word = if flags.is_empty() { "ok      http://" } else { "partly  http://" };
            assert_eq!(said.matches(word).count(), if is_read { 2 } else { 0 }, "{flags:?}: {said}");
            if !is_read {
                assert!(errors.contains("does not send ranges"), "{errors}");
            }
        }
        let (code, said, errors) = run(&["inspect", &url]);
        assert_eq!(code, 0, "{errors}");
        assert!(said.contains(FULL_26) && said.contains(INCREMENTAL_26_40) && said.contains("transferred"), "{said}");
        let (code, said, errors) = run(&["inspect", &url, "--by-owner"]);
        assert_eq!(code, if has_ranges { 0 } else { 4 }, "{said}{errors}");
    }
    // A server that requires a user also requires it for the listed archives.
    let bytes = fs::read(fixture(FULL_26)).expect("read");
    let closed = Server::start(move |request, stream| match request.path.as_str() {
        _ if !request.headers.contains_key("authorization") => answer(stream, "401 Unauthorized", &[], b""),
        "/snapshots/" => answer(stream, "200 OK", &[], format!("<a href=\"{FULL_26}\">").as_bytes()),
        path if path.ends_with(FULL_26) => file(request, stream, &bytes, "\"a\""),
        _ => answer(stream, "404 Not Found", &[], b""),
    });
    let url = closed.url("/snapshots/");
    assert_eq!(run(&["verify", &url]).0, 4);
    let (code, said, errors) = run(&["verify", &url.replace("http://", "http://user:secret@")]);
    assert!(code == 0 && said.starts_with("ok      http://127") && !said.contains("secret"), "{said}{errors}");
    // The output for a directory with these archives is the same except for paths.
    let dir = served::two_archives();
    let own = without_path(lines(&["inspect", text(&fixture(FULL_26))]).remove(0));
    for place in [text(dir.path()), &agave.url(""), &agave.url("/snapshot.tar.bz2")] {
        assert_eq!(without_path(lines(&["inspect", place]).remove(0)), own, "{place}");
    }
}
