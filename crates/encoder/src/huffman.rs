//! Huffman codes of literals: RFC 8878, section 4.2.

use crate::bits::BitWriter;
use crate::fse::{SYMBOLS_MAX, Table};

/// The longest code, in bits: the format's limit.
const CODE_BITS_MAX: u32 = 11;

/// Fewer literals do not pay for a table.
const LITERALS_MIN: usize = 64;

/// From this many literals on there are four streams, which decoders read at once.
const FOUR_STREAMS_MIN: usize = 256;

/// The largest table of weights, in bits: the format's limit.
const WEIGHTS_LOG_MAX: u32 = 6;

/// Nodes of a tree of bytes.
const NODES_MAX: usize = 2 * 256;

/// Codes of bytes.
#[derive(Debug)]
pub(crate) struct Codes {
    /// A code in the upper bits, its length in the lowest 8; 0 for a byte that does not occur.
    codes: [u32; 256],
    lengths: [u8; 256],
    last: usize,
    longest: u32,
}

/// Kinds of sections: with a table, and with that of the section before.
const WITH_TABLE: u64 = 2;
const WITHOUT_TABLE: u64 = 3;

/// Bytes of a table, for the choice whether to make one: often more.
const TABLE_BYTES: u64 = 32;

/// Writes a section of literals that are coded, if that is shorter than they are, with the codes of the section before, which
/// decoders keep, or with new ones, which are returned. The bytes that were written, or 0; the buffer has room for the
/// literals, and 1 KiB more.
pub(crate) fn write(literals: &[u8], last: Option<&Codes>, to: &mut [u8]) -> (usize, Option<Codes>) {
    if literals.len() < LITERALS_MIN {
        return (0, None);
    }
    let counts = count(literals);
    let largest = counts.iter().max().copied().unwrap_or_default();
    if largest as usize == literals.len() || largest as usize <= literals.len() / 128 + 4 {
        // One byte is for others to find; and what is nearly even is noise.
        return (0, None);
    }
    let new = Codes::new(&counts);
    let bytes = new.bits(&counts).map_or(u64::MAX, |bits| bits / 8 + TABLE_BYTES);
    let last =
        last.and_then(|last| Some((last, last.bits(&counts)? / 8))).filter(|(_, last_bytes)| *last_bytes <= bytes);
    let (codes, bytes) = last.unwrap_or((&new, bytes));
    if bytes + 8 >= (literals.len() - literals.len() / 64) as u64 {
        return (0, None);
    }
    // Both sizes in 10, 14 or 18 bits.
    let (header_bytes, format, size_bits) = match literals.len() {
        ..FOUR_STREAMS_MIN => (3, 0, 10),
        FOUR_STREAMS_MIN..1024 => (3, 1, 10),
        1024..16_384 => (4, 2, 14),
        _ => (5, 3, 18),
    };
    let mut at = header_bytes;
    if last.is_none() {
        match codes.write_weights(&mut to[at..]) {
            0 => return (0, None),
            bytes => at += bytes,
        }
    }
    if format == 0 {
        at += codes.write_stream(literals, &mut to[at..]);
    } else {
        let sizes_at = at;
        at += 6;
        for (number, part) in literals.chunks(literals.len().div_ceil(4)).enumerate() {
            let bytes = codes.write_stream(part, &mut to[at..]);
            if number < 3 {
                to[sizes_at + 2 * number..][..2].copy_from_slice(&(bytes as u16).to_le_bytes());
            }
            at += bytes;
        }
    }
    // The table was longer than expected.
    if at >= literals.len() {
        return (0, None);
    }
    let kind = if last.is_some() { WITHOUT_TABLE } else { WITH_TABLE };
    let sizes = (literals.len() as u64) << 4 | ((at - header_bytes) as u64) << (4 + size_bits);
    to[..header_bytes].copy_from_slice(&(kind | format << 2 | sizes).to_le_bytes()[..header_bytes]);
    let is_new = last.is_none();
    (at, is_new.then_some(new))
}

/// How often each byte occurs: in four tables, so that equal neighbours do not wait for each other.
fn count(literals: &[u8]) -> [u32; 256] {
    let mut tables = [[0u32; 256]; 4];
    let (fours, rest) = literals.as_chunks::<4>();
    for four in fours {
        for (table, byte) in tables.iter_mut().zip(four) {
            table[usize::from(*byte)] += 1;
        }
    }
    rest.iter().for_each(|byte| tables[0][usize::from(*byte)] += 1);
    std::array::from_fn(|byte| tables.iter().map(|table| table[byte]).sum())
}

