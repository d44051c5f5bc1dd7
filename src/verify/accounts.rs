//! The state that the accounts make up: capitalization and lattice hash over the newest version of each.
//!
//! Workers hash what they read and merge their sums at the end; [`versions`](super::versions) finds what is superseded,
//! and a second pass over those storages subtracts it.

use {
    crate::{
        error::{Error, Result},
        format::clients::Rule,
        ledger::{
            lattice::{LatticeAccumulator, LatticeHash},
            names::Hash,
        },
        verify::{
            fingerprint::Fingerprinter,
            records::{Record, RecordFault, RecordSink},
            report::{Check, Findings, Place},
            superseded::{Superseded, is_listed},
            version::{Batch, Version},
            versions::{KnownAccounts, VersionLog},
        },
    },
    std::{
        path::Path,
        sync::{Mutex, PoisonError, RwLock},
    },
};

/// A storage that is being read: its number, and its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageRef {
    /// Its number, over all archives.
    pub number: u32,
    /// Its slot.
    pub slot: u64,
    /// Its id.
    pub id: u32,
}

/// What all workers add up.
#[derive(Clone, Debug)]
pub struct Sums {
    /// The lattice hash of all records that were added.
    pub lattice: LatticeHash,
    /// Their lamports; a hostile archive may hold more than a `u64` can count.
    pub lamports: u128,
    /// Records seen.
    pub records: u64,
    /// Of those, tombstones.
    pub tombstones: u64,
    /// Of those, skipped since a newer archive holds the account.
    pub skipped: u64,
}

impl Default for Sums {
    fn default() -> Self {
        Self { lattice: LatticeHash::zero(), lamports: 0, records: 0, tombstones: 0, skipped: 0 }
    }
}

/// The state in the making, shared by all workers.
pub struct Accounts {
    printer: Fingerprinter,
    log: VersionLog,
    newer: Option<KnownAccounts>,
    slots: RwLock<Vec<u64>>,
    sums: Mutex<Sums>,
    error: Mutex<Option<Error>>,
}

impl Accounts {
    /// No accounts yet. See [`VersionLog::new`].
    pub fn new(memory_bytes: u64, spill_dir: &Path, room_bytes: u64) -> Result<Self> {
        Ok(Self {
            printer: Fingerprinter::new()?,
            log: VersionLog::new(memory_bytes, spill_dir, room_bytes),
            newer: None,
            slots: RwLock::default(),
            sums: Mutex::default(),
            error: Mutex::default(),
        })
    }

    /// Numbers a storage.
    pub fn add_storage(&self, slot: u64, id: u32) -> StorageRef {
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        slots.push(slot);
        StorageRef { number: (slots.len() - 1) as u32, slot, id }
    }

    /// Storages so far.
    pub fn storage_count(&self) -> u32 {
        self.slots.read().unwrap_or_else(PoisonError::into_inner).len() as u32
    }

    /// What has been read so far is newer than everything that follows: of its accounts, older versions are skipped.
    pub fn everything_so_far_is_newer(&mut self) {
        self.newer = self.log.known_accounts();
    }

    /// What the workers added up; complete once all of them have ended.
    pub fn sums(&self) -> Sums {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Bytes that did not fit in memory.
    pub fn spilled_bytes(&self) -> u64 {
        self.log.spilled_bytes()
    }

    /// The first error that a worker met outside the archive, such as a full disk.
    pub fn check(&self) -> Result<()> {
        match self.error.lock().unwrap_or_else(PoisonError::into_inner).clone() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Finds superseded records, in rounds that fit in memory.
    pub fn find_superseded(&self, threads: usize, on_round: &mut dyn FnMut(Superseded) -> Result<()>) -> Result<()> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner).clone();
        let slot_of = |storage: u32| slots.get(storage as usize).copied().unwrap_or_default();
        self.log.find_superseded(threads, &slot_of, on_round)
    }

    fn merge(&self, worker: &mut Sums, is_subtraction: bool) {
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        if is_subtraction {
            sums.lattice.subtract(&worker.lattice);
            sums.lamports = sums.lamports.wrapping_sub(worker.lamports);
        } else {
            sums.lattice.add(&worker.lattice);
            sums.lamports = sums.lamports.wrapping_add(worker.lamports);
            sums.records += worker.records;
            sums.tombstones += worker.tombstones;
            sums.skipped += worker.skipped;
        }
        *worker = Sums::default();
    }
}

/// Somebody else who wants to see records, such as `inspect`; shared by all workers.
pub trait RecordVisitor: Sync {
    /// One worker's part of it, which it merges when it is dropped.
    fn new_worker(&self) -> Box<dyn VisitWorker + '_>;
}

