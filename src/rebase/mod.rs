//! Two states to an incremental archive: what makes the newer one of a full archive that somebody still has.
//!
//! Validators make incremental archives on their newest full archive only: on an older one, accounts that were closed since
//! would come back. Both states are read here, so all closed accounts are known.
//!
//! # Method
//! Each state is verified, and its records are logged ([`states`]). The log is sorted by accounts, which tells what changed
//! ([`changes`]). Then both are read once more: records of the new state that changed are copied, accounts that only the
//! old one has get a tombstone, and what is outdated of the old state is subtracted from its sums ([`output`]). The result
//! gets its name only if these sums are then those of the new state.
//!
//! # Memory
//! Half of the memory is for the log, half for verifying one state after the other, and then for marks of what changed: at
//! most 4 bytes for each, and 128 for each storage. The log takes 36 bytes for each record of both states (76 GB for two
//! states of mainnet), and is spilled if it does not fit.

pub mod changes;
mod output;
mod states;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use derive_setters::Setters;
use serde::Serialize;
use slotpress_base::progress::part_of;
use slotpress_base::{Elapsed, Error, IoPolicy, Progress, Result, ShowPath, Step, Stopwatch, available_threads, text};
use slotpress_format::ledger::names::Extension;
use slotpress_format::{
    ArchiveName, BankFile, END_OF_ARCHIVE_BYTES, Entry, EntryKind, FRAME_SIZE_BYTES_DEFAULT, Hash, Root, name_and_parts,
};
use slotpress_read::archive::source::written;
use slotpress_read::archive::{Archive, front};
use slotpress_read::{
    Check, CheckMode, CheckOptions, Findings, IndexPolicy, LocalFile, NamedArchive, RATIO_TYPICAL, REBASED_ON,
    VerifyOptions, judge_chains, read_back_archive, typical_records, verify_archives_showing,
};

use crate::archive::encode::{Codec, ZSTD_LEVEL_DEFAULT};
use crate::archive::reframe::{decoding_side_bytes, reframe};
use crate::archive::sink::{OpenSink, Sink};
use crate::archive::writer::{self, ArchiveWriter, FrameTotals};
use crate::archive::{check_frame_size, threads_within};
use crate::rebase::changes::{ChangeCounts, Changes};
use crate::rebase::output::{SlotsBetween, StateSum, Writing};
use crate::rebase::states::{ITEM_BYTES, StateLog};

/// Options for [`rebase`].
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
pub struct RebaseOptions {
    /// How frames are compressed.
    pub codec: Codec,
    /// Bytes of tar in a frame.
    pub frame_size_bytes: u64,
    /// Threads that compress, 1 to 1024; about half as many decode.
    pub threads: usize,
    /// The most memory for buffers, in bytes: fewer workers are started where it does not suffice.
    #[setters(into)]
    pub memory_bytes: Option<u64>,
    /// How both states are checked, and the memory for comparing them. Expected values are those of the new state. The mode is
    /// always [`CheckMode::State`].
    pub check: CheckOptions,
    /// How to read and write beside other programs.
    pub io_policy: IoPolicy,
}

/// zstd level 1, all cores, 1 GiB for comparing states.
impl Default for RebaseOptions {
    fn default() -> Self {
        Self {
            codec: Codec::zstd(ZSTD_LEVEL_DEFAULT),
            frame_size_bytes: FRAME_SIZE_BYTES_DEFAULT,
            threads: available_threads(),
            memory_bytes: None,
            check: CheckOptions::default(),
            io_policy: IoPolicy::default(),
        }
    }
}

/// The archives of a rebase.
#[derive(Clone, Copy, Debug)]
pub struct RebaseInput<'a> {
    /// The full archive of the new state.
    pub new: &'a NamedArchive,
    /// The incremental archive on it, if the new state has one.
    pub incremental: Option<&'a NamedArchive>,
    /// The full archive that the result goes on.
    pub onto: &'a NamedArchive,
}

