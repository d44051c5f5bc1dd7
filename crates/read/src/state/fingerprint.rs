//! Short names of accounts within one run, which cannot be foreseen.
//!
//! 96 bits, by multilinear hashing with a key of random bytes from the system: the eight 32-bit words of a pubkey, each
//! times a 64-bit number of the key, and the upper half of the sum (Lemire and Kaser, "Strongly universal string
//! hashing is fast"); three times, with keys of their own. Any two pubkeys that were chosen before the key was
//! drawn collide with a probability of exactly 2^-96; among n accounts, with one below n² / 2^97: 6e-12 for a
//! billion. A collision could only make a sound archive look damaged, or hide a difference that its maker could not
//! have aimed at. It takes a tenth of the time of a cryptographic hash, which would promise no more: fingerprints are
//! not shown, so that there is nothing to learn a key from.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use slotpress_base::{IoContext, Result};

/// Identifies an account within one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u32; 3]);

/// Words in a pubkey.
const WORDS: usize = 8;

/// What one part of a fingerprint takes: a factor for each word, and a summand.
type PartKey = [u64; WORDS + 1];

/// Makes fingerprints, with a secret key.
#[derive(Clone)]
pub struct Fingerprinter([PartKey; 3]);

impl Fingerprinter {
    /// With a random key.
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

    /// The fingerprint of an account.
    pub fn of(&self, pubkey: &[u8; 32]) -> Fingerprint {
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
        // Sums of keys that were counted up may lie close together: the first part, which chooses the partition,
        // is spread by the others. That can be undone, so that no two fingerprints become one.
        let spread = second.wrapping_mul(0x9E37_79B1).wrapping_add(third.wrapping_mul(0x85EB_CA6B));
        Fingerprint([first.wrapping_add(spread), second, third])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;

    /// Keys that differ as little as keys can, as an attacker would choose them.
    fn similar_keys() -> impl Iterator<Item = [u8; 32]> {
        (0..60_000u32).map(|number| {
            let mut key = [0xFF; 32];
            let at = 4 * (number as usize % 8);
            key[at..at + 4].copy_from_slice(&(number / 8).to_le_bytes());
            key
        })
    }

    #[test]
    fn fingerprints_differ_and_spread() {
        let printer = Fingerprinter::new().expect("random bytes");
        let keys: HashSet<[u8; 32]> = similar_keys().collect();
        let prints: HashSet<Fingerprint> = keys.iter().map(|key| printer.of(key)).collect();
        assert_eq!(prints.len(), keys.len());
        // By the first bits, which choose a partition, they are spread: each of 64 parts holds some 900.
        let mut parts: HashMap<u32, u32> = HashMap::new();
        prints.iter().for_each(|Fingerprint([first, ..])| *parts.entry(first >> 26).or_default() += 1);
        assert!(parts.len() == 64 && parts.values().all(|count| (100..3000).contains(count)), "{parts:?}");
    }

    #[test]
    fn another_run_has_other_fingerprints() {
        let [one, other] = [(); 2].map(|()| Fingerprinter::new().expect("random bytes"));
        assert_eq!(one.of(&[7; 32]), one.clone().of(&[7; 32]));
        assert_ne!(one.of(&[7; 32]), other.of(&[7; 32]));
    }
}
