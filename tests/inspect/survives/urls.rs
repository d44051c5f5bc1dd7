//! Servers that fail now and then while `inspect` and `verify` read.

use std::fs;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::http::{Connection, Server, send_file, send_response};
use crate::common::{screen, *};
use crate::inspect::*;

#[test]
fn a_server_may_fail_now_and_then() {
    let bytes = fs::read(fixture(FULL_3500)).expect("read");
    let count = AtomicUsize::new(0);
    let total = bytes.len();
    let server = Server::start(move |request, stream| match (request.range(), count.fetch_add(1, Ordering::Relaxed)) {
        (Some(_), number) if number % 4 == 1 => {
            send_response(stream, "503 Service Unavailable", &[("Retry-After", "0")], b"")
        }
        (Some(range), number) if number % 4 == 2 => {
            let range = range.start as usize..(range.end as usize).min(bytes.len());
            let place = format!("bytes {}-{}/{total}", range.start, range.end - 1);
            let length = range.len().to_string();
            let fields = [("Content-Range", place.as_str()), ("Content-Length", &length), ("ETag", "\"a\"")];
            crate::common::http::send_head(stream, "206 Partial Content", &fields)?;
            stream.write_all(&bytes[range.start..range.start + range.len() / 2])?;
            Ok(Connection::Close)
        }
        _ => send_file(request, stream, &bytes, "\"a\""),
    });
    let output = json_output(&["verify", &server.url(&format!("/{FULL_3500}"))]);
    assert_eq!(output[0]["ok"], true);
    // Bytes that arrived before an early end are not fetched again.
    assert_eq!(output[1]["transferred_bytes"], total);
}

/// A server without ranges sends an archive only once. It may fail at first; an early end is an error.
#[test]
fn a_server_without_ranges_is_read_to_its_end() {
    let bytes = fs::read(fixture(FULL_3500)).expect("read");
    let length = bytes.len();
    let count = AtomicUsize::new(0);
    let server = Server::start(move |request, stream| {
        let stated = length.to_string();
        if request.method != "HEAD" && request.path.starts_with("/late/") && count.fetch_add(1, Ordering::Relaxed) < 2 {
            return send_response(stream, "503 Service Unavailable", &[("Retry-After", "0")], b"");
        }
        crate::common::http::send_head(stream, "200 OK", &[("Content-Length", &stated)])?;
        let is_truncated = request.path.starts_with("/cut/");
        if request.method != "HEAD" {
            stream.write_all(if is_truncated { &bytes[..length / 2] } else { &bytes })?;
        }
        Ok(if is_truncated && request.method != "HEAD" { Connection::Close } else { Connection::KeepAlive })
    });
    for (path, requests) in [("", 2), ("/late", 4)] {
        let output = json_output(&["verify", "--quick", &server.url(&format!("{path}/{FULL_3500}"))]);
        assert_eq!(output[0]["ok"], true, "{path}");
        assert_eq!(output[1]["transferred_bytes"], length, "{path}");
        assert_eq!(output[1]["requests"], requests, "{path}");
    }
    let cut = server.url(&format!("/cut/{FULL_3500}"));
    screen::assert_fails(&["verify", "--quick", &cut], 4, &["ended early"]);
}
