//! States that trusted servers confirm or do not confirm, and states that were not expected.

use tempfile::TempDir;

use crate::common::http::*;
use crate::common::site::*;
use crate::common::*;

/// Bootstraps from a source, with one trusted server. Returns the output, and the directory that contains
/// `ledger`.
fn bootstrap_trusting(trusted: &Server, source: &Server) -> (JsonOutput, TempDir) {
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let output = run_to_json(&["bootstrap", &source.url(""), "--ledger", text(&ledger), "--trust", &trusted.url("")]);
    (output, dir)
}

/// Renames files as if they had other states of the same slots.
fn change_hashes(files: &Files) -> Files {
    let rename = |name: &str| name.replace("5vEh", "5vEi").replace("D5jE", "D5jF");
    files.iter().map(|(name, bytes)| (rename(name), bytes.clone())).collect()
}

#[test]
fn a_trusted_server_with_the_archive_confirms_it() {
    let files = archives(&[]);
    let source = serve(&files, TransferMode::Ranges);
    let (output, _dir) = bootstrap_trusting(&serve(&files, TransferMode::Ranges), &source);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(output.line("bootstrap")["confirmed_by"].as_array().expect("a list").len(), 1);
    assert_eq!(output.line("bootstrap")["not_confirmed_by"].as_array().expect("a list").len(), 0);
    // A trusted source confirms its own archive.
    let (output, _dir) = bootstrap_trusting(&source, &source);
    assert_eq!(output.code, Some(0), "{output:?}");
}

#[test]
fn a_trusted_server_with_another_state_ends_the_run() {
    let files = archives(&[]);
    let trusted = serve(&change_hashes(&files), TransferMode::Ranges);
    let (output, dir) = bootstrap_trusting(&trusted, &serve(&files, TransferMode::Ranges));
    assert_eq!(output.code, Some(3), "{output:?}");
    assert!(output.stderr.contains("the two sources contradict each other"), "{output:?}");
    assert!(!dir.path().join("ledger/snapshots/40").exists());
}

#[test]
fn a_trusted_server_without_archives_confirms_nothing() {
    let source = serve(&archives(&[]), TransferMode::Ranges);
    let (output, dir) = bootstrap_trusting(&serve(&Files::new(), TransferMode::Ranges), &source);
    assert_eq!(output.code, Some(4), "{output:?}");
    assert!(!dir.path().join("ledger/snapshots/40").exists());
}

/// A server that answers every path with a page does not confirm any archive.
#[test]
fn a_trusted_server_with_a_page_for_every_path_confirms_nothing() {
    let source = serve(&archives(&[]), TransferMode::Ranges);
    let page = "<html>nothing was found, but here is something to read</html>".as_bytes();
    let trusted = Server::start(|_, stream| send_response(stream, "200 OK", &[], page));
    let (output, _dir) = bootstrap_trusting(&trusted, &source);
    assert_eq!(output.code, Some(4), "{output:?}");
}

#[test]
fn a_trusted_server_without_redirects_and_lists_confirms_its_archives() {
    let files = archives(&[]);
    let source = serve(&files, TransferMode::Ranges);
    let trusted = Server::start(move |request, stream| {
        if request.path.contains(".tar.bz2") || request.path == "/" {
            send_response(stream, "404 Not Found", &[], b"")
        } else {
            respond(&files, TransferMode::Ranges, request, stream)
        }
    });
    let (output, _dir) = bootstrap_trusting(&trusted, &source);
    assert_eq!(output.code, Some(0), "{output:?}");
}

#[test]
fn an_archive_with_another_hash_in_its_name_is_refused() {
    let source = serve(&change_hashes(&archives(&[])), TransferMode::Ranges);
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let output = run_to_json(&["bootstrap", &source.url(""), "--ledger", text(&ledger)]);
    assert_eq!(output.code, Some(3), "{output:?}");
    assert!(!ledger.join("snapshots/26").exists());
}

/// The report names the servers that confirm the state, and those that do not. Each server counts once.
#[test]
fn a_quorum_of_trusted_servers_must_confirm() {
    let files = archives(&[]);
    let [source, first, second] = [0; 3].map(|_| serve(&files, TransferMode::Ranges));
    let empty = serve(&Files::new(), TransferMode::Ranges);
    for (command, flag) in [("fetch", "-o"), ("bootstrap", "--ledger")] {
        let run_with_quorum = |trusted: &[&str], quorum: &str| {
            let dir = temp_dir();
            let out = dir.path().join("out");
            let trust: Vec<&str> = trusted.iter().flat_map(|url| ["--trust", url]).collect();
            run_to_json(&[&[command, &source.url(""), flag, text(&out), "--quorum", quorum][..], &trust].concat())
        };
        let [first, second, empty] = [&first, &second, &empty].map(|server| server.url("/"));
        let output = run_with_quorum(&[&first, &empty, &second], "2");
        assert_eq!(output.code, Some(0), "{output:?}");
        let line = output.line(command);
        assert_eq!(line["confirmed_by"], serde_json::json!([first, second]), "{output:?}");
        assert_eq!(line["not_confirmed_by"][0]["server"], empty.as_str(), "{output:?}");
        assert!(line["not_confirmed_by"][0]["reason"].as_str().is_some_and(|why| why.contains("does not have")));
        for trusted in [&[first.as_str(), &empty][..], &[&first, &first]] {
            let output = run_with_quorum(trusted, "2");
            assert_eq!(output.code, Some(4), "{output:?}");
            assert!(output.stderr.contains("fewer than 2 trusted servers confirm"), "{output:?}");
        }
        assert_eq!(run_with_quorum(&[&first], "2").code, Some(2));
        assert_eq!(run_with_quorum(&[], "1").code, Some(2));
    }
}

/// If no name has the expected state, nothing is fetched. Otherwise, the expected state is used even if a
/// newer state exists.
#[test]
fn an_expected_state_is_compared_with_names_first() {
    let files = archives(&[]);
    let server = serve(&files, TransferMode::Ranges);
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let is_download = |request: &Request| request.method == "GET" && request.path.ends_with(".tar.zst");
    let other_hash = "11111111111111111111111111111112";
    for flags in [["--expect-slot", "41"], ["--expect-hash", other_hash]] {
        let output = run_to_json(&[&["bootstrap", &server.url(""), "--ledger", text(&ledger)], &flags[..]].concat());
        assert_eq!(output.code, Some(3), "{output:?}");
        assert!(output.stderr.contains("no source has the state with"), "{output:?}");
    }
    assert!(!server.requests().iter().any(is_download), "nothing is fetched");
    let output = run_to_json(&["bootstrap", &server.url(""), "--ledger", text(&ledger), "--expect-slot", "26"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(output.line("restore")["slot"], 26);
}
