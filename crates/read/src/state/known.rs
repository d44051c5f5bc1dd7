//! A table of the accounts of newer archives, in which each account of an older one is looked up.
//! It is a sorted list, divided into buckets by the first bits of the fingerprints, so that a
//! look-up costs two memory accesses.

use crate::state::fingerprint::Fingerprint;
use crate::state::layers::LayerSet;

/// Least average number of fingerprints in a bucket.
const BUCKET_ITEMS: usize = 4;

pub struct KnownPartition {
    sorted: Vec<Fingerprint>,
    /// For each account, the layers that hold it; empty without layers, when there is one newer
    /// archive.
    layers: Vec<LayerSet>,
    /// Start of each bucket in the list, and the end of the last.
    starts: Vec<u32>,
    /// Number of first fingerprint bits that choose the partition, and of the next ones that choose
    /// the bucket.
    partition_bits: u32,
    bucket_bits: u32,
}

impl KnownPartition {
    /// Takes accounts whose fingerprints share their first `partition_bits` bits.
    pub fn new(mut fingerprints: Vec<Fingerprint>, partition_bits: u32) -> Self {
        fingerprints.sort_unstable();
        fingerprints.dedup();
        Self::of_sorted(fingerprints, Vec::new(), partition_bits)
    }

    /// Like [`new`](Self::new), for accounts of several layers.
    pub fn of_layers(mut items: Vec<(Fingerprint, LayerSet)>, partition_bits: u32) -> Self {
        items.sort_unstable();
        items.dedup_by(|item, kept| {
            let is_same = item.0 == kept.0;
            if is_same {
                kept.1 = kept.1 | item.1;
            }
            is_same
        });
        let (sorted, layers) = items.into_iter().unzip();
        Self::of_sorted(sorted, layers, partition_bits)
    }

    fn of_sorted(sorted: Vec<Fingerprint>, layers: Vec<LayerSet>, partition_bits: u32) -> Self {
        let bucket_bits = (sorted.len() / BUCKET_ITEMS).max(1).ilog2().min(32 - partition_bits);
        let mut known = Self { sorted, layers, starts: Vec::new(), partition_bits, bucket_bits };
        known.starts = (0..1 << bucket_bits)
            .map(|bucket| known.sorted.partition_point(|one| known.bucket(one) < bucket) as u32)
            .chain([known.sorted.len() as u32])
            .collect();
        known
    }

    fn bucket(&self, fingerprint: &Fingerprint) -> usize {
        let Fingerprint([first, ..]) = fingerprint;
        let rest = u64::from(first << self.partition_bits) << self.bucket_bits;
        (rest >> 32) as usize
    }

    /// Returns the layers that hold the account; without layers, layer 0 if the newer archive holds
    /// it.
    pub fn layers_of(&self, fingerprint: &Fingerprint) -> LayerSet {
        let bucket = self.bucket(fingerprint);
        let (start, end) = (self.starts[bucket] as usize, self.starts[bucket + 1] as usize);
        match self.sorted[start..end].iter().position(|one| one == fingerprint) {
            Some(at) => self.layers.get(start + at).copied().unwrap_or(LayerSet::of(0)),
            None => LayerSet::default(),
        }
    }

    pub fn memory_bytes(&self) -> u64 {
        (size_of_val(&*self.sorted) + size_of_val(&*self.layers) + size_of_val(&*self.starts)) as u64
    }

    /// Upper bound of the bytes per account, including its share of the bucket starts.
    pub const fn item_bytes(has_layers: bool) -> u64 {
        let layers_bytes = if has_layers { size_of::<LayerSet>() } else { 0 };
        (size_of::<Fingerprint>() + layers_bytes + size_of::<u32>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn memory_is_bounded_and_buckets_are_small() {
        for count in [0u32, 1, 100, 1000] {
            let prints = (0..count).map(|number| Fingerprint([number * ((1 << 31) / count), 7, 0]));
            let known = KnownPartition::new(prints.collect(), 1);
            let starts_bytes = known.memory_bytes() - 12 * u64::from(count);
            // One start for each bucket, and the end of the last.
            assert_eq!(starts_bytes, 4 * ((1 << known.bucket_bits) + 1));
            assert!(known.memory_bytes() <= u64::from(count) * KnownPartition::item_bytes(false) + 8);
            // Accounts are spread over all buckets, so a look-up compares only a few fingerprints.
            let largest = known.starts.windows(2).map(|ends| ends[1] - ends[0]).max();
            assert!(largest <= Some(2 * BUCKET_ITEMS as u32), "{largest:?} of {count}");
        }
    }

    proptest! {
        #[test]
        fn only_given_accounts_are_known(
            partition_bits in 1u32..12,
            given in proptest::collection::vec((any::<u32>(), 0u32..3), 0..400),
            asked in proptest::collection::vec((any::<u32>(), 0u32..3), 0..100),
        ) {
            let print = |(first, last): &(u32, u32)| Fingerprint([first >> partition_bits, 7, *last]);
            let set: HashSet<Fingerprint> = given.iter().map(print).collect();
            let known = KnownPartition::new(given.iter().map(print).collect(), partition_bits);
            for one in given.iter().chain(&asked).map(print) {
                prop_assert_eq!(!known.layers_of(&one).is_empty(), set.contains(&one));
            }
            // In several layers.
            let mut layers_of: HashMap<Fingerprint, LayerSet> = HashMap::new();
            let of_layer = |number: usize| LayerSet::of(number as u32 % 5);
            let items: Vec<_> = given.iter().map(print).enumerate().map(|(at, one)| (one, of_layer(at))).collect();
            items.iter().for_each(|(one, layer)| {
                let layers = layers_of.entry(*one).or_default();
                *layers = *layers | *layer;
            });
            let known = KnownPartition::of_layers(items, partition_bits);
            for one in given.iter().chain(&asked).map(print) {
                prop_assert_eq!(known.layers_of(&one), layers_of.get(&one).copied().unwrap_or_default());
            }
        }
    }
}
