//! Judges archives that have been read, a full one and an incremental one together, and makes the
//! report.

use slotpress_base::bytes::count;
use slotpress_base::{Error, Result};

use super::Job;
use super::archive::VerifiedArchive;
use super::report::{Counts, VerifyReport};
use crate::rules::documents::judge_expectations;
use crate::rules::pair::swapped;
use crate::state::accounts::Accounts;
use crate::state::finish::StateCounts;
use crate::state::second_pass::{StateFacts, StatePart};
use crate::{Check, Findings, Rule, SnapshotClient, check_base, judge_chains, judge_rebased_on, judge_root};

/// Makes the checks that need all archives, and the report. `read` has the newest first.
pub fn judge(read: Vec<VerifiedArchive>, accounts: &Accounts, job: &Job<'_>) -> Result<VerifyReport> {
    let lossy = read.iter().find(|one| one.findings.has_lost_accounts());
    let newest = judge_together(&read, job)?;
    if let (Some(bank), Some(visitor)) = (newest.bank(), job.visitor) {
        let part = |one: &VerifiedArchive| StatePart {
            path: one.archive.path_buf(),
            root: one.archive.root(),
            first_storage: one.first_storage,
            is_of_firedancer: one.is_of_firedancer,
        };
        let (parts, well_known) = (read.iter().map(part).collect(), accounts.logged.accounts());
        visitor.begin(&StateFacts { bank, parts, well_known })?;
    }
    let path = lossy.unwrap_or(newest).archive.path();
    let counted = job.finish_state(accounts, newest.bank(), &newest.findings, path, &mut |task, wanted| {
        read.iter().try_for_each(|one| one.read_again(accounts, task, wanted, job))
    })?;
    Ok(report_on(read, &counted, accounts, job))
}

/// Makes the checks that need all archives, but not their accounts. Returns the newest archive.
fn judge_together<'a>(read: &'a [VerifiedArchive], job: &Job<'_>) -> Result<&'a VerifiedArchive> {
    let options = job.options;
    let (Some(newest), base) = (read.first(), read.get(1)) else {
        return Err(Error::usage("there is no archive to verify"));
    };
    if let Some(base) = base {
        refuse_swapped(newest, base)?;
        check_base(newest.archive.base_slot(), base.bank().map(|bank| bank.slot))?;
    }
    judge_base(newest, base)?;
    let bank = newest.bank();
    if let Some(bank) = bank {
        judge_expectations(&options.check, bank.slot, bank.snapshot_hash(), &newest.findings)?;
    }
    // Expected roots are in the order of the arguments: the newest archive is last.
    for (one, number) in read.iter().rev().zip(0..) {
        judge_root(options.expect_roots.get(number).copied(), one.archive.root(), &one.findings)?;
    }
    let base_slot = newest.archive.base_slot();
    if base_slot.is_some() && base.is_none() {
        newest.findings.skip(Check::State, "part of a state only: give the full archive too");
    }
    if read.iter().any(|one| one.findings.has_lost_accounts()) {
        newest.findings.lose_accounts();
        newest.findings.skip(Check::State, "not all accounts could be read");
    }
    if let Some(why) = read.iter().find_map(|one| one.findings.skipped(Check::State)) {
        newest.findings.skip(Check::State, why);
    }
    Ok(newest)
}

/// Hint for a state that does not add up, of one archive whose name is not known.
const MAYBE_INCREMENTAL: &str = "if it is an incremental archive, give its full archive first";

/// Makes the report. `read` has the newest first.
fn report_on(read: Vec<VerifiedArchive>, counted: &StateCounts, accounts: &Accounts, job: &Job<'_>) -> VerifyReport {
    let options = job.options;
    let is_nameless = matches!(&read[..], [one] if one.archive.name.is_none());
    let base_slot = read.first().and_then(|newest| newest.archive.base_slot());
    let bank = read.first().and_then(|newest| newest.bank().cloned());
    let mut counts = Counts::default();
    for one in &read {
        count(&mut counts.input_bytes, one.archive.length_bytes());
        count(&mut counts.tar_bytes, one.tar_bytes);
        count(&mut counts.frames, one.frames);
        count(&mut counts.storages, one.storages().len() as u64);
    }
    counts.add_state(counted, &accounts.sums(), accounts.spilled_bytes());
    let has_index = read.iter().all(|one| one.archive.tail.is_some());
    let findings = Findings::new();
    let (mut paths, mut roots) = (Vec::new(), Vec::new());
    for one in read {
        roots.push(one.archive.root());
        let path = one.archive.path_buf();
        findings.absorb(one.findings, &path);
        paths.push(path);
    }
    paths.reverse();
    roots.reverse();
    let mut report = VerifyReport::of_findings(findings, &options.clients, &SnapshotClient::ALL, paths);
    report.base_slot = base_slot;
    (report.expected_hash, report.expected_slot) = (options.check.expect_hash, options.check.expect_slot);
    report.roots = roots;
    report.counts = counts;
    report.set_bank(bank.as_ref(), has_index);
    if is_nameless {
        let of_state = report.failures.iter_mut().filter(|failure| failure.check == Check::State);
        of_state.for_each(|failure| failure.hint = MAYBE_INCREMENTAL.into());
    }
    report.bank = bank;
    report
}

/// Refuses two archives in the wrong order: the full one is newer, and the other one's name does
/// not say that it is incremental.
fn refuse_swapped(newest: &VerifiedArchive, base: &VerifiedArchive) -> Result<()> {
    let is_meant = newest.archive.base_slot().is_some();
    match (base.bank(), newest.bank()) {
        (Some(first), Some(second)) if second.slot < first.slot && !is_meant => {
            Err(swapped(base.archive.path(), newest.archive.path()))
        }
        _ => Ok(()),
    }
}

/// Checks that an incremental archive builds on this state of the full one.
fn judge_base(newest: &VerifiedArchive, base: Option<&VerifiedArchive>) -> Result<()> {
    if let Some(bank) = base.and_then(VerifiedArchive::bank) {
        judge_rebased_on(&newest.archive, bank.snapshot_hash(), &newest.findings)?;
        newest.bank().map_or(Ok(()), |newer| judge_chains(bank, newer, &newest.findings))?;
    }
    if newest.findings.has(Rule::BaseMismatch) {
        // Failures that follow from this one would hide it.
        newest.findings.skip(Check::State, "the archives are no pair");
    }
    Ok(())
}
