//! Resumable downloads: fetches an archive from one or more servers into a partial file, which can
//! be read while it arrives.
//!
//! [`Download`] is one attempt to fetch an archive, and [`DownloadFault`] tells what its failure means
//! for the source. [`PartialFile`] holds the bytes. `ranged` and `in_order` are the two ways to fetch
//! them, and [`accept`] decides whether they are the requested archive. Callers decide which archive to
//! fetch, and what to do after a failure.

pub mod accept;
mod download;
mod in_order;
mod journal;
pub(crate) mod mirrors;
pub mod partial;
mod pieces;
mod ranged;
mod receive;
mod tail;

use std::time::Duration;

pub use accept::accept_file;
use derive_setters::Setters;
pub use download::Download;
pub use journal::ArchiveIdentity;
pub use partial::{PartialFile, remove_leftover_journal};
use serde::Serialize;
use slotpress_base::{Error, ErrorKind};
use slotpress_format::ArchiveRoot;

use crate::{NetError, NetErrorKind};

pub const STREAMS_DEFAULT: usize = 8;

/// Largest number of connections at a time. Servers may mistake more for an attack.
pub const STREAMS_MAX: usize = 64;

/// Limits of a download.
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
#[warn(missing_docs)]
pub struct FetchLimits {
    /// Number of connections at a time, over all servers: 1 to 64. Other numbers are replaced with the nearest
    /// of these. A server without ranges gets only one connection. Default: 8.
    pub streams: usize,
    /// Limit on the length of an archive, in bytes. Default: 4 TiB, Agave's limit on the disk space of an
    /// unpacked archive.
    pub max_bytes: u64,
    /// Largest number of bytes that one request asks for, unless one frame is longer. Requests become smaller
    /// towards the end of the archive, down to a sixteenth of this. Default: 16 MiB. Between requests of this
    /// size, little time is lost, and a reader does not wait long for the next bytes.
    pub piece_bytes_max: u64,
    /// Minimum rate: the download fails if it is slower than this over 15 seconds. Default: none.
    #[setters(strip_option)]
    pub min_rate_bytes_per_second: Option<u64>,
    /// Root that the archive must have; offers with a different root are ignored. Default: any.
    #[doc(hidden)]
    #[setters(skip)]
    pub expect_root: Option<ArchiveRoot>,
    /// Time after which a download gives up on a failing server that sends less than 1 KiB/s. Pauses
    /// between two requests grow up to a quarter of this time. Default: 2 minutes, longer
    /// than a machine takes to restart.
    pub give_up_after: Duration,
}

impl Default for FetchLimits {
    fn default() -> Self {
        Self {
            streams: STREAMS_DEFAULT,
            max_bytes: 4 << 40,
            piece_bytes_max: 16 << 20,
            min_rate_bytes_per_second: None,
            expect_root: None,
            give_up_after: Duration::from_secs(120),
        }
    }
}

/// Meaning of a failed download for its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownloadFault {
    /// The source no longer has the archive, or has a different one under its name.
    Lost,
    /// The bytes are damaged, or belong to a different archive than the requested one.
    Wrong,
    /// The server failed for too long, or its responses are invalid.
    Failed,
}

impl DownloadFault {
    /// Classifies a failure. Returns `None` if any other source would fail in the same way.
    pub fn classify(error: &Error) -> Option<Self> {
        match (NetError::find_in(error).map(NetError::kind), error.kind()) {
            (Some(NetErrorKind::Gone | NetErrorKind::Changed), _) => Some(Self::Lost),
            (Some(NetErrorKind::InsideRuntime), _) => None,
            (_, ErrorKind::Damaged) => Some(Self::Wrong),
            (Some(_), _) | (_, ErrorKind::Network) => Some(Self::Failed),
            _ => None,
        }
    }
}

/// Result of a successful download.
#[derive(Clone, Debug, Default)]
pub struct Fetched {
    pub file_bytes: u64,
    /// Number of bytes that an earlier run had fetched.
    pub kept_bytes: u64,
    /// Root of the frame hashes, all of which match; `None` if the archive has no frame hashes.
    pub root: Option<ArchiveRoot>,
    /// Servers that sent useful bytes, best first.
    pub servers: Vec<BytesFromServer>,
    pub elapsed: Duration,
}

/// Number of bytes that one server contributed to the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BytesFromServer {
    pub server: String,
    pub bytes: u64,
}

impl Fetched {
    pub fn fetched_bytes(&self) -> u64 {
        self.servers.iter().map(|server| server.bytes).sum()
    }
}
