//! Computes the state of the accounts: capitalization and lattice hash over the newest version of each.
//!
//! Workers hash the records that they read and merge their sums at the end. [`versions`](super::versions) finds
//! superseded records, and a second pass over their storages subtracts them.

use std::path::Path;

use parking_lot::{Mutex, RwLock};
use slotpress_base::{Error, Result};
use slotpress_format::{Address, LatticeAccumulator, LatticeHash, Record, RecordFault, RecordFaultKind, RecordSink};

use crate::state::fingerprint::{Fingerprint, Fingerprinter};
use crate::state::kept_records::KeptRecords;
use crate::state::second_pass::{SecondPass, StateVisitor, StateWorker, SupersededMarks};
use crate::state::stakes::StakeAccounts;
use crate::state::superseded::is_listed;
use crate::state::version::Batch;
use crate::state::versions::{KnownAccounts, VersionLog};
use crate::state::well_known::WellKnown;
use crate::{Check, Findings, Place, RecordVisitor, RecordWorker, Rule, StorageRef, Superseded, Version};

#[derive(Clone, Debug, Default)]
pub struct Sums {
    pub lattice: LatticeHash,
    /// Lamports of all added records. `u128`, because a hostile archive may hold more than a `u64` can count.
    pub lamports: u128,
    pub records: u64,
    /// Records without lamports, which close an account.
    pub tombstones: u64,
    /// Records that were skipped because a newer archive holds their account.
    pub skipped: u64,
}

/// The state while it is computed, shared by all workers.
pub struct Accounts {
    printer: Fingerprinter,
    log: VersionLog,
    newer: Option<KnownAccounts>,
    /// Storages from this number on are older than those of `newer`.
    older_storages: u32,
    kept_records: Option<KeptRecords>,
    /// Vote accounts and delegations, to compare with the bank file's.
    pub stakes: StakeAccounts,
    /// Sysvars and others that clients read at fixed addresses.
    pub well_known: WellKnown,
    storages: RwLock<Vec<(u64, u64)>>,
    sums: Mutex<Sums>,
    error: Mutex<Option<Error>>,
}

impl Accounts {
    /// Starts without accounts. For the parameters see [`VersionLog::new`].
    pub fn new(memory_bytes: u64, spill_dir: &Path, room_bytes: u64) -> Result<Self> {
        Ok(Self {
            printer: Fingerprinter::new()?,
            log: VersionLog::new(memory_bytes, spill_dir, room_bytes),
            newer: None,
            older_storages: 0,
            kept_records: None,
            stakes: StakeAccounts::default(),
            well_known: WellKnown::default(),
            storages: RwLock::default(),
            sums: Mutex::default(),
            error: Mutex::default(),
        })
    }

    /// Like [`new`](Self::new), if the newest storages are read first: keeps records that are probably superseded, in
    /// an eighth of the memory, so that few need to be read again. `records` is an estimate of their number.
    pub fn keeping_records(memory_bytes: u64, spill_dir: &Path, room_bytes: u64, records: u64) -> Result<Self> {
        let mut this = Self::new(memory_bytes - memory_bytes / 8, spill_dir, room_bytes)?;
        this.kept_records = Some(KeptRecords::new(memory_bytes / 8, records));
        Ok(this)
    }

    /// Checks before reading whether the disk has room for what is expected not to fit in memory.
    pub fn check_room_foreseen(&self, memory_bytes: u64) -> Result<()> {
        self.log.check_room_foreseen(memory_bytes)
    }

    /// Subtracts superseded records that were kept, and removes them from the list.
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

    pub fn add_storage(&self, slot: u64, id: u32, content_bytes: u64) -> StorageRef {
        let mut storages = self.storages.write();
        storages.push((slot, content_bytes));
        StorageRef { number: (storages.len() - 1) as u32, slot, id }
    }

    pub fn storage_count(&self) -> u32 {
        self.storages.read().len() as u32
    }

    /// Marks all accounts so far as newer than everything that follows: from here on, older versions of them are
    /// skipped.
    pub fn everything_so_far_is_newer(&mut self, threads: usize) -> Result<()> {
        self.newer = self.log.known_accounts(threads)?;
        self.older_storages = self.storage_count();
        Ok(())
    }

    /// The merged sums; complete once all workers have ended.
    pub fn sums(&self) -> Sums {
        self.sums.lock().clone()
    }

    pub fn spilled_bytes(&self) -> u64 {
        self.log.spilled_bytes()
    }

    /// The first error of a worker that concerns no archive, such as a full disk.
    pub fn check(&self) -> Result<()> {
        self.error.lock().clone().map_or(Ok(()), Err)
    }

    /// Finds superseded records, in rounds that fit in memory, and empties the log.
    pub fn find_superseded(&self, threads: usize, on_round: &mut dyn FnMut(Superseded) -> Result<()>) -> Result<()> {
        let storages = self.storages.read();
        self.log.find_superseded(threads, &|storage| slot_of(&storages, storage), on_round)
    }

    /// Marks superseded records, in at most `marks_bytes_max` bytes.
    ///
    /// # Errors
    /// A storage holds an account twice; the marks need more memory.
    pub fn mark_superseded(&self, threads: usize, marks_bytes_max: u64) -> Result<SupersededMarks> {
        let storages = self.storages.read();
        SupersededMarks::of_log(&self.log, &storages, threads, marks_bytes_max)
    }

