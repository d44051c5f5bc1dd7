//! Finds superseded records: all versions of an account except the newest. Does no I/O.

use std::collections::HashSet;

use crate::state::log_item::ITEM_BYTES;
use crate::{Fingerprint, RecordVersion};

#[derive(Debug, Default)]
pub struct Superseded {
    /// Superseded records that the caller wants, except those in `duplicates`.
    pub records: Vec<RecordVersion>,
    /// Records of an account that share a storage with another record of the account.
    pub duplicates: Vec<RecordVersion>,
    /// Number of all superseded records.
    pub count: u64,
    /// Number of accounts whose newest version has lamports.
    pub accounts: u64,
}

impl Superseded {
    pub fn add(&mut self, other: Self) {
        self.records.extend(other.records);
        self.duplicates.extend(other.duplicates);
        self.count += other.count;
        self.accounts += other.accounts;
    }

    /// Sorts by storage and fingerprint. Records that are read again are found by their fingerprints, not by
    /// their offsets, because `recompress` may have changed their order.
    pub fn sort(&mut self) {
        for list in [&mut self.records, &mut self.duplicates] {
            list.sort_unstable_by_key(|version| (version.storage(), version.fingerprint));
        }
    }

    /// Upper estimate of the memory of the lists, in bytes. The lists may have grown by doubling.
    pub fn memory_bytes(&self) -> u64 {
        2 * ITEM_BYTES * (self.records.len() + self.duplicates.len()) as u64
    }

    pub fn storages(&self) -> HashSet<u32> {
        self.records.iter().chain(&self.duplicates).map(RecordVersion::storage).collect()
    }
}

/// Returns the records of a storage in a list that is sorted by storage.
pub fn find_storage_records(list: &[RecordVersion], storage: u32) -> &[RecordVersion] {
    let start = list.partition_point(|version| version.storage() < storage);
    let rest = &list[start..];
    &rest[..rest.partition_point(|version| version.storage() == storage)]
}

pub fn contains_fingerprint(list: &[RecordVersion], fingerprint: &Fingerprint) -> bool {
    list.binary_search_by_key(fingerprint, |version| version.fingerprint).is_ok()
}

/// Finds superseded records in a slice that is sorted by account. Counts all of them, and lists those
/// for which `is_wanted` is true. `slot_of` returns the slot of a storage.
pub fn find_superseded(
    sorted: &[RecordVersion],
    slot_of: &dyn Fn(u32) -> u64,
    is_wanted: fn(&RecordVersion) -> bool,
) -> Superseded {
    slotpress_base::threads::panic_point("sorting");
    let mut superseded = Superseded::default();
    for versions in sorted.chunk_by(|first, second| first.fingerprint == second.fingerprint) {
        if let [only] = versions {
            superseded.accounts += u64::from(!only.is_tombstone());
            continue;
        }
        // If one storage holds two versions, it does not matter which of them is chosen here, because both
        // are listed as duplicates.
        let newest = (0..versions.len()).max_by_key(|index| slot_of(versions[*index].storage())).unwrap_or_default();
        superseded.accounts += u64::from(!versions[newest].is_tombstone());
        superseded.count += versions.len() as u64 - 1;
        for (index, version) in versions.iter().enumerate() {
            let shares_storage =
                |other: Option<&RecordVersion>| other.is_some_and(|other| other.storage() == version.storage());
            if shares_storage(versions.get(index + 1)) || shares_storage(versions[..index].last()) {
                superseded.duplicates.push(*version);
            } else if index != newest && is_wanted(version) {
                superseded.records.push(*version);
            }
        }
    }
    superseded
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::state::marks::Mark;

    fn marks(list: &[RecordVersion]) -> HashSet<Mark> {
        list.iter().map(RecordVersion::mark).collect()
    }

    proptest! {
        #[test]
        fn all_but_the_newest_are_superseded(records in proptest::collection::hash_map((0u8..30, 0u32..12), any::<bool>(), 0..200)) {
            let mut versions: Vec<RecordVersion> = Vec::new();
            let mut newest: HashMap<u8, u32> = HashMap::new();
            for ((key, storage), is_tombstone) in &records {
                let fingerprint = Fingerprint([(*key).into(), 0, 0]);
                versions.push(RecordVersion::new(fingerprint, *storage, *is_tombstone, u64::from(*key) * 136));
                newest.entry(*key).and_modify(|known| *known = (*known).min(*storage)).or_insert(*storage);
            }
            versions.sort_unstable();
            // The newest storage has the lowest number.
            let found = find_superseded(&versions, &|storage| 100 - u64::from(storage), |_| true);
            let marked = marks(&found.records);
            for (key, storage) in records.keys() {
                let is_marked = marked.contains(&Mark::new(*storage, u64::from(*key) * 136));
                prop_assert_eq!(is_marked, newest[key] != *storage);
            }
            let open_accounts = newest.iter().filter(|(key, storage)| !records[&(**key, **storage)]).count() as u64;
            prop_assert_eq!((found.accounts, found.count), (open_accounts, (records.len() - newest.len()) as u64));
            prop_assert_eq!((found.records.len() as u64, found.duplicates.len()), (found.count, 0));
        }
    }

    #[test]
    fn all_records_of_an_account_that_occurs_twice_in_a_storage_are_listed() {
        let version =
            |key, storage, offset_bytes| RecordVersion::new(Fingerprint([key, 0, 0]), storage, false, offset_bytes);
        let versions = [version(1, 0, 0), version(1, 1, 0), version(2, 0, 136), version(2, 0, 272), version(2, 1, 136)];
        let mut found = find_superseded(&versions, &|storage| 2 - u64::from(storage), |_| true);
        found.sort();
        let is_in = |list: &[RecordVersion]| versions.each_ref().map(|version| marks(list).contains(&version.mark()));
        assert_eq!(is_in(&found.records), [false, true, false, false, true]);
        assert_eq!(is_in(&found.duplicates), [false, false, true, true, false]);
        assert_eq!(found.storages(), HashSet::from([0, 1]));
        let is_found = |list, storage: u32, key: u32| {
            contains_fingerprint(find_storage_records(list, storage), &Fingerprint([key, 0, 0]))
        };
        let places = [(0, 1), (1, 1), (0, 2)];
        assert_eq!(places.map(|(storage, key)| is_found(&found.records, storage, key)), [false, true, false]);
        assert_eq!(places.map(|(storage, key)| is_found(&found.duplicates, storage, key)), [false, false, true]);
    }
}