/// What was rebased.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct RebaseReport {
    /// The new archive; `None` when it went into a stream.
    #[serde(serialize_with = "text::optional_path")]
    pub path: Option<PathBuf>,
    /// Its name.
    #[serde(flatten, serialize_with = "name_and_parts")]
    pub name: ArchiveName,
    /// Snapshot hash of the full archive that it goes on.
    pub base_hash: Hash,
    /// What changed between the states.
    #[serde(flatten)]
    pub changes: ChangeCounts,
    /// Storages inside.
    pub storages: u64,
    /// Length of all archives that were read.
    pub input_bytes: u64,
    /// Length of the archives of the new state: what a node fetches without this one. Of a ledger, that of its uncompressed tar.
    pub new_bytes: u64,
    /// Bytes of tar.
    pub tar_bytes: u64,
    /// Length of the new archive in bytes.
    pub output_bytes: u64,
    /// Bytes that did not fit in memory, and were spilled.
    pub spilled_bytes: u64,
    /// Frames inside, without skippable ones.
    #[serde(flatten)]
    pub frames: FrameTotals,
    /// What stands for all of its bytes, where its frames are hashed: with zstd.
    pub root: Option<Root>,
    /// Time from the start until the archive was on disk under its name.
    #[serde(flatten)]
    pub elapsed: Elapsed,
    /// How it was compressed.
    #[serde(flatten)]
    pub codec: Codec,
}

