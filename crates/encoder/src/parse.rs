//! Content and record starts in, a frame out.

use crate::compare::{CHUNK_BYTES, equal_at, zeros_at};
use crate::fields::{FIELD_BYTES_MIN, Fields};
use crate::kinds::{HEADER_BYTES, Kinds, u64_at};
use crate::lz::Lz;
use crate::sequences::Sequences;
use crate::{Effort, frame};

/// What an effort changes: found by measuring, see docs/encoder.md.
#[derive(Debug)]
struct Settings {
    /// Longer records are left to the match finder, which takes more time and finds more: what they hold repeats within them.
    record_bytes_max: usize,
    /// Entries of its table, in bits: for less time, it stays in the nearest cache.
    lz_log: u32,
    /// Entries of the table of fields, in bits.
    fields_log: u32,
}

impl Settings {
    fn of(effort: Effort) -> Self {
        match effort {
            Effort::Fast => Self { record_bytes_max: 4 << 10, lz_log: 14, fields_log: 15 },
            Effort::Balanced => Self { record_bytes_max: 1 << 10, lz_log: 16, fields_log: 16 },
        }
    }
}

/// Literals of this many bytes are left to the match finder.
const LONG_LITERALS_BYTES: usize = 96;

/// The shortest run of zeros that becomes a match.
const ZEROS_MIN: usize = 6;

/// A block is cut where the kind of records changes, from this many bytes on.
const BLOCK_BYTES_MIN: usize = 32 << 10;

/// Only after this many bytes of one kind: where kinds alternate, a block of its own for each is larger.
const KIND_RUN_BYTES: usize = 16 << 10;

/// A frame is looked at after this many bytes: is there anything to gain?
const PROBE_BYTES: usize = 512 << 10;

/// Parses one content after another, reusing its memory.
#[derive(Debug)]
pub(crate) struct Parser {
    kinds: Kinds,
    fields: Fields,
    lz: Lz,
    sequences: Sequences,
    /// The kind of the last records, and where the first of them begins.
    kind: u64,
    kind_start: usize,
    settings: Settings,
}

/// A record by the places of its first byte and of the one after its last.
struct Extent {
    start: usize,
    end: usize,
}

