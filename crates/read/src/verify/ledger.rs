//! Verifies a ledger's storages as they would be archived: read in parallel from their files,
//! without obsolete records.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use slotpress_base::{Error, ErrorKind, EscapePath, Result, Stage, Stopwatch};
use slotpress_format::{
    BankFile, BankSnapshot, FieldReader, Layout, LedgerLock, LedgerPaths, find_bank_snapshot_lenient,
    parse_status_cache, read_version,
};

use crate::archive::documents::parse_bank;
use crate::state::storages::StorageReader;
use crate::verify::job::{VerifyJob, new_state_builder};
use crate::verify::judge::{CLIENTS_OF_LEDGERS, judge};
use crate::verify::part::JudgedPart;
use crate::{
    Check, Documents, FailurePlace, Failures, Plan, PlanOptions, RESTORE_JOURNAL_HINT, Rule, StatePart, VerifyReport,
    find_restore_journal, judge_documents,
};

pub(crate) fn read_ledger(
    paths: &LedgerPaths,
    slot: Option<u64>,
    base_slot: Option<u64>,
    job: VerifyJob<'_>,
) -> Result<VerifyReport> {
    let _lock = if paths.ledger.is_dir() { lock_ledger(paths)? } else { None };
    if let Some(journal) = find_restore_journal(paths.snapshots_dir()) {
        let message = format!("{}: a restore into this ledger was killed before its end", journal.escaped());
        job.progress.warn(&format!("{message}: {RESTORE_JOURNAL_HINT}"));
    }
    let stopwatch = Stopwatch::start();
    let mut report = match find_bank_snapshot_lenient(paths, slot, job.options.threads) {
        Ok(snapshot) => read_bank_snapshot(snapshot, base_slot, &job)?,
        Err(error) => report_ledger_error(error, Failures::new(), &paths.ledger, &job)?,
    };
    report.elapsed = stopwatch.elapsed();
    Ok(report)
}

/// Takes the lock of a validator's ledger. Returns `None` for an unpacked archive, which has no lock.
pub(crate) fn lock_ledger(paths: &LedgerPaths) -> Result<Option<LedgerLock>> {
    if paths.is_unpacked_archive() { Ok(None) } else { LedgerLock::acquire(&paths.ledger).map(Some) }
}

fn read_bank_snapshot(snapshot: BankSnapshot, base_slot: Option<u64>, job: &VerifyJob<'_>) -> Result<VerifyReport> {
    let VerifyJob { options, progress, .. } = *job;
    options.require_whole_state(base_slot.is_some())?;
    let failures = Failures::new();
    let path = snapshot.dir.clone();
    let has_index = matches!(snapshot.layout, Layout::StoragesList | Layout::TaggedList);
    progress.stage(Stage::Planning, None);
    let bank = judge_bank_snapshot(&snapshot, &failures)?;
    let plan = match plan_storages(snapshot, base_slot, job, &failures) {
        Ok(plan) => plan,
        Err(error) => return report_ledger_error(error, failures, &path, job),
    };
    failures.skip(Check::Frames, "a ledger has none");
    if base_slot.is_some() {
        failures.skip(Check::State, "part of a state only");
    }
    if let Some(why) = options.state_skip_reason() {
        failures.skip(Check::Records, why);
    }
    let state = new_state_builder(job, plan.content_bytes())?;
    for storage in &plan.storages {
        state.add_storage(storage.file.slot, storage.file.id);
    }
    let part = JudgedPart {
        facts: StatePart { path, root: None, first_storage: 0, is_from_firedancer: false },
        failures,
        bank,
        storage_count: state.storage_count(),
        tar_bytes: plan.tar_bytes(),
        frames: 0,
        has_index,
        storages: StorageReader::Ledger(Box::new(plan)),
    };
    if job.reads_records() {
        progress.stage(job.stage(), part.storages.length_bytes());
        part.read_records(&state, job.first_task(), None, job)?;
        if part.failures.has_lost_accounts() {
            part.failures.skip(Check::Records, "missing and damaged storages were not read");
        }
    }
    judge(vec![part], &state, job)
}

