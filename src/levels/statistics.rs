//! Median and spread of repeated runs, and warnings derived from them.

use std::time::Duration;

use serde::Serialize;
use slotpress_base::Elapsed;

/// Median and spread of repeated runs, in the unit of the runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// Median; for an even number of runs, the mean of the two in the middle.
    pub median: f64,
    /// Least value of any run.
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
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        Self { median, min: *min, max: *max, runs: runs.len() }
    }

    /// Difference between slowest and fastest run, in percent of the median.
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
const LOST_PERCENT_MAX: f64 = 5.0;

/// A reason to doubt a measurement. Serialized as its text.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
#[doc(hidden)]
pub struct Warning {
    /// What it is about: `frames`, `load`, `runs` or `times`.
    #[serde(skip)]
    pub about: &'static str,
    /// What was seen, without advice.
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
pub fn shape_warning(frames: usize, threads: usize) -> Option<Warning> {
    let is_few = threads > 1 && frames < threads * FRAMES_PER_WORKER_MIN;
    let text = || format!("too few frames ({frames}) for {threads} workers");
    is_few.then(|| Warning::new("frames", text()))
}

/// Warns of fewer runs than wanted.
pub fn few_runs_warning(runs: usize, wanted: usize) -> Option<Warning> {
    let text = || format!("measured {runs} of {wanted} times, because the time was up");
    (runs < wanted).then(|| Warning::new("runs", text()))
}

/// Warns of runs that scatter, or are so short that the start of threads takes a notable part.
pub fn run_warning(what: &'static str, runs: &[f64]) -> Option<Warning> {
    let summary = Summary::from_runs(runs);
    let seconds = summary.median;
    let spread_percent = summary.spread_percent();
    if seconds < RUN_TIME_MIN.as_secs_f64() {
        let text = format!("one run takes only {:.1} ms", seconds * 1e3);
        return Some(Warning::new("times", text));
    }
    let text = || format!("{what} times differ by {spread_percent:.0} %");
    (spread_percent > SPREAD_PERCENT_MAX).then(|| Warning::new("times", text()))
}

/// Warns if workers, which only compute, took more elapsed time than CPU time (`busy`): then they had
/// to wait for a core. Short `runs` do not show it.
pub fn load_warning(busy: &Elapsed, runs: &[f64]) -> Option<Warning> {
    let lost_percent = 100.0 - busy.cpu_percent();
    let is_measured = !busy.wall.is_zero() && median(runs) >= RUN_TIME_MIN.as_secs_f64();
    let waited = format!("{lost_percent:.0} % of their time");
    let text = || format!("workers waited {waited} for a core: another load runs");
    (is_measured && lost_percent > LOST_PERCENT_MAX).then(|| Warning::new("load", text()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_median_is_in_the_middle(runs in proptest::collection::vec(0.001f64..1e6, 1..50)) {
            let summary = Summary::from_runs(&runs);
            prop_assert!(summary.min <= summary.median && summary.median <= summary.max);
            let below = runs.iter().filter(|run| **run <= summary.median).count();
            let above = runs.iter().filter(|run| **run >= summary.median).count();
            prop_assert!(below * 2 >= runs.len() && above * 2 >= runs.len());
        }

        #[test]
        fn any_runs_are_judged(runs in proptest::collection::vec(0f64..1e9, 0..20)) {
            let _ = run_warning("compress", &runs);
        }
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn measurements_that_give_warnings() {
        assert_eq!(run_warning("compress", &[1.0, 1.01, 1.02]), None);
        let said = |warning: Option<Warning>| warning.map(|warning| warning.text).unwrap_or_default();
        assert_eq!(said(run_warning("compress", &[1.0, 1.01, 1.2])), "compress times differ by 20 %");
        assert_eq!(said(run_warning("compress", &[0.001; 9])), "one run takes only 1.0 ms");
        assert_eq!(said(shape_warning(7, 2)), "too few frames (7) for 2 workers");
        let busy = Elapsed { wall: Duration::from_secs(10), cpu: Duration::from_secs(8) };
        assert_eq!(
            said(load_warning(&busy, &[1.0])),
            "workers waited 20 % of their time for a core: another load runs"
        );
        assert_eq!(load_warning(&busy, &[0.01]), None);
        assert_eq!(shape_warning(8, 2), None);
        assert_eq!(shape_warning(1, 1), None);
    }
}