    /// True if a newer archive, which was read before, holds the account.
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
        }
        *worker = Sums::default();
    }
}

pub(super) fn slot_of(storages: &[(u64, u64)], storage: u32) -> u64 {
    storages.get(storage as usize).map_or(0, |(slot, _)| *slot)
}

#[derive(Clone, Copy)]
pub enum Task<'a> {
    /// Hash and log every record.
    Add,
    /// Subtract the superseded records, and report those that a storage holds twice.
    Subtract(&'a Superseded),
    /// The same, and pass every record to a visitor that no newer archive is known to supersede.
    AddAndShow(&'a dyn StateVisitor),
    Log,
    /// Pass every record to a visitor; if the state is checked, hash those that nothing supersedes.
    Visit(&'a SecondPass<'a>),
}

pub struct AccountsPass<'a> {
    pub accounts: &'a Accounts,
    pub findings: &'a Findings,
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

/// Part of the state that one worker computes; merged when it is dropped.
struct AccountsWorker<'a> {
    accounts: &'a Accounts,
    findings: &'a Findings,
    task: Task<'a>,
    storage: StorageRef,
    shown: Option<Box<dyn StateWorker + 'a>>,
    /// Records of the current storage to subtract, and records that it holds twice.
    listed: [&'a [Version]; 2],
    batch: Batch,
    sums: Sums,
    /// Hashes several accounts at a time; added to `sums` at the end.
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
                Task::AddAndShow(visitor) => Some(visitor.new_worker()),
                _ => None,
            },
            listed: [&[]; 2],
            batch: Batch::default(),
            sums: Sums::default(),
            lattice: LatticeAccumulator::new(),
        }
    }

    /// Keeps the first error, which ends the reading.
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

    /// Adds a record to the state, and keeps what of it is compared with the bank file.
    fn add(&mut self, fingerprint: Fingerprint, record: &Record<'_>) {
        self.accounts.stakes.look_at(self.storage, fingerprint, record);
        self.accounts.well_known.look_at(self.storage, fingerprint, record);
        self.contribute(record);
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
            Task::Add | Task::AddAndShow(_) | Task::Log => {
                self.sums.records += 1;
                self.sums.tombstones += u64::from(is_tombstone);
                let fingerprint = self.accounts.printer.of(&record.header.pubkey);
                if self.accounts.is_in_newer(self.storage, &fingerprint) {
                    self.sums.skipped += 1;
                    return;
                }
                let is_added = !matches!(self.task, Task::Log);
                if let Some(kept_records) = self.accounts.kept_records.as_ref().filter(|_| is_added) {
                    kept_records.look_at(self.storage.number, &fingerprint, &record);
                }
                if self.batch.push(Version::new(fingerprint, self.storage.number, is_tombstone, record.offset_bytes)) {
                    self.flush();
                }
                if !is_tombstone && is_added {
                    self.add(fingerprint, &record);
                }
                let result = self.shown.as_mut().map(|shown| shown.record(self.storage, &record, false));
                self.tell(result.unwrap_or(Ok(())));
            }
            Task::Visit(shown) => {
                let fingerprint = self.accounts.printer.of(&record.header.pubkey);
                let is_superseded = self.accounts.is_in_newer(self.storage, &fingerprint)
                    || shown.marked.contains(self.storage.number, record.offset_bytes);
                if shown.is_checked && !is_superseded && !is_tombstone {
                    self.add(fingerprint, &record);
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
                    let mut place = Place::storage(self.storage.slot, self.storage.id).at(record.offset_bytes);
                    place.account = Some(Address(record.header.pubkey));
                    let twice = "more than once";
                    self.tell(self.findings.add_at(Rule::DuplicateAccount, &place, "once", twice));
                }
            }
        }
    }

    fn fault(&mut self, fault: RecordFault) {
        if matches!(self.task, Task::Subtract(_) | Task::Visit(_)) {
            return; // The first pass reported it.
        }
        if matches!(self.task, Task::Log) && fault.kind.loses_records() {
            self.findings.lose_accounts();
        }
        self.tell(tell_fault(self.storage, fault, self.findings));
    }
}

fn tell_fault(storage: StorageRef, fault: RecordFault, findings: &Findings) -> Result<()> {
    let rule = match fault.kind {
        RecordFaultKind::CutOff => Rule::RecordCutOff,
        RecordFaultKind::Tail => Rule::StorageTail,
        RecordFaultKind::Padded => Rule::StoragePadded,
        RecordFaultKind::DataLength => Rule::DataLength,
        RecordFaultKind::Executable => Rule::Executable,
    };
    if rule == Rule::DataLength {
        findings.skip(Check::State, "a storage does not consist of records");
    }
    let mut place = Place::storage(storage.slot, storage.id).at(fault.offset_bytes);
    place.account = fault.account.map(Address);
    findings.add_at(rule, &place, fault.expected, fault.found)
}

impl Drop for AccountsWorker<'_> {
    fn drop(&mut self) {
        self.flush();
        self.sums.lattice.add(&self.lattice.take());
        self.accounts.merge(&mut self.sums, matches!(self.task, Task::Subtract(..)));
    }
}
