//! Random numbers. Everything in a synthetic ledger is a function of the options and an index, so nothing has
//! to be stored. Random numbers are integers, so every platform makes the same bytes.

use slotpress_base::SplitMix64;
use slotpress_base::random::{self, finalize};

pub const fn derive_number(key: u64, index: u64) -> u64 {
    finalize(key ^ random::mix(index))
}

#[derive(Clone, Debug)]
pub struct Rng(SplitMix64);

impl Rng {
    pub const fn new(key: u64) -> Self {
        Self(SplitMix64::new(key))
    }

    pub const fn next(&mut self) -> u64 {
        self.0.next()
    }

    /// Picks a number below `end`.
    pub const fn pick(&mut self, end: u64) -> u64 {
        ((self.next() as u128 * end as u128) >> 64) as u64
    }

    /// Returns true with a probability of `permille` in 1,000.
    pub const fn chance_permille(&mut self, permille: u64) -> bool {
        self.pick(1000) < permille
    }

    /// Chooses an item with the probability of its share of `total`. Returns `None` with the probability of
    /// the rest of `total`.
    pub fn pick_weighted<T>(&mut self, total: u64, items: impl Iterator<Item = (u64, T)>) -> Option<T> {
        let mut position = self.pick(total);
        for (share, item) in items {
            if position < share {
                return Some(item);
            }
            position -= share;
        }
        None
    }

    /// Returns a number of 1 to `bits` bits, never 0. All lengths are equally likely, which resembles
    /// the distribution of balances.
    pub const fn log_uniform(&mut self, bits: u64) -> u64 {
        let length = self.pick(bits);
        (1 << length) | (self.next() & ((1 << length) - 1))
    }

    /// Returns a rank below `2^bits` by Zipf's law with exponent 1: each group of ranks between two
    /// powers of two is equally likely.
    pub const fn zipf(&mut self, bits: u64) -> u64 {
        self.log_uniform(bits) - 1
    }

    pub fn key(&mut self) -> [u8; 32] {
        let mut key = [0; 32];
        self.fill(&mut key);
        key
    }

    pub fn fill(&mut self, buffer: &mut [u8]) {
        for part in buffer.chunks_mut(8) {
            let bytes = self.next().to_le_bytes();
            part.copy_from_slice(&bytes[..part.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_depend_only_on_seed_and_index() {
        let key = |seed, index| Rng::new(derive_number(seed, index)).key();
        assert_eq!(key(1, 2), key(1, 2));
        assert_ne!(key(1, 2), key(1, 3));
        assert_ne!(key(1, 2), key(2, 2));
    }

    #[test]
    fn small_ranks_are_common() {
        let mut rng = Rng::new(7);
        let ranks: Vec<u64> = (0..10_000).map(|_| rng.zipf(20)).collect();
        assert!(ranks.iter().all(|rank| *rank < 1 << 20));
        // One in 20 draws has the first rank.
        let first = ranks.iter().filter(|rank| **rank == 0).count();
        assert!((400..600).contains(&first), "{first}");
    }
}
