//! Restores archives to a ledger: checks the target, unpacks to temporary directories, checks the
//! result, and moves it into place.
//!
//! Each file is synced before it gets its final name. The mark of completeness, `fastboot_version`,
//! is written last. A restore that fails or is killed leaves nothing that a validator would take
//! for a ledger.
//!
//! ```no_run
//! use slotpress::NoProgress;
//! use slotpress::restore::{RestoreOptions, RestoreTarget, restore};
//!
//! let archive = "/mnt/snapshots/snapshot-350006937-….tar.zst";
//! let options = RestoreOptions::new(archive, RestoreTarget::new("/mnt/new-ledger"));
//! let report = restore(&options, &NoProgress)?;
//! println!("slot {}, ready to boot from {}", report.slot, report.path.display());
//! # Ok::<(), slotpress::Error>(())
//! ```

pub(crate) mod assign;
mod check;
pub(crate) mod copies;
mod finish;
mod input;
mod journal;
pub(crate) mod made_dirs;
mod newer;
mod options;
pub(crate) mod place;
mod superseded;
pub(crate) mod target;
mod unpack;

use std::collections::HashMap;
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

pub(crate) use input::is_standard_input;
#[cfg(feature = "net")]
pub(crate) use input::{Supplied, Supply, unread};
pub use options::{ExistingState, RestoreOptions, RestoreReport, RestoreTarget};
use slotpress_base::{Elapsed, Error, IoContext, Owner, Progress, Result, ShowPath, Space, Stage, Step, Stopwatch};
use slotpress_format::ledger::names::Extension;
use slotpress_format::{ArchiveName, FieldReader, StorageMapItem, parse_bank_file_and_end};
use slotpress_read::{Assurance, RATIO_TYPICAL, SeenSlots, StateBuilder, is_rebased, restore_journal};
pub(crate) use target::MAINNET_RATIO;
#[cfg(feature = "net")]
pub(crate) use target::Preview;

use crate::restore::assign::{AssignedStorage, Assigner};
use crate::restore::check::check_chain;
use crate::restore::finish::finish;
use crate::restore::input::{Feed, Inputs, Opened};
use crate::restore::journal::Move;
use crate::restore::newer::RestoredSlots;
use crate::restore::place::{BANK_FILE_PARTIAL, PartialDir};
use crate::restore::target::{RATIO_MIN, Target, space_for};
use crate::restore::unpack::{Unpacked, Unpacker};

/// Restores one archive, or a full and an incremental one.
///
/// # Errors
/// [`ErrorKind::Damaged`](crate::ErrorKind::Damaged) if an archive is damaged, or does not match
/// its name. Also fails if the ledger is in use or holds a state already, or if the disk fails or
/// is full. After an error, the ledger is as it was before.
pub fn restore(options: &RestoreOptions, progress: &dyn Progress) -> Result<RestoreReport> {
    let stopwatch = Stopwatch::start();
    let options = &if options.is_moved { with_moved(options)? } else { options.clone() };
    let io_hint = options.target.io_policy.io_hint;
    let _watch = io_hint.watch(options.paths().filter(|path| !is_standard_input(path)));
    let inputs = Inputs::open(options, progress)?;
    inputs.check_pair(options)?;
    let mut target = Target::prepare(&options.target, inputs.newest())?;
    inputs.slots().map_or(Ok(Vec::new()), |slots| target.archives_in_the_way(slots))?;
    let report = inputs.with_archives(&target, options, progress, |feed| {
        progress.steps(&steps(&feed));
        progress.detail(&describe(&feed, &options.target));
        Run { target: &target, options: &options.target, progress }.restore(feed)
    })?;
    target.keep();
    // Writes out data that is still in the page cache.
    io_hint.write_out_dir(&report.path);
    Ok(RestoreReport { elapsed: stopwatch.elapsed(), ..report })
}

