//! Whether an archive, or a ledger, is good: before a validator finds out.
//!
//! Six checks, in order: frames, entries, name, bank, records, state. All failures that do not follow from each other
//! are collected, each with its place. Nothing is written, but for a temporary file where the memory does not suffice.
//!
//! An archive is read once ([`read`](crate::archive)), by the rules of [`rules`](crate::rules), and its records are hashed and
//! logged ([`state`](crate::state)); superseded records are read again and subtracted, and the state is what the bank file
//! says, or not. A ledger's storages are read as they would be archived ([`ledger`]).

mod archive;
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
use crate::rules::documents::{judge_expectations, swapped};
use crate::state::accounts::Accounts;
use crate::state::check::incremental_alone;
use crate::state::finish::{StateCounts, finish_check, finish_visit, log_bytes, typical_records};
use crate::state::second_pass::StateVisitor;
use crate::verify::archive::VerifiedArchive;
use crate::verify::report::Counts;
use crate::{
    Check, CheckMode, CheckOptions, Client, FailedRead, Findings, RATIO_TYPICAL, ReadError, SeenSlots, SizeLimit, Task,
    VerifyReport, judge_base, judge_root, judge_storage_map,
};

/// How to verify.
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
pub struct VerifyOptions {
    /// The clients that are to load it; none: every departure is a failure.
    #[setters(into)]
    pub clients: Vec<Client>,
    /// Leave out records and state, and, of what an index tells, everything but the headers of frames. Where roots are
    /// expected, every frame is read all the same, and compared with its hash.
    pub is_quick: bool,
    /// What is checked of records and state, and what is expected.
    pub check: CheckOptions,
    /// A part of a state, such as an incremental archive alone, is accepted: everything else is checked of it.
    #[setters(skip)]
    pub(crate) allows_part: bool,
    /// Threads that decode and hash, 1 to 1024.
    pub threads: usize,
    /// How archives are read beside other programs.
    pub io_policy: IoPolicy,
    /// The roots that the archives must have, in their order; none for those beyond the list.
    #[setters(into)]
    pub expect_roots: Vec<Root>,
}

/// For all clients, on all cores, with 1 GiB for finding superseded records and the system's directory for temporary files.
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
    /// Why records and state are left out; `None` where they are checked.
    fn why_not_state(&self) -> Option<String> {
        match (self.is_quick, self.check.mode) {
            (true, _) => Some("quick check".to_string()),
            (_, CheckMode::Frames) => Some("not asked for".to_string()),
            (_, CheckMode::State) => None,
        }
    }

    /// Refuses a part of a state, where the state is to be checked.
    fn check_part(&self, is_part: bool) -> Result<()> {
        match is_part && self.why_not_state().is_none() && !self.allows_part {
            true => Err(incremental_alone()),
            false => Ok(()),
        }
    }
}

/// What is done with an archive or a ledger, and who is told.
#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    /// How to verify.
    pub options: &'a VerifyOptions,
    /// What records are shown to, in a second pass; whether the state is checked or not.
    pub visitor: Option<&'a dyn StateVisitor>,
    /// Receives what is reported.
    pub progress: &'a dyn Progress,
}

impl<'a> Job<'a> {
    /// To verify.
    fn verify(options: &'a VerifyOptions, progress: &'a dyn Progress) -> Self {
        Self { options, visitor: None, progress }
    }

    /// Whether records are read.
    fn reads_records(&self) -> bool {
        self.options.why_not_state().is_none() || self.visitor.is_some()
    }

