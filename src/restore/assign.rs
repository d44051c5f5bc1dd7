//! Where each entry of one or two archives goes: which accounts path, which name. Pure bookkeeping.

use {
    crate::{
        error::{Error, Result},
        format::entry::{Entry, EntryKind},
        ledger::lists::STORAGES_MAX,
    },
    std::collections::HashSet,
};

/// Ids at and above this are given anew: a validator counts up from the largest id that it finds, and must not reach
/// 2^32.
const ID_MAX: u32 = 1 << 31;

/// Where an entry goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A directory: nothing to write.
    Nothing,
    /// The version file.
    Version,
    /// The status cache.
    StatusCache,
    /// The bank file.
    BankFile,
    /// A storage.
    Storage {
        /// Which accounts path.
        root: u16,
        /// Its slot.
        slot: u64,
        /// Its id, which may differ from the archive's.
        id: u32,
    },
}

/// A storage that was assigned: some tens of bytes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssignedStorage {
    /// Its slot.
    pub slot: u64,
    /// Its id on disk.
    pub id: u32,
    /// Which accounts path.
    pub root: u16,
    /// Its length in bytes.
    pub content_bytes: u64,
}

/// Assigns every entry, archive after archive, and refuses sets of entries that no validator can load.
#[derive(Debug)]
pub struct Assigner {
    roots: u16,
    /// Whether ids stay as they are in the archive.
    keeps_ids: bool,
    storages: Vec<AssignedStorage>,
    slots: HashSet<u64>,
    ids: HashSet<u32>,
    next_id: u32,
    current: CurrentArchive,
}

/// What has been seen of the archive that is being read.
#[derive(Clone, Copy, Debug, Default)]
struct CurrentArchive {
    /// Only storages of slots above this belong into it.
    base_slot: Option<u64>,
    slot: Option<u64>,
    has_version: bool,
    has_status_cache: bool,
    has_bank_file: bool,
    slot_max: Option<u64>,
}

impl Assigner {
    /// Spreads storages over `roots` accounts paths, and makes ids unique; or, with `keeps_ids`, leaves ids alone.
    pub fn new(roots: u16, keeps_ids: bool) -> Self {
        Self {
            roots: roots.max(1),
            keeps_ids,
            storages: Vec::new(),
            slots: HashSet::new(),
            ids: HashSet::new(),
            next_id: 0,
            current: CurrentArchive::default(),
        }
    }

    /// Begins an archive. An incremental one holds only storages of slots above `base_slot`.
    pub fn begin_archive(&mut self, base_slot: Option<u64>) {
        self.current = CurrentArchive { base_slot, ..CurrentArchive::default() };
    }

    /// Says where the next entry goes.
    pub fn assign(&mut self, entry: &Entry) -> Result<Destination> {
        let current = &mut self.current;
        let (seen, destination) = match entry.kind {
            EntryKind::SnapshotsDir | EntryKind::AccountsDir => return Ok(Destination::Nothing),
            EntryKind::SlotDir(slot) => {
                current.set_slot(slot)?;
                return Ok(Destination::Nothing);
            }
            EntryKind::Storage { slot, id } => return self.assign_storage(slot, id, entry.content_bytes),
            EntryKind::Version => (&mut current.has_version, Destination::Version),
            EntryKind::StatusCache => (&mut current.has_status_cache, Destination::StatusCache),
            EntryKind::BankFile(slot) => {
                current.set_slot(slot)?;
                (&mut current.has_bank_file, Destination::BankFile)
            }
        };
        if entry.content_bytes == 0 {
            return Err(Error::damaged(format!("{} is empty", entry.kind)));
        }
        if std::mem::replace(seen, true) {
            return Err(Error::damaged(format!("the archive holds {} twice", entry.kind)));
        }
        Ok(destination)
    }

    fn assign_storage(&mut self, slot: u64, archive_id: u32, content_bytes: u64) -> Result<Destination> {
        let refuse = |why: &str| Err(Error::damaged(format!("storage accounts/{slot}.{archive_id} {why}")));
        if content_bytes == 0 {
            return refuse("is empty, which no client loads");
        }
        if let Some(base) = self.current.base_slot.filter(|base| slot <= *base) {
            return refuse(&format!("is not newer than the base slot {base} of its incremental archive"));
        }
        if !self.slots.insert(slot) {
            return refuse("is the second of its slot; a snapshot has one storage per slot");
        }
        if self.storages.len() as u64 >= STORAGES_MAX {
            return refuse("is one too many");
        }
        self.current.slot_max = self.current.slot_max.max(Some(slot));
        let id = if self.keeps_ids { archive_id } else { self.unique_id(archive_id) };
        let root = (self.storages.len() % usize::from(self.roots)) as u16;
        self.storages.push(AssignedStorage { slot, id, root, content_bytes });
        Ok(Destination::Storage { root, slot, id })
    }

