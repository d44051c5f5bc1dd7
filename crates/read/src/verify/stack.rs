//! Verifies a full archive and several incremental ones on it, and reads each once
//! ([`layers`](crate::state::layers)).
//!
//! The verdict on an incremental archive is the same as if only this pair were verified. Where it
//! might differ, there is no report, and the caller verifies the incremental archive again: if that
//! cannot be read, if it has storages that are not newer than the full archive's, if memory does
//! not suffice, or if the full archive fails a check.

use slotpress_base::{Elapsed, Error, ErrorKind, Progress, Result, Stopwatch};

use super::archive::VerifiedArchive;
use super::judge::{judge, judge_together, report_on};
use super::report::VerifyReport;
use super::{Job, VerifyOptions, archives_bytes, new_accounts};
use crate::state::accounts::Accounts;
use crate::state::finish::{StateCounts, judge_settled, log_bytes, settle, typical_records};
use crate::state::layers::{Layer, State};
use crate::state::sums::Sums;
use crate::{Check, NamedArchive, ReadError, SeenSlots, SizeLimit, check_pair};

/// Upper estimates of the bytes in memory for a delegation in a bank file, for a vote or stake
/// account, and for a storage.
const DELEGATION_BYTES: u64 = 100;
const STAKED_BYTES: u64 = 160;
const STORAGE_BYTES: u64 = 64;

/// Reports on a full archive and on incremental ones on it.
pub struct StackReport {
    pub full: VerifyReport,
    /// Report on each incremental archive with the full one; `None` if the caller must verify the
    /// pair again.
    pub incrementals: Vec<Option<VerifyReport>>,
}

/// An incremental archive that has been read, and what is kept of its state.
struct ReadLayer {
    verified: VerifiedArchive,
    layer: Layer,
    elapsed: Elapsed,
}

/// Verifies a full archive and up to [`LAYERS_MAX`](crate::state::layers::LAYERS_MAX) incremental
/// ones on it. If the full one fails a check, there are no reports on the incremental ones.
///
/// # Errors
/// The run was interrupted, or the full archive cannot be read: verifying it alone reports why.
pub fn verify_stack(
    full: &NamedArchive,
    incrementals: &[NamedArchive],
    options: &VerifyOptions,
    progress: &dyn Progress,
) -> Result<StackReport> {
    let job = Job::verify(options, progress);
    let archives: Vec<&NamedArchive> = incrementals.iter().chain([full]).collect();
    job.announce(&archives);
    let count = u32::try_from(incrementals.len()).unwrap_or(u32::MAX);
    let mut accounts = new_accounts(&job, archives_bytes(&archives)?)?.below(count);
    let mut layers = Vec::new();
    for (archive, number) in incrementals.iter().zip(0..) {
        layers.push(unless_interrupted(read_layer(archive, number, full, &mut accounts, &job))?);
    }
    let stopwatch = Stopwatch::start();
    accounts.begin_older_archive(options.threads)?;
    let size_limit = SizeLimit::new(options.check.max_bytes);
    let read = VerifiedArchive::read(full, false, None, &accounts, &SeenSlots::default(), &size_limit, &job)?;
    accounts.stakes.lacks_rent_epochs = read.is_of_firedancer;
    let base = read.copy_below();
    let mut report = judge(vec![read], &accounts, &job)?;
    report.elapsed = stopwatch.elapsed();
    let is_sound = report.ok && (report.was_made(Check::State) || !job.reads_records());
    let mut judge_one = |read: Option<ReadLayer>| match read.filter(|_| is_sound) {
        Some(read) => unless_interrupted(judge_layer(read, base.copy_below(), &accounts, &report, &job)),
        None => Ok(None),
    };
    let incrementals = layers.into_iter().map(&mut judge_one).collect::<Result<_>>()?;
    Ok(StackReport { full: report, incrementals })
}

/// Returns an interruption as an error, and an empty result for any other error: the caller
/// verifies the archive again, which reports the error.
pub fn unless_interrupted<T: Default>(result: Result<T>) -> Result<T> {
    match result {
        Err(error) if error.kind() != ErrorKind::Interrupted => Ok(T::default()),
        result => result,
    }
}

