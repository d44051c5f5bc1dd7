//! Servers that send wrong answers, or lie.

use std::fs;
use std::io::Write;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use crate::common::http::*;
use crate::common::site::*;
use crate::common::*;

/// The second of two servers has a different archive of the same name.
#[test]
fn archives_of_the_same_name_are_not_mixed() {
    let first = archives(&["--zstd-level", "1"]);
    let second = archives(&["--zstd-level", "9"]);
    let (full, bytes) = first.iter().find(|(name, _)| name.starts_with("snapshot-")).expect("a full archive");
    assert_ne!(second[full], *bytes);
    let servers = [serve(&first, TransferMode::Ranges), serve(&second, TransferMode::Ranges)];
    let urls = servers.each_ref().map(|server| server.url(&format!("/{full}")));
    let dir = temp_dir();
    let output = run_to_json(&["fetch", &urls[0], &urls[1], "-o", text(dir.path()), "--streams", "4"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(fs::read(dir.path().join(full)).expect("fetched"), *bytes);
    // With the root of the first archive, the other one is refused.
    let root = output.line("fetch")["archives"][0]["root"].as_str().expect("a root").to_string();
    let dir = temp_dir();
    let output = run_to_json(&["fetch", &urls[1], "-o", text(dir.path()), "--expect-root", &root]);
    assert_eq!(output.code, Some(3), "{output:?}");
    assert!(output.stderr.contains(&root), "{output:?}");
}

/// An earlier run fetched bytes of a different archive.
#[test]
fn bytes_of_another_archive_are_not_kept() {
    let first = archives(&["--zstd-level", "1"]);
    let second = archives(&["--zstd-level", "9"]);
    let (full, bytes) = first.iter().find(|(name, _)| name.starts_with("snapshot-")).expect("a full archive");
    for (mode, kept_from) in [(TransferMode::Ranges, 0), (TransferMode::Whole, 0), (TransferMode::Whole, 5000)] {
        let dir = temp_dir();
        let partial = dir.path().join(format!("slotpress-fetch-{full}"));
        let other = &second[full][..second[full].len() / 2];
        fs::write(&partial, other).expect("written");
        let journal = serde_json::json!({
            "slotpress_fetch": 1, "length_bytes": null, "etag": null, "last_modified": null,
            "ranges": [[kept_from, other.len()]],
        });
        fs::write(dir.path().join(format!("slotpress-fetch-{full}.journal")), journal.to_string()).expect("written");
        let server = serve(&first, mode);
        let output = run_to_json(&["fetch", &server.url(&format!("/{full}")), "-o", text(dir.path())]);
        assert_eq!(output.code, Some(0), "{mode:?} {output:?}");
        assert_eq!(fs::read(dir.path().join(full)).expect("fetched"), *bytes, "{mode:?}");
        assert_eq!(relative_paths(dir.path()), std::slice::from_ref(full));
    }
}

/// One server states a length for which no disk has space, and another states the true length.
#[test]
fn an_overstated_length_does_not_end_the_run() {
    let (name, bytes) = full(&archives(&[]));
    let liar = Server::start(|_, stream| {
        let headers = [("Content-Length", "3298534883328"), ("Accept-Ranges", "bytes"), ("ETag", "\"a\"")];
        send_head(stream, "200 OK", &headers).map(|()| Connection::Close)
    });
    let served = bytes.clone();
    let honest = Server::start(move |request, stream| send_file(request, stream, &served, &etag(&served)));
    let dir = temp_dir();
    let urls = [&liar, &honest].map(|server| server.url(&format!("/{name}")));
    let output = run_to_json(&["fetch", &urls[0], &urls[1], "-o", text(dir.path())]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(fs::read(dir.path().join(&name)).expect("fetched") == bytes);
}

#[test]
fn archives_longer_than_the_limit_are_refused() {
    let files = archives(&[]);
    let full = files.keys().find(|name| name.starts_with("snapshot-")).expect("a full archive").clone();
    let dir = temp_dir();
    let frame_count = AtomicUsize::new(0);
    let endless = Server::start(move |request, stream| {
        send_head(stream, "200 OK", &[("Connection", "close")])?;
        // An archive may begin with skippable frames.
        let frame = [&[0x50, 0x2a, 0x4d, 0x18, 0xf8, 0xff, 0, 0][..], &[7; 65_528]].concat();
        while request.method != "HEAD" && frame_count.fetch_add(1, Relaxed) < 2_000 {
            stream.write_all(&frame)?;
        }
        Ok(Connection::Close)
    });
    let url = endless.url(&format!("/{full}"));
    let output = run_to_json(&["fetch", &url, "-o", text(dir.path()), "--max-bytes", "1MiB"]);
    assert!(matches!(output.code, Some(1 | 4)), "{output:?}");
    assert!(output.stderr.contains("--max-bytes"), "{output:?}");
    let kept_bytes: u64 = files_in(dir.path()).values().map(|bytes| bytes.len() as u64).sum();
    assert!(kept_bytes < 2 << 20, "{kept_bytes}");
    let good = serve(&files, TransferMode::Ranges);
    let output = run_to_json(&["fetch", &good.url(&format!("/{full}")), "-o", text(dir.path()), "--max-bytes", "1KiB"]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.stderr.contains("--max-bytes"), "{output:?}");
}

#[test]
fn a_redirect_to_an_invalid_name_is_refused() {
    let dir = temp_dir();
    let server = Server::start(move |_, stream| send_redirect(stream, "/..%2f..%2fetc%2fpasswd.tar.zst"));
    let output = run_to_json(&["fetch", &server.url("/x.tar.zst"), "-o", text(dir.path())]);
    assert!(output.code.is_some_and(|code| code != 0), "{output:?}");
    assert_eq!(relative_paths(dir.path()), Vec::<String>::new());
}

/// An archive that no trusted server has is not fetched.
#[test]
fn an_unconfirmed_archive_is_not_fetched() {
    let files = archives(&[]);
    let server = serve(&files, TransferMode::Ranges);
    let empty = serve(&Files::new(), TransferMode::Ranges);
    let dir = temp_dir();
    let is_fetch = |request: &Request| request.method == "GET" && request.path.ends_with(".tar.zst");
    let output = run_to_json(&["fetch", &server.url(""), "-o", text(dir.path()), "--trust", &empty.url("")]);
    assert_eq!(output.code, Some(4), "{output:?}");
    assert!(output.stderr.contains("no trusted server confirms incremental-snapshot-26-40-"), "{output:?}");
    assert!(!server.requests().iter().any(is_fetch));
    assert!(files_in(dir.path()).is_empty());
    let other = serve(&files, TransferMode::Ranges);
    let output = run_to_json(&["fetch", &server.url(""), "-o", text(dir.path()), "--trust", &other.url("")]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(files_in(dir.path()).len(), 2);
}

/// An incremental archive that appears during the fetch, and that no trusted server has yet, is
/// left out.
#[test]
fn an_unconfirmed_archive_that_appears_is_left_out() {
    let files = archives(&[]);
    let mut full_only = files.clone();
    full_only.retain(|name, _| name.starts_with("snapshot-"));
    let trusted = serve(&full_only, TransferMode::Ranges);
    for command in ["fetch", "bootstrap"] {
        let all_files = files.clone();
        let first_files = full_only.clone();
        let get_count = AtomicUsize::new(0);
        let server = Server::start(move |request, stream| {
            let is_get = request.method == "GET" && request.path.starts_with("/snapshot-");
            let gets = if is_get { get_count.fetch_add(1, Relaxed) + 1 } else { get_count.load(Relaxed) };
            respond(if gets > 0 { &all_files } else { &first_files }, TransferMode::Ranges, request, stream)
        });
        let dir = temp_dir();
        let output_flag = if command == "fetch" { "-o" } else { "--ledger" };
        let output =
            run_to_json(&[command, &server.url(""), output_flag, text(dir.path()), "--trust", &trusted.url("")]);
        assert_eq!(output.code, Some(0), "{output:?}");
        assert!(output.stderr.contains("has appeared in the meantime"), "{output:?}");
        let found = files_in(dir.path());
        assert!(full_only.keys().all(|name| found.contains_key(name)), "{:?}", relative_paths(dir.path()));
        assert!(!found.keys().any(|name| name.starts_with("incremental-")), "{:?}", relative_paths(dir.path()));
        let slot = if command == "fetch" {
            &output.line("fetch")["archives"][0]["slot"]
        } else {
            &output.line("restore")["slot"]
        };
        assert_eq!(slot, 26);
    }
}

#[test]
fn fetching_only_from_local_directories_is_a_usage_error() {
    let from = temp_dir();
    let to = temp_dir();
    let output = run_to_json(&["fetch", text(from.path()), "-o", text(to.path())]);
    assert_eq!(output.code, Some(2), "{output:?}");
    assert!(output.stderr.contains("`cp`"), "{output:?}");
}
