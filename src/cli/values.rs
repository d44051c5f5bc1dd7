//! Parses the values of flags, and formats quantities and the time.

use std::io::Read;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use slotpress::Error;
use slotpress::archive::{ZSTD_LEVEL_MAX, ZSTD_LEVEL_MIN};
use slotpress::program::is_zstd_level;
use slotpress::types::Address;
pub use slotpress_base::quantity::{
    age as show_age, bytes as show_bytes, count as show_count, count_of, duration as show_duration,
    rate_of as show_rate, ratio as show_ratio,
};
use slotpress_base::{EscapePath, IoContext, THREADS_MAX, clock};
use slotpress_format::parse_number;
use slotpress_read::find_owner;

/// A value of a flag: its name, the value, its help text.
pub struct Choice<T>(pub &'static str, pub T, pub &'static str);

/// Makes a parser for a flag with these values.
pub fn choice_parser<T: Clone + Send + Sync + 'static>(
    choices: &'static [Choice<T>],
) -> impl TypedValueParser<Value = T> {
    let names = choices.iter().map(|Choice(name, _, help)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(names).try_map(|name| {
        let choice = choices.iter().find(|choice| choice.0 == name);
        choice.map(|Choice(_, value, _)| value.clone()).ok_or("no such value")
    })
}

/// Maximum length of a list in a file: enough for 10 million addresses.
const LIST_BYTES_MAX: u64 = 512 << 20;

/// Reads the list in a file: one item per line; `#` begins a comment.
///
/// # Errors
/// If an item cannot be parsed, or there is none.
pub fn read_list<T>(path: &Path, item: &str, parse: impl Fn(&str) -> Result<T, Error>) -> Result<Vec<T>, Error> {
    let mut text = String::new();
    slotpress_base::open_file(path)?.take(LIST_BYTES_MAX + 1).read_to_string(&mut text).or_path("read", path)?;
    if text.len() as u64 > LIST_BYTES_MAX {
        let [path, max] = [path.escaped(), show_bytes(LIST_BYTES_MAX)];
        return Err(Error::usage(format!("{path} is longer than {max}")));
    }
    let mut items = Vec::new();
    for (index, line) in text.lines().map(str::trim).enumerate() {
        let place = || format!("{}, line {}", path.escaped(), index + 1);
        if !line.is_empty() && !line.starts_with('#') {
            items.push(parse(line).map_err(|error| error.with_place(place()))?);
        }
    }
    if items.is_empty() {
        return Err(
            Error::usage(format!("{} lists no {item}", path.escaped())).with_hint(format!("write one {item} per line"))
        );
    }
    Ok(items)
}

/// Parses a size: `8MiB`, `64k`, `4 GB`, `1048576`. `KiB`, `k` and so on are powers of 1024; `kB` and so on are
/// powers of 1000.
pub fn parse_size(text: &str) -> Result<u64, String> {
    parse_size::Config::new()
        .with_default_factor(1)
        .parse_size(complete_unit(text).as_bytes())
        .map_err(|_| "sizes look like 8MiB, 512KiB, 4GiB".to_string())
}

/// Completes a single letter to a binary unit, as `dd`, `split` and `du` do: `8M` is 8 MiB.
fn complete_unit(text: &str) -> String {
    match text.trim().char_indices().last() {
        Some((index, unit)) if "kKmMgGtT".contains(unit) && index > 0 => format!("{}iB", text.trim()),
        _ => text.trim().to_string(),
    }
}

/// Parses a duration: `24h`, `7d`, `90s`, `15min`, `500ms`. A number without a unit is seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    /// About a hundred years. Larger values are typing errors.
    const SECONDS_MAX: f64 = 3.2e9;
    let text = text.trim();
    let unit_at = text.find(|char: char| char != '.' && !char.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let seconds = match unit.trim() {
        "us" | "µs" => 1e-6,
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err("times look like 24h, 7d, 15min, 90s, 500ms".into()),
    };
    match number.parse::<f64>() {
        Ok(number) if (0.0..=SECONDS_MAX).contains(&(number * seconds)) => {
            Ok(Duration::from_secs_f64(number * seconds))
        }
        _ => Err("times look like 24h, 7d, 15min, 90s, 500ms".into()),
    }
}

/// Parses a number within a range. For any other text, the error is `message`.
pub fn parse_in_range<T: FromStr + PartialOrd>(
    text: &str,
    range: RangeInclusive<T>,
    message: &str,
) -> Result<T, String> {
    text.trim().parse().ok().filter(|number| range.contains(number)).ok_or_else(|| message.to_string())
}

pub fn parse_zstd_level(text: &str) -> Result<i32, String> {
    match text.parse() {
        Ok(level) if is_zstd_level(level) => Ok(level),
        _ => Err(format!("levels are 1 to {ZSTD_LEVEL_MAX}, or {ZSTD_LEVEL_MIN} to -1, which are faster")),
    }
}

/// Returns the time in UTC, as log lines show it: `2026-11-22T09:30:05Z`.
pub fn time_now() -> String {
    humantime::format_rfc3339_seconds(clock::now()).to_string()
}

/// Parses an IP address with a port. If only a port is given, the error suggests addresses.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| match text.trim_start_matches(':').parse::<u16>() {
        Ok(port) => format!("an address and a port are needed: 127.0.0.1:{port}, or 0.0.0.0:{port} for everywhere"),
        Err(_) => "an address and a port are needed, such as 127.0.0.1:8890 or [::]:8890".to_string(),
    })
}

