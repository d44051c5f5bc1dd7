//! An internal part of slotpress, without a stable interface: use the crate `slotpress`.
//!
//! Makes a lifelike ledger for tests and measurements: the files that an Agave validator leaves when it stops
//! gracefully. A seed and the options determine all bytes. `version` lists the supported versions of Agave.
//!
//! The ledger is valid according to docs/snapshot-format.md, so every other command works on it, and both
//! clients load it. Names, lists, obsolete records, stale files, bank file, storage map, lattice hash, bank
//! hash and capitalization agree; so do the status cache, the blockhash queue, the sysvars, the stakes and
//! their accounts, the leader and the leader schedule. There is also a `genesis.bin`. **No validator can follow
//! the chain from this state**: blocks and votes are made up, no validator has the keys, and no feature is
//! active.
//!
//! Each storage is a function of the options and its index (`layout`, `storage`). So workers make storages in
//! parallel, and memory does not grow with the number of accounts. Which accounts of an older storage a newer
//! storage replaces follows from their indexes, so the older storage can leave these accounts out of the sums.
//!
//! With the mix of mainnet, from 64 MiB upwards, a ledger compresses as mainnet's does, within 5%: the
//! full archive by 3.47, 3.64 and 3.78 at zstd levels 1, 3 and 10, the bank file by 2.337, 2.486,
//! 2.500 and 2.513 at levels 1 to 4. The account mix (`accounts`) and the stakes (`stakes`) are
//! chosen for these ratios, which tests check.
//!
//! Like real ledgers, a synthetic ledger has closed accounts with and without tombstones, superseded records
//! that are not marked as obsolete, and files in `accounts/run` that no list names. In the full state, several
//! percent of the storages have obsolete records, and up to two small storages have only obsolete records.

mod accounts;
mod bank;
mod chain;
mod fields;
mod genesis;
mod layout;
mod ledger_writer;
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
use layout::SynthLayout;
use ledger_writer::{LedgerWriter, create_or_require_empty};
pub use mix::AccountMix;
use parking_lot::Mutex;
use rayon::prelude::*;
use serde::Serialize;
use slotpress_base::{Error, IoContext, Progress, Result, Stage, Step, available_threads, quantity, start_pool, text};
use slotpress_format::ledger::programs as keys;
use slotpress_format::ledger::record::align8;
use slotpress_format::{Hash, STORAGES_MAX, StorageMapItem};
use storage::{StateSums, StorageRecords, build_storage};
pub use version::AgaveVersion;

/// Options of a synthetic ledger.
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
#[warn(missing_docs)]
pub struct SynthOptions {
    /// Ledger directory. It must be empty or not exist.
    pub out_dir: PathBuf,
    /// Approximate bytes of the full state's storages. The state is larger if it has too many storages for this
    /// size, because each contains at least one record.
    pub size_bytes: u64,
    /// Seed. The same seed and options produce the same bytes.
    pub seed: u64,
    /// Also makes an incremental state, whose storages have about this many bytes. The full state is then in
    /// `at-full` below the ledger directory.
    #[setters(strip_option)]
    pub incremental_bytes: Option<u64>,
    /// Number of the full state's storages. Default: a number that fits the size.
    #[setters(strip_option)]
    pub storage_count: Option<u64>,
    /// Number of worker threads, which does not affect the bytes.
    pub threads: usize,
    /// Agave version that the ledger imitates.
    pub agave: AgaveVersion,
    /// Kinds of accounts, and their shares.
    pub mix: AccountMix,
}

