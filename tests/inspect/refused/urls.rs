//! URLs that `inspect` and `verify` cannot read.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::http::{Connection, Server, send_file, send_redirect, send_response};
use crate::common::{screen, *};

/// Checks that a command fails with these texts, and does not show the secrets of its URL.
fn assert_fails_without_secret(arguments: &[&str], code: i32, texts: &[&str]) {
    let stderr = screen::assert_fails(arguments, code, texts);
    assert!(!stderr.contains("secret"), "{stderr}");
}

/// Starts a server, each of whose files fails in a different way.
fn start_failing_server() -> Server {
    let bytes = fs::read(fixture(FULL_3500)).expect("read");
    let count = AtomicUsize::new(0);
    // This file is longer than what is read first, at its two ends.
    let large = bytes.repeat((20 << 20) / bytes.len() + 1);
    Server::start(move |request, stream| match request.path.split('?').next().unwrap_or_default() {
        "/ranges-only-announced.tar.zst" if request.method == "HEAD" => send_file(request, stream, &large, "\"a\""),
        "/ranges-only-announced.tar.zst" => send_response(stream, "200 OK", &[("ETag", "\"a\"")], &large),
        "/no-ranges.tar.zst" => {
            crate::common::http::send_head(stream, "200 OK", &[("Content-Length", &bytes.len().to_string())])?;
            Ok(Connection::KeepAlive)
        }
        "/replaced.tar.zst" if count.fetch_add(1, Ordering::Relaxed) > 0 => send_file(request, stream, &bytes, "\"b\""),
        "/replaced.tar.zst" => send_file(request, stream, &bytes, "\"a\""),
        "/page.tar.zst" => send_file(request, stream, b"<html>", "\"a\""),
        "/private-redirect.tar.zst" => send_redirect(stream, "http://10.1.2.3/x"),
        _ => send_response(stream, "404 Not Found", &[], b""),
    })
}

/// Returns the URL of a file, with a user and a token that must not be shown.
fn secret_url(server: &Server, path: &str) -> String {
    format!("{}?token=secret", server.url(path)).replace("http://", "http://u:secret@")
}

#[test]
fn errors_of_servers_say_why() {
    let server = start_failing_server();
    let url = |path: &str| secret_url(&server, path);
    for command in ["inspect", "verify"] {
        assert_fails_without_secret(
            &[command, &url("/ranges-only-announced.tar.zst")],
            4,
            &["does not send ranges", "hint:", "slotpress fetch"],
        );
        assert_fails_without_secret(&[command, &url("/gone.tar.zst")], 4, &["404 Not Found"]);
        assert_fails_without_secret(&[command, &url("/page.tar.zst")], 3, &["not a snapshot archive"]);
        assert_fails_without_secret(
            &[command, &url("/private-redirect.tar.zst")],
            1,
            &["private address", "--allow-private"],
        );
        assert_fails_without_secret(&[command, "http://[::1/u:secret@"], 2, &["not a URL"]);
    }
    assert_fails_without_secret(
        &["verify", &url("/replaced.tar.zst")],
        4,
        &["the file on the server has changed", "start again"],
    );
}

/// From a server without ranges, a file can be read only once.
#[test]
fn a_second_reading_needs_ranges() {
    let server = start_failing_server();
    let url = |path: &str| secret_url(&server, path);
    let texts = ["does not send ranges", "parts of it are read twice", "hint:", "slotpress fetch"];
    assert_fails_without_secret(&["verify", &url("/no-ranges.tar.zst")], 4, &texts);
    assert_fails_without_secret(
        &["inspect", &url("/no-ranges.tar.zst"), "--by-owner"],
        4,
        &["parts of it are read twice"],
    );
    let onto = ["--onto", text(&fixture(FULL_26)), "-o", "."].map(String::from);
    let assert_rebase_fails = |new: &str, code, texts: &[&str]| {
        assert_fails_without_secret(
            &[&["rebase", new], &onto.each_ref().map(String::as_str)[..]].concat(),
            code,
            texts,
        );
    };
    assert_rebase_fails(&url("/no-ranges.tar.zst"), 4, &["parts of it are read twice"]);
    assert_rebase_fails(&server.url("/"), 1, &["has no snapshot archive"]);
}

#[test]
fn invalid_connection_flags_are_errors() {
    assert_fails_without_secret(
        &["inspect", "http://127.0.0.1:9/x", "--ca-file", "/no/such/file"],
        1,
        &["/no/such/file"],
    );
    assert_fails_without_secret(
        &["inspect", "http://127.0.0.1:9/x", "--ca-file", "/etc/hostname"],
        2,
        &["is not a certificate file", "PEM"],
    );
    assert_fails_without_secret(&["inspect", "http://127.0.0.1:9/x", "--proxy", "u:secret@h"], 2, &["the proxy"]);
}
