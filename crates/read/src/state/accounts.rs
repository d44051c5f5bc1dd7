//! The state that the accounts make up: capitalization and lattice hash over the newest version of each.
//!
//! Workers hash what they read and merge their sums at the end; [`versions`](super::versions) finds what is superseded,
//! and a second pass over those storages subtracts it.

use std::path::Path;

use parking_lot::{Mutex, RwLock};
use slotpress_base::{Error, Result};
use slotpress_format::{
    Address, LatticeAccumulator, LatticeHash, Record, RecordFault, RecordFaultKind, RecordSink, SLOT_HISTORY,
};

use crate::state::fingerprint::{Fingerprint, Fingerprinter};
use crate::state::kept_records::KeptRecords;
use crate::state::second_pass::{SecondPass, StateWorker, SupersededMarks};
use crate::state::stakes::StakeAccounts;
use crate::state::superseded::is_listed;
use crate::state::version::Batch;
use crate::state::versions::{KnownAccounts, VersionLog};
use crate::{Check, Findings, Place, RecordVisitor, RecordWorker, Rule, StorageRef, Superseded, Version};

/// What all workers add up.
#[derive(Clone, Debug, Default)]
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
    /// Whether one of them was the SlotHistory sysvar.
    pub has_slot_history: bool,
}

/// The state in the making, shared by all workers.
pub struct Accounts {
    printer: Fingerprinter,
    log: VersionLog,
    newer: Option<KnownAccounts>,
    /// The storages that hold those accounts come before this number.
    older_storages: u32,
    kept_records: Option<KeptRecords>,
    /// Vote accounts and delegations, for comparing them with the bank file's.
    pub stakes: StakeAccounts,
    /// Slot and length in bytes of each storage, by its number.
    storages: RwLock<Vec<(u64, u64)>>,
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
            older_storages: 0,
            kept_records: None,
            stakes: StakeAccounts::default(),
            storages: RwLock::default(),
            sums: Mutex::default(),
            error: Mutex::default(),
        })
    }

    /// The same for storages of which the newest are read first, with so many records, roughly: what is probably superseded
    /// is kept, in an eighth of the memory, so that little need be read again.
    pub fn keeping_records(memory_bytes: u64, spill_dir: &Path, room_bytes: u64, records: u64) -> Result<Self> {
        let mut this = Self::new(memory_bytes - memory_bytes / 8, spill_dir, room_bytes)?;
        this.kept_records = Some(KeptRecords::new(memory_bytes / 8, records));
        Ok(this)
    }

    /// Whether there is room for what is foreseen not to fit in as much memory, before anything is read.
    pub fn check_room_foreseen(&self, memory_bytes: u64) -> Result<()> {
        self.log.check_room_foreseen(memory_bytes)
    }

    /// Subtracts those of the superseded records that were kept; the others stay in the list.
    pub fn subtract_kept(&self, superseded: &mut Superseded) {
        let Some(kept_records) = &self.kept_records else { return };
        let mut lattice = LatticeAccumulator::new();
        let mut sums = Sums::default();
        superseded.to_subtract.retain(|version| {
            !kept_records.show(version.storage(), &version.fingerprint, &mut |header, data| {
                lattice.add(&header.account(data));
                sums.lamports = sums.lamports.wrapping_add(u128::from(header.lamports));
            })
        });
        sums.lattice.add(&lattice.take());
        self.merge(&mut sums, true);
    }

    /// Numbers a storage.
    pub fn add_storage(&self, slot: u64, id: u32, content_bytes: u64) -> StorageRef {
        let mut storages = self.storages.write();
        storages.push((slot, content_bytes));
        StorageRef { number: (storages.len() - 1) as u32, slot, id }
    }

    /// Storages so far.
    pub fn storage_count(&self) -> u32 {
        self.storages.read().len() as u32
    }

    /// What has been read so far is newer than everything that follows: of its accounts, older versions are skipped.
    pub fn everything_so_far_is_newer(&mut self, threads: usize) -> Result<()> {
        self.newer = self.log.known_accounts(threads)?;
        self.older_storages = self.storage_count();
        Ok(())
    }

    /// Firedancer wrote what is older.
    pub fn older_are_of_firedancer(&self) {
        self.stakes.lose_rent_epochs_from(self.older_storages);
    }

    /// What the workers added up; complete once all of them have ended.
    pub fn sums(&self) -> Sums {
        self.sums.lock().clone()
    }

    /// Bytes that did not fit in memory.
    pub fn spilled_bytes(&self) -> u64 {
        self.log.spilled_bytes()
    }

    /// The first error that a worker met outside the archive, such as a full disk.
    pub fn check(&self) -> Result<()> {
        match self.error.lock().clone() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Finds superseded records, in rounds that fit in memory.
    pub fn find_superseded(&self, threads: usize, on_round: &mut dyn FnMut(Superseded) -> Result<()>) -> Result<()> {
        let storages = self.storages.read();
        self.log.find_superseded(threads, &|storage| slot_of(&storages, storage), on_round)
    }

    /// Marks superseded records, in at most `marks_bytes_max` bytes. An account that is twice in one storage is an error.
    pub fn mark_superseded(&self, threads: usize, marks_bytes_max: u64) -> Result<SupersededMarks> {
        let storages = self.storages.read();
        SupersededMarks::of_log(&self.log, &storages, threads, marks_bytes_max)
    }

    /// Whether a newer archive, which was read before, holds the account of a record.
    fn is_in_newer(&self, storage: StorageRef, fingerprint: &Fingerprint) -> bool {
        let newer = self.newer.as_ref().filter(|_| storage.number >= self.older_storages);
        newer.is_some_and(|newer| newer.contains(fingerprint))
    }

    fn merge(&self, worker: &mut Sums, is_subtraction: bool) {
        let mut sums = self.sums.lock();
        if is_subtraction {
            sums.lattice.subtract(&worker.lattice);
            sums.lamports = sums.lamports.wrapping_sub(worker.lamports);
        } else {
            sums.lattice.add(&worker.lattice);
            sums.lamports = sums.lamports.wrapping_add(worker.lamports);
            sums.records += worker.records;
            sums.tombstones += worker.tombstones;
            sums.skipped += worker.skipped;
            sums.has_slot_history |= worker.has_slot_history;
        }
        *worker = Sums::default();
    }
}

