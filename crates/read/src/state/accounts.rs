//! Computes the state of the accounts: capitalization and lattice hash over the newest version of
//! each.
//!
//! Workers hash the records that they read, and merge their sums at the end.

mod pass;

use std::path::Path;

use parking_lot::{Mutex, RwLock};
pub use pass::{AccountsPass, Task};
use slotpress_base::{Error, Result};
use slotpress_format::LatticeAccumulator;

use crate::state::fingerprint::{Fingerprint, Fingerprinter};
use crate::state::finish::{OnSorted, StateCounts};
use crate::state::kept_records::KeptRecords;
use crate::state::layers::{Covered, Layer, LayerSet, State, add_covered};
use crate::state::second_pass::SupersededMarks;
use crate::state::stakes::StakeAccounts;
use crate::state::sums::{LayeredSums, Sums};
use crate::state::superseded::superseded_among;
use crate::state::version::Batch;
use crate::state::versions::{KnownAccounts, VersionLog};
use crate::state::well_known::WellKnown;
use crate::{StorageRef, Superseded, Version};

/// The state while it is computed, shared by all workers.
pub struct Accounts {
    printer: Fingerprinter,
    log: VersionLog,
    newer: Option<KnownAccounts>,
    /// Number of the first storage that is older than the accounts in `newer`.
    older_storages: u32,
    /// Number of layers above the full archive. They have the first storage numbers.
    layers: u32,
    /// Memory for the log and the kept layers, in bytes; `layers_bytes` is the share of the layers.
    log_bytes: u64,
    layers_bytes: u64,
    /// For each layer, counts of the versions that it covers, as far as the log was sorted.
    covered_counts: Mutex<Vec<Covered>>,
    kept_records: Option<KeptRecords>,
    /// Vote accounts and delegations, to compare with the bank file's.
    pub stakes: StakeAccounts,
    /// Sysvars and other accounts that clients read at fixed addresses.
    pub well_known: WellKnown,
    /// The same accounts, and tombstones at these addresses, as found by [`Task::Log`].
    pub logged: WellKnown,
    storages: RwLock<Vec<(u64, u64)>>,
    sums: Mutex<LayeredSums>,
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
            layers: 0,
            log_bytes: 0,
            layers_bytes: 0,
            covered_counts: Mutex::default(),
            kept_records: None,
            stakes: StakeAccounts::default(),
            well_known: WellKnown::default(),
            logged: WellKnown::default(),
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
        self.well_known.drop_superseded(superseded);
        add_covered(&mut self.covered_counts.lock(), &superseded.covered_counts);
        let Some(kept_records) = &self.kept_records else { return };
        let mut lattice = LatticeAccumulator::new();
        let mut sums = LayeredSums::default();
        superseded.to_subtract.retain(|version| {
            let layers = self.known_layers(version.storage(), &version.fingerprint);
            !kept_records.show(version.storage(), &version.fingerprint, &mut |header, data| match layers.is_empty() {
                true => {
                    lattice.add(&header.account(data));
                    sums.all.state.lamports = sums.all.state.lamports.wrapping_add(u128::from(header.lamports));
                }
                false => sums.add(&header.account(data), layers),
            })
        });
        sums.all.state.lattice.add(&lattice.take());
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

    /// Makes a table of all accounts so far, if memory suffices: they are newer than everything
    /// that follows. Their older versions are then skipped, or with layers, added up as covered.
    pub fn begin_older_archive(&mut self, threads: usize) -> Result<()> {
        if self.layers > 0 {
            self.log.set_log_bytes(self.log_bytes - self.layers_bytes);
        }
        self.newer = self.log.known_accounts(threads, self.layers > 0)?;
        self.older_storages = self.storage_count();
        Ok(())
    }

    /// Prepares for `layers` layers above the archive, which are read first. Until
    /// [`begin_older_archive`](Self::begin_older_archive) is called, the log leaves half of its
    /// memory to the layers.
    pub fn below(mut self, layers: u32) -> Self {
        for _ in 0..layers {
            self.add_storage(u64::MAX, 0, 0);
        }
        self.layers = layers;
        self.log_bytes = self.log.log_bytes();
        self.log.set_log_bytes(self.log_bytes / 2);
        self
    }

    /// Starts a layer with a quarter of `memory_bytes`. For the parameters see
    /// [`keeping_records`](Self::keeping_records).
    pub fn above(&self, memory_bytes: u64, spill_dir: &Path, room_bytes: u64, records: u64) -> Result<Self> {
        let layer = Self::keeping_records(memory_bytes / 4, spill_dir, room_bytes, records)?;
        Ok(Self { printer: self.printer.clone(), ..layer })
    }

    /// Logs the accounts of a layer, so that sorting the log shows which records the layer covers.
    pub fn note_layer(&self, layer: u32, sorted: &[Version]) -> Result<()> {
        let mut batch = Batch::default();
        for versions in sorted.chunk_by(|one, other| one.fingerprint == other.fingerprint) {
            if batch.push(Version::new(versions[0].fingerprint, layer, false, 0)) {
                self.log.append(&mut batch)?;
            }
        }
        self.log.append(&mut batch)
    }

