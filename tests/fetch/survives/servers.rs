//! Servers that stall, and files that change.

use std::fs;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use slotpress_base::{KeptDir, NoProgress};
use slotpress_net::{Client, ClientOptions, Download, FetchLimits, PartialFile, parse_url};
use slotpress_read::Publishable;

use crate::common::http::{Server, send_file, send_head, stall};
use crate::common::site::*;
use crate::common::*;

/// Three transfers stall after some bytes. The read timeout ends them, and their bytes are kept.
#[test]
fn bytes_before_a_stall_are_kept() {
    let (name, bytes) = full(&larger_archive());
    let served = bytes.clone();
    let length = bytes.len();
    let stalls = AtomicUsize::new(3);
    let server = Server::start(move |request, stream| {
        let Some(range) = request.range().filter(|range| range.end - range.start > 100_000) else {
            return send_file(request, stream, &served, &etag(&served));
        };
        if stalls.fetch_update(Relaxed, Relaxed, |count| count.checked_sub(1)).is_err() {
            return send_file(request, stream, &served, &etag(&served));
        }
        let end = range.end.min(served.len() as u64);
        let content_range = format!("bytes {}-{}/{}", range.start, end - 1, served.len());
        let content_length = (end - range.start).to_string();
        let headers =
            [("Content-Range", content_range.as_str()), ("Content-Length", &content_length), ("ETag", &etag(&served))];
        send_head(stream, "206 Partial Content", &headers)?;
        stream.write_all(&served[range.start as usize..range.start as usize + 70_000])?;
        stream.flush()?;
        stall(stream)
    });
    let options = ClientOptions::default().read_timeout(Duration::from_millis(300));
    let client = Client::new(&options).expect("a client");
    let url = parse_url(&server.url(&format!("/{name}"))).expect("a URL");
    let remote = client.head(&url, &NoProgress).expect("a head");
    let dir = temp_dir();
    let partial =
        Arc::new(PartialFile::open(&Arc::new(KeptDir::open(dir.path()).expect("opened")), &name).expect("a file"));
    let limits = FetchLimits::default().streams(3);
    let download = Download::begin(client, partial.clone(), vec![remote], limits, &NoProgress).expect("begins");
    let fetched = download.run(&NoProgress).expect("fetched");
    assert_eq!(fetched.file_bytes, length as u64);
    let path = partial.publish(&name).expect("published");
    assert!(fs::read(path).expect("read") == bytes);
    let sent_bytes: u64 = fetched.servers.iter().map(|server| server.bytes).sum();
    assert!(sent_bytes < length as u64 + 4 * 1024 * 1024, "{sent_bytes} of {length}");
}

/// During the fetch, the only server replaces the archive with a different one of the same name.
#[test]
fn an_archive_that_is_replaced_during_a_fetch_is_not_mixed() {
    let first = full(&archives(&["--zstd-level", "1"]));
    let second = full(&archives(&["--zstd-level", "9"]));
    assert_eq!(first.0, second.0);
    assert!(first.1 != second.1);
    let served = AtomicUsize::new(0);
    let old = first.1.clone();
    let new = second.1.clone();
    let server = Server::start(move |request, stream| {
        let is_new = request.method == "GET" && served.fetch_add(1, Relaxed) >= 2;
        let bytes = if is_new { &new } else { &old };
        send_file(request, stream, bytes, &etag(bytes))
    });
    let dir = temp_dir();
    let url = server.url(&format!("/{}", first.0));
    let output = run_to_json(&["fetch", &url, "-o", text(dir.path()), "--streams", "1"]);
    if output.code == Some(0) {
        // Everything had arrived before the change.
        assert!(fs::read(dir.path().join(&first.0)).expect("read") == first.1);
        return;
    }
    assert_eq!(output.code, Some(4), "{output:?}");
    assert!(!dir.path().join(&first.0).exists(), "{output:?}");
    // The next run fetches the new archive.
    let (name, bytes) = second;
    let served = bytes.clone();
    let server = Server::start(move |request, stream| send_file(request, stream, &served, &etag(&served)));
    let output = run_to_json(&["fetch", &server.url(&format!("/{name}")), "-o", text(dir.path())]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(fs::read(dir.path().join(&name)).expect("read") == bytes);
}
