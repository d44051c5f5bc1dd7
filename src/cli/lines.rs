//! How wide the terminal is, and text that fits it.

pub use crate::text::{cut, wrap_all};

/// Where nobody says how wide the terminal is.
const COLUMNS_DEFAULT: usize = 80;

/// Columns of the terminal on stderr.
pub fn columns() -> usize {
    match rustix::termios::tcgetwinsize(std::io::stderr()) {
        Ok(size) if size.ws_col > 0 => usize::from(size.ws_col),
        _ => COLUMNS_DEFAULT,
    }
}