    /// What the first pass does with records.
    fn first_task(&self) -> Task<'static> {
        if self.visitor.is_some() { Task::Log } else { Task::Add }
    }

    /// The stage of the first pass.
    fn stage(&self) -> &'static str {
        if self.visitor.is_some() { "Reading" } else { "Verifying" }
    }

    /// The second pass, over the storages of these numbers or all of them, and the judgement of the state.
    fn finish_state(
        &self,
        accounts: &Accounts,
        bank: Option<&BankFile>,
        findings: &Findings,
        path: &Path,
        read_again: ReadSome<'_>,
    ) -> Result<StateCounts> {
        let Self { options, visitor, progress } = *self;
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

/// Reads the records of the storages of these numbers again, or all records.
type ReadSome<'a> = &'a mut dyn FnMut(Task<'_>, Option<&HashSet<u32>>) -> Result<()>;

/// The error for accounts that cannot be shown, since some of them cannot be read.
pub(crate) fn lost_records(path: &Path) -> Error {
    Error::damaged("not all of its records can be read").within(path.shown()).with_hint(Hint::UseVerify)
}

/// Verifies an archive, or a full and an incremental one. What is wrong with them is in the report.
///
/// # Errors
/// Verifying itself failed: an archive cannot be read, there is no room for what does not fit into memory, or the state of
/// an incremental archive without its full one was to be checked.
pub fn verify_archives(
    archive: &NamedArchive,
    incremental: Option<&NamedArchive>,
    options: &VerifyOptions,
    progress: &dyn Progress,
) -> Result<VerifyReport> {
    read_archives(archive, incremental, Job::verify(options, progress))
}

/// Reads archives, for any purpose.
pub(crate) fn read_archives(
    archive: &NamedArchive,
    incremental: Option<&NamedArchive>,
    job: Job<'_>,
) -> Result<VerifyReport> {
    let stopwatch = Stopwatch::start();
    if let Some(incremental) = incremental {
        let base_of = |archive: &NamedArchive| archive.name.as_ref().map(|name| name.base_slot);
        if let (Some(Some(_)), Some(None)) = (base_of(archive), base_of(incremental)) {
            return Err(swapped(&archive.path, &incremental.path));
        }
        if let (Some(None), Some(None)) = (base_of(archive), base_of(incremental)) {
            return Err(Error::usage("both archives are full ones")
                .with_hint("verify each on its own, or give the incremental archive that builds on the first"));
        }
    }
    job.options
        .check_part(incremental.is_none() && archive.name.as_ref().is_some_and(|name| name.base_slot.is_some()))?;
    // The newer archive first: of what it holds, older versions need not be hashed.
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
            // The tar stream is the truth, the index a hint: once more without it.
            Err(FailedRead { archive, error }) => {
                match (archive.and_then(|number| distrusted.get_mut(number)), error) {
                    (Some(distrusted @ None), ReadError::Index(error)) => *distrusted = Some(error),
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
        let one = VerifiedArchive::read(archive, distrusted.as_ref(), &accounts, &seen_slots, &size_limit, &job)
            .map_err(|error| FailedRead::of(number, error))?;
        read.push(one);
    }
    Ok(judge(read, &accounts, &job)?)
}

/// Judges what can only be judged when everything has been read, the newest archive first in `read`.
fn judge(read: Vec<VerifiedArchive>, accounts: &Accounts, job: &Job<'_>) -> Result<VerifyReport> {
    let options = job.options;
    let (Some(newest), base) = (read.first(), read.get(1)) else {
        return Err(Error::failed("there is no archive to verify"));
    };
    if let Some(base) = base {
        refuse_swapped(newest, base)?;
    }
    judge_maps(newest, base)?;
    let bank = newest.judged.bank.as_ref().map(|(bank, _)| bank);
    if let Some(bank) = bank {
        judge_expectations(&options.check, bank.slot, bank.snapshot_hash(), &newest.findings)?;
    }
    // The newest archive comes last in the arguments.
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
    if base.and_then(|base| base.judged.bank.as_ref()).is_some_and(|(bank, _)| bank.is_of_firedancer()) {
        accounts.older_are_of_firedancer();
    }
    if let Some(why) = read.iter().find_map(|one| one.findings.skipped(Check::State)) {
        newest.findings.skip(Check::State, why);
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
    let summary = bank.as_ref().map(|bank| (bank.slot, bank.snapshot_hash(), bank.capitalization));
    let findings = Findings::new();
    let (mut paths, mut roots) = (Vec::new(), Vec::new());
    for one in read {
        roots.push(one.archive.root());
        let path = one.archive.path_buf();
        findings.absorb(one.findings, &path);
        paths.push(path);
    }
    let mut report = VerifyReport::of_findings(findings, &options.clients, paths);
    if let Some((slot, hash, capitalization)) = summary {
        (report.slot, report.hash, report.capitalization) = (Some(slot), Some(hash), Some(capitalization));
    }
    report.base_slot = base_slot;
    (report.expected_hash, report.expected_slot) = (options.check.expect_hash, options.check.expect_slot);
    report.roots = roots;
    report.counts = counts;
    report.set_completeness(bank.as_ref(), has_index);
    Ok(report)
}

/// Refuses a full archive that is newer than the incremental one on it, where a name does not say that it is meant so: then
/// nothing that could be said of the state would help.
fn refuse_swapped(newest: &VerifiedArchive, base: &VerifiedArchive) -> Result<()> {
    let slot_of = |one: &VerifiedArchive| one.judged.bank.as_ref().map(|(bank, _)| bank.slot);
    let is_meant = newest.archive.base_slot().is_some();
    match (slot_of(base), slot_of(newest)) {
        (Some(first), Some(second)) if second < first && !is_meant => {
            Err(swapped(&base.archive.path_buf(), &newest.archive.path_buf()))
        }
        _ => Ok(()),
    }
}

/// Each archive's storages against its own bank file's storage map; for an incremental one, the storages of both.
fn judge_maps(newest: &VerifiedArchive, base: Option<&VerifiedArchive>) -> Result<()> {
    let base_slot = newest.archive.base_slot();
    for one in [Some(newest), base].into_iter().flatten() {
        if let Some((bank, _)) = &one.judged.bank {
            judge_map_presence(bank, one.storages().len() as u64, &one.findings)?;
        }
    }
    if let Some(base) = base {
        let full_slot = base.judged.bank.as_ref().map(|(bank, _)| bank.slot);
        judge_base(base_slot, full_slot, base.archive.base_slot(), &newest.findings)?;
        if let Some((_, map)) = base.judged.bank.as_ref().filter(|_| !base.findings.has_lost_accounts()) {
            judge_storage_map(map, base.storages(), None, true, &base.findings)?;
        }
    }
    if let Some((_, map)) = newest.judged.bank.as_ref().filter(|_| !newest.findings.has_lost_accounts()) {
        let mut storages = newest.storages().to_vec();
        storages.extend(base.into_iter().flat_map(|base| base.storages()));
        // Where the full archive has no map, its storages may be others than those that the newer map names: Firedancer's are.
        let has_map = |base: &VerifiedArchive| base.judged.bank.as_ref().is_some_and(|(_, map)| !map.is_empty());
        let has_base = base.is_some_and(|base| !base.findings.has_lost_accounts() && has_map(base));
        judge_storage_map(map, &storages, base_slot, has_base, &newest.findings)?;
    }
    Ok(())
}

/// Bytes that the archives decode to, roughly.
fn archives_bytes(archives: &[&NamedArchive]) -> Result<u64> {
    archives
        .iter()
        .try_fold(0u64, |sum, archive| Ok(sum.saturating_add(archive.length_bytes()?.saturating_mul(RATIO_TYPICAL))))
}

/// A state in the making, of this many bytes of storages. A temporary directory that was chosen must have room for what
/// is foreseen not to fit in memory; of the system's, whose room may suffice all the same, there is a warning.
fn new_accounts(job: &Job<'_>, storages_bytes: u64) -> Result<Accounts> {
    let CheckOptions { memory_bytes, temporary_dir, .. } = &job.options.check;
    let spill_dir = job.options.check.spill_dir(None);
    let (room_bytes, records) = (log_bytes(storages_bytes), typical_records(storages_bytes));
    let accounts = match job.visitor {
        None => Accounts::keeping_records(*memory_bytes, &spill_dir, room_bytes, records)?,
        // The other half is for marking what is superseded.
        Some(_) => Accounts::new(*memory_bytes / 2, &spill_dir, room_bytes)?,
    };
    if !job.reads_records() {
        return Ok(accounts);
    }
    match accounts.check_room_foreseen(*memory_bytes) {
        Err(error) if temporary_dir.is_none() => {
            job.progress.warn(&format!("the memory may not suffice, and then this ends with: {error}"));
        }
        result => result?,
    }
    Ok(accounts)
}
