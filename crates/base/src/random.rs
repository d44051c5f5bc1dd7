//! Reproducible pseudo-random numbers, the same on every platform, and random numbers from the system.
//!
//! The generator is SplitMix64 (Steele, Lea, Flood 2014): a few multiplications for 8 bytes, and
//! any state is a good seed. Most streams yield only a few numbers, and seeding another crate's
//! generator would take longer than drawing these numbers.

/// Increment of the state: 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Applies the finalizer of SplitMix64: a bijection that spreads every input bit over the output.
pub const fn finalize(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

pub const fn mix(state: u64) -> u64 {
    finalize(state.wrapping_add(GOLDEN))
}

#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    pub const fn new(state: u64) -> Self {
        Self(state)
    }

    pub const fn next(&mut self) -> u64 {
        let number = mix(self.0);
        self.0 = self.0.wrapping_add(GOLDEN);
        number
    }
}

/// Returns a number from the system that nobody can guess, or 0 if the system has none, as on Linux
/// before 3.17.
pub fn from_system() -> u64 {
    let mut number = [0; 8];
    let _ = rustix::rand::getrandom(&mut number, rustix::rand::GetRandomFlags::empty());
    u64::from_le_bytes(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that the reference implementation yields for the seed 1234567.
    #[test]
    fn numbers_equal_those_of_the_reference() {
        let mut stream = SplitMix64::new(1_234_567);
        let numbers = [0; 3].map(|_| stream.next());
        assert_eq!(numbers, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }
}
