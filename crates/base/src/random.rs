//! Numbers that look random and can be had again, the same on every platform.
//!
//! SplitMix64 (Steele, Lea, Flood 2014): one multiplication chain for 8 bytes, and any state is a good start. It fits in a
//! page; a crate would bring seeding that costs more than the few numbers that most streams give.

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finalizer of SplitMix64: a bijection that spreads every input bit over the output.
pub const fn finalize(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// What the generator makes of a state: the number that it gives next.
pub const fn mix(state: u64) -> u64 {
    finalize(state.wrapping_add(GOLDEN))
}

/// A stream of pseudo-random numbers.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The stream that starts at a state.
    pub const fn new(state: u64) -> Self {
        Self(state)
    }

    /// 64 random bits.
    pub const fn next(&mut self) -> u64 {
        let number = mix(self.0);
        self.0 = self.0.wrapping_add(GOLDEN);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of the algorithm's reference implementation for the seed 1234567.
    #[test]
    fn reference_numbers() {
        let mut stream = SplitMix64::new(1_234_567);
        let numbers = [(); 3].map(|()| stream.next());
        assert_eq!(numbers, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }
}
