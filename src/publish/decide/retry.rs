//! Decides when an operation that failed is tried again.

use std::time::{Duration, Instant};

use crate::publish::journal::FileIdentity;

/// Pause after the first failure of an operation. Each further failure doubles the pause, up to the maximum.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(300);

/// After this many failures to prepare an archive, other archives are prepared during the pauses. Until then,
/// the other archives wait, because preparing an older archive takes long and may be unnecessary.
const FAILURES_BEFORE_OTHERS: u32 = 3;

#[derive(Clone, Copy, Debug, Default)]
pub struct Retry {
    pub failures: u32,
    pub next: NextAttempt,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NextAttempt {
    #[default]
    Now,
    At(Instant),
    /// Once this file, which is unusable as it is, has changed.
    AfterChange(FileIdentity),
    Never,
}

impl Retry {
    /// True if no further attempt follows unless the file changes.
    pub fn is_refused(&self) -> bool {
        matches!(self.next, NextAttempt::AfterChange(_) | NextAttempt::Never)
    }

    /// Records a failure. Returns the pause before the next attempt.
    pub fn record_failure(&mut self, now: Instant) -> Duration {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(16)).min(PAUSE_MAX);
        self.failures = self.failures.saturating_add(1);
        self.next = NextAttempt::At(now + pause);
        pause
    }

    /// Postpones the next attempt. Until then, other archives come first, as after many failures.
    pub fn postpone(&mut self, until: Instant) {
        self.failures = self.failures.max(FAILURES_BEFORE_OTHERS);
        self.next = NextAttempt::At(until);
    }

    pub fn is_due(&self, now: Instant) -> bool {
        match self.next {
            NextAttempt::Now => true,
            NextAttempt::At(next) => next <= now,
            NextAttempt::AfterChange(_) | NextAttempt::Never => false,
        }
    }

    /// True if a run with `--once` makes no further attempt.
    pub fn is_given_up(&self, once: bool) -> bool {
        once && self.failures > 0
    }

    pub fn yields_to_others(&self, once: bool, now: Instant) -> bool {
        self.is_given_up(once) || self.failures >= FAILURES_BEFORE_OTHERS && !self.is_due(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_that_has_failed_often_yields_to_others() {
        let mut retry = Retry::default();
        let once = false;
        let now = Instant::now();
        for failures in 1..=4 {
            assert_eq!(retry.record_failure(now), FIRST_PAUSE * (1 << (failures - 1)));
            assert_eq!(retry.yields_to_others(once, now), failures >= FAILURES_BEFORE_OTHERS);
            assert!(!retry.is_due(now));
            assert!(!retry.is_given_up(once));
        }
        let later = now + PAUSE_MAX;
        assert!(retry.is_due(later), "its pause is over");
        assert!(!retry.yields_to_others(once, later), "its pause is over");
    }

    #[test]
    fn a_run_with_once_makes_one_attempt() {
        let mut retry = Retry::default();
        let once = true;
        let now = Instant::now();
        assert!(!retry.is_given_up(once));
        retry.record_failure(now);
        assert!(retry.is_given_up(once));
        assert!(retry.yields_to_others(once, now));
        assert!(retry.yields_to_others(once, now + PAUSE_MAX));
    }
}
