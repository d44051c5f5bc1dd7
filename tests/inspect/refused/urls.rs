//! URLs that `inspect` and `verify` cannot read.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::http::{Server, Then, answer, file, redirect};
use crate::common::*;

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
fn what_cannot_be_read_says_why() {
    let bytes = fs::read(fixture(FULL_3500)).expect("read");
    let count = AtomicUsize::new(0);
    // More than one read takes from either end.
    let large = bytes.repeat((20 << 20) / bytes.len() + 1);
    let server = Server::start(move |request, stream| match request.path.split('?').next().unwrap_or_default() {
        "/whole.tar.zst" if request.method == "HEAD" => file(request, stream, &large, "\"a\""),
        "/whole.tar.zst" => answer(stream, "200 OK", &[("ETag", "\"a\"")], &large),
        "/old.tar.zst" => {
            crate::common::http::head(stream, "200 OK", &[("Content-Length", &bytes.len().to_string())])?;
            Ok(Then::Keep)
        }
        "/changes.tar.zst" if count.fetch_add(1, Ordering::Relaxed) > 0 => file(request, stream, &bytes, "\"b\""),
        "/changes.tar.zst" => file(request, stream, &bytes, "\"a\""),
        "/page.tar.zst" => file(request, stream, b"<html>", "\"a\""),
        "/https.tar.zst" => redirect(stream, "http://10.1.2.3/x"),
        _ => answer(stream, "404 Not Found", &[], b""),
    });
    let url = |path: &str| format!("{}?token=secret", server.url(path)).replace("http://", "http://u:secret@");
    for command in ["inspect", "verify"] {
        fails(&[command, &url("/whole.tar.zst")], 4, &["does not send ranges", "hint:", "slotpress fetch"]);
        fails(&[command, &url("/gone.tar.zst")], 4, &["404 Not Found"]);
        fails(&[command, &url("/page.tar.zst")], 3, &["not a snapshot archive"]);
        fails(&[command, &url("/https.tar.zst")], 1, &["private address", "--allow-private"]);
        fails(&[command, "http://[::1/u:secret@"], 2, &["not a URL"]);
    }
    // A server without ranges sends the file only once.
    let again = ["does not send ranges", "parts of it are read twice", "hint:", "slotpress fetch"];
    fails(&["verify", &url("/old.tar.zst")], 4, &again);
    fails(&["inspect", &url("/old.tar.zst"), "--by-owner"], 4, &["parts of it are read twice"]);
    let onto = ["--onto", text(&fixture(FULL_26)), "-o", "."].map(String::from);
    let rebase = |new: &str, code, words: &[&str]| {
        fails(&[&["rebase", new], &onto.each_ref().map(String::as_str)[..]].concat(), code, words);
    };
    rebase(&url("/old.tar.zst"), 4, &["parts of it are read twice"]);
    let place = server.url("/");
    rebase(&place, 1, &["has no snapshot archive"]);
    fails(&["verify", &url("/changes.tar.zst")], 4, &["the file on the server has changed", "start again"]);
    fails(&["inspect", "http://127.0.0.1:9/x", "--ca-file", "/no/such/file"], 1, &["/no/such/file"]);
    fails(&["inspect", "http://127.0.0.1:9/x", "--ca-file", "/etc/hostname"], 2, &["no certificates", "PEM"]);
    fails(&["inspect", "http://127.0.0.1:9/x", "--proxy", "u:secret@h"], 2, &["the proxy"]);
}
