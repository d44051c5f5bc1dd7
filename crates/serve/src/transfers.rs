//! Lists the transfers, for the page, metrics and log. The ranges that one client gets of one
//! archive count as one transfer, which is over some seconds after the last of them.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Serialize, Serializer};
use slotpress_base::bytes::saturating_add_to;
use slotpress_base::range_bytes;

use super::metrics::Metrics;

/// Time without a further range after which a transfer of ranges is over.
pub const QUIET: Duration = Duration::from_secs(5);

/// Limit on transfers; above it, a transfer is over as soon as none of its requests is running.
const OPEN_MAX: usize = 4096;

/// A transfer that has ended: one request, or several ranges of one archive for one client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[warn(missing_docs)]
pub struct Finished {
    /// File name of the archive.
    pub name: String,
    /// Client that requested it. Serializes as the address without the port.
    #[serde(serialize_with = "serialize_address")]
    pub client: SocketAddr,
    /// Requested range; for several ranges, from the first to the last byte. Serializes as its
    /// start.
    #[serde(rename = "offset_bytes", serialize_with = "serialize_start")]
    pub range: Range<u64>,
    /// True if one request asked for the whole file.
    #[serde(skip)]
    pub is_whole: bool,
    /// Number of requests of the transfer.
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

fn serialize_start<S: Serializer>(range: &Range<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    range.start.serialize(serializer)
}

fn serialize_address<S: Serializer>(client: &SocketAddr, serializer: S) -> Result<S::Ok, S::Error> {
    client.ip().to_canonical().serialize(serializer)
}

/// A request that was answered without a transfer, or a refused connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[warn(missing_docs)]
#[non_exhaustive]
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

/// Client, and name of the archive. A request that is not gathered has a number.
type TransferKey = (IpAddr, String, Option<u64>);

#[derive(Debug)]
struct Transfer {
    /// The report so far, without the fields that change while requests run.
    report: Finished,
    running: usize,
    sent_bytes: Arc<AtomicU64>,
    start: Instant,
    /// When a request last began or ended.
    last: Instant,
}

impl Transfer {
    fn report(&self, end: Instant) -> Finished {
        let mut report = self.report.clone();
        report.sent_bytes = self.sent_bytes.load(Relaxed);
        report.elapsed = end.saturating_duration_since(self.start);
        report.is_complete = report.sent_bytes == report.total_bytes;
        report
    }
}

#[derive(Debug)]
pub struct Transfers {
    open: Mutex<BTreeMap<TransferKey, Transfer>>,
    gathers_ranges: bool,
    next_number: AtomicU64,
    metrics: Arc<Metrics>,
}

/// A request that is being answered. It counts as running until it is dropped.
#[derive(Debug)]
pub struct Running {
    transfers: Arc<Transfers>,
    key: TransferKey,
    sent_bytes: Arc<AtomicU64>,
}

impl Transfers {
    /// Starts without transfers. Unless `gathers_ranges`, each range is a transfer of its own.
    pub fn new(gathers_ranges: bool, metrics: Arc<Metrics>) -> Arc<Self> {
        let next_number = AtomicU64::default();
        Arc::new(Self { open: Mutex::default(), gathers_ranges, next_number, metrics })
    }

    pub fn start(self: &Arc<Self>, name: String, client: SocketAddr, range: Range<u64>, is_whole: bool) -> Running {
        let is_gathered = self.gathers_ranges && !is_whole;
        let number = (!is_gathered).then(|| self.next_number.fetch_add(1, Relaxed));
        let key = (client.ip().to_canonical(), name, number);
        let now = Instant::now();
        let mut open = self.open.lock();
        let transfer = open.entry(key.clone()).or_insert_with(|| Transfer {
            report: Finished {
                name: key.1.clone(),
                client,
                range: range.clone(),
                is_whole,
                requests: 0,
                total_bytes: 0,
                sent_bytes: 0,
                elapsed: Duration::ZERO,
                is_complete: false,
            },
            running: 0,
            sent_bytes: Arc::default(),
            start: now,
            last: now,
        });
        let report = &mut transfer.report;
        report.range.start = report.range.start.min(range.start);
        report.range.end = report.range.end.max(range.end);
        saturating_add_to(&mut report.total_bytes, range_bytes(&range));
        saturating_add_to(&mut report.requests, 1);
        transfer.running = transfer.running.saturating_add(1);
        let sent_bytes = transfer.sent_bytes.clone();
        Running { transfers: self.clone(), key, sent_bytes }
    }

