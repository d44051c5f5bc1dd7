//! Items of a log, such as the 20 bytes that are logged for a record, and batches of items, which are divided
//! into partitions. No I/O.

use crate::Fingerprint;
use crate::state::marks::{Mark, UNIT_BYTES};

/// An item of a log: some facts about one record of an account.
pub trait LogItem: Copy + Default + Ord + Send + Sync {
    const BYTES: usize;

    fn fingerprint(&self) -> &Fingerprint;

    fn append_to(&self, bytes: &mut Vec<u8>);

    fn from_bytes(bytes: &[u8]) -> Self;

    fn partition(&self) -> usize {
        partition_of(self.fingerprint())
    }
}

/// Number of partitions of the log. The first 10 bits of a fingerprint choose the partition.
pub const PARTITIONS: usize = 1024;

/// Records that a worker collects before it appends them to the log: about 32 for each partition.
const BATCH_ITEMS: usize = 32 * 1024;

pub const ITEM_BYTES: u64 = RecordVersion::BYTES as u64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordVersion {
    pub fingerprint: Fingerprint,
    /// Twice the storage's number, plus 1 for a tombstone. When the records of an account are sorted, those in
    /// one storage are adjacent.
    tagged_storage: u32,
    /// Offset in the storage, in units of 8 bytes.
    offset_units: u32,
}

impl RecordVersion {
    /// Creates the item for a record at `offset_bytes` in a storage. Storage numbers are below 2^31.
    pub fn new(fingerprint: Fingerprint, storage: u32, is_tombstone: bool, offset_bytes: u64) -> Self {
        let tagged_storage = storage << 1 | u32::from(is_tombstone);
        Self { fingerprint, tagged_storage, offset_units: Mark::new(storage, offset_bytes).offset_units }
    }

    pub fn mark(&self) -> Mark {
        Mark { storage: self.storage(), offset_units: self.offset_units }
    }

    pub fn offset_bytes(&self) -> u64 {
        u64::from(self.offset_units) * UNIT_BYTES
    }

    pub fn storage(&self) -> u32 {
        self.tagged_storage >> 1
    }

    pub fn is_tombstone(&self) -> bool {
        self.tagged_storage & 1 == 1
    }
}

impl LogItem for RecordVersion {
    const BYTES: usize = 20;

    fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    fn append_to(&self, bytes: &mut Vec<u8>) {
        let [a, b, c] = self.fingerprint.0;
        for word in [a, b, c, self.tagged_storage, self.offset_units] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let mut words = [0; 5];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        let [a, b, c, tagged_storage, offset_units] = words;
        Self { fingerprint: Fingerprint([a, b, c]), tagged_storage, offset_units }
    }
}

pub fn partition_of(fingerprint: &Fingerprint) -> usize {
    (fingerprint.0[0] >> (32 - PARTITIONS.ilog2())) as usize
}

#[derive(Default)]
pub struct LogBatch<T = RecordVersion> {
    items: Vec<T>,
    ordered: Vec<T>,
    ends: Vec<u32>,
}

impl<T: LogItem> LogBatch<T> {
    /// Adds an item. Returns true if the batch is full.
    pub fn push(&mut self, item: T) -> bool {
        self.items.push(item);
        self.items.len() >= BATCH_ITEMS
    }

    pub fn clear(&mut self) {
        self.items.clear();
    }

    /// Returns the items of each partition. Leaves out partitions without items.
    pub fn group_by_partition(&mut self) -> impl Iterator<Item = &[T]> {
        self.ordered.resize(self.items.len(), T::default());
        distribute(|| self.items.iter(), 0, PARTITIONS.ilog2(), &mut self.ordered, &mut self.ends);
        self.ordered.chunk_by(|first, second| first.partition() == second.partition())
    }
}

/// Replaces `items` with the records of one partition, sorted by account and then by storage.
///
/// First divides the records into buckets of a few items, using the fingerprint bits after those that choose
/// the partition. Many records are divided in two steps, so that all places to which a step writes fit into
/// the cache. Then sorts each bucket. This takes half the time of sorting all records.
pub fn group_by_account<T: LogItem>(chunks: &[Vec<T>], items: &mut Vec<T>) {
    let count = chunks.iter().map(Vec::len).sum::<usize>();
    let bits = (count / BUCKET_ITEMS).max(1).ilog2().min(32 - PARTITIONS.ilog2());
    let first_bits = if bits <= STEP_BITS_MAX { bits } else { bits / 2 };
    items.resize(count, T::default());
    let mut ends = Vec::new();
    distribute(|| chunks.iter().flatten(), PARTITIONS.ilog2(), first_bits, items, &mut ends);
    if first_bits == bits {
        sort_buckets(items, &ends);
        return;
    }
    let mut copy = Vec::new();
    let mut inner_ends = Vec::new();
    let mut start = 0;
    for end in ends {
        let bucket = &mut items[start..end as usize];
        start = end as usize;
        copy.clear();
        copy.extend_from_slice(bucket);
        distribute(|| copy.iter(), PARTITIONS.ilog2() + first_bits, bits - first_bits, bucket, &mut inner_ends);
        sort_buckets(bucket, &inner_ends);
    }
}

/// Buckets hold at least this many items on average.
const BUCKET_ITEMS: usize = 2;

/// Limit on the bits of one step: a core's cache holds 4,096 places to which the step writes.
const STEP_BITS_MAX: u32 = 12;

/// Divides items into buckets by some bits of the fingerprints' first words. Counts the items of each bucket
/// first, so that each item is moved only once. Sets `ends` to the end of each bucket.
fn distribute<'a, T: LogItem + 'a, I: Iterator<Item = &'a T>>(
    items: impl Fn() -> I,
    skipped_bits: u32,
    bits: u32,
    divided: &mut [T],
    ends: &mut Vec<u32>,
) {
    // A `u64`, because shifting a `u32` right by 32 bits, if `bits` is 0, would overflow.
    let bucket_of = |item: &T| ((u64::from(item.fingerprint().0[0] << skipped_bits) << bits) >> 32) as usize;
    ends.clear();
    ends.resize(1 << bits, 0);
    items().for_each(|item| ends[bucket_of(item)] += 1);
    let mut start = 0;
    for count in ends.iter_mut() {
        start += std::mem::replace(count, start);
    }
    for item in items() {
        let place = &mut ends[bucket_of(item)];
        divided[*place as usize] = *item;
        *place += 1;
    }
}

fn sort_buckets<T: LogItem>(items: &mut [T], ends: &[u32]) {
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

    proptest! {
        #[test]
        fn grouping_by_account_sorts_all_items(seeds in proptest::collection::vec((any::<u32>(), 0u32..3, 0u32..4), 0..2000), many: bool) {
            // Records of one partition; with `many`, enough for two steps.
            let times = if many { 20 } else { 1 };
            let version = |(seed, second, storage): &(u32, u32, u32), time: u32| {
                let first = seed.wrapping_mul(2 * time + 1) >> 10 | 5 << 22;
                RecordVersion::new(Fingerprint([first, *second, 7]), *storage, false, 8 * u64::from(time))
            };
            let chunks: Vec<Vec<RecordVersion>> =
                (0..times).map(|time| seeds.iter().map(|seed| version(seed, time)).collect()).collect();
            let mut sorted: Vec<RecordVersion> = chunks.iter().flatten().copied().collect();
            sorted.sort_unstable();
            // The buffer may hold old items, even more than the new ones.
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
