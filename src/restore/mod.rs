//! Archive to ledger: check the target, unpack beside it, check what came out, move it into place.
//!
//! Everything is written under temporary directories, and synced, before anything gets its final name; the mark of
//! completeness, `fastboot_version`, comes last of all. A restore that fails, or is killed, leaves nothing that a
//! validator would take for a ledger.

pub mod assign;
mod convert;
pub mod copies;
pub mod dry_run;
mod finish;
mod input;
mod journal;
pub mod made_dirs;
mod newer;
mod options;
pub mod place;
mod superseded;
mod target;
mod unpack;

use std::path::PathBuf;

pub use input::is_standard_input;
#[cfg(feature = "net")]
pub use input::{Supplied, Supply};
pub use options::{ExistingState, RestoreLayout, RestoreOptions, RestoreReport, RestoreTarget};
use slotpress_base::{Elapsed, Error, Progress, Result, ShowPath, Space, Step, Stopwatch, Watch};
use slotpress_format::ledger::names::Extension;
use slotpress_format::{ArchiveName, BankFile, BankSnapshot, Genesis, Root, StorageMapItem};
use slotpress_read::archive::Archive;
use slotpress_read::rules::pair::swapped;
use slotpress_read::{
    Assurance, FailedRead, Findings, HashCheck, IndexPolicy, RATIO_TYPICAL, ReadError, Rule, SeenSlots, SizeLimit,
    StateCheck, StateOutcome, Task, check_base, is_rebased, judge_chains, judge_expected, judge_rebased_on, judge_root,
    judge_storage_map, read_back_snapshot,
};

use crate::restore::assign::{AssignedStorage, Assigner};
use crate::restore::convert::Part;
use crate::restore::finish::{Written, finish_archive_layout, finish_boot_layout};
use crate::restore::input::{Feed, Inputs};
use crate::restore::newer::RestoredSlots;
use crate::restore::place::{BANK_FILE_PARTIAL, PartialDir};
use crate::restore::superseded::read_superseded;
use crate::restore::target::{MAINNET_RATIO, RATIO_MIN, Target};
use crate::restore::unpack::{Unpacked, Unpacker, refused};

/// Restores one archive, or a full and an incremental one: plans it, and executes the plan.
///
/// # Errors
/// Of [`ErrorKind::Damaged`](crate::ErrorKind::Damaged) where an archive is not sound, or is not what its name says. A ledger
/// that is in use or holds a state already, a disk that fails or is full. The ledger is then as it was before.
pub fn restore(options: &RestoreOptions, progress: &dyn Progress) -> Result<RestoreReport> {
    plan_restore(options, progress)?.execute(progress)
}

/// Opens the archives and the target, and checks whether they fit together.
///
/// # Errors
/// As of [`restore()`], but for what is found in the archives' contents.
pub fn plan_restore(options: &RestoreOptions, progress: &dyn Progress) -> Result<RestorePlan> {
    let stopwatch = Stopwatch::start();
    let io_hint = options.target.io_policy.io_hint;
    let watch = io_hint.watch(options.paths().filter(|path| !is_standard_input(path)));
    let inputs = Inputs::open(options, progress)?;
    inputs.check_pair(options)?;
    let target = Target::prepare(&options.target)?;
    let newer = inputs.slots().map_or(Ok(Vec::new()), |slots| target.archives_in_the_way(slots))?;
    let newer = newer.iter().map(|one| one.from.path()).collect();
    Ok(RestorePlan { options: options.clone(), inputs, target, newer, stopwatch, _watch: watch })
}

/// A restore that is planned, and has written nothing. It holds the target ledger's lock, and directories that were missing; they
/// go when it is dropped.
pub struct RestorePlan {
    options: RestoreOptions,
    inputs: Inputs,
    target: Target,
    /// Archives in the target's archives directory that a validator must not find beside the state.
    newer: Vec<PathBuf>,
    stopwatch: Stopwatch,
    _watch: Watch,
}

