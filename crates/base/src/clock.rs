//! Reads the system's clock, which may be wrong by any amount, even before 1970 or centuries ahead,
//! and may jump.
//!
//! Durations are measured with [`Instant`](std::time::Instant) wherever that is possible. The clock is
//! used only for times that are shown or stored, and for ages.

use std::time::{Duration, SystemTime};

/// The last second of the year 9999, in seconds since 1970. Libraries that format dates accept no
/// later time.
const SECONDS_MAX: u64 = 253_402_300_799;

/// Returns the current time, limited to the years from 1970 to 9999. All other code calls this function
/// instead of [`SystemTime::now`].
pub fn now() -> SystemTime {
    limit_to_range(SystemTime::now())
}

/// Returns the time from 1970 to `time`, or zero if `time` is earlier.
pub fn since_1970(time: SystemTime) -> Duration {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// True if the clock is between the years 1970 and 9999. Otherwise, the libraries for TLS,
/// signatures and HTTP responses panic.
pub fn is_in_range() -> bool {
    let time = SystemTime::now();
    limit_to_range(time) == time
}

fn limit_to_range(time: SystemTime) -> SystemTime {
    let limited = since_1970(time).min(Duration::from_secs(SECONDS_MAX));
    SystemTime::UNIX_EPOCH.checked_add(limited).unwrap_or(SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_limited_to_the_range() {
        let day = Duration::from_secs(86_400);
        let limited = |time: SystemTime| since_1970(limit_to_range(time));
        assert_eq!(limited(SystemTime::UNIX_EPOCH - 20_000 * day), Duration::ZERO);
        assert_eq!(limited(SystemTime::UNIX_EPOCH + 20_000 * day), 20_000 * day);
        let end = Duration::from_secs(SECONDS_MAX);
        assert_eq!(limited(SystemTime::UNIX_EPOCH + end + day), end);
    }
}
