//! Passes over records: workers hash and log each record, subtract it, or pass it to a visitor.

use roaring::RoaringBitmap;
use slotpress_base::{Error, Result};
use slotpress_format::{Address, LatticeAccumulator, Record, RecordFault, RecordFaultKind, RecordSink};

use super::accounts::StateBuilder;
use crate::state::marks::is_marked;
use crate::state::sums::PassSums;
use crate::state::superseded::{contains_fingerprint, find_storage_records};
use crate::{
    Check, FailurePlace, Failures, LogBatch, RecordVersion, RecordVisitor, RecordWorker, Rule, StateWorker, StorageRef,
    Superseded, Task,
};

pub struct AccountsPass<'a> {
    pub state: &'a StateBuilder,
    pub failures: &'a Failures,
    pub task: Task<'a>,
}

impl<'a> AccountsPass<'a> {
    pub fn new(state: &'a StateBuilder, failures: &'a Failures, task: Task<'a>) -> Self {
        Self { state, failures, task }
    }
}

impl RecordVisitor for AccountsPass<'_> {
    fn new_worker(&self) -> Box<dyn RecordWorker + '_> {
        let visitor = match self.task {
            Task::Visit { visitor, .. } | Task::HashAndLog(Some(visitor)) => Some(visitor.new_worker()),
            _ => None,
        };
        Box::new(AccountsWorker {
            pass: self,
            storage: StorageRef::default(),
            visitor,
            superseded: &[],
            duplicates: &[],
            marks: None,
            batch: LogBatch::default(),
            sums: PassSums::default(),
            lattice: LatticeAccumulator::default(),
        })
    }

    fn check(&self) -> Result<()> {
        self.state.check()
    }

    fn report_lost(&self, storage: Option<StorageRef>, error: Error) -> Result<()> {
        match (storage, self.task) {
            (Some(storage), _) => {
                self.failures.set_lost_accounts();
                self.failures.at(FailurePlace::storage(storage.slot, storage.id)).add_error(Rule::Ledger, &error)
            }
            // The first pass has reported this.
            (None, Task::Subtract(_)) => Ok(()),
            (None, _) => Err(error),
        }
    }
}

/// Computes a part of the state, which is merged when the worker is dropped.
struct AccountsWorker<'a> {
    pass: &'a AccountsPass<'a>,
    storage: StorageRef,
    visitor: Option<Box<dyn StateWorker + 'a>>,
    superseded: &'a [RecordVersion],
    duplicates: &'a [RecordVersion],
    marks: Option<&'a RoaringBitmap>,
    batch: LogBatch,
    sums: PassSums,
    /// Hashes several accounts at a time. The result is added to `sums` at the end.
    lattice: LatticeAccumulator,
}