impl RestorePlan {
    /// Unpacks, checks and moves everything into place.
    ///
    /// # Errors
    /// As of [`restore()`].
    pub fn execute(self, progress: &dyn Progress) -> Result<RestoreReport> {
        let Self { options, inputs, mut target, stopwatch, _watch, .. } = self;
        let report = inputs.with_archives(&target, &options, progress, &mut |feed| {
            progress.steps(&steps(&feed, &options.target));
            progress.detail(&describe(&feed, &options.target));
            Run { target: &target, options: &options.target, progress }.restore(feed)
        })?;
        target.keep();
        // Read back to check it, or written by the way.
        options.target.io_policy.io_hint.write_out_dir(&report.path);
        Ok(RestoreReport { elapsed: stopwatch.elapsed(), ..report })
    }
}

fn steps(feed: &Feed<'_>, options: &RestoreTarget) -> Vec<Step> {
    let mut steps: Vec<Step> = feed.lengths().map(|bytes| Step::new("Restoring", bytes)).collect();
    if options.read_back.is_some() {
        // Reading back is of unpacked storages; as long as nothing better is known, as much as the archives.
        steps.push(Step::new("Verifying", feed.lengths().sum()));
    }
    let copies = feed.copies_bytes().filter(|bytes| *bytes > 0);
    steps.extend(copies.map(|bytes| Step::new("Copying", Some(bytes))));
    let made = (0..feed.archives.len()).filter(|number| feed.is_made(*number));
    steps.extend(made.map(|_| Step::new("Archiving", None)));
    steps.push(Step::new("Syncing", Some(0)));
    steps
}

fn describe(feed: &Feed<'_>, options: &RestoreTarget) -> String {
    let bytes: Option<u64> = feed.lengths().sum();
    format!(
        "plan: {} to read, {} to copy into the archives directory; workers: {}, page cache: {}",
        bytes.map_or("an unknown size".to_string(), slotpress_base::quantity::bytes),
        slotpress_base::quantity::bytes(feed.copies_bytes().sum()),
        options.threads,
        options.io_policy.io_hint.as_str()
    )
}

#[cfg(feature = "net")]
pub fn restore_supplied(
    supply: &mut dyn Supply,
    options: &RestoreTarget,
    expect_roots: &[Root],
    progress: &dyn Progress,
) -> Result<RestoreReport> {
    let stopwatch = Stopwatch::start();
    let mut target = Target::prepare(options)?;
    let report = Run { target: &target, options, progress }.restore(Feed::of_supply(supply, expect_roots))?;
    target.keep();
    options.io_policy.io_hint.write_out_dir(&report.path);
    Ok(RestoreReport { elapsed: stopwatch.elapsed(), ..report })
}

/// A restore that runs: what all its steps need.
#[derive(Clone, Copy)]
struct Run<'a> {
    target: &'a Target,
    options: &'a RestoreTarget,
    progress: &'a dyn Progress,
}

