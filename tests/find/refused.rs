//! Servers that send wrong answers, and the messages about them.

use serde_json::json;
use slotpress_base::NoProgress;
use slotpress_net::find::find;
use slotpress_net::{FindOptions, NetErrorKind};

use crate::common::http::{Server, send_response};
use crate::common::*;
use crate::find::*;
use crate::net::url;

#[test]
fn rpc_servers_of_two_clusters_are_refused() {
    let good = start_rpc_with_peers(1000, vec![], GENESIS);
    let other = start_rpc_with_peers(1000, vec![], "4uhcVJyU9pJkvQyS88uRDiswHXSCkY3zQawwpjk2NsNY");
    let options = FindOptions::default().rpc(vec![url(&good.url("")), url(&other.url(""))]);
    let error = find(&client(), &options, &NoProgress).expect_err("two clusters");
    assert!(error.to_string().contains("a different cluster"), "{error}");
}

#[test]
fn invalid_rpc_answers_are_errors() {
    let call = |body: &'static [u8]| {
        let server = Server::start(move |_, stream| send_response(stream, "200 OK", &[], body));
        client().call_rpc(&url(&server.url("")), "getSlot", json!([]), 1000, &NoProgress)
    };
    assert_eq!(call(br#"{"jsonrpc":"2.0","id":1,"result":5}"#).expect("good"), json!(5));
    for (body, kind, words) in [
        (&b"<html>"[..], NetErrorKind::BadAnswer, "not JSON"),
        (b"", NetErrorKind::BadAnswer, "not JSON"),
        (b"[]", NetErrorKind::BadAnswer, "no result"),
        (br#"{"error":{"code":-32008,"message":"No\nsnapshot"}}"#, NetErrorKind::BadAnswer, "snapshot"),
        (&[b'['; 999], NetErrorKind::BadAnswer, "not JSON"),
        (&[b'['; 2000], NetErrorKind::TooLong, "longer than 1000"),
    ] {
        let error = call(body).expect_err(words);
        assert_eq!(error.kind(), kind);
        assert!(error.to_string().contains(words), "{error}");
        assert!(!error.to_string().contains('\n'), "{error}");
    }
}

#[test]
fn an_error_without_any_snapshot_names_the_source() {
    let html =
        Server::start(|_, stream| send_response(stream, "200 OK", &[("Content-Type", "text/html")], b"<html></html>"));
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let dead = "http://127.0.0.1:1";
    for (source, address) in [(dead.to_string(), "127.0.0.1:1"), (html.url(""), "127.0.0.1:")] {
        for command in ["bootstrap", "fetch"] {
            let target = if command == "fetch" { "--output" } else { "--ledger" };
            let output = slotpress().args([command, source.as_str(), target]).arg(&ledger).output().expect("runs");
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(4), "{command}: {stderr}");
            assert!(stderr.contains(address), "{command}: {stderr}");
            assert!(!stderr.contains("(1 asked)"), "{command}: {stderr}");
        }
    }
}
