//! What each client accepts at most, each number with its source: docs/snapshot-format.md#archive says how it was found
//! out. The rules that use them stand above, in the book of rules.

use crate::STORAGE_BYTES_MAX;

/// The most entries of an archive that Agave unpacks (`MAX_SNAPSHOT_ARCHIVE_UNPACKED_COUNT` in `agave-snapshots`).
pub const ENTRIES_MAX: u64 = 5_000_000;

/// The most bytes that Agave unpacks in all, as the headers state them (`MAX_SNAPSHOT_ARCHIVE_UNPACKED_ACTUAL_SIZE`).
pub const UNPACKED_BYTES_MAX: u64 = 4 << 40;

/// The most that one entry may hold. Storages end at 16 GiB in both clients; the bank file and the status cache are
/// about 1 GB.
pub const ENTRY_BYTES_MAX: u64 = STORAGE_BYTES_MAX;

/// The largest window that Agave gives a frame, as a power of two: what the zstd library gives unless told otherwise
/// (`ZSTD_WINDOWLOG_LIMIT_DEFAULT`).
pub const AGAVE_WINDOW_LOG_MAX: u32 = 27;

/// The same in bytes.
pub const AGAVE_WINDOW_BYTES_MAX: u64 = 1 << AGAVE_WINDOW_LOG_MAX;

/// The largest window that Firedancer gives, in bytes (its snapshot decompression tile).
pub const FIREDANCER_WINDOW_BYTES_MAX: u64 = 1 << 25;

/// Slots from here on make Firedancer abort.
pub const FIREDANCER_SLOTS: u64 = 1 << 32;
