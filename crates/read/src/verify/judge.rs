//! Judges archives that have been read, a full one and an incremental one together, and makes the
//! report.

use std::path::PathBuf;

use slotpress_base::bytes::saturating_add_to;
use slotpress_base::{Error, Result, Stage};
use slotpress_format::ArchiveName;

use super::job::{VerifyJob, lost_records};
use super::part::JudgedInput;
use super::report::{Counts, VerifyReport};
use crate::archive::OpenArchive;
use crate::state::accounts::StateBuilder;
use crate::state::storages::StorageReader;
use crate::state::visitor::StateFacts;
use crate::{
    Check, Completeness, Failure, Failures, PairMember, Rule, SnapshotClient, judge_expected, judge_pair, judge_root,
};

/// Clients that start from ledgers: Firedancer starts only from archives.
pub const CLIENTS_OF_LEDGERS: &[SnapshotClient] = &SnapshotClient::AGAVE;

/// Makes the checks that need the whole state, and the report. `read` has the newest part first.
pub fn judge(read: Vec<JudgedInput>, accounts: &StateBuilder, job: &VerifyJob<'_>) -> Result<VerifyReport> {
    let lossy = read.iter().find(|part| part.failures.has_lost_accounts());
    let newest = judge_together(&read, job)?;
    if let (Some(bank), Some(visitor)) = (&newest.bank, job.visitor) {
        let parts = read.iter().map(|part| part.facts.clone()).collect();
        visitor.begin(&StateFacts { bank, parts, well_known: accounts.well_known.accounts() })?;
    }
    read_again(&read, newest, lossy, accounts, job)?;
    Ok(report_on(read, accounts, job))
}

/// Reads again what the check or the visit of the state needs, and judges the state. Not all records
/// of `lossy` could be read.
fn read_again(
    read: &[JudgedInput],
    newest: &JudgedInput,
    lossy: Option<&JudgedInput>,
    accounts: &StateBuilder,
    job: &VerifyJob<'_>,
) -> Result<()> {
    let VerifyJob { options, visitor, progress, .. } = *job;
    let bank = newest.bank.as_ref();
    let failures = &newest.failures;
    let threads = options.threads;
    if let Some(why) = options.why_not_state() {
        failures.skip(Check::State, why);
    }
    match (visitor, lossy) {
        (None, _) if !job.reads_records() => Ok(()),
        (None, _) => accounts.check_state(bank, failures, threads, progress, &mut |task, wanted| {
            progress.stage(Stage::Subtracting, None);
            read.iter().try_for_each(|part| part.read_records(accounts, task, Some(wanted), job))
        }),
        (Some(_), Some(lossy)) => Err(lost_records(&lossy.facts.path)),
        (Some(visitor), None) => {
            progress.stage(Stage::Sorting, None);
            accounts.visit_state(bank, failures, visitor, threads, &mut |task| {
                read.iter().try_for_each(|part| {
                    progress.stage(Stage::Visiting, part.storages.length_bytes());
                    part.read_records(accounts, task, None, job)
                })
            })
        }
    }
}

/// Makes the checks that need all parts, but not their accounts. Returns the newest part.
fn judge_together<'a>(read: &'a [JudgedInput], job: &VerifyJob<'_>) -> Result<&'a JudgedInput> {
    let options = job.options;
    let (Some(newest), base) = (read.first(), read.get(1)) else {
        return Err(Error::usage("there is no archive to verify"));
    };
    if let (Some(base), Some(incremental)) = (base, newest.archive())
        && let Some(full) = base.archive()
    {
        // A visit of the accounts of two archives that are not a pair fails.
        let strict = Failures::strict();
        let failures = if job.visitor.is_some() { &strict } else { &newest.failures };
        let full = PairMember::from_archive(full, base.bank.as_ref());
        judge_pair(full, PairMember::from_archive(incremental, newest.bank.as_ref()), failures)?;
    }
    if newest.failures.has(Rule::BaseMismatch) {
        // Failures that follow from this one would hide it.
        newest.failures.skip(Check::State, "the archives are not a pair");
    }
    if let Some(bank) = &newest.bank {
        judge_expected(&options.check, bank.slot, bank.snapshot_hash(), &newest.failures)?;
    }
    // Expected roots are in the order of the arguments: the newest archive is last.
    let archives = read.iter().rev().filter_map(|part| Some((part.archive()?, &part.failures)));
    for ((archive, failures), number) in archives.zip(0..) {
        judge_root(options.expect_roots.get(number).copied(), archive.root(), failures)?;
    }
    if newest.base_slot().is_some() && base.is_none() {
        newest.failures.skip(Check::State, "part of a state only: give the full archive too");
    }
    if read.iter().any(|part| part.failures.has_lost_accounts()) {
        newest.failures.skip(Check::State, "not all accounts could be read");
    }
    if let Some(why) = read.iter().find_map(|part| part.failures.skip_reason(Check::State)) {
        newest.failures.skip(Check::State, why);
    }
    Ok(newest)
}

