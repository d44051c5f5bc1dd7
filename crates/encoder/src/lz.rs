//! A plain match finder, for what records leave over: long data, tar headers, bytes that are no records.

use crate::kinds::{Entry, u64_at};
use crate::sequences::Sequences;

/// Bytes that are hashed: the shortest match.
const HASHED_BYTES: u32 = 6;

/// Without a match, steps grow by one after every 2^this bytes.
const STEP_LOG: u32 = 6;

/// Where 6 bytes were seen last, by their hash.
#[derive(Debug)]
pub(crate) struct Lz {
    table: Vec<Entry>,
    log: u32,
    /// The offset of the last match.
    repeated: usize,
}

impl Lz {
    /// With 2^`log` entries.
    pub(crate) fn new(log: u32) -> Self {
        Self { table: vec![Entry::default(); 1 << log], log, repeated: 0 }
    }

    pub(crate) fn clear(&mut self) {
        self.table.fill(Entry::default());
        self.repeated = 0;
    }

    /// Where the same bytes may have been before.
    #[inline(always)]
    fn replace(&mut self, word: u64, at: usize) -> Option<usize> {
        let hash = (word << (64 - 8 * HASHED_BYTES)).wrapping_mul(0xcf1b_bcdc_bf9b_0000 | 0x9e37_79b1);
        self.table[(hash >> (64 - self.log)) as usize].replace(hash as u32, at)
    }

    /// Finds matches in `start..end`, all of which the block has room for.
    pub(crate) fn find(&mut self, content: &[u8], start: usize, end: usize, sequences: &mut Sequences) {
        let (mut at, mut anchor) = (start, start);
        // Every look reads 8 bytes, one byte further at most.
        while at + 9 <= end {
            let word = u64_at(content, at);
            let earlier = self.replace(word, at);
            let repeated = self.repeated;
            let (mut from, mut to);
            if repeated != 0
                && repeated <= at
                && (u64_at(content, at + 1 - repeated) ^ u64_at(content, at + 1)) as u32 == 0
            {
                (from, to) = (at + 1 - repeated, at + 1);
            } else if let Some(earlier) = earlier
                && (u64_at(content, earlier) ^ word) << (64 - 8 * HASHED_BYTES) == 0
            {
                (from, to) = (earlier, at);
            } else {
                at += 1 + ((at - anchor) >> STEP_LOG);
                continue;
            }
            let forward = equal_bytes(content, from, to, end);
            let match_end = to + forward;
            while to > anchor && from > 0 && content[to - 1] == content[from - 1] {
                (to, from) = (to - 1, from - 1);
            }
            sequences.matched(content, to, match_end - to, to - from);
            self.repeated = to - from;
            // Places inside the match, so that what follows is found from there.
            if match_end + 8 <= end {
                self.replace(u64_at(content, at + 2), at + 2);
                self.replace(u64_at(content, match_end - 2), match_end - 2);
            }
            (at, anchor) = (match_end, match_end);
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.table.len() * size_of::<Entry>()
    }
}

/// How many bytes from `at` on, up to `end`, are those from `earlier` on.
#[inline(always)]
pub(crate) fn equal_bytes(content: &[u8], earlier: usize, at: usize, end: usize) -> usize {
    let mut bytes = 0;
    while at + bytes + 8 <= end {
        let difference = u64_at(content, earlier + bytes) ^ u64_at(content, at + bytes);
        if difference != 0 {
            return bytes + (difference.trailing_zeros() / 8) as usize;
        }
        bytes += 8;
    }
    while at + bytes < end && content[earlier + bytes] == content[at + bytes] {
        bytes += 1;
    }
    bytes
}
