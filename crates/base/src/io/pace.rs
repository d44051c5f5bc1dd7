//! Reading no faster than asked for: a token bucket that all workers share.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::Progress;
use crate::progress::{self};

/// The least rate that makes sense, in bytes per second; less is a slip of the keyboard.
pub const RATE_MIN: u64 = 64 * 1024;

/// How long a bucket saves up what was not used: a pause is made up for at most by this much.
const BURST: Duration = Duration::from_millis(250);

/// The bucket. It knows no clock: times are told, counted from any fixed moment.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    bytes_per_second: u64,
    /// When everything that was taken has been earned.
    earned_at: Duration,
}

impl Bucket {
    /// A full bucket.
    pub fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second: bytes_per_second.max(1), earned_at: Duration::ZERO }
    }

    /// Takes bytes out at a time, and returns how long to wait before reading them.
    pub fn take(&mut self, now: Duration, bytes: u64) -> Duration {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second);
        let cost = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let start = self.earned_at.max(now.saturating_sub(BURST));
        self.earned_at = start.saturating_add(cost);
        self.earned_at.saturating_sub(now)
    }

    /// Whether it is as full as a new one.
    pub fn is_full(&self, now: Duration) -> bool {
        self.earned_at.saturating_add(BURST) <= now
    }
}

/// A bucket with a clock, shared by all workers.
#[derive(Debug)]
pub struct Pace {
    bucket: Mutex<Bucket>,
    start: Instant,
}

impl Pace {
    /// At most this many bytes per second.
    pub fn new(bytes_per_second: u64) -> Self {
        Self { bucket: Mutex::new(Bucket::new(bytes_per_second)), start: Instant::now() }
    }

    /// Waits until `bytes` may be read. Returns early when the user asked to stop; who works on notices that itself.
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

    proptest! {
        /// Whatever is asked for and whenever: by any moment no more than the rate allows has been let through; and
        /// who is let through late is let through no later than the rate demands.
        #[test]
        fn the_rate_holds(
            rate in RATE_MIN..10_000_000_000,
            asks in proptest::collection::vec((0u64..2_000_000_000, 0u64..40_000_000), 1..50),
        ) {
            let mut bucket = Bucket::new(rate);
            let (mut now, mut taken, mut idle) = (Duration::ZERO, 0u64, Duration::ZERO);
            let mut earned = Duration::ZERO;
            for (pause_ns, bytes) in asks {
                now += Duration::from_nanos(pause_ns);
                let through = now + bucket.take(now, bytes);
                taken += bytes;
                let allowed = (through + BURST).as_secs_f64() * rate as f64;
                prop_assert!(taken as f64 <= allowed * 1.000_001 + 50.0, "{taken} bytes by {through:?}");
                // Never slower than asked for: the time of the bytes, and pauses that were too long to save up for.
                idle += now.saturating_sub(earned);
                let cost = taken as f64 / rate as f64;
                prop_assert!(through.as_secs_f64() <= idle.as_secs_f64() + cost + 1e-6);
                earned = through;
            }
        }
    }

    #[test]
    fn extremes_do_not_overflow() {
        let mut bucket = Bucket::new(0);
        assert_eq!(bucket.take(Duration::MAX, 0), Duration::ZERO);
        assert!(bucket.take(Duration::ZERO, u64::MAX) > Duration::from_secs(1 << 30));
        assert!(bucket.take(Duration::ZERO, u64::MAX) > Duration::from_secs(1 << 30));
    }

    #[test]
    fn an_interrupt_ends_a_wait() {
        struct Interrupted;
        impl Progress for Interrupted {
            fn is_interrupted(&self) -> bool {
                true
            }
        }
        let start = Instant::now();
        Pace::new(RATE_MIN).wait(1 << 40, &Interrupted);
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}
