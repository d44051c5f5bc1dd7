//! Computes the state of the accounts: capitalization and lattice hash over the newest version of
//! each.
//!
//! In a check, workers hash the records that they read, and merge their sums at the end. The check then
//! rereads some records. A visit reads all records twice, and hashes them the second time ([`Task`]).

use std::collections::HashSet;
use std::path::Path;

use parking_lot::{Mutex, RwLock};
use slotpress_base::{Error, Progress, Result, Stage, hint};
use slotpress_format::{BankFile, LatticeAccumulator};

use crate::rules::state::judge_state;
use crate::state::kept_records::KeptRecords;
use crate::state::known::KnownPartition;
use crate::state::log_item::{ITEM_BYTES, partition_of};
use crate::state::marks::Marks;
use crate::state::newest::NewestVersions;
use crate::state::stakes::StakeAccounts;
use crate::state::sums::{PassSums, StateSum};
use crate::state::superseded::find_superseded;
use crate::state::well_known::WellKnownAccount;
use crate::{
    Check, Failures, Fingerprint, Fingerprinter, RecordVersion, StateVisitor, StorageRef, Superseded, Task, VersionLog,
};

/// Lower estimate of the average length of a record, in bytes. The estimate of the log's length follows from it.
const RECORD_BYTES_LOWER_ESTIMATE: u64 = 256;

/// Upper estimate of a zstd archive's compression ratio.
pub const RATIO_UPPER_ESTIMATE: u64 = 6;

pub fn estimate_records(storages_bytes: u64) -> u64 {
    storages_bytes / RECORD_BYTES_LOWER_ESTIMATE
}

/// The accounts of an archive that was read before an older one.
struct NewerArchive {
    accounts: Vec<KnownPartition>,
    first_older_storage: u32,
}

