//! Limits of each client, which docs/snapshot-format.md#archive also lists. The rules that apply these
//! limits are in `slotpress-read`.

use crate::STORAGE_BYTES_MAX;

/// Maximum number of entries that Agave unpacks (`MAX_SNAPSHOT_ARCHIVE_UNPACKED_COUNT` in
/// `agave-snapshots`).
pub const ENTRIES_MAX: u64 = 5_000_000;

/// Limit of Agave on the sum of the lengths that all tar headers state, in bytes
/// (`MAX_SNAPSHOT_ARCHIVE_UNPACKED_ACTUAL_SIZE`).
pub const UNPACKED_BYTES_MAX: u64 = 4 << 40;

/// Limit on the length of one entry, in bytes. Both clients limit storages to 16 GiB; bank file and
/// status cache take about 1 GB.
pub const ENTRY_BYTES_MAX: u64 = STORAGE_BYTES_MAX;

/// Largest window that Agave allows for a frame that is not a single segment, as a power of two: the default
/// of the zstd library (`ZSTD_WINDOWLOG_LIMIT_DEFAULT`).
pub const AGAVE_WINDOW_LOG_MAX: u32 = 27;

pub const AGAVE_WINDOW_BYTES_MAX: u64 = 1 << AGAVE_WINDOW_LOG_MAX;

/// Largest window that Firedancer allows, in bytes (its snapshot decompression tile).
pub const FIREDANCER_WINDOW_BYTES_MAX: u64 = 1 << 25;

/// Number of slots that Firedancer supports. It aborts at this slot and above.
pub const FIREDANCER_SLOTS: u64 = 1 << 32;
