//! `inspect` and `verify` of a URL: what is fetched, and what they say.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use tempfile::TempDir;

use crate::common::http::{Request, Server, file, redirect};
use crate::common::*;
use crate::inspect::*;

/// An archive with an index, some MiB large, and its bytes.
fn indexed() -> (TempDir, PathBuf, Vec<u8>) {
    let dir = temp_dir();
    let (ledger, out) = (dir.path().join("ledger"), dir.path().join("out"));
    let made = slotpress().args(["synth", "--size", "48MiB", "-q"]).arg(&ledger).output().expect("runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    fs::create_dir(&out).expect("made");
    let path = archive(&ledger, &out, &["--frame-size", "1MiB"]);
    let bytes = fs::read(&path).expect("read");
    (dir, path, bytes)
}

/// What both say of an archive, without where it is.
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
    let (requests, got) = (transfer["requests"].as_u64().expect("a count"), transfer["transferred_bytes"].as_u64());
    let asked = server.requests();
    let is_authorized =
        |request: &Request| request.headers.get("authorization").is_some_and(|text| text.starts_with("Basic "));
    assert!(asked.iter().all(is_authorized), "user and password stay with their server");
    // Two for the redirect, which counts as one.
    assert!(requests <= 5 && asked.len() as u64 == requests + 1, "{requests}, {}", asked.len());
    assert!(got.is_some_and(|got| got < total * 3 / 4), "{got:?} of {total}");
    assert!(!transfer["url"].as_str().expect("text").contains("secret"), "{transfer}");

    let before = server.requests().len();
    let own = without_path(lines(&["verify", text(&path), "--quick"]).remove(0));
    let said = lines(&["verify", &url, "--quick"]);
    assert_eq!(without_path(said[0].clone()), own);
    assert_eq!(said[0]["ok"], true);
    assert!(server.requests().len() - before < 40, "{}", server.requests().len() - before);

    let own = without_path(lines(&["verify", text(&path)]).remove(0));
    let said = lines(&["verify", &url]);
    assert_eq!(without_path(said[0].clone()), own);
    // Every byte at most about once, and the tail.
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
        // What the name says, of a file that has another one, is not known.
        assert_eq!(lines(&["inspect", &server.url("/other")])[0]["name_matches"], Value::Null);
    }
}