    /// The archive's own id where it is free, the next free one otherwise.
    fn unique_id(&mut self, archive_id: u32) -> u32 {
        let mut id = archive_id;
        while id >= ID_MAX || !self.ids.insert(id) {
            id = self.next_id;
            self.next_id += 1;
        }
        id
    }

    /// Checks that the archive held everything that it must; returns its slot.
    pub fn end_archive(&mut self) -> Result<u64> {
        let current = &self.current;
        let missing = [
            (current.has_version, "version"),
            (current.has_status_cache, "snapshots/status_cache"),
            (current.has_bank_file, "snapshots/<slot>/<slot>"),
        ];
        if let Some((_, name)) = missing.iter().find(|(is_there, _)| !is_there) {
            return Err(Error::damaged(format!("the archive holds no {name}")));
        }
        let slot = current.slot.unwrap_or_default();
        match current.slot_max {
            Some(max) if max > slot => {
                Err(Error::damaged(format!("the archive is of slot {slot}, but holds a storage of slot {max}")))
            }
            _ => Ok(slot),
        }
    }

    /// Every storage so far.
    pub fn storages(&self) -> &[AssignedStorage] {
        &self.storages
    }

    /// Whether a storage of this slot was assigned.
    pub fn has_slot(&self, slot: u64) -> bool {
        self.slots.contains(&slot)
    }

    /// The storages, ordered by (slot, id).
    pub fn into_storages(mut self) -> Vec<AssignedStorage> {
        self.storages.sort_unstable_by_key(|storage| (storage.slot, storage.id));
        self.storages
    }
}

impl CurrentArchive {
    fn set_slot(&mut self, slot: u64) -> Result<()> {
        match self.slot.replace(slot) {
            Some(other) if other != slot => {
                Err(Error::damaged(format!("the archive holds bank snapshots of two slots, {other} and {slot}")))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use {super::*, proptest::prelude::*};

    fn storage(slot: u64, id: u32) -> Entry {
        Entry { kind: EntryKind::Storage { slot, id }, content_bytes: 1 }
    }

    proptest! {
        /// Whatever ids the archives hold, those on disk are unique, small, and kept where possible.
        #[test]
        fn ids_are_unique(ids in proptest::collection::vec(prop_oneof![0u32..20, any::<u32>()], 1..60), roots in 1u16..4) {
            let mut assigner = Assigner::new(roots, false);
            assigner.begin_archive(None);
            let mut seen = HashSet::new();
            for (slot, archive_id) in ids.iter().enumerate() {
                let destination = assigner.assign(&storage(slot as u64, *archive_id)).expect("a good entry");
                let Destination::Storage { root, id, .. } = destination else { panic!("a storage") };
                prop_assert!(root < roots && id < ID_MAX);
                prop_assert!(seen.insert(id));
                if *archive_id < ID_MAX && !ids[..slot].contains(archive_id) && id != *archive_id {
                    // Only an id that was given to another storage before may be refused.
                    prop_assert!(ids[..slot].iter().any(|other| *other >= ID_MAX || ids[..slot].iter().filter(|id| *id == other).count() > 1));
                }
            }
        }
    }

    #[test]
    fn impossible_sets_are_refused() {
        let mut assigner = Assigner::new(1, false);
        assigner.begin_archive(Some(10));
        assert!(assigner.assign(&storage(10, 1)).is_err(), "not newer than the base");
        assert!(assigner.assign(&storage(11, 1)).is_ok());
        assert!(assigner.assign(&storage(11, 2)).is_err(), "two of one slot");
        assert!(assigner.assign(&Entry { kind: EntryKind::Storage { slot: 12, id: 3 }, content_bytes: 0 }).is_err());
        assert!(assigner.end_archive().is_err(), "nothing but a storage");
        for kind in [EntryKind::Version, EntryKind::StatusCache, EntryKind::BankFile(11)] {
            assert!(assigner.assign(&Entry { kind, content_bytes: 5 }).is_ok());
            assert!(assigner.assign(&Entry { kind, content_bytes: 5 }).is_err(), "{kind} twice");
        }
        assert!(assigner.assign(&Entry { kind: EntryKind::SlotDir(12), content_bytes: 0 }).is_err(), "another slot");
    }
}
