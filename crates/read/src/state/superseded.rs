//! Finds superseded records: all versions of an account but the newest. No I/O.

use std::collections::HashSet;

use crate::RecordVersion;
use crate::state::fingerprint::Fingerprint;
use crate::state::marks::Marks;
use crate::state::version::ITEM_BYTES;

#[derive(Debug, Default)]
pub struct Superseded {
    /// Superseded records: those with lamports, or all.
    pub records: Marks,
    /// Records of accounts that one storage holds more than once.
    pub duplicates: Marks,
    /// Number of all superseded records.
    pub count: u64,
    /// Number of accounts whose newest version has lamports.
    pub accounts: u64,
    /// The records of a round of a check, and the duplicates, sorted by storage and fingerprint:
    /// when they are read again, `recompress` may have changed the order of records.
    listed: [Vec<RecordVersion>; 2],
}

/// What is found among some accounts: [`Superseded::records`] and [`Superseded::duplicates`], and
/// the two counts.
pub type FoundAmong = ([Vec<RecordVersion>; 2], u64, u64);

impl Superseded {
    pub fn add(&mut self, ([records, duplicates], count, accounts): &FoundAmong) {
        self.count += count;
        self.accounts += accounts;
        records.iter().for_each(|version| self.records.insert(version.mark()));
        duplicates.iter().for_each(|version| self.duplicates.insert(version.mark()));
    }

    /// Lists what was found, too. [`Self::sort`] must follow.
    pub fn list(&mut self, ([records, duplicates], ..): FoundAmong) {
        self.listed[0].extend(records);
        self.listed[1].extend(duplicates);
    }

    pub fn sort(&mut self) {
        self.listed.iter_mut().for_each(|list| list.sort_unstable_by_key(|it| (it.storage(), it.fingerprint)));
    }

    /// Removes records from the list that are not marked any more.
    pub fn drop_unmarked(&mut self) {
        self.listed[0].retain(|version| self.records.contains(version.mark()));
    }

    /// The records to subtract in a storage, and those of accounts that it holds twice.
    pub fn listed_in(&self, storage: u32) -> [&[RecordVersion]; 2] {
        self.listed.each_ref().map(|list| {
            let start = list.partition_point(|version| version.storage() < storage);
            let rest = &list[start..];
            &rest[..rest.partition_point(|version| version.storage() == storage)]
        })
    }

    /// Upper estimate of the memory of the lists, which may have grown by doubling.
    pub fn memory_bytes(&self) -> u64 {
        2 * ITEM_BYTES * self.listed.iter().map(Vec::len).sum::<usize>() as u64
    }

    pub fn has_duplicates(&self) -> bool {
        self.duplicates.count() > 0
    }

    pub fn storages(&self) -> HashSet<u32> {
        self.records.by_storage().chain(self.duplicates.by_storage()).map(|(storage, _)| storage).collect()
    }
}

pub fn is_listed(list: &[RecordVersion], fingerprint: &Fingerprint) -> bool {
    list.binary_search_by_key(fingerprint, |version| version.fingerprint).is_ok()
}

/// Finds the records that a newer one supersedes among records sorted by account. `slot_of` gives
/// the slot of a storage. Tombstones are only marked if `marks_tombstones` is true.
pub fn superseded_among(sorted: &[RecordVersion], slot_of: &dyn Fn(u32) -> u64, marks_tombstones: bool) -> FoundAmong {
    slotpress_base::threads::panic_point("sorting");
    let mut records = Vec::new();
    let mut duplicates = Vec::new();
    let mut count = 0;
    let mut accounts = 0;
    for versions in sorted.chunk_by(|one, other| one.fingerprint == other.fingerprint) {
        if let [only] = versions {
            accounts += u64::from(!only.is_tombstone());
            continue;
        }
        // If one storage holds two versions, the later one counts as the newest here; they are
        // reported as a failure anyway.
        let newest = (0..versions.len()).max_by_key(|at| slot_of(versions[*at].storage())).unwrap_or_default();
        accounts += u64::from(!versions[newest].is_tombstone());
        count += versions.len() as u64 - 1;
        for (at, version) in versions.iter().enumerate() {
            let is_neighbour =
                |other: Option<&RecordVersion>| other.is_some_and(|it| it.storage() == version.storage());
            if is_neighbour(versions.get(at + 1)) || is_neighbour(versions[..at].last()) {
                duplicates.push(*version);
            } else if at != newest && (marks_tombstones || !version.is_tombstone()) {
                records.push(*version);
            }
        }
    }
    ([records, duplicates], count, accounts)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::state::marks::mark_of;

    proptest! {
        #[test]
        fn the_newest_are_left(records in proptest::collection::hash_map((0u8..30, 0u32..12), any::<bool>(), 0..200)) {
            let mut versions: Vec<RecordVersion> = Vec::new();
            let mut newest: HashMap<u8, u32> = HashMap::new();
            for ((key, storage), is_tombstone) in &records {
                let print = Fingerprint([(*key).into(), 0, 0]);
                versions.push(RecordVersion::new(print, *storage, *is_tombstone, u64::from(*key) * 136));
                newest.entry(*key).and_modify(|known| *known = (*known).min(*storage)).or_insert(*storage);
            }
            versions.sort_unstable();
            let mut found = Superseded::default();
            // The newest storage has the lowest number.
            found.add(&superseded_among(&versions, &|storage| 100 - u64::from(storage), true));
            for (key, storage) in records.keys() {
                let is_marked = found.records.contains(mark_of(*storage, u64::from(*key) * 136));
                prop_assert_eq!(is_marked, newest[key] != *storage);
            }
            let live = newest.iter().filter(|(key, storage)| !records[&(**key, **storage)]).count() as u64;
            prop_assert_eq!((found.accounts, found.count), (live, (records.len() - newest.len()) as u64));
            prop_assert_eq!((found.records.count(), found.has_duplicates()), (found.count, false));
        }
    }

    #[test]
    fn all_records_of_an_account_that_is_twice_in_one_storage_are_marked() {
        let version =
            |key, storage, offset_bytes| RecordVersion::new(Fingerprint([key, 0, 0]), storage, false, offset_bytes);
        let versions = [version(1, 0, 0), version(1, 1, 0), version(2, 0, 136), version(2, 0, 272), version(2, 1, 136)];
        let mut found = Superseded::default();
        let among = superseded_among(&versions, &|storage| 2 - u64::from(storage), false);
        found.add(&among);
        found.list(among);
        found.sort();
        let marked = |marks: &Marks| versions.iter().map(|version| marks.contains(version.mark())).collect::<Vec<_>>();
        assert_eq!(marked(&found.records), [false, true, false, false, true]);
        assert_eq!(marked(&found.duplicates), [false, false, true, true, false]);
        assert_eq!(found.storages(), HashSet::from([0, 1]));
        let listed =
            |storage: u32, key: u32| found.listed_in(storage).map(|list| is_listed(list, &Fingerprint([key, 0, 0])));
        assert_eq!([listed(0, 1), listed(1, 1), listed(0, 2)], [[false, false], [true, false], [false, true]]);
        found.records = Marks::default();
        found.drop_unmarked();
        assert!(found.listed_in(1).iter().all(|list| list.is_empty()));
    }
}
