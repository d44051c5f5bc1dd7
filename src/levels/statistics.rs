//! Median and spread of repeated runs, and warnings derived from them.

use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};

/// Median and spread of repeated runs, in the unit of the runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// Median; for an even number of runs, the mean of the two in the middle.
    pub median: f64,
    /// Least value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
    /// Median absolute deviation: half of the runs are within this distance of the median.
    pub deviation: f64,
    /// Number of runs.
    pub runs: usize,
}

impl Summary {
    /// Summarizes runs; all values are zero if there are none.
    pub fn of(runs: &[f64]) -> Self {
        let mut sorted = runs.to_vec();
        sorted.sort_by(f64::total_cmp);
        Self {
            median: median_of_sorted(&sorted),
            min: sorted.first().copied().unwrap_or(0.0),
            max: sorted.last().copied().unwrap_or(0.0),
            deviation: deviation(runs),
            runs: runs.len(),
        }
    }

    /// Difference between slowest and fastest run, in percent of the median.
    pub fn spread_percent(&self) -> f64 {
        if self.median > 0.0 { 100.0 * (self.max - self.min) / self.median } else { 0.0 }
    }
}

pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    median_of_sorted(&sorted)
}

fn deviation(values: &[f64]) -> f64 {
    let middle = median(values);
    median(&values.iter().map(|value| (value - middle).abs()).collect::<Vec<f64>>())
}

fn median_of_sorted(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        length if length % 2 == 1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

/// Spread of the runs, in percent of their median, above which a warning is given.
pub const SPREAD_PERCENT_MAX: f64 = 10.0;

/// Runs shorter than this mainly measure the start of threads.
pub const RUN_TIME_MIN: Duration = Duration::from_millis(20);

/// Percentage of their time that workers may wait for a core. If they wait longer, other programs
/// run on the cores, and a warning is given.
pub const LOST_PERCENT_MAX: f64 = 5.0;

/// Serializes as the sentence of `Display`.
impl Serialize for Warning {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A reason to doubt a measurement. Displayed as a sentence that ends in advice.
#[allow(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug, PartialEq)]
pub enum Warning {
    Scatter {
        what: &'static str,
        spread_percent: f64,
    },
    /// A run is so short that starting threads takes a notable part of it.
    TooShort {
        run: Duration,
    },
    /// The time limit permitted fewer runs than wanted.
    FewRuns {
        runs: usize,
        wanted: usize,
    },
    /// There are too few frames to keep all workers busy until the end.
    FewFrames {
        frames: usize,
        threads: usize,
    },
    OtherLoad {
        lost_percent: f64,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scatter { what, spread_percent } => write!(
                f,
                "{what} times differ by {spread_percent:.0} %; stop other programs, or repeat more often or \
                 for longer"
            ),
            Self::TooShort { run } => write!(
                f,
                "one run takes only {:.1} ms, which measures the starting of threads too; give a larger input",
                run.as_secs_f64() * 1e3
            ),
            Self::FewRuns { runs, wanted } => write!(
                f,
                "measured {runs} of {wanted} times, because the time was up; allow more time, or take a smaller sample"
            ),
            Self::FewFrames { frames, threads } => write!(
                f,
                "frames are too few for {threads} workers ({frames}): some wait while others finish; give a larger input \
                 or sample, smaller frames or fewer threads"
            ),
            Self::OtherLoad { lost_percent } => write!(
                f,
                "the workers waited {lost_percent:.0} % of their time for a core: another load runs; stop it, or measure \
                 with fewer threads"
            ),
        }
    }
}

/// With fewer frames per worker, waiting for the last frames distorts the time.
const FRAMES_PER_WORKER_MIN: usize = 4;

pub fn shape_warning(frames: usize, threads: usize) -> Option<Warning> {
    let is_few = threads > 1 && frames < threads * FRAMES_PER_WORKER_MIN;
    is_few.then_some(Warning::FewFrames { frames, threads })
}

pub fn run_warning(what: &'static str, runs: &[f64]) -> Option<Warning> {
    let summary = Summary::of(runs);
    let (run, spread_percent) = (Duration::from_secs_f64(summary.median.max(0.0)), summary.spread_percent());
    match run < RUN_TIME_MIN {
        true => Some(Warning::TooShort { run }),
        false => (spread_percent > SPREAD_PERCENT_MAX).then_some(Warning::Scatter { what, spread_percent }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_median_is_in_the_middle(runs in proptest::collection::vec(0.001f64..1e6, 1..50)) {
            let summary = Summary::of(&runs);
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
        assert!(matches!(run_warning("compress", &[1.0, 1.01, 1.2]), Some(Warning::Scatter { .. })));
        assert!(matches!(run_warning("compress", &[0.001; 9]), Some(Warning::TooShort { .. })));
        assert_eq!(shape_warning(7, 2), Some(Warning::FewFrames { frames: 7, threads: 2 }));
        assert_eq!(shape_warning(8, 2), None);
        assert_eq!(shape_warning(1, 1), None);
    }

    #[test]
    fn warnings_end_in_advice() {
        let warning = Warning::OtherLoad { lost_percent: 12.3 };
        insta::assert_snapshot!(warning, @"the workers waited 12 % of their time for a core: another load runs; stop it, or measure with fewer threads");
    }
}
