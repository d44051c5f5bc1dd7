//! Accounts that open and close while the validator runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;

use serde_json::{Value, json};

use super::cluster::Cluster;
use super::keys::Key;

/// Fee of a transaction with one signature.
const FEE_LAMPORTS: u64 = 5000;
const GIFT_LAMPORTS: u64 = 1_000_000_000;

/// A thread that repeatedly opens an account, closes it by emptying it, and opens another account that
/// stays open.
pub struct Traffic {
    is_over: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Traffic {
    pub fn start(cluster: &Cluster, url: String) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let rounds = Arc::new(AtomicU64::new(0));
        let rpc = RpcClient { url, is_over: is_over.clone() };
        let faucet = cluster.faucet.clone();
        let recipient = cluster.recipient.clone();
        let count = rounds.clone();
        let thread = std::thread::spawn(move || {
            while !rpc.is_over.load(Relaxed) {
                let new_account = *blake3::hash(&count.load(Relaxed).to_be_bytes()).as_bytes();
                rpc.send(&faucet, &new_account, GIFT_LAMPORTS);
                rpc.send(&faucet, &recipient.public, GIFT_LAMPORTS);
                rpc.wait_for(&recipient.address, |lamports| lamports > 0);
                rpc.send(&recipient, &faucet.public, GIFT_LAMPORTS - FEE_LAMPORTS);
                rpc.wait_for(&recipient.address, |lamports| lamports == 0);
                count.fetch_add(1, Relaxed);
            }
        });
        Self { is_over, rounds, thread: Some(thread) }
    }

    pub fn rounds(&self) -> u64 {
        self.rounds.load(Relaxed)
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || matches!(ended, Some(Ok(()))), "the traffic stopped");
    }
}

struct RpcClient {
    url: String,
    is_over: Arc<AtomicBool>,
}

impl RpcClient {
    fn ask(&self, method: &str, parameters: &Value) -> Option<Value> {
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters});
        let answer = minreq::post(&self.url).with_timeout(20).with_json(&call).ok()?.send().ok()?;
        Some(answer.json::<Value>().ok()?["result"].take()).filter(|result| !result.is_null())
    }

    /// Sends a transaction until the service accepts it, because a busy node refuses some.
    fn send(&self, from: &Key, to: &[u8; 32], lamports: u64) {
        self.wait(|| {
            let latest = self.ask("getLatestBlockhash", &json!([{"commitment": "confirmed"}]))?;
            let transaction = from.transfer(to, lamports, latest["value"]["blockhash"].as_str()?);
            self.ask("sendTransaction", &json!([transaction, {"skipPreflight": true}]))
        });
    }

    /// Waits until the balance of an account in lamports meets a condition.
    fn wait_for(&self, address: &str, is_met: impl Fn(u64) -> bool) {
        self.wait(|| {
            let balance = self.ask("getBalance", &json!([address, {"commitment": "confirmed"}]))?;
            balance["value"].as_u64().filter(|lamports| is_met(*lamports))
        });
    }

    fn wait<T>(&self, mut find: impl FnMut() -> Option<T>) {
        while !self.is_over.load(Relaxed) && find().is_none() {
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }
}