    pub fn list(&self) -> Vec<Finished> {
        let now = Instant::now();
        let open = self.open.lock();
        open.values().map(|transfer| transfer.report(now)).collect()
    }

    /// Removes and returns the transfers that have ended: none of their requests is running, and
    /// transfers of gathered ranges had no request for `quiet`.
    pub fn take_finished(&self, quiet: Duration) -> Vec<Finished> {
        let mut open = self.open.lock();
        let is_crowded = open.len() > OPEN_MAX;
        let mut finished = Vec::new();
        open.retain(|(_, _, number), transfer| {
            let is_quiet = number.is_some() || is_crowded || transfer.last.elapsed() >= quiet;
            if transfer.running > 0 || !is_quiet {
                return true;
            }
            let report = transfer.report(transfer.last);
            self.metrics.count_finished(report.is_complete);
            finished.push(report);
            false
        });
        finished
    }
}

impl Running {
    pub fn advance(&self, bytes: u64) {
        self.sent_bytes.fetch_add(bytes, Relaxed);
        self.transfers.metrics.sent_bytes.inc_by(bytes);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(transfer) = self.transfers.open.lock().get_mut(&self.key) {
            transfer.running = transfer.running.saturating_sub(1);
            transfer.last = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfers(gathers_ranges: bool) -> Arc<Transfers> {
        Transfers::new(gathers_ranges, Arc::new(Metrics::new()))
    }

    fn begin(transfers: &Arc<Transfers>, client: &str, range: Range<u64>, is_whole: bool) -> Running {
        transfers.start("archive".into(), client.parse().expect("an address"), range, is_whole)
    }

    #[test]
    fn ranges_of_a_client_are_one_transfer() {
        let transfers = transfers(true);
        for (start, client) in [(0, "10.0.0.1:1"), (20, "10.0.0.1:2"), (10, "[::ffff:10.0.0.1]:1"), (0, "10.0.0.2:1")] {
            begin(&transfers, client, start..start + 10, false).advance(if start == 10 { 3 } else { 10 });
        }
        assert!(transfers.take_finished(QUIET).is_empty(), "another range may follow");
        let running = begin(&transfers, "10.0.0.2:1", 0..1, false);
        let finished = transfers.take_finished(Duration::ZERO);
        let [first] = &finished[..] else { panic!("the other still runs: {finished:?}") };
        assert_eq!((first.requests, first.range.clone(), first.total_bytes, first.sent_bytes), (3, 0..30, 30, 23));
        assert!(!first.is_complete);
        running.advance(1);
        drop(running);
        let finished = transfers.take_finished(Duration::ZERO);
        assert!(matches!(&finished[..], [second] if second.requests == 2 && second.is_complete), "{finished:?}");
        assert!(transfers.list().is_empty());
    }

    #[test]
    fn whole_files_and_single_ranges_are_over_at_once() {
        for (gathers_ranges, is_whole) in [(true, true), (false, false)] {
            let transfers = transfers(gathers_ranges);
            let running = begin(&transfers, "10.0.0.1:1", 0..10, is_whole);
            drop(begin(&transfers, "10.0.0.1:1", 0..10, is_whole));
            assert_eq!((transfers.list().len(), transfers.take_finished(QUIET).len()), (2, 1));
            drop(running);
            assert_eq!(transfers.take_finished(QUIET).len(), 1);
        }
    }

    #[test]
    fn too_many_idle_transfers_end_at_once() {
        let transfers = transfers(true);
        for ip in 1..=OPEN_MAX as u32 + 1 {
            let client = SocketAddr::new(std::net::Ipv4Addr::from(ip).into(), 1);
            drop(transfers.start("archive".into(), client, 0..1, false));
        }
        assert_eq!(transfers.take_finished(QUIET).len(), OPEN_MAX + 1);
    }
}