impl Run<'_> {
    /// Unpacks archives beside their place, checks them, and moves everything into place.
    fn restore(self, mut feed: Feed<'_>) -> Result<RestoreReport> {
        let Self { target, options, progress } = self;
        if feed.archives.is_empty() {
            feed.open_next(&target.snapshots_dir, options, progress)?;
        }
        for number in 0..feed.archives.len() {
            check_archive(&feed, number)?;
        }
        SizeLimit::new(options.check.max_bytes).check_indexes(feed.archives.iter())?;
        self.check_space(&feed.archives, feed.copies_bytes().sum())?;
        target.delete_existing(progress)?;
        let roots = target.create_partial_roots()?;
        let restored = loop {
            match self.unpack_all(&mut feed, &roots) {
                // The tar stream is the truth, the index a hint: once more without it.
                Err(FailedRead { archive: Some(number), error: ReadError::Index(error) })
                    if feed.archives[number].tail.is_some() && number >= feed.expect_roots.len() =>
                {
                    feed.archives[number].distrust_index(error);
                    feed.archives[number].warn_of_index(progress);
                    roots.iter().try_for_each(PartialDir::clear)?;
                }
                Err(FailedRead { archive, error }) => {
                    let error = Error::from(error);
                    // What is of all of them is told of the newest.
                    return Err(match archive.and_then(|number| feed.archives.get(number)).or(feed.archives.last()) {
                        Some(archive) => error.within_damaged(archive.path().shown()),
                        None => error,
                    });
                }
                Ok(restored) => break restored,
            }
        };
        let (archives, mut copies) = feed.into_parts();
        let Restored { mut parts, base_slot, mut names, mut storages, assurance } = restored;
        let newest = newest_of(&parts)?;
        let bank = newest.unpacked.bank.clone();

        progress.check()?;
        let mut read_back_report = None;
        if let Some(check) = &options.read_back {
            let snapshot = unpacked_snapshot(bank.slot, &newest.bank_snapshot, &roots, options.threads)?;
            // An incremental archive alone is restored as its tree only.
            let base_slot = archives[0].base_slot();
            read_back_report = Some(read_back_snapshot(check, snapshot, base_slot, options.threads, progress)?);
        }
        for ((part, copy), name) in
            parts.iter().zip(&mut copies).zip(&mut names).filter(|((_, copy), _)| copy.is_made())
        {
            copy.set_made(self.make_archive(part, &storages, &roots)?);
            name.extension = Extension::TarZstd;
        }
        storages.sort_unstable_by_key(|storage| (storage.slot, storage.id));
        let Some(Part { bank_snapshot, .. }) = parts.pop() else { return Err(Error::failed("no archive")) };
        drop(parts);
        let added = storages.iter().filter(|storage| base_slot.is_some_and(|base_slot| storage.slot > base_slot));
        let is_rebased = is_rebased(bank.slot, added.map(|storage| (storage.slot, storage.archive_id)));
        let slots = RestoredSlots { newest: bank.slot, rebased_on: base_slot.filter(|_| is_rebased) };
        let newer = target.archives_in_the_way(slots)?;
        let written = Written { roots, bank_snapshot };
        let (path, archives_placed) = match options.layout {
            RestoreLayout::Boot => {
                let copies = copies.into_iter().zip(names).collect();
                finish_boot_layout(target, bank.slot, &storages, written, copies, &newer, progress)?
            }
            RestoreLayout::Archive => (finish_archive_layout(target, bank.slot, &storages, written)?, Vec::new()),
        };
        Ok(RestoreReport {
            path,
            slot: bank.slot,
            base_slot,
            hash: bank.snapshot_hash(),
            storages: storages.len() as u64,
            input_bytes: archives.iter().map(Archive::length_bytes).sum(),
            output_bytes: storages.iter().map(|storage| storage.content_bytes).sum(),
            archives: archives_placed,
            accounts: target.accounts.iter().map(|dir| dir.path().to_path_buf()).collect(),
            replaced: target.replaced_dirs(&newer),
            assurance,
            read_back: read_back_report,
            elapsed: Elapsed::default(),
        })
    }

    /// Unpacks all archives, and checks the state that they make up.
    fn unpack_all(self, feed: &mut Feed<'_>, roots: &[PartialDir]) -> Result<Restored, FailedRead> {
        let (options, progress) = (self.options, self.progress);
        let is_tree = options.layout == RestoreLayout::Archive;
        let is_part = feed.archives.first().is_some_and(|archive| archive.base_slot().is_some());
        let state = options.check.checks_state(is_part)?.then(|| self.new_state_check(&feed.archives)).transpose()?;
        let mut assigner = Assigner::new(roots.len() as u16, is_tree);
        let (seen_slots, size_limit) = (SeenSlots::default(), SizeLimit::new(options.check.max_bytes));
        let unpacker = Unpacker { run: self, roots, seen_slots, size_limit, state: state.as_ref() };
        let mut parts: Vec<Part> = Vec::new();
        let mut names = Vec::new();
        for number in 0.. {
            if number == feed.archives.len() {
                if !feed.open_next(&self.target.snapshots_dir, options, progress)? {
                    feed.check_count()?;
                    break;
                }
                check_archive(feed, number)?;
                self.check_space(&feed.archives[number..], 0)?;
            }
            let archive = &feed.archives[number];
            let base_slot = parts.last().map(|full| full.unpacked.bank.slot).or(archive.base_slot());
            check_base(archive.base_slot(), base_slot)?;
            if let Some(full) = parts.last() {
                judge_rebased_on(archive, full.unpacked.bank.snapshot_hash(), &Findings::refusing(|_| true))
                    .map_err(|error| FailedRead::of(number, error.into()))?;
            }
            progress.stage("Restoring", archive.source.length_bytes());
            // The bank file, status cache and version of the newer archive are the ones that stay.
            let bank_snapshot = self.target.create_partial_bank()?;
            let is_hashed_in_passing = is_hashed_in_passing(archive, feed.index);
            let hashes = if number < feed.expect_roots.len() { HashCheck::All } else { HashCheck::None };
            let first = assigner.storages().len();
            let full = parts.last().map(|full| &full.unpacked);
            let mut unpack_one = || -> Result<Unpacked, ReadError> {
                let one = unpacker.unpack(archive, base_slot, &mut assigner, &bank_snapshot, hashes)?;
                let may_be_swapped = number == 0 && archive.name.is_none() && feed.archives.len() > 1;
                match check_map(&one, full, base_slot) {
                    Err(_) if may_be_swapped && is_incremental(&one) => {
                        return Err(swapped(archive.path(), feed.archives[1].path()).into());
                    }
                    result => result?,
                }
                if let Some(full) = full {
                    judge_chains(&full.bank, &one.bank, &Findings::refusing(|_| true))?;
                }
                check_chain(&one.bank, options)?;
                if is_hashed_in_passing {
                    check_root(one.root, number, &feed.expect_roots)?;
                }
                Ok(one)
            };
            let unpacked = unpack_one().map_err(|error| FailedRead::of(number, error))?;
            names.push(final_name(archive, &unpacked.bank, base_slot));
            let storages = first..assigner.storages().len();
            parts.push(Part { unpacked, bank_snapshot, storages });
        }
        let newest = newest_of(&parts)?;
        let outcome = match &state {
            None => StateOutcome::not_asked(),
            Some(state) => state.finish(&newest.unpacked.bank, options.threads, progress, &mut |task, _| {
                self.subtract(state, task, &assigner, roots)
            })?,
        };
        judge_expected(newest.unpacked.bank.slot, newest.unpacked.bank.snapshot_hash(), &options.check)?;
        let storages = assigner.into_storages();
        let has_index = feed.archives.iter().all(|archive| archive.tail.is_some());
        let assurance = Assurance::new(outcome, &newest_of(&parts)?.unpacked.bank, has_index);
        let base_slot = parts.iter().rev().nth(1).map(|full| full.unpacked.bank.slot);
        Ok(Restored { parts, base_slot, names, storages, assurance })
    }

    /// Has superseded records read again from where they were placed.
    fn subtract(self, state: &StateCheck, task: Task<'_>, assigner: &Assigner, roots: &[PartialDir]) -> Result<()> {
        let (options, progress) = (self.options, self.progress);
        progress.stage("Subtracting", None);
        let Task::Subtract(list) = task else { return Ok(()) };
        if list.has_duplicates() {
            return Err(Error::damaged("an account occurs twice in one storage"));
        }
        let (storages, hint) = (assigner.storages(), options.io_policy.io_hint);
        read_superseded(list, storages, roots, hint, &state.pass(task), options.threads, progress)
    }

    /// Gets ready for checking the state; what does not fit in memory is spilled beside the output, on a disk.
    fn new_state_check(self, archives: &[Archive]) -> Result<StateCheck> {
        let options = self.options;
        let bytes = unpacked_bytes(archives, RATIO_TYPICAL);
        let spill_dir = options.check.spill_dir(Some(self.target.snapshots_dir.path()));
        StateCheck::new(options.check.memory_bytes, &spill_dir, bytes, refused(options.layout))
    }

    /// Refuses where there is no room for what archives hold at the least, and warns where there is none for what they usually
    /// hold: without an index, that is all that is known before the end.
    fn check_space(self, archives: &[Archive], bytes_to_copy: u64) -> Result<()> {
        // Where no index tells, as many as an archive of this length and ratio holds.
        let check = |ratio: u64| {
            let unpacked = unpacked_bytes(archives, ratio);
            self.target.space_for(unpacked, bytes_to_copy)?.iter().try_for_each(Space::check)
        };
        check(RATIO_MIN)?;
        if let Err(error) = check(MAINNET_RATIO) {
            self.progress.warn(&format!("{error}, if the archive unpacks as mainnet's do"));
        }
        Ok(())
    }
}