pub type ReadAgain<'a> = &'a mut dyn FnMut(Task<'_>, &HashSet<u32>) -> Result<()>;

/// The state while it is computed. All workers share it.
pub struct StateBuilder {
    pub(super) fingerprinter: Fingerprinter,
    pub log: VersionLog,
    newer: Option<NewerArchive>,
    pub(super) kept_records: Option<KeptRecords>,
    pub stakes: StakeAccounts,
    pub well_known: NewestVersions<WellKnownAccount>,
    slots: RwLock<Vec<u64>>,
    sums: Mutex<PassSums>,
    pub(super) error: Mutex<Option<Error>>,
}

impl StateBuilder {
    /// Creates an empty state. `storages_bytes` is the expected length of all storages. Parts of the log that
    /// do not fit in memory are spilled into `spill_dir`.
    pub fn new(memory_bytes: u64, spill_dir: &Path, storages_bytes: u64) -> Result<Self> {
        let space_bytes = estimate_records(storages_bytes).saturating_mul(ITEM_BYTES);
        Ok(Self {
            fingerprinter: Fingerprinter::new()?,
            log: VersionLog::new(memory_bytes, spill_dir, space_bytes),
            newer: None,
            kept_records: None,
            stakes: StakeAccounts::default(),
            well_known: NewestVersions::well_known_accounts(),
            slots: RwLock::default(),
            sums: Mutex::default(),
            error: Mutex::default(),
        })
    }

    /// Like [`new`](Self::new), for reading the newest storages first. Uses an eighth of the memory for keeping
    /// records that are probably superseded, so that few records are read again.
    pub fn with_kept_records(memory_bytes: u64, spill_dir: &Path, storages_bytes: u64) -> Result<Self> {
        let kept_bytes = memory_bytes / 8;
        let mut builder = Self::new(memory_bytes - kept_bytes, spill_dir, storages_bytes)?;
        builder.kept_records = Some(KeptRecords::new(kept_bytes, estimate_records(storages_bytes)));
        Ok(builder)
    }

    /// Subtracts the superseded records of which copies were kept, and removes them from the list. Also drops
    /// superseded stake and vote accounts.
    fn subtract_kept(&self, superseded: &mut Superseded) {
        let mut marks = Marks::default();
        marks.extend(superseded.records.iter().map(RecordVersion::mark));
        self.stakes.newest.drop_superseded(&marks);
        let Some(kept_records) = &self.kept_records else { return };
        let mut lattice = LatticeAccumulator::default();
        let mut state = StateSum::default();
        kept_records.take_from(&mut superseded.records, &mut |header, data| {
            lattice.add(&header.account(data));
            state.add_lamports(header.lamports);
        });
        state.lattice.add(&lattice.take());
        self.subtract(&state);
    }

    pub fn add_storage(&self, slot: u64, id: u32) -> StorageRef {
        let mut slots = self.slots.write();
        let number = slots.len() as u32;
        slots.push(slot);
        StorageRef { number, slot, id }
    }

    pub fn storage_count(&self) -> u32 {
        self.slots.read().len() as u32
    }

    /// If memory suffices, builds a table of all accounts so far. The versions of these accounts in the next
    /// archive are older, and are then skipped.
    pub fn begin_older_archive(&mut self, threads: usize) -> Result<()> {
        let first_older_storage = self.storage_count();
        let accounts = self.log.known_accounts(threads)?;
        self.newer = accounts.map(|accounts| NewerArchive { accounts, first_older_storage });
        Ok(())
    }

    pub fn sums(&self) -> PassSums {
        self.sums.lock().clone()
    }

    /// Returns the first error of a worker, for example because of a full disk or a broken rule that the caller
    /// does not tolerate.
    pub fn check(&self) -> Result<()> {
        self.error.lock().clone().map_or(Ok(()), Err)
    }

    fn find_superseded(&self, sorted: &[RecordVersion], is_wanted: fn(&RecordVersion) -> bool) -> Superseded {
        let slots = self.slots.read();
        let slot_of = |storage: u32| slots.get(storage as usize).copied().unwrap_or_default();
        find_superseded(sorted, &slot_of, is_wanted)
    }

    fn add_counts(&self, superseded: &Superseded) {
        let mut sums = self.sums.lock();
        sums.accounts += superseded.accounts;
        sums.superseded += superseded.count;
    }

    pub(super) fn is_in_newer_archive(&self, storage: u32, fingerprint: &Fingerprint) -> bool {
        self.newer.as_ref().is_some_and(|newer| {
            storage >= newer.first_older_storage && newer.accounts[partition_of(fingerprint)].contains(fingerprint)
        })
    }

    pub(super) fn add(&self, added: &PassSums) {
        self.sums.lock().add(added);
    }

    pub(super) fn subtract(&self, subtracted: &StateSum) {
        self.sums.lock().state.subtract(subtracted);
    }

    /// Subtracts superseded records, and judges the state unless that check is skipped. Calls `read_again` for
    /// records of which no copy was kept, in rounds that fit in memory.
    pub fn check_state(
        &self,
        bank: Option<&BankFile>,
        failures: &Failures,
        threads: usize,
        progress: &dyn Progress,
        read_again: ReadAgain<'_>,
    ) -> Result<()> {
        if bank.is_none() {
            failures.skip(Check::State, "no bank file could be read");
        }
        progress.stage(Stage::Sorting, None);
        // Tombstones add nothing to the state, so they are not subtracted.
        let find = |sorted: &[RecordVersion]| self.find_superseded(sorted, |version| !version.is_tombstone());
        self.log.find_superseded_in_rounds(threads, &find, &mut |mut round| {
            self.add_counts(&round);
            progress.check()?;
            if !round.duplicates.is_empty() {
                // Which of the two records is newer is undefined.
                failures.skip(Check::State, "an account occurs twice in one storage");
            }
            self.subtract_kept(&mut round);
            let wanted = round.storages();
            if wanted.is_empty() { Ok(()) } else { read_again(Task::Subtract(&round), &wanted) }
        })?;
        self.judge(bank, failures)
    }

    /// Like [`check_state`](Self::check_state), but fails if that check is skipped. Returns the number of
    /// accounts.
    pub fn require_state(
        &self,
        bank: &BankFile,
        failures: &Failures,
        threads: usize,
        progress: &dyn Progress,
        read_again: ReadAgain<'_>,
    ) -> Result<u64> {
        self.check()?;
        self.check_state(Some(bank), failures, threads, progress, read_again)?;
        match failures.skip_reason(Check::State) {
            Some(why) => Err(Error::damaged(format!("the state cannot be checked: {why}"))),
            None => Ok(self.sums().accounts),
        }
    }

    /// Reads all records with `read_all`, which passes each record to `visitor`. Unless the check of the state
    /// is skipped, hashes the newest versions as they are visited, and then judges the state.
    pub fn visit_state(
        &self,
        bank: Option<&BankFile>,
        failures: &Failures,
        visitor: &dyn StateVisitor,
        threads: usize,
        read_all: &mut dyn FnMut(Task<'_>) -> Result<()>,
    ) -> Result<()> {
        let superseded = &self.mark_superseded(threads)?;
        let is_hashed = bank.is_some() && failures.skip_reason(Check::State).is_none();
        read_all(Task::Visit { visitor, superseded, is_hashed })?;
        self.judge(bank, failures)
    }

    fn mark_superseded(&self, threads: usize) -> Result<Marks> {
        let mut marks = Marks::default();
        self.log.for_each_partition(threads, &|sorted| self.find_superseded(sorted, |_| true), &mut |found| {
            if !found.duplicates.is_empty() {
                // Which of the two records is newer is undefined.
                let error = Error::damaged("an account occurs more than once in one storage");
                return Err(error.with_hint(hint::USE_VERIFY));
            }
            self.add_counts(&found);
            marks.extend(found.records.iter().map(RecordVersion::mark));
            Ok(())
        })?;
        Ok(marks)
    }

    fn judge(&self, bank: Option<&BankFile>, failures: &Failures) -> Result<()> {
        self.check()?;
        match bank {
            Some(bank) if failures.skip_reason(Check::State).is_none() => {
                judge_state(&self.sums().state, &self.well_known.accounts(), &self.stakes, bank, failures)
            }
            _ => Ok(()),
        }
    }
}
