//! Whether an archive, or a ledger, is good: before a validator finds out.
//!
//! Six checks, in order: frames, entries, name, bank, records, state. All failures that do not follow from each other
//! are collected, each with its place; [`format::clients`](crate::format::clients) knows which client minds. Nothing is
//! written, but for a temporary file where the memory does not suffice.
//!
//! The story of an archive: its bytes are read once, by its index on all cores ([`indexed`]) or in order
//! ([`in_order`]); entries are checked against each other ([`entries`]), documents parsed as streams ([`documents`](crate::restore::documents)),
//! records walked ([`records`]), hashed and logged ([`accounts`], [`versions`]). Then everything is judged ([`judge`]),
//! superseded records are read again and subtracted, and the state is what the bank file says, or not ([`state`]).

pub mod accounts;
pub mod batches;
pub mod entries;
pub mod fingerprint;
pub mod frames;
pub mod in_order;
pub mod indexed;
pub mod judge;
pub mod known;
pub mod ledger;
pub mod own;
pub mod pass;
pub mod read;
pub mod records;
pub mod report;
pub mod spill;
pub mod state;
pub mod superseded;
pub mod version;
pub mod versions;

use {
    crate::{
        error::{Error, Result},
        format::clients::Client,
        ledger::names::{ArchiveName, Hash},
        progress::Progress,
        stopwatch::Stopwatch,
        verify::{
            judge::{judge_base, judge_expectations, judge_storage_map},
            read::{ReadArchive, ReadError},
            report::{Check, Counts, Findings, VerifyReport},
            state::settle,
        },
    },
    std::{
        collections::HashSet,
        path::{Path, PathBuf},
    },
};

pub use ledger::{verify_ledger, verify_snapshot};

/// How to verify.
#[derive(Clone, Debug)]
pub struct VerifyOptions {
    /// The clients that are to load it; none: every departure is a failure.
    pub clients: Vec<Client>,
    /// Leave out records and state.
    pub is_quick: bool,
    /// Workers.
    pub threads: usize,
    /// The most memory for finding superseded records, in bytes.
    pub memory_bytes: u64,
    /// Where to spill what does not fit.
    pub temporary_dir: PathBuf,
    /// The snapshot hash that the state must have.
    pub expect_hash: Option<Hash>,
    /// The slot that the state must have.
    pub expect_slot: Option<u64>,
}

/// An archive: its path, and the name that it has or is to have.
#[derive(Clone, Debug)]
pub struct NamedArchive {
    /// Where it is.
    pub path: PathBuf,
    /// What its name says.
    pub name: Option<ArchiveName>,
}

impl NamedArchive {
    /// Of the name that its path has.
    pub fn of_path(path: &Path) -> Self {
        Self { path: path.to_path_buf(), name: ArchiveName::of_path(path) }
    }
}

/// Verifies an archive, or a full and an incremental one. An error means that verifying itself failed; what is wrong
/// with the archives is in the report.
pub fn verify_archives(
    archive: &NamedArchive,
    incremental: Option<&NamedArchive>,
    options: &VerifyOptions,
    progress: &dyn Progress,
) -> Result<VerifyReport> {
    let stopwatch = Stopwatch::start();
    // The newer archive first: of what it holds, older versions need not be hashed.
    let archives: Vec<&NamedArchive> = incremental.into_iter().chain([archive]).collect();
    let mut distrusted: Vec<Option<Error>> = vec![None; archives.len()];
    loop {
        match try_archives(&archives, &distrusted, options, progress) {
            Ok(mut report) => {
                report.paths.reverse();
                report.taken = stopwatch.taken();
                return Ok(report);
            }
            // The tar stream is the truth, the index a hint: once more without it.
            Err(ReadError::Index { archive, error }) if distrusted[archive].is_none() => {
                distrusted[archive] = Some(error);
            }
            Err(ReadError::Index { error, .. } | ReadError::Other(error)) => return Err(error),
        }
    }
}

