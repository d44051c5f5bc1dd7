//! Finds the newest version of one account in an archive or a ledger.
//!
//! The index does not say which storage holds an account, so storages are searched in rounds, the newest
//! first. The search ends after the first round that finds a record. Without an index, all storages are read.

#![warn(missing_docs)]

use std::collections::HashSet;

use parking_lot::Mutex;
use serde::Serialize;
use slotpress_base::{Error, IoPolicy, Progress, Result, Stage, hint, saturating_add_to, text};
use slotpress_format::{Address, Record, RecordFault, RecordSink, find_bank_snapshot};

use crate::inspect::owners::owner_name;
use crate::state::storages::StorageReader;
use crate::verify::ledger::lock_ledger;
use crate::{Plan, PlanOptions, RecordVisitor, RecordWorker, Snapshot, StorageRef, check_pair};

/// Number of the first storage: each archive is searched alone.
const FIRST_STORAGE: u32 = 0;

/// Bytes of storages that each worker searches in the first round. Each further round searches twice as many
/// as the one before it.
const ROUND_BYTES: u64 = 16 * 1024 * 1024;

#[allow(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FoundAccount {
    pub address: Address,
    pub owner: Address,
    /// Name of the owner, if it is a well-known program.
    pub owner_name: Option<&'static str>,
    /// Balance. 0 means that the account is closed.
    pub lamports: u64,
    #[serde(rename = "closed")]
    pub is_closed: bool,
    #[serde(rename = "executable")]
    pub is_executable: bool,
    /// Slot of the storage.
    pub slot: u64,
    /// Slot and id of the storage, as in its file name.
    pub storage: String,
    #[serde(skip)]
    storage_number: u32,
    /// Offset of the record in the storage, as the storage is archived, that is, without obsolete records.
    pub offset_bytes: u64,
    /// Serialized as its length.
    #[serde(rename = "data_bytes", serialize_with = "text::list_length")]
    pub data: Vec<u8>,
}

/// Finds the newest version of an account; `None` if no storage holds the account.
///
/// # Errors
/// The input cannot be read; a newer version may be in a storage that could not be read; or the archives are
/// not a pair.
pub fn find_account(
    input: &Snapshot,
    address: Address,
    threads: usize,
    progress: &dyn Progress,
) -> Result<Option<FoundAccount>> {
    let find = |storages: &StorageReader| {
        let search = AccountSearch { address, newest: Mutex::default(), damaged_storage: Mutex::default() };
        search.run(storages, threads, progress)?;
        Ok(search.newest.into_inner())
    };
    let (full, incremental) = match input {
        Snapshot::Ledger { paths, slot, .. } => {
            let _lock = lock_ledger(paths)?;
            progress.stage(Stage::Planning, None);
            let snapshot = find_bank_snapshot(paths, *slot, threads)?;
            let plan = Plan::new(snapshot, &PlanOptions::new(None, threads), progress)?;
            return find(&StorageReader::Ledger(Box::new(plan)));
        }
        Snapshot::Archive(archive) => (archive, None),
        Snapshot::Pair { full, incremental } => {
            check_pair(full, incremental)?;
            (full, Some(incremental))
        }
    };
    // All records of an incremental archive are newer than all records of its full one.
    for archive_input in incremental.into_iter().chain([full]) {
        let archive = archive_input.open(&IoPolicy::default())?;
        archive.warn_of_damaged_index(progress);
        if let Some(account) = find(&StorageReader::Archive(Box::new(archive)))? {
            return Ok(Some(account));
        }
    }
    Ok(None)
}

struct AccountSearch {
    address: Address,
    /// The newest record so far. If a slot has several storages, as in Firedancer's archives, the
    /// record in the later storage is newer.
    newest: Mutex<Option<FoundAccount>>,
    /// The first storage in which not all records could be read.
    damaged_storage: Mutex<Option<StorageRef>>,
}

impl AccountSearch {
    fn run(&self, storages: &StorageReader, threads: usize, progress: &dyn Progress) -> Result<()> {
        let Some(mut remaining) = storages.list() else {
            progress.stage(Stage::Searching, storages.length_bytes());
            return storages.read(FIRST_STORAGE, None, self, threads, progress);
        };
        remaining.sort_unstable_by_key(|storage| (storage.slot, storage.number));
        let mut round_bytes = ROUND_BYTES.saturating_mul(threads as u64);
        while self.newest.lock().is_none() && !remaining.is_empty() {
            let mut wanted = HashSet::new();
            let mut bytes = 0u64;
            let mut last_slot = None;
            // Storages at the same slot are searched in the same round, because the last of their records is
            // the newest.
            while let Some(storage) = remaining.pop_if(|storage| bytes < round_bytes || last_slot == Some(storage.slot))
            {
                wanted.insert(storage.number);
                saturating_add_to(&mut bytes, storage.content_bytes);
                last_slot = Some(storage.slot);
            }
            progress.stage(Stage::Searching, None);
            storages.read(FIRST_STORAGE, Some(&wanted), self, threads, progress)?;
            round_bytes = round_bytes.saturating_mul(2);
        }
        Ok(())
    }
}

impl RecordVisitor for AccountSearch {
    fn new_worker(&self) -> Box<dyn RecordWorker + '_> {
        Box::new(AccountSearchWorker { search: self, storage: StorageRef::default() })
    }

    fn check(&self) -> Result<()> {
        match *self.damaged_storage.lock() {
            Some(StorageRef { slot, id, .. }) => {
                let message = format!("not all records of storage {slot}.{id} can be read");
                Err(Error::damaged(message).with_hint(hint::USE_VERIFY))
            }
            None => Ok(()),
        }
    }
}

struct AccountSearchWorker<'a> {
    search: &'a AccountSearch,
    storage: StorageRef,
}

impl RecordWorker for AccountSearchWorker<'_> {
    fn begin(&mut self, storage: StorageRef) {
        self.storage = storage;
    }
}

impl RecordSink for AccountSearchWorker<'_> {
    fn fault(&mut self, fault: RecordFault) {
        if fault.kind.loses_records() {
            self.search.damaged_storage.lock().get_or_insert(self.storage);
        }
    }

    fn record(&mut self, record: Record<'_>) {
        let storage = self.storage;
        let header = record.header;
        if header.pubkey != self.search.address.0 {
            return;
        }
        let owner = Address(header.owner);
        let account = FoundAccount {
            address: self.search.address,
            owner,
            owner_name: owner_name(&owner),
            lamports: header.lamports,
            is_closed: header.lamports == 0,
            is_executable: header.executable != 0,
            slot: storage.slot,
            storage: format!("{}.{}", storage.slot, storage.id),
            storage_number: storage.number,
            offset_bytes: record.offset_bytes,
            data: record.data.to_vec(),
        };
        let mut newest = self.search.newest.lock();
        let position = |account: &FoundAccount| (account.slot, account.storage_number, account.offset_bytes);
        if newest.as_ref().is_none_or(|known| position(known) <= position(&account)) {
            *newest = Some(account);
        }
    }
}
