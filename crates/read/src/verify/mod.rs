//! Verifies an archive or a ledger, before a validator has to load it.
//!
//! Six checks in order: frames, entries, name, bank, records, state. Collects all independent failures with their
//! places. Writes nothing but a temporary file if memory does not suffice.
//!
//! An archive is read once ([`archive`](crate::archive)) under the [`rules`](crate::rules), and its records are hashed
//! and logged ([`state`](crate::state)); superseded records are read again and subtracted, and the state is compared
//! with the bank file. A ledger's storages are read as they would be archived ([`ledger`]).

#![warn(missing_docs)]

mod archive;
pub mod catalog;
pub mod ledger;
pub mod own;
pub mod report;

use std::collections::HashSet;
use std::path::Path;

use derive_setters::Setters;
pub use ledger::{verify_ledger, verify_snapshot};
use slotpress_base::bytes::count;
use slotpress_base::{Error, Hint, IoPolicy, Progress, Result, ShowPath, Step, Stopwatch, available_threads, quantity};
use slotpress_format::{BankFile, Root};

pub use crate::archive::named::NamedArchive;
use crate::rules::bank::judge_map_presence;
use crate::rules::documents::judge_expectations;
use crate::rules::pair::swapped;
use crate::state::accounts::Accounts;
use crate::state::check::incremental_alone;
use crate::state::finish::{StateCounts, finish_check, finish_visit, log_bytes, typical_records};
use crate::state::second_pass::{StateFacts, StatePart, StateVisitor};
use crate::verify::archive::VerifiedArchive;
use crate::verify::report::Counts;
use crate::{
    Check, CheckMode, CheckOptions, Client, FailedRead, Findings, RATIO_TYPICAL, ReadError, Rule, SeenSlots, SizeLimit,
    Task, VerifyReport, check_base, check_pair, judge_chains, judge_rebased_on, judge_root, judge_storage_map,
};

/// Clients, checks and settings of a verification.
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
pub struct VerifyOptions {
    /// Clients that must load the input; if empty, every deviation is a failure.
    #[setters(into)]
    pub clients: Vec<Client>,
    /// Skips records and state; if there is an index, reads only the headers of frames. With expected roots, all frames
    /// are read anyway and compared with their hashes.
    pub is_quick: bool,
    /// Checks of records and state, and expected values.
    pub check: CheckOptions,
    /// Accepts a part of a state, such as an incremental archive alone, and checks everything else.
    #[setters(skip)]
    pub(crate) allows_part: bool,
    /// Threads that decode and hash, 1 to 1024.
    pub threads: usize,
    /// Policy for the page cache, rates and priority while reading.
    pub io_policy: IoPolicy,
    /// Roots that the archives must have, in their order; archives beyond the list may have any.
    #[setters(into)]
    pub expect_roots: Vec<Root>,
}

/// Requires all clients, uses all cores, 1 GiB for finding superseded records, and the system's directory for temporary
/// files.
impl Default for VerifyOptions {
    fn default() -> Self {
        Self {
            clients: Vec::new(),
            is_quick: false,
            check: CheckOptions::default(),
            allows_part: false,
            threads: available_threads(),
            io_policy: IoPolicy::default(),
            expect_roots: Vec::new(),
        }
    }
}

impl VerifyOptions {
    /// Reason for which records and state are not checked; `None` if they are.
    fn why_not_state(&self) -> Option<String> {
        match (self.is_quick, self.check.mode) {
            (true, _) => Some("quick check".to_string()),
            (_, CheckMode::Frames) => Some("not asked for".to_string()),
            (_, CheckMode::State) => None,
        }
    }

    /// Refuses a part of a state if the state is to be checked.
    fn check_part(&self, is_part: bool) -> Result<()> {
        match is_part && self.why_not_state().is_none() && !self.allows_part {
            true => Err(incremental_alone()),
            false => Ok(()),
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    pub options: &'a VerifyOptions,
    /// Visitor of records in a second pass, whether the state is checked or not.
    pub visitor: Option<&'a dyn StateVisitor>,
    /// Visitor of records in the first pass.
    pub observer: Option<&'a dyn StateVisitor>,
    pub progress: &'a dyn Progress,
}

impl<'a> Job<'a> {
    fn verify(options: &'a VerifyOptions, progress: &'a dyn Progress) -> Self {
        Self { options, visitor: None, observer: None, progress }
    }

    fn reads_records(&self) -> bool {
        self.options.why_not_state().is_none() || self.visitor.is_some()
    }

    fn first_task(&self) -> Task<'a> {
        match (self.visitor, self.observer) {
            (Some(_), _) => Task::Log,
            (None, Some(observer)) => Task::AddAndShow(observer),
            (None, None) => Task::Add,
        }
    }

    fn stage(&self) -> &'static str {
        if self.visitor.is_some() { "Reading" } else { "Verifying" }
    }

