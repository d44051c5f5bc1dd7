//! Text of quantities for all commands: sizes and rates in binary units, times, ratios, percentages,
//! counts. Measured numbers are rounded to a few significant digits, because more digits are noise.
//! JSON and CSV contain exact numbers.

use std::time::{Duration, SystemTime};

use crate::clock::since_1970;

/// Formats bytes: `86.4 GiB`, `987 MiB`, `12 B`; at most 8 characters.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // Values below 999.5 fit into three digits.
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let number = if value.fract() == 0.0 { format!("{value}") } else { significant(value) };
    format!("{number} {}", UNITS[unit])
}

pub fn rate(bytes_per_second: f64) -> String {
    format!("{}/s", bytes(bytes_per_second as u64))
}

pub fn rate_of(bytes: u64, elapsed: Duration) -> String {
    rate(bytes as f64 / elapsed.as_secs_f64().max(1e-9))
}

/// Formats the duration of a command: `0.34 s`, `12.3 s`, `4 min 10 s`, `1 h 02 min`.
pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    match duration.as_secs() {
        0..10 => format!("{seconds:.2} s"),
        10..100 => format!("{seconds:.1} s"),
        whole_seconds @ 100..3600 => format!("{} min {:02} s", whole_seconds / 60, whole_seconds % 60),
        whole_seconds => format!("{} h {:02} min", whole_seconds / 3600, whole_seconds / 60 % 60),
    }
}

/// Formats an age, or another coarse duration: `90 s`, `15 min`, `7 h`, `3 d`.
pub fn age(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeUnit {
    seconds: f64,
    symbol: &'static str,
}

const NANOSECOND: TimeUnit = TimeUnit::new(1e-9, "ns");
const MICROSECOND: TimeUnit = TimeUnit::new(1e-6, "µs");
const MILLISECOND: TimeUnit = TimeUnit::new(1e-3, "ms");
const SECOND: TimeUnit = TimeUnit::new(1.0, "s");

impl TimeUnit {
    const fn new(seconds: f64, symbol: &'static str) -> Self {
        Self { seconds, symbol }
    }

    /// Returns the smallest unit in which a time is shown as a number below 1000, or seconds.
    pub fn for_seconds(seconds: f64) -> Self {
        let shorter_units = [NANOSECOND, MICROSECOND, MILLISECOND];
        shorter_units.into_iter().find(|unit| seconds / unit.seconds < 999.5).unwrap_or(SECOND)
    }

    /// Returns the unit for a column of times around this one. Times up to ten times as long are shown
    /// as numbers below 1000.
    pub fn for_column(seconds: f64) -> Self {
        Self::for_seconds(seconds * 10.0)
    }

    /// Formats a time in this unit: `12.3 ms`, `0.06 ms`, `0.050 s`.
    pub fn show(self, seconds: f64) -> String {
        let value = seconds / self.seconds;
        match self.symbol {
            "ns" => format!("{value:.0} ns"),
            "s" if value != 0.0 && value < 0.0995 => format!("{value:.3} s"),
            symbol => format!("{} {symbol}", significant(value)),
        }
    }
}

/// Formats a measured time in a fitting unit: `612 ns`, `1.23 µs`, `45.6 ms`, `1234 s`.
pub fn time(seconds: f64) -> String {
    TimeUnit::for_seconds(seconds).show(seconds)
}

/// Formats a round time for an axis: `500 ms`, `20 s`.
pub fn tick(seconds: f64) -> String {
    let unit = TimeUnit::for_seconds(seconds);
    let number = format!("{:.3}", seconds / unit.seconds);
    format!("{} {}", number.trim_end_matches('0').trim_end_matches('.'), unit.symbol)
}

pub fn percent(percent: f64) -> String {
    format!("{percent:.1}%")
}

/// Formats a compression ratio, `3.470`: the larger number divided by the smaller one, or `-` if
/// the smaller one is 0.
pub fn ratio(bytes: u64, other_bytes: u64) -> String {
    let larger = bytes.max(other_bytes);
    let smaller = bytes.min(other_bytes);
    if smaller == 0 { "-".to_string() } else { format!("{:.3}", larger as f64 / smaller as f64) }
}

/// Formats a count with separators: `1,234,567`.
pub fn count(count: u64) -> String {
    let digits = count.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

/// Formats a count with its noun: `1 frame`, `430,104 frames`.
pub fn count_of(items: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(items), if items == 1 { "" } else { "s" })
}

/// Formats a number with at least three digits and at most two decimals: `0.05`, `12.3`, `1234`.
pub fn significant(value: f64) -> String {
    match value.abs() {
        magnitude if magnitude < 9.995 => format!("{value:.2}"),
        magnitude if magnitude < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Formats the time of day in UTC: `18:57:12 UTC`.
pub fn time_of_day(time: SystemTime) -> String {
    let seconds = since_1970(time).as_secs();
    format!("{:02}:{:02}:{:02} UTC", seconds / 3600 % 24, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_rates_have_binary_units() {
        let shown: Vec<String> =
            [0, 999, 1000, 1023, 999 << 20, 1000 << 20, 92_771_293_593, u64::MAX].map(bytes).into();
        assert_eq!(shown, ["0 B", "999 B", "0.98 KiB", "1.00 KiB", "999 MiB", "0.98 GiB", "86.4 GiB", "16 EiB"]);
        assert!(shown.iter().all(|text| text.len() <= 8));
        assert_eq!(rate_of(1 << 30, Duration::from_millis(500)), "2 GiB/s");
        assert_eq!(rate(f64::NAN), "0 B/s");
    }

    #[test]
    fn times_are_shown_in_few_characters() {
        let shown = [0.0, 25e-9, 999.4e-9, 999.6e-9, 9.994e-6, 9.996e-6, 99.96e-6, 0.9996, 12.34, 123_456.0].map(time);
        assert_eq!(
            shown,
            ["0 ns", "25 ns", "999 ns", "1.00 µs", "9.99 µs", "10.0 µs", "100 µs", "1.00 s", "12.3 s", "123456 s"]
        );
        let column = TimeUnit::for_column(2.1);
        let shown = [2.1, 0.05, 0.0004, 0.3, 1234.5, 0.0].map(|seconds| column.show(seconds));
        assert_eq!(shown, ["2.10 s", "0.050 s", "0.000 s", "0.30 s", "1234 s", "0.00 s"]);
        assert_eq!([0.000_057, 0.0236].map(|seconds| MILLISECOND.show(seconds)), ["0.06 ms", "23.6 ms"]);
        assert_eq!((TimeUnit::for_column(0.3), TimeUnit::for_column(0.04)), (SECOND, MILLISECOND));
        assert_eq!([12.45, 1.4, 123.4].map(significant), ["12.4", "1.40", "123"]);
    }

    #[test]
    fn durations_and_counts_are_formatted() {
        let shown = [0.336, 12.34, 250.0, 3725.0].map(|seconds| duration(Duration::from_secs_f64(seconds)));
        assert_eq!(shown, ["0.34 s", "12.3 s", "4 min 10 s", "1 h 02 min"]);
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!((count_of(1, "frame"), count_of(2, "frame")), ("1 frame".into(), "2 frames".into()));
    }
}
