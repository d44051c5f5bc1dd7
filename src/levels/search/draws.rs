//! Draws that depend on nothing but a seed.

use slotpress_base::random::{SplitMix64, mix};

/// A sequence of draws.
#[derive(Clone, Debug)]
pub struct Draws(SplitMix64);

impl Draws {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        let mut numbers = SplitMix64::new(mix(seed));
        // The first one was never drawn, and every sequence stays what it was.
        let _ = numbers.next();
        Self(numbers)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.next() % bound.max(1)
    }

    /// Whether one chance out of so many came up.
    pub fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }
}
