//! How wide the terminal is, and text that fits it.

pub use slotpress_base::text::{cut, wrap, wrap_all, wrap_line};
use std::{io::IsTerminal, os::fd::AsFd};

/// Where the terminal's width is unknown.
const COLUMNS_DEFAULT: usize = 80;

/// Columns of the terminal on stderr.
pub fn columns() -> usize {
    columns_of(std::io::stderr()).unwrap_or(COLUMNS_DEFAULT)
}

/// Columns of the terminal that results go to; `None` where they go elsewhere.
pub fn columns_of_results() -> Option<usize> {
    let stdout = std::io::stdout();
    if stdout.is_terminal() { columns_of(stdout) } else { None }
}

fn columns_of(terminal: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(terminal).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}
