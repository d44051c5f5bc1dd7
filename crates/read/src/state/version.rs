//! What the log of versions holds of a record: 20 bytes; and batches of it, sorted into partitions. Pure.

use crate::state::fingerprint::Fingerprint;

/// Partitions of the log: by the first 10 bits of the fingerprint.
pub const PARTITIONS: usize = 1024;

/// Records that a worker collects before it hands them to the log: some 32 for each partition.
const BATCH_ITEMS: usize = 32 * 1024;

/// As many of one partition in a batch are no chance.
const SUSPICIOUS_ITEMS: usize = BATCH_ITEMS / PARTITIONS * 16;

/// Bytes of an item.
pub const ITEM_BYTES: u64 = 20;

/// Records start at multiples of 8: offsets in 16 GiB fit in 31 bits.
const OFFSET_UNIT_BYTES: u64 = 8;

/// One record in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The account.
    pub fingerprint: Fingerprint,
    /// Twice the storage's number, and 1 for a tombstone: records of one storage are neighbours when sorted.
    tagged_storage: u32,
    /// Where in the storage it starts, in units of 8 bytes.
    offset_units: u32,
}

impl Version {
    /// A record that starts `offset_bytes` into a storage; storages are numbered from 0, below 2^31.
    pub fn new(fingerprint: Fingerprint, storage: u32, is_tombstone: bool, offset_bytes: u64) -> Self {
        let tagged_storage = storage << 1 | u32::from(is_tombstone);
        Self { fingerprint, tagged_storage, offset_units: (offset_bytes / OFFSET_UNIT_BYTES) as u32 }
    }

    /// Where in the storage it starts, in bytes.
    pub fn offset_bytes(&self) -> u64 {
        u64::from(self.offset_units) * OFFSET_UNIT_BYTES
    }

    /// Whether it is of the same account in the same storage: one of the two is one too many.
    fn is_repeated_by(&self, other: &Self) -> bool {
        (self.fingerprint, self.tagged_storage) == (other.fingerprint, other.tagged_storage)
    }

    /// The storage's number.
    pub fn storage(&self) -> u32 {
        self.tagged_storage >> 1
    }

    /// Whether it closes the account.
    pub fn is_tombstone(&self) -> bool {
        self.tagged_storage & 1 == 1
    }

    /// The partition that it belongs into.
    pub fn partition(&self) -> usize {
        partition_of(&self.fingerprint)
    }

    /// As it is spilled.
    pub fn to_bytes(self) -> [u8; ITEM_BYTES as usize] {
        let mut bytes = [0; ITEM_BYTES as usize];
        let [a, b, c] = self.fingerprint.0;
        for (to, word) in bytes.chunks_exact_mut(4).zip([a, b, c, self.tagged_storage, self.offset_units]) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// From those bytes.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut words = [0; 5];
        for (word, from) in words.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = u32::from_le_bytes([from[0], from[1], from[2], from[3]]);
        }
        let [a, b, c, tagged_storage, offset_units] = words;
        Self { fingerprint: Fingerprint([a, b, c]), tagged_storage, offset_units }
    }
}

/// The partition of an account.
pub fn partition_of(fingerprint: &Fingerprint) -> usize {
    (fingerprint.0[0] >> (32 - PARTITIONS.ilog2())) as usize
}

/// Records of one worker, on their way into the log.
#[derive(Default)]
pub struct Batch {
    items: Vec<Version>,
    ordered: Vec<Version>,
}

impl Batch {
    /// Adds a record; `true` when it is time to hand the batch over.
    pub fn push(&mut self, version: Version) -> bool {
        self.items.push(version);
        self.items.len() >= BATCH_ITEMS
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.items.clear();
    }

    /// The records of each partition that has any. They are counted first, so that each is moved only once.
    pub fn by_partition(&mut self) -> impl Iterator<Item = &[Version]> {
        let mut starts = [0; PARTITIONS];
        self.items.iter().for_each(|version| starts[version.partition()] += 1);
        let mut start = 0;
        for count in &mut starts {
            start += std::mem::replace(count, start);
        }
        self.ordered.resize(self.items.len(), Version::new(Fingerprint([0; 3]), 0, false, 0));
        for version in &self.items {
            let at = &mut starts[version.partition()];
            self.ordered[*at] = *version;
            *at += 1;
        }
        let runs = self.ordered.chunk_by_mut(|one, other| one.partition() == other.partition());
        runs.map(|run| match run.len() {
            ..SUSPICIOUS_ITEMS => &*run,
            _ => keep_two_of_a_kind(run),
        })
    }
}

/// Of what is there more than twice, two: enough to tell that it is.
fn keep_two_of_a_kind(versions: &mut [Version]) -> &[Version] {
    versions.sort_unstable();
    let mut kept = 0;
    for at in 0..versions.len() {
        let is_third = kept >= 2 && versions[kept - 2].is_repeated_by(&versions[at]);
        if !is_third {
            versions[kept] = versions[at];
            kept += 1;
        }
    }
    &versions[..kept]
}

