//! Downloads that resume: an archive from one server or several into a partial file, which can be read while it
//! arrives.
//!
//! [`Download`] is one attempt at an archive, and [`Fault`] says what its failure means for the source. [`PartialFile`] is where
//! the bytes are; `ranged` and `in_order` are the two ways to get them, and [`accept`] decides whether they are the
//! archive. Not here: how servers are spoken to ([`net`](crate)), which archive is worth having, and what follows on a failure.

pub mod accept;
mod download;
mod in_order;
mod journal;
mod lease;
mod mirrors;
pub mod partial;
mod pieces;
mod ranged;
mod receive;
mod tail;
pub mod take_up;

use std::time::Duration;

pub use accept::accept_file;
use derive_setters::Setters;
pub use download::Download;
pub use journal::Identity;
pub use partial::{PartialFile, remove_left_journal};
use serde::Serialize;
use slotpress_base::{Error, ErrorKind};
use slotpress_format::Root;
pub use take_up::take_up;

use crate::{NetError, NetErrorKind};

/// Connections at a time, unless told otherwise.
pub const STREAMS_DEFAULT: usize = 8;

/// Connections at a time at most: more are an attack.
pub const STREAMS_MAX: usize = 64;

/// Fetched by one request at most, unless told otherwise: long enough that the time between two requests does not count,
/// short enough that a reader who waits for the oldest does not wait for long.
const PIECE_BYTES_MAX_DEFAULT: u64 = 16 * 1024 * 1024;

/// A server of which hardly anything was kept for so long is given up: longer than a machine takes to start.
const GIVE_UP_AFTER_DEFAULT: Duration = Duration::from_secs(120);

#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
pub struct Limits {
    pub streams: usize,
    pub max_bytes: u64,
    /// An end that is longer than this is not fetched first.
    pub tail_bytes_max: u64,
    /// The most that one request asks for; the least, in a small archive, is a sixteenth of it.
    pub piece_bytes_max: u64,
    /// Slower than this over 15 seconds, the download is ended.
    #[setters(into)]
    pub min_rate_bytes_per_second: Option<u64>,
    #[setters(into)]
    pub expect_root: Option<Root>,
    /// A server that fails, and of which less than 1 KiB/s was kept for so long, is given up. Pauses grow up to a quarter of it.
    pub give_up_after: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            streams: STREAMS_DEFAULT,
            // As Agave's bound on what an archive takes on disk.
            max_bytes: 4 << 40,
            // The most that a reader takes of an index and a seek table.
            tail_bytes_max: 512 << 20,
            piece_bytes_max: PIECE_BYTES_MAX_DEFAULT,
            min_rate_bytes_per_second: None,
            expect_root: None,
            give_up_after: GIVE_UP_AFTER_DEFAULT,
        }
    }
}

/// The meaning of a failed download for its source. Bytes that arrived are kept in the partial file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The source has the archive no more, or has another one under its name.
    Lost,
    /// The bytes are not the archive that was asked for, or damaged.
    Wrong,
    /// The server sends no ranges although it said so.
    NoRanges,
    /// The server failed for too long, or makes no sense.
    Failed,
}

impl Fault {
    /// Classifies a failure; `None` where another source would fail in the same way.
    pub fn of(error: &Error) -> Option<Self> {
        match (NetError::of(error).map(NetError::kind), error.kind()) {
            (Some(NetErrorKind::Gone | NetErrorKind::Changed), _) => Some(Self::Lost),
            (Some(NetErrorKind::NoRanges), _) => Some(Self::NoRanges),
            (Some(NetErrorKind::InsideRuntime), _) => None,
            (_, ErrorKind::Damaged) => Some(Self::Wrong),
            (Some(_), _) | (_, ErrorKind::Network) => Some(Self::Failed),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Fetched {
    pub length_bytes: u64,
    pub kept_bytes: u64,
    /// Where the archive has frame hashes, all of which were right.
    pub root: Option<Root>,
    pub servers: Vec<GivenBytes>,
    pub elapsed: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct GivenBytes {
    pub server: String,
    pub bytes: u64,
}

impl Fetched {
    pub fn fetched_bytes(&self) -> u64 {
        self.servers.iter().map(|given| given.bytes).sum()
    }
}
