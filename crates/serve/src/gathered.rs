//! Gathers the ranges that one client gets of one archive into one transfer for the log. The
//! transfer is reported once none of its ranges is running any more.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::transfers::{Finished, Transfer};

/// Time without a further range after which a transfer is over.
const QUIET: Duration = Duration::from_secs(5);

/// Limit on gathered transfers; beyond it, the one that was quiet for longest is reported.
const OPEN_MAX: usize = 4096;

#[derive(Debug)]
pub struct Gathered {
    is_enabled: bool,
    open: BTreeMap<(IpAddr, String), Open>,
}

#[derive(Debug)]
struct Open {
    finished: Finished,
    start: Instant,
    last: Instant,
}

fn key(client: &SocketAddr, name: &str) -> (IpAddr, String) {
    (client.ip().to_canonical(), name.to_string())
}

impl Gathered {
    /// Starts without transfers. Unless `is_enabled`, each range is reported by itself.
    pub fn new(is_enabled: bool) -> Self {
        Self { is_enabled, open: BTreeMap::new() }
    }

    /// Adds a range that has ended. Returns a transfer to report now: a whole file, or one beyond
    /// the limit.
    pub fn add(&mut self, range: Finished, now: Instant) -> Option<Finished> {
        if range.is_whole || !self.is_enabled {
            return Some(range);
        }
        let (key, start) = (key(&range.client, &range.name), now.checked_sub(range.elapsed).unwrap_or(now));
        if let Some(open) = self.open.get_mut(&key) {
            (open.start, open.last) = (open.start.min(start), now);
            let all = &mut open.finished;
            all.range = all.range.start.min(range.range.start)..all.range.end.max(range.range.end);
            all.total_bytes = all.total_bytes.saturating_add(range.total_bytes);
            all.sent_bytes = all.sent_bytes.saturating_add(range.sent_bytes);
            all.requests = all.requests.saturating_add(range.requests);
            all.is_complete &= range.is_complete;
            all.elapsed = now.saturating_duration_since(open.start);
            return None;
        }
        self.open.insert(key, Open { finished: range, start, last: now });
        if self.open.len() <= OPEN_MAX {
            return None;
        }
        let oldest = self.open.iter().min_by_key(|(_, open)| open.last).map(|(key, _)| key.clone())?;
        self.open.remove(&oldest).map(|open| open.finished)
    }

    /// Removes and returns the transfers that are over, given the running ones.
    pub fn over(&mut self, running: impl FnOnce() -> Vec<Arc<Transfer>>, now: Instant) -> Vec<Finished> {
        if self.open.values().all(|open| now.saturating_duration_since(open.last) < QUIET) {
            return Vec::new();
        }
        for transfer in running() {
            if let Some(open) = self.open.get_mut(&key(&transfer.client, &transfer.name)) {
                open.last = now;
            }
        }
        let is_over = |open: &Open| now.saturating_duration_since(open.last) >= QUIET;
        let over: Vec<_> = self.open.iter().filter(|(_, open)| is_over(open)).map(|(key, _)| key.clone()).collect();
        over.iter().filter_map(|key| self.open.remove(key)).map(|open| open.finished).collect()
    }

    pub fn all(&mut self) -> Vec<Finished> {
        std::mem::take(&mut self.open).into_values().map(|open| open.finished).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(client: &str, start: u64, is_complete: bool) -> Finished {
        Finished {
            name: "archive".into(),
            client: client.parse().expect("an address"),
            range: start..start + 10,
            is_whole: false,
            requests: 1,
            total_bytes: 10,
            sent_bytes: if is_complete { 10 } else { 3 },
            elapsed: Duration::from_secs(1),
            is_complete,
        }
    }

    #[test]
    fn ranges_of_a_client_are_one_transfer() {
        let (mut gathered, start) = (Gathered::new(true), Instant::now() + Duration::from_secs(60));
        for (at, client) in [(0, "10.0.0.1:1"), (20, "10.0.0.1:2"), (10, "10.0.0.1:1"), (0, "10.0.0.2:1")] {
            assert_eq!(gathered.add(range(client, at, at != 10), start + Duration::from_secs(at / 10)), None);
        }
        assert!(gathered.over(Vec::new, start + QUIET - Duration::from_secs(1)).is_empty());
        let told = gathered.over(Vec::new, start + QUIET + Duration::from_secs(9));
        let [first, second] = &told[..] else { panic!("{told:?}") };
        assert_eq!((first.requests, first.range.clone(), first.total_bytes, first.sent_bytes), (3, 0..30, 30, 23));
        assert_eq!((first.is_complete, first.elapsed), (false, Duration::from_secs(2)));
        assert_eq!((second.requests, second.is_complete), (1, true));
        assert_eq!(gathered.all().len(), 0);
        let whole = Finished { is_whole: true, ..range("10.0.0.1:1", 0, true) };
        assert_eq!(gathered.add(whole.clone(), start), Some(whole));
    }

    #[test]
    fn not_without_bound() {
        let (mut gathered, now) = (Gathered::new(true), Instant::now());
        let told = (0..OPEN_MAX as u32 + 5).filter_map(|ip| {
            let client = SocketAddr::new(std::net::Ipv4Addr::from(ip + 1).into(), 1);
            gathered.add(Finished { client, ..range("10.0.0.1:1", 0, true) }, now + Duration::from_millis(ip.into()))
        });
        assert_eq!((told.count(), gathered.all().len()), (5, OPEN_MAX));
    }
}
