//! Decides whether a request to a failing server is retried, and after which pause. Gives up on a server
//! that has sent hardly any useful bytes for some time. Downloads and other requests share this rule.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use slotpress_base::progress;
use slotpress_base::quantity::{rate, time_of_day};
use slotpress_base::{Error, Progress, Result, clock};

use super::NetError;
use super::options::BYTES_PER_SECOND_MIN;

/// The first pause is `give_up_after` divided by this: half a second for two minutes. The pause doubles
/// with each failure.
const FIRST_PAUSE_DIVISOR: u32 = 240;

/// The longest pause is `give_up_after` divided by this, unless a server asks for a longer one.
const LONGEST_PAUSE_DIVISOR: u32 = 4;

/// Failures of one server since it last sent enough useful bytes.
#[derive(Debug)]
pub struct Retries {
    give_up_after: Duration,
    failures: Mutex<Failures>,
}

#[derive(Debug, Default)]
struct Failures {
    /// Number of failures. All failures during one pause count as one failure, because connections often
    /// fail together.
    count: u32,
    since: Option<Instant>,
    pause_until: Option<Instant>,
}

impl Retries {
    pub fn new(give_up_after: Duration) -> Self {
        Self { give_up_after, failures: Mutex::default() }
    }

    /// Forgets all failures, because the server sent enough useful bytes.
    pub fn reset(&self) {
        *self.failures.lock() = Failures::default();
    }

    /// Records a failed request. Warns the operator at the second failure in a row. Returns true if the
    /// server may be asked again, after a [pause](Self::pause).
    pub fn record_failure(&self, error: &NetError, progress: &dyn Progress) -> bool {
        self.record_failure_at(Instant::now(), error, progress)
    }

    pub(crate) fn record_failure_at(&self, now: Instant, error: &NetError, progress: &dyn Progress) -> bool {
        if !error.is_retryable() {
            return false;
        }
        let mut failures = self.failures.lock();
        let since = *failures.since.get_or_insert(now);
        let remaining_time = self.give_up_after.saturating_sub(now.saturating_duration_since(since));
        if remaining_time.is_zero() {
            return false;
        }
        if failures.pause_until.is_some_and(|until| now < until) {
            return true;
        }
        failures.count = failures.count.saturating_add(1);
        let fraction = |divisor| self.give_up_after.checked_div(divisor).unwrap_or_default();
        let mut pause = fraction(FIRST_PAUSE_DIVISOR).saturating_mul(1 << failures.count.saturating_sub(1).min(16));
        pause = pause.min(fraction(LONGEST_PAUSE_DIVISOR));
        pause = pause.max(error.retry_after().unwrap_or_default());
        // The last attempt is made when the time is up.
        pause = pause.min(remaining_time);
        failures.pause_until = now.checked_add(pause);
        if failures.count == 2 {
            let time = time_of_day(clock::now());
            let pause = pause.as_secs_f32();
            let give_up_after = self.give_up_after.as_secs_f32();
            progress.warn(&format!(
                "{time}: {error}: asking again in {pause} s, and giving up after {give_up_after} s without success"
            ));
        }
        true
    }

    /// Adds the reason for giving up on a server to its last error.
    pub fn explain(&self, error: NetError) -> NetError {
        if !error.is_retryable() {
            return error;
        }
        let min_rate = rate(BYTES_PER_SECOND_MIN as f64);
        let seconds = self.give_up_after.as_secs_f32();
        NetError::without_url(
            error.kind(),
            &format!("{error}; it sent less than {min_rate} of useful bytes for {seconds} s"),
        )
    }

    /// Returns the time until the server may be asked again.
    pub fn pause(&self) -> Duration {
        let until = self.failures.lock().pause_until;
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    /// Retries a request until it succeeds, another attempt cannot help, or the server has failed for
    /// too long. `progress` interrupts only pauses: without a pause, the request is always made once.
    ///
    /// # Errors
    /// The last failure, or an interruption during a pause.
    pub fn run<T>(&self, progress: &dyn Progress, request: impl FnMut() -> Result<T>) -> Result<T> {
        self.run_while(|| true, progress, request)
    }

    /// Does the same, but does not retry a request if `may_retry` is false after its failure.
    ///
    /// # Errors
    /// The last failure, or an interruption during a pause.
    pub fn run_while<T>(
        &self,
        may_retry: impl Fn() -> bool,
        progress: &dyn Progress,
        mut request: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let records =
            |error: &Error| NetError::find_in(error).is_some_and(|cause| self.record_failure(cause, progress));
        loop {
            let pause = self.pause();
            if !pause.is_zero() {
                progress::wait(progress, pause);
                progress.check()?;
            }
            match request() {
                Err(error) if may_retry() && records(&error) => {}
                answer => return answer,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use slotpress_base::{CancelToken, NoProgress};

    use super::*;
    use crate::{NetErrorKind, Url};

    fn timeout() -> NetError {
        NetError::new(NetErrorKind::Timeout, &Url::parse("http://h/a").expect("a URL"), "why")
    }

    #[test]
    fn retries_end_after_the_given_time() {
        const GIVE_UP_AFTER: Duration = Duration::from_secs(120);
        let retries = Retries::new(GIVE_UP_AFTER);
        let start = Instant::now();
        let mut attempts = 0;
        let mut now = start;
        // Asks as soon as each pause is over; eight connections fail at the same moment.
        while retries.record_failure_at(now, &timeout(), &NoProgress) {
            for _ in 0..7 {
                assert!(retries.record_failure_at(now, &timeout(), &NoProgress));
            }
            attempts += 1;
            now = retries.failures.lock().pause_until.expect("a pause");
        }
        assert_eq!(now.duration_since(start), GIVE_UP_AFTER);
        assert!((6..12).contains(&attempts), "{attempts}");
    }

    /// The first source that answers interrupts the pauses of other sources. Sources that were not asked
    /// before must still be asked once.
    #[test]
    fn a_request_without_a_pause_is_made_despite_an_interrupt() {
        let stopped = CancelToken::default();
        stopped.cancel();
        let retries = Retries::new(Duration::from_secs(120));
        assert_eq!(retries.run(&stopped, || Ok(1)).expect("an answer"), 1);
        let mut request_count = 0;
        let result = retries.run(&stopped, || {
            request_count += 1;
            Err::<(), _>(timeout().into())
        });
        assert_eq!(result.expect_err("no answer").kind(), slotpress_base::ErrorKind::Interrupted);
        assert_eq!(request_count, 1);
    }
}