/// Judges all files of a bank snapshot except storages, and returns the bank file if it can be read.
fn judge_bank_snapshot(snapshot: &BankSnapshot, failures: &Failures) -> Result<Option<BankFile>> {
    let status_cache = FieldReader::open(&snapshot.status_cache, "the status cache");
    let documents = Documents {
        bank: Some(FieldReader::open(&snapshot.bank_file, "the bank file").and_then(parse_bank)),
        status_cache: Some(status_cache.and_then(|fields| parse_status_cache(fields, u64::MAX))),
        version: read_version(&snapshot.version).ok(),
    };
    let bank = judge_documents(documents, Some(snapshot.slot), failures)?;
    judge_layout(snapshot.layout, failures)?;
    judge_storages_list(snapshot, failures)?;
    Ok(bank)
}

fn plan_storages(
    snapshot: BankSnapshot,
    base_slot: Option<u64>,
    job: &VerifyJob<'_>,
    failures: &Failures,
) -> Result<Plan> {
    // Slots of storages that were reported as missing. Each slot is reported once, although several lists may
    // name it.
    let reported = snapshot.missing.iter();
    let mut missing_slots: HashSet<u64> = reported.map(|missing| missing.slot).collect();
    let mut expected = format!("a file in {}, as the bank file says", snapshot.describe_storage_dirs());
    if snapshot.layout == Layout::Unpacked && base_slot.is_none() {
        expected += "; or the base slot, if this is an incremental archive";
    }
    let plan_options = PlanOptions::new(base_slot, job.options.threads);
    Plan::new_with_faults(snapshot, &plan_options, job.progress, &mut |fault| {
        if !fault.is_missing {
            failures.set_lost_accounts();
            return failures.at(FailurePlace::storage(fault.slot, fault.id)).add_error(Rule::Ledger, &fault.error);
        }
        let is_new = missing_slots.len() < MISSING_MAX && missing_slots.insert(fault.slot);
        if is_new { add_missing(fault.slot, fault.id, &expected, failures) } else { Ok(()) }
    })
}

/// Limit on the missing slots that are remembered, because a hostile bank file may name any number. Slots
/// beyond the limit are not reported.
const MISSING_MAX: usize = 5_000_000;

fn judge_storages_list(snapshot: &BankSnapshot, failures: &Failures) -> Result<()> {
    snapshot.missing.iter().try_for_each(|missing| {
        let file = if missing.ending.is_empty() { "a file".to_string() } else { missing.to_string() };
        let expected = format!("{file} in {}, as the storages list says", snapshot.describe_storage_dirs());
        add_missing(missing.slot, u64::from(missing.id), expected, failures)
    })
}

fn add_missing(slot: u64, id: u64, expected: impl ToString, failures: &Failures) -> Result<()> {
    failures.set_lost_accounts();
    failures.at(FailurePlace::storage(slot, id)).add(Rule::MissingStorage, expected, "none")
}

fn judge_layout(layout: Layout, failures: &Failures) -> Result<()> {
    let rule = match layout {
        Layout::HardLinks => Rule::HardLinks,
        Layout::TaggedList => Rule::TaggedList,
        Layout::StoragesList | Layout::Unpacked => return Ok(()),
    };
    let place = failures.at(FailurePlace::entry("fastboot_version"));
    place.add(rule, "a layout that it boots from", layout.description())
}

/// Makes a report of the failures and the error of a ledger. Returns the error instead if it is not damage, or
/// if accounts should be visited.
fn report_ledger_error(error: Error, failures: Failures, path: &Path, job: &VerifyJob<'_>) -> Result<VerifyReport> {
    if error.kind() != ErrorKind::Damaged || job.second_pass_visitor().is_some() {
        return Err(error);
    }
    failures.at(FailurePlace::default()).add_error(Rule::Ledger, &error)?;
    for check in [Check::Records, Check::State] {
        failures.skip(check, "the storages are not valid");
    }
    failures.skip(Check::Frames, "a ledger has none");
    let paths = vec![PathBuf::from(path)];
    Ok(VerifyReport::from_failures(failures, &job.options.clients, CLIENTS_OF_LEDGERS, paths))
}
