//! Runs a rebase: checks the input, reads both states, writes the archive, and reads it back.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use slotpress_base::progress::without_steps;
use slotpress_base::{Error, EscapePath, Progress, Result, Stage, Step, Stopwatch};
use slotpress_format::{ArchiveCompression, ArchiveName, BankFile, Entry};
use slotpress_read::archive::front;
use slotpress_read::state::sums::StateSum;
use slotpress_read::{
    ArchiveInput, Check, CheckMode, CheckOptions, LocalFile, OpenArchive, RATIO_UPPER_ESTIMATE, REBASED_ON, Rule,
    Snapshot, VerifyOptions, estimate_records, open_written, read_back_archive, require_newer_state,
    rule_against_agave, verify_with_visitor,
};

use super::changes::{ChangeCounts, Changes};
use super::output::{OutputWriter, RebasedTotals};
use super::states::{ITEM_BYTES, ReadState, StateLog};
use super::{RebaseOptions, RebaseReport};
use crate::archive::ledger_source::ledger_as_archive;
use crate::archive::reframe::{FrameFiller, decoding_side_bytes, reframe};
use crate::archive::sink::Sink;
use crate::archive::writer::{self, ArchiveWriter, count_storages, tar_stream_bytes};
use crate::archive::{ArchiveOptions, NewArchive};

struct RebaseJob<'a> {
    options: &'a RebaseOptions,
    /// The new state, in archives that are open.
    state: Snapshot,
    onto: ArchiveInput,
    workers: usize,
    progress: &'a dyn Progress,
}

struct ComparedStates {
    old_bank: BankFile,
    new_bank: BankFile,
    changes: Changes,
    spilled_bytes: u64,
}

/// Makes an incremental archive that turns an older full archive into the new state.
///
/// # Errors
/// An archive is damaged, or does not match its name. The states belong to different clusters, are in the
/// wrong order, or have too few slots between them. There is not enough memory or disk space. After
/// an error, no file has the archive's name; a stream may have received a part of the archive.
pub fn rebase(options: &RebaseOptions, sink: &mut dyn Sink, progress: &dyn Progress) -> Result<RebaseReport> {
    let stopwatch = Stopwatch::start();
    let encoding = &options.encoding;
    let workers = encoding.worker_count(decoding_side_bytes(encoding.frame_size_bytes))?;
    let onto_name = options.onto.name.as_ref();
    if onto_name.is_some_and(|name| name.base_slot.is_some()) {
        return Err(Error::usage(format!("{} is an incremental archive", options.onto.path.escaped()))
            .with_hint("pass a full archive to rebase onto"));
    }
    let state = open_state(options, progress)?;
    let onto = open_once(&options.onto)?;
    let job = RebaseJob { options, state, onto, workers, progress };
    if let Some(newest) = job.state.archives().next_back() {
        judge_banks(&job.read_bank(&job.onto)?, &job.read_bank(newest)?)
            .map_err(|error| error.with_place_if_damaged(newest.path.escaped()))?;
    }
    if let Some(full) = job.state.archives().next()
        && job.read_bank(full)?.lacks_stakes()
    {
        return Err(Rule::NoStakes.unsupported_error().with_place(full.path.escaped()));
    }
    let codec = &encoding.codec;
    let state_bytes = job.state.archives().map(length_bytes).sum::<Result<u64>>()?;
    let input_bytes = state_bytes + length_bytes(&job.onto)?;
    let archives = job.state.archives().chain([&job.onto]);
    let unpacked_bytes = archives.map(estimate_unpacked_bytes).sum::<Result<u64>>()?;
    job.announce_steps(input_bytes)?;
    let compared = job.compare(&options.check.spill_dir(sink.dir_path()), unpacked_bytes)?;
    let ComparedStates { old_bank, new_bank, changes, spilled_bytes } = &compared;
    let name = new_bank.archive_name(Some(old_bank.slot), codec.compression());
    sink.check_name(&name.to_string())?;
    progress.stage(Stage::Rebasing, Some(input_bytes));
    sink.begin(Some(&name), unpacked_bytes, encoding.io_policy.io_hint, progress)?;
    let (entries, written) = job.write(&compared, sink)?;
    read_back(sink, &name, options, progress)?;
    let storages = count_storages(&entries);
    let archive = NewArchive::publish(sink, name, storages, written, codec, &stopwatch, progress)?;
    Ok(RebaseReport {
        archive,
        base_hash: old_bank.snapshot_hash(),
        changes: changes.counts,
        input_bytes,
        state_bytes,
        tar_bytes: tar_stream_bytes(&entries),
        spilled_bytes: *spilled_bytes,
    })
}

