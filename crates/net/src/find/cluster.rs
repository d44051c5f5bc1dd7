//! Asks RPC servers about their cluster: slot, genesis hash, peers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use slotpress_base::{Error, ErrorKind, Progress, Result, saturating_add_to};
use slotpress_format::{Hash, SlotTime, SlotTimeSource};

use super::{FindOptions, SOURCES_MAX};
use crate::{Client, NetError, Url, show_url};

const RPC_BYTES_MAX: usize = 1024 * 1024;

/// Limit on the size of the response to `getClusterNodes`, in bytes. A mainnet server sends about 2 MiB.
const CLUSTER_NODES_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Number of performance samples to request. Each covers one minute.
const SAMPLE_COUNT: usize = 10;

/// A public cluster of Solana.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[warn(missing_docs)]
pub enum Cluster {
    /// The production cluster of Solana.
    MainnetBeta,
    /// The cluster where validators try new versions.
    Testnet,
    /// The cluster for developers.
    Devnet,
}

#[warn(missing_docs)]
impl Cluster {
    /// Returns the URL of its public RPC server.
    pub fn rpc_url(self) -> &'static str {
        match self {
            Self::MainnetBeta => "https://api.mainnet-beta.solana.com",
            Self::Testnet => "https://api.testnet.solana.com",
            Self::Devnet => "https://api.devnet.solana.com",
        }
    }

    /// Returns its genesis hash, in base58.
    pub fn genesis_hash(self) -> &'static str {
        match self {
            Self::MainnetBeta => "5eykt4UsFv8P8NJdTREpY1vzqKqZKvdpKuc147dw2N9d",
            Self::Testnet => "4uhcVJyU9pJkvQyS88uRDiswHXSCkY3zQawwpjk2NsNY",
            Self::Devnet => "EtWTRABZaYq6iMfeYKouRu166VU2xqa1wcaWoxPkrZBG",
        }
    }
}

/// Facts about a cluster, as RPC servers report them. Nothing proves them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClusterFacts {
    pub slot: Option<u64>,
    pub genesis_hash: Option<Hash>,
    /// Shred version of most peers. Peers with a different version belong to a different fork or cluster.
    pub shred_version: Option<u16>,
    pub peer_count: usize,
}

#[derive(Debug, Default)]
pub struct ClusterAnswers {
    pub facts: ClusterFacts,
    pub slot_time: Option<SlotTime>,
    pub peers: Vec<Url>,
    nodes: Vec<ClusterNode>,
}

/// An entry of `getClusterNodes`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClusterNode {
    rpc: Option<String>,
    shred_version: Option<u16>,
}

