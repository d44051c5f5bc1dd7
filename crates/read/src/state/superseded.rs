//! Finds superseded records: all versions of an account but the newest. No I/O.

use crate::Version;
use crate::state::fingerprint::Fingerprint;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Superseded {
    /// Superseded records with lamports, which must be subtracted.
    pub to_subtract: ByStorage,
    /// Records of accounts that one storage holds more than once.
    pub duplicates: ByStorage,
    pub count: u64,
    pub accounts: u64,
}

impl Superseded {
    pub fn add(&mut self, other: Self) {
        self.count += other.count;
        self.accounts += other.accounts;
        self.to_subtract.0.extend(other.to_subtract.0);
        self.duplicates.0.extend(other.duplicates.0);
    }

    pub fn record_count(&self) -> usize {
        self.to_subtract.0.len() + self.duplicates.0.len()
    }

    /// Upper estimate of the memory of the lists, which may have grown by doubling.
    pub fn memory_bytes(&self) -> u64 {
        2 * (self.record_count() * size_of::<Version>()) as u64
    }

    pub fn has_duplicates(&self) -> bool {
        !self.duplicates.0.is_empty()
    }

    pub fn storages(&self) -> impl Iterator<Item = u32> {
        self.to_subtract.0.iter().chain(&self.duplicates.0).map(Version::storage)
    }

    /// The records to subtract, sorted by storage and offset.
    pub fn by_place(&self) -> Vec<Version> {
        let mut versions = self.to_subtract.0.clone();
        versions.sort_unstable_by_key(|version| (version.storage(), version.offset_bytes()));
        versions
    }

    #[must_use]
    pub fn sorted(mut self) -> Self {
        for list in [&mut self.to_subtract, &mut self.duplicates] {
            list.0.sort_unstable_by_key(|version| (version.storage(), version.fingerprint));
            // One record is enough for an account that a storage holds many times.
            list.0.dedup_by_key(|version| (version.storage(), version.fingerprint));
        }
        self
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ByStorage(Vec<Version>);

impl ByStorage {
    pub fn retain(&mut self, keep: impl FnMut(&Version) -> bool) {
        self.0.retain(keep);
    }

    pub fn of_storage(&self, storage: u32) -> &[Version] {
        let start = self.0.partition_point(|version| version.storage() < storage);
        let rest = &self.0[start..];
        &rest[..rest.partition_point(|version| version.storage() == storage)]
    }
}

/// Slot of a storage, from slots and lengths by number.
pub fn slot_of(storages: &[(u64, u64)], storage: u32) -> u64 {
    storages.get(storage as usize).map_or(0, |(slot, _)| *slot)
}

pub fn is_listed(list: &[Version], fingerprint: &Fingerprint) -> bool {
    list.binary_search_by_key(fingerprint, |version| version.fingerprint).is_ok()
}

/// Returns the records that a newer one supersedes, from records sorted by account. `slot_of` gives
/// the slot of a storage.
pub fn superseded_among(sorted: &[Version], slot_of: &dyn Fn(u32) -> u64) -> Superseded {
    let mut found = Superseded::default();
    found.accounts = for_each_superseded(sorted, slot_of, &mut |version, is_twice| {
        found.count += 1;
        if is_twice {
            found.duplicates.0.push(*version);
        } else if !version.is_tombstone() {
            found.to_subtract.0.push(*version);
        }
    });
    found
}

/// Calls `on_superseded` for each superseded record, including tombstones. The flag is true if the
/// record's storage holds the account more than once. Returns the number of accounts whose newest
/// version has lamports.
pub fn for_each_superseded(
    sorted: &[Version],
    slot_of: &dyn Fn(u32) -> u64,
    on_superseded: &mut dyn FnMut(&Version, bool),
) -> u64 {
    slotpress_base::threads::panic_point("sorting");
    let mut accounts = 0;
    for versions in sorted.chunk_by(|one, other| one.fingerprint == other.fingerprint) {
        let newest = newest_of(versions, slot_of, on_superseded);
        accounts += u64::from(newest.is_some_and(|newest| !newest.is_tombstone()));
    }
    accounts
}

/// Returns the newest of an account's versions, and passes the others to `on_superseded`.
fn newest_of<'a>(
    versions: &'a [Version],
    slot_of: &dyn Fn(u32) -> u64,
    on_superseded: &mut dyn FnMut(&Version, bool),
) -> Option<&'a Version> {
    if let [only] = versions {
        return Some(only);
    }
    // If one storage holds two versions, the later one counts as the newest here; they are reported
    // as a failure anyway.
    let newest = versions.iter().max_by_key(|version| slot_of(version.storage()))?;
    let mut is_newest_passed = false;
    for (at, version) in versions.iter().enumerate() {
        if version == newest && !std::mem::replace(&mut is_newest_passed, true) {
            continue;
        }
        let is_neighbour = |other: Option<&Version>| other.is_some_and(|it| it.storage() == version.storage());
        on_superseded(version, is_neighbour(versions.get(at + 1)) || is_neighbour(versions[..at].last()));
    }
    Some(newest)
}
