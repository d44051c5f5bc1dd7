//! One block: literals and sequences, as RFC 8878, section 3.1.1.2 and 3.1.1.3, writes them.

use crate::bits::{BitWriter, WORD_BITS};
use crate::codes::{Code, of_literals, of_match, of_offset};
use crate::fse::{Counts, SYMBOLS_MAX, Table};
use crate::huffman::{self, Codes};
use crate::sequences::{BLOCK_BYTES_MAX, MATCH_BYTES_MIN, OFFSET_MAX};

/// The shortest match that the format knows, in bytes.
const FORMAT_MATCH_BYTES_MIN: usize = 3;

/// Literals of up to this many bytes are copied as so many: faster than to look how many there are.
const COPIED_BYTES: usize = 64;

/// Sequences that a block may have.
const SEQUENCES_MAX: usize = BLOCK_BYTES_MAX / MATCH_BYTES_MIN;

/// Bytes that a sequence takes at most: three states of 9 bits, and 16, 16 and 23 bits more.
const SEQUENCE_BYTES_MAX: usize = 11;

/// Three tables, headers, and what is written beyond the end.
const TABLES_BYTES_MAX: usize = 1 << 10;

/// The largest tables, in bits, of literals, offsets and matches: the format's limits.
const LOGS_MAX: [u32; 3] = [9, 8, 9];

const BLOCK_HEADER_BYTES: usize = 3;

/// Kinds of blocks, and of tables.
const RAW: u32 = 0;
const COMPRESSED: u32 = 2;
const SINGLE_TABLE: u8 = 1;
const CODED_TABLE: u8 = 2;

/// A run of literals, and the match behind it.
#[derive(Clone, Copy, Debug)]
struct Sequence {
    literals: u32,
    matched: u32,
    offset: u32,
}

/// A block that is being made.
#[derive(Debug)]
pub(crate) struct Block {
    codes_literals: bool,
    /// Those that decoders know from the last block with literals that were coded.
    codes: Option<Codes>,
    sequences: Vec<Sequence>,
    literals: Box<[u8]>,
    literals_bytes: usize,
    /// What a coder writes: literals, then sequences.
    written: Box<[u8]>,
}

impl Block {
    pub(crate) fn new(codes_literals: bool) -> Self {
        let literals_room = BLOCK_BYTES_MAX + COPIED_BYTES;
        let room = literals_room.max(SEQUENCES_MAX * SEQUENCE_BYTES_MAX) + TABLES_BYTES_MAX;
        Self {
            codes_literals,
            codes: None,
            sequences: Vec::with_capacity(SEQUENCES_MAX),
            literals: vec![0; literals_room].into(),
            literals_bytes: 0,
            written: vec![0; room].into(),
        }
    }

    /// Begins a frame.
    pub(crate) fn begin(&mut self) {
        self.codes = None;
        self.clear();
    }

    fn clear(&mut self) {
        self.sequences.clear();
        self.literals_bytes = 0;
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.sequences.capacity() * size_of::<Sequence>() + self.literals.len() + self.written.len()
    }

    /// Adds literals, and a match behind them.
    #[inline(always)]
    pub(crate) fn add(&mut self, content: &[u8], literals_start: usize, at: usize, matched_bytes: usize, offset: u32) {
        let count = at - literals_start;
        let to = self.literals.get_mut(self.literals_bytes..self.literals_bytes + COPIED_BYTES);
        match (content.get(literals_start..literals_start + COPIED_BYTES), to) {
            (Some(from), Some(to)) if count <= COPIED_BYTES => to.copy_from_slice(from),
            _ => self.literals[self.literals_bytes..][..count].copy_from_slice(&content[literals_start..at]),
        }
        self.literals_bytes += count;
        // A block is of 128 KiB.
        let matched = (matched_bytes - FORMAT_MATCH_BYTES_MIN) as u32;
        self.sequences.push(Sequence { literals: count as u32, matched, offset });
    }

    /// Writes the block of `content`, whose literals begin at `literals_start` after the last match; whether it is compressed.
    /// The next block can begin.
    pub(crate) fn write(&mut self, content: &[u8], literals_start: usize, is_last: bool, to: &mut Vec<u8>) -> bool {
        let rest = &content[literals_start..];
        self.literals[self.literals_bytes..][..rest.len()].copy_from_slice(rest);
        self.literals_bytes += rest.len();
        let start = to.len();
        let header = |kind: u32, bytes: usize| (u32::from(is_last) | kind << 1 | (bytes as u32) << 3).to_le_bytes();
        to.extend([0; BLOCK_HEADER_BYTES]);
        let codes = self.write_literals(to);
        let bytes = write_sequences(&self.sequences, &mut self.written);
        to.extend(&self.written[..bytes]);
        self.clear();
        let bytes = to.len() - start - BLOCK_HEADER_BYTES;
        // As libzstd: what gains less costs decoders more than it is worth.
        let is_compressed = bytes + content.len() / 64 + 2 < content.len();
        if is_compressed {
            to[start..][..BLOCK_HEADER_BYTES].copy_from_slice(&header(COMPRESSED, bytes)[..BLOCK_HEADER_BYTES]);
            self.codes = codes.or(self.codes.take());
        } else {
            to.truncate(start);
            to.extend(&header(RAW, content.len())[..BLOCK_HEADER_BYTES]);
            to.extend(content);
        }
        is_compressed
    }