/// Takes archives that a former run has moved from where they were, after undoing its moves if it was
/// killed.
fn with_moved(options: &RestoreOptions) -> Result<RestoreOptions> {
    let (mut options, dir) = (options.clone(), options.target.paths.snapshots_dir());
    if restore_journal(dir).is_some() {
        Target::prepare(&options.target, None)?;
    }
    for path in [Some(&mut options.archive), options.incremental.as_mut()].into_iter().flatten() {
        let moved = path.file_name().map(|name| dir.join(name));
        *path = moved.filter(|moved| moved.exists() && !path.exists()).unwrap_or(path.clone());
    }
    Ok(options)
}

fn steps(feed: &Feed<'_>) -> Vec<Step> {
    let mut steps: Vec<Step> = feed.lengths().map(|bytes| Step::new(Stage::Restoring, bytes)).collect();
    let copies = feed.copies_bytes().filter(|bytes| *bytes > 0);
    steps.extend(copies.map(|bytes| Step::new(Stage::Copying, Some(bytes))));
    steps.push(Step::new(Stage::Syncing, Some(0)));
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

/// Restores archives that a [`Supply`] opens one after the other.
#[cfg(feature = "net")]
pub(crate) fn restore_supplied(
    supply: &mut dyn Supply,
    options: &RestoreTarget,
    expect_roots: &[slotpress_format::Root],
    progress: &dyn Progress,
) -> Result<RestoreReport> {
    let stopwatch = Stopwatch::start();
    let mut target = Target::prepare(options, None)?;
    let report = Run { target: &target, options, progress }.restore(Feed::of_supply(supply, expect_roots))?;
    target.keep();
    options.io_policy.io_hint.write_out_dir(&report.path);
    Ok(RestoreReport { elapsed: stopwatch.elapsed(), ..report })
}

/// What all steps of a restore need.
#[derive(Clone, Copy)]
struct Run<'a> {
    target: &'a Target,
    options: &'a RestoreTarget,
    progress: &'a dyn Progress,
}