impl Codes {
    /// For counts of at least two bytes.
    fn new(counts: &[u32; 256]) -> Self {
        let lengths = lengths(counts);
        let longest = lengths.iter().max().copied().unwrap_or_default().into();
        let last = lengths.iter().rposition(|length| *length > 0).unwrap_or_default();
        // The longest codes are the smallest; of one length in the order of the bytes.
        let mut next = [0u32; CODE_BITS_MAX as usize + 1];
        let mut code = 0;
        for length in (1..=longest as usize).rev() {
            next[length] = code;
            code = (code + lengths.iter().filter(|one| usize::from(**one) == length).count() as u32) >> 1;
        }
        let codes = lengths.map(|length| {
            let code = &mut next[usize::from(length)];
            *code += 1;
            if length == 0 { 0 } else { (*code - 1) << 8 | u32::from(length) }
        });
        Self { codes, lengths, last, longest }
    }

    /// What bytes take, where all have codes.
    fn bits(&self, counts: &[u32; 256]) -> Option<u64> {
        counts.iter().zip(self.lengths).try_fold(0, |bits, (count, length)| match (count, length) {
            (1.., 0) => None,
            _ => Some(bits + u64::from(*count) * u64::from(length)),
        })
    }

    /// Tells a decoder the codes by their lengths; 0 if that cannot be done in the 127 bytes that it may take.
    fn write_weights(&self, to: &mut [u8]) -> usize {
        // The last one follows from the others.
        let weight = |length: &u8| if *length == 0 { 0 } else { (self.longest + 1) as u8 - length };
        let mut weights = [0; 256];
        let mut counts = [0; SYMBOLS_MAX];
        for (to, length) in weights.iter_mut().zip(&self.lengths[..self.last]) {
            *to = weight(length);
            counts[usize::from(*to)] += 1;
        }
        let weights = &weights[..self.last];
        if weights.len() < 3 || counts.iter().filter(|count| **count > 0).count() < 2 {
            return 0;
        }
        let mut table = Table::new();
        let mut bits = BitWriter::new(&mut to[1..]);
        table.make(&counts, weights.len() as u32, WEIGHTS_LOG_MAX, &mut bits);
        let table_bytes = bits.finish();
        let mut bits = BitWriter::new(&mut to[1 + table_bytes..]);
        // Two coders in turn, from the end on; the first one has the first weight.
        let mut rest = weights.iter().enumerate().rev();
        let mut states = [None, None];
        for (number, weight) in &mut rest {
            match &mut states[number % 2] {
                Some(state) => table.code(state, *weight, &mut bits),
                none => *none = Some(table.last(*weight)),
            }
            bits.flush();
        }
        states.iter().rev().flatten().for_each(|state| table.end(*state, &mut bits));
        let bytes = table_bytes + bits.finish_stream();
        if bytes >= 128 {
            return 0;
        }
        to[0] = bytes as u8;
        1 + bytes
    }

    /// Writes a stream of codes, the last first; its bytes.
    fn write_stream(&self, literals: &[u8], to: &mut [u8]) -> usize {
        let mut bits = BitWriter::new(to);
        let (rest, fives) = literals.as_rchunks::<5>();
        for five in fives.iter().rev() {
            five.iter().rev().for_each(|byte| self.push(*byte, &mut bits));
            bits.flush();
        }
        rest.iter().rev().for_each(|byte| self.push(*byte, &mut bits));
        bits.finish_stream()
    }

    #[inline(always)]
    fn push(&self, byte: u8, bits: &mut BitWriter<'_>) {
        let code = self.codes[usize::from(byte)];
        bits.push((code >> 8).into(), code & 0xff);
    }
}

const _: () = assert!(5 * CODE_BITS_MAX <= crate::bits::WORD_BITS);