/// Makes an incremental archive that turns the full archive `onto` into the new state.
///
/// # Errors
/// An archive is not sound, or does not match its name; the states are of different clusters, or in the wrong order; memory
/// or disk space do not suffice; there are too few slots between them. Nothing gets an archive's name then; a stream may have
/// got a part of it.
pub fn rebase<'a>(
    input: RebaseInput<'_>,
    sink: Sink<'a>,
    options: &RebaseOptions,
    progress: &'a dyn Progress,
) -> Result<RebaseReport> {
    let stopwatch = Stopwatch::start();
    let sink = sink.kept()?;
    let RebaseOptions { codec, frame_size_bytes, io_policy, .. } = options;
    check_frame_size(*frame_size_bytes)?;
    let other_bytes = decoding_side_bytes(*frame_size_bytes);
    let threads = threads_within(codec, *frame_size_bytes, options.threads, options.memory_bytes, other_bytes)?;
    if input.onto.name.as_ref().is_some_and(|name| name.base_slot.is_some()) {
        return Err(Error::usage(format!("{} is an incremental archive", input.onto.path.shown()))
            .with_hint("an incremental archive goes on a full one: give that"));
    }
    let (full, onto) = (opened(input.new)?, opened(input.onto)?);
    let incremental = input.incremental.map(opened).transpose()?;
    let newest = incremental.as_ref().unwrap_or(&full);
    let front_of = |archive: &NamedArchive| -> Result<BankFile> {
        let front = front::bank(&reopened(archive, io_policy)?)?;
        front.ok_or_else(|| {
            Error::damaged("its bank file cannot be found near its beginning").within(archive.path.shown())
        })
    };
    judge_pair(&front_of(&onto)?, &front_of(newest)?)?;
    if front_of(&full)?.lacks_stakes() {
        return Err(of_firedancer());
    }

    let new_archives = || [&full].into_iter().chain(&incremental);
    let within = &part_of(progress);
    let new_bytes = new_archives().map(NamedArchive::length_bytes).sum::<Result<u64>>()?;
    let input_bytes = new_bytes + onto.length_bytes()?;
    let unpacked_bytes = new_archives().chain([&onto]).map(unpacked_bytes).sum::<Result<u64>>()?;
    let check = &options.check;
    let spill_dir = check.spill_dir(sink.parent());
    let room_bytes = typical_records(unpacked_bytes).saturating_mul(ITEM_BYTES);
    let log = StateLog::new(check.memory_bytes / 2, &spill_dir, room_bytes)?;
    let check = check.clone().mode(CheckMode::State).memory_bytes(check.memory_bytes / 2).temporary_dir(spill_dir);
    let read_state = |full, incremental, check: CheckOptions| {
        let options = VerifyOptions::default().check(check).threads(options.threads).io_policy(io_policy.clone());
        read_state(&log, full, incremental, &options, within)
    };
    let mut steps: Vec<Step> = new_archives().rev().chain([&onto]).map(step_of).collect::<Result<_>>()?;
    let step = |name, bytes| Step::new(name, Some(bytes));
    // How long the result becomes, nobody knows yet.
    let read_back_bytes = 0;
    steps.extend([
        step("Comparing", 0),
        step("Rebasing", input_bytes),
        step("Verifying", read_back_bytes),
        step("Syncing", 0),
    ]);
    progress.steps(&steps);
    let (new_bank, new) = read_state(&full, incremental.as_ref(), check.clone())?;
    let (old_bank, old) = read_state(&onto, None, check.expect_hash(None).expect_slot(None))?;
    judge_pair(&old_bank, &new_bank)?;

    let name = ArchiveName {
        base_slot: Some(old_bank.slot),
        slot: new_bank.slot,
        hash: new_bank.snapshot_hash(),
        extension: codec.extension(),
    };
    sink.check_name(&name.to_string())?;
    progress.stage("Comparing", None);
    let spilled_bytes = log.items.spilled_bytes();
    let changes = Changes::of(&log, old, new, options.threads, options.check.memory_bytes / 2)?;
    drop(log);
    let archives = [incremental.as_ref(), Some(&full)].into_iter().flatten();
    let archives: Vec<Archive> = archives.map(|archive| reopened(archive, io_policy)).collect::<Result<_>>()?;
    let old_archive = reopened(&onto, io_policy)?;

    progress.stage("Rebasing", Some(input_bytes));
    let mut sink = sink.open(Some(&name), unpacked_bytes, progress)?;
    let sink_path = sink.path();
    let mut writer = ArchiveWriter::new(sink.writer(io_policy.io_hint), &sink_path, codec);
    let slots = SlotsBetween { old: old_bank.slot, new: new_bank.slot };
    let written =
        reframe(&mut writer, codec, *frame_size_bytes, threads, &AtomicBool::default(), progress, |frames, reads| {
            let (new, old, places, changes) = (&archives[..], &old_archive, new_bank.places, &changes);
            Writing { new, old, slots, places, changes, threads, progress: reads }.run(frames)
        })?;
    let ChangeCounts { accounts_changed, accounts_new, accounts_closed, .. } = changes.counts;
    if (written.records, written.tombstones) != (accounts_changed + accounts_new, accounts_closed) {
        return Err(changed_meanwhile());
    }
    let mut sum = sum_of(&old_bank);
    sum.subtract(&written.outdated);
    sum.add(&written.written);
    if sum != sum_of(&new_bank) {
        return Err(changed_meanwhile());
    }
    let note = format!("{REBASED_ON}{}", old_bank.snapshot_hash());
    let writer::Written { length_bytes: output_bytes, frames, root } =
        writer.finish(written.entries.iter().copied(), Some(&note), *frame_size_bytes)?;
    read_back(&sink, &name, options, progress)?;
    progress.stage("Syncing", None);
    progress.check()?;
    let path = sink.publish(&name.to_string())?;
    Ok(RebaseReport {
        path,
        name,
        base_hash: old_bank.snapshot_hash(),
        changes: changes.counts,
        storages: written.entries.iter().filter(|entry| matches!(entry.kind, EntryKind::Storage { .. })).count() as u64,
        input_bytes,
        new_bytes,
        tar_bytes: written.entries.iter().map(Entry::tar_bytes).sum::<u64>() + END_OF_ARCHIVE_BYTES,
        output_bytes,
        spilled_bytes,
        frames,
        root,
        elapsed: stopwatch.elapsed(),
        codec: codec.clone(),
    })
}

/// Opens a file once for all readings: what takes its path meanwhile does not count.
fn opened(archive: &NamedArchive) -> Result<NamedArchive> {
    match &archive.source {
        Some(_) => Ok(archive.clone()),
        None => Ok(NamedArchive::from_source(Arc::new(LocalFile::open(&archive.path)?), archive.name.clone())),
    }
}

