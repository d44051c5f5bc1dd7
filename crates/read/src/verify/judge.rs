//! Judges what has been read (one archive, a full and an incremental one together, or a ledger), and
//! makes the report.

use std::collections::HashMap;
use std::path::PathBuf;

use slotpress_base::{Error, EscapePath, Result, Stage, hint, saturating_add_to};
use slotpress_format::ArchiveName;

use super::job::VerifyJob;
use super::part::JudgedPart;
use super::report::{Counts, VerifyReport};
use crate::state::storages::StorageReader;
use crate::{
    Check, Completeness, Failure, Failures, OpenArchive, PairMember, Rule, SnapshotClient, StateBuilder, StateFacts,
    judge_expected, judge_pair, judge_root,
};

/// Clients that start from ledgers. Firedancer starts only from archives.
pub const CLIENTS_OF_LEDGERS: &[SnapshotClient] = &SnapshotClient::AGAVE;

/// Runs the checks that need the whole state, and makes the report. The newest part comes first.
pub fn judge(parts: Vec<JudgedPart>, state: &StateBuilder, job: &VerifyJob<'_>) -> Result<VerifyReport> {
    let newest = judge_together(&parts, job)?;
    if let (Some(bank), Some(visitor)) = (&newest.bank, job.second_pass_visitor()) {
        let parts = parts.iter().map(|part| part.facts.clone()).collect();
        visitor.begin(&StateFacts { bank, parts, well_known: state.well_known.accounts() })?;
    }
    read_again(&parts, newest, state, job)?;
    Ok(make_report(parts, state, job))
}

/// Reads again the records that the check or the visit of the state needs, and judges the state.
fn read_again(parts: &[JudgedPart], newest: &JudgedPart, state: &StateBuilder, job: &VerifyJob<'_>) -> Result<()> {
    let progress = job.progress;
    let threads = job.options.threads;
    let bank = newest.bank.as_ref();
    let failures = &newest.failures;
    if let Some(why) = job.options.state_skip_reason() {
        failures.skip(Check::State, why);
    }
    let Some(visitor) = job.second_pass_visitor() else {
        if !job.reads_records() {
            return Ok(());
        }
        return state.check_state(bank, failures, threads, progress, &mut |task, wanted| {
            progress.stage(Stage::Subtracting, None);
            parts.iter().try_for_each(|part| part.read_records(state, task, Some(wanted), job))
        });
    };
    if let Some(incomplete) = parts.iter().find(|part| part.failures.has_lost_accounts()) {
        let path = incomplete.facts.path.escaped();
        return Err(Error::damaged("not all of its records can be read").with_place(path).with_hint(hint::USE_VERIFY));
    }
    progress.stage(Stage::Sorting, None);
    state.visit_state(bank, failures, visitor, threads, &mut |task| {
        parts.iter().try_for_each(|part| {
            progress.stage(Stage::Visiting, part.storages.length_bytes());
            part.read_records(state, task, None, job)
        })
    })
}

/// Runs the checks that need all parts, but not their accounts. Returns the newest part.
fn judge_together<'a>(parts: &'a [JudgedPart], job: &VerifyJob<'_>) -> Result<&'a JudgedPart> {
    let options = job.options;
    let (Some(newest), base) = (parts.first(), parts.get(1)) else {
        return Err(Error::usage("there is no archive to verify"));
    };
    let failures = &newest.failures;
    if let (Some(base), Some(incremental)) = (base, newest.archive())
        && let Some(full) = base.archive()
    {
        // Accounts are not visited in two archives that are not a pair.
        let strict = Failures::strict();
        let failures = if job.second_pass_visitor().is_some() { &strict } else { failures };
        let full = PairMember::from_archive(full, base.bank.as_ref());
        let incremental = PairMember::from_archive(incremental, newest.bank.as_ref());
        judge_pair(full, incremental, failures)?;
    }
    if failures.has(Rule::BaseMismatch) {
        // The state is wrong for the same reason, and its failures would hide this one.
        failures.skip(Check::State, "the archives are not a pair");
    }
    if let Some(bank) = &newest.bank {
        judge_expected(&options.check, bank.slot, bank.snapshot_hash(), failures)?;
    }
    // Expected roots are in the order of the arguments, in which the newest archive is last.
    for (number, part) in parts.iter().rev().enumerate() {
        if let Some(archive) = part.archive() {
            let expected = options.expect_roots.get(number).copied();
            judge_root(expected, archive.root(), &part.failures)?;
        }
    }
    if newest.base_slot().is_some() && base.is_none() {
        failures.skip(Check::State, "part of a state only: pass the full archive too");
    }
    if parts.iter().any(|part| part.failures.has_lost_accounts()) {
        failures.skip(Check::State, "not all accounts could be read");
    }
    for part in parts {
        if let Some(why) = part.failures.skip_reason(Check::State) {
            failures.skip(Check::State, why);
        }
    }
    Ok(newest)
}