/// Asks all named RPC servers. Adds the failure of a server to `notes`.
///
/// # Errors
/// No server answers and there are no other sources, or a server belongs to a different cluster than expected
/// or than another server.
pub fn ask_cluster(
    client: &Client,
    options: &FindOptions,
    notes: &mut Vec<String>,
    progress: &dyn Progress,
) -> Result<ClusterAnswers> {
    let mut rpc_urls = options.rpc.clone();
    let mut answers = ClusterAnswers::default();
    answers.facts.genesis_hash = options.expect_genesis_hash;
    if let Some(cluster) = options.cluster {
        rpc_urls.extend(Url::parse(cluster.rpc_url()).ok());
        answers.facts.genesis_hash = options.expect_genesis_hash.or(cluster.genesis_hash().parse().ok());
    }
    let mut failure = None;
    for url in &rpc_urls {
        match answers.ask_server(client, url, notes, progress) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Network => {
                notes.push(format!("an RPC server was left out: {error}"));
                failure = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    if let Some(error) = failure
        && answers.facts.slot.is_none()
        && options.sources.is_empty()
    {
        return Err(error);
    }
    let versions = answers.nodes.iter().filter_map(|node| node.shred_version);
    answers.facts.shred_version = most_common(versions);
    answers.facts.peer_count = answers.nodes.len();
    answers.peers = peer_urls(&answers.nodes, answers.facts.shred_version);
    Ok(answers)
}

impl ClusterAnswers {
    fn ask_server(
        &mut self,
        client: &Client,
        url: &Url,
        notes: &mut Vec<String>,
        progress: &dyn Progress,
    ) -> Result<()> {
        let call = |method: &str, params: Value, bytes_max| client.call_rpc(url, method, params, bytes_max, progress);
        let bad_answer = |why: &str| Error::from(NetError::bad_answer(url, why));
        let facts = &mut self.facts;
        let answer = call("getGenesisHash", json!([]), RPC_BYTES_MAX)?;
        let parsed_hash = answer.as_str().and_then(|text| text.parse().ok());
        let genesis_hash: Hash = parsed_hash.ok_or_else(|| bad_answer("no genesis hash"))?;
        if let Some(expected) = facts.genesis_hash
            && expected != genesis_hash
        {
            let server = show_url(url);
            let message =
                format!("{server} serves a different cluster: its genesis hash is {genesis_hash}, not {expected}");
            return Err(Error::failed(message).with_hint("name RPC servers of one cluster only"));
        }
        facts.genesis_hash = Some(genesis_hash);
        let answer = call("getSlot", json!([{"commitment": "confirmed"}]), RPC_BYTES_MAX)?;
        let slot = answer.as_u64().ok_or_else(|| bad_answer("getSlot: no slot"))?;
        facts.slot = facts.slot.max(Some(slot));
        // Not every server supports the following two methods, and neither is required.
        if self.slot_time.is_none()
            && let Ok(samples) = call("getRecentPerformanceSamples", json!([SAMPLE_COUNT]), RPC_BYTES_MAX)
        {
            self.slot_time = mean_slot_time(&samples);
        }
        // Agave without `--full-rpc-api` does not support this method.
        match call("getClusterNodes", json!([]), CLUSTER_NODES_BYTES_MAX) {
            Ok(Value::Array(list)) => {
                let added_max = (SOURCES_MAX * 4).saturating_sub(self.nodes.len());
                for node in list.into_iter().take(added_max) {
                    // Skips nodes that cannot be parsed, and keeps the rest of the list.
                    self.nodes.extend(serde_json::from_value::<ClusterNode>(node).ok());
                }
            }
            Ok(_) => notes
                .push(format!("could not get peers from an RPC server: {}", bad_answer("getClusterNodes: no list"))),
            Err(error) => notes.push(format!("could not get peers from an RPC server: {error}")),
        }
        progress.check()
    }
}

fn mean_slot_time(samples: &Value) -> Option<SlotTime> {
    let mut slots = 0u64;
    let mut seconds = 0u64;
    for sample in samples.as_array()?.iter().take(SAMPLE_COUNT) {
        slots = slots.checked_add(sample.get("numSlots")?.as_u64()?)?;
        seconds = seconds.checked_add(sample.get("samplePeriodSecs")?.as_u64()?)?;
    }
    let micros = seconds.checked_mul(1_000_000)?.checked_div(slots)?;
    SlotTime::new(Duration::from_micros(micros), SlotTimeSource::Rpc)
}

/// Returns the RPC addresses of the nodes that have this shred version, or whose version is unknown.
fn peer_urls(nodes: &[ClusterNode], shred_version: Option<u16>) -> Vec<Url> {
    let mut urls = BTreeSet::new();
    for node in nodes {
        if node.shred_version.is_some() && node.shred_version != shred_version {
            continue;
        }
        // Accepts only an address and a port: a peer that names a host or a path may be malicious.
        if let Some(Ok(address)) = node.rpc.as_ref().map(|rpc| rpc.parse::<SocketAddr>()) {
            urls.extend(Url::parse(&format!("http://{address}")).ok());
        }
    }
    urls.into_iter().collect()
}

fn most_common(versions: impl Iterator<Item = u16>) -> Option<u16> {
    let mut counts: BTreeMap<u16, u64> = BTreeMap::new();
    for version in versions {
        saturating_add_to(counts.entry(version).or_default(), 1);
    }
    counts.into_iter().max_by_key(|(version, count)| (*count, *version)).map(|(version, _)| version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_per_slot_is_the_mean_of_samples() {
        let time = |samples: Value| mean_slot_time(&samples).map(SlotTime::milliseconds);
        let sample = |slots: u64| json!({"slot": 5, "numSlots": slots, "samplePeriodSecs": 60, "numTransactions": 1});
        assert_eq!(time(json!([sample(150), sample(300)])), Some(267));
        for samples in [json!([]), json!([sample(0)]), json!([sample(u64::MAX), sample(1)]), json!({}), json!([{}])] {
            assert_eq!(time(samples), None);
        }
        assert_eq!(time(json!([sample(1)])), None, "no slot takes a minute");
    }

    #[test]
    fn only_peers_of_the_same_cluster_are_used() {
        let node = |rpc: Option<&str>, shred_version| ClusterNode { rpc: rpc.map(str::to_string), shred_version };
        let nodes = [
            node(Some("1.2.3.4:8899"), Some(5)),
            node(Some("1.2.3.4:8899"), Some(5)),
            node(Some("[2a01::1]:80"), Some(5)),
            node(Some("5.6.7.8:8899"), Some(6)),
            node(None, Some(5)),
            node(Some("evil.example/../x"), Some(5)),
            node(Some("http://1.2.3.4:8899"), Some(5)),
        ];
        let version = most_common(nodes.iter().filter_map(|node| node.shred_version));
        assert_eq!(version, Some(5));
        let urls: Vec<String> = peer_urls(&nodes, version).iter().map(ToString::to_string).collect();
        assert_eq!(urls, ["http://1.2.3.4:8899/", "http://[2a01::1]/"]);
    }
}
