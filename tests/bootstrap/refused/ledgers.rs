//! Ledgers that nobody vouches for, or that were not expected.

use crate::common::http::*;
use crate::common::site::*;
use crate::common::*;

/// Servers that vouch: one that has the archive, one that has another state at that slot, one that knows nothing.
#[test]
fn trusted_servers_vouch_or_refuse() {
    let files = archives(&[]);
    let (server, dir) = (serve(&files, Way::Ranges), temp_dir());
    let bootstrap = |trusted: &Server, ledger: &str| {
        let ledger = dir.path().join(ledger);
        run(&["bootstrap", &server.url(""), "--ledger", text(&ledger), "--trust", &trusted.url("")])
    };
    let said = bootstrap(&server, "vouched");
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(said.line("bootstrap")["vouched_by"].as_array().expect("a list").len(), 1);
    // The same slots with another hash.
    let other: Files = files
        .iter()
        .map(|(name, bytes)| (name.replace("5vEh", "5vEi").replace("D5jE", "D5jF"), bytes.clone()))
        .collect();
    let said = bootstrap(&serve(&other, Way::Ranges), "contradicted");
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(said.stderr.contains("the two sources contradict each other"), "{said:?}");
    let said = bootstrap(&serve(&Files::new(), Way::Ranges), "unknown");
    assert_eq!(said.code, Some(4), "{said:?}");
    for ledger in ["contradicted", "unknown"] {
        assert!(!dir.path().join(ledger).join("snapshots/40").exists());
    }
    // One that answers every path with a page has everything, and knows nothing.
    let page = "<html>nothing was found, but here is something to read</html>".as_bytes();
    let said = bootstrap(&Server::start(|_, stream| answer(stream, "200 OK", &[], page)), "page");
    assert_eq!(said.code, Some(4), "{said:?}");
    // One that neither redirects nor lists, and has the archives, knows them.
    let exact = files.clone();
    let exact = Server::start(move |request, stream| match request.path.contains(".tar.bz2") || request.path == "/" {
        true => answer(stream, "404 Not Found", &[], b""),
        false => respond(&exact, Way::Ranges, request, stream),
    });
    let said = bootstrap(&exact, "exact");
    assert_eq!(said.code, Some(0), "{said:?}");
    // A name that lies about the state inside is found out.
    let said = run(&["bootstrap", &serve(&other, Way::Ranges).url(""), "--ledger", text(&dir.path().join("lies"))]);
    assert_eq!(said.code, Some(3), "{said:?}");
    assert!(!dir.path().join("lies/snapshots/26").exists());
}

/// A state that no name promises is refused before a byte is fetched; one that is there is taken, though there is a newer.
#[test]
fn what_is_expected_is_compared_with_names_first() {
    let files = archives(&[]);
    let (server, dir) = (serve(&files, Way::Ranges), temp_dir());
    let ledger = dir.path().join("ledger");
    let is_fetch = |request: &Request| request.method == "GET" && request.path.ends_with(".tar.zst");
    let other_hash = "11111111111111111111111111111112";
    for flags in [["--expect-slot", "41"], ["--expect-hash", other_hash]] {
        let said = run(&[&["bootstrap", &server.url(""), "--ledger", text(&ledger)], &flags[..]].concat());
        assert_eq!(said.code, Some(3), "{said:?}");
        assert!(said.stderr.contains("no source has the state of"), "{said:?}");
    }
    assert!(!server.requests().iter().any(is_fetch), "nothing is fetched");
    let said = run(&["bootstrap", &server.url(""), "--ledger", text(&ledger), "--expect-slot", "26"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(said.line("restore")["slot"], 26);
}
