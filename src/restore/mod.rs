//! Restores archives to a ledger: checks the target, unpacks to temporary directories, checks the
//! result, and moves it into place.
//!
//! Each file is synced before it gets its final name. The bank snapshot, which `fastboot_version` marks
//! as complete, gets its final name last. A restore that fails or is killed leaves nothing that a
//! validator would take for a ledger.
//!
//! ```no_run
//! use slotpress::NoProgress;
//! use slotpress::restore::{RestoreOptions, restore};
//!
//! let archive = "/mnt/snapshots/snapshot-350006937-….tar.zst";
//! let options = RestoreOptions::new(archive, "/mnt/new-ledger");
//! let report = restore(&options, &NoProgress)?;
//! println!("slot {}, ready to boot from {}", report.slot, report.path.display());
//! # Ok::<(), slotpress::Error>(())
//! ```

pub(crate) mod assign;
mod check;
mod conflicts;
pub(crate) mod copies;
pub(crate) mod created_dirs;
mod finish;
mod input;
mod journal;
mod options;
pub(crate) mod place;
mod superseded;
pub(crate) mod target;
mod unpack;

use std::collections::{BTreeSet, HashMap};
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

#[cfg(feature = "net")]
pub(crate) use input::{SuppliedArchive, Supply, unsupported_compression_error};
pub use options::{ExistingState, RestoreOptions, RestoreReport, TargetOptions};
use slotpress_base::{
    Elapsed, Error, IoContext, Progress, Result, Space, Stage, Step, Stopwatch, flusher_memory_bytes, quantity,
};
use slotpress_format::{
    ArchiveCompression, ArchiveName, BankStakes, FieldReader, StorageMapItem, parse_bank_file_lenient,
};
use slotpress_read::{Assurance, LocalArchive, LocalFile, RATIO_UPPER_ESTIMATE, SeenSlots, StateBuilder};
pub(crate) use target::MAINNET_RATIO;
#[cfg(feature = "net")]
pub(crate) use target::Preview;

use crate::restore::assign::{AssignedStorage, Assigner};
use crate::restore::conflicts::{RestoredSlots, plan_moves_aside};
use crate::restore::finish::complete_ledger;
use crate::restore::input::{ArchiveToRestore, RestoreInput, current_path, with_archives};
use crate::restore::journal::Move;
use crate::restore::place::{BANK_FILE_PARTIAL, PartialDir};
use crate::restore::target::{RATIO_MIN, RestoredBytes, Target, needed_spaces};
use crate::restore::unpack::{UnpackedArchive, Unpacker};

/// Restores one archive, or a full and an incremental one.
///
/// # Errors
/// [`ErrorKind::Damaged`](crate::ErrorKind::Damaged) if an archive is damaged, or does not match
/// its name. Also fails if the ledger is in use, or holds a state that may not be moved aside, or if the
/// disk fails or is full. After an error, the ledger is as it was, except that it may hold a new lock file.
pub fn restore(options: &RestoreOptions, progress: &dyn Progress) -> Result<RestoreReport> {
    for path in options.archives().filter_map(LocalArchive::path) {
        // A missing archive is reported before the target is changed.
        LocalFile::open(&current_path(path, options))?;
    }
    let newest = options.archives().last().and_then(LocalArchive::path);
    let newest_name = newest.and_then(ArchiveName::from_path);
    restore_into(&options.target, newest_name.as_ref(), progress, |job| {
        let io_hint = options.target.io_policy.io_hint;
        let _watch = io_hint.watch(options.archives().filter_map(LocalArchive::path));
        with_archives(job, options, |input| {
            input.check_pair(&options.target.check)?;
            if let Some(slots) = input.slots() {
                // Refuse conflicting archives now, before anything is unpacked.
                plan_moves_aside(job.target, slots)?;
            }
            progress.steps(&plan_steps(&input));
            progress.detail(&describe(&input, &options.target));
            job.restore(input)
        })
    })
}

