//! Ledgers that no trusted server confirms, or that were not expected.

use crate::common::http::*;
use crate::common::site::*;
use crate::common::*;

/// Trusted servers: one that has the archive, one that has another state of that slot, one that has
/// no archives.
#[test]
fn trusted_servers_vouch_or_refuse() {
    let files = archives(&[]);
    let server = serve(&files, Way::Ranges);
    let dir = temp_dir();
    let bootstrap = |trusted: &Server, ledger: &str| {
        let ledger = dir.path().join(ledger);
        run(&["bootstrap", &server.url(""), "--ledger", text(&ledger), "--trust", &trusted.url("")])
    };
    let output = bootstrap(&serve(&files, Way::Ranges), "vouched");
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(output.line("bootstrap")["vouched_by"].as_array().expect("a list").len(), 1);
    assert_eq!(output.line("bootstrap")["not_vouched_by"].as_array().expect("a list").len(), 0);
    // Whoever trusts the source takes its word, whoever sent the bytes.
    let output = bootstrap(&server, "itself");
    assert_eq!(output.code, Some(0), "{output:?}");
    // The same slots with another hash.
    let other: Files = files
        .iter()
        .map(|(name, bytes)| (name.replace("5vEh", "5vEi").replace("D5jE", "D5jF"), bytes.clone()))
        .collect();
    let output = bootstrap(&serve(&other, Way::Ranges), "contradicted");
    assert_eq!(output.code, Some(3), "{output:?}");
    assert!(output.stderr.contains("the two sources contradict each other"), "{output:?}");
    let output = bootstrap(&serve(&Files::new(), Way::Ranges), "unknown");
    assert_eq!(output.code, Some(4), "{output:?}");
    for ledger in ["contradicted", "unknown"] {
        assert!(!dir.path().join(ledger).join("snapshots/40").exists());
    }
    // A server that answers every path with a page does not confirm any archive.
    let page = "<html>nothing was found, but here is something to read</html>".as_bytes();
    let output = bootstrap(&Server::start(|_, stream| answer(stream, "200 OK", &[], page)), "page");
    assert_eq!(output.code, Some(4), "{output:?}");
    // A server that neither redirects nor lists confirms the archives that it has.
    let exact = files.clone();
    let exact = Server::start(move |request, stream| {
        if request.path.contains(".tar.bz2") || request.path == "/" {
            answer(stream, "404 Not Found", &[], b"")
        } else {
            respond(&exact, Way::Ranges, request, stream)
        }
    });
    let output = bootstrap(&exact, "exact");
    assert_eq!(output.code, Some(0), "{output:?}");
    // A name that does not match the state inside is found.
    let output = run(&["bootstrap", &serve(&other, Way::Ranges).url(""), "--ledger", text(&dir.path().join("lies"))]);
    assert_eq!(output.code, Some(3), "{output:?}");
    assert!(!dir.path().join("lies/snapshots/26").exists());
}

/// A given number of trusted servers must confirm. The report names those that do and those that do
/// not; one server counts once.
#[test]
fn the_quorum_must_confirm() {
    let files = archives(&[]);
    let [source, one, two, empty] = [&files, &files, &files, &Files::new()].map(|files| serve(files, Way::Ranges));
    for (command, flag) in [("fetch", "-o"), ("bootstrap", "--ledger")] {
        let run = |trusted: &[&str], quorum: &str| {
            let dir = temp_dir();
            let out = dir.path().join("out");
            let trust: Vec<&str> = trusted.iter().flat_map(|url| ["--trust", url]).collect();
            run(&[&[command, &source.url(""), flag, text(&out), "--quorum", quorum][..], &trust].concat())
        };
        let [one, two, empty] = [&one, &two, &empty].map(|server| server.url("/"));
        let output = run(&[&one, &empty, &two], "2");
        assert_eq!(output.code, Some(0), "{output:?}");
        let line = output.line(command);
        assert_eq!(line["vouched_by"], serde_json::json!([one, two]), "{output:?}");
        assert_eq!(line["not_vouched_by"][0]["server"], empty.as_str(), "{output:?}");
        assert!(line["not_vouched_by"][0]["reason"].as_str().is_some_and(|why| why.contains("does not have")));
        for trusted in [&[one.as_str(), &empty][..], &[&one, &one]] {
            let output = run(trusted, "2");
            assert_eq!(output.code, Some(4), "{output:?}");
            assert!(output.stderr.contains("fewer than 2 trusted servers confirm"), "{output:?}");
        }
        assert_eq!(run(&[&one], "2").code, Some(2));
        assert_eq!(run(&[], "1").code, Some(2));
    }
}

/// An expected state that no name has is refused before a byte is fetched. One that is there is
/// taken, even if a newer one exists.
#[test]
fn an_expected_state_is_compared_with_names_first() {
    let files = archives(&[]);
    let server = serve(&files, Way::Ranges);
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let is_fetch = |request: &Request| request.method == "GET" && request.path.ends_with(".tar.zst");
    let other_hash = "11111111111111111111111111111112";
    for flags in [["--expect-slot", "41"], ["--expect-hash", other_hash]] {
        let output = run(&[&["bootstrap", &server.url(""), "--ledger", text(&ledger)], &flags[..]].concat());
        assert_eq!(output.code, Some(3), "{output:?}");
        assert!(output.stderr.contains("no source has the state of"), "{output:?}");
    }
    assert!(!server.requests().iter().any(is_fetch), "nothing is fetched");
    let output = run(&["bootstrap", &server.url(""), "--ledger", text(&ledger), "--expect-slot", "26"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(output.line("restore")["slot"], 26);
}
