//! LZO1X-1, written from its description. A hash table holds positions, the first match is taken, and
//! the steps grow while no match is found. Linux's Documentation/staging/lzo.rst describes the format.

/// Width of a hash in bits: the table takes 64 KiB, as in LZO1X-1.
const HASH_BITS: u32 = 14;

pub const TABLE_ITEMS: usize = 1 << HASH_BITS;

const DISTANCE_MAX: usize = 0xbfff;

pub const END_MARK: [u8; 3] = [0x11, 0, 0];

/// Compresses as LZO1X-1 into an empty buffer. `table` holds the last position of each hash.
pub fn compress_fast(content: &[u8], table: &mut [u32], output: &mut Vec<u8>) {
    table.fill(0);
    let mut position = 0;
    let mut literals_start = 0;
    while let Some(word) = word_at(content, position) {
        let Some(entry) = table.get_mut((word.wrapping_mul(0x9e37_79b1) >> (32 - HASH_BITS)) as usize) else { break };
        let match_start = std::mem::replace(entry, position as u32) as usize;
        let distance = position.wrapping_sub(match_start);
        if !(1..=DISTANCE_MAX).contains(&distance) || word_at(content, match_start) != Some(word) {
            position += 1 + (position - literals_start) / 32;
            continue;
        }
        let length = 4 + common_prefix_bytes(&content[match_start + 4..], &content[position + 4..]);
        push_literals(&content[literals_start..position], output);
        push_match(distance, length, output);
        position += length;
        literals_start = position;
    }
    push_literals(&content[literals_start..], output);
    output.extend_from_slice(&END_MARK);
}

fn word_at(content: &[u8], position: usize) -> Option<u32> {
    content.get(position..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn common_prefix_bytes(left: &[u8], right: &[u8]) -> usize {
    let left_words = left.as_chunks::<8>().0;
    let right_words = right.as_chunks::<8>().0;
    let same = 8 * left_words.iter().zip(right_words).take_while(|(left, right)| left == right).count();
    same + left[same..].iter().zip(&right[same..]).take_while(|(left, right)| left == right).count()
}

/// Appends literals. Up to three are counted in the two lowest bits of the match before them.
fn push_literals(literals: &[u8], output: &mut Vec<u8>) {
    match (literals.len(), output.len()) {
        (0, _) => return,
        (count @ 1..=238, 0) => output.push(17 + count as u8),
        (count @ 1..=3, end) => output[end - 2] |= count as u8,
        (count, _) => push_length(0, 15, count - 3, output),
    }
    output.extend_from_slice(literals);
}

fn push_match(distance: usize, length: usize, output: &mut Vec<u8>) {
    let near = distance - 1;
    match distance {
        ..=0x800 if length <= 8 => {
            output.extend_from_slice(&[((length - 1) << 5 | (near & 7) << 2) as u8, (near >> 3) as u8]);
        }
        ..=0x4000 => {
            push_length(0x20, 31, length - 2, output);
            output.extend_from_slice(&((near << 2) as u16).to_le_bytes());
        }
        _ => {
            let far = distance - 0x4000;
            push_length(0x10 | (far >> 11 & 8) as u8, 7, length - 2, output);
            output.extend_from_slice(&((far << 2) as u16).to_le_bytes());
        }
    }
}

/// Appends an instruction with a length in its lowest bits, up to `max`. The excess of a longer length
/// follows in further bytes, with a zero for each 255.
fn push_length(instruction: u8, max: usize, length: usize, output: &mut Vec<u8>) {
    if length <= max {
        return output.push(instruction | length as u8);
    }
    let excess = length - max;
    output.push(instruction);
    output.resize(output.len() + (excess - 1) / 255, 0);
    output.push(((excess - 1) % 255 + 1) as u8);
}

#[cfg(test)]
mod tests {
    use lzokay::decompress;
    use proptest::prelude::*;

    use super::*;
    use crate::levels::codec::{Encoder, FrameCodec, tests};

    fn assert_round_trips(content: &[u8], levels: &[i32]) {
        for level in levels.iter().copied() {
            let codec = FrameCodec { name: "lzo", level };
            let mut frame = Vec::new();
            Encoder::new(codec).expect("an encoder").encode(content, &mut frame).expect("encoded");
            assert!(frame.len() <= codec.encoded_bytes_max(content.len()), "level {level}: {}", frame.len());
            let mut decoded = vec![0; content.len()];
            assert_eq!(decompress::decompress(&frame, &mut decoded), Ok(content.len()), "level {level}");
            assert!(decoded == content, "level {level}");
            decoded.fill(0);
            assert_eq!(lzo::decompress_into(&frame, &mut decoded).expect("decoded"), content.len(), "level {level}");
            assert!(decoded == content, "level {level}");
        }
    }

    fn noise(length: usize, seed: u32) -> Vec<u8> {
        tests::noise(length, 256, seed)
    }

    #[test]
    fn every_instruction_decodes() {
        // Lengths and distances at the limits between the forms of an instruction.
        let lengths = [1, 2, 3, 4, 5, 8, 9, 10, 18, 19, 33, 34, 238, 239, 273, 274, 288, 289, 529, 600];
        for literals in lengths {
            assert_round_trips(&noise(literals, 1), &[1, 999]);
            for distance in [600, 2047, 2048, 2049, 16_383, 16_384, 16_385, 32_767, 32_768, 49_150, 49_151, 49_152] {
                let start = noise(distance, 2);
                for length in lengths {
                    let content = [&start, &start[..length], &noise(literals, 3), &start[..length]].concat();
                    assert_round_trips(&content, &[1]);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_content_round_trips(pieces in proptest::collection::vec((0usize..3000, 1u32..4, 1usize..70), 0..40)) {
            let piece = |(length, seed, part): &(usize, u32, usize)| noise(*length, *seed).chunks(*part).rev().flatten().copied().collect::<Vec<_>>();
            assert_round_trips(&pieces.iter().flat_map(piece).collect::<Vec<_>>(), &[1, 999]);
        }
    }

    #[test]
    fn level_1_halves_text() {
        let text: Vec<u8> =
            (0..20_000u32).flat_map(|slot| format!("slot={slot} leader=node-{}\n", slot % 37).into_bytes()).collect();
        let mut frame = Vec::new();
        compress_fast(&text, &mut [0; TABLE_ITEMS], &mut frame);
        assert!(frame.len() * 2 < text.len(), "{} of {}", frame.len(), text.len());
    }
}
