//! Mirrors: the servers that offer one archive. Records whether each server is usable, and how many
//! bytes it sent.
//!
//! Archives of the same name need not have the same bytes. A file receives bytes only from servers that
//! are known to have the same archive.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use slotpress_base::{Error, Progress, Result, saturating_add_to};

use crate::retries::Retries;
use crate::{Client, NetError, NetErrorKind, Remote, show_url};

/// A request that transferred this many new bytes shows that its server works, even if the transfer was
/// cut short. At the minimum rate, they arrive in about a minute.
const ENOUGH_BYTES: u64 = 64 * 1024;

#[derive(Debug)]
pub struct Mirror {
    pub remote: Remote,
    pub retries: Retries,
    useful_bytes: AtomicU64,
    pub requests: AtomicU64,
    /// Held by the connection that compares the server's archive.
    pub compare_lock: Mutex<()>,
    state: Mutex<MirrorState>,
}

#[derive(Debug, Default)]
enum MirrorState {
    /// The server's archive has not been compared yet.
    #[default]
    Unknown,
    Approved,
    Excluded(Error),
}

impl Mirror {
    pub fn new(remote: Remote, give_up_after: Duration) -> Self {
        Self {
            remote,
            retries: Retries::new(give_up_after),
            useful_bytes: AtomicU64::default(),
            requests: AtomicU64::default(),
            compare_lock: Mutex::default(),
            state: Mutex::default(),
        }
    }

    pub fn display_url(&self) -> String {
        show_url(&self.remote.url)
    }

    pub fn is_approved(&self) -> bool {
        matches!(*self.state.lock(), MirrorState::Approved)
    }

    pub fn exclusion_reason(&self) -> Option<Error> {
        match &*self.state.lock() {
            MirrorState::Excluded(why) => Some(why.clone()),
            _ => None,
        }
    }

    pub fn approve(&self) {
        *self.state.lock() = MirrorState::Approved;
    }

    pub fn is_unknown(&self) -> bool {
        matches!(*self.state.lock(), MirrorState::Unknown)
    }

    /// Stops using the server. The first reason is kept.
    pub fn exclude(&self, why: impl Into<Error>) {
        let mut state = self.state.lock();
        if !matches!(*state, MirrorState::Excluded(_)) {
            *state = MirrorState::Excluded(why.into());
        }
    }

    /// Records a failed request. Returns true if the server may be asked again, and otherwise excludes the
    /// server.
    pub fn record_failure(&self, error: &NetError, progress: &dyn Progress) -> bool {
        let may_retry = self.retries.record_failure(error, progress);
        if !may_retry {
            self.exclude(self.retries.explain(error.clone()));
        }
        may_retry
    }

    /// Retries a request until it succeeds, or gives up on the server.
    ///
    /// # Errors
    /// The last failure, or an interruption.
    pub fn retry<T>(&self, progress: &dyn Progress, request: impl FnMut() -> Result<T>) -> Result<T> {
        self.retries.run(progress, request).map_err(|error| match NetError::find_in(&error) {
            Some(cause) if cause.is_retryable() => self.retries.explain(cause.clone()).into(),
            _ => error,
        })
    }

    /// Makes one request for a range. Passes the bytes to `on_bytes`, which returns how many of them are new.
    /// A transfer that is cut short after enough new bytes is not a failure.
    ///
    /// # Errors
    /// The server fails, or `on_bytes` does.
    pub fn request(
        &self,
        client: &Client,
        range: Range<u64>,
        progress: &dyn Progress,
        on_bytes: &mut dyn FnMut(&[u8]) -> Result<u64>,
    ) -> Result<()> {
        self.requests.fetch_add(1, Relaxed);
        let mut new_bytes = 0;
        let mut transfer = || -> Result<()> {
            let mut body = client.open(&self.remote, Some(range.clone()), progress)?;
            if body.is_whole {
                let why = "the server does not send ranges, although it announced them";
                return Err(NetError::new(NetErrorKind::NoRanges, &self.remote.url, why).into());
            }
            while let Some(bytes) = body.next(client, progress)? {
                self.record_bytes(on_bytes(&bytes)?, &mut new_bytes);
            }
            self.retries.reset();
            Ok(())
        };
        let result = transfer();
        let is_retryable = |error: &Error| NetError::find_in(error).is_some_and(NetError::is_retryable);
        if new_bytes >= ENOUGH_BYTES && result.as_ref().is_err_and(is_retryable) { Ok(()) } else { result }
    }

    /// Fetches a range with as many requests as necessary. Passes the bytes and their offset to `on_bytes`.
    ///
    /// # Errors
    /// The server fails for too long, or `on_bytes` fails.
    pub fn fetch_range(
        &self,
        client: &Client,
        mut range: Range<u64>,
        progress: &dyn Progress,
        on_bytes: &mut dyn FnMut(u64, &[u8]) -> Result<u64>,
    ) -> Result<()> {
        while !range.is_empty() {
            self.retry(progress, || {
                self.request(client, range.clone(), progress, &mut |bytes| {
                    let new_bytes = on_bytes(range.start, bytes)?;
                    saturating_add_to(&mut range.start, bytes.len() as u64);
                    Ok(new_bytes)
                })
            })?;
        }
        Ok(())
    }

    /// Adds new bytes to the server's total, and to `request_bytes`, the total of one request. Enough new
    /// bytes reset the server's failures.
    pub fn record_bytes(&self, bytes: u64, request_bytes: &mut u64) {
        self.useful_bytes.fetch_add(bytes, Relaxed);
        saturating_add_to(request_bytes, bytes);
        if *request_bytes >= ENOUGH_BYTES {
            self.retries.reset();
        }
    }

    pub fn useful_bytes(&self) -> u64 {
        self.useful_bytes.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use slotpress_base::NoProgress;

    use super::*;
    use crate::Url;

    const GIVE_UP_AFTER: Duration = Duration::from_secs(120);

    fn url() -> Url {
        Url::parse("http://h/a").expect("a URL")
    }

    fn mirror(give_up_after: Duration) -> Mirror {
        Mirror::new(Remote::from_url(&url()), give_up_after)
    }

    fn error(kind: NetErrorKind) -> NetError {
        NetError::new(kind, &url(), "why")
    }

    #[test]
    fn enough_new_bytes_reset_the_failures_of_a_server() {
        let start = Instant::now();
        for (bytes, expected) in [(ENOUGH_BYTES, true), (ENOUGH_BYTES - 1, false)] {
            let mirror = mirror(GIVE_UP_AFTER);
            let may_retry = |now| mirror.retries.record_failure_at(now, &error(NetErrorKind::Timeout), &NoProgress);
            may_retry(start);
            mirror.record_bytes(bytes, &mut 0);
            assert_eq!(may_retry(start + GIVE_UP_AFTER), expected, "{bytes}");
        }
    }

    #[test]
    fn a_server_is_excluded_for_its_last_failure() {
        let impatient = mirror(Duration::ZERO);
        assert!(!impatient.record_failure(&error(NetErrorKind::Timeout), &NoProgress));
        assert!(impatient.exclusion_reason().is_some_and(|error| error.to_string().contains("useful bytes for 0 s")));
        let approved = mirror(GIVE_UP_AFTER);
        approved.approve();
        assert!(!approved.record_failure(&error(NetErrorKind::Gone), &NoProgress), "asking again is useless");
        assert!(approved.exclusion_reason().is_some());
    }
}