/// Reads an incremental archive. Returns `None` if there is not enough memory to keep its results.
fn read_layer(
    archive: &NamedArchive,
    number: u32,
    full: &NamedArchive,
    below: &mut Accounts,
    job: &Job<'_>,
) -> Result<Option<ReadLayer>> {
    check_pair((&full.path, full.name.as_ref()), (&archive.path, archive.name.as_ref()))?;
    let stopwatch = Stopwatch::start();
    let check = &job.options.check;
    let storages_bytes = archives_bytes(&[archive])?;
    let (room_bytes, records) = (log_bytes(storages_bytes), typical_records(storages_bytes));
    let read = |distrusted: Option<&Error>| {
        let accounts = below.above(check.memory_bytes, &check.spill_dir(None), room_bytes, records)?;
        let size_limit = SizeLimit::new(check.max_bytes);
        VerifiedArchive::read(archive, false, distrusted, &accounts, &SeenSlots::default(), &size_limit, job)
            .map(|verified| (accounts, verified))
    };
    // The tar stream counts, the index is only a hint: read again without it.
    let read = match read(None) {
        Err(ReadError::Index(error)) => read(Some(&error)),
        read => read,
    };
    let (mut accounts, verified) = read?;
    // The first incremental archive needs no reserve: every verified pair takes as much.
    if number > 0 && !below.reserve(kept_bytes(&verified, &accounts)) {
        return Ok(None);
    }
    accounts.stakes.lacks_rent_epochs = verified.is_of_firedancer;
    let mut counted = StateCounts::default();
    if job.reads_records() {
        let note = |sorted: &[_]| below.note_layer(number, sorted);
        counted = settle(&accounts, job.options.threads, job.progress, &note, &mut |task, wanted| {
            job.progress.stage("Subtracting", None);
            verified.read_again(&accounts, task, Some(wanted), job)
        })?;
    }
    Ok(Some(ReadLayer { verified, layer: accounts.into_layer(number, counted), elapsed: stopwatch.elapsed() }))
}

fn kept_bytes(verified: &VerifiedArchive, accounts: &Accounts) -> u64 {
    let delegations = verified.bank().map_or(0, |bank| bank.stakes.delegations.len());
    let kept = [
        (delegations, DELEGATION_BYTES),
        (accounts.stakes.count(), STAKED_BYTES),
        (verified.storages().len(), STORAGE_BYTES),
    ];
    kept.into_iter().map(|(count, bytes)| (count as u64).saturating_mul(bytes)).fold(0, u64::saturating_add)
}

/// Judges an incremental archive with the full one, on which `full` is the report. Returns `None`
/// if the caller must verify the pair again.
fn judge_layer(
    read: ReadLayer,
    base: VerifiedArchive,
    accounts: &Accounts,
    full: &VerifyReport,
    job: &Job<'_>,
) -> Result<Option<VerifyReport>> {
    let ReadLayer { verified, layer, elapsed } = read;
    let oldest = verified.storages().iter().map(|(slot, _)| slot).min();
    let is_newer = oldest > base.storages().iter().map(|(slot, _)| slot).max();
    if !is_newer || !accounts.stakes.has_room_for(&layer.stakes) {
        return Ok(None);
    }
    let stopwatch = Stopwatch::start();
    let read = vec![verified, base];
    let newest = judge_together(&read, job)?;
    if let Some(why) = job.options.why_not_state() {
        newest.findings.skip(Check::State, why);
    }
    let (mut counted, mut sums) = (StateCounts::default(), Sums::default());
    if job.reads_records() {
        let of_full =
            StateCounts { accounts: full.counts.accounts, superseded: full.counts.superseded, has_duplicates: false };
        counted = accounts.counts_below(&of_full, &layer);
        let state: State<'_> = accounts.state_below(&layer);
        judge_settled(&state, &counted, newest.bank(), &newest.findings)?;
        sums = state.sums;
    }
    let spilled_bytes = accounts.spilled_bytes().saturating_add(layer.spilled_bytes);
    let mut report = report_on(read, &counted, &sums, spilled_bytes, job);
    let judging = stopwatch.elapsed();
    report.elapsed =
        Elapsed { wall: elapsed.wall.saturating_add(judging.wall), cpu: elapsed.cpu.saturating_add(judging.cpu) };
    Ok(Some(report))
}
