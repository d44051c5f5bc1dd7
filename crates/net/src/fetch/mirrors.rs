//! The servers that have one archive: who is well, who has failed how often, and who gave how much.
//!
//! Servers whose archives have the same name need not have the same bytes. Only those of which it is known give bytes to
//! one file.

use {
    crate::{NetError, NetErrorKind, Remote, shown},
    slotpress_base::text::one_line,
    std::{
        sync::{
            Mutex, MutexGuard, PoisonError,
            atomic::{AtomicU64, Ordering::Relaxed},
        },
        time::{Duration, Instant},
    },
};

/// Requests that fail one after the other, without a byte, before a server is given up: with the pauses between them
/// about two minutes.
const FAILURES_MAX: u32 = 8;

/// The pause after the first failure; it doubles.
const PAUSE_FIRST: Duration = Duration::from_millis(500);

/// The longest pause, unless the server asks for a longer one.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// A server that has the archive.
#[derive(Debug)]
pub struct Mirror {
    /// The file there.
    pub remote: Remote,
    /// Bytes that it gave.
    pub given_bytes: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether its bytes may go into the file.
    standing: Standing,
    failures: u32,
    /// Whether its file is gone, or another one.
    is_lost: bool,
    pause_until: Option<Instant>,
}

/// Whether a server may give bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// Nobody knows yet whether it has the same bytes.
    #[default]
    Unknown,
    /// It may.
    Good,
    /// It may not, and why.
    Dropped(String),
}

impl Mirror {
    /// A server of which nothing is known but what it says of the file.
    pub fn new(remote: Remote) -> Self {
        Self { remote, given_bytes: AtomicU64::default(), state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How messages call it.
    pub fn shown(&self) -> String {
        shown(&self.remote.url)
    }

    /// Whether it may give bytes.
    pub fn standing(&self) -> Standing {
        self.lock().standing.clone()
    }

    /// It has the bytes of the file.
    pub fn approve(&self) {
        self.lock().standing = Standing::Good;
    }

    /// It must not give bytes any more.
    pub fn drop_for(&self, why: &str) {
        let mut state = self.lock();
        if !matches!(state.standing, Standing::Dropped(_)) {
            state.standing = Standing::Dropped(one_line(why));
        }
    }

    /// Its file is not what it was, or says that it is.
    pub fn lose(&self) {
        self.lock().is_lost = true;
    }

    /// Whether its file is gone, or another one: asking again later does not help.
    pub fn is_lost(&self) -> bool {
        self.lock().is_lost
    }

    /// Bytes came.
    pub fn gave(&self, bytes: u64) {
        self.given_bytes.fetch_add(bytes, Relaxed);
        self.lock().failures = 0;
    }

    /// A request failed: it is asked again after a pause, or not any more. Whether it is still good.
    pub fn failed(&self, error: &NetError) -> bool {
        let mut state = self.lock();
        // What came before the end was good, and counted.
        let is_final = !error.is_retryable() && error.kind() != NetErrorKind::Interrupted;
        state.failures = state.failures.saturating_add(1);
        state.is_lost |= matches!(error.kind(), NetErrorKind::Gone | NetErrorKind::Changed);
        if is_final || state.failures >= FAILURES_MAX {
            state.standing = Standing::Dropped(error.to_string());
            return false;
        }
        let pause = PAUSE_FIRST.saturating_mul(1 << state.failures.saturating_sub(1).min(16)).min(PAUSE_MAX);
        state.pause_until = Instant::now().checked_add(pause.max(error.retry_after().unwrap_or_default()));
        true
    }

    /// How long it must not be asked.
    pub fn pause(&self) -> Duration {
        let until = self.lock().pause_until;
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    /// Bytes that it gave.
    pub fn given_bytes(&self) -> u64 {
        self.given_bytes.load(Relaxed)
    }
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use {super::*, crate::Url};

    #[test]
    fn failures_add_up_until_bytes_come() {
        let url = Url::parse("http://h/a").expect("a URL");
        let error = |kind| NetError::new(kind, &url, "why");
        let mirror = Mirror::new(Remote::of_url(&url));
        for round in 0..3 {
            for _ in 1..FAILURES_MAX {
                assert!(mirror.failed(&error(NetErrorKind::Timeout)), "{round}");
            }
            mirror.gave(1);
        }
        assert!(mirror.pause() > PAUSE_MAX / 2);
        for _ in 1..FAILURES_MAX {
            mirror.failed(&error(NetErrorKind::Timeout));
        }
        assert!(!mirror.failed(&error(NetErrorKind::Timeout)));
        assert!(matches!(mirror.standing(), Standing::Dropped(why) if why.contains("why")));
        let mirror = Mirror::new(Remote::of_url(&url));
        mirror.approve();
        assert!(!mirror.failed(&error(NetErrorKind::Gone)), "at once");
    }
}
