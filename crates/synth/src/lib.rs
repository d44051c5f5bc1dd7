//! An internal part of slotpress, without a stable interface: use the crate `slotpress`.
//!
//! Makes a lifelike ledger for tests and measurements: the files that an Agave validator leaves
//! when it stops gracefully. A seed and the options determine all bytes. `version` has the versions
//! of Agave to choose from.
//!
//! The ledger is valid by docs/snapshot-format.md, so every other command works on it and both
//! clients load it. Names, lists, obsolete records, stale files, bank file, storage map, lattice
//! hash, bank hash and capitalization agree; so do the status cache, the blockhash queue, the
//! sysvars, the stakes and their accounts, the leader and the leader schedule. There is a
//! `genesis.bin`, too. **No validator can follow the chain from it**: blocks and votes are made up,
//! no validator has the keys, and no feature is active.
//!
//! Each storage is a function of the seed and its index (`layout`, `storage`). So all workers make
//! storages at once, and memory does not grow with the number of accounts. Which accounts of an
//! older storage a newer one replaces is computed from the indexes, for both storages; the older
//! one leaves these accounts out of the sums.
//!
//! With the mix of mainnet, from 64 MiB on, a ledger compresses as mainnet does, within 5 %: the
//! full archive by 3.47, 3.64 and 3.78 at zstd levels 1, 3 and 10, the bank file by 2.337, 2.486,
//! 2.500 and 2.513 at levels 1 to 4. The account mix (`accounts`) and the stakes (`stakes`) are
//! chosen for these ratios, which a test compares.
//!
//! Like real ledgers, a synthetic one has obsolete records in several percent of the storages,
//! closed accounts with and without tombstones, newer versions of accounts whose older record is
//! not marked, storages whose records are all obsolete, and files in `accounts/run` that no
//! list names.

mod accounts;
mod bank;
mod chain;
mod directory;
mod fields;
mod genesis;
mod keys;
mod layout;
mod mix;
mod rng;
mod stakes;
mod staking;
mod states;
mod status_cache;
mod storage;
mod sysvars;
mod tokens;
mod universe;
mod version;

use std::cell::RefCell;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use derive_setters::Setters;
use directory::{PlacedStorage, StateDirectory, claim_empty};
use layout::SynthLayout;
pub use mix::Mix;
use parking_lot::Mutex;
use rayon::prelude::*;
use serde::Serialize;
use slotpress_base::{Error, IoContext, Progress, Result, Stage, Step, available_threads, quantity, start_pool, text};
use slotpress_format::{Hash, STORAGES_MAX};
use storage::{StateSums, build};
pub use version::AgaveVersion;

/// Options of a synthetic ledger.
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
#[warn(missing_docs)]
pub struct SynthOptions {
    /// Ledger directory. It must be empty or not exist.
    pub out_dir: PathBuf,
    /// Approximate bytes of the full state's storages. The state is larger if there are so many
    /// storages that each holds one record.
    pub size_bytes: u64,
    /// Seed. Equal seeds and options give equal bytes.
    pub seed: u64,
    /// Also makes a newer state. Its storages newer than the full state have about this many bytes.
    /// The full state is then in `at-full` below the ledger directory.
    #[setters(into)]
    pub incremental_bytes: Option<u64>,
    /// Number of the full state's storages. Default: a number that fits the size.
    #[setters(into)]
    pub storage_count: Option<u64>,
    /// Worker threads. They do not affect the bytes.
    pub threads: usize,
    /// Agave version whose files are made.
    pub agave: AgaveVersion,
    /// Kinds of accounts, and their shares.
    pub mix: Mix,
}