#[cfg(feature = "net")]
pub(crate) fn restore_supplied(
    supply: &mut dyn Supply,
    options: &TargetOptions,
    expect_roots: &[slotpress_format::ArchiveRoot],
    progress: &dyn Progress,
) -> Result<RestoreReport> {
    restore_into(options, None, progress, |job| job.restore(RestoreInput::new(job, Some(supply), expect_roots)))
}

/// Prepares the target, and calls `work` to restore into it. `newest_name` names the archive whose state
/// is restored.
fn restore_into(
    options: &TargetOptions,
    newest_name: Option<&ArchiveName>,
    progress: &dyn Progress,
    work: impl FnOnce(RestoreJob<'_>) -> Result<RestoreReport>,
) -> Result<RestoreReport> {
    let stopwatch = Stopwatch::start();
    let mut target = Target::prepare(options, newest_name)?;
    let written = [&target.snapshots_dir].into_iter().chain(&target.accounts);
    let result = work(RestoreJob { target: &target, options, progress });
    let report = result.map_err(|error| target.old.hint_at_old_states(error, written))?;
    target.created.keep();
    // The files are on disk: this drops their pages from the page cache.
    options.io_policy.io_hint.write_out_dir(&report.path);
    Ok(RestoreReport { elapsed: stopwatch.elapsed(), ..report })
}

fn plan_steps(input: &RestoreInput<'_>) -> Vec<Step> {
    let mut steps: Vec<Step> = input.lengths().map(|bytes| Step::new(Stage::Restoring, bytes)).collect();
    let copies = input.bytes_to_copy().filter(|bytes| *bytes > 0);
    steps.extend(copies.map(|bytes| Step::new(Stage::Copying, Some(bytes))));
    steps.push(Step::new(Stage::Syncing, Some(0)));
    steps
}

fn describe(input: &RestoreInput<'_>, options: &TargetOptions) -> String {
    let input_bytes: Option<u64> = input.lengths().sum();
    format!(
        "plan: {} to read, {} to copy into the snapshots directory; workers: {}, page cache: {}",
        input_bytes.map_or("an unknown size".to_string(), quantity::bytes),
        quantity::bytes(input.bytes_to_copy().sum()),
        options.threads,
        options.io_policy.io_hint.as_str()
    )
}

#[derive(Clone, Copy)]
struct RestoreJob<'a> {
    target: &'a Target,
    options: &'a TargetOptions,
    progress: &'a dyn Progress,
}

