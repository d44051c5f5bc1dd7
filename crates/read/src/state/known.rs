//! Table of the accounts in a newer archive, in which the accounts of an older archive are looked up.

use crate::Fingerprint;

/// Buckets hold at least this many fingerprints on average.
const KNOWN_BUCKET_ITEMS: usize = 4;

/// A sorted list of a partition's fingerprints. The bits after those that choose the partition divide the list
/// into buckets, so that a look-up takes two memory accesses.
pub struct KnownPartition {
    sorted: Vec<Fingerprint>,
    starts: Vec<u32>,
    /// Number of leading fingerprint bits that choose the partition.
    partition_bits: u32,
    /// Number of fingerprint bits after these that choose the bucket.
    bucket_bits: u32,
}

impl KnownPartition {
    /// Creates a table of accounts whose fingerprints share their first `partition_bits` bits.
    pub fn new(mut fingerprints: Vec<Fingerprint>, partition_bits: u32) -> Self {
        fingerprints.sort_unstable();
        fingerprints.dedup();
        let bucket_bits = (fingerprints.len() / KNOWN_BUCKET_ITEMS).max(1).ilog2().min(32 - partition_bits);
        let mut known = Self { sorted: fingerprints, starts: Vec::new(), partition_bits, bucket_bits };
        known.starts = (0..1 << bucket_bits)
            .map(|bucket| known.sorted.partition_point(|fingerprint| known.bucket(fingerprint) < bucket) as u32)
            .chain([known.sorted.len() as u32])
            .collect();
        known
    }

    fn bucket(&self, fingerprint: &Fingerprint) -> usize {
        let Fingerprint([first, ..]) = fingerprint;
        let shifted = u64::from(first << self.partition_bits) << self.bucket_bits;
        (shifted >> 32) as usize
    }

    pub fn contains(&self, fingerprint: &Fingerprint) -> bool {
        let bucket = self.bucket(fingerprint);
        self.sorted[self.starts[bucket] as usize..self.starts[bucket + 1] as usize].contains(fingerprint)
    }

    pub fn memory_bytes(&self) -> u64 {
        (size_of_val(&*self.sorted) + size_of_val(&*self.starts)) as u64
    }

    /// Upper bound on the bytes per account, including a share of the bucket starts.
    pub const ITEM_BYTES: u64 = (size_of::<Fingerprint>() + size_of::<u32>()) as u64;
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn memory_is_bounded_and_buckets_are_small() {
        for count in [0u32, 1, 100, 1000] {
            let fingerprints = (0..count).map(|number| Fingerprint([number * ((1 << 31) / count), 7, 0]));
            let known = KnownPartition::new(fingerprints.collect(), 1);
            let starts_bytes = known.memory_bytes() - 12 * u64::from(count);
            // One start for each bucket, and the end of the last.
            assert_eq!(starts_bytes, 4 * ((1 << known.bucket_bits) + 1));
            assert!(known.memory_bytes() <= u64::from(count) * KnownPartition::ITEM_BYTES + 8);
            // Accounts are spread over all buckets, so a look-up compares only a few fingerprints.
            let largest = known.starts.windows(2).map(|ends| ends[1] - ends[0]).max();
            assert!(largest <= Some(2 * KNOWN_BUCKET_ITEMS as u32), "{largest:?} of {count}");
        }
    }

    proptest! {
        #[test]
        fn only_accounts_of_the_table_are_known(
            partition_bits in 1u32..12,
            accounts in proptest::collection::vec((any::<u32>(), 0u32..3), 0..400),
            others in proptest::collection::vec((any::<u32>(), 0u32..3), 0..100),
        ) {
            let fingerprint = |(first, last): &(u32, u32)| Fingerprint([first >> partition_bits, 7, *last]);
            let set: HashSet<Fingerprint> = accounts.iter().map(fingerprint).collect();
            let known = KnownPartition::new(accounts.iter().map(fingerprint).collect(), partition_bits);
            for fingerprint in accounts.iter().chain(&others).map(fingerprint) {
                prop_assert_eq!(known.contains(&fingerprint), set.contains(&fingerprint));
            }
        }
    }
}
