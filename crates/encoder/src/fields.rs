//! Fields that occur again in records of any kind: keys of mints, of owners, of programs.

use crate::{
    kinds::u64_at,
    lz::equal_bytes,
    sequences::{OFFSET_MAX, Sequences},
};

/// Shorter literals are no field.
pub(crate) const FIELD_BYTES_MIN: usize = 16;

/// A match of fewer bytes does not pay for its offset.
const MATCH_BYTES_MIN: usize = 8;

/// Most fields are keys.
const KEY_BYTES: usize = 32;

/// Where fields lie that were seen, by a hash of their first 8 bytes.
#[derive(Debug)]
pub(crate) struct Fields {
    /// A position in the lower bits, and above it bits of the hash.
    table: Vec<u32>,
    log: u32,
}

/// Positions in the content of a frame, of 32 MiB at most.
const POSITION_BITS: u32 = 25;

impl Fields {
    /// With 2^`log` entries.
    pub(crate) fn new(log: u32) -> Self {
        Self { table: vec![0; 1 << log], log }
    }

    pub(crate) fn clear(&mut self) {
        self.table.fill(0);
    }

    /// Looks the literals in `start..end` up, field by field.
    #[inline]
    pub(crate) fn look_up(&mut self, content: &[u8], start: usize, end: usize, sequences: &mut Sequences) {
        let mut at = start;
        while at + FIELD_BYTES_MIN <= end {
            let word = u64_at(content, at);
            let hash = word.wrapping_mul(0x9e37_79b1_85eb_ca87);
            let entry = &mut self.table[(hash >> (64 - self.log)) as usize];
            let tag = hash as u32 & (!0 << POSITION_BITS);
            let old = std::mem::replace(entry, tag | at as u32);
            let earlier = (old & !(!0 << POSITION_BITS)) as usize;
            let is_promising = old & (!0 << POSITION_BITS) == tag && earlier < at && at - earlier <= OFFSET_MAX;
            let bytes = if is_promising { equal_bytes(content, earlier, at, end) } else { 0 };
            if bytes >= MATCH_BYTES_MIN {
                sequences.matched(at, bytes, at - earlier);
                at += bytes;
            } else {
                at += KEY_BYTES;
            }
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.table.len() * size_of::<u32>()
    }
}
