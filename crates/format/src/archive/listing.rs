//! Paths and version of the list of archives that `slotpress serve` publishes (`docs/serving.md`).
//! `catalog::list_writer` in `slotpress-read` writes the list, and `list_parser` parses it.

use serde::{Deserialize, Serialize};

/// Path of the list of archives, below the server's base URL.
pub const LISTING_PATH: &str = "/api/v1/archives";
/// Relative reference from the list to the directory of the archives.
pub const ARCHIVES_FROM_LISTING: &str = "../../";

/// File that `publish` writes beside the archives, for clients that poll. It has the form of the list, but
/// contains only the newest full archive and the newest incremental archive on it.
pub const LATEST_JSON: &str = "latest.json";

/// Path that redirects to the newest full archive, whatever its compression. Validators redirect from
/// it too.
pub const NEWEST_FULL: &str = "/snapshot.tar.bz2";
/// Path that redirects to the newest incremental archive that builds on the newest full archive.
pub const NEWEST_INCREMENTAL: &str = "/incremental-snapshot.tar.bz2";

/// Version of the list. Within a version, fields may be added, never renamed or removed.
pub const LISTING_VERSION: u32 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameHashesLocation {
    pub offset_bytes: u64,
    pub frames: u64,
}
