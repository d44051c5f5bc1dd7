//! Requests a server's list of archives, as `slotpress serve` offers it. Its content is the server's claim.

use slotpress_base::Progress;
use slotpress_format::PATH;
use slotpress_read::Listed;
use slotpress_read::catalog::listed::parse;

use super::{Client, NetError, NetErrorKind, Url};

/// Limit on the size of a list in bytes: tens of thousands of names, or some thousands of archives with all fields.
pub(super) const LISTING_BYTES_MAX: usize = 8 * 1024 * 1024;

impl Client {
    /// Requests the list of the server at `url`; `None` if it answers and has none.
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
                // A server without a list may have archives all the same.
                _ => Ok(None),
            },
        }
    }
}
