//! Mirrors: the servers that offer one archive. Records whether each server is usable, and how many
//! bytes it sent.
//!
//! Archives of the same name need not have the same bytes. A file gets bytes only from servers that
//! are known to have the same archive.

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use parking_lot::Mutex;
use slotpress_base::bytes::count;
use slotpress_base::{Error, Progress, Result};

use crate::patience::Patience;
use crate::{Client, NetError, NetErrorKind, Remote, shown};

/// A request that brought this many new bytes shows that its server works, even if it broke off
/// then: what the least rate gives in a minute.
const ENOUGH_BYTES: u64 = 64 * 1024;

#[derive(Debug)]
pub struct Mirror {
    pub remote: Remote,
    pub patience: Patience,
    given_bytes: AtomicU64,
    pub requests: AtomicU64,
    state: Mutex<MirrorState>,
}

/// Whether bytes are taken from a server.
#[derive(Debug, Default)]
enum MirrorState {
    /// The server's archive has not been compared yet.
    #[default]
    Unknown,
    /// A connection compares the server's archive.
    Comparing,
    /// The server has the same archive.
    Good,
    /// The server is not used, for this reason.
    Dropped(Error),
}

impl Mirror {
    /// Creates a mirror whose archive has not been compared yet.
    pub fn new(remote: Remote, give_up_after: Duration) -> Self {
        Self {
            remote,
            patience: Patience::new(give_up_after),
            given_bytes: AtomicU64::default(),
            requests: AtomicU64::default(),
            state: Mutex::default(),
        }
    }

    pub fn shown(&self) -> String {
        shown(&self.remote.url)
    }

    pub fn is_good(&self) -> bool {
        matches!(*self.state.lock(), MirrorState::Good)
    }

    /// Why the server is not used, if it was dropped.
    pub fn dropped_for(&self) -> Option<Error> {
        match &*self.state.lock() {
            MirrorState::Dropped(why) => Some(why.clone()),
            _ => None,
        }
    }

    pub fn approve(&self) {
        *self.state.lock() = MirrorState::Good;
    }

    /// Returns true if the caller is to compare the server's archive, which no other connection does
    /// meanwhile.
    pub fn begin_comparing(&self) -> bool {
        let mut state = self.state.lock();
        let is_unknown = matches!(*state, MirrorState::Unknown);
        if is_unknown {
            *state = MirrorState::Comparing;
        }
        is_unknown
    }

    /// Ends a comparison. Without a result, another one may begin.
    pub fn end_comparing(&self) {
        let mut state = self.state.lock();
        if matches!(*state, MirrorState::Comparing) {
            *state = MirrorState::Unknown;
        }
    }

    /// Stops using the server. The first reason stays.
    pub fn drop_for(&self, why: impl Into<Error>) {
        let mut state = self.state.lock();
        if !matches!(*state, MirrorState::Dropped(_)) {
            *state = MirrorState::Dropped(why.into());
        }
    }

    /// Counts a failed request. Returns true if the server may be asked again, and drops it
    /// otherwise.
    pub fn count_failure(&self, error: &NetError, progress: &dyn Progress) -> bool {
        let is_asked_again = self.patience.count_failure(error, progress);
        if !is_asked_again {
            self.drop_for(self.patience.explained(error.clone()));
        }
        is_asked_again
    }

    /// Repeats a request until it succeeds, or the server is given up.
    ///
    /// # Errors
    /// The last failure, or a request to stop.
    pub fn ask<T>(&self, progress: &dyn Progress, ask: impl FnMut() -> Result<T>) -> Result<T> {
        self.patience.ask(progress, ask).map_err(|error| match NetError::in_error(&error) {
            Some(cause) if cause.is_retryable() => self.patience.explained(cause.clone()).into(),
            _ => error,
        })
    }