impl Run<'_> {
    fn restore(self, feed: Feed<'_>) -> Result<RestoreReport> {
        let Target { old, snapshots_dir, accounts, .. } = self.target;
        self.restore_all(feed).map_err(|error| old.hint_to_remove(error, [snapshots_dir].into_iter().chain(accounts)))
    }

    /// Unpacks archives next to their final place, checks them, and moves everything into place.
    fn restore_all(self, mut feed: Feed<'_>) -> Result<RestoreReport> {
        let Self { target, options, progress } = self;
        if feed.opened.is_empty() {
            feed.open_next(&target.snapshots_dir, options, progress)?;
        }
        feed.check_roots()?;
        self.check_space(&feed.opened, feed.copies_bytes().sum())?;
        let new_root = |parent| PartialDir::create(parent, "run", &target.owner);
        let roots = target.accounts.iter().map(new_root).collect::<Result<Vec<_>>>()?;
        let restored = self.unpack_all(&mut feed, &roots)?;
        progress.check()?;
        self.place(feed.opened, restored, roots)
    }

    /// Unpacks all archives, and checks their combined state.
    fn unpack_all(self, feed: &mut Feed<'_>, roots: &[PartialDir]) -> Result<Restored> {
        let Self { target, options, progress } = self;
        let is_part = feed.archives().next().is_some_and(|archive| archive.base_slot().is_some());
        let state = options.check.checks_state(is_part)?.then(|| self.new_state_check(&feed.opened)).transpose()?;
        let assigner = Assigner::new(roots.len() as u16);
        let seen_slots = SeenSlots::default();
        let mut unpacker = Unpacker { run: self, roots, assigner, seen_slots, state };
        let mut unpacked: Vec<Unpacked> = Vec::new();
        for number in 0.. {
            if number == feed.opened.len() {
                if !feed.open_next(&target.snapshots_dir, options, progress)? {
                    feed.check_count()?;
                    break;
                }
                feed.opened[number].check_root()?;
                self.check_space(&feed.opened[number..], 0)?;
            }
            let (opened, next) = (&feed.opened[number], feed.opened.get(number + 1));
            let full = number.checked_sub(1).and_then(|before| feed.opened.get(before).zip(unpacked.get(before)));
            let mut unpack_one = || -> Result<Unpacked> {
                opened.judge_pair(full, None)?;
                let base_slot = full.map(|(_, full)| full.bank.slot).or(opened.archive.base_slot());
                let one = unpacker.unpack(opened, base_slot, next.is_some())?;
                opened.judge_pair(full, Some(&one.bank))?;
                check_chain(&one.bank, options)?;
                if opened.is_hashed_at_end {
                    opened.judge_root(one.root)?;
                }
                Ok(one)
            };
            let one = unpack_one().map_err(|error| error.within_damaged(opened.archive.path().shown()))?;
            unpacked.push(one);
        }
        let newest = unpacked.last().ok_or_else(no_archive)?;
        let place = feed.archives().last().map_or(String::new(), |archive| archive.path().shown());
        let assurance = unpacker.check_state(newest, feed).map_err(|error| error.within_damaged(place))?;
        let storages = unpacker.assigner.into_storages();
        let is_on_other = matches!(&unpacked[..], [full, _] if full.bank.storage_count == 0);
        if let Some(newest) = unpacked.last_mut().filter(|newest| newest.bank.storage_count > 0)
            && (is_on_other || !newest.maps(&storages)?)
        {
            newest.leave_out_storage_map(&target.owner)?;
        }
        Ok(Restored { storages, unpacked, assurance })
    }

    /// Moves the unpacked files and the archives into place. The ledger gets the newest archive's
    /// bank file, status cache and version.
    fn place(self, opened: Vec<Opened>, restored: Restored, roots: Vec<PartialDir>) -> Result<RestoreReport> {
        let Self { target, progress, .. } = self;
        let Restored { mut unpacked, mut storages, assurance } = restored;
        let input_bytes = opened.iter().map(|one| one.archive.length_bytes()).sum();
        let names: Vec<ArchiveName> = opened.iter().zip(&unpacked).map(|(opened, one)| one.name(opened)).collect();
        storages.sort_unstable_by_key(|storage| (storage.slot, storage.id));
        let newest = unpacked.pop().ok_or_else(no_archive)?;
        let (slot, hash) = (newest.bank.slot, newest.bank.snapshot_hash());
        let genesis = self.options.genesis.iter().find(|genesis| genesis.is_of(&newest.bank)).copied();
        let base_slot = unpacked.pop().map(|full| full.bank.slot);
        let added = storages.iter().filter(|storage| base_slot.is_some_and(|base_slot| storage.slot > base_slot));
        let is_rebased = is_rebased(slot, added.map(|storage| (storage.slot, storage.archive_id)));
        let slots = RestoredSlots { newest: slot, rebased_on: base_slot.filter(|_| is_rebased) };
        let aside = [target.old.moves.clone(), target.archives_in_the_way(slots)?].concat();
        let mut replaced: Vec<PathBuf> = aside.iter().map(Move::top).collect();
        replaced.sort();
        replaced.dedup();
        let archives = opened.into_iter().zip(names).collect();
        let (path, archives) = finish(target, newest, &storages, roots, archives, aside, progress)?;
        Ok(RestoreReport {
            path,
            slot,
            base_slot,
            hash,
            storages: storages.len() as u64,
            input_bytes,
            output_bytes: storages.iter().map(|storage| storage.content_bytes).sum(),
            archives,
            accounts: target.accounts.iter().map(|dir| dir.path().to_path_buf()).collect(),
            replaced,
            assurance,
            elapsed: Elapsed::default(),
            genesis,
        })
    }

    /// Prepares a check of the state. Data that does not fit in memory is spilled to the directory
    /// that `CheckOptions::spill_dir` chooses.
    fn new_state_check(self, archives: &[Opened]) -> Result<StateBuilder> {
        let options = self.options;
        let bytes = unpacked_bytes(archives, RATIO_TYPICAL);
        let spill_dir = options.check.spill_dir(Some(self.target.snapshots_dir.path()));
        let accounts = StateBuilder::new(options.check.memory_bytes, &spill_dir, bytes)?;
        accounts.log.check_room_foreseen(options.check.memory_bytes)?;
        Ok(accounts)
    }

    /// Refuses to restore if there is no room for the smallest possible content of the archives,
    /// and warns if there is no room for their usual content. Without an index, the exact size is
    /// known only at the end.
    fn check_space(self, archives: &[Opened], bytes_to_copy: u64) -> Result<()> {
        let check = |ratio: u64| {
            let unpacked = unpacked_bytes(archives, ratio);
            space_for(&self.target.accounts, &self.target.snapshots_dir, unpacked, bytes_to_copy)?
                .iter()
                .try_for_each(Space::check)
        };
        check(RATIO_MIN)?;
        if let Err(error) = check(MAINNET_RATIO) {
            self.progress.warn(&format!("{error}, if the archive is compressed as mainnet's are"));
        }
        Ok(())
    }
}