/// Lengths of codes, of which none is too long, and which use up all codes.
fn lengths(counts: &[u32; 256]) -> [u8; 256] {
    let mut order: Vec<u8> = (0..=255).filter(|byte| counts[usize::from(*byte)] > 0).collect();
    order.sort_unstable_by_key(|byte| (counts[usize::from(*byte)], *byte));
    // Leaves by ascending counts, and behind them the nodes above, which come up in ascending order as well.
    let leaves = order.len();
    let mut weights = [0u64; NODES_MAX];
    let mut parents = [0u16; NODES_MAX];
    order.iter().zip(&mut weights).for_each(|(byte, weight)| *weight = counts[usize::from(*byte)].into());
    let (mut leaf, mut inner) = (0, leaves);
    for node in leaves..2 * leaves - 1 {
        for _ in 0..2 {
            let is_leaf = leaf < leaves && (inner == node || weights[leaf] <= weights[inner]);
            let child = if is_leaf { &mut leaf } else { &mut inner };
            parents[*child] = node as u16;
            weights[node] += weights[*child];
            *child += 1;
        }
    }
    let mut depths = [0u32; NODES_MAX];
    for node in (0..2 * leaves - 2).rev() {
        depths[node] = depths[usize::from(parents[node])] + 1;
    }
    // Of the 2^11 codes of 11 bits a code of n bits takes 2^(11 - n).
    let taken = |depth: u32| 1u32 << (CODE_BITS_MAX - depth);
    let depths = &mut depths[..leaves];
    depths.iter_mut().for_each(|depth| *depth = (*depth).min(CODE_BITS_MAX));
    let mut sum: u32 = depths.iter().map(|depth| taken(*depth)).sum();
    // Too many are taken: rare bytes get longer codes, those first that lose least.
    while sum > taken(0) {
        let shorter = depths.iter().copied().filter(|depth| *depth < CODE_BITS_MAX).max().unwrap_or_default();
        let Some(depth) = depths.iter_mut().find(|depth| **depth == shorter) else { break };
        *depth += 1;
        sum -= taken(*depth);
    }
    // Some are left: frequent bytes get shorter ones. What is left is a multiple of what the longest takes.
    while sum < taken(0) {
        let left = taken(0) - sum;
        let Some(depth) = depths.iter_mut().rev().find(|depth| taken(**depth) <= left) else { break };
        sum += taken(*depth);
        *depth -= 1;
    }
    let mut lengths = [0; 256];
    order.iter().zip(depths).for_each(|(byte, depth)| lengths[usize::from(*byte)] = *depth as u8);
    lengths
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// All codes are used up, none is too long, and a byte that is more frequent has no longer one.
        #[test]
        fn lengths_are_those_of_a_code(exponents in proptest::collection::vec(0u32..32, 2..=256), seed in any::<u32>()) {
            let mut counts = [0; 256];
            for (at, exponent) in exponents.iter().enumerate() {
                counts[at] = (1 << exponent) | seed & ((1 << exponent) - 1);
            }
            let lengths = lengths(&counts);
            let taken = |length: &u8| if *length > 0 { 1u32 << (CODE_BITS_MAX - u32::from(*length)) } else { 0 };
            prop_assert_eq!(lengths.iter().map(taken).sum::<u32>(), 1 << CODE_BITS_MAX);
            for (count, length) in counts.iter().zip(lengths) {
                prop_assert_eq!(*count > 0, length > 0);
                let mut rarer = counts.iter().zip(lengths).filter(|(other, _)| **other > 0 && *other < count);
                prop_assert!(rarer.all(|(_, longer)| longer >= length));
            }
        }

        /// Literals of any entropy are read by a decoder, in one stream and in four, with sizes of every length.
        #[test]
        fn literals_of_any_entropy(
            symbols in 2usize..=256,
            skew in 1i32..9,
            length in 0usize..40_000,
            seed in any::<u64>(),
        ) {
            let mut state = seed | 1;
            let literals: Vec<u8> = (0..length).map(|_| {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                let fraction = ((state >> 40) as f64 / (1u64 << 24) as f64).powi(skew);
                (fraction * symbols as f64) as u8
            }).collect();
            let mut section = vec![0; length + 1024];
            let (bytes, _) = write(&literals, None, &mut section);
            prop_assume!(bytes > 0);
            prop_assert!(bytes < length);
            // A block of these literals alone, in a frame that libzstd decodes.
            let mut frame = Vec::new();
            crate::frame::begin(length, false, &mut frame);
            frame.extend(&(1 | 2 << 1 | ((bytes + 1) as u32) << 3).to_le_bytes()[..3]);
            frame.extend(&section[..bytes]);
            frame.push(0);
            let mut decoded = vec![0; length];
            prop_assert_eq!(zstd_safe::decompress(&mut decoded[..], &frame), Ok(length));
            prop_assert!(decoded == literals);
        }
    }
}
