//! LZO1X. Level 999 is compressed by `lzokay`, level 1 by the compressor in this file; both are
//! decoded by `lzokay`.
//!
//! Level 1 follows the description of LZO1X-1: a hash table of positions, the first match found is
//! taken, and steps grow while no match is found. The format is described in Linux's
//! Documentation/staging/lzo.rst.

use lzokay::{compress, decompress};

use super::{Parts, decoder, encoder};

const NAME: &str = "lzo";

/// Width of a hash in bits: the table takes 64 KiB, as in LZO1X-1.
const HASH_BITS: u32 = 14;

/// Maximum distance of a match in the format.
const DISTANCE_MAX: usize = 0xbfff;

const END_MARK: [u8; 3] = [0x11, 0, 0];

pub const PARTS: Parts = Parts {
    encoder: |level| match level {
        1 => {
            let mut table = vec![0; 1 << HASH_BITS];
            encoder(NAME, size_of_val(table.as_slice()), move |content, to| {
                to.reserve((PARTS.bytes_max)(content.len()));
                compress_fast(content, &mut table, to);
                Ok(())
            })
        }
        _ => {
            let mut dict = compress::Dict::new();
            encoder(NAME, size_of::<compress::Dict>(), move |content, to| {
                // lzokay 2.0.1 cannot decode its own result for empty content.
                match content {
                    [] => to.extend_from_slice(&END_MARK),
                    _ => *to = compress::compress_with_dict(content, &mut dict).map_err(|error| error.to_string())?,
                }
                Ok(())
            })
        }
    },
    decoder: |_| decoder(NAME, 0, |frame, to| decompress::decompress(frame, to).map_err(|error| error.to_string())),
    bytes_max: compress::compress_worst_size,
};

/// Compresses as LZO1X-1 into an empty buffer. `table` holds the last position of each hash.
fn compress_fast(content: &[u8], table: &mut [u32], to: &mut Vec<u8>) {
    table.fill(0);
    let (mut at, mut literals_from) = (0, 0);
    while let Some(word) = word_at(content, at) {
        let Some(slot) = table.get_mut((word.wrapping_mul(0x9e37_79b1) >> (32 - HASH_BITS)) as usize) else { break };
        let from = std::mem::replace(slot, at as u32) as usize;
        let distance = at.wrapping_sub(from);
        if !(1..=DISTANCE_MAX).contains(&distance) || word_at(content, from) != Some(word) {
            at += 1 + (at - literals_from) / 32;
            continue;
        }
        let length = 4 + common_bytes(&content[from + 4..], &content[at + 4..]);
        push_literals(&content[literals_from..at], to);
        push_match(distance, length, to);
        at += length;
        literals_from = at;
    }
    push_literals(&content[literals_from..], to);
    to.extend_from_slice(&END_MARK);
}

fn word_at(content: &[u8], at: usize) -> Option<u32> {
    content.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn common_bytes(one: &[u8], other: &[u8]) -> usize {
    let (one_words, other_words) = (one.as_chunks::<8>().0, other.as_chunks::<8>().0);
    let same = 8 * one_words.iter().zip(other_words).take_while(|(one, other)| one == other).count();
    same + one[same..].iter().zip(&other[same..]).take_while(|(one, other)| one == other).count()
}

/// Appends literals. Up to three are counted in the two lowest bits of the match before them.
fn push_literals(literals: &[u8], to: &mut Vec<u8>) {
    match (literals.len(), to.len()) {
        (0, _) => return,
        (count @ 1..=238, 0) => to.push(17 + count as u8),
        (count @ 1..=3, end) => to[end - 2] |= count as u8,
        (count, _) => push_length(0, 15, count - 3, to),
    }
    to.extend_from_slice(literals);
}

fn push_match(distance: usize, length: usize, to: &mut Vec<u8>) {
    let near = distance - 1;
    match distance {
        ..=0x800 if length <= 8 => {
            to.extend_from_slice(&[((length - 1) << 5 | (near & 7) << 2) as u8, (near >> 3) as u8]);
        }
        ..=0x4000 => {
            push_length(0x20, 31, length - 2, to);
            to.extend_from_slice(&((near << 2) as u16).to_le_bytes());
        }
        _ => {
            let far = distance - 0x4000;
            push_length(0x10 | (far >> 11 & 8) as u8, 7, length - 2, to);
            to.extend_from_slice(&((far << 2) as u16).to_le_bytes());
        }
    }
}

/// Appends an instruction with a length in its lowest bits, up to `most`. The rest of a longer
/// length follows in further bytes, with a zero for each 255.
fn push_length(instruction: u8, most: usize, length: usize, to: &mut Vec<u8>) {
    if length <= most {
        return to.push(instruction | length as u8);
    }
    let rest = length - most;
    to.push(instruction);
    to.resize(to.len() + (rest - 1) / 255, 0);
    to.push(((rest - 1) % 255 + 1) as u8);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(content: &[u8], levels: &[i32]) {
        for level in levels.iter().copied() {
            let mut frame = Vec::new();
            (PARTS.encoder)(level).expect("an encoder").code(content, 0, &mut frame).expect("encoded");
            assert!(frame.len() <= (PARTS.bytes_max)(content.len()), "level {level}: {}", frame.len());
            let mut back = vec![0; content.len()];
            assert_eq!(decompress::decompress(&frame, &mut back), Ok(content.len()), "level {level}");
            assert!(back == content, "level {level}");
            back.fill(0);
            assert_eq!(lzo::decompress_into(&frame, &mut back).expect("decoded"), content.len(), "level {level}");
            assert!(back == content, "level {level}");
        }
    }

    fn noise(length: usize, seed: u32) -> Vec<u8> {
        let mut state = seed;
        let next = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..length).map(next).collect()
    }

    #[test]
    fn every_instruction_decodes() {
        // Lengths and distances at the limits between the forms of an instruction.
        let lengths = [1, 2, 3, 4, 5, 8, 9, 10, 18, 19, 33, 34, 238, 239, 273, 274, 288, 289, 529, 600];
        for literals in lengths {
            check(&noise(literals, 1), &[1, 999]);
            for distance in [600, 2047, 2048, 2049, 16_383, 16_384, 16_385, 32_767, 32_768, 49_150, 49_151, 49_152] {
                let start = noise(distance, 2);
                for length in lengths {
                    let content = [&start, &start[..length], &noise(literals, 3), &start[..length]].concat();
                    check(&content, &[1]);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_content_comes_back(pieces in proptest::collection::vec((0usize..3000, 1u32..4, 1usize..70), 0..40)) {
            let piece = |(length, seed, part): &(usize, u32, usize)| noise(*length, *seed).chunks(*part).rev().flatten().copied().collect::<Vec<_>>();
            check(&pieces.iter().flat_map(piece).collect::<Vec<_>>(), &[1, 999]);
        }
    }

    #[test]
    fn level_1_compresses() {
        let text: Vec<u8> =
            (0..20_000u32).flat_map(|at| format!("slot={at} leader=node-{}\n", at % 37).into_bytes()).collect();
        let mut frame = Vec::new();
        (PARTS.encoder)(1).expect("an encoder").code(&text, 0, &mut frame).expect("encoded");
        assert!(frame.len() * 2 < text.len(), "{} of {}", frame.len(), text.len());
    }
}
