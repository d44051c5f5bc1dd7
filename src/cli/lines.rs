//! The width of the terminal, and the time as log lines show it.

use std::io::IsTerminal;
use std::os::fd::AsFd;

use slotpress_base::clock;
pub use slotpress_base::text::cut;

const COLUMNS_DEFAULT: usize = 80;

/// True if the locale uses UTF-8, according to the first of `LC_ALL`, `LC_CTYPE` and `LANG` that is
/// set. True if none is set, as in most services.
pub fn is_utf8() -> bool {
    let set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find(|name| set(name)).and_then(std::env::var_os);
    locale.is_none_or(|locale| {
        let locale = locale.to_string_lossy().to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

pub fn columns() -> usize {
    columns_of(std::io::stderr()).unwrap_or(COLUMNS_DEFAULT)
}

/// Columns for results: those of the terminal on stdout, at most 80, as longer lines are hard to
/// read.
pub fn columns_of_results() -> usize {
    let stdout = std::io::stdout();
    let columns = if stdout.is_terminal() { columns_of(stdout) } else { None };
    columns.unwrap_or(COLUMNS_DEFAULT).min(COLUMNS_DEFAULT)
}

fn columns_of(terminal: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(terminal).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// The time in UTC, as log lines show it: `2026-11-22T09:30:05Z`.
pub fn time_now() -> String {
    humantime::format_rfc3339_seconds(clock::now()).to_string()
}
