//! Verifies an archive or a ledger, before a validator has to load it.
//!
//! Runs six checks: frames, entries, name, bank, records, state. Collects all independent failures with
//! their places. Writes nothing, except a temporary file if memory does not suffice.
//!
//! While an archive is read ([`archive`](crate::archive)), the [`rules`](crate::rules) are applied, and
//! records are hashed and logged ([`state`](crate::state)). Then superseded records are subtracted, of which
//! some must be read again, and the state is compared with the bank file. A ledger's storages are read as
//! they would be archived ([`ledger`]).

#![warn(missing_docs)]

pub mod catalog;
pub mod job;
mod judge;
pub mod ledger;
mod part;
pub mod read_back;
pub mod report;

use slotpress_base::{Progress, Result, Stopwatch};
use slotpress_format::BankFile;

use crate::verify::job::{JobVisitor, VerifyJob, new_state_builder};
use crate::verify::judge::judge;
use crate::verify::ledger::read_ledger;
use crate::verify::part::JudgedPart;
use crate::{
    ArchiveInput, Failures, RATIO_UPPER_ESTIMATE, SeenSlots, Snapshot, StateVisitor, VerifyOptions, VerifyReport,
    judge_pair,
};

/// Verifies a snapshot. The report says what is wrong, and [`VerifyReport::require_ok`] turns it into an
/// error. A ledger's lock is held during the call.
///
/// # Errors
/// An archive or a file cannot be read; a file is not an archive; an archive's index contradicts its frames;
/// the ledger is in use; the disk does not have enough space for the log of records; or the state of an
/// incremental archive alone should be checked.
pub fn verify(snapshot: &Snapshot, options: &VerifyOptions, progress: &dyn Progress) -> Result<VerifyReport> {
    read_snapshot(snapshot, VerifyJob::new(options, progress))
}

pub(crate) fn read_snapshot(snapshot: &Snapshot, job: VerifyJob<'_>) -> Result<VerifyReport> {
    match snapshot {
        Snapshot::Ledger { paths, slot, base_slot } => read_ledger(paths, *slot, *base_slot, job),
        archives => read_archives(archives, job),
    }
}

/// Verifies a snapshot, and passes every record to the visitor, except records that a newer archive is known
/// to supersede. Also returns the bank file, if it could be read.
///
/// # Errors
/// Those of [`verify`], and the errors of the visitor.
pub fn verify_with_visitor(
    snapshot: &Snapshot,
    options: &VerifyOptions,
    visitor: &dyn StateVisitor,
    progress: &dyn Progress,
) -> Result<(VerifyReport, Option<BankFile>)> {
    let job = VerifyJob { visitor: JobVisitor::FirstPass(visitor), ..VerifyJob::new(options, progress) };
    let mut report = read_snapshot(snapshot, job)?;
    let bank = report.bank.take();
    Ok((report, bank))
}

fn read_archives(snapshot: &Snapshot, job: VerifyJob<'_>) -> Result<VerifyReport> {
    let stopwatch = Stopwatch::start();
    if let Snapshot::Pair { full, incremental } = snapshot {
        judge_pair(full.into(), incremental.into(), &Failures::strict())?;
    }
    job.options.require_whole_state(snapshot.is_incremental_alone())?;
    // The newer archive is read first, so that older versions of its accounts do not have to be hashed.
    let archives: Vec<&ArchiveInput> = snapshot.archives().rev().collect();
    let options = job.options;
    let mut state = new_state_builder(&job, estimate_unpacked_bytes(&archives)?)?;
    let seen_slots = SeenSlots::default();
    let mut parts: Vec<JudgedPart> = Vec::new();
    job.report_steps(&archives);
    for (number, archive) in archives.iter().enumerate() {
        if number > 0 {
            state.begin_older_archive(options.threads)?;
        }
        let failures = Failures::new().for_base(number > 0);
        let part = JudgedPart::read(archive, failures, &state, &seen_slots, &job)?;
        state.stakes.lacks_rent_epochs |= part.facts.is_from_firedancer;
        parts.push(part);
    }
    let mut report = judge(parts, &state, &job)?;
    report.elapsed = stopwatch.elapsed();
    Ok(report)
}

fn estimate_unpacked_bytes(archives: &[&ArchiveInput]) -> Result<u64> {
    let mut bytes = 0u64;
    for archive in archives {
        bytes = bytes.saturating_add(archive.length_bytes()?.unwrap_or_default().saturating_mul(RATIO_UPPER_ESTIMATE));
    }
    Ok(bytes)
}