fn reopened(archive: &NamedArchive, io_policy: &IoPolicy) -> Result<Archive> {
    let source = archive.source.clone().ok_or_else(|| Error::failed("an archive is not open"))?;
    Archive::of_source(source, archive.name.clone(), IndexPolicy::Hint, io_policy)
}

fn step_of(archive: &NamedArchive) -> Result<Step> {
    Ok(Step::new("Verifying", Some(archive.length_bytes()?)))
}

/// About how long the tar inside is.
fn unpacked_bytes(archive: &NamedArchive) -> Result<u64> {
    let is_tar = archive.name.as_ref().is_some_and(|name| name.extension == Extension::Tar);
    Ok(archive.length_bytes()?.saturating_mul(if is_tar { 1 } else { RATIO_TYPICAL }))
}

/// Refuses states of which the second does not come after the first.
fn judge_pair(old: &BankFile, new: &BankFile) -> Result<()> {
    if judge_chains(old, new, &Findings::refusing(|_| true)).is_err() {
        return Err(Error::usage("the archives are of different clusters: their chains began at different times"));
    }
    if new.is_for_firedancer_only() {
        return Err(of_firedancer());
    }
    match old.slot.cmp(&new.slot) {
        std::cmp::Ordering::Less => Ok(()),
        std::cmp::Ordering::Equal => {
            Err(Error::usage(format!("both states are of slot {}: there is nothing to rebase", old.slot)))
        }
        std::cmp::Ordering::Greater => Err(Error::usage(format!(
            "the full archive is of slot {}, newer than the state of slot {} that is to go on it",
            old.slot, new.slot
        ))),
    }
}

/// Error for a new state whose documents, or rent epochs of vote accounts, Agave would not take.
fn of_firedancer() -> Error {
    Error::usage("the new state is Firedancer's: what Agave needs for it is not in the archive")
        .with_hint("convert it with `recompress` first")
}

/// Verifies a state while its records are logged. Returns its bank file, and the number of the reading.
fn read_state(
    log: &StateLog,
    full: &NamedArchive,
    incremental: Option<&NamedArchive>,
    options: &VerifyOptions,
    progress: &dyn Progress,
) -> Result<(BankFile, usize)> {
    let (report, bank) = verify_archives_showing(full, incremental, options, log, progress)?;
    let path = || incremental.unwrap_or(full).path.shown();
    if let Some(failure) = report.failures.iter().find(|failure| failure.rule.is_refused()) {
        let place = failure.place.path.as_ref().map_or_else(path, |path| path.shown());
        return Err(failure.to_error().within(place));
    }
    if let Some(why) = report.checks.iter().find(|check| check.name == Check::State).and_then(|it| it.skipped.as_ref())
    {
        return Err(Error::damaged(format!("the state cannot be checked: {why}")).within(path()));
    }
    let bank = bank.ok_or_else(|| Error::damaged("the archive holds no bank file").within(path()))?;
    Ok((bank, log.end_state()?))
}

fn sum_of(bank: &BankFile) -> StateSum {
    StateSum { lattice: bank.lattice_hash.clone(), lamports: u128::from(bank.capitalization) }
}

fn changed_meanwhile() -> Error {
    Error::damaged("the archives do not add up to the new state: they changed while they were read")
        .with_hint("try again; if it happens again, suspect the disk or the memory")
}

/// Reads a written file before it gets its name. Its state was checked already, as a sum.
fn read_back(sink: &OpenSink<'_>, name: &ArchiveName, options: &RebaseOptions, progress: &dyn Progress) -> Result<()> {
    let Some(file) = sink.file() else { return Ok(()) };
    let check = CheckOptions::default().memory_bytes(options.check.memory_bytes);
    let archive = NamedArchive::from_source(written(file)?, Some(name.clone()));
    read_back_archive(&check, &archive, None, options.threads, progress).map(drop)
}
