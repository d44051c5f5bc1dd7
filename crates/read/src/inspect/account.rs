//! Finds the newest version of one account in an archive or a ledger.
//!
//! No index tells which storage holds an account, so storages are searched, the newest first. The
//! first record that is found is the newest version.

#![warn(missing_docs)]

use std::collections::HashSet;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use slotpress_base::{Error, Hint, Progress, Result};
use slotpress_format::{Address, Record, RecordFault, RecordSink};

use crate::inspect::owners::owner_name;
use crate::inspect::scan::Scan;
use crate::{AccountsInput, RecordVisitor, RecordWorker, StorageRef};

/// Bytes of storages that each worker searches in the first round. Each further round takes twice
/// as many.
const ROUND_BYTES: u64 = 16 * 1024 * 1024;

#[allow(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundAccount {
    pub pubkey: Address,
    pub owner: Address,
    /// Balance; 0 means that the account is closed.
    pub lamports: u64,
    pub is_executable: bool,
    pub data: Vec<u8>,
    pub slot: u64,
    pub storage_id: u32,
    /// Offset of the record in the storage as an archive holds it, without obsolete records.
    pub offset_bytes: u64,
}

impl FoundAccount {
    /// True if this record closes the account.
    pub fn is_closed(&self) -> bool {
        self.lamports == 0
    }
}

/// Serializes the length of the data instead of the data.
impl Serialize for FoundAccount {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("FoundAccount", 11)?;
        fields.serialize_field("account", &self.pubkey)?;
        fields.serialize_field("owner", &self.owner)?;
        fields.serialize_field("name", &owner_name(&self.owner))?;
        fields.serialize_field("lamports", &self.lamports)?;
        fields.serialize_field("lamports_text", &self.lamports.to_string())?;
        fields.serialize_field("closed", &self.is_closed())?;
        fields.serialize_field("executable", &self.is_executable)?;
        fields.serialize_field("slot", &self.slot)?;
        fields.serialize_field("storage", &format!("{}.{}", self.slot, self.storage_id))?;
        fields.serialize_field("offset_bytes", &self.offset_bytes)?;
        fields.serialize_field("data_bytes", &self.data.len())?;
        fields.end()
    }
}

/// Finds the newest version of an account; `None` if no storage holds the account.
///
/// # Errors
/// The input cannot be read, or a newer version may be in a storage that could not be read.
pub fn find_account(
    input: AccountsInput<'_>,
    pubkey: Address,
    threads: usize,
    progress: &dyn Progress,
) -> Result<Option<FoundAccount>> {
    match input {
        AccountsInput::Ledger(paths, slot) => find_in(Scan::ledger(paths, slot, threads, progress)?, pubkey),
        // All records of an incremental archive are newer than those of its full one.
        AccountsInput::Archives(full, incremental) => {
            for archive in incremental.into_iter().chain([full]) {
                if let Some(found) = find_in(Scan::archive(archive, threads, progress)?, pubkey)? {
                    return Ok(Some(found));
                }
            }
            Ok(None)
        }
    }
}

fn find_in(scan: Scan<'_>, pubkey: Address) -> Result<Option<FoundAccount>> {
    let search = Search { pubkey, found: Mutex::default(), has_lost: AtomicBool::default() };
    search.run(&scan)?;
    Ok(search.found.into_inner().map(|(_, found)| found))
}

struct Search {
    pubkey: Address,
    /// The newest record so far, with the number of its storage. If a slot has several storages, as
    /// in Firedancer's archives, the record in the later storage counts.
    found: Mutex<Option<(u32, FoundAccount)>>,
    /// True if a storage could not be read to its end.
    has_lost: AtomicBool,
}

impl Search {
    /// Searches storages, newest first.
    fn run(&self, scan: &Scan<'_>) -> Result<()> {
        let Some(mut storages) = scan.storages() else { return scan.read(self, None) };
        storages.sort_unstable_by_key(|storage| std::cmp::Reverse((storage.slot, storage.number)));
        let mut round_bytes = ROUND_BYTES.saturating_mul(scan.threads.max(1) as u64);
        let mut left = storages.iter().peekable();
        while left.peek().is_some() && !self.has_found() {
            let mut wanted = HashSet::new();
            let mut bytes = 0u64;
            let mut last_slot = None;
            // Storages of one slot are searched in one round, since the last record in them counts.
            while let Some(storage) =
                left.next_if(|storage| bytes < round_bytes || last_slot.is_some_and(|last| last == storage.slot))
            {
                wanted.insert(storage.number);
                bytes = bytes.saturating_add(storage.content_bytes);
                last_slot = Some(storage.slot);
            }
            scan.read(self, Some(&wanted))?;
            round_bytes = round_bytes.saturating_mul(2);
        }
        Ok(())
    }

    fn has_found(&self) -> bool {
        self.found.lock().is_some()
    }
}

impl RecordVisitor for Search {
    fn new_worker(&self) -> Box<dyn RecordWorker + '_> {
        Box::new(SearchWorker { search: self, storage: StorageRef::default() })
    }

    fn check(&self) -> Result<()> {
        match self.has_lost.load(Relaxed) {
            true => Err(Error::damaged("a storage does not consist of records").with_hint(Hint::UseVerify)),
            false => Ok(()),
        }
    }
}

struct SearchWorker<'a> {
    search: &'a Search,
    storage: StorageRef,
}

impl RecordWorker for SearchWorker<'_> {
    fn begin(&mut self, storage: StorageRef) {
        self.storage = storage;
    }
}

impl RecordSink for SearchWorker<'_> {
    fn fault(&mut self, fault: RecordFault) {
        self.search.has_lost.fetch_or(fault.kind.loses_records(), Relaxed);
    }

    fn record(&mut self, record: Record<'_>) {
        let storage = self.storage;
        let header = record.header;
        if header.pubkey != self.search.pubkey.0 {
            return;
        }
        let one = FoundAccount {
            pubkey: self.search.pubkey,
            owner: Address(header.owner),
            lamports: header.lamports,
            is_executable: header.executable != 0,
            data: record.data.to_vec(),
            slot: storage.slot,
            storage_id: storage.id,
            offset_bytes: record.offset_bytes,
        };
        let mut found = self.search.found.lock();
        let place = |number: u32, one: &FoundAccount| (one.slot, number, one.offset_bytes);
        if found.as_ref().is_none_or(|(number, other)| place(*number, other) <= place(storage.number, &one)) {
            *found = Some((storage.number, one));
        }
    }
}
