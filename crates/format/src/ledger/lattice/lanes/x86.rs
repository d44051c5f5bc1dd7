use std::arch::x86_64::*;

/// Rotates to the right by shifts. For whole bytes, a shuffle is faster.
macro_rules! rotate_by_shifts {
    ($feature:literal, $vector:ty, $or:ident, $left:ident, $right:ident,
        $($name:ident $by:literal $rest:literal),*) => {
        $(
            #[inline]
            #[target_feature(enable = $feature)]
            fn $name(a: $vector) -> $vector {
                $or($right::<$by>(a), $left::<$rest>(a))
            }
        )*
    };
}

macro_rules! instructions {
    ($feature:literal, $vector:ty, $words:literal, $splat:ident, $add:ident, $add_16:ident, $xor:ident, $load:ident,
        $store:ident) => {
        #[inline]
        #[target_feature(enable = $feature)]
        fn splat(word: u32) -> $vector {
            $splat(word as i32)
        }

        #[inline]
        #[target_feature(enable = $feature)]
        fn add(a: $vector, b: $vector) -> $vector {
            $add(a, b)
        }

        #[inline]
        #[target_feature(enable = $feature)]
        fn add_16(a: $vector, b: $vector) -> $vector {
            $add_16(a, b)
        }

        #[inline]
        #[target_feature(enable = $feature)]
        fn xor(a: $vector, b: $vector) -> $vector {
            $xor(a, b)
        }

        #[inline]
        #[target_feature(enable = $feature)]
        fn load(words: &[u32; $words]) -> $vector {
            const { assert!(size_of::<$vector>() == size_of::<[u32; $words]>()) };
            // SAFETY: the array has the vector's size, and the instruction needs no alignment.
            unsafe { $load(words.as_ptr().cast()) }
        }

        #[inline]
        #[target_feature(enable = $feature)]
        fn store(words: &mut [u32; $words], vector: $vector) {
            // SAFETY: the array has the vector's size, and the instruction needs no alignment.
            unsafe { $store(words.as_mut_ptr().cast(), vector) }
        }
    };
}

pub(super) mod sse2 {
    use super::*;

    kernel!("sse2", __m128i, 4);
    instructions!(
        "sse2",
        __m128i,
        4,
        _mm_set1_epi32,
        _mm_add_epi32,
        _mm_add_epi16,
        _mm_xor_si128,
        _mm_loadu_si128,
        _mm_storeu_si128
    );
    rotate_by_shifts!(
        "sse2", __m128i, _mm_or_si128, _mm_slli_epi32, _mm_srli_epi32, rotate_12 12 20, rotate_8 8 24, rotate_7 7 25
    );

    #[inline]
    #[target_feature(enable = "sse2")]
    fn rotate_16(a: __m128i) -> __m128i {
        _mm_shufflehi_epi16::<0b10_11_00_01>(_mm_shufflelo_epi16::<0b10_11_00_01>(a))
    }
}

pub(super) mod avx2 {
    use super::*;

    kernel!("avx2", __m256i, 8);
    instructions!(
        "avx2",
        __m256i,
        8,
        _mm256_set1_epi32,
        _mm256_add_epi32,
        _mm256_add_epi16,
        _mm256_xor_si256,
        _mm256_loadu_si256,
        _mm256_storeu_si256
    );
    rotate_by_shifts!(
        "avx2", __m256i, _mm256_or_si256, _mm256_slli_epi32, _mm256_srli_epi32, rotate_12 12 20, rotate_7 7 25
    );

    #[inline]
    #[target_feature(enable = "avx2")]
    fn shuffle(a: __m256i, low: i64, high: i64) -> __m256i {
        _mm256_shuffle_epi8(a, _mm256_set_epi64x(high, low, high, low))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn rotate_16(a: __m256i) -> __m256i {
        shuffle(a, 0x0504_0706_0100_0302, 0x0d0c_0f0e_0908_0b0a)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn rotate_8(a: __m256i) -> __m256i {
        shuffle(a, 0x0407_0605_0003_0201, 0x0c0f_0e0d_080b_0a09)
    }
}

pub(super) mod avx512 {
    use super::*;

    kernel!("avx512f,avx512bw", __m512i, 16);
    instructions!(
        "avx512f,avx512bw",
        __m512i,
        16,
        _mm512_set1_epi32,
        _mm512_add_epi32,
        _mm512_add_epi16,
        _mm512_xor_si512,
        _mm512_loadu_si512,
        _mm512_storeu_si512
    );

    macro_rules! rotate {
        ($($name:ident $by:literal),*) => {
            $(
                #[inline]
                #[target_feature(enable = "avx512f,avx512bw")]
                fn $name(a: __m512i) -> __m512i {
                    _mm512_ror_epi32::<$by>(a)
                }
            )*
        };
    }
    rotate!(rotate_16 16, rotate_12 12, rotate_8 8, rotate_7 7);
}
