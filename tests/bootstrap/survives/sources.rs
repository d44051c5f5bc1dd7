//! Sources that are dead or busy, or that lie, alone and beside good sources.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use crate::common::http::{Server, send_response};
use crate::common::site::*;
use crate::common::*;

#[test]
fn a_source_that_never_answered_is_not_waited_for() {
    let good = serve(&full_archive_only(), TransferMode::Ranges);
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let output = run_to_json(&["bootstrap", DEAD_URL, &good.url(""), "--ledger", text(&ledger)]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(output.line("restore")["slot"], 26);
    assert!(!output.stderr.contains("asking again"), "the run waits for the dead source: {output:?}");
}

/// A source of any kind that is busy at first is asked again.
#[test]
fn a_busy_source_is_asked_again() {
    let files = full_archive_only();
    let name = files.keys().next().expect("an archive").clone();
    for (command, flag, path) in [
        ("fetch", "-o", String::new()),
        ("fetch", "-o", "/archives/".to_string()),
        ("fetch", "-o", format!("/{name}")),
        ("bootstrap", "--ledger", String::new()),
    ] {
        let served = files.clone();
        let busy_answers_left = AtomicUsize::new(4);
        let server = Server::start(move |request, stream| {
            if busy_answers_left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
                return send_response(stream, "429 Too Many Requests", &[("Retry-After", "1")], b"");
            }
            let mut request = request.clone();
            if request.path == "/archives/" {
                let page = served.keys().cloned().collect::<Vec<_>>().join("\n");
                return send_response(stream, "200 OK", &[], page.as_bytes());
            }
            request.path = request.path.replace("/archives/", "/");
            respond(&served, TransferMode::Ranges, &request, stream)
        });
        let dir = temp_dir();
        let output = run_to_json(&[command, &server.url(&path), flag, text(&dir.path().join("out"))]);
        assert_eq!(output.code, Some(0), "{command} {path}: {output:?}");
    }
}

#[test]
fn a_busy_source_is_not_waited_for_if_another_source_has_an_archive() {
    let busy = Server::start(|_, stream| send_response(stream, "429 Too Many Requests", &[("Retry-After", "90")], b""));
    let good = serve(&full_archive_only(), TransferMode::Ranges);
    let dir = temp_dir();
    let output = run_to_json(&["fetch", &busy.url(""), &good.url(""), "-o", text(dir.path())]);
    assert_eq!(output.code, Some(0), "{output:?}");
}

/// The run uses the state that the trusted server confirms.
#[test]
fn an_invented_newer_state_is_not_used() {
    let files = full_archive_only();
    let (name, bytes) = full(&files);
    let invented = Files::from([(name.replace("-26-", "-99-"), bytes)]);
    let liar = serve(&invented, TransferMode::Ranges);
    let good = serve(&files, TransferMode::Ranges);
    let trusted = serve(&files, TransferMode::Ranges);
    for (command, flag) in [("bootstrap", "--ledger"), ("fetch", "-o")] {
        let dir = temp_dir();
        let out = dir.path().join("out");
        let output =
            run_to_json(&[command, &liar.url(""), &good.url(""), flag, text(&out), "--trust", &trusted.url("")]);
        assert_eq!(output.code, Some(0), "{output:?}");
        let report = output.line(command);
        assert_eq!(report["archives"][0]["slot"], 26, "{output:?}");
        assert_eq!(report["abandoned"]["slot"], 99, "{output:?}");
        let reason = report["abandoned"]["reason"].as_str().expect("a reason");
        assert!(reason.contains("no trusted server"), "{output:?}");
    }
}
