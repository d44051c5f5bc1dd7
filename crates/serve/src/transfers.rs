//! Lists the running transfers, for the page, metrics and log.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Serialize, Serializer};
use slotpress_base::range_bytes;

use super::Event;
use super::metrics::Metrics;

#[derive(Debug)]
pub struct Transfer {
    number: u64,
    pub name: String,
    pub client: SocketAddr,
    pub range: Range<u64>,
    pub is_whole: bool,
    sent_bytes: AtomicU64,
    start: Instant,
}

impl Transfer {
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Relaxed)
    }

    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    pub fn total_bytes(&self) -> u64 {
        range_bytes(&self.range)
    }
}

/// A transfer that has ended: one request, or several ranges of one archive for one client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[warn(missing_docs)]
pub struct Finished {
    /// File name of the archive.
    pub name: String,
    /// Client that requested it. Serializes as the address without the port.
    #[serde(serialize_with = "address")]
    pub client: SocketAddr,
    /// Requested range; for several ranges, from the first to the last byte. Serializes as its
    /// start.
    #[serde(rename = "offset_bytes", serialize_with = "start")]
    pub range: Range<u64>,
    /// True if one request asked for the whole file.
    #[serde(skip)]
    pub is_whole: bool,
    /// Number of requests.
    pub requests: u64,
    /// Number of bytes that the requests asked for.
    pub total_bytes: u64,
    /// Number of bytes that were sent.
    pub sent_bytes: u64,
    /// Time from the first request to the end of the last one.
    #[serde(rename = "elapsed_seconds", serialize_with = "slotpress_base::text::seconds")]
    pub elapsed: Duration,
    /// True if all that was asked for was sent.
    #[serde(rename = "complete")]
    pub is_complete: bool,
}

fn start<S: Serializer>(range: &Range<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    range.start.serialize(serializer)
}

fn address<S: Serializer>(client: &SocketAddr, serializer: S) -> Result<S::Ok, S::Error> {
    client.ip().to_canonical().serialize(serializer)
}

/// A request that was answered without a transfer, or a refused connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[warn(missing_docs)]
pub struct Answered {
    /// Address of the client.
    pub client: IpAddr,
    /// Method and path of the request, cut to 256 characters; empty for a refused connection.
    pub request: String,
    /// HTTP status of the answer.
    pub status: u16,
    /// Length of the answer's body, in bytes.
    pub sent_bytes: u64,
}

#[derive(Debug)]
pub struct Transfers {
    running: Mutex<BTreeMap<u64, Arc<Transfer>>>,
    next_number: AtomicU64,
    log: SyncSender<Event>,
    metrics: Arc<Metrics>,
}

/// Keeps a transfer in the list until it is dropped.
#[derive(Debug)]
pub struct Running {
    transfers: Arc<Transfers>,
    transfer: Arc<Transfer>,
}

impl Transfers {
    /// Reports ended transfers to `log`. Drops reports while `log` is full.
    pub fn new(log: SyncSender<Event>, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { running: Mutex::default(), next_number: AtomicU64::new(0), log, metrics })
    }

    pub fn start(self: &Arc<Self>, name: String, client: SocketAddr, range: Range<u64>, is_whole: bool) -> Running {
        let number = self.next_number.fetch_add(1, Relaxed);
        let sent_bytes = AtomicU64::new(0);
        let transfer = Arc::new(Transfer { number, name, client, range, is_whole, sent_bytes, start: Instant::now() });
        self.running.lock().insert(number, transfer.clone());
        self.metrics.transfers.inc();
        Running { transfers: self.clone(), transfer }
    }

    pub fn list(&self) -> Vec<Arc<Transfer>> {
        self.running.lock().values().cloned().collect()
    }
}

impl Running {
    pub fn advance(&self, bytes: u64) {
        self.transfer.sent_bytes.fetch_add(bytes, Relaxed);
        self.transfers.metrics.sent_bytes.inc_by(bytes);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Transfer { number, name, client, range, is_whole, .. } = &*self.transfer;
        self.transfers.running.lock().remove(number);
        let sent_bytes = self.transfer.sent_bytes();
        let finished = Finished {
            name: name.clone(),
            client: *client,
            range: range.clone(),
            is_whole: *is_whole,
            requests: 1,
            total_bytes: self.transfer.total_bytes(),
            sent_bytes,
            elapsed: self.transfer.elapsed(),
            is_complete: sent_bytes == self.transfer.total_bytes(),
        };
        self.transfers.metrics.finished(finished.is_complete);
        // The log may be slow; no transfer waits for it.
        let _ = self.transfers.log.try_send(Event::Finished(finished));
    }
}
