//! Which clients can read an archive, by what is known without looking at accounts (format page, section 6).

use crate::{
    inspect::EntrySummary,
    restore::{input::Compression, walk::FrameStatistics},
};

/// The largest window that Firedancer's decoder takes, in bytes.
const FIREDANCER_WINDOW_BYTES_MAX: u64 = 1 << 25;

/// The largest window that Agave's decoder takes, in bytes.
const AGAVE_WINDOW_BYTES_MAX: u64 = 1 << 27;

/// Whether a client can read an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientVerdict {
    /// The client's name.
    pub client: &'static str,
    /// Why it refuses; empty when it reads the archive.
    pub refusals: Vec<String>,
}

/// The verdict of every client.
pub fn client_verdicts(
    compression: Compression,
    entries: &EntrySummary,
    frames: &FrameStatistics,
    slot: u64,
) -> Vec<ClientVerdict> {
    let window = |limit: u64| {
        (frames.window_bytes_max > limit)
            .then(|| format!("a frame needs a window of {} bytes; {limit} are its limit", frames.window_bytes_max))
    };
    let agave = [
        (!matches!(compression, Compression::Zstd | Compression::Lz4))
            .then(|| format!(".{}: it reads .tar.zst and .tar.lz4", compression.extension().as_str())),
        window(AGAVE_WINDOW_BYTES_MAX),
    ];
    let firedancer = [
        (!matches!(compression, Compression::Zstd | Compression::None))
            .then(|| format!(".{}: it reads .tar.zst and .tar", compression.extension().as_str())),
        window(FIREDANCER_WINDOW_BYTES_MAX),
        entries.is_bank_file_late.then(|| "accounts come before the bank file".to_string()),
        (slot.max(entries.storage_slot_max) > u64::from(u32::MAX)).then(|| "slots of 2^32 and above".to_string()),
    ];
    vec![
        ClientVerdict { client: "Agave", refusals: agave.into_iter().flatten().collect() },
        ClientVerdict { client: "Firedancer", refusals: firedancer.into_iter().flatten().collect() },
    ]
}