    /// Drops the table of newer accounts, as if there were no memory for it.
    #[cfg(test)]
    pub fn forget_newer(&mut self) {
        self.newer = None;
    }

    /// Takes memory from the log for a layer that is kept. Returns `false` if the log would be left
    /// with less than half of its memory.
    pub fn reserve(&mut self, bytes: u64) -> bool {
        let layers_bytes = self.layers_bytes.saturating_add(bytes);
        let fits = layers_bytes <= self.log_bytes / 2;
        if fits {
            self.layers_bytes = layers_bytes;
        }
        fits
    }

    /// Keeps what the verdict on a layer needs, after the layer was read.
    pub fn into_layer(self, number: u32, counted: StateCounts) -> Layer {
        let (sums, spilled_bytes) = (self.sums(), self.spilled_bytes());
        Layer { number, sums, counted, stakes: self.stakes, well_known: self.well_known, spilled_bytes }
    }

    /// The merged sums; complete once all workers have ended.
    pub fn sums(&self) -> Sums {
        self.sums.lock().all.clone()
    }

    pub fn state(&self) -> State<'_> {
        State { sums: self.sums(), stakes: self.stakes.view(), well_known: self.well_known.accounts() }
    }

    /// Returns the state with a layer on top.
    pub fn state_below<'a>(&'a self, layer: &'a Layer) -> State<'a> {
        let mut sums = self.sums.lock().all.clone();
        if let Some(covered) = self.sums.lock().covered.get(layer.number as usize) {
            sums.state.subtract(covered);
        }
        sums.add(&layer.sums);
        State {
            sums,
            stakes: self.stakes.view_below(&layer.stakes, layer.number),
            well_known: self.well_known.accounts_below(&layer.well_known, layer.number),
        }
    }

    /// Returns the counts of the state with a layer on top. `counted` are the counts without it.
    pub fn counts_below(&self, counted: &StateCounts, layer: &Layer) -> StateCounts {
        let covered = self.covered_counts.lock().get(layer.number as usize).copied().unwrap_or_default();
        StateCounts {
            accounts: counted.accounts - covered.accounts + layer.counted.accounts,
            superseded: counted.superseded + covered.versions + layer.counted.superseded,
            has_duplicates: counted.has_duplicates || layer.counted.has_duplicates,
        }
    }

    pub fn spilled_bytes(&self) -> u64 {
        self.log.spilled_bytes()
    }

    /// Returns the first error of a worker that no archive caused, such as a full disk.
    pub fn check(&self) -> Result<()> {
        self.error.lock().clone().map_or(Ok(()), Err)
    }

    /// Finds superseded records, in rounds that fit in memory, and empties the log.
    pub fn find_superseded(
        &self,
        threads: usize,
        on_sorted: OnSorted<'_>,
        on_round: &mut dyn FnMut(Superseded) -> Result<()>,
    ) -> Result<()> {
        let storages = self.storages.read();
        let lists_covered = self.newer.is_none();
        let among = |sorted: &[Version]| {
            on_sorted(sorted)?;
            Ok(superseded_among(sorted, self.layers, lists_covered, &|storage| slot_of(&storages, storage)))
        };
        self.log.find_superseded(threads, &among, on_round)
    }

    /// Marks superseded records in at most `marks_bytes_max` bytes, or 64 MiB if that is more.
    ///
    /// # Errors
    /// A storage holds an account twice; the marks need more memory.
    pub fn mark_superseded(&self, threads: usize, marks_bytes_max: u64) -> Result<SupersededMarks> {
        let storages = self.storages.read();
        SupersededMarks::of_log(&self.log, &storages, threads, marks_bytes_max)
    }

    /// Returns the newer archives, read before, that are known to hold the account.
    fn known_newer(&self, storage: u32, fingerprint: &Fingerprint) -> LayerSet {
        let newer = self.newer.as_ref().filter(|_| storage >= self.older_storages);
        newer.map_or(LayerSet::default(), |newer| newer.layers_of(fingerprint))
    }

    /// True if the account is skipped because a newer archive, which was read before, holds it.
    fn is_in_newer(&self, storage: u32, fingerprint: &Fingerprint) -> bool {
        self.layers == 0 && !self.known_newer(storage, fingerprint).is_empty()
    }

    /// Layers that are known to cover the account.
    fn known_layers(&self, storage: u32, fingerprint: &Fingerprint) -> LayerSet {
        match self.layers {
            0 => LayerSet::default(),
            _ => self.known_newer(storage, fingerprint),
        }
    }

    fn merge(&self, worker: &mut LayeredSums, is_subtraction: bool) {
        let mut sums = self.sums.lock();
        let worker = std::mem::take(worker);
        match is_subtraction {
            true => sums.all.state.subtract(&worker.all.state),
            false => sums.all.add(&worker.all),
        }
        for (layer, covered) in (0..).zip(&worker.covered) {
            match is_subtraction {
                true => sums.of_layer(layer).subtract(covered),
                false => sums.of_layer(layer).add(covered),
            }
        }
    }
}

pub(super) fn slot_of(storages: &[(u64, u64)], storage: u32) -> u64 {
    storages.get(storage as usize).map_or(0, |(slot, _)| *slot)
}
