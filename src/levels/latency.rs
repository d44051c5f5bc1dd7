//! Records the times of single frames in a histogram, and summarizes them.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;
use slotpress_base::{Error, Result};

/// Longer times are recorded as one hour, which is far more than a frame of 32 MiB takes.
const NANOSECONDS_MAX: u64 = 3_600_000_000_000;

/// Precision in significant digits: percentiles are within 0.1 %. The histogram then takes about
/// 300 KiB.
const DIGITS: u8 = 3;

/// Times of single frames, in seconds. A percentile is `None` if there are too few samples for one
/// of them to be above it.
#[allow(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    pub samples: u64,
    pub average_seconds: f64,
    pub deviation_seconds: f64,
    pub min_seconds: f64,
    pub max_seconds: f64,
    /// Median: half of the frames take longer.
    pub p50_seconds: Option<f64>,
    pub p90_seconds: Option<f64>,
    pub p99_seconds: Option<f64>,
    pub p99_99_seconds: Option<f64>,
    pub p99_9999_seconds: Option<f64>,
}

/// A histogram of times, with exact sum, minimum and maximum.
pub struct Times {
    histogram: Histogram<u64>,
    total: Duration,
    min: Duration,
    max: Duration,
}

impl Times {
    pub fn new() -> Result<Self> {
        let histogram = Histogram::new_with_bounds(1, NANOSECONDS_MAX, DIGITS)
            .map_err(|error| Error::failed(format!("no histogram of times: {error}")))?;
        Ok(Self { histogram, total: Duration::ZERO, min: Duration::MAX, max: Duration::ZERO })
    }

    pub fn record(&mut self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.histogram.saturating_record(nanoseconds.clamp(1, NANOSECONDS_MAX));
        self.total += time;
        self.min = self.min.min(time);
        self.max = self.max.max(time);
    }

    /// Summarizes the times. Average, minimum and maximum are exact; the other values come from the
    /// histogram.
    pub fn latency(&self) -> Latency {
        let samples = self.histogram.len();
        if samples == 0 {
            return Latency::default();
        }
        let (min_seconds, max_seconds) = (self.min.as_secs_f64(), self.max.as_secs_f64());
        // With fewer than `one_in` samples, none is above the percentile.
        let percentile = |one_in: u64| {
            let quantile = 1.0 - 1.0 / one_in as f64;
            let nanoseconds = self.histogram.value_at_quantile(quantile);
            (samples >= one_in).then(|| (nanoseconds as f64 / 1e9).clamp(min_seconds, max_seconds))
        };
        Latency {
            samples,
            average_seconds: self.total.as_secs_f64() / samples as f64,
            deviation_seconds: self.histogram.stdev() / 1e9,
            min_seconds,
            max_seconds,
            p50_seconds: percentile(2),
            p90_seconds: percentile(10),
            p99_seconds: percentile(100),
            p99_99_seconds: percentile(10_000),
            p99_9999_seconds: percentile(1_000_000),
        }
    }
}

/// Measures the seconds between two consecutive readings of the clock: the median of many pairs.
pub fn timer_seconds() -> f64 {
    const PAIRS: usize = 10_001;
    let mut times: Vec<Duration> = (0..PAIRS)
        .map(|_| {
            let start = Instant::now();
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[PAIRS / 2].as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_need_times_above_them() {
        let mut times = Times::new().expect("a histogram");
        assert_eq!(times.latency(), Latency::default());
        for number in 1..=9_999u64 {
            times.record(Duration::from_nanos(number * 1000));
        }
        let latency = times.latency();
        assert_eq!((latency.samples, latency.p99_99_seconds), (9_999, None));
        times.record(Duration::from_millis(10));
        let latency = times.latency();
        let is_near =
            |seconds: Option<f64>, wanted: f64| seconds.is_some_and(|seconds| (seconds / wanted - 1.0).abs() < 2e-3);
        assert!(is_near(Some(latency.average_seconds), 5_000.5e-6), "{latency:?}");
        assert!(is_near(Some(latency.deviation_seconds), 10e-3 / 12f64.sqrt()), "{latency:?}");
        assert_eq!((latency.min_seconds, latency.max_seconds), (1e-6, 10e-3));
        assert!(is_near(latency.p50_seconds, 5e-3) && is_near(latency.p90_seconds, 9e-3), "{latency:?}");
        assert!(is_near(latency.p99_seconds, 9.9e-3) && is_near(latency.p99_99_seconds, 9.999e-3), "{latency:?}");
        assert_eq!(latency.p99_9999_seconds, None);
        // Times beyond the bounds are counted at the bounds, but minimum and maximum stay exact.
        times.record(Duration::from_secs(7200));
        times.record(Duration::ZERO);
        let latency = times.latency();
        assert_eq!((latency.samples, latency.min_seconds, latency.max_seconds), (10_002, 0.0, 7200.0));
    }

    #[test]
    fn the_clock_takes_some_time() {
        assert!((0.0..1e-3).contains(&timer_seconds()));
    }
}
