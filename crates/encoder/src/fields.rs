//! Fields that occur again in records of any kind: keys of mints, of owners, of programs.

use crate::kinds::{Entry, u64_at};
use crate::lz::equal_bytes;
use crate::sequences::Sequences;

/// Shorter literals are no field.
pub(crate) const FIELD_BYTES_MIN: usize = 16;

/// A match of fewer bytes does not pay for its offset.
const MATCH_BYTES_MIN: usize = 8;

/// Most fields are keys.
const KEY_BYTES: usize = 32;

/// Where fields lie that were seen, by a hash of their first 8 bytes.
#[derive(Debug)]
pub(crate) struct Fields {
    table: Vec<Entry>,
    log: u32,
}

impl Fields {
    /// With 2^`log` entries.
    pub(crate) fn new(log: u32) -> Self {
        Self { table: vec![Entry::default(); 1 << log], log }
    }

    pub(crate) fn clear(&mut self) {
        self.table.fill(Entry::default());
    }

    /// Looks the literals in `start..end` up, field by field.
    #[inline]
    pub(crate) fn look_up(&mut self, content: &[u8], start: usize, end: usize, sequences: &mut Sequences) {
        let mut at = start;
        while at + FIELD_BYTES_MIN <= end {
            let word = u64_at(content, at);
            let hash = word.wrapping_mul(0x9e37_79b1_85eb_ca87);
            let earlier = self.table[(hash >> (64 - self.log)) as usize].replace(hash as u32, at);
            let found = earlier.map(|earlier| (earlier, equal_bytes(content, earlier, at, end)));
            match found.filter(|(_, bytes)| *bytes >= MATCH_BYTES_MIN) {
                Some((earlier, bytes)) => {
                    sequences.matched(content, at, bytes, at - earlier);
                    at += bytes;
                }
                None => at += KEY_BYTES,
            }
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.table.len() * size_of::<Entry>()
    }
}
