//! What the planning thread knows, beside what it sees.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use slotpress_base::{Error, ErrorKind};
use slotpress_format::ArchiveName;

use super::event::Event;
use super::plan::Key;
use super::target::Shelves;

/// When what failed is tried again: soon at first, and never more seldom than this.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(300);

/// So often, a run that is to end tries.
const ATTEMPTS_ONCE: u32 = 4;

/// So often, an archive is tried before others get their turn in its pauses: an older one takes long, and may be for nothing.
const FAILURES_BEFORE_OTHERS: u32 = 3;

/// Work that is tried again when it fails.
#[derive(Clone, Debug, Default)]
pub struct Attempts {
    failures: u32,
    next: Option<Instant>,
}

impl Attempts {
    /// It worked.
    pub fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// It failed: how long until it is tried again; `None` where a run that is to end has tried enough.
    pub fn failed(&mut self, is_once: bool) -> Option<Duration> {
        let pause = RETRY_FIRST.saturating_mul(1 << self.failures.min(16)).min(RETRY_MAX);
        self.failures = self.failures.saturating_add(1);
        self.next = Some(Instant::now() + pause);
        (!is_once || self.failures < ATTEMPTS_ONCE).then_some(pause)
    }

    /// The same where trying again at once is of no use: a run that is to end does not.
    pub fn refused(&mut self, is_once: bool) -> Option<Duration> {
        if is_once {
            self.failures = self.failures.max(ATTEMPTS_ONCE - 1);
        }
        self.failed(is_once)
    }

    /// Whether it has not failed yet.
    pub fn is_first(&self) -> bool {
        self.failures == 0
    }

    /// Whether it is time to try.
    pub fn is_due(&self) -> bool {
        self.next.is_none_or(|next| next <= Instant::now())
    }

    /// Whether a run that is to end has tried enough.
    pub fn is_given_up(&self, is_once: bool) -> bool {
        is_once && self.failures >= ATTEMPTS_ONCE
    }
}

/// Archives that could not be prepared, though they are not damaged.
#[derive(Clone, Debug, Default)]
pub struct Failing(BTreeMap<Key, Attempts>);

impl Failing {
    /// One failed: as of [`Attempts::failed`].
    pub fn failed(&mut self, key: Key, is_once: bool) -> Option<Duration> {
        self.0.entry(key).or_default().failed(is_once)
    }

    /// Leaves those alone of which this holds.
    pub fn retain(&mut self, stays: impl Fn(&Key) -> bool) {
        self.0.retain(|key, _| stays(key));
    }

    /// Whether it is time to try one.
    pub fn is_due(&self, key: &Key) -> bool {
        self.0.get(key).is_none_or(Attempts::is_due)
    }

    /// Whether one is not tried now.
    pub fn has_pauses(&self) -> bool {
        self.0.values().any(|attempts| !attempts.is_due())
    }

    /// Those that let others go first.
    pub fn waiting(&self, is_once: bool) -> BTreeSet<Key> {
        let waits = |attempts: &Attempts| {
            attempts.is_given_up(is_once) || attempts.failures >= FAILURES_BEFORE_OTHERS && !attempts.is_due()
        };
        self.0.iter().filter(|(_, attempts)| waits(attempts)).map(|(key, _)| *key).collect()
    }
}

/// A target, as the planning thread knows it.
#[derive(Clone, Debug, Default)]
pub struct TargetState {
    /// What it has; nothing until it has told.
    pub shelves: Shelves,
    /// Whether it has told.
    pub is_known: bool,
    /// Whether it works.
    pub is_busy: bool,
    /// What it is sent.
    pub sends: Option<ArchiveName>,
    /// How it goes.
    pub attempts: Attempts,
    /// That little room is left for what is kept was said.
    pub is_told_nearly_full: bool,
}

/// What went wrong in a run that is to end, the gravest first: a damaged archive, then what a later run may do better.
#[derive(Debug, Default)]
pub struct Worst(Option<Error>);

impl Worst {
    /// Something failed.
    pub fn add(&mut self, error: &Error) {
        let rank = |error: &Error| match error.kind() {
            ErrorKind::Damaged => 2,
            ErrorKind::Network => 0,
            _ => 1,
        };
        if self.0.as_ref().is_none_or(|worst| rank(worst) < rank(error)) {
            self.0 = Some(error.clone());
        }
    }

    /// The gravest.
    pub fn take(&mut self) -> Option<Error> {
        self.0.take()
    }
}

/// What was said of archives, and is not said again.
#[derive(Debug, Default)]
pub struct Said(BTreeSet<String>);

impl Said {
    /// Of so many archives; then it begins anew.
    const MAX: usize = 1000;

    /// Whether this is said for the first time.
    pub fn is_new(&mut self, event: &Event) -> bool {
        let Event::Skipped { name, why } = event else { return true };
        if self.0.len() >= Self::MAX {
            self.0.clear();
        }
        self.0.insert(format!("{name} {why}"))
    }
}

#[cfg(test)]
mod tests {
    use slotpress_format::Hash;

    use super::*;

    #[test]
    fn what_is_refused_is_tried_again_only_by_a_run_that_goes_on() {
        let mut attempts = Attempts::default();
        assert_eq!(attempts.refused(false), Some(RETRY_FIRST));
        assert_eq!(attempts.refused(false), Some(RETRY_FIRST * 2));
        assert!(!attempts.is_given_up(true));
        assert_eq!((attempts.refused(true), attempts.is_given_up(true)), (None, true));
    }

    #[test]
    fn an_archive_that_fails_lets_others_go_first_when_it_has_failed_often() {
        let (one, other) = ((None, 1, Hash([7; 32])), (None, 2, Hash([7; 32])));
        let mut failing = Failing::default();
        for failures in 1..=ATTEMPTS_ONCE {
            assert_eq!(failing.failed(one, true).is_some(), failures < ATTEMPTS_ONCE);
            assert_eq!(failing.waiting(false).contains(&one), failures >= FAILURES_BEFORE_OTHERS);
            assert_eq!(failing.waiting(true).contains(&one), failures >= FAILURES_BEFORE_OTHERS);
            assert!(failing.is_due(&other) && failing.has_pauses());
        }
        failing.0.values_mut().for_each(|attempts| attempts.next = None);
        assert!(failing.is_due(&one) && failing.waiting(false).is_empty(), "its pause is over");
        assert!(failing.waiting(true).contains(&one), "it is given up");
        failing.retain(|key| *key == other);
        assert!(failing.waiting(true).is_empty());
    }
}
