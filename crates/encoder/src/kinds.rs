//! For each record, the earlier record that it is compared with.

use crate::sequences::OFFSET_MAX;

/// Bytes of a record before its data.
pub(crate) const HEADER_BYTES: usize = 136;
const DATA_LEN: usize = 8;
const OWNER: usize = 64;

/// Entries of the two tables, in bits: kinds of accounts are few, and mints are many.
const KINDS_LOG: u32 = 12;
const STARTS_LOG: u32 = 15;

/// The last record of each kind. A kind is an owner and a length of data; of these, the start of the data tells finer ones
/// apart (for token accounts, the mint).
#[derive(Debug)]
pub(crate) struct Kinds {
    by_kind: Vec<u64>,
    by_start: Vec<u64>,
}

/// A kind by a hash, and the record to compare with, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) kind: u64,
    pub(crate) at: Option<usize>,
}

impl Kinds {
    pub(crate) fn new() -> Self {
        Self { by_kind: vec![0; 1 << KINDS_LOG], by_start: vec![0; 1 << STARTS_LOG] }
    }

    pub(crate) fn clear(&mut self) {
        self.by_kind.fill(0);
        self.by_start.fill(0);
    }

    /// The last record of the kind of the one in `start..end`, which is this kind's last from now on.
    #[inline]
    pub(crate) fn candidate(&mut self, content: &[u8], start: usize, end: usize) -> Candidate {
        let record = &content[start..end];
        let kind = mix(mix(u64_at(record, OWNER), u64_at(record, OWNER + 16)), u64_at(record, DATA_LEN));
        let last = replace(&mut self.by_kind, KINDS_LOG, kind, start);
        let mut at = last;
        if record.len() >= HEADER_BYTES + 16 {
            let key = mix(mix(kind, u64_at(record, HEADER_BYTES)), u64_at(record, HEADER_BYTES + 8));
            at = replace(&mut self.by_start, STARTS_LOG, key, start).or(last);
        }
        Candidate { kind, at }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        (self.by_kind.len() + self.by_start.len()) * 8
    }
}

/// A position in content, and bits of a hash that tell what lies there from other things without a look.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Entry(u32);

/// Positions in the content of a frame, of 32 MiB at most.
const POSITION_BITS: u32 = 25;

impl Entry {
    /// Becomes `at`; what it was, where that lies before, and within the window.
    #[inline(always)]
    pub(crate) fn replace(&mut self, hash: u32, at: usize) -> Option<usize> {
        let tag = hash & (!0 << POSITION_BITS);
        let Self(old) = std::mem::replace(self, Self(tag | at as u32));
        let earlier = (old & !(!0 << POSITION_BITS)) as usize;
        (old ^ earlier as u32 == tag && earlier < at && at - earlier <= OFFSET_MAX).then_some(earlier)
    }
}

#[inline(always)]
pub(crate) fn mix(one: u64, other: u64) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15; // 2^64 divided by the golden ratio
    (one.wrapping_mul(ODD).rotate_left(29) ^ other).wrapping_mul(ODD)
}

/// Reads a little-endian `u64`, which is there.
#[inline(always)]
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[inline(always)]
fn replace(table: &mut [u64], log: u32, key: u64, start: usize) -> Option<usize> {
    let entry = &mut table[(key >> (64 - log)) as usize];
    // Never 0, which is an empty entry.
    let tag = key << 32 | 1 << 32;
    let old = std::mem::replace(entry, tag | start as u64);
    let at = (old & ((1 << 32) - 1)) as usize;
    (old >> 32 == tag >> 32 && start - at <= OFFSET_MAX).then_some(at)
}