    /// Makes one request for a range, which `take` may end by an error. `take` returns how many of
    /// its bytes are new. A transfer that breaks off after enough of them is no failure.
    ///
    /// # Errors
    /// The server fails, or `take` does.
    pub fn request(
        &self,
        client: &Client,
        range: Range<u64>,
        stop: &dyn Progress,
        take: &mut dyn FnMut(&[u8]) -> Result<u64>,
    ) -> Result<()> {
        self.requests.fetch_add(1, Relaxed);
        let mut new_bytes = 0;
        let mut transfer = || -> Result<()> {
            let mut body = client.open(&self.remote, Some(range.clone()), stop)?;
            if body.is_whole {
                return Err(self.no_ranges().into());
            }
            while let Some((_, bytes)) = body.next(client, stop)? {
                self.gave(take(&bytes)?, &mut new_bytes);
            }
            self.patience.renew();
            Ok(())
        };
        let result = transfer();
        let is_passing = |error: &Error| NetError::in_error(error).is_some_and(NetError::is_retryable);
        if new_bytes >= ENOUGH_BYTES && result.as_ref().is_err_and(is_passing) { Ok(()) } else { result }
    }

    /// Fetches a range, with as many requests as it takes. `take` gets the offset of the bytes.
    ///
    /// # Errors
    /// The server is given up, or `take` fails.
    pub fn range(
        &self,
        client: &Client,
        mut range: Range<u64>,
        stop: &dyn Progress,
        take: &mut dyn FnMut(u64, &[u8]) -> Result<u64>,
    ) -> Result<()> {
        while !range.is_empty() {
            self.ask(stop, || {
                self.request(client, range.clone(), stop, &mut |bytes| {
                    let new_bytes = take(range.start, bytes)?;
                    count(&mut range.start, bytes.len() as u64);
                    Ok(new_bytes)
                })
            })?;
        }
        Ok(())
    }

    /// Counts new bytes of a request. Enough of them renew the patience with the server.
    pub fn gave(&self, bytes: u64, of_request: &mut u64) {
        self.given_bytes.fetch_add(bytes, Relaxed);
        count(of_request, bytes);
        if *of_request >= ENOUGH_BYTES {
            self.patience.renew();
        }
    }

    pub fn no_ranges(&self) -> NetError {
        let why = "the server does not send ranges, although it said so";
        NetError::new(NetErrorKind::NoRanges, &self.remote.url, why)
    }

    pub fn given_bytes(&self) -> u64 {
        self.given_bytes.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use slotpress_base::NoProgress;

    use super::*;
    use crate::Url;
    use crate::patience::RetryDecision;

    const GIVE_UP_AFTER: Duration = Duration::from_secs(120);

    #[test]
    fn a_server_is_given_up_when_nothing_was_kept_for_long() {
        let url = Url::parse("http://h/a").expect("a URL");
        let error = |kind| NetError::new(kind, &url, "why");
        let timeout = || error(NetErrorKind::Timeout);
        let mirror = Mirror::new(Remote::from_url(&url), GIVE_UP_AFTER);
        let start = Instant::now();
        let mut tries = 0;
        let mut at = start;
        // Asks as soon as each pause is over; eight connections fail at the same moment.
        while mirror.patience.failed(&timeout(), at) != RetryDecision::TooLong {
            for _ in 0..7 {
                assert_eq!(mirror.patience.failed(&timeout(), at), RetryDecision::Again);
            }
            tries += 1;
            at = mirror.patience.pause_until().expect("a pause");
        }
        assert_eq!(at.duration_since(start), GIVE_UP_AFTER);
        assert!((6..12).contains(&tries), "{tries}");
        let mirror = Mirror::new(Remote::from_url(&url), Duration::ZERO);
        assert!(!mirror.count_failure(&timeout(), &NoProgress));
        assert!(mirror.dropped_for().is_some_and(|why| why.to_string().contains("kept for 0 s")));
        // New bytes set the clock back if they are enough.
        for (bytes, verdict) in [(ENOUGH_BYTES, RetryDecision::Again), (ENOUGH_BYTES - 1, RetryDecision::TooLong)] {
            let mirror = Mirror::new(Remote::from_url(&url), GIVE_UP_AFTER);
            mirror.patience.failed(&timeout(), start);
            mirror.gave(bytes, &mut 0);
            assert_eq!(mirror.patience.failed(&timeout(), start + GIVE_UP_AFTER), verdict, "{bytes}");
        }
        let mirror = Mirror::new(Remote::from_url(&url), GIVE_UP_AFTER);
        mirror.approve();
        assert_eq!(mirror.patience.failed(&error(NetErrorKind::Gone), start), RetryDecision::Useless, "at once");
    }
}
