//! Servers that stall.

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
    // If no bytes before the stalls were kept, 210,000 more bytes would be sent.
    assert!(sent_bytes < length as u64 + 100_000, "{sent_bytes} of {length}");
}
