//! Keeps the newest version of some accounts, in whatever order workers pass the versions.
//!
//! If the caller passes only some kinds of versions, a newer version of a different kind, such as a tombstone,
//! goes unnoticed. [`NewestVersions::drop_superseded`] drops what such versions supersede.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

use super::marks::{Mark, Marks};
use crate::StorageRef;

/// Number of shards: enough that workers seldom wait for each other.
const SHARDS: usize = 64;

#[derive(Debug)]
struct KeptVersion<T> {
    value: T,
    slot: u64,
    mark: Mark,
}

type Shard<T> = Mutex<HashMap<[u8; 32], KeptVersion<T>>>;

#[derive(Debug)]
pub struct NewestVersions<T> {
    shards: [Shard<T>; SHARDS],
    count: AtomicUsize,
    count_max: usize,
}

impl<T> NewestVersions<T> {
    pub fn new(count_max: usize) -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()), count: AtomicUsize::default(), count_max }
    }

    fn shard(&self, address: &[u8; 32]) -> &Shard<T> {
        // Vanity addresses share their first bytes, so a later one is used. An attacker can choose addresses
        // that all belong to one shard. Workers then wait for each other, which is slow but harmless.
        &self.shards[usize::from(address[4]) % SHARDS]
    }

    /// Keeps a version of an account, unless a newer version is kept or there are too many accounts.
    pub fn keep(&self, address: [u8; 32], storage: StorageRef, offset_bytes: u64, value: T) {
        let version = KeptVersion { value, slot: storage.slot, mark: Mark::new(storage.number, offset_bytes) };
        let mut shard = self.shard(&address).lock();
        if let Some(kept) = shard.get_mut(&address) {
            // Of two storages with the same slot, the later one in the archive is newer.
            if (kept.slot, kept.mark.storage) < (version.slot, version.mark.storage) {
                *kept = version;
            }
        } else if self.count.fetch_add(1, Relaxed) < self.count_max {
            shard.insert(address, version);
        }
    }

    pub fn has_overflowed(&self) -> bool {
        self.count.load(Relaxed) > self.count_max
    }

    pub fn drop_superseded(&self, superseded: &Marks) {
        self.shards.iter().for_each(|shard| shard.lock().retain(|_, kept| !superseded.contains(kept.mark)));
    }

    pub fn get<R>(&self, address: &[u8; 32], read: impl FnOnce(&T) -> Option<R>) -> Option<R> {
        self.shard(address).lock().get(address).and_then(|kept| read(&kept.value))
    }

    pub fn for_each(&self, mut read: impl FnMut(&[u8; 32], &T)) {
        for shard in &self.shards {
            shard.lock().iter().for_each(|(address, kept)| read(address, &kept.value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: [u8; 32] = [9; 32];

    fn keep(newest: &NewestVersions<usize>, address: [u8; 32], (slot, number): (u64, u32), value: usize) {
        newest.keep(address, StorageRef { number, slot, id: 1 }, 136, value);
    }

    fn kept_value(newest: &NewestVersions<usize>) -> Option<usize> {
        newest.get(&ADDRESS, |value| Some(*value))
    }

    #[test]
    fn the_newest_version_is_kept() {
        let versions = [(5, 0), (7, 1), (6, 2), (7, 3)];
        for first in 0..4 {
            for step in [1, 3] {
                let newest = NewestVersions::new(1);
                let order = (0..4).map(|turn| (first + step * turn) % 4);
                order.for_each(|number| keep(&newest, ADDRESS, versions[number], number));
                assert_eq!(kept_value(&newest), Some(3), "of two storages with the same slot, the later one is newer");
            }
        }
    }

    #[test]
    fn concurrent_workers_keep_the_newest_version() {
        let newest = NewestVersions::new(1);
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let newest = &newest;
                scope.spawn(move || {
                    for number in (worker..4000).step_by(4) {
                        keep(newest, ADDRESS, (number as u64, number as u32), number);
                    }
                });
            }
        });
        assert_eq!(kept_value(&newest), Some(3999));
        assert!(!newest.has_overflowed());
    }

    #[test]
    fn superseded_versions_are_dropped() {
        let newest = NewestVersions::new(1);
        keep(&newest, ADDRESS, (5, 0), 1);
        let mut superseded = Marks::default();
        superseded.insert(Mark::new(1, 136));
        superseded.insert(Mark::new(0, 0));
        newest.drop_superseded(&superseded);
        assert_eq!(kept_value(&newest), Some(1), "nothing supersedes it");
        superseded.insert(Mark::new(0, 136));
        newest.drop_superseded(&superseded);
        assert_eq!(kept_value(&newest), None);
    }

    #[test]
    fn the_number_of_accounts_is_limited() {
        let newest = NewestVersions::new(1);
        for (address, storage, value, has_overflowed) in
            [(ADDRESS, (5, 0), 1, false), (ADDRESS, (6, 1), 2, false), ([8; 32], (5, 0), 3, true)]
        {
            keep(&newest, address, storage, value);
            assert_eq!(newest.has_overflowed(), has_overflowed, "{value}");
        }
        let mut all = Vec::new();
        newest.for_each(|address, value| all.push((*address, *value)));
        assert_eq!(all, [(ADDRESS, 2)]);
    }
}
