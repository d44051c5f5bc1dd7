//! How wide the terminal is, and text that fits it; and the time, as lines of a log have it.

use std::io::IsTerminal;
use std::os::fd::AsFd;

pub use slotpress_base::text::{cut, wrap, wrap_all, wrap_line};

/// Where the terminal's width is unknown.
const COLUMNS_DEFAULT: usize = 80;

/// Whether the locale's characters are those of UTF-8, by the variable that counts; where none is set, as a service has it,
/// they are taken to be.
pub fn is_utf8() -> bool {
    let set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find(|name| set(name)).and_then(std::env::var_os);
    locale.is_none_or(|locale| {
        let locale = locale.to_string_lossy().to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

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

/// The time, as logs have it: `2026-11-22T09:30:05Z`.
pub fn time_now() -> String {
    use std::time::SystemTime;

    use slotpress_base::quantity;
    let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{}T{hours:02}:{minutes:02}:{:02}Z", quantity::date(seconds), seconds % 60)
}
