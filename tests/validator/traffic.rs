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

/// A thread that again and again opens an account, empties and so closes it, and makes another that
/// stays.
pub struct Traffic {
    is_over: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Traffic {
    pub fn start(cluster: &Cluster, url: String) -> Self {
        let (is_over, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let bank = Bank { url, is_over: is_over.clone() };
        let (faucet, visitor, count) = (cluster.faucet.clone(), cluster.visitor.clone(), rounds.clone());
        let thread = std::thread::spawn(move || {
            while !bank.is_over.load(Relaxed) {
                let stays = *blake3::hash(&count.load(Relaxed).to_be_bytes()).as_bytes();
                bank.send(&faucet, &stays, GIFT_LAMPORTS);
                bank.send(&faucet, &visitor.public, GIFT_LAMPORTS);
                bank.wait_for(&visitor.address, |lamports| lamports > 0);
                bank.send(&visitor, &faucet.public, GIFT_LAMPORTS - FEE_LAMPORTS);
                bank.wait_for(&visitor.address, |lamports| lamports == 0);
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

struct Bank {
    url: String,
    is_over: Arc<AtomicBool>,
}

impl Bank {
    fn ask(&self, method: &str, parameters: &Value) -> Option<Value> {
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters});
        let answer = minreq::post(&self.url).with_timeout(20).with_json(&call).ok()?.send().ok()?;
        Some(answer.json::<Value>().ok()?["result"].take()).filter(|result| !result.is_null())
    }

    /// Sends a transaction until the service takes it, because a busy machine drops some.
    fn send(&self, from: &Key, to: &[u8; 32], lamports: u64) {
        self.wait(|| {
            let latest = self.ask("getLatestBlockhash", &json!([{"commitment": "confirmed"}]))?;
            let transaction = from.transfer(to, lamports, latest["value"]["blockhash"].as_str()?);
            self.ask("sendTransaction", &json!([transaction, {"skipPreflight": true}]))
        });
    }

    fn wait_for(&self, address: &str, holds: impl Fn(u64) -> bool) {
        self.wait(|| {
            let balance = self.ask("getBalance", &json!([address, {"commitment": "confirmed"}]))?;
            balance["value"].as_u64().filter(|lamports| holds(*lamports))
        });
    }

    fn wait<T>(&self, mut find: impl FnMut() -> Option<T>) {
        while !self.is_over.load(Relaxed) && find().is_none() {
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }
}
