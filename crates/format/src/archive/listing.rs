//! What `slotpress serve` and those who read its list agree on (`docs/serving.md` describes it). Not here: making the list
//! and reading it (`catalog::listing` of the crate `slotpress-read`).

use serde::{Deserialize, Serialize};

/// Where a server has its list of archives, below the address that it is known by.
pub const PATH: &str = "/api/v1/archives";
/// The way from that list to the archives, for references that are relative to it.
pub const FROM_LIST: &str = "../../";

/// What `publish` writes beside archives, for who polls: the newest pair, in the same form.
pub const LATEST: &str = "latest.json";

/// Where a server redirects to its newest full archive, whatever that is compressed with. Validators do too.
pub const NEWEST_FULL: &str = "/snapshot.tar.bz2";
/// The same for the newest incremental archive on it.
pub const NEWEST_INCREMENTAL: &str = "/incremental-snapshot.tar.bz2";

/// The version that both write and read. Fields are added to it, never renamed or removed.
pub const VERSION: u32 = 1;

/// Where an archive's frame hashes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameHashesAt {
    /// Where the frame that holds them starts in the file.
    pub offset_bytes: u64,
    /// How many there are.
    pub frames: u64,
}