/// Unpacked size of archives, from their indexes. Without an index, it is estimated from the
/// archive's length and `ratio`.
fn unpacked_bytes(archives: &[Opened], ratio: u64) -> u64 {
    let of = |Opened { archive, .. }: &Opened| match &archive.tail {
        Some(tail) => tail.index.tar_bytes(),
        None if archive.compression == Extension::Tar => archive.length_bytes(),
        None => archive.length_bytes().saturating_mul(ratio),
    };
    archives.iter().map(of).fold(0, u64::saturating_add)
}

fn no_archive() -> Error {
    Error::failed("there is no archive to restore")
        .with_hint("give a full archive, or a full one and an incremental one on it")
}

/// Unpacked and checked contents of all archives.
struct Restored {
    unpacked: Vec<Unpacked>,
    /// Storages of all archives, in the order of the archives.
    storages: Vec<AssignedStorage>,
    assurance: Assurance,
}

impl Unpacked {
    /// True if the bank file's storage map names these storages. Those of the full archive may
    /// differ: the validator may have rewritten these storages before it wrote the map, or emptied
    /// them.
    fn maps(&self, storages: &[AssignedStorage]) -> Result<bool> {
        let file = self.bank_snapshot.dir().open_file(BANK_FILE_PARTIAL)?;
        let length = file.metadata().or_path("read", &self.bank_snapshot.path)?.len();
        let fields = FieldReader::new(BufReader::new(file), length, "the bank file");
        let mut lengths: HashMap<u64, u64> = storages.iter().map(|it| (it.slot, it.content_bytes)).collect();
        let mut is_right = true;
        let is_older = |slot| self.base_slot.is_some_and(|base| slot <= base);
        let mut on_storage = |item: StorageMapItem| {
            let length = lengths.remove(&item.slot);
            is_right &= length.unwrap_or_default() == item.length_bytes || (length.is_some() && is_older(item.slot));
            Ok(())
        };
        parse_bank_file_and_end(fields, &mut on_storage, false)?;
        Ok(is_right && lengths.into_keys().all(is_older))
    }

    /// Empties the storage map of the bank file, as Agave 4.4 and later do: archiving the ledger
    /// would take lengths from a wrong map. If another writer made the full archive, the map has
    /// that writer's storages.
    fn leave_out_storage_map(&mut self, owner: &Owner) -> Result<()> {
        const WITHOUT_MAP: &str = "bank-file-without-map";
        let (dir, places) = (&self.bank_snapshot, self.bank.places);
        let mut from = dir.dir().open_file(BANK_FILE_PARTIAL)?;
        let mut to = dir.create_file(WITHOUT_MAP, owner, false)?;
        let mut copy = || -> std::io::Result<()> {
            std::io::copy(&mut (&from).take(places.storage_map), &mut to)?;
            to.write_all(&[0; 8])?;
            from.seek(SeekFrom::Start(places.storage_map_end))?;
            std::io::copy(&mut from, &mut to).map(drop)
        };
        copy().or_path("write", &dir.path.join(WITHOUT_MAP))?;
        dir.rename_within(WITHOUT_MAP, BANK_FILE_PARTIAL)?;
        self.bank.storage_count = 0;
        Ok(())
    }

    /// Name under which a validator finds the archive, made from the archive's content.
    fn name(&self, opened: &Opened) -> ArchiveName {
        let (slot, hash) = (self.bank.slot, self.bank.snapshot_hash());
        ArchiveName { base_slot: self.base_slot, slot, hash, extension: opened.archive.compression }
    }
}
