//! Pseudorandom numbers from a seed.

use slotpress_base::SplitMix64;

pub struct SeededRng(SplitMix64);

impl SeededRng {
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// Returns the next number, which is below `end`, or 0 if `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.0.next() % end.max(1) as u64) as usize
    }
}
