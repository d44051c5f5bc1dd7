//! Lists the transfers, for the page, metrics and log. All ranges of one archive that one client
//! requests count as one transfer, which ends some seconds after the last range.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::{Serialize, Serializer};
use slotpress_base::{range_bytes, saturating_add_to, text};

use super::metrics::Metrics;

/// A transfer of ranges ends this long after its last request, unless a further range is requested.
pub const QUIET_TIME: Duration = Duration::from_secs(5);

/// Number of transfers above which a transfer ends as soon as none of its requests is running.
const OPEN_TRANSFERS_MAX: usize = 4096;

/// Report of a transfer: one request, or several ranges of one archive for one client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
#[warn(missing_docs)]
pub struct TransferReport {
    /// File name of the archive.
    pub name: String,
    /// Client that requested the archive. Serializes as the address without the port.
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
    /// Time from the first request to the end of the last request, or until now.
    #[serde(rename = "elapsed_seconds", serialize_with = "text::seconds")]
    pub elapsed: Duration,
    /// True if all requested bytes were sent.
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
pub struct AnsweredRequest {
    /// Address of the client.
    pub client: IpAddr,
    /// Method and path of the request, truncated to 256 characters; empty for a refused connection or an invalid
    /// request.
    pub request: String,
    /// HTTP status of the response.
    pub status: u16,
    /// Length of the response's body, in bytes.
    pub sent_bytes: u64,
}

/// Requests with the same key are gathered in one transfer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TransferKey {
    client: IpAddr,
    archive: String,
    /// Distinguishes requests that are not gathered; `None` for gathered ranges.
    number: Option<u64>,
}

#[derive(Debug)]
struct Transfer {
    /// The report so far. Only [`Self::report_until`] sets `sent_bytes`, `elapsed` and `is_complete`.
    report: TransferReport,
    running_requests: usize,
    sent_bytes: Arc<AtomicU64>,
    start: Instant,
    /// Time at which the transfer began, or at which a request last ended.
    last_change: Instant,
}