/// Hint for a state that does not add up, of one archive whose name is not known.
const MAYBE_INCREMENTAL: &str = "if it is an incremental archive, give its full archive first";

fn report_on(read: Vec<JudgedInput>, accounts: &StateBuilder, job: &VerifyJob<'_>) -> VerifyReport {
    let options = job.options;
    let is_nameless = matches!(&read[..], [part] if part.archive().is_some_and(|archive| archive.name.is_none()));
    let base_slot = read.first().and_then(JudgedInput::base_slot);
    let bank = read.first().and_then(|newest| newest.bank.clone());
    let has_index = read.iter().all(|part| part.has_index);
    let roots = read.iter().rev().filter_map(JudgedInput::archive).map(OpenArchive::root).collect();
    let mut counts = Counts::default();
    read.iter().for_each(|part| add_part(&mut counts, part));
    counts.add_state(&accounts.sums(), accounts.log.spilled_bytes());
    let mut failures = Failures::new();
    let mut paths = Vec::new();
    let names = right_names(&read);
    for part in read {
        match part.storages {
            StorageReader::Archive(_) => failures.absorb(part.failures, &part.facts.path),
            StorageReader::Ledger(_) => failures = part.failures,
        }
        paths.insert(0, part.facts.path);
    }
    let clients = if counts.obsolete.is_some() {
        CLIENTS_OF_LEDGERS.to_vec()
    } else {
        let asked = SnapshotClient::ON_REQUEST.iter().filter(|client| options.clients.contains(client));
        SnapshotClient::ALL.iter().chain(asked).copied().collect()
    };
    let mut report = VerifyReport::from_failures(failures, &options.clients, &clients, paths);
    (report.base_slot, report.roots, report.counts) = (base_slot, roots, counts);
    (report.expected_hash, report.expected_slot) = (options.check.expect_hash, options.check.expect_slot);
    if let Some(bank) = &bank {
        report.slot = Some(bank.slot);
        report.hash = Some(bank.snapshot_hash());
        report.capitalization = Some(bank.capitalization);
        report.complete = Some(Completeness::new(report.has_completed(Check::State), has_index));
    }
    if is_nameless {
        let state_failures = report.failures.iter_mut().filter(|failure| failure.check == Check::State);
        state_failures.for_each(|failure| failure.hint = MAYBE_INCREMENTAL.into());
    }
    report.hint_at_names(&names);
    report.bank = bank;
    report
}

impl VerifyReport {
    fn hint_at_names(&mut self, names: &[(PathBuf, ArchiveName)]) {
        use Rule::{ExtensionWrong, NameMismatch, NameUnknown};
        let is_of_name = |failure: &Failure| matches!(failure.rule, NameUnknown | NameMismatch | ExtensionWrong);
        if !self.has_completed(Check::State) || !self.failures.iter().all(is_of_name) {
            return;
        }
        for failure in &mut self.failures {
            if let Some((_, name)) = names.iter().find(|(path, _)| Some(path) == failure.place.path.as_ref()) {
                failure.hint = format!("all but the name is good: name it {name}").into();
            }
        }
    }
}

fn right_names(read: &[JudgedInput]) -> Vec<(PathBuf, ArchiveName)> {
    let name_of = |(number, part): (usize, &JudgedInput)| {
        let base = read.get(number.saturating_add(1)).and_then(|base| base.bank.as_ref());
        let base_slot = part.base_slot().or(base.map(|bank| bank.slot));
        let bank = part.bank.as_ref()?;
        let compression = part.archive()?.compression;
        let name = ArchiveName { base_slot, slot: bank.slot, hash: bank.snapshot_hash(), compression };
        Some((part.facts.path.clone(), name))
    };
    read.iter().enumerate().filter_map(name_of).collect()
}

fn add_part(counts: &mut Counts, part: &JudgedInput) {
    saturating_add_to(&mut counts.tar_bytes, part.tar_bytes);
    saturating_add_to(&mut counts.frames, part.frames);
    saturating_add_to(&mut counts.storages, part.storage_count.into());
    match &part.storages {
        StorageReader::Archive(archive) => {
            saturating_add_to(&mut counts.input_bytes, archive.source.length_bytes().unwrap_or_default());
        }
        StorageReader::Ledger(plan) => {
            counts.input_bytes = plan.content_bytes();
            counts.obsolete = Some((plan.obsolete_records, plan.obsolete_bytes));
        }
    }
}