fn newest_of(parts: &[Part]) -> Result<&Part> {
    parts.last().ok_or_else(|| Error::failed("no archive"))
}

/// Unpacked and checked contents of all archives.
struct Restored {
    parts: Vec<Part>,
    base_slot: Option<u64>,
    names: Vec<ArchiveName>,
    storages: Vec<AssignedStorage>,
    assurance: Assurance,
}

/// Refuses an archive that is not the one that was asked for. Of one that is hashed as it passes, nothing is known before its
/// end.
fn check_archive(feed: &Feed<'_>, number: usize) -> Result<()> {
    let archive = &feed.archives[number];
    match is_hashed_in_passing(archive, feed.index) {
        true => Ok(()),
        false => check_root(archive.root(), number, &feed.expect_roots)
            .map_err(|error| error.within_damaged(archive.path().shown())),
    }
}

/// True if the root is compared while the archive is read: it is still arriving, or its index is ignored.
fn is_hashed_in_passing(archive: &Archive, index: IndexPolicy) -> bool {
    archive.source.length_bytes().is_none() || index == IndexPolicy::Ignore
}

fn check_root(root: Option<Root>, number: usize, expect_roots: &[Root]) -> Result<()> {
    judge_root(expect_roots.get(number).copied(), root, &Findings::refusing(|_| true))
}

