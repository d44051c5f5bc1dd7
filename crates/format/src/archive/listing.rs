//! Names and version of the archive list that `slotpress serve` publishes (see `docs/serving.md`). `catalog::listing`
//! in `slotpress-read` makes and parses it.

use serde::{Deserialize, Serialize};

/// Path of the list of archives, below the server's base URL.
pub const PATH: &str = "/api/v1/archives";
/// Relative reference from the list to the archives.
pub const FROM_LIST: &str = "../../";

/// File that `publish` writes beside archives, for clients that poll: the newest pair, in the form of the list.
pub const LATEST: &str = "latest.json";

/// Path that redirects to the newest full archive, whatever its compression. Validators have it too.
pub const NEWEST_FULL: &str = "/snapshot.tar.bz2";
/// Path that redirects to the newest incremental archive for it.
pub const NEWEST_INCREMENTAL: &str = "/incremental-snapshot.tar.bz2";

/// Version of the list. Fields are added to a version, never renamed or removed.
pub const VERSION: u32 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameHashesAt {
    pub offset_bytes: u64,
    pub frames: u64,
}
