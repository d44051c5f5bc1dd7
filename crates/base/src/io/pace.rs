//! Limits the rate of reading with a token bucket that all workers share.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::{Progress, progress};

/// Smallest accepted rate in bytes per second; a lower one is probably a typo.
pub const RATE_MIN: u64 = 64 * 1024;

/// Time for which a bucket saves up unused rate: the largest burst after a pause.
const BURST: Duration = Duration::from_millis(250);

/// A token bucket without a clock: callers pass the time since any fixed moment.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    bytes_per_second: u64,
    /// Time at which the rate will have made up for all bytes that were taken.
    earned_at: Duration,
}

impl TokenBucket {
    pub fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second: bytes_per_second.max(1), earned_at: Duration::ZERO }
    }

    /// Takes bytes at time `now`, and returns how long to wait before reading them.
    pub fn take(&mut self, now: Duration, bytes: u64) -> Duration {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second);
        let cost = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let start = self.earned_at.max(now.saturating_sub(BURST));
        self.earned_at = start.saturating_add(cost);
        self.earned_at.saturating_sub(now)
    }

    pub fn is_full(&self, now: Duration) -> bool {
        self.earned_at.saturating_add(BURST) <= now
    }
}

/// A token bucket with a clock, which limits the rate of all workers together.
#[derive(Debug)]
#[warn(missing_docs)]
pub struct Pace {
    bucket: Mutex<TokenBucket>,
    start: Instant,
}

#[warn(missing_docs)]
impl Pace {
    /// Limits the rate to this many bytes per second.
    pub fn new(bytes_per_second: u64) -> Self {
        Self { bucket: Mutex::new(TokenBucket::new(bytes_per_second)), start: Instant::now() }
    }

    /// Waits until `bytes` may be read, or the user interrupts; the caller notices the interrupt
    /// itself.
    pub fn wait(&self, bytes: u64, progress: &dyn Progress) {
        let now = self.start.elapsed();
        let wait = self.bucket.lock().take(now, bytes);
        let until = now.saturating_add(wait);
        progress::wait(progress, until.saturating_sub(self.start.elapsed()));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Until;

    proptest! {
        /// For any requests at any times: the rate is never exceeded, and no request waits longer
        /// than the rate requires.
        #[test]
        fn the_rate_is_never_exceeded(
            rate in RATE_MIN..10_000_000_000,
            requests in proptest::collection::vec((0u64..2_000_000_000, 0u64..40_000_000), 1..50),
        ) {
            let mut bucket = TokenBucket::new(rate);
            let mut now = Duration::ZERO;
            let mut taken = 0u64;
            let mut idle = Duration::ZERO;
            let mut earned = Duration::ZERO;
            for (pause_ns, bytes) in requests {
                now += Duration::from_nanos(pause_ns);
                let released = now + bucket.take(now, bytes);
                taken += bytes;
                let allowed = (released + BURST).as_secs_f64() * rate as f64;
                prop_assert!(taken as f64 <= allowed * 1.000_001 + 50.0, "{taken} bytes by {released:?}");
                // No wait is too long: each ends at the latest after the idle time so far plus the time
                // that the bytes take at this rate.
                idle += now.saturating_sub(earned);
                let cost = taken as f64 / rate as f64;
                prop_assert!(released.as_secs_f64() <= idle.as_secs_f64() + cost + 1e-6);
                earned = released;
            }
        }
    }

    #[test]
    fn extremes_do_not_overflow() {
        let mut bucket = TokenBucket::new(0);
        assert_eq!(bucket.take(Duration::MAX, 0), Duration::ZERO);
        assert!(bucket.take(Duration::ZERO, u64::MAX) > Duration::from_secs(1 << 30));
        assert!(bucket.take(Duration::ZERO, u64::MAX) > Duration::from_secs(1 << 30));
    }

    #[test]
    fn an_interrupt_ends_a_wait() {
        let start = Instant::now();
        Pace::new(RATE_MIN).wait(1 << 40, &Until(|| true));
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}
