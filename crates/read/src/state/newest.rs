//! Keeps the newest version of some accounts, in whatever order workers see the versions.
//!
//! Versions of other kinds, such as tombstones, are not passed here. If one of them is newer, that
//! shows only when superseded records were found ([`Newest::drop_superseded`]).

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;

use super::fingerprint::Fingerprint;
use super::superseded::{Superseded, is_listed};
use crate::StorageRef;

/// Number of shards: enough that workers seldom wait for each other.
const SHARDS: usize = 64;

#[derive(Debug)]
struct Found<T> {
    value: T,
    slot: u64,
    storage: u32,
    fingerprint: Fingerprint,
}

type Shard<T> = Mutex<HashMap<[u8; 32], Found<T>>>;

#[derive(Debug)]
pub struct Newest<T> {
    shards: [Shard<T>; SHARDS],
    count: AtomicUsize,
    count_max: usize,
}

impl<T> Newest<T> {
    /// Prepares to keep at most `count_max` accounts.
    pub fn new(count_max: usize) -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()), count: AtomicUsize::default(), count_max }
    }

    fn shard(&self, address: &[u8; 32]) -> &Shard<T> {
        // An attacker can choose addresses that all fall into one shard. Workers then wait for each
        // other, which is slow but harmless.
        &self.shards[usize::from(address[4]) % SHARDS]
    }

    /// Keeps a version of an account, unless a newer one is kept.
    pub fn keep(&self, address: [u8; 32], storage: StorageRef, fingerprint: Fingerprint, value: T) {
        let found = Found { value, slot: storage.slot, storage: storage.number, fingerprint };
        let mut shard = self.shard(&address).lock();
        match shard.get_mut(&address) {
            // If storages have the same slot, the later one in the archive counts.
            Some(known) if (known.slot, known.storage) < (found.slot, found.storage) => *known = found,
            None if self.count.fetch_add(1, Relaxed) < self.count_max => drop(shard.insert(address, found)),
            _ => {}
        }
    }

    /// True if there were more accounts than are kept.
    pub fn is_over(&self) -> bool {
        self.count.load(Relaxed) > self.count_max
    }

    /// Drops versions that are superseded.
    pub fn drop_superseded(&self, superseded: &Superseded) {
        for shard in &self.shards {
            shard.lock().retain(|_, found| {
                let is_superseded = is_listed(superseded.to_subtract.of_storage(found.storage), &found.fingerprint);
                !is_superseded
            });
        }
    }

    /// Passes a kept account to `look`, and returns the result of `look`.
    pub fn get<R>(&self, address: &[u8; 32], look: impl FnOnce(&T) -> Option<R>) -> Option<R> {
        self.shard(address).lock().get(address).and_then(|found| look(&found.value))
    }

    /// Passes all kept accounts to `look`.
    pub fn each(&self, mut look: impl FnMut(&[u8; 32], &T)) {
        for shard in &self.shards {
            shard.lock().iter().for_each(|(address, found)| look(address, &found.value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::superseded::superseded_among;
    use crate::{Superseded, Version};

    const ADDRESS: [u8; 32] = [9; 32];

    fn keep(newest: &Newest<usize>, address: [u8; 32], (slot, number): (u64, u32), value: usize) {
        newest.keep(address, StorageRef { number, slot, id: 1 }, Fingerprint([1, 2, 3]), value);
    }

    fn kept(newest: &Newest<usize>) -> Option<usize> {
        newest.get(&ADDRESS, |value| Some(*value))
    }

    #[test]
    fn the_newest_stays() {
        let versions = [(5, 0), (7, 1), (6, 2), (7, 3)];
        for first in 0..4 {
            for step in [1, 3] {
                let newest = Newest::new(1);
                let order = (0..4).map(|turn| (first + step * turn) % 4);
                order.for_each(|at| keep(&newest, ADDRESS, versions[at], at));
                assert_eq!(kept(&newest), Some(3), "the later of two storages of a slot counts");
            }
        }
    }

    #[test]
    fn superseded_versions_are_dropped() {
        let newest = Newest::new(1);
        keep(&newest, ADDRESS, (5, 0), 1);
        newest.drop_superseded(&Superseded::default());
        assert_eq!(kept(&newest), Some(1), "nothing supersedes it");
        // A tombstone in a newer storage closes the account.
        let version = |storage, is_tombstone| Version::new(Fingerprint([1, 2, 3]), storage, is_tombstone, 0);
        let superseded = superseded_among(&[version(0, false), version(1, true)], &u64::from);
        newest.drop_superseded(&superseded);
        assert_eq!(kept(&newest), None);
    }

    #[test]
    fn the_number_of_accounts_is_limited() {
        let newest = Newest::new(1);
        for (address, storage, value, is_over) in
            [(ADDRESS, (5, 0), 1, false), (ADDRESS, (6, 1), 2, false), ([8; 32], (5, 0), 3, true)]
        {
            keep(&newest, address, storage, value);
            assert_eq!(newest.is_over(), is_over, "{value}");
        }
        let mut all = Vec::new();
        newest.each(|address, value| all.push((*address, *value)));
        assert_eq!(all, [(ADDRESS, 2)]);
    }
}