/// Bytes that archives unpack to, as their indexes tell, or as many as those of such a length and ratio hold.
fn unpacked_bytes(archives: &[Archive], ratio: u64) -> u64 {
    let of_length = |archive: &Archive| archive.length_bytes().saturating_mul(ratio);
    let of = |it: &Archive| it.tail.as_ref().map_or_else(|| of_length(it), |tail| tail.index.tar_bytes());
    archives.iter().map(of).fold(0, u64::saturating_add)
}

/// Refuses the archive of another chain than that of the ledger's genesis, where the ledger has one: Agave compares the two, and
/// ends. One that cannot be read is the validator's to judge.
fn check_chain(bank: &BankFile, options: &RestoreTarget) -> Result<()> {
    let Some(path) = options.genesis().filter(|_| options.layout == RestoreLayout::Boot) else { return Ok(()) };
    match Genesis::read(&path) {
        Ok(genesis) if !genesis.is_of(bank) => {
            Err(Error::damaged(format!("the archive is of another chain than {}", path.shown()))
                .with_hint("restore it into a ledger of its own cluster, or take an archive of this one"))
        }
        _ => Ok(()),
    }
}

/// Checks an archive's storages, with those of the full one below it, against its storage map.
fn check_map(archive: &Unpacked, full: Option<&Unpacked>, base_slot: Option<u64>) -> Result<()> {
    let Some((_, map)) = &archive.judged.bank else { return Ok(()) };
    let mut storages = archive.judged.entries.storages().to_vec();
    storages.extend(full.into_iter().flat_map(|full| full.judged.entries.storages()));
    // Such a map may name these storages; not Firedancer's, whose ids differ.
    let has_map = full.is_some_and(|full| full.bank.storage_count > 0);
    judge_storage_map(map, &storages, base_slot, has_map, &Findings::refusing(Rule::is_refused))
}

/// True if an archive without a telling name is incremental: all storages that its map names but it lacks are older
/// than those it holds.
fn is_incremental(archive: &Unpacked) -> bool {
    let Some((_, map)) = &archive.judged.bank else { return false };
    let held = archive.judged.entries.storages();
    let Some(oldest) = held.iter().map(|(slot, _)| *slot).min() else { return false };
    let is_held = |item: &&StorageMapItem| item.slot >= oldest;
    map.len() > held.len() && map.iter().filter(is_held).count() == held.len()
}

/// The name under which a validator finds an archive: its own, or for a file of another name the one that its content
/// asks for.
fn final_name(archive: &Archive, bank: &BankFile, base_slot: Option<u64>) -> ArchiveName {
    let extension = archive.compression.extension();
    ArchiveName { base_slot, slot: bank.slot, hash: bank.snapshot_hash(), extension }
}

/// Describes the unpacked files in their partial directories as a bank snapshot.
fn unpacked_snapshot(
    slot: u64,
    bank_snapshot: &PartialDir,
    roots: &[PartialDir],
    threads: usize,
) -> Result<BankSnapshot> {
    let dir = &bank_snapshot.path;
    let files = [BANK_FILE_PARTIAL, "status_cache", "version"].map(|name| dir.join(name));
    BankSnapshot::of_parts(slot, dir.clone(), files, roots.iter().map(|root| root.path.clone()), threads)
}
