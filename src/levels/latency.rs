//! Summarizes the times of single frames.

#![allow(missing_docs, reason = "the names say it")]

use std::time::{Duration, Instant};

use serde::Serialize;

/// Times of single frames, in seconds. A percentile is `None` if there are too few samples for one
/// of them to be above it.
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

impl Latency {
    /// Summarizes times, in nanoseconds.
    pub fn from_times(mut times: Vec<u64>) -> Self {
        times.sort_unstable();
        let [Some(min), Some(max)] = [times.first(), times.last()] else { return Self::default() };
        let seconds = |nanoseconds: &u64| *nanoseconds as f64 / 1e9;
        let samples = times.len();
        let average = times.iter().map(seconds).sum::<f64>() / samples as f64;
        let square = |time: &u64| (seconds(time) - average).powi(2);
        // With fewer than `one_in` samples, none is above the percentile.
        let percentile = |one_in: usize| {
            let at = samples.saturating_sub(samples / one_in + 1);
            (samples >= one_in).then(|| times.get(at).map(seconds)).flatten()
        };
        Self {
            samples: samples as u64,
            average_seconds: average,
            deviation_seconds: (times.iter().map(square).sum::<f64>() / samples as f64).sqrt(),
            min_seconds: seconds(min),
            max_seconds: seconds(max),
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
        assert_eq!(Latency::from_times(Vec::new()), Latency::default());
        let mut times: Vec<u64> = (1..=9_999).rev().map(|number| number * 1000).collect();
        let latency = Latency::from_times(times.clone());
        assert_eq!((latency.samples, latency.p99_99_seconds), (9_999, None));
        times.push(10_000_000);
        let latency = Latency::from_times(times);
        let is_near = |seconds: f64, wanted: f64| (seconds / wanted - 1.0).abs() < 1e-6;
        assert!(is_near(latency.average_seconds, 5_000.5e-6), "{latency:?}");
        assert!((latency.deviation_seconds / (10e-3 / 12f64.sqrt()) - 1.0).abs() < 1e-3, "{latency:?}");
        assert_eq!((latency.min_seconds, latency.max_seconds), (1e-6, 10e-3));
        assert_eq!((latency.p50_seconds, latency.p90_seconds), (Some(5e-3), Some(9e-3)));
        assert_eq!((latency.p99_seconds, latency.p99_99_seconds), (Some(9.9e-3), Some(9.999e-3)));
        assert_eq!(latency.p99_9999_seconds, None);
    }

    #[test]
    fn the_clock_takes_some_time() {
        assert!((0.0..1e-3).contains(&timer_seconds()));
    }
}