/// The slot of a storage.
pub(super) fn slot_of(storages: &[(u64, u64)], storage: u32) -> u64 {
    storages.get(storage as usize).map_or(0, |(slot, _)| *slot)
}

/// What is done with the records of a pass.
#[derive(Clone, Copy)]
pub enum Task<'a> {
    /// They are hashed and logged.
    Add,
    /// Those that are superseded are subtracted, and those that a storage holds twice are named.
    Subtract(&'a Superseded),
    /// They are logged only.
    Log,
    /// They are shown to a visitor, and those that nothing supersedes are hashed where the state is checked.
    Visit(&'a SecondPass<'a>),
}

/// A pass over records that makes up the state.
pub struct AccountsPass<'a> {
    /// The state in the making.
    pub accounts: &'a Accounts,
    /// Where broken rules are told.
    pub findings: &'a Findings,
    /// What is done.
    pub task: Task<'a>,
}

impl RecordVisitor for AccountsPass<'_> {
    fn new_worker(&self) -> Box<dyn RecordWorker + '_> {
        Box::new(AccountsWorker::new(self))
    }

    fn check(&self) -> Result<()> {
        self.accounts.check()
    }
}

/// One worker's part of the state. Merged when it is dropped.
struct AccountsWorker<'a> {
    accounts: &'a Accounts,
    findings: &'a Findings,
    task: Task<'a>,
    storage: StorageRef,
    shown: Option<Box<dyn StateWorker + 'a>>,
    /// Of this storage, what is to be subtracted, and what is there twice.
    listed: [&'a [Version]; 2],
    batch: Batch,
    sums: Sums,
    /// Hashes several accounts at a time; goes into `sums` at the end.
    lattice: LatticeAccumulator,
}

impl<'a> AccountsWorker<'a> {
    fn new(pass: &'a AccountsPass<'a>) -> Self {
        let AccountsPass { accounts, findings, task } = pass;
        Self {
            accounts,
            findings,
            task: *task,
            storage: StorageRef::default(),
            shown: match task {
                Task::Visit(pass) => Some(pass.visitor.new_worker()),
                _ => None,
            },
            listed: [&[]; 2],
            batch: Batch::default(),
            sums: Sums::default(),
            lattice: LatticeAccumulator::new(),
        }
    }

    fn place(&self) -> Place {
        Place::entry(format!("accounts/{}.{}", self.storage.slot, self.storage.id))
    }

    /// Remembers the first error, which ends the reading.
    fn tell(&self, result: Result<()>) {
        if let Err(error) = result {
            self.accounts.error.lock().get_or_insert(error);
        }
    }

