//! The transfers that run, for the page, the metrics and the log.

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

/// A transfer that runs.
#[derive(Debug)]
pub struct Transfer {
    number: u64,
    /// The archive's file name.
    pub name: String,
    /// Who gets it.
    pub client: SocketAddr,
    /// Which bytes of it.
    pub range: Range<u64>,
    /// Whether these are all.
    pub is_whole: bool,
    sent_bytes: AtomicU64,
    start: Instant,
}

impl Transfer {
    /// How much has been handed to the client's connection.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Relaxed)
    }

    /// How long it has run.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// How much there is to send.
    pub fn total_bytes(&self) -> u64 {
        range_bytes(&self.range)
    }
}

/// A transfer that has ended: a request, or several ranges of one archive for one client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finished {
    /// The archive's file name.
    pub name: String,
    /// Who got it.
    pub client: SocketAddr,
    /// Which bytes were asked for; of several ranges, from the first to the last. A report has the first byte's offset.
    #[serde(rename = "offset_bytes", serialize_with = "start")]
    pub range: Range<u64>,
    /// Whether these are all, in one request.
    #[serde(skip)]
    pub is_whole: bool,
    /// Requests that it took.
    pub requests: u64,
    /// How many bytes were asked for.
    pub total_bytes: u64,
    /// How many were sent.
    pub sent_bytes: u64,
    /// How long it took.
    #[serde(rename = "elapsed_seconds", serialize_with = "slotpress_base::text::seconds")]
    pub elapsed: Duration,
    /// Whether all of it was sent.
    #[serde(rename = "complete")]
    pub is_complete: bool,
}

fn start<S: Serializer>(range: &Range<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    range.start.serialize(serializer)
}

/// A request that was answered without a transfer, or a connection that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answered {
    /// Who asked.
    pub client: IpAddr,
    /// What was asked for, as the client spelt it, cut to 256 characters; empty for a connection that was refused.
    pub request: String,
    /// The status of the answer.
    pub status: u16,
    /// Bytes of the answer behind its head.
    pub sent_bytes: u64,
}

/// All that run.
#[derive(Debug)]
pub struct Transfers {
    running: Mutex<BTreeMap<u64, Arc<Transfer>>>,
    next_number: AtomicU64,
    log: SyncSender<Event>,
    metrics: Arc<Metrics>,
}

/// Keeps a transfer on the list until it is dropped.
#[derive(Debug)]
pub struct Running {
    transfers: Arc<Transfers>,
    transfer: Arc<Transfer>,
}

impl Transfers {
    /// Those that end are told to `log`; while it is full, they are left out.
    pub fn new(log: SyncSender<Event>, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { running: Mutex::default(), next_number: AtomicU64::new(0), log, metrics })
    }

    /// One more.
    pub fn start(self: &Arc<Self>, name: String, client: SocketAddr, range: Range<u64>, is_whole: bool) -> Running {
        let number = self.next_number.fetch_add(1, Relaxed);
        let sent_bytes = AtomicU64::new(0);
        let transfer = Arc::new(Transfer { number, name, client, range, is_whole, sent_bytes, start: Instant::now() });
        self.running.lock().insert(number, transfer.clone());
        self.metrics.transfers.inc();
        Running { transfers: self.clone(), transfer }
    }

    /// The list. As many as there may be connections, at most.
    pub fn list(&self) -> Vec<Arc<Transfer>> {
        self.running.lock().values().cloned().collect()
    }
}

impl Running {
    /// So many more bytes were handed to the connection.
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
