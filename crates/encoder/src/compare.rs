//! Which of 64 bytes are equal: by SSE2, NEON, or with neither; all three give the same.

/// Bytes that are compared at once: one bit each in a mask.
pub(crate) const CHUNK_BYTES: usize = 64;

pub(crate) type Chunk = [u8; CHUNK_BYTES];

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
pub(crate) use neon::equal;
#[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little"))))]
pub(crate) use portable::equal;
#[cfg(target_arch = "x86_64")]
pub(crate) use sse2::equal;

/// A mask of the bytes of `content` at two places that are equal. Beyond its end are zeros.
#[inline(always)]
pub(crate) fn equal_at(content: &[u8], one: usize, other: usize) -> u64 {
    match (chunk_at(content, one), chunk_at(content, other)) {
        (Some(one), Some(other)) => equal(one, other),
        _ => equal(&last_chunk(content, one), &last_chunk(content, other)),
    }
}

/// A mask of the bytes that are zero.
#[inline(always)]
pub(crate) fn zeros_at(content: &[u8], at: usize) -> u64 {
    const ZEROS: Chunk = [0; CHUNK_BYTES];
    chunk_at(content, at).map_or_else(|| equal(&last_chunk(content, at), &ZEROS), |chunk| equal(chunk, &ZEROS))
}

#[inline(always)]
fn chunk_at(content: &[u8], at: usize) -> Option<&Chunk> {
    content.get(at..)?.first_chunk()
}

/// The chunk of `content` at `at`, filled up with zeros beyond its end.
#[cold]
fn last_chunk(content: &[u8], at: usize) -> Chunk {
    let mut chunk = [0; CHUNK_BYTES];
    let rest = content.get(at..).unwrap_or_default();
    chunk.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    chunk
}

/// 8 bytes of a chunk as a number, in the machine's order for vectors.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
fn word(chunk: &Chunk, number: usize) -> u64 {
    let (words, _) = chunk.as_chunks::<8>();
    u64::from_le_bytes(words[number])
}

#[cfg(target_arch = "x86_64")]
mod sse2 {
    use std::arch::x86_64::{__m128i, _mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set_epi64x};

    use super::{Chunk, word};

    // Compiled to one load.
    #[inline]
    #[target_feature(enable = "sse2")]
    fn load(chunk: &Chunk, number: usize) -> __m128i {
        _mm_set_epi64x(word(chunk, number * 2 + 1) as i64, word(chunk, number * 2) as i64)
    }

    /// A mask of the bytes that are equal, the first in the lowest bit.
    #[inline(always)]
    pub(crate) fn equal(one: &Chunk, other: &Chunk) -> u64 {
        // SAFETY: every x86-64 has SSE2, which is all that it asks for.
        unsafe { equal_sse2(one, other) }
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn equal_sse2(one: &Chunk, other: &Chunk) -> u64 {
        let quarter = |number| {
            u64::from(_mm_movemask_epi8(_mm_cmpeq_epi8(load(one, number), load(other, number))) as u16) << (16 * number)
        };
        quarter(0) | quarter(1) | quarter(2) | quarter(3)
    }
}

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod neon {
    use std::arch::aarch64::{
        uint8x16_t, vandq_u8, vceqq_u8, vcombine_u8, vcreate_u8, vgetq_lane_u64, vpaddq_u8, vreinterpretq_u64_u8,
    };

    use super::{Chunk, word};

    #[inline]
    #[target_feature(enable = "neon")]
    fn load(chunk: &Chunk, number: usize) -> uint8x16_t {
        vcombine_u8(vcreate_u8(word(chunk, number * 2)), vcreate_u8(word(chunk, number * 2 + 1)))
    }

    /// A mask of the bytes that are equal, the first in the lowest bit.
    #[inline(always)]
    pub(crate) fn equal(one: &Chunk, other: &Chunk) -> u64 {
        // SAFETY: every AArch64 that runs Linux or macOS has NEON, which is all that it asks for.
        unsafe { equal_neon(one, other) }
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn equal_neon(one: &Chunk, other: &Chunk) -> u64 {
        // One bit of each byte, then sums of neighbours: 8 bytes become one.
        const BITS: u64 = 0x8040_2010_0804_0201;
        let bits = vcombine_u8(vcreate_u8(BITS), vcreate_u8(BITS));
        let quarter = |number| vandq_u8(vceqq_u8(load(one, number), load(other, number)), bits);
        let halves = [vpaddq_u8(quarter(0), quarter(1)), vpaddq_u8(quarter(2), quarter(3))];
        let sums = vpaddq_u8(halves[0], halves[1]);
        vgetq_lane_u64::<0>(vreinterpretq_u64_u8(vpaddq_u8(sums, sums)))
    }
}

#[cfg_attr(any(target_arch = "x86_64", target_arch = "aarch64"), allow(dead_code))]
pub(crate) mod portable {
    use super::Chunk;

    /// A mask of the bytes that are equal, the first in the lowest bit.
    #[inline]
    pub(crate) fn equal(one: &Chunk, other: &Chunk) -> u64 {
        let ((one, _), (other, _)) = (one.as_chunks::<8>(), other.as_chunks::<8>());
        one.iter().zip(other).rev().fold(0, |mask, (one, other)| {
            mask << 8 | equal_bytes(u64::from_le_bytes(*one) ^ u64::from_le_bytes(*other))
        })
    }

    /// One bit for each byte of `difference` that is zero.
    fn equal_bytes(difference: u64) -> u64 {
        const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
        // The highest bit of each byte that is not zero, without a carry into the next.
        let unequal = ((difference & LOW) + LOW) | difference;
        let equal = (!unequal & !LOW) >> 7;
        // Gathers bits 0, 8, 16, … in the highest byte.
        equal.wrapping_mul(0x0102_0408_1020_4080) >> 56
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn byte_by_byte(one: &Chunk, other: &Chunk) -> u64 {
        one.iter().zip(other).rev().fold(0, |mask, (one, other)| mask << 1 | u64::from(one == other))
    }

    proptest! {
        #[test]
        fn all_ways_are_equal(one in any::<[u8; 32]>(), other in any::<[u8; 32]>(), mask in any::<u64>()) {
            let one: Chunk = std::array::from_fn(|at| one[at % 32]);
            // Equal where the mask says so, and by chance.
            let other: Chunk = std::array::from_fn(|at| if mask >> at & 1 == 1 { one[at] } else { other[at / 2] });
            let expected = byte_by_byte(&one, &other);
            prop_assert_eq!(equal(&one, &other), expected);
            prop_assert_eq!(portable::equal(&one, &other), expected);
        }
    }

    #[test]
    fn each_byte_and_each_difference() {
        for at in 0..CHUNK_BYTES {
            for value in 0..=255 {
                let (mut one, other) = ([0x80; CHUNK_BYTES], [0x80; CHUNK_BYTES]);
                one[at] = value;
                let expected = byte_by_byte(&one, &other);
                assert_eq!(equal(&one, &other), expected);
                assert_eq!(portable::equal(&one, &other), expected);
            }
        }
    }

    #[test]
    fn beyond_the_end_are_zeros() {
        let mut content = [7; 300];
        content[200..].fill(0);
        assert_eq!(equal_at(&content, 36, 100), !0);
        assert_eq!(equal_at(&content, 190, 290), !0 << 10);
        assert_eq!((zeros_at(&content, 136), zeros_at(&content, 190)), (0, !0 << 10));
        assert_eq!((zeros_at(&content, 300), zeros_at(&content, 1000)), (!0, !0));
    }
}
