//! The system's clock, of which anything may be true: a time before 1970 or centuries ahead, and another one a moment later.
//!
//! What lasts is measured by [`Instant`](std::time::Instant) wherever it can be; only what is written down for later runs needs a time.

use std::time::{Duration, SystemTime};

/// The last second of the year 9999: what writes dates takes no later one.
const SECONDS_MAX: u64 = 253_402_300_799;

/// The time of day, as far as it can be a date: from 1970 to 9999. Every time of day comes from here.
pub fn now() -> SystemTime {
    dated(SystemTime::now())
}

/// Time from 1970 until then; zero for earlier times.
pub fn since_1970(time: SystemTime) -> Duration {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// True if the clock says a date. The libraries for TLS, signatures and HTTP answers end where it says a time before 1970, or after 9999.
pub fn is_date() -> bool {
    let time = SystemTime::now();
    dated(time) == time
}

fn dated(time: SystemTime) -> SystemTime {
    let since = since_1970(time).min(Duration::from_secs(SECONDS_MAX));
    SystemTime::UNIX_EPOCH.checked_add(since).unwrap_or(SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_time_is_a_date() {
        let day = Duration::from_secs(86_400);
        let at = |time: SystemTime| since_1970(dated(time));
        assert_eq!(at(SystemTime::UNIX_EPOCH - 20_000 * day), Duration::ZERO);
        assert_eq!(at(SystemTime::UNIX_EPOCH + 20_000 * day), 20_000 * day);
        let end = Duration::from_secs(SECONDS_MAX);
        assert_eq!(at(SystemTime::UNIX_EPOCH + end + day), end);
    }
}
