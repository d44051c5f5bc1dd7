//! Servers that fail now and then while `inspect` and `verify` read.

use std::fs;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::http::{Server, Then, answer, file};
use crate::common::*;
use crate::inspect::*;

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
            crate::common::http::head(stream, "206 Partial Content", &fields)?;
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