fn try_archives(
    archives: &[&NamedArchive],
    distrusted: &[Option<Error>],
    options: &VerifyOptions,
    progress: &dyn Progress,
) -> Result<VerifyReport, ReadError> {
    let mut accounts = state::new_accounts(options, state::archives_bytes(archives)?)?;
    let mut seen_slots = HashSet::new();
    let mut read: Vec<ReadArchive> = Vec::new();
    for (number, (archive, distrusted)) in archives.iter().zip(distrusted).enumerate() {
        if number > 0 {
            accounts.everything_so_far_is_newer(options.threads)?;
        }
        let one = ReadArchive::read(archive, distrusted.as_ref(), &accounts, &mut seen_slots, options, progress)
            .map_err(|error| error.of_archive(number))?;
        read.push(one);
    }

    let (newest, base) = (&read[0], read.get(1));
    judge_maps(newest, base);
    let bank = newest.bank.as_ref().map(|(bank, _)| bank);
    if let Some(bank) = bank {
        judge_expectations(options.expect_slot, options.expect_hash, bank, &newest.findings);
    }
    let base_slot = newest.source.base_slot();
    if base_slot.is_some() && base.is_none() {
        newest.findings.skip(Check::State, "part of a state only: give the full archive too");
    }
    if read.iter().any(|one| one.findings.has_lost_accounts()) {
        newest.findings.skip(Check::State, "not all accounts could be read");
    }
    if let Some(why) = read.iter().find_map(|one| one.findings.skipped(Check::State)) {
        newest.findings.skip(Check::State, why);
    }
    let settled = settle(&accounts, bank, &newest.findings, options, progress, &mut |task, wanted| {
        read.iter().try_for_each(|one| one.read_again(&accounts, task, wanted, options, progress))
    })?;

    let mut counts = Counts::default();
    for one in &read {
        counts.input_bytes += one.counts.input_bytes;
        counts.tar_bytes += one.counts.tar_bytes;
        counts.frames += one.counts.frames;
        counts.storages += one.entries.storages().len() as u64;
    }
    settled.write_into(&mut counts, &accounts);
    let summary = bank.map(|bank| (bank.slot, bank.snapshot_hash(), bank.capitalization));
    let findings = Findings::new();
    let mut paths = Vec::new();
    for one in read {
        findings.absorb(one.findings, &one.source.path);
        paths.push(one.source.path);
    }
    let mut report = findings.into_report(&options.clients, paths);
    if let Some((slot, hash, capitalization)) = summary {
        (report.slot, report.hash, report.capitalization) = (Some(slot), Some(hash), Some(capitalization));
    }
    report.base_slot = base_slot;
    (report.expected_hash, report.expected_slot) = (options.expect_hash, options.expect_slot);
    report.counts = counts;
    Ok(report)
}

/// Each archive's storages against its own bank file's storage map; for an incremental one, the storages of both.
fn judge_maps(newest: &ReadArchive, base: Option<&ReadArchive>) {
    let base_slot = newest.source.base_slot();
    if let Some(base) = base {
        let full_slot = base.bank.as_ref().map(|(bank, _)| bank.slot);
        judge_base(base_slot, full_slot, base.source.base_slot(), &newest.findings);
        if let Some((_, map)) = base.bank.as_ref().filter(|_| !base.findings.has_lost_accounts()) {
            judge_storage_map(map, base.entries.storages(), None, true, &base.findings);
        }
    }
    if let Some((_, map)) = newest.bank.as_ref().filter(|_| !newest.findings.has_lost_accounts()) {
        let mut storages = newest.entries.storages().to_vec();
        storages.extend(base.into_iter().flat_map(|base| base.entries.storages()));
        let has_base = base.is_some_and(|base| !base.findings.has_lost_accounts());
        judge_storage_map(map, &storages, base_slot, has_base, &newest.findings);
    }
}
