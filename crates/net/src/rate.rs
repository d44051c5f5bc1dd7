//! One bound on the rate of all transfers together: a token bucket.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// What may come at once after a pause: a second's worth, and no more than this.
const BURST_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Tells how long to wait before more is read.
#[derive(Debug)]
pub struct Bucket {
    bytes_per_second: u64,
    /// The time at which everything that was taken is paid for.
    paid_until: Mutex<Option<Instant>>,
}

impl Bucket {
    /// At most this many bytes in a second, at least 1.
    pub fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second: bytes_per_second.max(1), paid_until: Mutex::new(None) }
    }

    /// Takes bytes that have come, and returns how long to wait before the next are read.
    pub fn take(&self, bytes: u64, now: Instant) -> Duration {
        let seconds = |bytes: u64| Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        let burst = seconds(BURST_BYTES_MAX).min(Duration::from_secs(1));
        let mut paid_until = self.paid_until.lock();
        // After a pause there is a burst's worth of credit, never more.
        let credit_from = now.checked_sub(burst).unwrap_or(now);
        let paid = paid_until.unwrap_or(credit_from).max(credit_from);
        let next = paid.checked_add(seconds(bytes)).unwrap_or(paid);
        *paid_until = Some(next);
        next.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_rate_is_kept_and_used(rate in 1u64..1 << 34, pieces in proptest::collection::vec(1u64..1 << 20, 1..200)) {
            let bucket = Bucket::new(rate);
            let start = Instant::now();
            let mut now = start;
            let mut taken = 0;
            for piece in pieces {
                now += bucket.take(piece, now);
                taken += piece;
                // In any time from the start: the rate times the time, and one burst. A piece is taken when it is there.
                let allowed = (now - start).as_secs_f64() * rate as f64 + rate.min(BURST_BYTES_MAX) as f64;
                prop_assert!(taken as f64 <= allowed * 1.0001 + 1.0, "{taken} > {allowed}");
            }
            let needed = taken as f64 / rate as f64;
            prop_assert!((now - start).as_secs_f64() <= needed * 1.0001 + 0.001);
        }
    }
}
