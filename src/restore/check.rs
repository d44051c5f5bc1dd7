//! Whether an archive that was read is one whole state, and the one that its name says.

use crate::{
    error::{Error, Result},
    ledger::{
        bank_file::{BankFile, StorageMapItem},
        directory::SNAPSHOT_VERSION,
        names::ArchiveName,
    },
};

/// Looks for storages of the storage map that are not there, item by item.
pub struct MissingStorages<'a> {
    has_slot: &'a dyn Fn(u64) -> bool,
    /// Storages up to this slot are elsewhere: in the full archive below an incremental one that is read alone.
    base_slot: Option<u64>,
    first: Option<StorageMapItem>,
}

impl<'a> MissingStorages<'a> {
    /// `has_slot` tells whether the storage of a slot is there. With `base_slot`, older ones need not be.
    pub fn new(has_slot: &'a dyn Fn(u64) -> bool, base_slot: Option<u64>) -> Self {
        Self { has_slot, base_slot, first: None }
    }

    /// Looks at an item of the storage map.
    pub fn look_at(&mut self, item: &StorageMapItem) {
        let is_wanted = item.length_bytes > 0 && self.base_slot.is_none_or(|base| item.slot > base);
        if self.first.is_none() && is_wanted && !(self.has_slot)(item.slot) {
            self.first = Some(*item);
        }
    }

    /// An error when one was missing.
    pub fn check(&self) -> Result<()> {
        let Some(item) = self.first else { return Ok(()) };
        Err(Error::damaged(format!("storage {}.{} of the bank file's storage map is missing", item.slot, item.id))
            .hint("the archive is not complete, or its incremental archive does not belong to this full one"))
    }
}

/// Checks the bank and the version against the archive's name and its slot directory.
pub fn check_bank(bank: &BankFile, version: &[u8], slot: u64, name: Option<&ArchiveName>) -> Result<()> {
    let version = String::from_utf8_lossy(version);
    if version.trim() != SNAPSHOT_VERSION {
        return Err(Error::damaged(format!("the archive is of the unknown snapshot version {:?}", version.trim())));
    }
    if bank.slot != slot {
        return Err(Error::damaged(format!("the bank file is of slot {}, not {slot}", bank.slot)));
    }
    let Some(name) = name else { return Ok(()) };
    let hash = bank.snapshot_hash();
    if name.slot == bank.slot && name.hash == hash {
        return Ok(());
    }
    Err(Error::damaged(format!("the archive is not what its name says: it holds slot {} with hash {hash}", bank.slot))
        .hint("do not use it: somebody renamed it, or made it up"))
}
