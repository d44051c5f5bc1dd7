//! Downloads that resume: an archive from one server or several into a partial file, which can be read while it
//! arrives.
//!
//! [`fetch_whole`] fetches an archive until it has its name; [`Download`] is one attempt at it. [`PartialFile`] is where
//! the bytes are; `ranged` and `in_order` are the two ways to get them, and [`accept`] decides whether they are the
//! archive. Not here: how servers are spoken to ([`net`](crate)), and which archive is worth having.

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
mod whole;

use std::time::Duration;

pub use accept::accept_file;
use derive_setters::Setters;
pub use download::Download;
pub use journal::Identity;
pub use partial::{PartialFile, remove_left_journal};
use serde::Serialize;
use slotpress_base::progress::{self};
use slotpress_base::{Error, ErrorKind, Progress, Result};
use slotpress_format::Root;
pub use whole::{fetch_whole, take_up};

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

/// What bounds a download.
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
pub struct Limits {
    /// Connections at a time.
    pub streams: usize,
    /// The longest archive.
    pub max_bytes: u64,
    /// An end that is longer than this is not fetched first.
    pub tail_bytes_max: u64,
    /// The most that one request asks for; the least, in a small archive, is a sixteenth of it.
    pub piece_bytes_max: u64,
    /// Slower than this over 15 seconds, the download is ended.
    #[setters(into)]
    pub min_rate_bytes_per_second: Option<u64>,
    /// The root that the archive must have.
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

/// Why a download ended without the archive. What arrived is kept in the partial file.
#[derive(Debug)]
pub enum Ended {
    /// These bytes are not to be had any more: only another archive helps.
    Lost(Error),
    /// What came is not the archive that was asked for, or damaged: only another server helps.
    Wrong(Error),
    /// The first server does not do, and there are others.
    First(Error),
    /// The server sends no ranges although it said so.
    NoRanges,
    /// Anything else; the same again may help.
    Failed(Error),
}

impl Ended {
    fn of_net(error: NetError) -> Self {
        match error.kind() {
            NetErrorKind::Gone | NetErrorKind::Changed => Self::Lost(error.into()),
            _ => Self::Failed(error.into()),
        }
    }

    /// What a check of the bytes said.
    fn of_check(error: Error) -> Self {
        if error.kind() == ErrorKind::Damaged { Self::Wrong(error) } else { Self::Failed(error) }
    }

    /// As an error.
    pub fn error(&self) -> Error {
        match self {
            Self::Lost(error) | Self::Wrong(error) | Self::First(error) | Self::Failed(error) => error.clone(),
            Self::NoRanges => Error::new(ErrorKind::Network, "the server sends no ranges although it said so"),
        }
    }
}

/// What was fetched.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Fetched {
    /// The archive's length.
    pub length_bytes: u64,
    /// Bytes that an earlier run had left.
    pub kept_bytes: u64,
    /// Where the archive has frame hashes, all of which were right.
    pub root: Option<Root>,
    /// The servers that gave bytes.
    pub servers: Vec<GivenBytes>,
    /// How long it took.
    pub elapsed: Duration,
}

/// What a server gave of an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct GivenBytes {
    /// The server, without secrets.
    pub server: String,
    /// How many bytes.
    pub bytes: u64,
}

impl Fetched {
    /// Bytes that came from servers.
    pub fn fetched_bytes(&self) -> u64 {
        self.servers.iter().map(|given| given.bytes).sum()
    }
}

/// Waits, unless the user asks to stop.
fn pause(time: Duration, progress: &dyn Progress) -> Result<()> {
    progress::wait(progress, time);
    progress.check()
}