/// Puts records of one partition into `items`, in place of what is there: next to the others of their account, those of
/// one storage next to each other.
///
/// They are spread by the bits of the fingerprint that follow the partition's, twice where they are many, so that every
/// write goes to one of a few places that the cache holds; what is left to sort are a few items each. It takes half of
/// the time of sorting all.
pub fn group_by_account(chunks: &[Vec<Version>], items: &mut Vec<Version>) {
    let count = chunks.iter().map(Vec::len).sum::<usize>();
    let bits = (count / GROUP_ITEMS).max(1).ilog2().min(32 - PARTITIONS.ilog2());
    let first_bits = if bits <= SPREAD_BITS_MAX { bits } else { bits / 2 };
    items.resize(count, Version::new(Fingerprint([0; 3]), 0, false, 0));
    let mut ends = Vec::new();
    spread(|| chunks.iter().flatten(), PARTITIONS.ilog2(), first_bits, items, &mut ends);
    if first_bits == bits {
        sort_each(items, &ends);
        return;
    }
    let (mut part, mut inner_ends, mut start) = (Vec::new(), Vec::new(), 0);
    for end in ends {
        let bucket = &mut items[start..end as usize];
        start = end as usize;
        part.clear();
        part.extend_from_slice(bucket);
        spread(|| part.iter(), PARTITIONS.ilog2() + first_bits, bits - first_bits, bucket, &mut inner_ends);
        sort_each(bucket, &inner_ends);
    }
}

/// Items that are left to sort, on average.
const GROUP_ITEMS: usize = 2;

/// The most bits to spread by at once: 4,096 places for writing fit in the cache of a core.
const SPREAD_BITS_MAX: u32 = 12;

/// Spreads items by some bits of their fingerprints' first words; tells where each bucket ends.
fn spread<'a, I: Iterator<Item = &'a Version>>(
    items: impl Fn() -> I,
    skipped_bits: u32,
    bits: u32,
    to: &mut [Version],
    ends: &mut Vec<u32>,
) {
    let bucket_of = |version: &Version| ((u64::from(version.fingerprint.0[0] << skipped_bits) << bits) >> 32) as usize;
    ends.clear();
    ends.resize(1 << bits, 0);
    items().for_each(|version| ends[bucket_of(version)] += 1);
    let mut start = 0;
    for count in ends.iter_mut() {
        start += std::mem::replace(count, start);
    }
    for version in items() {
        let at = &mut ends[bucket_of(version)];
        to[*at as usize] = *version;
        *at += 1;
    }
}

fn sort_each(items: &mut [Version], ends: &[u32]) {
    let mut start = 0;
    for end in ends {
        let bucket = &mut items[start..*end as usize];
        start = *end as usize;
        if bucket.len() > 1 {
            bucket.sort_unstable();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A batch with very many of one partition: repeats are dropped, other accounts are not.
    #[test]
    fn repeats_are_dropped_and_nothing_else() {
        let version = |account: u32, storage: u32, at: u64| {
            Version::new(Fingerprint([5 << 22, account, 7]), storage, false, 8 * at)
        };
        let count = SUSPICIOUS_ITEMS as u32;
        let others = (0..count).map(|account| version(account, account % 3, 0));
        let repeats = (0..100).map(|at| version(count, 1, at));
        for (before, items, expected) in [
            ("others", others.clone().collect::<Vec<_>>(), count),
            ("repeats", others.clone().chain(repeats.clone()).collect(), count + 2),
            ("few", repeats.collect(), 100),
        ] {
            let mut batch = Batch { items, ordered: Vec::new() };
            let kept: Vec<Version> = batch.by_partition().flatten().copied().collect();
            assert_eq!(kept.len() as u32, expected, "{before}");
            assert!(others.clone().filter(|other| kept.contains(other)).count() as u32 == count || before == "few");
        }
    }

    proptest! {
        #[test]
        fn grouped_is_sorted(seeds in proptest::collection::vec((any::<u32>(), 0u32..3, 0u32..4), 0..2000), many: bool) {
            // Of one partition; with many, those that need two turns.
            let times = if many { 20 } else { 1 };
            let version = |(seed, second, storage): &(u32, u32, u32), time: u32| {
                let first = seed.wrapping_mul(2 * time + 1) >> 10 | 5 << 22;
                Version::new(Fingerprint([first, *second, 7]), *storage, false, 8 * u64::from(time))
            };
            let chunks: Vec<Vec<Version>> =
                (0..times).map(|time| seeds.iter().map(|seed| version(seed, time)).collect()).collect();
            let mut sorted: Vec<Version> = chunks.iter().flatten().copied().collect();
            sorted.sort_unstable();
            // What was grouped before is as long, or longer.
            let mut grouped = chunks.concat();
            grouped.extend_from_slice(&sorted[..sorted.len() / 2]);
            group_by_account(&chunks, &mut grouped);
            prop_assert!(grouped == sorted);
            let mut grouped = Vec::new();
            group_by_account(&chunks, &mut grouped);
            prop_assert!(grouped == sorted);
        }
    }
}
