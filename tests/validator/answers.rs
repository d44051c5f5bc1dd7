//! Answers of the real RPC service, compared with those of the tests' own servers
//! (`common/site.rs`, `find/mod.rs`).

use std::net::SocketAddr;

use serde_json::json;

use super::cluster::Node;
use crate::common::served::{Response, connect, read_head, send};
use crate::find;

/// Requests the head of an answer on a connection of its own.
fn head_of(node: &Node, method: &str, path: &str, headers: &str) -> Response {
    let mut stream = connect(SocketAddr::from(([127, 0, 0, 1], node.rpc_port)));
    send(&mut stream, method, path, headers);
    let head = read_head(&mut stream).expect("an answer");
    println!("{method} {path} {headers:?}: {} {:?}", head.status, head.headers);
    head
}

/// Before the first archive, there is no redirect and no highest slot.
pub fn without_archives(node: &Node) {
    let error = node.asks("getHighestSnapshotSlot", json!([])).expect("an answer").expect_err("no archive yet");
    println!("getHighestSnapshotSlot: {error}");
    for path in ["/snapshot.tar.bz2", "/incremental-snapshot.tar.bz2"] {
        assert_eq!(head_of(node, "GET", path, "").status, 404);
    }
}

/// Checks that files are sent as by `Way::Whole`: whole for any request, with a length, and without
/// a tag of the version.
pub fn of_files(node: &Node) {
    let to = head_of(node, "HEAD", "/snapshot.tar.bz2", "");
    let path = to.header("location").to_string();
    assert!(to.status == 303 && path.starts_with("/snapshot-"), "{to:?}");
    for (method, headers) in
        [("HEAD", ""), ("GET", ""), ("GET", "Range: bytes=0-9\r\n"), ("POST", "Content-Length: 0\r\n")]
    {
        let file = head_of(node, method, &path, headers);
        assert!(file.status == 200 && file.header("content-length").parse::<u64>().is_ok_and(|length| length > 1000));
        for name in ["accept-ranges", "etag", "last-modified", "content-range", "transfer-encoding"] {
            assert_eq!(file.header(name), "", "{name}");
        }
    }
    assert_eq!(head_of(node, "GET", &format!("/{}", find::full(1)), "").status, 404);
    for path in ["/", "/genesis.tar.bz2", "/api/v1/archives", "/latest.json", "/health"] {
        head_of(node, "GET", path, "");
        head_of(node, "HEAD", path, "");
    }
}

/// Checks each call of `find` against the answers of its tests.
pub fn of_calls(node: &Node, is_full: bool) {
    let ask = |method: &str, parameters| {
        let answer = node.asks(method, parameters).expect("an answer");
        println!("{method}: {}", answer.as_ref().unwrap_or_else(|error| error));
        answer
    };
    assert!(ask("getGenesisHash", json!([])).expect("a hash").is_string());
    assert!(ask("getSlot", json!([{"commitment": "confirmed"}])).expect("a slot").is_u64());
    assert!(ask("getVersion", json!([])).expect("a version")["solana-core"].is_string());
    assert!(ask("getHighestSnapshotSlot", json!([])).expect("slots")["full"].is_u64());
    // Only with the full API.
    let (nodes, samples) = (ask("getClusterNodes", json!([])), ask("getRecentPerformanceSamples", json!([10])));
    assert_eq!((nodes.is_ok(), samples.is_ok()), (is_full, is_full));
    if let Ok(nodes) = nodes {
        let node = &nodes[0];
        assert!(node["rpc"].is_string() && node["shredVersion"].is_u64() && node["pubkey"].is_string(), "{nodes}");
    }
}