    /// Makes the second pass over the necessary storages, and judges the state.
    fn finish_state(
        &self,
        accounts: &Accounts,
        bank: Option<&BankFile>,
        findings: &Findings,
        path: &Path,
        read_again: ReadSome<'_>,
    ) -> Result<StateCounts> {
        let Self { options, visitor, progress, .. } = *self;
        if let Some(why) = options.why_not_state() {
            findings.skip(Check::State, why);
        }
        match visitor {
            None if !self.reads_records() => Ok(StateCounts::default()),
            None => finish_check(accounts, bank, findings, options.threads, progress, &mut |task, wanted| {
                progress.stage("Subtracting", None);
                read_again(task, Some(wanted))
            }),
            Some(_) if findings.has_lost_accounts() => Err(lost_records(path)),
            Some(visitor) => {
                progress.stage("Sorting", None);
                let marks_bytes_max = options.check.memory_bytes / 2;
                finish_visit(accounts, bank, findings, visitor, marks_bytes_max, options.threads, &mut |task| {
                    read_again(task, None)
                })
            }
        }
    }
}

type ReadSome<'a> = &'a mut dyn FnMut(Task<'_>, Option<&HashSet<u32>>) -> Result<()>;

/// Error for a visit of accounts of which some cannot be read.
pub(crate) fn lost_records(path: &Path) -> Error {
    Error::damaged("not all of its records can be read").within(path.shown()).with_hint(Hint::UseVerify)
}

/// Verifies an archive, or a full and an incremental one. Faults are in the report.
///
/// # Errors
/// An archive cannot be read; the disk has no room for what does not fit in memory; or the state of an incremental
/// archive without its full one was to be checked.
pub fn verify_archives(
    archive: &NamedArchive,
    incremental: Option<&NamedArchive>,
    options: &VerifyOptions,
    progress: &dyn Progress,
) -> Result<VerifyReport> {
    read_archives(archive, incremental, Job::verify(options, progress))
}

/// Verifies an archive, or a full and an incremental one, and shows a visitor every record of the first pass that no newer
/// archive is known to supersede. Also returns the bank file, if it could be read.
///
/// # Errors
/// As of [`verify_archives`], or of the visitor.
pub fn verify_archives_showing(
    archive: &NamedArchive,
    incremental: Option<&NamedArchive>,
    options: &VerifyOptions,
    observer: &dyn StateVisitor,
    progress: &dyn Progress,
) -> Result<(VerifyReport, Option<BankFile>)> {
    let mut report =
        read_archives(archive, incremental, Job { observer: Some(observer), ..Job::verify(options, progress) })?;
    let bank = report.bank.take();
    Ok((report, bank))
}

pub(crate) fn read_archives(
    archive: &NamedArchive,
    incremental: Option<&NamedArchive>,
    job: Job<'_>,
) -> Result<VerifyReport> {
    let stopwatch = Stopwatch::start();
    if let Some(incremental) = incremental {
        check_pair((&archive.path, archive.name.as_ref()), (&incremental.path, incremental.name.as_ref()))?;
    }
    job.options
        .check_part(incremental.is_none() && archive.name.as_ref().is_some_and(|name| name.base_slot.is_some()))?;
    // The newer archive first: older versions of its accounts need not be hashed.
    let archives: Vec<&NamedArchive> = incremental.into_iter().chain([archive]).collect();
    let mut distrusted: Vec<Option<Error>> = vec![None; archives.len()];
    loop {
        match try_archives(&archives, &distrusted, job) {
            Ok(mut report) => {
                report.paths.reverse();
                report.roots.reverse();
                report.elapsed = stopwatch.elapsed();
                return Ok(report);
            }
            // The tar stream counts, the index is only a hint: read again without it.
            Err(FailedRead { archive, error }) => {
                match (archive.and_then(|number| distrusted.get_mut(number)), error) {
                    (Some(distrusted @ None), ReadError::Index(error)) => {
                        *distrusted = Some(error);
                        job.observer.into_iter().for_each(StateVisitor::restart);
                    }
                    (_, error) => return Err(error.into()),
                }
            }
        }
    }
}

fn try_archives(
    archives: &[&NamedArchive],
    distrusted: &[Option<Error>],
    job: Job<'_>,
) -> Result<VerifyReport, FailedRead> {
    let Job { options, progress, .. } = job;
    let mut accounts = new_accounts(&job, archives_bytes(archives)?)?;
    let (seen_slots, size_limit) = (SeenSlots::default(), SizeLimit::new(options.check.max_bytes));
    let mut read: Vec<VerifiedArchive> = Vec::new();
    let step = |stage| archives.iter().map(move |archive| Step::new(stage, archive.length_bytes().ok()));
    let again = job.visitor.into_iter().flat_map(|_| step("Visiting"));
    progress.steps(&step(job.stage()).chain(again).collect::<Vec<_>>());
    progress.detail(&format!(
        "plan: {} to read; workers: {}, temporary files in {}",
        quantity::bytes(archives.iter().filter_map(|archive| archive.length_bytes().ok()).sum()),
        options.threads,
        options.check.spill_dir(None).shown()
    ));
    for (number, (archive, distrusted)) in archives.iter().zip(distrusted).enumerate() {
        if number > 0 {
            accounts.everything_so_far_is_newer(options.threads)?;
        }
        let (is_below, distrusted) = (number > 0, distrusted.as_ref());
        let one = VerifiedArchive::read(archive, is_below, distrusted, &accounts, &seen_slots, &size_limit, &job)
            .map_err(|error| FailedRead::of(number, error))?;
        accounts.stakes.lacks_rent_epochs |= one.is_of_firedancer;
        read.push(one);
    }
    Ok(judge(read, &accounts, &job)?)
}

/// Makes the checks that need all archives. `read` has the newest first.
fn judge(read: Vec<VerifiedArchive>, accounts: &Accounts, job: &Job<'_>) -> Result<VerifyReport> {
    let options = job.options;
    let (Some(newest), base) = (read.first(), read.get(1)) else {
        return Err(Error::usage("there is no archive to verify"));
    };
    if let Some(base) = base {
        refuse_swapped(newest, base)?;
        check_base(newest.archive.base_slot(), base.bank().map(|bank| bank.slot))?;
    }
    judge_maps(newest, base)?;
    let bank = newest.bank();
    if let Some(bank) = bank {
        judge_expectations(&options.check, bank.slot, bank.snapshot_hash(), &newest.findings)?;
    }
    // The newest archive is the last one in the arguments.
    for (one, number) in read.iter().rev().zip(0..) {
        judge_root(options.expect_roots.get(number).copied(), one.archive.root(), &one.findings)?;
    }
    let base_slot = newest.archive.base_slot();
    if base_slot.is_some() && base.is_none() {
        newest.findings.skip(Check::State, "part of a state only: give the full archive too");
    }
    let lossy = read.iter().find(|one| one.findings.has_lost_accounts());
    if lossy.is_some() {
        newest.findings.lose_accounts();
        newest.findings.skip(Check::State, "not all accounts could be read");
    }
    if let Some(why) = read.iter().find_map(|one| one.findings.skipped(Check::State)) {
        newest.findings.skip(Check::State, why);
    }
    if let (Some(bank), Some(visitor)) = (bank, job.visitor) {
        let part = |one: &VerifiedArchive| StatePart {
            path: one.archive.path_buf(),
            root: one.archive.root(),
            first_storage: one.first_storage,
            is_of_firedancer: one.is_of_firedancer,
        };
        visitor.begin(&StateFacts { bank, parts: read.iter().map(part).collect() })?;
    }
    let path = lossy.unwrap_or(newest).archive.path();
    let counted = job.finish_state(accounts, bank, &newest.findings, path, &mut |task, wanted| {
        read.iter().try_for_each(|one| one.read_again(accounts, task, wanted, job))
    })?;
    let mut counts = Counts::default();
    for one in &read {
        count(&mut counts.input_bytes, one.archive.length_bytes());
        count(&mut counts.tar_bytes, one.tar_bytes);
        count(&mut counts.frames, one.frames);
        count(&mut counts.storages, one.storages().len() as u64);
    }
    counts.add_state(&counted, accounts);
    let bank = bank.cloned();
    let has_index = read.iter().all(|one| one.archive.tail.is_some());
    let findings = Findings::new();
    let (mut paths, mut roots) = (Vec::new(), Vec::new());
    for one in read {
        roots.push(one.archive.root());
        let path = one.archive.path_buf();
        findings.absorb(one.findings, &path);
        paths.push(path);
    }
    let mut report = VerifyReport::of_findings(findings, &options.clients, paths);
    report.base_slot = base_slot;
    (report.expected_hash, report.expected_slot) = (options.check.expect_hash, options.check.expect_slot);
    report.roots = roots;
    report.counts = counts;
    report.set_bank(bank.as_ref(), has_index);
    report.bank = bank;
    Ok(report)
}

/// Refuses a full archive that is newer than the incremental one, unless the latter's name says that it is meant so: a
/// judgement of the state would not help.
fn refuse_swapped(newest: &VerifiedArchive, base: &VerifiedArchive) -> Result<()> {
    let is_meant = newest.archive.base_slot().is_some();
    match (base.bank(), newest.bank()) {
        (Some(first), Some(second)) if second.slot < first.slot && !is_meant => {
            Err(swapped(base.archive.path(), newest.archive.path()))
        }
        _ => Ok(()),
    }
}

/// Compares each archive's storages with its bank file's storage map; for an incremental one, the storages of both.
fn judge_maps(newest: &VerifiedArchive, base: Option<&VerifiedArchive>) -> Result<()> {
    let base_slot = newest.archive.base_slot();
    for one in [Some(newest), base].into_iter().flatten() {
        if let Some(bank) = one.bank() {
            judge_map_presence(bank, one.storages().len() as u64, &one.findings)?;
        }
    }
    if let Some(base) = base {
        if let Some(bank) = base.bank() {
            judge_rebased_on(&newest.archive, bank.snapshot_hash(), &newest.findings)?;
            newest.bank().map_or(Ok(()), |newer| judge_chains(bank, newer, &newest.findings))?;
        }
        if let Some(map) = base.whole_map() {
            judge_storage_map(map, base.storages(), None, true, &base.findings)?;
        }
    }
    if newest.findings.has(Rule::BaseMismatch) {
        // What follows from it would hide it.
        newest.findings.skip(Check::State, "the archives are no pair");
        return Ok(());
    }
    if let Some(map) = newest.whole_map() {
        let mut storages = newest.storages().to_vec();
        storages.extend(base.into_iter().flat_map(|base| base.storages()));
        // A full archive without a map, such as Firedancer's, may have other storages than the newer map names.
        let has_base = base.and_then(VerifiedArchive::whole_map).is_some_and(|map| !map.is_empty());
        judge_storage_map(map, &storages, base_slot, has_base, &newest.findings)?;
    }
    Ok(())
}

fn archives_bytes(archives: &[&NamedArchive]) -> Result<u64> {
    archives
        .iter()
        .try_fold(0u64, |sum, archive| Ok(sum.saturating_add(archive.length_bytes()?.saturating_mul(RATIO_TYPICAL))))
}

/// Prepares the state check for storages of this size. A temporary directory that the user chose must have room for
/// what is expected not to fit in memory; for the system's, there is only a warning, because its room may suffice after
/// all.
fn new_accounts(job: &Job<'_>, storages_bytes: u64) -> Result<Accounts> {
    let CheckOptions { memory_bytes, temporary_dir, .. } = &job.options.check;
    let spill_dir = job.options.check.spill_dir(None);
    let (room_bytes, records) = (log_bytes(storages_bytes), typical_records(storages_bytes));
    let accounts = match job.visitor {
        None => Accounts::keeping_records(*memory_bytes, &spill_dir, room_bytes, records)?,
        // The other half is for marks of superseded records.
        Some(_) => Accounts::new(*memory_bytes / 2, &spill_dir, room_bytes)?,
    };
    if !job.reads_records() {
        return Ok(accounts);
    }
    match accounts.check_room_foreseen(*memory_bytes) {
        Err(error) if temporary_dir.is_none() => {
            job.progress.warn(&format!("there may be too little memory; if so, this run ends with: {error}"));
        }
        result => result?,
    }
    Ok(accounts)
}
