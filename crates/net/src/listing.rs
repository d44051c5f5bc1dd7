//! Requests a server's list of archives, such as `slotpress serve` has. Nothing proves its content.

use slotpress_base::Progress;
use slotpress_format::LISTING_PATH;
use slotpress_read::Catalog;
use slotpress_read::catalog::list_parser::parse_list;

use super::{Client, NetError, NetErrorKind, Url, shown};

/// Limit on the size of a list in bytes: enough for tens of thousands of names, or some thousands
/// of archives with all fields.
pub(super) const LISTING_BYTES_MAX: usize = 8 * 1024 * 1024;

impl Client {
    /// Requests the list of the server at `url`. Returns `None` if the server answers but has no
    /// list.
    ///
    /// # Errors
    /// The server cannot be reached, or the user asks to stop.
    #[doc(hidden)]
    pub fn listing(&self, url: &Url, stop: &dyn Progress) -> Result<Option<Catalog>, NetError> {
        let mut list = url.clone();
        list.set_path(&format!("{}{LISTING_PATH}", url.path().trim_end_matches('/')));
        match self.small(&list, LISTING_BYTES_MAX, stop) {
            Ok(document) => Ok(parse_list(&document, &shown(url))),
            Err(error) => match error.kind() {
                NetErrorKind::Connect | NetErrorKind::Timeout | NetErrorKind::Tls | NetErrorKind::Interrupted => {
                    Err(error)
                }
                // A server without a list may have archives.
                _ => Ok(None),
            },
        }
    }
}
