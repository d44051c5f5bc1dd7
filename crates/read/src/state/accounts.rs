//! Computes the state of the accounts: capitalization and lattice hash over the newest version of
//! each.
//!
//! Workers hash the records that they read, and merge their sums at the end.

use std::path::Path;

use parking_lot::{Mutex, RwLock};
use slotpress_base::{Error, Result};
use slotpress_format::{BankFile, LatticeAccumulator};

use crate::rules::state::judge_state;
use crate::state::fingerprint::{Fingerprint, Fingerprinter};
use crate::state::kept_records::KeptRecords;
use crate::state::marks::Marks;
use crate::state::second_pass::mark_superseded;
use crate::state::stakes::StakeAccounts;
use crate::state::sums::{StateCounts, Sums};
use crate::state::superseded::{slot_of, superseded_among};
use crate::state::versions::{KnownAccounts, VersionLog};
use crate::state::well_known::WellKnown;
use crate::{Findings, StorageRef, Superseded};

/// The state while it is computed, shared by all workers.
pub struct Accounts {
    pub(super) printer: Fingerprinter,
    pub(super) log: VersionLog,
    newer: Option<KnownAccounts>,
    /// Number of the first storage that is older than the accounts in `newer`.
    older_storages: u32,
    pub(super) kept_records: Option<KeptRecords>,
    /// Vote accounts and delegations, to compare with the bank file's.
    pub stakes: StakeAccounts,
    /// Sysvars and other accounts that clients read at fixed addresses.
    pub well_known: WellKnown,
    storages: RwLock<Vec<(u64, u64)>>,
    sums: Mutex<Sums>,
    pub(super) error: Mutex<Option<Error>>,
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

    /// Like [`new`](Self::new), for reading the newest storages first: an eighth of the memory
    /// keeps records that are probably superseded, so that few are read again. `records` is an
    /// estimate of the number of all records.
    pub fn keeping_records(memory_bytes: u64, spill_dir: &Path, room_bytes: u64, records: u64) -> Result<Self> {
        let mut this = Self::new(memory_bytes - memory_bytes / 8, spill_dir, room_bytes)?;
        this.kept_records = Some(KeptRecords::new(memory_bytes / 8, records));
        Ok(this)
    }

    /// Checks that the disk has room for what is not expected to fit in memory.
    pub fn check_room_foreseen(&self, memory_bytes: u64) -> Result<()> {
        self.log.check_room_foreseen(memory_bytes)
    }

    /// Applies the result of sorting the log to the accounts and records that were kept. Drops
    /// superseded accounts. Subtracts superseded records, and removes them from `superseded`.
    pub fn settle_kept(&self, superseded: &mut Superseded) {
        self.stakes.drop_superseded(superseded);
        let Some(kept_records) = &self.kept_records else { return };
        let mut lattice = LatticeAccumulator::new();
        let mut sums = Sums::default();
        superseded.to_subtract.retain(|version| {
            !kept_records.show(version.storage(), &version.fingerprint, &mut |header, data| {
                lattice.add(&header.account(data));
                sums.state.lamports = sums.state.lamports.wrapping_add(u128::from(header.lamports));
            })
        });
        sums.state.lattice.add(&lattice.take());
        self.merge(&sums, true);
    }

    pub fn add_storage(&self, slot: u64, id: u32, content_bytes: u64) -> StorageRef {
        let mut storages = self.storages.write();
        storages.push((slot, content_bytes));
        StorageRef { number: (storages.len() - 1) as u32, slot, id }
    }

    pub fn storage_count(&self) -> u32 {
        self.storages.read().len() as u32
    }

    /// Makes a table of all accounts so far, if memory suffices: they are newer than everything
    /// that follows. Their older versions are then skipped.
    pub fn begin_older_archive(&mut self, threads: usize) -> Result<()> {
        self.newer = self.log.known_accounts(threads)?;
        self.older_storages = self.storage_count();
        Ok(())
    }

    /// Compares the state with the bank file.
    pub fn judge(&self, bank: &BankFile, findings: &Findings) -> Result<()> {
        judge_state(&self.sums().state, &self.well_known.accounts(), &self.stakes, bank, findings)
    }

    /// The merged sums; complete once all workers have ended.
    pub fn sums(&self) -> Sums {
        self.sums.lock().clone()
    }

    pub fn spilled_bytes(&self) -> u64 {
        self.log.spilled_bytes()
    }

    /// Returns the first error of a worker that no archive caused, such as a full disk.
    pub fn check(&self) -> Result<()> {
        self.error.lock().clone().map_or(Ok(()), Err)
    }

    /// Finds superseded records, in rounds that fit in memory, and empties the log.
    pub fn find_superseded(&self, threads: usize, on_round: &mut dyn FnMut(Superseded) -> Result<()>) -> Result<()> {
        let storages = self.storages.read();
        let among = |sorted: &[_]| superseded_among(sorted, &|storage| slot_of(&storages, storage));
        self.log.find_superseded(threads, &among, on_round)
    }

    /// Marks superseded records, and empties the log.
    pub fn mark_superseded(&self, threads: usize) -> Result<(Marks, StateCounts)> {
        mark_superseded(&self.log, &self.storages.read(), threads)
    }

    /// True if a newer archive, which was read before, is known to hold the account.
    pub(super) fn is_in_newer(&self, storage: u32, fingerprint: &Fingerprint) -> bool {
        let newer = self.newer.as_ref().filter(|_| storage >= self.older_storages);
        newer.is_some_and(|newer| newer.contains(fingerprint))
    }

    pub(super) fn merge(&self, worker: &Sums, is_subtraction: bool) {
        let mut sums = self.sums.lock();
        match is_subtraction {
            true => sums.state.subtract(&worker.state),
            false => sums.add(worker),
        }
    }
}
