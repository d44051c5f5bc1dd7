//! Asking a server for its list of archives, as `slotpress serve` gives it to programs. What it says is the server's claim.

use slotpress_base::Progress;
use slotpress_format::PATH;
use slotpress_read::Listed;
use slotpress_read::catalog::listed::parse;

use super::{Client, NetError, NetErrorKind, Url};

/// The most bytes of a listing: tens of thousands of names, or some thousands of archives with all that is said of them.
pub(super) const LISTING_BYTES_MAX: usize = 8 * 1024 * 1024;

impl Client {
    /// Asks the server at `url` for its list; `None` where it answers, and has none.
    ///
    /// # Errors
    /// The server cannot be reached, or the user asks to stop.
    pub fn listing(&self, url: &Url, stop: &dyn Progress) -> Result<Option<Listed>, NetError> {
        let mut list = url.clone();
        list.set_path(&format!("{}{PATH}", url.path().trim_end_matches('/')));
        match self.small(&list, LISTING_BYTES_MAX, stop) {
            Ok(document) => Ok(parse(&document)),
            Err(error) => match error.kind() {
                NetErrorKind::Connect | NetErrorKind::Timeout | NetErrorKind::Tls | NetErrorKind::Interrupted => {
                    Err(error)
                }
                // A server that answers, but has no such list, may have archives all the same.
                _ => Ok(None),
            },
        }
    }
}
