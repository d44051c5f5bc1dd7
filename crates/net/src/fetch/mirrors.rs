//! Mirrors: the servers that offer one archive. Records whether each server is usable, and how many
//! bytes it sent.
//!
//! Archives of the same name need not have the same bytes. A file gets bytes only from servers that
//! are known to have the same archive.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use slotpress_base::bytes::count;
use slotpress_base::{Error, Progress, Result};

use crate::options::BYTES_PER_SECOND_MIN;
use crate::patience::Patience;
use crate::{NetError, NetErrorKind, Remote, shown};

/// A running transfer proves that its server works once it has brought the bytes that the least
/// rate gives in this time.
const GIVING_FOR: Duration = Duration::from_secs(20);

/// A finished transfer of fewer bytes does not show that its server works, however fast it was.
const ENOUGH_BYTES: f64 = 16.0;

/// One server.
#[derive(Debug)]
pub struct Mirror {
    pub remote: Remote,
    pub patience: Patience,
    given_bytes: AtomicU64,
    state: Mutex<MirrorState>,
}

/// Whether bytes are taken from a server.
#[derive(Clone, Debug, Default)]
pub enum MirrorState {
    /// The server's archive has not been compared yet.
    #[default]
    Unknown,
    /// The server has the same archive.
    Good,
    /// The server is not used, for this reason.
    Dropped(Error),
}

impl Mirror {
    /// Creates a mirror whose archive has not been compared yet.
    pub fn new(remote: Remote, give_up_after: Duration) -> Self {
        let (patience, given_bytes) = (Patience::new(give_up_after), AtomicU64::default());
        Self { remote, patience, given_bytes, state: Mutex::default() }
    }

    pub fn shown(&self) -> String {
        shown(&self.remote.url)
    }

    pub fn state(&self) -> MirrorState {
        self.state.lock().clone()
    }

    pub fn approve(&self) {
        *self.state.lock() = MirrorState::Good;
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
    pub fn ask<T>(&self, progress: &dyn Progress, mut ask: impl FnMut() -> Result<T, NetError>) -> Result<T> {
        let answer = self.patience.ask(progress, || Ok(ask()?));
        answer.map_err(|error| match NetError::of(&error) {
            Some(cause) => self.patience.explained(cause.clone()).into(),
            None => error,
        })
    }

    /// Starts counting the bytes of a transfer.
    pub fn tally(&self) -> TransferTally<'_> {
        TransferTally { mirror: self, begun: Instant::now(), kept_bytes: 0 }
    }

    pub fn no_ranges(&self) -> NetError {
        let why = "the server sends no ranges although it said so";
        NetError::new(NetErrorKind::NoRanges, &self.remote.url, why)
    }

    pub fn given_bytes(&self) -> u64 {
        self.given_bytes.load(Relaxed)
    }
}

/// Counts the bytes of a running transfer that were kept. They show whether the server works.
pub struct TransferTally<'a> {
    mirror: &'a Mirror,
    begun: Instant,
    pub kept_bytes: u64,
}

impl TransferTally<'_> {
    /// Counts more bytes.
    pub fn gave(&mut self, kept_bytes: u64) {
        count(&mut self.kept_bytes, kept_bytes);
        self.mirror.given_bytes.fetch_add(kept_bytes, Relaxed);
        self.renew(GIVING_FOR);
    }

    pub fn end(&self) {
        self.renew(Duration::from_secs_f64(ENOUGH_BYTES / BYTES_PER_SECOND_MIN as f64));
    }

    /// Renews the patience with the server if the transfer was fast enough. A transfer shorter than
    /// `time_min` is rated as if it had taken that time.
    fn renew(&self, time_min: Duration) {
        let time = self.begun.elapsed().max(time_min);
        if self.kept_bytes as f64 >= time.as_secs_f64() * BYTES_PER_SECOND_MIN as f64 {
            self.mirror.patience.renew();
        }
    }
}

#[cfg(test)]
mod tests {
    use slotpress_base::NoProgress;

    use super::*;
    use crate::Url;
    use crate::patience::Verdict;

    const GIVE_UP_AFTER: Duration = Duration::from_secs(120);

    #[test]
    fn a_server_is_given_up_when_nothing_was_kept_for_long() {
        let url = Url::parse("http://h/a").expect("a URL");
        let error = |kind| NetError::new(kind, &url, "why");
        let timeout = || error(NetErrorKind::Timeout);
        let mirror = Mirror::new(Remote::of_url(&url), GIVE_UP_AFTER);
        let start = Instant::now();
        let mut tries = 0;
        let mut at = start;
        // Asks as soon as each pause is over; eight connections fail at the same moment.
        while mirror.patience.failed(&timeout(), at) != Verdict::TooLong {
            for _ in 0..7 {
                assert_eq!(mirror.patience.failed(&timeout(), at), Verdict::Again);
            }
            tries += 1;
            at = mirror.patience.pause_until().expect("a pause");
        }
        assert_eq!(at.duration_since(start), GIVE_UP_AFTER);
        assert!((6..12).contains(&tries), "{tries}");
        let mirror = Mirror::new(Remote::of_url(&url), Duration::ZERO);
        assert!(!mirror.count_failure(&timeout(), &NoProgress));
        assert!(matches!(mirror.state(), MirrorState::Dropped(why) if why.to_string().contains("kept for 0 s")));
        // Kept bytes set the clock back if they are enough for the time that they took.
        for (kept_bytes, time, verdict) in [
            (100_000, Duration::from_secs(60), Verdict::Again),
            (30_000, Duration::from_secs(60), Verdict::TooLong),
            (100, Duration::ZERO, Verdict::Again),
            (1, Duration::ZERO, Verdict::TooLong),
        ] {
            let mirror = Mirror::new(Remote::of_url(&url), GIVE_UP_AFTER);
            mirror.patience.failed(&timeout(), start);
            let begun = Instant::now().checked_sub(time).expect("a time");
            TransferTally { mirror: &mirror, begun, kept_bytes }.end();
            assert_eq!(mirror.patience.failed(&timeout(), start + GIVE_UP_AFTER), verdict, "{kept_bytes}");
        }
        let mirror = Mirror::new(Remote::of_url(&url), GIVE_UP_AFTER);
        mirror.approve();
        assert_eq!(mirror.patience.failed(&error(NetErrorKind::Gone), start), Verdict::Useless, "at once");
    }
}