pub fn parse_threads(text: &str) -> Result<usize, String> {
    let message = format!("must be 1 to {THREADS_MAX}");
    parse_in_range(text, 1..=THREADS_MAX, &message)
}

pub fn parse_slot(text: &str) -> Result<u64, String> {
    let message = "a slot is a whole number, such as 350006937";
    parse_in_range(text, 0..=u64::MAX, message)
}

pub fn parse_pubkey(text: &str) -> Result<Address, String> {
    text.parse().map_err(|_| "an address is 32 bytes in base58".to_string())
}

/// Parses a program that owns accounts: its address, or a name shown by `--by-owner`.
pub fn parse_owner(text: &str) -> Result<Address, String> {
    match find_owner(text) {
        Some(owner) => Ok(owner),
        None => parse_pubkey(text)
            .map_err(|error| format!("{error}, and `inspect --by-owner` does not know a program {text}")),
    }
}

/// Refuses a directory inside a ledger (all bank snapshots, or one of them) in place of the ledger. The hint
/// names the ledger.
pub fn check_ledger(path: &Path) -> Result<(), Error> {
    let is_snapshots = |path: &Path| path.file_name().is_some_and(|name| name == "snapshots");
    if !path.is_dir() || path.join("snapshots").exists() {
        return Ok(());
    }
    let slot = path.file_name().and_then(|name| parse_number(&name.to_string_lossy()));
    let (ledger, slot_flag) = match (slot, path.parent()) {
        (Some(slot), Some(parent)) if is_snapshots(parent) => (parent.parent(), format!(" --slot {slot}")),
        (None, Some(ledger)) if is_snapshots(path) => (Some(ledger), String::new()),
        _ => return Ok(()),
    };
    let Some(ledger) = ledger else { return Ok(()) };
    let [path, mut ledger] = [path, ledger].map(|path| path.escaped());
    if ledger.is_empty() {
        ledger = ".".to_string();
    }
    Err(Error::usage(format!("{path} is a directory inside a ledger, not the ledger"))
        .with_hint(format!("pass the ledger directory: {ledger}{slot_flag}")))
}

/// Quotes a path for pasting into a shell. Escapes control characters in the shell's `$'…'` syntax.
pub fn quote_for_shell(path: &Path) -> String {
    let text = path.to_string_lossy();
    if text.contains(char::is_control) {
        let escape = |char: char| match char {
            '\'' | '\\' => format!("\\{char}"),
            char if char.is_control() => format!("\\u{:04x}", u32::from(char)),
            char => char.to_string(),
        };
        return format!("$'{}'", text.chars().map(escape).collect::<String>());
    }
    let is_plain = text.chars().all(|char| char.is_ascii_alphanumeric() || "/._-+@:,=".contains(char));
    if is_plain && !text.is_empty() { text.into_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_for_the_shell() {
        assert_eq!(quote_for_shell(Path::new("/mnt/ledger-1")), "/mnt/ledger-1");
        assert_eq!(quote_for_shell(Path::new("/mnt/my ledger's")), r"'/mnt/my ledger'\''s'");
        assert_eq!(quote_for_shell(Path::new("/a'b\n\x1b")), r"$'/a\'b\u000a\u001b'");
    }

    #[test]
    fn sizes_are_parsed() {
        for (text, bytes) in
            [("8MiB", 8 << 20), ("8M", 8 << 20), ("64k", 64 << 10), ("1 GB", 1_000_000_000), ("512", 512)]
        {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "MiB", "-1", "8XiB", "8 M i B", "99999999999999999999GiB"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_parsed() {
        for (text, seconds) in [("24h", 86_400.0), ("7d", 604_800.0), ("90", 90.0), ("1.5 min", 90.0), ("500ms", 0.5)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_secs_f64(seconds)), "{text}");
        }
        for text in ["", "h", "-1s", "1w", "1e5", "inf", "99999999999d", "1.2.3s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
