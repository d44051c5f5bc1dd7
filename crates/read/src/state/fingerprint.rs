//! Computes fingerprints: short identifiers of accounts, unpredictable and valid for one run.
//!
//! A fingerprint has three parts of 32 bits. Each part is a multilinear hash with its own random key (Lemire
//! and Kaser, "Strongly universal string hashing is fast"). Each of the eight 32-bit words of a pubkey is
//! multiplied by a 64-bit number from the key. The part is the upper half of the sum of these products and a
//! ninth number.
//!
//! Two pubkeys that were chosen before the key was drawn collide with a probability of exactly
//! 2^-96. The probability that any two of n accounts collide is below n² / 2^97, which is 6e-12 for
//! a billion. A collision can only make a valid archive look damaged, or hide a difference by
//! chance: without the key, an attacker cannot choose pubkeys that collide. Hashing takes a tenth
//! of the time of a cryptographic hash, which would not be safer: fingerprints are never
//! shown, so the key cannot be learned.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use slotpress_base::{IoContext, Result};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u32; 3]);

const WORDS: usize = 8;

/// Key of one part of a fingerprint: a summand, and a factor for each word.
type PartKey = [u64; WORDS + 1];

pub struct Fingerprinter([PartKey; 3]);

impl Fingerprinter {
    pub fn new() -> Result<Self> {
        let path = Path::new("/dev/urandom");
        let mut random = File::open(path).or_path("open", path)?;
        let mut keys = [[0; WORDS + 1]; 3];
        for number in keys.as_flattened_mut() {
            let mut bytes = [0; 8];
            random.read_exact(&mut bytes).or_path("read", path)?;
            *number = u64::from_le_bytes(bytes);
        }
        Ok(Self(keys))
    }

    pub fn fingerprint(&self, pubkey: &[u8; 32]) -> Fingerprint {
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(pubkey.chunks_exact(4)) {
            *word = u64::from(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        }
        let [first, second, third] = self.0.each_ref().map(|[summand, factors @ ..]| {
            let sum = factors
                .iter()
                .zip(words)
                .fold(*summand, |sum, (factor, word)| sum.wrapping_add(factor.wrapping_mul(word)));
            (sum >> 32) as u32
        });
        // For consecutive pubkeys, the first parts may be close to each other. They choose the partition, so
        // the other parts are added to them. This is reversible, so distinct fingerprints stay distinct.
        let spread = second.wrapping_mul(0x9E37_79B1).wrapping_add(third.wrapping_mul(0x85EB_CA6B));
        Fingerprint([first.wrapping_add(spread), second, third])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;

    /// Pubkeys that differ as little as possible, as an attacker would choose them.
    fn similar_keys() -> impl Iterator<Item = [u8; 32]> {
        (0..60_000u32).map(|number| {
            let mut key = [0xFF; 32];
            let offset = 4 * (number as usize % 8);
            key[offset..offset + 4].copy_from_slice(&(number / 8).to_le_bytes());
            key
        })
    }

    #[test]
    fn fingerprints_differ_and_are_spread_over_partitions() {
        let fingerprinter = Fingerprinter::new().expect("random bytes");
        let keys: HashSet<[u8; 32]> = similar_keys().collect();
        let fingerprints: HashSet<Fingerprint> = keys.iter().map(|key| fingerprinter.fingerprint(key)).collect();
        assert_eq!(fingerprints.len(), keys.len());
        // The first bits choose a partition. With 64 partitions, each would have about 900 fingerprints.
        let mut parts: HashMap<u32, u32> = HashMap::new();
        fingerprints.iter().for_each(|Fingerprint([first, ..])| *parts.entry(first >> 26).or_default() += 1);
        assert_eq!(parts.len(), 64);
        assert!(parts.values().all(|count| (100..3000).contains(count)), "{parts:?}");
    }

    #[test]
    fn fingerprints_differ_between_runs() {
        let [first, second] = [0; 2].map(|_| Fingerprinter::new().expect("random bytes"));
        assert_eq!(first.fingerprint(&[7; 32]), first.fingerprint(&[7; 32]));
        assert_ne!(first.fingerprint(&[7; 32]), second.fingerprint(&[7; 32]));
    }
}
