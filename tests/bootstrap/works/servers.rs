//! Servers that behave like Agave, Firedancer and mirrors.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use crate::common::http::{Connection, Server, send_head, send_response};
use crate::common::site::*;
use crate::common::*;

/// Agave's RPC port redirects with 303, has no ranges and no ETag, and ends slow transfers. Firedancer's
/// port redirects with 302, and sends one response per connection.
#[test]
fn servers_of_both_clients_are_sources() {
    let files = Arc::new(agave_archives());
    for (status, is_firedancer) in [("303 See Other", false), ("302 Found", true)] {
        let served = files.clone();
        let cuts_left = AtomicUsize::new(2);
        let server = Server::start(move |request, stream| {
            let newest = |prefix: &str| served.keys().rev().find(|name| name.starts_with(prefix)).expect("one");
            let target = match request.path.as_str() {
                "/snapshot.tar.bz2" => newest("snapshot-"),
                "/incremental-snapshot.tar.bz2" => newest("incremental-"),
                _ => "",
            };
            if !target.is_empty() {
                return send_response(stream, status, &[("Location", &format!("/{target}"))], b"");
            }
            let Some(bytes) = served.get(request.path.trim_start_matches('/')) else {
                return send_response(stream, "404 Not Found", &[("Connection", "close")], b"")
                    .map(|_| Connection::Close);
            };
            let connection: &[(&str, &str)] = if is_firedancer { &[("Connection", "close")] } else { &[] };
            send_head(stream, "200 OK", &[connection, &[("Content-Length", &bytes.len().to_string())]].concat())?;
            if request.method == "HEAD" {
                return Ok(if is_firedancer { Connection::Close } else { Connection::KeepAlive });
            }
            // The server ends two transfers in the middle.
            if cuts_left.load(Relaxed) > 0 {
                cuts_left.fetch_sub(1, Relaxed);
                stream.write_all(&bytes[..bytes.len() / 2])?;
                return Ok(Connection::Close);
            }
            stream.write_all(bytes)?;
            Ok(if is_firedancer { Connection::Close } else { Connection::KeepAlive })
        });
        let dir = temp_dir();
        let ledger = dir.path().join("ledger");
        let output = run_to_json(&["bootstrap", &server.url(""), "--ledger", text(&ledger)]);
        assert_eq!(output.code, Some(0), "{status} {output:?}");
        assert!(!server.requests().iter().any(|request| request.path.contains('?')));
        let fetched = files_in(&ledger);
        assert!(files.iter().all(|(name, bytes)| fetched.get(name) == Some(bytes)), "{:?}", relative_paths(&ledger));
    }
}

/// The server holds back a piece until it sees restored storages. All bytes before that piece arrive,
/// whichever connections request them.
#[test]
fn storages_are_restored_before_the_last_byte() {
    let files = Arc::new(larger_archive());
    let held_back_offset = full(&files).1.len() as u64 * 2 / 3;
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let served = files.clone();
    let watched = ledger.clone();
    let has_storages = move || {
        let is_storage =
            |path: &String| path.contains("accounts") && path.rsplit('/').next().is_some_and(is_storage_name);
        watched.exists() && relative_paths(&watched).iter().filter(|path| is_storage(path)).count() >= 5
    };
    let server = Server::start(move |request, stream| {
        if request.range().is_some_and(|range| range.contains(&held_back_offset)) {
            wait_for("storages", &has_storages);
        }
        respond(&served, TransferMode::Ranges, request, stream)
    });
    let output = run_to_json(&["bootstrap", &server.url(""), "--ledger", text(&ledger), "--streams", "2"]);
    assert_eq!(output.code, Some(0), "nothing was restored before the last byte: {output:?}");
}

fn is_storage_name(name: &str) -> bool {
    name.split_once('.').is_some_and(|(slot, id)| [slot, id].iter().all(|part| part.parse::<u64>().is_ok()))
}