impl RestoreJob<'_> {
    fn restore(self, mut input: RestoreInput<'_>) -> Result<RestoreReport> {
        if input.opened.is_empty() {
            input.open_next()?;
        } else {
            self.check_space(&input.opened)?;
        }
        let run_dirs = self.target.create_partial_dirs("run")?;
        let restored = self.unpack_all(&mut input, &run_dirs)?;
        self.progress.check()?;
        self.place(input.opened, restored, run_dirs)
    }

    fn unpack_all(self, input: &mut RestoreInput<'_>, run_dirs: &[PartialDir]) -> Result<Restored> {
        let first = input.archives().next();
        let lacks_full = first.is_some_and(|first| first.base_slot().is_some());
        let checks_state = self.options.check.checks_state(lacks_full)?;
        let state = if checks_state { Some(self.begin_state_check(&input.opened)?) } else { None };
        let assigner = Assigner::new(run_dirs.len() as u16);
        let mut unpacker = Unpacker { job: self, run_dirs, assigner, seen_slots: SeenSlots::default(), state };
        let mut unpacked: Vec<UnpackedArchive> = Vec::new();
        while unpacked.len() < input.opened.len() || input.open_next()? {
            // The archive that was unpacked last, on which the next archive builds.
            let full = input.opened.iter().zip(&unpacked).next_back();
            let next = &input.opened[unpacked.len()];
            let is_base = unpacked.len() + 1 < input.opened.len();
            let checked = unpacker.unpack_checked(next, full, is_base);
            unpacked.push(checked.map_err(|error| next.add_path(error))?);
        }
        input.require_expected_archives()?;
        let has_base_without_map = matches!(&unpacked[..], [base, _] if base.bank.storage_count == 0);
        let newest = unpacked.last_mut().ok_or_else(no_archive_error)?;
        let last = input.opened.last().ok_or_else(no_archive_error)?;
        let checked = unpacker.check_state(newest, input);
        let assurance = checked.map_err(|error| last.add_path(error))?;
        let storages = unpacker.assigner.storages;
        if newest.bank.storage_count > 0 && (has_base_without_map || !newest.has_map_of(&storages)?) {
            newest.leave_out_storage_map()?;
        }
        Ok(Restored { storages, unpacked, assurance })
    }

    /// Moves the unpacked files and the archives into place. The ledger gets the newest archive's
    /// bank file, status cache and version.
    fn place(
        self,
        opened: Vec<ArchiveToRestore>,
        restored: Restored,
        run_dirs: Vec<PartialDir>,
    ) -> Result<RestoreReport> {
        let target = self.target;
        let Restored { mut unpacked, mut storages, assurance } = restored;
        let lengths = opened.iter().filter_map(|opened| opened.archive.source.length_bytes());
        let input_bytes = lengths.sum();
        // A validator finds an archive by the name that follows from its content.
        let name_of = |(opened, unpacked): (&ArchiveToRestore, &UnpackedArchive)| {
            unpacked.bank.archive_name(unpacked.base_slot, opened.archive.compression)
        };
        let names: Vec<ArchiveName> = opened.iter().zip(&unpacked).map(name_of).collect();
        storages.sort_unstable_by_key(|storage| (storage.slot, storage.id));
        let newest = unpacked.pop().ok_or_else(no_archive_error)?;
        let slot = newest.bank.slot;
        let hash = newest.bank.snapshot_hash();
        let mut genesis = self.options.genesis.iter();
        let genesis = genesis.find(|genesis| genesis.matches(&newest.bank)).copied();
        let base_slot = unpacked.pop().map(|base| base.bank.slot);
        let is_added = |storage: &&AssignedStorage| base_slot.is_some_and(|base_slot| storage.slot > base_slot);
        let added = storages.iter().filter(is_added);
        let added = added.map(|storage| (storage.slot, storage.archive_id));
        let slots = RestoredSlots::new(slot, base_slot, added);
        let moves_aside = [target.old.moves.clone(), plan_moves_aside(target, slots)?].concat();
        let replaced: BTreeSet<PathBuf> = moves_aside.iter().map(Move::top_path).collect();
        let archives = opened.into_iter().zip(names).collect();
        let (path, archives) = complete_ledger(self, newest, &storages, run_dirs, archives, moves_aside)?;
        let accounts = target.accounts.iter().map(|dir| dir.path().to_path_buf());
        Ok(RestoreReport {
            path,
            slot,
            base_slot,
            hash,
            storages: storages.len() as u64,
            input_bytes,
            output_bytes: storages.iter().map(|storage| storage.content_bytes).sum(),
            archives,
            accounts: accounts.collect(),
            replaced: replaced.into_iter().collect(),
            assurance,
            // `restore_into` sets it.
            elapsed: Elapsed::default(),
            genesis,
        })
    }

    /// Prepares a check of the state. Data that does not fit in memory is spilled to the directory
    /// that `CheckOptions::spill_dir` chooses.
    fn begin_state_check(self, archives: &[ArchiveToRestore]) -> Result<StateBuilder> {
        let check = &self.options.check;
        let memory_bytes = check.memory_bytes - flusher_memory_bytes(check.memory_bytes);
        let unpacked_bytes = estimate_unpacked_bytes(archives, RATIO_UPPER_ESTIMATE);
        let spill_dir = check.spill_dir(Some(self.target.snapshots_dir.path()));
        let accounts = StateBuilder::new(memory_bytes, &spill_dir, unpacked_bytes)?;
        accounts.log.check_expected_space(memory_bytes)?;
        Ok(accounts)
    }

    /// Refuses to restore if the content does not fit even at the lowest ratio, and warns if it does not fit
    /// at the usual ratio. Without an index, the exact size is known only at the end.
    fn check_space(self, archives: &[ArchiveToRestore]) -> Result<()> {
        let archives_bytes = archives.iter().map(ArchiveToRestore::bytes_to_copy).sum();
        let check = |ratio: u64| {
            let bytes = RestoredBytes { unpacked_bytes: estimate_unpacked_bytes(archives, ratio), archives_bytes };
            let spaces = needed_spaces(&self.target.accounts, &self.target.snapshots_dir, bytes)?;
            spaces.iter().try_for_each(Space::check)
        };
        check(RATIO_MIN)?;
        if let Err(error) = check(MAINNET_RATIO) {
            self.progress.warn(&format!("{error}, if the archive compresses as mainnet's do"));
        }
        Ok(())
    }
}

