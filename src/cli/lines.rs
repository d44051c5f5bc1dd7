//! The width of the terminal, and the time as log lines show it.

use std::io::IsTerminal;
use std::os::fd::AsFd;

use slotpress_base::clock;
pub use slotpress_base::text::cut;

const COLUMNS_DEFAULT: usize = 80;

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
