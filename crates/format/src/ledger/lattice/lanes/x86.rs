use std::arch::x86_64::*;

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
    #[inline]
    #[target_feature(enable = "avx2")]
    fn rotate_12(a: __m256i) -> __m256i {
        _mm256_or_si256(_mm256_srli_epi32::<12>(a), _mm256_slli_epi32::<20>(a))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn rotate_7(a: __m256i) -> __m256i {
        _mm256_or_si256(_mm256_srli_epi32::<7>(a), _mm256_slli_epi32::<25>(a))
    }

    // To rotate by whole bytes, a shuffle is faster than shifts.
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