impl RebaseJob<'_> {
    fn read_bank(&self, archive: &ArchiveInput) -> Result<BankFile> {
        let missing_error = || Error::damaged("its bank file cannot be found near its beginning");
        let bank = front::read_bank(&archive.open(&self.options.encoding.io_policy)?)?;
        bank.ok_or_else(|| missing_error().with_place(archive.path.escaped()))
    }

    fn announce_steps(&self, input_bytes: u64) -> Result<()> {
        let mut steps = Vec::new();
        for archive in self.state.archives().rev().chain([&self.onto]) {
            steps.push(Step::new(Stage::Verifying, archive.length_bytes()?));
        }
        steps.extend([
            Step::new(Stage::Comparing, Some(0)),
            Step::new(Stage::Rebasing, Some(input_bytes)),
            // The result is read back. Its length is not known yet.
            Step::new(Stage::Verifying, Some(0)),
            Step::new(Stage::Syncing, Some(0)),
        ]);
        self.progress.steps(&steps);
        Ok(())
    }

    fn compare(&self, spill_dir: &Path, unpacked_bytes: u64) -> Result<ComparedStates> {
        let encoding = &self.options.encoding;
        let check = &self.options.check;
        let space_bytes = estimate_records(unpacked_bytes).saturating_mul(ITEM_BYTES);
        let memory_bytes = check.memory_bytes / 2;
        let log = StateLog::new(memory_bytes, spill_dir, space_bytes)?;
        let progress = &without_steps(self.progress);
        let check = check.clone().mode(CheckMode::State).memory_bytes(memory_bytes);
        let check = check.temporary_dir(spill_dir.to_path_buf());
        let read = |state: &Snapshot, check: CheckOptions, is_refused| {
            let options = VerifyOptions::default().check(check);
            let options = options.threads(encoding.threads).io_policy(encoding.io_policy.clone());
            read_state(&log, state, &options, is_refused, progress)
        };
        let (new_bank, new_state) = read(&self.state, check.clone(), Rule::is_refused)?;
        let is_refused_for_base = |rule: Rule| rule.is_refused() && !rule.concerns_newest_bank();
        let mut check = check;
        check.expect_hash = None;
        check.expect_slot = None;
        let (old_bank, old_state) = read(&Snapshot::Archive(self.onto.clone()), check, is_refused_for_base)?;
        judge_banks(&old_bank, &new_bank)?;
        self.progress.stage(Stage::Comparing, None);
        let spilled_bytes = log.items.spilled_bytes();
        let threads = encoding.threads;
        let changes = Changes::compare(&log, &old_state, &new_state, threads, memory_bytes)?;
        Ok(ComparedStates { old_bank, new_bank, changes, spilled_bytes })
    }

    /// Writes the differences, and checks that the old state and the differences add up to the
    /// new state.
    fn write(&self, compared: &ComparedStates, sink: &mut dyn Sink) -> Result<(Vec<Entry>, writer::WrittenArchive)> {
        let ComparedStates { old_bank, new_bank, changes, .. } = compared;
        let encoding = &self.options.encoding;
        let open = |archive: &ArchiveInput| archive.open(&encoding.io_policy);
        let new_archives: Vec<OpenArchive> = self.state.archives().rev().map(open).collect::<Result<_>>()?;
        let old_archive = open(&self.onto)?;
        let mut writer = ArchiveWriter::new(sink, &encoding.codec, self.progress);
        let workers = self.workers;
        let ahead_bytes = encoding.ahead_bytes(workers, decoding_side_bytes(encoding.frame_size_bytes))?;
        let is_input_unwanted = AtomicBool::default();
        let write = |frames: &mut FrameFiller<'_>, read_progress: &dyn Progress| {
            let output = OutputWriter {
                new_archives: &new_archives,
                old_archive: &old_archive,
                new_bank,
                old_bank,
                changes,
                threads: workers,
                ahead_bytes,
                progress: read_progress,
            };
            output.write(frames)
        };
        let totals = reframe(&mut writer, encoding, workers, &is_input_unwanted, self.progress, write)?;
        check_totals(old_bank, new_bank, changes.counts, &totals)?;
        let note = format!("{REBASED_ON}{}", old_bank.snapshot_hash());
        let entries = totals.entries.iter().copied();
        let written = writer.finish(entries, Some(&note), encoding.frame_size_bytes)?;
        Ok((totals.entries, written))
    }
}

