//! Chooses the size of an upload's parts, and records the progress of an upload. No I/O.

use serde::{Deserialize, Serialize};
use slotpress_base::quantity::bytes;
use slotpress_base::{Error, Result};

/// S3's limit on the parts of an upload.
pub const PARTS_MAX: u64 = 10_000;

/// Smallest size of a part: S3 accepts 5 MiB, but more parts cost more requests and time.
pub const PART_BYTES_MIN: u64 = 16 * 1024 * 1024;

/// S3's limit on the size of a part.
const PART_BYTES_MAX: u64 = 5 * 1024 * 1024 * 1024;

/// The size of a part is a multiple of this.
const UNIT_BYTES: u64 = 1024 * 1024;

/// Maximum number of parts in flight: enough for a connection of 10 Gbit/s to another continent.
const PARTS_IN_FLIGHT_MAX: u64 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartSizes {
    /// Length of every part but the last: some stores require equal lengths.
    pub part_bytes: u64,
    /// Number of parts that are sent at the same time, while one more is being filled.
    pub parts_in_flight: usize,
}

impl PartSizes {
    /// Chooses part sizes for a file of at most `bytes_max` with this much memory.
    pub fn new(bytes_max: u64, memory_bytes: u64) -> Result<Self> {
        let part_bytes = bytes_max.div_ceil(PARTS_MAX).next_multiple_of(UNIT_BYTES).max(PART_BYTES_MIN);
        if part_bytes > PART_BYTES_MAX {
            let message = format!(
                "an upload of {} needs more than the {PARTS_MAX} parts of {} that a store allows",
                bytes(bytes_max),
                bytes(PART_BYTES_MAX)
            );
            return Err(Error::failed(message).with_hint("write into a directory instead"));
        }
        Self::with_size(part_bytes, memory_bytes)
    }

    /// Uses parts of a size that an earlier process has chosen.
    pub fn with_size(part_bytes: u64, memory_bytes: u64) -> Result<Self> {
        let parts_in_memory = memory_bytes.checked_div(part_bytes).unwrap_or_default();
        if parts_in_memory < 2 || part_bytes > PART_BYTES_MAX {
            let needed = bytes(part_bytes.saturating_mul(2));
            return Err(Error::failed(format!(
                "an upload in parts of {} needs {needed} of memory, more than {}",
                bytes(part_bytes),
                bytes(memory_bytes)
            ))
            .with_hint("raise --memory: a store accepts at most 10,000 parts"));
        }
        let parts_in_flight = parts_in_memory.saturating_sub(1).min(PARTS_IN_FLIGHT_MAX) as usize;
        Ok(Self { part_bytes, parts_in_flight })
    }
}

/// Progress of an upload, for a journal from which another process resumes it. Contains no secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadState {
    /// Id of the upload.
    pub upload_id: String,
    /// Length in bytes of every part but the last.
    pub part_bytes: u64,
    /// Tags of the stored parts, from the first one up to the first gap.
    pub tags: Vec<String>,
}

impl UploadState {
    /// Returns an upper bound for the number of bytes that need not be sent again: the last part of the file
    /// counts as a full part, although it may be shorter.
    pub fn done_bytes(&self) -> u64 {
        self.part_bytes.saturating_mul(self.tags.len() as u64)
    }

    /// True if an upload of a file of this length can have this state.
    pub(crate) fn fits_length(&self, length_bytes: u64) -> bool {
        let is_plain = |text: &str| text.len() <= 4096 && !text.contains(char::is_control);
        (UNIT_BYTES..=PART_BYTES_MAX).contains(&self.part_bytes)
            // An empty file has one part.
            && self.tags.len() as u64 <= length_bytes.div_ceil(self.part_bytes).clamp(1, PARTS_MAX)
            && !self.upload_id.is_empty()
            && is_plain(&self.upload_id)
            && self.tags.iter().all(|tag| is_plain(tag))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn parts_suffice_for_the_file_and_fit_into_memory(bytes_max in 0u64..1 << 42, memory_bytes in 0u64..1 << 36) {
            match PartSizes::new(bytes_max, memory_bytes) {
                Ok(sizes) => {
                    prop_assert!(sizes.part_bytes * PARTS_MAX >= bytes_max);
                    prop_assert!((sizes.parts_in_flight as u64 + 1) * sizes.part_bytes <= memory_bytes);
                    prop_assert!((1..=PARTS_IN_FLIGHT_MAX as usize).contains(&sizes.parts_in_flight));
                }
                Err(_) => prop_assert!(bytes_max.div_ceil(PARTS_MAX).max(PART_BYTES_MIN) * 2 + 2 * UNIT_BYTES > memory_bytes),
            }
        }
    }
}
