//! Median and spread of repeated runs, warnings derived from them, and percentiles of the times of
//! single frames.

use std::time::{Duration, Instant};

use serde::Serialize;
use slotpress_base::Elapsed;

/// Median and spread of repeated runs, in the unit of the runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// Median; for an even number of runs, the mean of the two in the middle.
    pub median: f64,
    /// Smallest value of any run.
    pub min: f64,
    /// Largest value of any run.
    pub max: f64,
    /// Number of runs that were measured.
    pub runs: usize,
}

impl Summary {
    /// Summarizes runs; all values are zero if there are none.
    pub fn from_runs(runs: &[f64]) -> Self {
        let mut sorted = runs.to_vec();
        sorted.sort_by(f64::total_cmp);
        let [Some(min), Some(max)] = [sorted.first(), sorted.last()] else { return Self::default() };
        // If the number of runs is odd, both middle values are the same one.
        let median = (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0;
        Self { median, min: *min, max: *max, runs: runs.len() }
    }

    /// Returns the difference between slowest and fastest run, in percent of the median.
    pub fn spread_percent(&self) -> f64 {
        if self.median > 0.0 { 100.0 * (self.max - self.min) / self.median } else { 0.0 }
    }
}

pub fn median(values: &[f64]) -> f64 {
    Summary::from_runs(values).median
}

/// Spread of the runs, in percent of their median, above which a warning is given.
const SPREAD_PERCENT_MAX: f64 = 10.0;

/// Runs shorter than this mainly measure the start of threads.
const RUN_TIME_MIN: Duration = Duration::from_millis(20);

/// Percentage of their time that workers may wait for a core. If they wait longer, other programs
/// run on the cores, and a warning is given.
const WAIT_PERCENT_MAX: f64 = 5.0;

/// A reason to doubt a measurement. Serialized as its text.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
#[doc(hidden)]
pub struct Warning {
    /// Subject: `frames`, `load`, `runs` or `times`.
    #[serde(skip)]
    pub about: &'static str,
    /// Observation as text, without advice.
    pub text: String,
}

impl Warning {
    pub(crate) fn new(about: &'static str, text: String) -> Self {
        Self { about, text }
    }
}

/// With fewer frames per worker, waiting for the last frames distorts the time.
const FRAMES_PER_WORKER_MIN: usize = 4;

/// Warns of too few frames to keep all workers busy until the end.
pub fn few_frames_warning(frames: usize, threads: usize) -> Option<Warning> {
    let is_few = threads > 1 && frames < threads * FRAMES_PER_WORKER_MIN;
    let text = || format!("too few frames ({frames}) for {threads} workers");
    is_few.then(|| Warning::new("frames", text()))
}

pub fn few_runs_warning(runs: usize, runs_min: usize) -> Option<Warning> {
    let text = || format!("measured {runs} of {runs_min} times, because the time was up");
    (runs < runs_min).then(|| Warning::new("runs", text()))
}

/// Warns of runs that scatter, or that are so short that starting the threads takes a notable part of
/// them. `work` is `compress` or `decompress`.
pub fn time_warning(work: &'static str, runs: &[f64]) -> Option<Warning> {
    let summary = Summary::from_runs(runs);
    let spread_percent = summary.spread_percent();
    if summary.median < RUN_TIME_MIN.as_secs_f64() {
        let text = format!("one run takes only {:.1} ms", summary.median * 1e3);
        return Some(Warning::new("times", text));
    }
    let text = || format!("{work} times differ by {spread_percent:.0}%");
    (spread_percent > SPREAD_PERCENT_MAX).then(|| Warning::new("times", text()))
}

/// Warns if workers had to wait for a core: they only compute, so they took more elapsed time than CPU time.
/// Does not warn of runs that are too short to show the difference.
pub fn load_warning(workers: &Elapsed, runs: &[f64]) -> Option<Warning> {
    let wait_percent = 100.0 - workers.cpu_percent();
    let is_measured = !workers.wall.is_zero() && median(runs) >= RUN_TIME_MIN.as_secs_f64();
    let text = || format!("workers waited {wait_percent:.0}% of their time for a core: other programs are running");
    (is_measured && wait_percent > WAIT_PERCENT_MAX).then(|| Warning::new("load", text()))
}

/// Times of single frames, in seconds. A percentile is `None` if there are too few samples for one
/// of them to lie above it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names suffice")]
pub struct Latency {
    pub samples: u64,
    pub average_seconds: f64,
    pub deviation_seconds: f64,
    pub min_seconds: f64,
    pub max_seconds: f64,
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
        let squared_deviation = |time: &u64| (seconds(time) - average).powi(2);
        // With fewer than `one_in` samples, none is above the percentile.
        let percentile = |one_in: usize| {
            if samples < one_in {
                return None;
            }
            times.get(samples.saturating_sub(samples / one_in + 1)).map(seconds)
        };
        Self {
            samples: samples as u64,
            average_seconds: average,
            deviation_seconds: (times.iter().map(squared_deviation).sum::<f64>() / samples as f64).sqrt(),
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
pub fn measure_timer_seconds() -> f64 {
    const PAIRS: usize = 10_001;
    let mut times: Vec<Duration> = (0..PAIRS).map(|_| Instant::now().elapsed()).collect();
    times.sort_unstable();
    times[PAIRS / 2].as_secs_f64()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_median_is_in_the_middle(runs in proptest::collection::vec(0.001f64..1e6, 1..50)) {
            let summary = Summary::from_runs(&runs);
            prop_assert!(summary.min <= summary.median);
            prop_assert!(summary.median <= summary.max);
            let below = runs.iter().filter(|run| **run <= summary.median).count();
            let above = runs.iter().filter(|run| **run >= summary.median).count();
            prop_assert!(below * 2 >= runs.len());
            prop_assert!(above * 2 >= runs.len());
        }

        #[test]
        fn warnings_of_times_never_panic(runs in proptest::collection::vec(0f64..1e9, 0..20)) {
            let _ = time_warning("compress", &runs);
        }
    }

    #[test]
    fn medians_of_few_values_are_exact() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn doubtful_measurements_give_warnings() {
        assert_eq!(time_warning("compress", &[1.0, 1.01, 1.02]), None);
        let text = |warning: Option<Warning>| warning.map(|warning| warning.text).unwrap_or_default();
        assert_eq!(text(time_warning("compress", &[1.0, 1.01, 1.2])), "compress times differ by 20%");
        assert_eq!(text(time_warning("compress", &[0.001; 9])), "one run takes only 1.0 ms");
        assert_eq!(text(few_frames_warning(7, 2)), "too few frames (7) for 2 workers");
        let busy = Elapsed::new(Duration::from_secs(10), Duration::from_secs(8));
        assert_eq!(
            text(load_warning(&busy, &[1.0])),
            "workers waited 20% of their time for a core: other programs are running"
        );
        assert_eq!(load_warning(&busy, &[0.01]), None);
        assert_eq!(few_frames_warning(8, 2), None);
        assert_eq!(few_frames_warning(1, 1), None);
    }

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
    fn reading_the_clock_takes_less_than_a_millisecond() {
        assert!((0.0..1e-3).contains(&measure_timer_seconds()));
    }
}
