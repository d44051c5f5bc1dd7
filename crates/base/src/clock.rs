//! The system's clock. It may tell anything: a time before 1970 or centuries ahead, and another one
//! a moment later.
//!
//! Durations are measured by [`Instant`](std::time::Instant) wherever that is possible. The clock
//! serves only for what is written down for later runs.

use std::time::{Duration, SystemTime};

/// The last second of the year 9999, in seconds since 1970. Code that writes dates takes no
/// later one.
const SECONDS_MAX: u64 = 253_402_300_799;

/// Returns the time of day, moved into the years from 1970 to 9999 so that it is a date. All code
/// takes the time of day from here.
pub fn now() -> SystemTime {
    dated(SystemTime::now())
}

/// Returns the time from 1970 until then, or zero for earlier times.
pub fn since_1970(time: SystemTime) -> Duration {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// True if the clock tells a date. Where it tells a time before 1970 or after 9999, the libraries
/// for TLS, signatures and HTTP answers panic.
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
