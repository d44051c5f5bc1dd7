//! Responses of the real RPC service, compared with those of the tests' own servers
//! (`common/site.rs`, `find/mod.rs`).

use std::net::SocketAddr;

use serde_json::json;

use super::cluster::Node;
use crate::common::served::{Response, connect, read_head, send};
use crate::find;

/// Sends a request on a new connection, and returns the head of the response.
fn request_head(node: &Node, method: &str, path: &str, headers: &str) -> Response {
    let mut stream = connect(SocketAddr::from(([127, 0, 0, 1], node.rpc_port)));
    send(&mut stream, method, path, headers);
    let head = read_head(&mut stream).expect("an answer");
    println!("{method} {path} {headers:?}: {} {:?}", head.status, head.headers);
    head
}

/// RPC methods that a node answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RpcApi {
    Full,
    Minimal,
}

/// Checks that the node sends no redirects and reports no snapshot slot.
pub fn assert_there_are_no_archives(node: &Node) {
    let error = node.call("getHighestSnapshotSlot", json!([])).expect("an answer").expect_err("no archive yet");
    println!("getHighestSnapshotSlot: {error}");
    for path in ["/snapshot.tar.bz2", "/incremental-snapshot.tar.bz2"] {
        assert_eq!(request_head(node, "GET", path, "").status, 404);
    }
}

/// Checks that files are sent as `TransferMode::Whole` sends them: whole for any request, with a length, and
/// without a header that identifies the version.
pub fn assert_files_are_sent_whole(node: &Node) {
    let redirect = request_head(node, "HEAD", "/snapshot.tar.bz2", "");
    let path = redirect.header("location").to_string();
    assert_eq!(redirect.status, 303, "{redirect:?}");
    assert!(path.starts_with("/snapshot-"), "{redirect:?}");
    for (method, headers) in
        [("HEAD", ""), ("GET", ""), ("GET", "Range: bytes=0-9\r\n"), ("POST", "Content-Length: 0\r\n")]
    {
        let file = request_head(node, method, &path, headers);
        assert_eq!(file.status, 200, "{file:?}");
        let length: u64 = file.header("content-length").parse().expect("a length");
        assert!(length > 1000, "{length}");
        for name in ["accept-ranges", "etag", "last-modified", "content-range", "transfer-encoding"] {
            assert_eq!(file.header(name), "", "{name}");
        }
    }
    assert_eq!(request_head(node, "GET", &format!("/{}", find::full_name(1)), "").status, 404);
    // These responses are only printed.
    for path in ["/", "/genesis.tar.bz2", "/api/v1/archives", "/latest.json", "/health"] {
        request_head(node, "GET", path, "");
        request_head(node, "HEAD", path, "");
    }
}

/// Checks that each call of `find` is answered as the servers of its tests answer it.
pub fn assert_calls_answer(node: &Node, api: RpcApi) {
    let call = |method: &str, parameters| {
        let answer = node.call(method, parameters).expect("an answer");
        println!("{method}: {}", answer.as_ref().unwrap_or_else(|error| error));
        answer
    };
    assert!(call("getGenesisHash", json!([])).expect("a hash").is_string());
    assert!(call("getSlot", json!([{"commitment": "confirmed"}])).expect("a slot").is_u64());
    assert!(call("getVersion", json!([])).expect("a version")["solana-core"].is_string());
    assert!(call("getHighestSnapshotSlot", json!([])).expect("slots")["full"].is_u64());
    let nodes = call("getClusterNodes", json!([]));
    assert_eq!(nodes.is_ok(), api == RpcApi::Full);
    assert_eq!(call("getRecentPerformanceSamples", json!([10])).is_ok(), api == RpcApi::Full);
    if let Ok(nodes) = nodes {
        let node = &nodes[0];
        assert!(node["rpc"].is_string(), "{nodes}");
        assert!(node["shredVersion"].is_u64(), "{nodes}");
        assert!(node["pubkey"].is_string(), "{nodes}");
    }
}