impl AccountsWorker<'_> {
    fn keep_error(&self, result: Result<()>) {
        if let Err(error) = result {
            self.pass.state.error.lock().get_or_insert(error);
        }
    }

    fn flush(&mut self) {
        let result = self.pass.state.log.append(&mut self.batch);
        self.batch.clear();
        self.keep_error(result);
    }

    fn add_to_state(&mut self, record: &Record<'_>) {
        self.pass.state.stakes.keep_if_staked(self.storage, record);
        self.add_to_sums(record);
    }

    fn log(&mut self, record: &Record<'_>) {
        let state = self.pass.state;
        let storage = self.storage;
        let is_hashed = matches!(self.pass.task, Task::HashAndLog(_));
        let is_tombstone = record.header.lamports == 0;
        let fingerprint = state.fingerprinter.fingerprint(&record.header.pubkey);
        self.sums.records += 1;
        self.sums.tombstones += u64::from(is_tombstone);
        if state.is_in_newer_archive(storage.number, &fingerprint) {
            self.sums.superseded += 1;
            return;
        }
        if is_hashed && let Some(kept_records) = &state.kept_records {
            kept_records.keep_if_seen(storage.number, &fingerprint, record);
        }
        let version = RecordVersion::new(fingerprint, storage.number, is_tombstone, record.offset_bytes);
        if self.batch.push(version) {
            self.flush();
        }
        state.well_known.keep_if_well_known(storage, record);
        if is_hashed && !is_tombstone {
            self.add_to_state(record);
        }
        self.pass_on(record, false);
    }

    fn visit(&mut self, record: &Record<'_>, is_hashed: bool) {
        let state = self.pass.state;
        let is_superseded = is_marked(self.marks, record.offset_bytes)
            || state.is_in_newer_archive(self.storage.number, &state.fingerprinter.fingerprint(&record.header.pubkey));
        if is_hashed && !is_superseded && record.header.lamports > 0 {
            self.add_to_state(record);
        }
        self.pass_on(record, is_superseded);
    }

    fn subtract(&mut self, record: &Record<'_>) {
        let state = self.pass.state;
        let fingerprint = state.fingerprinter.fingerprint(&record.header.pubkey);
        if contains_fingerprint(self.superseded, &fingerprint) {
            self.add_to_sums(record);
        }
        if contains_fingerprint(self.duplicates, &fingerprint) {
            let mut place = FailurePlace::storage(self.storage.slot, self.storage.id).with_offset(record.offset_bytes);
            place.account = Some(Address(record.header.pubkey));
            self.keep_error(self.pass.failures.at(place).add(Rule::DuplicateAccount, "once", "more than once"));
        }
    }

    fn pass_on(&mut self, record: &Record<'_>, is_superseded: bool) {
        if let Some(visitor) = &mut self.visitor {
            let result = visitor.record(self.storage, record, is_superseded);
            self.keep_error(result);
        }
    }

    fn add_to_sums(&mut self, record: &Record<'_>) {
        self.lattice.add(&record.header.account(record.data));
        self.sums.state.add_lamports(record.header.lamports);
    }
}

impl RecordWorker for AccountsWorker<'_> {
    fn begin(&mut self, storage: StorageRef) {
        self.storage = storage;
        match self.pass.task {
            Task::Subtract(Superseded { records, duplicates, .. }) => {
                self.superseded = find_storage_records(records, storage.number);
                self.duplicates = find_storage_records(duplicates, storage.number);
            }
            Task::Visit { superseded, .. } => self.marks = superseded.storage_marks(storage.number),
            Task::HashAndLog(_) | Task::Log => {}
        }
    }
}

impl RecordSink for AccountsWorker<'_> {
    fn record(&mut self, record: Record<'_>) {
        match self.pass.task {
            Task::HashAndLog(_) | Task::Log => self.log(&record),
            Task::Visit { is_hashed, .. } => self.visit(&record, is_hashed),
            Task::Subtract(_) => self.subtract(&record),
        }
    }

    fn fault(&mut self, fault: RecordFault) {
        if matches!(self.pass.task, Task::Subtract(_) | Task::Visit { .. }) {
            return; // The first pass has reported this.
        }
        if matches!(self.pass.task, Task::Log) && fault.kind.loses_records() {
            self.pass.failures.set_lost_accounts();
        }
        self.keep_error(add_record_failure(self.storage, fault, self.pass.failures));
    }
}

fn add_record_failure(storage: StorageRef, fault: RecordFault, failures: &Failures) -> Result<()> {
    let rule = match fault.kind {
        RecordFaultKind::Truncated | RecordFaultKind::TrailingBytes => Rule::RecordCutOff,
        RecordFaultKind::PartialHeader => Rule::StorageTail,
        RecordFaultKind::Padded => Rule::StoragePadded,
        RecordFaultKind::DataLength => Rule::DataLength,
        RecordFaultKind::Executable => Rule::Executable,
        RecordFaultKind::StoredHash => Rule::StoredHash,
    };
    if rule == Rule::DataLength {
        failures.skip(Check::State, "a storage does not consist of records");
    }
    let mut place = FailurePlace::storage(storage.slot, storage.id).with_offset(fault.offset_bytes);
    place.account = fault.account.map(Address);
    failures.at(place).add(rule, fault.expected, fault.found)
}

impl Drop for AccountsWorker<'_> {
    fn drop(&mut self) {
        self.flush();
        self.sums.state.lattice.add(&self.lattice.take());
        match self.pass.task {
            Task::Subtract(_) => self.pass.state.subtract(&self.sums.state),
            _ => self.pass.state.add(&self.sums),
        }
    }
}