/// Hint for the wrong state of a single file that does not have an archive's name.
const MAYBE_INCREMENTAL: &str = "if it is an incremental archive, pass its full archive first";

fn make_report(parts: Vec<JudgedPart>, state: &StateBuilder, job: &VerifyJob<'_>) -> VerifyReport {
    let options = job.options;
    let is_nameless = matches!(&parts[..], [part] if part.archive().is_some_and(|archive| archive.name.is_none()));
    let base_slot = parts.first().and_then(JudgedPart::base_slot);
    let bank = parts.first().and_then(|newest| newest.bank.clone());
    let has_index = parts.iter().all(|part| part.has_index);
    let archives = parts.iter().rev().filter_map(JudgedPart::archive);
    let roots = archives.map(OpenArchive::root).collect();
    let counts = count_parts(&parts, state);
    let mut failures = Failures::new();
    let mut paths = Vec::new();
    let names_by_path = compute_names(&parts);
    for part in parts {
        match part.storages {
            StorageReader::Archive(_) => failures.absorb(part.failures, &part.facts.path),
            StorageReader::Ledger(_) => failures = part.failures,
        }
        paths.insert(0, part.facts.path);
    }
    let is_ledger = counts.obsolete_records.is_some();
    let clients = if is_ledger {
        CLIENTS_OF_LEDGERS.to_vec()
    } else {
        let is_requested = |client: &&SnapshotClient| options.clients.contains(client);
        let mut clients = SnapshotClient::JUDGED_BY_DEFAULT.to_vec();
        clients.extend(SnapshotClient::JUDGED_ON_REQUEST.iter().filter(is_requested));
        clients
    };
    let mut report = VerifyReport::from_failures(failures, &options.clients, &clients, paths);
    (report.base_slot, report.roots, report.counts) = (base_slot, roots, counts);
    (report.expected_hash, report.expected_slot) = (options.check.expect_hash, options.check.expect_slot);
    if let Some(bank) = &bank {
        report.slot = Some(bank.slot);
        report.hash = Some(bank.snapshot_hash());
        report.capitalization_lamports = Some(bank.capitalization);
        let is_state_checked = report.has_completed(Check::State);
        report.complete = Some(Completeness::new(is_state_checked, has_index));
    }
    for failure in &mut report.failures {
        if is_nameless && failure.check == Check::State {
            failure.hint = MAYBE_INCREMENTAL.into();
        }
    }
    report.hint_at_names(&names_by_path);
    report.bank = bank;
    report
}

impl VerifyReport {
    fn hint_at_names(&mut self, names: &HashMap<PathBuf, ArchiveName>) {
        use Rule::{ExtensionWrong, NameMismatch, NameUnknown};
        let is_about_name = |failure: &Failure| matches!(failure.rule, NameUnknown | NameMismatch | ExtensionWrong);
        if !self.has_completed(Check::State) || !self.failures.iter().all(is_about_name) {
            return;
        }
        for failure in &mut self.failures {
            if let Some(name) = failure.place.path.as_ref().and_then(|path| names.get(path)) {
                failure.hint = format!("everything except the name is valid: name it {name}").into();
            }
        }
    }
}

fn compute_names(parts: &[JudgedPart]) -> HashMap<PathBuf, ArchiveName> {
    let name_of = |(number, part): (usize, &JudgedPart)| {
        let base = parts.get(number.saturating_add(1)).and_then(|base| base.bank.as_ref());
        let base_slot = part.base_slot().or(base.map(|bank| bank.slot));
        let bank = part.bank.as_ref()?;
        let compression = part.archive()?.compression;
        Some((part.facts.path.clone(), bank.archive_name(base_slot, compression)))
    };
    parts.iter().enumerate().filter_map(name_of).collect()
}

fn count_parts(parts: &[JudgedPart], state: &StateBuilder) -> Counts {
    let sums = state.sums();
    let mut counts = Counts {
        records: sums.records,
        accounts: sums.accounts,
        tombstones: sums.tombstones,
        superseded: sums.superseded,
        spilled_bytes: state.log.spilled_bytes(),
        ..Counts::default()
    };
    for part in parts {
        saturating_add_to(&mut counts.tar_bytes, part.tar_bytes);
        saturating_add_to(&mut counts.frames, part.frames);
        saturating_add_to(&mut counts.storages, part.storage_count.into());
        match &part.storages {
            StorageReader::Archive(archive) => {
                let length_bytes = archive.source.length_bytes().unwrap_or_default();
                saturating_add_to(&mut counts.input_bytes, length_bytes);
            }
            StorageReader::Ledger(plan) => {
                counts.input_bytes = plan.content_bytes();
                counts.obsolete_records = Some(plan.obsolete_records);
                counts.obsolete_bytes = Some(plan.obsolete_bytes);
            }
        }
    }
    counts
}