/// One worker's part of a [`RecordVisitor`].
pub trait VisitWorker {
    /// A complete record, and the storage that it is in.
    fn record(&mut self, storage: StorageRef, record: &Record<'_>);
}

/// What a worker does with the records that it reads.
pub enum Task<'a> {
    /// Shows them to somebody else.
    Visit(&'a dyn RecordVisitor),
    /// Looks at their layout only.
    Layout,
    /// Hashes and logs them.
    Add,
    /// Subtracts those that are superseded, and names those that a storage holds twice.
    Subtract(&'a Superseded),
}

/// One worker's part of the state. Merged when it is dropped.
pub struct AccountsWorker<'a> {
    accounts: &'a Accounts,
    findings: &'a Findings,
    task: &'a Task<'a>,
    storage: StorageRef,
    /// Of this storage, what is to be subtracted, and what is there twice.
    listed: [&'a [Version]; 2],
    batch: Batch,
    sums: Sums,
    /// Hashes several accounts at a time; goes into `sums` at the end.
    lattice: LatticeAccumulator,
    visit: Option<Box<dyn VisitWorker + 'a>>,
}

impl<'a> AccountsWorker<'a> {
    /// A worker that does `task`.
    pub fn new(accounts: &'a Accounts, findings: &'a Findings, task: &'a Task<'a>) -> Self {
        let storage = StorageRef { number: 0, slot: 0, id: 0 };
        let visit = match task {
            Task::Visit(visitor) => Some(visitor.new_worker()),
            _ => None,
        };
        Self {
            accounts,
            findings,
            task,
            storage,
            listed: [&[]; 2],
            batch: Batch::default(),
            sums: Sums::default(),
            lattice: LatticeAccumulator::new(),
            visit,
        }
    }

    /// The records that follow are of this storage.
    pub fn begin(&mut self, storage: StorageRef) {
        self.storage = storage;
        if let Task::Subtract(superseded) = self.task {
            let Superseded { to_subtract, duplicates, .. } = superseded;
            self.listed = [to_subtract, duplicates].map(|list| list.of_storage(storage.number));
        }
    }

    fn place(&self) -> Place {
        Place::entry(format!("accounts/{}.{}", self.storage.slot, self.storage.id))
    }

    fn flush(&mut self) {
        if let Err(error) = self.accounts.log.append(&mut self.batch) {
            self.batch.clear();
            self.accounts.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    }

    fn contribute(&mut self, record: &Record<'_>) {
        self.lattice.add(&record.header.account(record.data));
        self.sums.lamports = self.sums.lamports.wrapping_add(u128::from(record.header.lamports));
    }
}

impl RecordSink for AccountsWorker<'_> {
    fn record(&mut self, record: Record<'_>) {
        let is_tombstone = record.header.lamports == 0;
        match self.task {
            Task::Visit(_) => {
                if let Some(visit) = &mut self.visit {
                    visit.record(self.storage, &record);
                }
            }
            Task::Layout => self.sums.records += 1,
            Task::Add => {
                self.sums.records += 1;
                self.sums.tombstones += u64::from(is_tombstone);
                let fingerprint = self.accounts.printer.of(&record.header.pubkey);
                if self.accounts.newer.as_ref().is_some_and(|newer| newer.contains(&fingerprint)) {
                    self.sums.skipped += 1;
                    return;
                }
                if self.batch.push(Version::new(fingerprint, self.storage.number, is_tombstone)) {
                    self.flush();
                }
                if !is_tombstone {
                    self.contribute(&record);
                }
            }
            Task::Subtract(_) => {
                let fingerprint = self.accounts.printer.of(&record.header.pubkey);
                let [to_subtract, duplicates] = self.listed;
                if is_listed(to_subtract, &fingerprint) {
                    self.contribute(&record);
                }
                if is_listed(duplicates, &fingerprint) {
                    let mut place = self.place().at(record.offset_bytes);
                    place.account = Some(Hash(record.header.pubkey));
                    self.findings.add(Check::Records, Rule::DuplicateAccount, place, "once", "more than once");
                }
            }
        }
    }

    fn fault(&mut self, fault: RecordFault) {
        if matches!(self.task, Task::Subtract(_)) {
            return; // Said in the first pass.
        }
        if fault.rule == Rule::DataLength {
            self.findings.skip(Check::State, "a storage is no sequence of records");
        }
        let mut place = self.place().at(fault.offset_bytes);
        place.account = fault.account.map(Hash);
        self.findings.add(Check::Records, fault.rule, place, fault.expected, fault.found);
    }
}

impl Drop for AccountsWorker<'_> {
    fn drop(&mut self) {
        self.flush();
        self.sums.lattice.add(&self.lattice.take());
        self.accounts.merge(&mut self.sums, matches!(self.task, Task::Subtract(_)));
    }
}
