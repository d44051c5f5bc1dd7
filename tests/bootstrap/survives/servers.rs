//! Servers that replace archives while they are being fetched.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use crate::common::http::{Connection, Server, send_head, send_redirect, send_response};
use crate::common::site::*;
use crate::common::*;

/// Starts a server that cuts off a transfer of its incremental archive halfway, and then replaces the
/// archive with a newer one. After `replacements`, the newest archive stays and is sent whole.
fn start_replacing_server(files: &Arc<Files>, mode: TransferMode, replacements: usize) -> Server {
    let served = files.clone();
    let replaced = AtomicUsize::new(0);
    let last = served.keys().find(|name| name.starts_with("incremental-")).expect("one").clone();
    Server::start(move |request, stream| {
        let now = replaced.load(Relaxed);
        // Earlier archives have lower slots than the last archive.
        let newest =
            if now < replacements { last.replace("-26-40-", &format!("-26-{}-", 30 + now % 10)) } else { last.clone() };
        match request.path.trim_start_matches('/') {
            "incremental-snapshot.tar.bz2" => send_redirect(stream, &format!("/{newest}")),
            path if path.starts_with("incremental-") && path != newest => {
                send_response(stream, "404 Not Found", &[], b"")
            }
            path if path.starts_with("incremental-") && now < replacements => {
                let bytes = &served[&last];
                if request.method == "HEAD" {
                    let renamed = Files::from([(newest.clone(), bytes.clone())]);
                    return respond(&renamed, mode, request, stream);
                }
                let range = request.range().filter(|_| mode == TransferMode::Ranges).unwrap_or(0..bytes.len() as u64);
                let start = range.start as usize;
                let end = (range.end as usize).min(bytes.len());
                let place = format!("bytes {start}-{}/{}", end - 1, bytes.len());
                let length = (end - start).to_string();
                let tag = etag(bytes);
                let fields = [("Content-Length", length.as_str()), ("ETag", &tag), ("Content-Range", &place)];
                match mode {
                    TransferMode::Ranges => send_head(stream, "206 Partial Content", &fields)?,
                    _ => send_head(stream, "200 OK", &fields[..1])?,
                }
                stream.write_all(&bytes[start..start + (end - start) / 2])?;
                replaced.compare_exchange(now, now + 1, Relaxed, Relaxed).ok();
                Ok(Connection::Close)
            }
            _ => respond(&served, mode, request, stream),
        }
    })
}

/// A source may make an incremental archive every minute, and end slow transfers. `bootstrap` fetches the
/// newest archive instead, or makes a ledger from the full archive alone and says why.
#[test]
fn replaced_incremental_archives_are_fetched_again() {
    for (mode, files) in [
        (TransferMode::Ranges, archives(&[])),
        (TransferMode::Whole, archives(&[])),
        (TransferMode::Whole, agave_archives()),
    ] {
        let files = Arc::new(files);
        for (replacements, slot) in [(3, 40), (usize::MAX, 26)] {
            let server = start_replacing_server(&files, mode, replacements);
            let dir = temp_dir();
            let ledger = dir.path().join("ledger");
            let output = run_to_json(&["bootstrap", &server.url(""), "--ledger", text(&ledger)]);
            assert_eq!(output.code, Some(0), "{mode:?}, {replacements}: {output:?}");
            assert_eq!(output.line("restore")["slot"], slot, "{output:?}");
            assert!(ledger.join(format!("snapshots/{slot}/fastboot_version")).is_file());
            let is_full_alone = output.stderr.contains("no incremental archive could be fetched");
            assert_eq!(is_full_alone, slot == 26, "{}", output.stderr);
            let mut partials = relative_paths(&ledger);
            partials.retain(|name| name.contains("slotpress-fetch"));
            assert_eq!(partials, [""; 0]);
        }
    }
}