#[warn(missing_docs)]
impl SynthOptions {
    /// Creates options for a full state of this size, with the seed 1, on all cores.
    pub fn new(out_dir: impl Into<PathBuf>, size_bytes: u64) -> Self {
        Self {
            out_dir: out_dir.into(),
            size_bytes,
            seed: 1,
            incremental_bytes: None,
            storage_count: None,
            threads: available_threads(),
            agave: AgaveVersion::default(),
            mix: AccountMix::default(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct SynthState {
    /// Ledger directory, which contains `snapshots` and `accounts`.
    #[serde(serialize_with = "text::path")]
    pub path: PathBuf,
    pub slot: u64,
    pub hash: Hash,
    #[serde(serialize_with = "text::display")]
    pub capitalization_lamports: u64,
    pub accounts: u64,
    pub storages: u64,
    /// Bytes of these storages, including obsolete records.
    pub storage_bytes: u64,
}

#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct SynthReport {
    /// The full state, then the incremental state if it was made. The program prints a report for each.
    #[serde(skip)]
    pub states: Vec<SynthState>,
    /// Bytes of all files written. A storage that both states share counts once.
    pub written_bytes: u64,
    #[serde(rename = "elapsed_seconds", serialize_with = "text::seconds")]
    pub elapsed: Duration,
}

/// Smallest size of a complete ledger. The sysvars alone take 176 KiB.
pub const SIZE_BYTES_MIN: u64 = 512 * 1024;
/// Smallest size of an incremental state, which has new versions of the sysvars.
pub const INCREMENTAL_BYTES_MIN: u64 = 256 * 1024;
/// Limits on the storages that are made in one round, to limit the memory for obsolete records that wait to be
/// written to the lists.
const ROUND_STORAGES_MAX: u64 = 8192;
const ROUND_BYTES_MAX: u64 = 1024 * 1024 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SynthMemory {
    pub worker_bytes: u64,
    pub other_bytes: u64,
}

/// Memory in bytes for the size, the slot and the list entries of each storage.
const BYTES_PER_STORAGE: u64 = 128;

/// Estimates the memory that [`synth`] needs.
///
/// # Errors
/// The sizes are impossible.
pub fn estimate_memory(options: &SynthOptions) -> Result<SynthMemory> {
    check_options(options)?;
    let layout = SynthLayout::new(options);
    let largest_bytes = (0..layout.storage_count()).map(|storage| layout.new_account_bytes(storage)).max().unwrap_or(0);
    Ok(SynthMemory {
        worker_bytes: largest_bytes.saturating_mul(2),
        other_bytes: layout.storage_count().saturating_mul(BYTES_PER_STORAGE),
    })
}

/// Makes a ledger. Does not sync it to disk. Removes its files after an error or an interruption.
///
/// # Errors
/// The sizes are impossible; the directory is not empty; files cannot be written; the user interrupts.
pub fn synth(options: &SynthOptions, progress: &dyn Progress) -> Result<SynthReport> {
    let started = Instant::now();
    check_options(options)?;
    let existed = options.out_dir.exists();
    create_or_require_empty(&options.out_dir)?;
    make_ledger(options, progress, started).inspect_err(|_| {
        // The directory was empty, so this run made all of its files.
        for name in ["snapshots", "accounts", FULL_STATE_DIR] {
            let _ = fs::remove_dir_all(options.out_dir.join(name));
        }
        let _ = fs::remove_file(options.out_dir.join("genesis.bin"));
        if !existed {
            let _ = fs::remove_dir(&options.out_dir);
        }
    })
}

const FULL_STATE_DIR: &str = "at-full";

fn check_options(options: &SynthOptions) -> Result<()> {
    if options.size_bytes < SIZE_BYTES_MIN
        || options.incremental_bytes.is_some_and(|bytes| bytes < INCREMENTAL_BYTES_MIN)
    {
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

fn make_ledger(options: &SynthOptions, progress: &dyn Progress, started: Instant) -> Result<SynthReport> {
    let out_dir = &options.out_dir;
    let layout = SynthLayout::new(options);
    if layout.storage_count() > STORAGES_MAX {
        return Err(Error::usage(format!("a ledger has at most {STORAGES_MAX} storages; choose a smaller size")));
    }
    let has_two_states = options.incremental_bytes.is_some();
    let full_dir = if has_two_states { out_dir.join(FULL_STATE_DIR) } else { out_dir.clone() };
    let mut full = LedgerWriter::create(&full_dir, options.agave, layout.full_count)?;
    let create_incremental = || LedgerWriter::create(out_dir, options.agave, layout.storage_count());
    let mut incremental = has_two_states.then(create_incremental).transpose()?;

    let storage_bytes = (0..layout.storage_count()).map(|storage| layout.new_account_bytes(storage)).sum();
    progress.steps(&[Step::new(Stage::MakingStorages, Some(storage_bytes)), Step::new(Stage::WritingBank, Some(0))]);
    progress.stage(Stage::MakingStorages, Some(storage_bytes));
    let sums = Mutex::new(StateSums::default());
    let mut written_bytes = 0;
    let pool = start_pool(options.threads)?;
    let incremental_dir = has_two_states.then_some(out_dir);
    let write = |storage| write_storage(&layout, storage, &full_dir, incremental_dir, &sums, progress);
    for round in divide_into_rounds(&layout) {
        let written: Vec<StorageRecords> =
            pool.install(|| round.clone().into_par_iter().map(write).collect::<Result<_>>())?;
        for (storage, records) in round.zip(&written) {
            let id = layout.id(storage).into();
            let item = StorageMapItem { slot: SynthLayout::slot(storage), id, length_bytes: records.length_bytes };
            if !layout.is_incremental(storage) {
                full.add_storage(item, records.obsolete.iter().filter(|record| record.is_obsolete_in_full_state))?;
            }
            if let Some(incremental) = &mut incremental {
                incremental.add_storage(item, records.obsolete.iter())?;
            }
            written_bytes += align8(records.length_bytes);
        }
    }

    progress.stage(Stage::WritingBank, None);
    written_bytes += write_stale_files(&layout, &full_dir, layout.full_count)?;
    let mut sums = sums.into_inner();
    sums.full.add(&sums.both);
    sums.incremental.add(&sums.both);
    let (state, bytes) = full.finish(&layout, &sums.full)?;
    written_bytes += bytes;
    let mut states = vec![state];
    if let Some(incremental) = incremental {
        progress.check()?;
        written_bytes += write_stale_files(&layout, out_dir, layout.storage_count())?;
        let (state, bytes) = incremental.finish(&layout, &sums.incremental)?;
        written_bytes += bytes;
        states.push(state);
    }
    Ok(SynthReport { states, written_bytes, elapsed: started.elapsed() })
}

fn divide_into_rounds(layout: &SynthLayout) -> Vec<Range<u64>> {
    let mut rounds = Vec::new();
    let mut start = 0;
    let mut bytes = 0;
    for storage in 0..layout.storage_count() {
        bytes += layout.new_account_bytes(storage);
        if bytes >= ROUND_BYTES_MAX || storage + 1 - start >= ROUND_STORAGES_MAX {
            rounds.push(start..storage + 1);
            (start, bytes) = (storage + 1, 0);
        }
    }
    rounds.push(start..layout.storage_count());
    rounds
}

thread_local! {
    /// A buffer for each thread. Storages have up to tens of megabytes, and fresh memory for each of them
    /// would cause page faults.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

fn write_storage(
    layout: &SynthLayout,
    storage: u64,
    full_dir: &Path,
    incremental_dir: Option<&PathBuf>,
    sums: &Mutex<StateSums>,
    progress: &dyn Progress,
) -> Result<StorageRecords> {
    progress.check()?;
    let slot = SynthLayout::slot(storage);
    let id = layout.id(storage);
    let dir = incremental_dir.map_or(full_dir, PathBuf::as_path);
    let path = LedgerWriter::storage_path(dir, slot, id);
    let content = build_storage(layout, storage, BUFFER.take()).or_path("make", &path)?;
    fs::write(&path, &content.bytes).or_path("write", &path)?;
    if incremental_dir.is_some() && !layout.is_incremental(storage) {
        // Not every file system has hard links.
        let link = LedgerWriter::storage_path(full_dir, slot, id);
        fs::hard_link(&path, &link).or_else(|_| fs::copy(&path, &link).map(drop)).or_path("write", &link)?;
    }
    sums.lock().add(&content.sums);
    let file_bytes = content.bytes.len() as u64;
    progress.advance(file_bytes, file_bytes);
    BUFFER.set(content.bytes);
    Ok(content.records)
}

/// Writes storages that no list names, as Agave may leave them: two at slots of listed storages, but with other
/// ids, and one at the slot after the bank's. An archive that contains any of them is wrong. Returns the number
/// of bytes written.
fn write_stale_files(layout: &SynthLayout, ledger: &Path, count: u64) -> Result<u64> {
    let mut written_bytes = 0;
    let small_storage = (0..count).min_by_key(|storage| layout.new_account_bytes(*storage).abs_diff(4096)).unwrap_or(0);
    let content = build_storage(layout, small_storage, Vec::new()).or_path("make", ledger)?.bytes;
    let first_id = layout.id(count - 1) + 10;
    let slots = [SynthLayout::slot(small_storage), SynthLayout::slot(count / 2), SynthLayout::slot(count - 1) + 1];
    for (slot, id) in slots.into_iter().zip(first_id..) {
        let path = LedgerWriter::storage_path(ledger, slot, id);
        fs::write(&path, &content).or_path("write", &path)?;
        written_bytes += content.len() as u64;
    }
    Ok(written_bytes)
}

#[cfg(test)]
mod tests;
