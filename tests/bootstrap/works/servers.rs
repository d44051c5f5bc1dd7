//! Servers that behave like clients and mirrors.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use crate::common::http::{Server, Then, answer, head};
use crate::common::site::*;
use crate::common::*;

/// Agave's RPC port: 303, no ranges, no ETag, a deadline for transfers. Firedancer's: 302, one
/// answer per connection.
#[test]
fn servers_of_both_clients_are_sources() {
    let files = Arc::new(agaves_archives());
    for (status, is_firedancer) in [("303 See Other", false), ("302 Found", true)] {
        let served = files.clone();
        let cut = AtomicUsize::new(2);
        let server = Server::start(move |request, stream| {
            let newest = |prefix: &str| served.keys().rev().find(|name| name.starts_with(prefix)).expect("one");
            let to = match request.path.as_str() {
                "/snapshot.tar.bz2" => newest("snapshot-"),
                "/incremental-snapshot.tar.bz2" => newest("incremental-"),
                _ => "",
            };
            if !to.is_empty() {
                return answer(stream, status, &[("Location", &format!("/{to}"))], b"");
            }
            let Some(bytes) = served.get(request.path.trim_start_matches('/')) else {
                return answer(stream, "404 Not Found", &[("Connection", "close")], b"").map(|_| Then::Close);
            };
            let closes: &[(&str, &str)] = if is_firedancer { &[("Connection", "close")] } else { &[] };
            head(stream, "200 OK", &[closes, &[("Content-Length", &bytes.len().to_string())]].concat())?;
            if request.method == "HEAD" {
                return Ok(if is_firedancer { Then::Close } else { Then::Keep });
            }
            // The deadline comes in the middle, twice.
            if cut.load(Relaxed) > 0 {
                cut.fetch_sub(1, Relaxed);
                stream.write_all(&bytes[..bytes.len() / 2])?;
                return Ok(Then::Close);
            }
            stream.write_all(bytes)?;
            Ok(if is_firedancer { Then::Close } else { Then::Keep })
        });
        let dir = temp_dir();
        let ledger = dir.path().join("ledger");
        let output = run(&["bootstrap", &server.url(""), "--ledger", text(&ledger)]);
        assert_eq!(output.code, Some(0), "{status} {output:?}");
        assert!(!server.requests().iter().any(|request| request.path.contains('?')));
        let fetched = files_in(&ledger);
        assert!(files.iter().all(|(name, bytes)| fetched.get(name) == Some(bytes)), "{:?}", names(&ledger));
    }
}

/// Arrived bytes are restored while the rest is on its way: the server holds back a piece until it
/// sees storages. All bytes before that piece arrive, in any order of connections.
#[test]
fn storages_are_restored_before_the_last_byte() {
    let files = Arc::new(larger_archive());
    let kept_back = full(&files).1.len() as u64 * 2 / 3;
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let served = files.clone();
    let watched = ledger.clone();
    let storages = move || {
        let is_storage =
            |path: &String| path.contains("accounts") && path.rsplit('/').next().is_some_and(is_storage_name);
        watched.exists() && names(&watched).iter().filter(|path| is_storage(path)).count() >= 5
    };
    let server = Server::start(move |request, stream| {
        if request.range().is_some_and(|range| range.contains(&kept_back)) {
            wait_for("storages", &storages);
        }
        respond(&served, Way::Ranges, request, stream)
    });
    let output = run(&["bootstrap", &server.url(""), "--ledger", text(&ledger), "--streams", "2"]);
    assert_eq!(output.code, Some(0), "nothing was restored before the end came: {output:?}");
}

fn is_storage_name(name: &str) -> bool {
    name.split_once('.').is_some_and(|(slot, id)| [slot, id].iter().all(|part| part.parse::<u64>().is_ok()))
}
