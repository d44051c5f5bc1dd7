//! Assigns each storage of one or two archives to an accounts path and a name. Does no I/O.

use std::collections::HashSet;

use slotpress_base::{Error, Result};
use slotpress_format::{Entry, EntryKind, STORAGES_MAX};

/// Storages with this id or a larger one get a new id: a validator counts up from the largest id
/// that it finds, and must not reach 2^32.
const ID_END: u32 = 1 << 31;

/// A storage with its new place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssignedStorage {
    pub slot: u64,
    pub id: u32,
    /// Id in the archive.
    pub archive_id: u32,
    /// Index of the accounts path.
    pub accounts_path_index: u16,
    pub content_bytes: u64,
}

impl AssignedStorage {
    pub fn file_name(&self) -> String {
        format!("{}.{}", self.slot, self.id)
    }
}

/// Assigns storages to places, one archive after the other. The caller must have checked each entry against
/// the rules.
#[derive(Clone, Debug)]
pub struct Assigner {
    accounts_path_count: u16,
    /// Storages of all archives so far, in the order of the archives.
    pub storages: Vec<AssignedStorage>,
    ids: HashSet<u32>,
    next_id: u32,
}

impl Assigner {
    pub fn new(accounts_path_count: u16) -> Self {
        let accounts_path_count = accounts_path_count.max(1);
        Self { accounts_path_count, storages: Vec::new(), ids: HashSet::new(), next_id: 0 }
    }

    pub fn assign(&mut self, entry: &Entry) -> Result<Option<AssignedStorage>> {
        let EntryKind::Storage { slot, id: archive_id } = entry.kind else { return Ok(None) };
        let number = self.storages.len();
        if number as u64 >= STORAGES_MAX {
            let kind = entry.kind;
            return Err(Error::damaged(format!("storage {kind} exceeds the limit of {STORAGES_MAX} storages")));
        }
        // If the archive's id is taken or too large, the storage gets the next free id.
        let mut id = archive_id;
        while id >= ID_END || !self.ids.insert(id) {
            id = self.next_id;
            self.next_id += 1;
        }
        let accounts_path_index = (number % usize::from(self.accounts_path_count)) as u16;
        let storage = AssignedStorage { slot, id, archive_id, accounts_path_index, content_bytes: entry.content_bytes };
        self.storages.push(storage);
        Ok(Some(storage))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn storage(slot: u64, id: u32) -> Entry {
        Entry { kind: EntryKind::Storage { slot, id }, content_bytes: 1 }
    }

    proptest! {
        /// Ids on disk are unique and small, whatever ids the archives have. Ids are kept where
        /// possible.
        #[test]
        fn ids_are_unique(ids in proptest::collection::vec(prop_oneof![0u32..20, any::<u32>()], 1..60), accounts_path_count in 1u16..4) {
            let mut assigner = Assigner::new(accounts_path_count);
            let mut seen = HashSet::new();
            for (slot, archive_id) in ids.iter().enumerate() {
                let assigned = assigner.assign(&storage(slot as u64, *archive_id)).expect("a good entry");
                let AssignedStorage { accounts_path_index, id, .. } = assigned.expect("a storage");
                prop_assert!(accounts_path_index < accounts_path_count);
                prop_assert!(id < ID_END);
                prop_assert!(seen.insert(id));
                let earlier = &ids[..slot];
                if *archive_id < ID_END && !earlier.contains(archive_id) && id != *archive_id {
                    // An earlier storage got this id instead of its own.
                    let is_replaced = |id: &u32| *id >= ID_END || earlier.iter().filter(|other| *other == id).count() > 1;
                    prop_assert!(earlier.iter().any(is_replaced));
                }
            }
        }
    }
}
