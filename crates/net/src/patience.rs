//! How long a server that fails is asked again: until hardly anything of use has come for so long, with growing pauses, and a
//! line that says so. The one rule for downloads and for questions.

use std::time::{Duration, Instant, SystemTime};

use slotpress_base::progress::{self};
use slotpress_base::quantity::{clock, rate};
use slotpress_base::{Progress, Result};

use super::options::BYTES_PER_SECOND_MIN;
use super::{NetError, NetErrorKind};

/// The pause after the first failure, as a part of the time in which a server is given up: half a second of two minutes. It
/// doubles.
const PAUSE_FIRST: u32 = 240;

/// The longest pause, unless the server asks for a longer one.
const PAUSE_MAX: u32 = 4;

/// What becomes of a server that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is asked again, after a pause.
    Again,
    /// The same, and the operator should be told.
    Tell(Duration),
    /// It is not asked again: that cannot help.
    Useless,
    /// It is not asked again: it has failed for too long.
    TooLong,
}

/// The failures of a server since something of use came from it.
#[derive(Debug)]
pub struct Patience {
    give_up_after: Duration,
    /// Failures one after the other; those of streams that fail while it is left alone anyway are one.
    failures: u32,
    /// When the first of them was.
    failing_since: Option<Instant>,
    pause_until: Option<Instant>,
}

impl Patience {
    /// None yet. It may fail for so long.
    pub fn new(give_up_after: Duration) -> Self {
        Self { give_up_after, failures: 0, failing_since: None, pause_until: None }
    }

    /// Enough of use came.
    pub fn renew(&mut self) {
        *self = Self::new(self.give_up_after);
    }

    /// A request failed.
    pub fn failed(&mut self, error: &NetError, now: Instant) -> Verdict {
        if !error.is_retryable() {
            return Verdict::Useless;
        }
        let since = *self.failing_since.get_or_insert(now);
        let left = self.give_up_after.saturating_sub(now.saturating_duration_since(since));
        if left.is_zero() {
            return Verdict::TooLong;
        }
        if self.pause_until.is_some_and(|until| now < until) {
            return Verdict::Again;
        }
        self.failures = self.failures.saturating_add(1);
        let part = |part| self.give_up_after.checked_div(part).unwrap_or_default();
        let pause = part(PAUSE_FIRST).saturating_mul(1 << self.failures.saturating_sub(1).min(16));
        // The last try is when its time is up.
        let pause = pause.min(part(PAUSE_MAX)).max(error.retry_after().unwrap_or_default()).min(left);
        self.pause_until = now.checked_add(pause);
        // The first failure is an accident.
        if self.failures == 2 { Verdict::Tell(pause) } else { Verdict::Again }
    }

    /// What to tell of a failure.
    pub fn told(&self, error: &NetError, pause: Duration) -> String {
        let (now, pause, end) = (clock(SystemTime::now()), pause.as_secs_f32(), self.give_up_after.as_secs_f32());
        format!("{now}: {error}: asked again in {pause} s, and given up after {end} s without success")
    }

    /// Why a server is given up.
    pub fn why_given_up(&self) -> String {
        let least = rate(BYTES_PER_SECOND_MIN as f64);
        format!("less than {least} of it was kept for {} s", self.give_up_after.as_secs_f32())
    }

    /// How long it must not be asked.
    pub fn pause(&self) -> Duration {
        self.pause_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    /// For tests: until when.
    #[cfg(test)]
    pub(crate) fn pause_until(&self) -> Option<Instant> {
        self.pause_until
    }
}

/// Asks until there is an answer, or asking again cannot help, or nothing but failures came for so long.
///
/// # Errors
/// The last that was asked for; or the user asked to stop.
pub fn patiently<T>(give_up_after: Duration, progress: &dyn Progress, mut ask: impl FnMut() -> Result<T>) -> Result<T> {
    let mut patience = Patience::new(give_up_after);
    loop {
        let error = match ask() {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let Some(cause) = NetError::of(&error) else { return Err(error) };
        match patience.failed(cause, Instant::now()) {
            _ if cause.kind() == NetErrorKind::Interrupted => return Err(error),
            Verdict::Useless | Verdict::TooLong => return Err(error),
            Verdict::Tell(pause) => progress.warn(&patience.told(cause, pause)),
            Verdict::Again => {}
        }
        progress::wait(progress, patience.pause());
        progress.check()?;
    }
}
