//! The servers that have one archive: who is well, who has failed how often, and who gave how much.
//!
//! Servers whose archives have the same name need not have the same bytes. Only those of which it is known give bytes to
//! one file.

use {
    super::Ended,
    crate::{NetError, NetErrorKind, Remote, shown},
    slotpress_base::{error::Result, progress::Progress, text::one_line},
    std::{
        sync::{
            Mutex, MutexGuard, PoisonError,
            atomic::{AtomicU64, Ordering::Relaxed},
        },
        time::{Duration, Instant},
    },
};

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
    /// How long it may fail.
    give_up_after: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether its bytes may go into the file.
    standing: Standing,
    /// Failures one after the other; those of streams that fail while it is left alone anyway are one.
    failures: u32,
    /// When the first of them was: nothing of it has been kept since.
    failing_since: Option<Instant>,
    /// Whether its file is gone, or another one.
    is_lost: bool,
    /// Whether its bytes failed a check.
    is_wrong: bool,
    pause_until: Option<Instant>,
}

/// What becomes of a server that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Patience {
    /// It is asked again, after a pause.
    Again,
    /// The same, and somebody should be told.
    Tell(Duration),
    /// It is not asked again.
    Over,
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
    pub fn new(remote: Remote, give_up_after: Duration) -> Self {
        Self { remote, given_bytes: AtomicU64::default(), give_up_after, state: Mutex::default() }
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

    /// Its bytes failed a check: it must not give any more.
    pub fn refute(&self, why: &str) {
        self.drop_for(why);
        self.lock().is_wrong = true;
    }

    /// Whether its bytes failed a check.
    pub fn is_wrong(&self) -> bool {
        self.lock().is_wrong
    }

    /// Whether its file is gone, or another one: asking again later does not help.
    pub fn is_lost(&self) -> bool {
        self.lock().is_lost
    }

    /// Bytes came, and so many of them were kept.
    pub fn gave(&self, kept_bytes: u64) {
        if kept_bytes > 0 {
            self.given_bytes.fetch_add(kept_bytes, Relaxed);
            let mut state = self.lock();
            (state.failures, state.failing_since, state.pause_until) = (0, None, None);
        }
    }

    /// A request failed: it is asked again after a pause, unless that cannot help, or nothing has been kept of it for too
    /// long.
    pub fn failed(&self, error: &NetError, now: Instant) -> Patience {
        let mut state = self.lock();
        state.is_lost |= matches!(error.kind(), NetErrorKind::Gone | NetErrorKind::Changed);
        let since = *state.failing_since.get_or_insert(now);
        let left = self.give_up_after.saturating_sub(now.saturating_duration_since(since));
        if !error.is_retryable() || left.is_zero() {
            let why = match left.is_zero() {
                true => format!("{error}; nothing of it was kept for {} s", self.give_up_after.as_secs_f32()),
                false => error.to_string(),
            };
            if !matches!(state.standing, Standing::Dropped(_)) {
                state.standing = Standing::Dropped(one_line(&why));
            }
            return Patience::Over;
        }
        if state.pause_until.is_some_and(|until| now < until) {
            return Patience::Again;
        }
        state.failures = state.failures.saturating_add(1);
        let pause = PAUSE_FIRST.saturating_mul(1 << state.failures.saturating_sub(1).min(16)).min(PAUSE_MAX);
        // The last try is when its time is up.
        let pause = pause.max(error.retry_after().unwrap_or_default()).min(left);
        state.pause_until = now.checked_add(pause);
        // The first failure is an accident.
        if state.failures == 2 { Patience::Tell(pause) } else { Patience::Again }
    }

    /// The same, and what is to be told is told.
    pub fn failed_with(&self, error: &NetError, progress: &dyn Progress) -> Patience {
        let patience = self.failed(error, Instant::now());
        if let Patience::Tell(pause) = &patience {
            let (pause, end) = (pause.as_secs_f32(), self.give_up_after.as_secs_f32());
            progress.warn(&format!("{error}: asked again in {pause} s, and given up when nothing is kept for {end} s"));
        }
        patience
    }

    /// Asks until there is an answer, or the server is given up.
    pub fn patiently<T>(
        &self,
        progress: &dyn Progress,
        mut ask: impl FnMut() -> Result<T, NetError>,
    ) -> Result<T, Ended> {
        loop {
            super::pause(self.pause(), progress).map_err(Ended::Failed)?;
            match ask() {
                Ok(answer) => return Ok(answer),
                Err(error) if error.kind() == NetErrorKind::Interrupted => return Err(Ended::Failed(error.into())),
                Err(error) => {
                    if self.failed_with(&error, progress) == Patience::Over {
                        return Err(Ended::of_net(error));
                    }
                }
            }
        }
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
        // As if somebody asked whenever it may be asked; eight streams fail at the same moment.
        while mirror.failed(&timeout(), at) != Patience::Over {
            for _ in 0..7 {
                assert_eq!(mirror.failed(&timeout(), at), Patience::Again);
            }
            tries += 1;
            at = mirror.lock().pause_until.expect("a pause");
        }
        assert_eq!(at.duration_since(start), GIVE_UP_AFTER);
        assert!((6..12).contains(&tries), "{tries}");
        assert!(matches!(mirror.standing(), Standing::Dropped(why) if why.contains("120 s")));
        // What is kept sets the clock back; what is not does not.
        let mirror = Mirror::new(Remote::of_url(&url), GIVE_UP_AFTER);
        mirror.failed(&timeout(), start);
        mirror.gave(1);
        assert_eq!(mirror.failed(&timeout(), start + GIVE_UP_AFTER), Patience::Again);
        mirror.gave(0);
        assert_eq!(mirror.failed(&timeout(), start + GIVE_UP_AFTER * 2), Patience::Over);
        let mirror = Mirror::new(Remote::of_url(&url), GIVE_UP_AFTER);
        mirror.approve();
        assert_eq!(mirror.failed(&error(NetErrorKind::Gone), start), Patience::Over, "at once");
        assert!(mirror.is_lost());
    }
}
