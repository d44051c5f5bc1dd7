//! `inspect` and `verify` of a URL: what is fetched, and what they say.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use tempfile::TempDir;

use super::server::{Request, Server, Then, answer, file, redirect};
use crate::common::*;

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

/// Lines of JSON of a command, which must succeed.
fn lines(arguments: &[&str]) -> Vec<Value> {
    let output = slotpress().args(arguments).arg("--json").output().expect("runs");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// What both say of an archive, without where it is.
fn without_path(mut line: Value) -> Value {
    for key in ["path", "paths", "elapsed_seconds", "cpu_seconds"] {
        line.as_object_mut().expect("an object").remove(key);
    }
    line
}

fn fails(arguments: &[&str], code: i32, words: &[&str]) {
    let output = slotpress().args(arguments).output().expect("runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    for word in words {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(!said.contains("secret"), "{said}");
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

#[test]
fn a_server_that_fails_now_and_then() {
    let bytes = fs::read(fixture(FULL_3500)).expect("read");
    let count = AtomicUsize::new(0);
    let total = bytes.len();
    let server = Server::start(move |request, stream| match (request.range(), count.fetch_add(1, Ordering::Relaxed)) {
        (Some(_), number) if number % 4 == 1 => answer(stream, "503 Service Unavailable", &[("Retry-After", "0")], b""),
        (Some(range), number) if number % 4 == 2 => {
            let range = range.start as usize..(range.end as usize).min(bytes.len());
            let place = format!("bytes {}-{}/{total}", range.start, range.end - 1);
            let length = range.len().to_string();
            let fields = [("Content-Range", place.as_str()), ("Content-Length", &length), ("ETag", "\"a\"")];
            super::server::head(stream, "206 Partial Content", &fields)?;
            stream.write_all(&bytes[range.start..range.start + range.len() / 2])?;
            Ok(Then::Close)
        }
        _ => file(request, stream, &bytes, "\"a\""),
    });
    let said = lines(&["verify", &server.url(&format!("/{FULL_3500}"))]);
    assert_eq!(said[0]["ok"], true);
    // What had come before an early end was not fetched again.
    assert_eq!(said[1]["transferred_bytes"], total);
}

#[test]
fn what_cannot_be_read_says_why() {
    let bytes = fs::read(fixture(FULL_3500)).expect("read");
    let count = AtomicUsize::new(0);
    // More than is read at once from either end.
    let large = bytes.repeat((20 << 20) / bytes.len() + 1);
    let server = Server::start(move |request, stream| match request.path.split('?').next().unwrap_or_default() {
        "/whole.tar.zst" if request.method == "HEAD" => file(request, stream, &large, "\"a\""),
        "/whole.tar.zst" => answer(stream, "200 OK", &[("ETag", "\"a\"")], &large),
        "/old.tar.zst" => {
            super::server::head(stream, "200 OK", &[("Content-Length", &bytes.len().to_string())])?;
            Ok(Then::Keep)
        }
        "/changes.tar.zst" if count.fetch_add(1, Ordering::Relaxed) > 0 => file(request, stream, &bytes, "\"b\""),
        "/changes.tar.zst" => file(request, stream, &bytes, "\"a\""),
        "/page.tar.zst" => file(request, stream, b"<html>", "\"a\""),
        "/https" => redirect(stream, "http://10.1.2.3/x"),
        _ => answer(stream, "404 Not Found", &[], b""),
    });
    let url = |path: &str| format!("{}?token=secret", server.url(path)).replace("http://", "http://u:secret@");
    for command in ["inspect", "verify"] {
        for path in ["/whole.tar.zst", "/old.tar.zst"] {
            fails(&[command, &url(path)], 4, &["does not send ranges", "hint:", "slotpress fetch"]);
        }
        fails(&[command, &url("/gone.tar.zst")], 4, &["404 Not Found"]);
        fails(&[command, &url("/page.tar.zst")], 3, &["not a snapshot archive"]);
        fails(&[command, &url("/https")], 1, &["private address", "--allow-private"]);
        fails(&[command, "http://[::1/u:secret@"], 2, &["not a URL"]);
    }
    fails(&["verify", &url("/changes.tar.zst")], 4, &["the file on the server has changed", "start again"]);
    fails(&["inspect", "http://127.0.0.1:9/x", "--ca-file", "/no/such/file"], 1, &["/no/such/file"]);
    fails(&["inspect", "http://127.0.0.1:9/x", "--ca-file", "/etc/hostname"], 2, &["no certificates", "PEM"]);
    fails(&["inspect", "http://127.0.0.1:9/x", "--proxy", "u:secret@h"], 2, &["the proxy"]);
}
