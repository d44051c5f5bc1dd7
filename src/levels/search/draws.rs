//! Draws that depend on nothing but a seed.

use crate::levels::sample::mix;

/// A sequence of draws (splitmix64).
#[derive(Clone, Debug)]
pub struct Draws {
    state: u64,
}

impl Draws {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self { state: mix(seed) }
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.state) % bound.max(1)
    }

    /// Whether one chance out of so many came up.
    pub fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }
}