    fn flush(&mut self) {
        let result = self.accounts.log.append(&mut self.batch);
        self.batch.clear();
        self.tell(result);
    }

    fn contribute(&mut self, record: &Record<'_>) {
        self.lattice.add(&record.header.account(record.data));
        self.sums.lamports = self.sums.lamports.wrapping_add(u128::from(record.header.lamports));
    }
}

impl RecordWorker for AccountsWorker<'_> {
    fn begin(&mut self, storage: StorageRef) {
        self.storage = storage;
        if let Task::Subtract(superseded) = self.task {
            let Superseded { to_subtract, duplicates, .. } = superseded;
            self.listed = [to_subtract, duplicates].map(|list| list.of_storage(storage.number));
        }
    }
}

impl RecordSink for AccountsWorker<'_> {
    fn record(&mut self, record: Record<'_>) {
        let is_tombstone = record.header.lamports == 0;
        match self.task {
            Task::Add | Task::Log => {
                self.sums.records += 1;
                self.sums.tombstones += u64::from(is_tombstone);
                self.sums.has_slot_history |= record.header.pubkey == SLOT_HISTORY && !is_tombstone;
                let fingerprint = self.accounts.printer.of(&record.header.pubkey);
                if self.accounts.is_in_newer(self.storage, &fingerprint) {
                    self.sums.skipped += 1;
                    return;
                }
                if let (Task::Add, Some(kept_records)) = (self.task, &self.accounts.kept_records) {
                    kept_records.look_at(self.storage.number, &fingerprint, &record);
                }
                if self.batch.push(Version::new(fingerprint, self.storage.number, is_tombstone, record.offset_bytes)) {
                    self.flush();
                }
                if !is_tombstone && matches!(self.task, Task::Add) {
                    self.accounts.stakes.look_at(self.storage, fingerprint, &record);
                    self.contribute(&record);
                }
            }
            Task::Visit(shown) => {
                let fingerprint = self.accounts.printer.of(&record.header.pubkey);
                let is_superseded = self.accounts.is_in_newer(self.storage, &fingerprint)
                    || shown.marked.contains(self.storage.number, record.offset_bytes);
                if shown.is_checked && !is_superseded && !is_tombstone {
                    self.accounts.stakes.look_at(self.storage, fingerprint, &record);
                    self.contribute(&record);
                }
                let result = self.shown.as_mut().map(|shown| shown.record(self.storage, &record, is_superseded));
                self.tell(result.unwrap_or(Ok(())));
            }
            Task::Subtract(_) => {
                let fingerprint = self.accounts.printer.of(&record.header.pubkey);
                let [to_subtract, duplicates] = self.listed;
                if is_listed(to_subtract, &fingerprint) {
                    self.contribute(&record);
                }
                if is_listed(duplicates, &fingerprint) {
                    let mut place = self.place().at(record.offset_bytes);
                    place.account = Some(Address(record.header.pubkey));
                    let twice = "more than once";
                    self.tell(self.findings.add(Check::Records, Rule::DuplicateAccount, place, "once", twice));
                }
            }
        }
    }

    fn fault(&mut self, fault: RecordFault) {
        if matches!(self.task, Task::Subtract(_) | Task::Visit(_)) {
            return; // Said in the first pass.
        }
        if matches!(self.task, Task::Log) && fault.kind.loses_records() {
            self.findings.lose_accounts();
        }
        self.tell(tell_fault(self.storage, fault, self.findings));
    }
}

/// Says what is wrong with a storage.
fn tell_fault(storage: StorageRef, fault: RecordFault, findings: &Findings) -> Result<()> {
    let rule = match fault.kind {
        RecordFaultKind::CutOff => Rule::RecordCutOff,
        RecordFaultKind::Tail => Rule::StorageTail,
        RecordFaultKind::Padded => Rule::StoragePadded,
        RecordFaultKind::DataLength => Rule::DataLength,
        RecordFaultKind::Executable => Rule::Executable,
    };
    if rule == Rule::DataLength {
        findings.skip(Check::State, "a storage is no sequence of records");
    }
    let mut place = Place::entry(format!("accounts/{}.{}", storage.slot, storage.id)).at(fault.offset_bytes);
    place.account = fault.account.map(Address);
    findings.add(Check::Records, rule, place, fault.expected, fault.found)
}

impl Drop for AccountsWorker<'_> {
    fn drop(&mut self) {
        self.flush();
        self.sums.lattice.add(&self.lattice.take());
        self.accounts.merge(&mut self.sums, matches!(self.task, Task::Subtract(..)));
    }
}