/// Returns the unpacked size of archives, from their indexes. Without an index, estimates it from the
/// archive's length and `ratio`.
fn estimate_unpacked_bytes(archives: &[ArchiveToRestore], ratio: u64) -> u64 {
    let unpacked_bytes = |ArchiveToRestore { archive, .. }: &ArchiveToRestore| {
        let length_bytes = archive.source.length_bytes().unwrap_or_default();
        match &archive.tail {
            Some(tail) => tail.index.tar_bytes(),
            None if archive.compression == ArchiveCompression::None => length_bytes,
            None => length_bytes.saturating_mul(ratio),
        }
    };
    archives.iter().map(unpacked_bytes).fold(0, u64::saturating_add)
}

fn no_archive_error() -> Error {
    Error::failed("there is no archive to restore")
        .with_hint("pass a full archive, alone or with an incremental one on it")
}

struct Restored {
    unpacked: Vec<UnpackedArchive>,
    /// Storages of all archives, in the order of the archives.
    storages: Vec<AssignedStorage>,
    assurance: Assurance,
}

impl UnpackedArchive {
    /// True if the bank file's storage map names these storages with their lengths. A storage of the full
    /// archive may have a different length in the map, or be missing from it: the validator may have
    /// rewritten or emptied the storage before it wrote the map.
    fn has_map_of(&self, storages: &[AssignedStorage]) -> Result<bool> {
        let file = self.bank_snapshot.dir().open_file(BANK_FILE_PARTIAL)?;
        let metadata = file.metadata().or_path("read", &self.bank_snapshot.path)?;
        let fields = FieldReader::new(BufReader::new(file), metadata.len(), "the bank file");
        let lengths = storages.iter().map(|storage| (storage.slot, storage.content_bytes));
        let mut lengths: HashMap<u64, u64> = lengths.collect();
        let mut is_equal = true;
        let is_older = |slot| self.base_slot.is_some_and(|base| slot <= base);
        let mut on_storage = |item: StorageMapItem| {
            let length = lengths.remove(&item.slot);
            is_equal &= length.unwrap_or_default() == item.length_bytes || (length.is_some() && is_older(item.slot));
            Ok(())
        };
        parse_bank_file_lenient(fields, &mut on_storage, BankStakes::Skip)?;
        Ok(is_equal && lengths.into_keys().all(is_older))
    }

    /// Empties the storage map of the bank file, as Agave 4.4 and later do. If the map named other
    /// storages than those of the ledger, archiving the ledger would use wrong lengths.
    fn leave_out_storage_map(&mut self) -> Result<()> {
        const WITHOUT_MAP: &str = "bank-file-without-map";
        let dir = &self.bank_snapshot;
        let map = self.bank.storage_map_range.clone();
        let mut original = dir.dir().open_file(BANK_FILE_PARTIAL)?;
        let mut without_map = dir.create_file(WITHOUT_MAP)?;
        let mut copy = || -> std::io::Result<()> {
            std::io::copy(&mut (&original).take(map.start), &mut without_map)?;
            without_map.write_all(&[0; 8])?;
            original.seek(SeekFrom::Start(map.end))?;
            std::io::copy(&mut original, &mut without_map).map(drop)
        };
        copy().or_path("write", &dir.path.join(WITHOUT_MAP))?;
        dir.rename_within(WITHOUT_MAP, BANK_FILE_PARTIAL)?;
        self.bank.storage_count = 0;
        Ok(())
    }
}