impl Transfer {
    fn report_until(&self, end: Instant) -> TransferReport {
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

/// A request that is being answered. The transfer runs until all of its requests are dropped.
#[derive(Debug)]
pub struct RunningRequest {
    transfers: Arc<Transfers>,
    key: TransferKey,
    sent_bytes: Arc<AtomicU64>,
}

impl Transfers {
    /// Creates an empty list. Without `gathers_ranges`, each range is a separate transfer.
    pub fn new(gathers_ranges: bool, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { open: Mutex::default(), gathers_ranges, next_number: AtomicU64::default(), metrics })
    }

    /// Records a request for a range of an archive that has `file_bytes`.
    pub fn start_request(
        self: &Arc<Self>,
        name: String,
        client: SocketAddr,
        range: Range<u64>,
        file_bytes: u64,
    ) -> RunningRequest {
        let is_whole = range == (0..file_bytes);
        let is_gathered = self.gathers_ranges && !is_whole;
        let number = (!is_gathered).then(|| self.next_number.fetch_add(1, Relaxed));
        let key = TransferKey { client: client.ip().to_canonical(), archive: name, number };
        let now = Instant::now();
        let mut open = self.open.lock();
        let transfer = open.entry(key.clone()).or_insert_with(|| Transfer {
            report: TransferReport {
                name: key.archive.clone(),
                client,
                range: range.clone(),
                is_whole,
                requests: 0,
                total_bytes: 0,
                sent_bytes: 0,
                elapsed: Duration::ZERO,
                is_complete: false,
            },
            running_requests: 0,
            sent_bytes: Arc::default(),
            start: now,
            last_change: now,
        });
        let report = &mut transfer.report;
        report.range.start = report.range.start.min(range.start);
        report.range.end = report.range.end.max(range.end);
        saturating_add_to(&mut report.total_bytes, range_bytes(&range));
        saturating_add_to(&mut report.requests, 1);
        transfer.running_requests = transfer.running_requests.saturating_add(1);
        let sent_bytes = transfer.sent_bytes.clone();
        RunningRequest { transfers: self.clone(), key, sent_bytes }
    }

    pub fn list(&self) -> Vec<TransferReport> {
        let now = Instant::now();
        let open = self.open.lock();
        open.values().map(|transfer| transfer.report_until(now)).collect()
    }

    /// Removes and returns the transfers that have ended: none of their requests is running, and for
    /// gathered ranges, the last request ended at least `quiet_time` ago.
    pub fn take_finished(&self, quiet_time: Duration) -> Vec<TransferReport> {
        let mut open = self.open.lock();
        let is_crowded = open.len() > OPEN_TRANSFERS_MAX;
        let mut finished = Vec::new();
        open.retain(|key, transfer| {
            let is_quiet = key.number.is_some() || is_crowded || transfer.last_change.elapsed() >= quiet_time;
            if transfer.running_requests > 0 || !is_quiet {
                return true;
            }
            let report = transfer.report_until(transfer.last_change);
            self.metrics.count_ended_transfer(report.is_complete);
            finished.push(report);
            false
        });
        finished
    }
}

impl RunningRequest {
    pub fn advance(&self, bytes: u64) {
        self.sent_bytes.fetch_add(bytes, Relaxed);
        self.transfers.metrics.sent_bytes.inc_by(bytes);
    }
}

impl Drop for RunningRequest {
    fn drop(&mut self) {
        if let Some(transfer) = self.transfers.open.lock().get_mut(&self.key) {
            transfer.running_requests = transfer.running_requests.saturating_sub(1);
            transfer.last_change = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfers(gathers_ranges: bool) -> Arc<Transfers> {
        Transfers::new(gathers_ranges, Arc::new(Metrics::new()))
    }

    const FILE_BYTES: u64 = 100;

    fn start_request(transfers: &Arc<Transfers>, client: &str, range: Range<u64>) -> RunningRequest {
        transfers.start_request("archive".into(), client.parse().expect("an address"), range, FILE_BYTES)
    }

    #[test]
    fn ranges_of_a_client_are_one_transfer() {
        let transfers = transfers(true);
        for (start, client) in [(0, "10.0.0.1:1"), (20, "10.0.0.1:2"), (10, "[::ffff:10.0.0.1]:1"), (0, "10.0.0.2:1")] {
            start_request(&transfers, client, start..start + 10).advance(if start == 10 { 3 } else { 10 });
        }
        assert!(transfers.take_finished(QUIET_TIME).is_empty(), "another range may follow");
        let running = start_request(&transfers, "10.0.0.2:1", 0..1);
        let finished = transfers.take_finished(Duration::ZERO);
        let [first] = &finished[..] else { panic!("the other still runs: {finished:?}") };
        assert_eq!((first.requests, first.range.clone()), (3, 0..30));
        assert_eq!((first.total_bytes, first.sent_bytes), (30, 23));
        assert!(!first.is_complete);
        running.advance(1);
        drop(running);
        let finished = transfers.take_finished(Duration::ZERO);
        let [second] = &finished[..] else { panic!("one is left: {finished:?}") };
        assert_eq!((second.requests, second.is_complete), (2, true));
        assert!(transfers.list().is_empty());
    }

    #[test]
    fn whole_files_and_separate_ranges_end_at_once() {
        for (gathers_ranges, range) in [(true, 0..FILE_BYTES), (false, 0..10)] {
            let transfers = transfers(gathers_ranges);
            let running = start_request(&transfers, "10.0.0.1:1", range.clone());
            drop(start_request(&transfers, "10.0.0.1:1", range));
            assert_eq!((transfers.list().len(), transfers.take_finished(QUIET_TIME).len()), (2, 1));
            drop(running);
            assert_eq!(transfers.take_finished(QUIET_TIME).len(), 1);
        }
    }

    #[test]
    fn too_many_idle_transfers_end_at_once() {
        let transfers = transfers(true);
        for ip in 1..=OPEN_TRANSFERS_MAX as u32 + 1 {
            let client = SocketAddr::new(std::net::Ipv4Addr::from(ip).into(), 1);
            drop(transfers.start_request("archive".into(), client, 0..1, FILE_BYTES));
        }
        assert_eq!(transfers.take_finished(QUIET_TIME).len(), OPEN_TRANSFERS_MAX + 1);
    }
}