fn check_totals(old: &BankFile, new: &BankFile, changes: ChangeCounts, totals: &RebasedTotals) -> Result<()> {
    let ChangeCounts { accounts_changed, accounts_new, accounts_closed, .. } = changes;
    let mut sum = sum_of(old);
    sum.subtract(&totals.outdated);
    sum.add(&totals.written);
    let has_all_records = (totals.records, totals.tombstones) == (accounts_changed + accounts_new, accounts_closed);
    if has_all_records && sum == sum_of(new) {
        return Ok(());
    }
    Err(Error::damaged("the archives do not add up to the new state: they changed while they were read")
        .with_hint("try again; if it happens again, suspect the disk or the memory"))
}

/// Opens a file once for all passes, so that a file that replaces it is never read.
fn open_once(archive: &ArchiveInput) -> Result<ArchiveInput> {
    match &archive.source {
        Some(_) => Ok(archive.clone()),
        None => Ok(ArchiveInput::from_source(Arc::new(LocalFile::open(&archive.path)?), archive.name.clone())),
    }
}

/// Opens the archives of the new state once. A ledger stays locked until the result is dropped.
fn open_state(options: &RebaseOptions, progress: &dyn Progress) -> Result<Snapshot> {
    match &options.state {
        Snapshot::Archive(archive) => Ok(Snapshot::Archive(open_once(archive)?)),
        Snapshot::Pair { full, incremental } => Ok(Snapshot::pair(open_once(full)?, open_once(incremental)?)),
        Snapshot::Ledger { paths, slot, .. } => {
            let mut ledger = ArchiveOptions::new(paths.clone()).encoding(options.encoding.clone());
            ledger.slot = *slot;
            Ok(Snapshot::Archive(ledger_as_archive(&ledger, progress)?))
        }
    }
}

fn length_bytes(archive: &ArchiveInput) -> Result<u64> {
    Ok(archive.length_bytes()?.unwrap_or_default())
}

fn estimate_unpacked_bytes(archive: &ArchiveInput) -> Result<u64> {
    let is_tar = archive.name.as_ref().is_some_and(|name| name.compression == ArchiveCompression::None);
    Ok(length_bytes(archive)?.saturating_mul(if is_tar { 1 } else { RATIO_UPPER_ESTIMATE }))
}

/// Refuses states that [`require_newer_state`] refuses, and a new state that Agave does not load.
fn judge_banks(old: &BankFile, new: &BankFile) -> Result<()> {
    require_newer_state(old, new)?;
    match rule_against_agave(new) {
        Some(rule) => Err(rule.unsupported_error()),
        None => Ok(()),
    }
}

/// Verifies a state and logs its records. Fails at a broken rule for which `is_refused` returns true.
/// Returns the bank file, and the slots of the storages.
fn read_state(
    log: &StateLog,
    state: &Snapshot,
    options: &VerifyOptions,
    is_refused: fn(Rule) -> bool,
    progress: &dyn Progress,
) -> Result<(BankFile, ReadState)> {
    let (report, bank) = verify_with_visitor(state, options, log, progress)?;
    let path = || state.archives().next_back().map_or_else(String::new, |newest| newest.path.escaped());
    if let Some(failure) = report.failures.iter().find(|failure| is_refused(failure.rule)) {
        let place = failure.place.path.as_ref().map_or_else(path, |path| path.escaped());
        return Err(failure.to_error().with_place(place));
    }
    if let Some(why) = report.skip_reason(Check::State) {
        return Err(Error::damaged(format!("the state cannot be checked: {why}")).with_place(path()));
    }
    let bank = bank.ok_or_else(|| Error::damaged("the archive holds no bank file").with_place(path()))?;
    Ok((bank, log.end_state()?))
}

fn sum_of(bank: &BankFile) -> StateSum {
    StateSum { lattice: bank.lattice_hash.clone(), lamports: u128::from(bank.capitalization) }
}

/// Reads the written file back before it is renamed into place. The sums have already checked its state.
fn read_back(sink: &dyn Sink, name: &ArchiveName, options: &RebaseOptions, progress: &dyn Progress) -> Result<()> {
    let Some(file) = sink.staged_file() else { return Ok(()) };
    let check = CheckOptions::default().memory_bytes(options.check.memory_bytes);
    let archive = ArchiveInput::from_source(open_written(file)?, Some(name.clone()));
    read_back_archive(&check, &archive, None, options.encoding.threads, progress).map(drop)
}