impl Parser {
    pub(crate) fn new(effort: Effort) -> Self {
        let settings = Settings::of(effort);
        Self {
            kinds: Kinds::new(),
            fields: Fields::new(settings.fields_log),
            lz: Lz::new(settings.lz_log),
            sequences: Sequences::new(effort == Effort::Balanced),
            kind: 0,
            kind_start: 0,
            settings,
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.kinds.memory_bytes() + self.fields.memory_bytes() + self.lz.memory_bytes() + self.sequences.memory_bytes()
    }

    /// Makes `content` a frame in `to`, in the place of what it holds; whether it does: level 1 makes other content as small.
    pub(crate) fn parse(&mut self, content: &[u8], starts: &[u32], has_checksum: bool, to: &mut Vec<u8>) -> bool {
        if small_records_bytes(content.len(), starts, self.settings.record_bytes_max) < content.len() / 3 {
            return false;
        }
        self.kinds.clear();
        self.fields.clear();
        self.lz.clear();
        (self.kind, self.kind_start) = (0, 0);
        self.sequences.begin(std::mem::take(to), content.len(), has_checksum);
        let has_gained = self.blocks(content, starts);
        *to = self.sequences.take();
        if has_gained && has_checksum {
            frame::end(content, to);
        }
        has_gained
    }

    /// Makes the blocks of a frame; whether something is gained.
    fn blocks(&mut self, content: &[u8], starts: &[u32]) -> bool {
        let (mut done, mut is_probed) = (0, false);
        for &start in starts {
            let Some(Extent { start, end }) = extent(content, start as usize).filter(|record| record.start >= done)
            else {
                continue;
            };
            self.other(content, done, start);
            if end - start <= self.settings.record_bytes_max {
                self.record(content, start, end);
            } else {
                self.other(content, start, end);
            }
            done = end;
            if !is_probed && done >= PROBE_BYTES {
                is_probed = true;
                // Hardly anything repeats.
                if self.sequences.matched_bytes() < done / 8 {
                    return false;
                }
            }
        }
        self.other(content, done, content.len());
        self.sequences.cut(content, content.len());
        true
    }

    /// What is no record, or a long one.
    fn other(&mut self, content: &[u8], mut start: usize, end: usize) {
        while start < end {
            if self.sequences.room(start) == 0 {
                self.sequences.cut(content, start);
            }
            let piece_end = end.min(start + self.sequences.room(start));
            self.lz.find(content, start, piece_end, &mut self.sequences);
            start = piece_end;
        }
    }

    fn record(&mut self, content: &[u8], start: usize, end: usize) {
        let candidate = self.kinds.candidate(content, start, end);
        let is_new_kind = self.kind != candidate.kind;
        let is_full = self.sequences.room(start) < end - start;
        let is_end_of_run = is_new_kind && start - self.kind_start >= KIND_RUN_BYTES;
        if is_full || is_end_of_run && self.sequences.block_bytes(start) >= BLOCK_BYTES_MIN {
            self.sequences.cut(content, start);
        }
        if is_new_kind {
            (self.kind, self.kind_start) = (candidate.kind, start);
        }
        let Some(earlier) = candidate.at else {
            return self.literals(content, start, end, start);
        };
        let offset = start - earlier;
        // The end of the last match, and the begin of the one that is going on.
        let (mut matched_to, mut run) = (start, None);
        let mut mask = mask_at(content, earlier, start, end);
        // Of the chunk before: what lies in runs, and where runs of 4 begin.
        let (mut runs_before, mut begins_before) = (0u64, 0u64);
        let mut at = start;
        while at < end {
            let next = if at + CHUNK_BYTES < end {
                mask_at(content, earlier + CHUNK_BYTES + (at - start), at + CHUNK_BYTES, end)
            } else {
                0
            };
            // Where 4 equal bytes begin, over the end of the chunk; then all bytes of these.
            let begins = mask & (mask >> 1 | next << 63) & (mask >> 2 | next << 62) & (mask >> 3 | next << 61);
            let runs = begins
                | (begins << 1 | begins_before >> 63)
                | (begins << 2 | begins_before >> 62)
                | (begins << 3 | begins_before >> 61);
            let mut changes = runs ^ (runs << 1 | runs_before >> 63);
            while changes != 0 {
                let place = at + changes.trailing_zeros() as usize;
                changes &= changes - 1;
                match run.take() {
                    None => {
                        self.literals(content, matched_to, place, start);
                        run = Some(place);
                    }
                    Some(begin) => {
                        self.sequences.matched(content, begin, place - begin, offset);
                        matched_to = place;
                    }
                }
            }
            (runs_before, begins_before, mask) = (runs, begins, next);
            at += CHUNK_BYTES;
        }
        match run {
            Some(begin) => self.sequences.matched(content, begin, end - begin, offset),
            None => self.literals(content, matched_to, end, start),
        }
    }

    /// Bytes of the record at `record` that are not those of the record it was compared with.
    #[inline]
    fn literals(&mut self, content: &[u8], mut start: usize, end: usize, record: usize) {
        if end - start < ZEROS_MIN + 1 {
            return;
        }
        if end - start >= LONG_LITERALS_BYTES {
            return self.lz.find(content, start, end, &mut self.sequences);
        }
        let mut at = start;
        while at < end {
            let mask = zeros_at(content, at) & low_bits(end - at);
            // Where ZEROS_MIN + 1 zeros begin: the first is a literal, the others repeat it.
            let twos = mask & mask >> 1;
            let fours = twos & twos >> 2;
            let begins = fours & fours >> (ZEROS_MIN + 1 - 4);
            if begins == 0 {
                // Runs that lie across the ends of two chunks are found by the next, from where they begin.
                let tail = (!mask).leading_zeros() as usize;
                at += CHUNK_BYTES - if at + CHUNK_BYTES < end && tail < CHUNK_BYTES { tail } else { 0 };
                continue;
            }
            let first = at + begins.trailing_zeros() as usize;
            let zeros = zeros_from(content, first, end);
            self.fields_of(content, start, first, record);
            self.sequences.matched(content, first + 1, zeros - 1, 1);
            (start, at) = (first + zeros, first + zeros);
        }
        self.fields_of(content, start, end, record);
    }

    #[inline(always)]
    fn fields_of(&mut self, content: &[u8], start: usize, end: usize, record: usize) {
        // The header holds an address, which nearly never occurs again, and a balance.
        let start = start.max(record + HEADER_BYTES);
        if start + FIELD_BYTES_MIN <= end {
            self.fields.look_up(content, start, end, &mut self.sequences);
        }
    }
}

/// The record at `start`, if it lies wholly in the content.
#[inline]
fn extent(content: &[u8], start: usize) -> Option<Extent> {
    let header = content.get(start..)?.first_chunk::<HEADER_BYTES>()?;
    let data_bytes = usize::try_from(u64_at(header, 8)).ok()?;
    let data_end = start.checked_add(HEADER_BYTES)?.checked_add(data_bytes).filter(|end| *end <= content.len())?;
    Some(Extent { start, end: data_end.next_multiple_of(8).min(content.len()) })
}

/// Bytes of records that are not left to the match finder, by the distances of their starts: headers need not be read.
fn small_records_bytes(content_bytes: usize, starts: &[u32], record_bytes_max: usize) -> usize {
    let ends = starts.iter().skip(1).map(|start| *start as usize).chain([content_bytes]);
    let lengths = starts.iter().zip(ends).map(|(start, end)| end.saturating_sub(*start as usize));
    lengths.filter(|length| *length <= record_bytes_max).sum()
}

/// Which of the bytes of the record at `at`, before `end`, are those from `earlier` on.
#[inline(always)]
fn mask_at(content: &[u8], earlier: usize, at: usize, end: usize) -> u64 {
    equal_at(content, earlier, at) & low_bits(end - at)
}

/// The lowest `count` bits, or all.
#[inline(always)]
fn low_bits(count: usize) -> u64 {
    if count >= 64 { !0 } else { (1 << count) - 1 }
}

/// How many bytes from `start` on are zero, up to `end`.
#[inline(always)]
fn zeros_from(content: &[u8], start: usize, end: usize) -> usize {
    let mut at = start;
    while at < end {
        let mask = !zeros_at(content, at) | !low_bits(end - at);
        let zeros = mask.trailing_zeros() as usize;
        at += zeros;
        if zeros < CHUNK_BYTES {
            break;
        }
    }
    at.min(end) - start
}
