//! `slotpress find`, in a cluster of simulated peers of different age, rate and honesty.

mod refused;
mod works;

use std::io;

use serde_json::{Value, json};
use slotpress_net::Client;

use crate::common::http::{Server, send_response};
use crate::net::options;

pub const HASH: &str = "D5jEKFz2JqBFLYETBEnvkiV47AnCXjXEdUgUU1XYNwsi";

pub const GENESIS: &str = "5eykt4UsFv8P8NJdTREpY1vzqKqZKvdpKuc147dw2N9d";

pub fn full_name(slot: u64) -> String {
    format!("snapshot-{slot}-{HASH}.tar.zst")
}

pub fn incremental_name(base: u64, slot: u64) -> String {
    format!("incremental-snapshot-{base}-{slot}-{HASH}.tar.zst")
}

/// If this is its current slot, the RPC server reports that slots take 200 ms.
pub const FAST_SLOT: u64 = 200_000;

/// Starts an RPC server that reports a slot and lists peers.
pub fn start_rpc_with_peers(slot: u64, peers: Vec<Value>, genesis: &'static str) -> Server {
    start_rpc(slot, Some(peers), genesis)
}

/// Starts an RPC server. Without `peers`, it does not know the method that lists them, like Agave's without
/// `--full-rpc-api`.
pub fn start_rpc(slot: u64, peers: Option<Vec<Value>>, genesis: &'static str) -> Server {
    Server::start(move |request, stream| {
        if request.method != "POST" {
            return send_response(stream, "404 Not Found", &[], b"");
        }
        let call: Value = serde_json::from_slice(&request.body).map_err(io::Error::other)?;
        assert_eq!(request.headers["content-type"], "application/json");
        let result = match call["method"].as_str().unwrap_or_default() {
            "getSlot" => json!(slot),
            "getGenesisHash" => json!(genesis),
            // The last two minutes, with 200 ms per slot on average.
            "getRecentPerformanceSamples" if slot == FAST_SLOT => json!([
                {"slot": slot, "numSlots": 310, "samplePeriodSecs": 60, "numTransactions": 9, "numNonVoteTransactions": 1},
                {"slot": slot - 310, "numSlots": 290, "samplePeriodSecs": 60, "numTransactions": 9},
            ]),
            "getClusterNodes" if peers.is_some() => json!(peers),
            _ => {
                return send_response(
                    stream,
                    "200 OK",
                    &[],
                    br#"{"jsonrpc":"2.0","error":{"code":-32601,"message":"Method not found"},"id":1}"#,
                );
            }
        };
        let body = json!({"jsonrpc": "2.0", "id": 1, "result": result}).to_string();
        send_response(stream, "200 OK", &[("Content-Type", "application/json")], body.as_bytes())
    })
}

pub fn client() -> Client {
    Client::new(&options().allow_private(true)).expect("a client")
}
