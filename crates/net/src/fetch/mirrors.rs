//! The servers that have one archive: who is well, who has failed how often, and who gave how much.
//!
//! Servers whose archives have the same name need not have the same bytes. Only those of which it is known give bytes to
//! one file.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use slotpress_base::bytes::count;
use slotpress_base::{Progress, Result, one_line};

use super::Ended;
use crate::options::BYTES_PER_SECOND_MIN;
use crate::patience::{Patience, Verdict};
use crate::{NetError, NetErrorKind, Remote, shown};

/// A transfer that goes on tells something of its server when it has brought what must come in so long.
const GIVING_FOR: Duration = Duration::from_secs(20);

/// A transfer that brought less tells nothing good of its server, however short it was.
const ENOUGH_BYTES: f64 = 16.0;

/// A server that has the archive.
#[derive(Debug)]
pub struct Mirror {
    /// The file there.
    pub remote: Remote,
    /// Bytes that it gave.
    pub given_bytes: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Whether its bytes may go into the file.
    standing: Standing,
    /// Its failures since enough of it was kept.
    patience: Patience,
    /// Whether its file is gone, or another one.
    is_lost: bool,
    /// Whether its bytes failed a check.
    is_wrong: bool,
}

/// Whether a server may give bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// It is not known yet whether it has the same bytes.
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
        let patience = Patience::new(give_up_after);
        let state = State { standing: Standing::default(), patience, is_lost: false, is_wrong: false };
        Self { remote, given_bytes: AtomicU64::default(), state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
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
    pub fn reject(&self, why: &str) {
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

    /// A transfer begins.
    pub fn giving(&self) -> Giving<'_> {
        Giving { mirror: self, begun: Instant::now(), kept_bytes: 0 }
    }

    /// A request failed: it is asked again after a pause, unless that cannot help, or nothing has been kept of it for too
    /// long.
    pub fn failed(&self, error: &NetError, now: Instant) -> Verdict {
        let mut state = self.lock();
        state.is_lost |= matches!(error.kind(), NetErrorKind::Gone | NetErrorKind::Changed);
        let verdict = state.patience.failed(error, now);
        let why = match verdict {
            Verdict::TooLong => format!("{error}; {}", state.patience.why_given_up()),
            Verdict::Useless => error.to_string(),
            Verdict::Again | Verdict::Tell(_) => return verdict,
        };
        if !matches!(state.standing, Standing::Dropped(_)) {
            state.standing = Standing::Dropped(one_line(&why));
        }
        verdict
    }

    /// The same, and what is to be told is told. Whether it is asked again.
    pub fn failed_with(&self, error: &NetError, progress: &dyn Progress) -> bool {
        let verdict = self.failed(error, Instant::now());
        if let Verdict::Tell(pause) = verdict {
            let told = self.lock().patience.told(error, pause);
            progress.warn(&told);
        }
        matches!(verdict, Verdict::Again | Verdict::Tell(_))
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
                    if !self.failed_with(&error, progress) {
                        let is_too_long = error.is_retryable();
                        let why = self.lock().patience.why_given_up();
                        return Err(Ended::of_net(if is_too_long { error.and(&why) } else { error }));
                    }
                }
            }
        }
    }

    /// How long it must not be asked.
    pub fn pause(&self) -> Duration {
        self.lock().patience.pause()
    }

    /// Bytes that it gave.
    pub fn given_bytes(&self) -> u64 {
        self.given_bytes.load(Relaxed)
    }
}

/// A transfer that is under way. What is kept of it shows whether the server works: one that hardly gives anything does not.
pub struct Giving<'a> {
    mirror: &'a Mirror,
    begun: Instant,
    /// What was kept so far.
    pub kept_bytes: u64,
}

impl Giving<'_> {
    /// Bytes came, and so many of them were kept.
    pub fn gave(&mut self, kept_bytes: u64) {
        count(&mut self.kept_bytes, kept_bytes);
        self.mirror.given_bytes.fetch_add(kept_bytes, Relaxed);
        self.renew(GIVING_FOR);
    }

    /// It is over, whatever ended it.
    pub fn end(&self) {
        self.renew(Duration::from_secs_f64(ENOUGH_BYTES / BYTES_PER_SECOND_MIN as f64));
    }

    fn renew(&self, time_min: Duration) {
        let time = self.begun.elapsed().max(time_min);
        if self.kept_bytes as f64 >= time.as_secs_f64() * BYTES_PER_SECOND_MIN as f64 {
            self.mirror.lock().patience.renew();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Url;

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
        // Asked each time that it may be asked; eight streams fail at the same moment.
        while mirror.failed(&timeout(), at) != Verdict::TooLong {
            for _ in 0..7 {
                assert_eq!(mirror.failed(&timeout(), at), Verdict::Again);
            }
            tries += 1;
            at = mirror.lock().patience.pause_until().expect("a pause");
        }
        assert_eq!(at.duration_since(start), GIVE_UP_AFTER);
        assert!((6..12).contains(&tries), "{tries}");
        assert!(matches!(mirror.standing(), Standing::Dropped(why) if why.contains("120 s")));
        // What is kept sets the clock back, if it is enough for the time that it took.
        for (kept_bytes, time, verdict) in [
            (100_000, Duration::from_secs(60), Verdict::Again),
            (30_000, Duration::from_secs(60), Verdict::TooLong),
            (100, Duration::ZERO, Verdict::Again),
            (1, Duration::ZERO, Verdict::TooLong),
        ] {
            let mirror = Mirror::new(Remote::of_url(&url), GIVE_UP_AFTER);
            mirror.failed(&timeout(), start);
            let begun = Instant::now().checked_sub(time).expect("a time");
            Giving { mirror: &mirror, begun, kept_bytes }.end();
            assert_eq!(mirror.failed(&timeout(), start + GIVE_UP_AFTER), verdict, "{kept_bytes}");
        }
        let mirror = Mirror::new(Remote::of_url(&url), GIVE_UP_AFTER);
        mirror.approve();
        assert_eq!(mirror.failed(&error(NetErrorKind::Gone), start), Verdict::Useless, "at once");
        assert!(mirror.is_lost());
    }
}
