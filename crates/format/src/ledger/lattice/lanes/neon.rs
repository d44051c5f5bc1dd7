use std::arch::aarch64::*;

kernel!("neon", uint32x4_t, 4);

#[inline]
#[target_feature(enable = "neon")]
fn splat(word: u32) -> uint32x4_t {
    vdupq_n_u32(word)
}

#[inline]
#[target_feature(enable = "neon")]
fn add(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
    vaddq_u32(a, b)
}

#[inline]
#[target_feature(enable = "neon")]
fn add_16(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
    vreinterpretq_u32_u16(vaddq_u16(vreinterpretq_u16_u32(a), vreinterpretq_u16_u32(b)))
}

#[inline]
#[target_feature(enable = "neon")]
fn xor(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
    veorq_u32(a, b)
}

#[inline]
#[target_feature(enable = "neon")]
fn load(words: &[u32; 4]) -> uint32x4_t {
    // SAFETY: the array has the vector's size, and the instruction needs no more alignment than
    // a word's.
    unsafe { vld1q_u32(words.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
fn store(words: &mut [u32; 4], vector: uint32x4_t) {
    // SAFETY: the array has the vector's size, and the instruction needs no more alignment than
    // a word's.
    unsafe { vst1q_u32(words.as_mut_ptr(), vector) }
}

#[inline]
#[target_feature(enable = "neon")]
fn rotate_16(a: uint32x4_t) -> uint32x4_t {
    vreinterpretq_u32_u16(vrev32q_u16(vreinterpretq_u16_u32(a)))
}

/// Rotates to the right by two shifts: the second one inserts the bits that the first one
/// pushed out.
macro_rules! rotate {
    ($($name:ident $by:literal $rest:literal),*) => {
        $(
            #[inline]
            #[target_feature(enable = "neon")]
            fn $name(a: uint32x4_t) -> uint32x4_t {
                vsriq_n_u32::<$by>(vshlq_n_u32::<$rest>(a), a)
            }
        )*
    };
}
rotate!(rotate_12 12 20, rotate_8 8 24, rotate_7 7 25);
