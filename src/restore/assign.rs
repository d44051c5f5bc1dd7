//! Assigns each storage of one or two archives to an accounts path and a name. Does no I/O.

use std::collections::HashSet;

use slotpress_base::{Error, Result};
use slotpress_format::{Entry, EntryKind, STORAGES_MAX};

/// Storages with this id or a larger one get a new id: a validator counts up from the largest id
/// that it finds, and must not reach 2^32.
const ID_MAX: u32 = 1 << 31;

/// A storage with its new place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssignedStorage {
    pub slot: u64,
    pub id: u32,
    /// Id in the archive.
    pub archive_id: u32,
    /// Number of the accounts path.
    pub root: u16,
    pub content_bytes: u64,
}

impl AssignedStorage {
    pub fn file_name(&self) -> String {
        format!("{}.{}", self.slot, self.id)
    }
}

/// Assigns entries, archive after archive. The rules must have checked that the entry may be in an
/// archive.
#[derive(Clone, Debug)]
pub struct Assigner {
    roots: u16,
    /// Storages of all archives so far, in the order of the archives.
    pub storages: Vec<AssignedStorage>,
    ids: HashSet<u32>,
    next_id: u32,
}

impl Assigner {
    pub fn new(roots: u16) -> Self {
        Self { roots: roots.max(1), storages: Vec::new(), ids: HashSet::new(), next_id: 0 }
    }

    pub fn assign(&mut self, entry: &Entry) -> Result<Option<AssignedStorage>> {
        let EntryKind::Storage { slot, id: archive_id } = entry.kind else { return Ok(None) };
        let number = self.storages.len();
        if number as u64 >= STORAGES_MAX {
            let kind = entry.kind;
            return Err(Error::damaged(format!("storage {kind} exceeds the limit of {STORAGES_MAX} storages")));
        }
        // If the archive's id is not free, the storage gets the next one that is.
        let mut id = archive_id;
        while id >= ID_MAX || !self.ids.insert(id) {
            id = self.next_id;
            self.next_id += 1;
        }
        let root = (number % usize::from(self.roots)) as u16;
        let storage = AssignedStorage { slot, id, archive_id, root, content_bytes: entry.content_bytes };
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
        fn ids_are_unique(ids in proptest::collection::vec(prop_oneof![0u32..20, any::<u32>()], 1..60), roots in 1u16..4) {
            let mut assigner = Assigner::new(roots);
            let mut seen = HashSet::new();
            for (slot, archive_id) in ids.iter().enumerate() {
                let assigned = assigner.assign(&storage(slot as u64, *archive_id)).expect("a good entry");
                let AssignedStorage { root, id, .. } = assigned.expect("a storage");
                prop_assert!(root < roots && id < ID_MAX);
                prop_assert!(seen.insert(id));
                if *archive_id < ID_MAX && !ids[..slot].contains(archive_id) && id != *archive_id {
                    // An id is changed only if another storage has got it before.
                    prop_assert!(ids[..slot].iter().any(|other| *other >= ID_MAX || ids[..slot].iter().filter(|id| *id == other).count() > 1));
                }
            }
        }
    }
}