#[warn(missing_docs)]
impl SynthOptions {
    /// Makes options for a full state of this size, with the default seed, on all cores.
    pub fn new(out_dir: impl Into<PathBuf>, size_bytes: u64) -> Self {
        Self {
            out_dir: out_dir.into(),
            size_bytes,
            seed: 1,
            incremental_bytes: None,
            storage_count: None,
            threads: available_threads(),
            agave: AgaveVersion::default(),
            mix: Mix::default(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct SynthState {
    /// Ledger directory, which contains `snapshots` and `accounts`.
    #[serde(rename = "path", serialize_with = "text::path")]
    pub ledger_dir: PathBuf,
    pub slot: u64,
    pub hash: Hash,
    #[serde(rename = "capitalization_lamports", serialize_with = "text::display")]
    pub capitalization: u64,
    pub accounts: u64,
    pub storages: u64,
    /// Bytes of these storages, with obsolete records.
    pub storage_bytes: u64,
}

#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct SynthReport {
    /// The full state, and the incremental one if it was made. The program prints a report
    /// for each.
    #[serde(skip)]
    pub states: Vec<SynthState>,
    /// Bytes of all files written. A storage that both states share counts once.
    pub written_bytes: u64,
    #[serde(rename = "elapsed_seconds", serialize_with = "text::seconds")]
    pub elapsed: Duration,
}

/// Smallest size of a complete ledger. The sysvars alone take 176 KiB.
pub const SIZE_BYTES_MIN: u64 = 512 * 1024;
/// Smallest size of an incremental state, which has sysvars of its own.
pub const INCREMENTAL_BYTES_MIN: u64 = 256 * 1024;
/// Limits on one round of storages. They bound the memory of obsolete records that wait for their
/// turn in the lists.
const ROUND_STORAGES: u64 = 8192;
const ROUND_BYTES: u64 = 1024 * 1024 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SynthMemory {
    pub worker_bytes: u64,
    pub other_bytes: u64,
}

/// Memory in bytes for each storage's size, slots and places in lists.
const STORAGE_KNOWN_BYTES: u64 = 128;

/// Estimates the memory that [`synth`] needs.
///
/// # Errors
/// The sizes are impossible.
pub fn memory_of(options: &SynthOptions) -> Result<SynthMemory> {
    check_options(options)?;
    let layout = SynthLayout::new(options);
    let largest_bytes = (0..layout.count()).map(|at| layout.target_bytes(at)).max().unwrap_or(0);
    Ok(SynthMemory {
        worker_bytes: largest_bytes.saturating_mul(2),
        other_bytes: layout.count().saturating_mul(STORAGE_KNOWN_BYTES),
    })
}

/// Makes a ledger. Does not sync it to disk. Removes its files after an error or an interruption.
///
/// # Errors
/// The sizes are impossible; the directory is not empty; files cannot be written; the
/// user interrupts.
pub fn synth(options: &SynthOptions, progress: &dyn Progress) -> Result<SynthReport> {
    let started = Instant::now();
    check_options(options)?;
    let existed = options.out_dir.exists();
    claim_empty(&options.out_dir)?;
    make(options, progress, started).inspect_err(|_| {
        // The directory was empty, so this run made all of its files.
        for name in ["snapshots", "accounts", AT_FULL] {
            let _ = fs::remove_dir_all(options.out_dir.join(name));
        }
        let _ = fs::remove_file(options.out_dir.join("genesis.bin"));
        if !existed {
            let _ = fs::remove_dir(&options.out_dir);
        }
    })
}

const AT_FULL: &str = "at-full";

fn check_options(options: &SynthOptions) -> Result<()> {
    if options.size_bytes < SIZE_BYTES_MIN || options.incremental_bytes.is_some_and(|b| b < INCREMENTAL_BYTES_MIN) {
        let [ledger, incremental] = [SIZE_BYTES_MIN, INCREMENTAL_BYTES_MIN].map(quantity::bytes);
        return Err(Error::usage(format!("a ledger has at least {ledger}, and an incremental state {incremental}")));
    }
    let bytes = options.size_bytes.saturating_add(options.incremental_bytes.unwrap_or_default());
    if bytes > slotpress_format::archive::limits::UNPACKED_BYTES_MAX {
        return Err(Error::usage(format!("a ledger of {} is out of range", quantity::bytes(bytes)))
            .with_hint("clients read 4 TiB at most: choose a smaller size"));
    }
    if options.storage_count.is_some_and(|count| count == 0 || count > STORAGES_MAX) {
        return Err(Error::usage(format!("a ledger has 1 to {STORAGES_MAX} storages")));
    }
    Ok(())
}

fn make(options: &SynthOptions, progress: &dyn Progress, started: Instant) -> Result<SynthReport> {
    let out_dir = &options.out_dir;
    let layout = SynthLayout::new(options);
    if layout.count() > STORAGES_MAX {
        return Err(Error::usage(format!("a ledger has at most {STORAGES_MAX} storages; choose a smaller size")));
    }
    let has_two_states = options.incremental_bytes.is_some();
    let full_dir = if has_two_states { out_dir.join(AT_FULL) } else { out_dir.clone() };
    let mut full = StateDirectory::create(&full_dir, options.agave, layout.full_count)?;
    let newer = || StateDirectory::create(out_dir, options.agave, layout.count());
    let mut newer = has_two_states.then(newer).transpose()?;

    let storage_bytes = (0..layout.count()).map(|at| layout.target_bytes(at)).sum();
    progress.steps(&[Step::new(Stage::MakingStorages, Some(storage_bytes)), Step::new(Stage::WritingBank, Some(0))]);
    progress.stage(Stage::MakingStorages, Some(storage_bytes));
    let sums = Mutex::new(StateSums::default());
    let mut written_bytes = 0;
    let pool = start_pool(options.threads)?;
    let newer_dir = has_two_states.then_some(out_dir);
    let place_storage = |at| place(&layout, at, options.agave, &full_dir, newer_dir, &sums, progress);
    for round in rounds(&layout) {
        let placed: Vec<(PlacedStorage, u64)> =
            pool.install(|| round.clone().into_par_iter().map(place_storage).collect::<Result<_>>())?;
        for (at, (placed, bytes)) in round.zip(&placed) {
            let slot = SynthLayout::slot(at);
            let id = layout.id(at);
            if !layout.is_incremental(at) {
                full.add(slot, id, placed.length, &placed.full)?;
            }
            if let Some(newer) = &mut newer {
                newer.add(slot, id, placed.length, &placed.newer)?;
            }
            written_bytes += bytes;
        }
    }

    progress.stage(Stage::WritingBank, None);
    written_bytes += place_stale_files(&layout, &full_dir, layout.full_count)?;
    let mut sums = sums.into_inner();
    sums.full.add(&sums.both);
    sums.newer.add(&sums.both);
    let (state, bytes) = full.finish(&layout, &sums.full)?;
    written_bytes += bytes;
    let mut states = vec![state];
    if let Some(newer) = newer {
        progress.check()?;
        written_bytes += place_stale_files(&layout, out_dir, layout.count())?;
        let (state, bytes) = newer.finish(&layout, &sums.newer)?;
        written_bytes += bytes;
        states.push(state);
    }
    Ok(SynthReport { states, written_bytes, elapsed: started.elapsed() })
}

fn rounds(layout: &SynthLayout) -> Vec<Range<u64>> {
    let mut rounds = Vec::new();
    let mut start = 0;
    let mut bytes = 0;
    for at in 0..layout.count() {
        bytes += layout.target_bytes(at);
        if bytes >= ROUND_BYTES || at + 1 - start >= ROUND_STORAGES {
            rounds.push(start..at + 1);
            (start, bytes) = (at + 1, 0);
        }
    }
    rounds.push(start..layout.count());
    rounds
}

thread_local! {
    /// One buffer per thread: storages have up to tens of megabytes, and fresh memory would cause
    /// page faults.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Makes a storage and writes its file. Returns its items for the lists, and the number of
/// bytes written.
fn place(
    layout: &SynthLayout,
    at: u64,
    agave: AgaveVersion,
    full_dir: &Path,
    newer_dir: Option<&PathBuf>,
    sums: &Mutex<StateSums>,
    progress: &dyn Progress,
) -> Result<(PlacedStorage, u64)> {
    progress.check()?;
    let slot = SynthLayout::slot(at);
    let id = layout.id(at);
    let first_dir = newer_dir.map_or(full_dir, PathBuf::as_path);
    let path = StateDirectory::storage_path(first_dir, slot, id);
    let storage = build(layout, at, BUFFER.take()).or_path("make", &path)?;
    fs::write(&path, &storage.bytes).or_path("write", &path)?;
    if newer_dir.is_some() && !layout.is_incremental(at) {
        // Not every file system has hard links.
        let link = StateDirectory::storage_path(full_dir, slot, id);
        fs::hard_link(&path, &link).or_else(|_| fs::copy(&path, &link).map(drop)).or_path("write", &link)?;
    }
    sums.lock().add(&storage.sums);
    let placed = PlacedStorage::place(&storage, agave, newer_dir.is_some()).or_path("make the lists of", &path)?;
    let bytes = storage.bytes.len() as u64;
    progress.advance(bytes, bytes);
    BUFFER.set(storage.bytes);
    Ok((placed, bytes))
}

/// Writes files that no list names: storages that were rewritten under another id, and one of a
/// removed slot. Archiving any of them would add accounts that the state does not have.
fn place_stale_files(layout: &SynthLayout, ledger: &Path, count: u64) -> Result<u64> {
    let mut written = 0;
    let Some(from) = (0..count).min_by_key(|at| layout.target_bytes(*at).abs_diff(4096)) else { return Ok(0) };
    let content = build(layout, from, Vec::new()).or_path("make", ledger)?.bytes;
    let id = layout.id(count - 1) + 10;
    let slots = [SynthLayout::slot(from), SynthLayout::slot(count / 2), SynthLayout::slot(count - 1) + 1];
    for (slot, id) in slots.into_iter().zip(id..) {
        let path = StateDirectory::storage_path(ledger, slot, id);
        fs::write(&path, &content).or_path("write", &path)?;
        written += content.len() as u64;
    }
    Ok(written)
}

#[cfg(test)]
mod tests;
