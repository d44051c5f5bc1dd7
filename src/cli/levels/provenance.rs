//! The origin of the numbers on a page: input, time, machine, command, versions.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use slotpress_base::quantity;
use slotpress_base::text::ShowPath;
use slotpress_base::threads::available_threads;

use crate::cli::restore::shell_word;

/// The origin of numbers that this process measures.
pub fn of_this_run(input: &Path) -> Vec<(&'static str, String)> {
    let input = input.canonicalize().unwrap_or_else(|_| input.to_path_buf());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let cores = available_threads();
    let first_line = |path: &str| fs::read_to_string(path).ok().and_then(|text| Some(text.lines().next()?.to_string()));
    let processor = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| processor(&text));
    // A URL may hold a password or a key: what is measured is a path, so that none is expected.
    let command: Vec<String> = std::env::args_os().skip(1).map(|word| shell_word(Path::new(&word))).collect();
    [
        ("input", Some(input.shown())),
        ("date", Some(show_date(now))),
        ("CPU", processor),
        ("cores", Some(format!("{cores} that the process may use"))),
        ("kernel", first_line("/proc/sys/kernel/osrelease").map(|release| format!("Linux {release}"))),
        ("command", Some(format!("slotpress {}", command.join(" ")))),
        ("versions", Some(format!("slotpress {}, zstd {}", env!("CARGO_PKG_VERSION"), zstd_safe::version_string()))),
    ]
    .into_iter()
    .filter_map(|(what, value)| Some((what, value?)))
    .collect()
}

/// The processor's name; `None` on architectures that have no `model name`.
fn processor(cpuinfo: &str) -> Option<String> {
    let (_, name) = cpuinfo.lines().find(|line| line.starts_with("model name"))?.split_once(':')?;
    Some(name.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// `2026-11-21 18:57 UTC` of seconds since 1970.
fn show_date(seconds: u64) -> String {
    format!("{} {:02}:{:02} UTC", quantity::date(seconds), seconds / 3600 % 24, seconds / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        // As `date -u -d @SECONDS` prints them.
        for (seconds, date) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_399, "2000-02-28 23:59 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (1_735_689_599, "2024-12-31 23:59 UTC"),
            (1_795_287_420, "2026-11-21 18:57 UTC"),
        ] {
            assert_eq!(show_date(seconds), date, "{seconds}");
        }
    }

    #[test]
    fn processors() {
        let cpuinfo = "processor\t: 0\nmodel name\t: AMD  EPYC 9654\nprocessor\t: 1\nmodel name\t: other\n";
        assert_eq!(processor(cpuinfo).as_deref(), Some("AMD EPYC 9654"));
        assert_eq!(processor("Features: fp asimd"), None);
    }
}