    /// Writes the literals; the codes of which it tells decoders.
    fn write_literals(&mut self, to: &mut Vec<u8>) -> Option<Codes> {
        let literals = &self.literals[..self.literals_bytes];
        if self.codes_literals {
            let (bytes, codes) = huffman::write(literals, self.codes.as_ref(), &mut self.written);
            if bytes > 0 {
                to.extend(&self.written[..bytes]);
                return codes;
            }
        }
        // Their number in 20 bits: a byte or two more than needed, where there are few.
        let header = RAW | 3 << 2 | (literals.len() as u32) << 4;
        to.extend(&header.to_le_bytes()[..3]);
        to.extend(literals);
        None
    }
}

/// Writes a section of sequences; its bytes.
fn write_sequences(sequences: &[Sequence], to: &mut [u8]) -> usize {
    let count = sequences.len();
    let count_bytes = match count {
        0 => {
            to[0] = 0;
            return 1;
        }
        1..0x80 => &[count as u8][..],
        0x80..0x7f00 => &[(count >> 8) as u8 | 0x80, count as u8],
        _ => &[0xff, (count - 0x7f00) as u8, ((count - 0x7f00) >> 8) as u8],
    };
    let mut at = count_bytes.len();
    to[..at].copy_from_slice(count_bytes);
    let modes_at = at;
    at += 1;
    let counts = count_codes(sequences);
    let mut tables = [Table::new(), Table::new(), Table::new()];
    let mut modes = 0;
    for ((table, counts), log_max) in tables.iter_mut().zip(&counts).zip(LOGS_MAX) {
        let first = counts.iter().position(|count| *count > 0).unwrap_or_default();
        let mode = if counts[first] as usize == count { SINGLE_TABLE } else { CODED_TABLE };
        modes = modes << 2 | mode;
        if mode == SINGLE_TABLE {
            table.make_single(first as u8);
            to[at] = first as u8;
            at += 1;
        } else {
            let mut bits = BitWriter::new(&mut to[at..]);
            table.make(counts, count as u32, log_max, &mut bits);
            at += bits.finish();
        }
    }
    to[modes_at] = modes << 2;
    at + write_stream(sequences, &tables, &mut to[at..])
}

/// How often each code occurs: of literals, offsets and matches.
fn count_codes(sequences: &[Sequence]) -> [Counts; 3] {
    let mut counts = [[0; SYMBOLS_MAX]; 3];
    for sequence in sequences {
        for (counts, code) in counts.iter_mut().zip(codes(sequence)) {
            counts[usize::from(code.code) % SYMBOLS_MAX] += 1;
        }
    }
    counts
}

#[inline(always)]
fn codes(sequence: &Sequence) -> [Code; 3] {
    [of_literals(sequence.literals), of_offset(sequence.offset), of_match(sequence.matched)]
}

/// Writes sequences, the last first; the bytes of the stream.
fn write_stream(sequences: &[Sequence], tables: &[Table; 3], to: &mut [u8]) -> usize {
    let mut bits = BitWriter::new(to);
    let [of_literals, of_offsets, of_matches] = tables;
    let mut states = None;
    for sequence in sequences.iter().rev() {
        let [literals, offset, matched] = codes(sequence);
        match &mut states {
            None => {
                states = Some((
                    of_literals.last(literals.code),
                    of_offsets.last(offset.code),
                    of_matches.last(matched.code),
                ));
            }
            Some((literals_state, offset_state, match_state)) => {
                of_offsets.code(offset_state, offset.code, &mut bits);
                of_matches.code(match_state, matched.code, &mut bits);
                of_literals.code(literals_state, literals.code, &mut bits);
                bits.flush();
            }
        }
        bits.push(sequence.literals.into(), literals.bits.into());
        bits.push(sequence.matched.into(), matched.bits.into());
        bits.push(sequence.offset.into(), offset.bits.into());
        bits.flush();
    }
    if let Some((literals, offset, matched)) = states {
        of_matches.end(matched, &mut bits);
        of_offsets.end(offset, &mut bits);
        of_literals.end(literals, &mut bits);
    }
    bits.finish_stream()
}

// What is pushed between two flushes.
const _: () = assert!(16 + 16 + (OFFSET_MAX + 3).ilog2() < WORD_BITS && 9 + 8 + 9 < WORD_BITS);
