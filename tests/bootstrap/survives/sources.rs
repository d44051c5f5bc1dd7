//! Sources that are dead or busy, alone and beside good ones, for `fetch` and `bootstrap`.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use crate::common::http::{Server, answer};
use crate::common::site::*;
use crate::common::*;

/// The run does not wait at its end for a source that has not answered before.
#[test]
fn a_source_that_never_answered_is_not_waited_for() {
    let good = serve(&full_only(), Way::Ranges);
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let output = run(&["bootstrap", DEAD, &good.url(""), "--ledger", text(&ledger)]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(output.line("restore")["slot"], 26);
    assert!(!output.stderr.contains("asked again"), "it is not waited for: {output:?}");
}

/// A source of any kind that is busy at first is asked again.
#[test]
fn a_busy_source_is_asked_again() {
    let files = full_only();
    let name = files.keys().next().expect("an archive").clone();
    for (command, flag, path) in [
        ("fetch", "-o", String::new()),
        ("fetch", "-o", "/archives/".to_string()),
        ("fetch", "-o", format!("/{name}")),
        ("bootstrap", "--ledger", String::new()),
    ] {
        let served = files.clone();
        let busy = AtomicUsize::new(4);
        let server = Server::start(move |request, stream| {
            if busy.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
                return answer(stream, "429 Too Many Requests", &[("Retry-After", "1")], b"");
            }
            let mut request = request.clone();
            if request.path == "/archives/" {
                let page = served.keys().cloned().collect::<Vec<_>>().join("\n");
                return answer(stream, "200 OK", &[], page.as_bytes());
            }
            request.path = request.path.replace("/archives/", "/");
            respond(&served, Way::Ranges, &request, stream)
        });
        let dir = temp_dir();
        let output = run(&[command, &server.url(&path), flag, text(&dir.path().join("out"))]);
        assert_eq!(output.code, Some(0), "{command} {path}: {output:?}");
    }
    // The run does not wait if another source has an archive.
    let busy = Server::start(|_, stream| answer(stream, "429 Too Many Requests", &[("Retry-After", "90")], b""));
    let good = serve(&files, Way::Ranges);
    let dir = temp_dir();
    let output = run(&["fetch", &busy.url(""), &good.url(""), "-o", text(dir.path())]);
    assert_eq!(output.code, Some(0), "{output:?}");
}

/// A source with an invented newer state: the run takes the state that trusted servers confirm.
#[test]
fn a_made_up_state_is_not_confirmed() {
    let files = full_only();
    let (name, bytes) = full(&files);
    let made_up = Files::from([(name.replace("-26-", "-99-"), bytes)]);
    let liar = serve(&made_up, Way::Ranges);
    let good = serve(&files, Way::Ranges);
    let trusted = serve(&files, Way::Ranges);
    for (command, flag) in [("bootstrap", "--ledger"), ("fetch", "-o")] {
        let dir = temp_dir();
        let out = dir.path().join("out");
        let output = run(&[command, &liar.url(""), &good.url(""), flag, text(&out), "--trust", &trusted.url("")]);
        assert_eq!(output.code, Some(0), "{output:?}");
        let report = output.line(command);
        assert_eq!(
            (&report["archives"][0]["slot"], &report["given_up"]["slot"]),
            (&26.into(), &99.into()),
            "{output:?}"
        );
        assert!(
            report["given_up"]["reason"].as_str().is_some_and(|why| why.contains("no trusted server")),
            "{output:?}"
        );
    }
}
