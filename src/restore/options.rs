//! What to restore and how, and what was restored.

use std::path::{Path, PathBuf};

use derive_setters::Setters;
use serde::Serialize;
use slotpress_base::{Elapsed, IoPolicy, Progress, Result, available_threads, text};
use slotpress_format::{Hash, LedgerPaths, Root};
use slotpress_read::{Assurance, CheckOptions, IndexPolicy, ReadBackReport};

use crate::archive::sink::Sink;

/// What a restore leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RestoreLayout {
    /// A ledger from which a validator boots at once.
    #[default]
    Boot,
    /// The tree as it is in the archive.
    Archive,
}

/// What becomes of a state that the target holds already: of its bank snapshots and accounts. Archives stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExistingState {
    /// Nothing: the restore is refused.
    #[default]
    Refuse,
    /// It is moved aside when the new one is complete. There must be room for both.
    MoveAside,
    /// It is deleted before the new one is written. Until that is complete, a validator can start from archives only.
    DeleteFirst,
}

/// What to restore, and where to.
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
pub struct RestoreOptions {
    /// A full archive; or any archive, for [`RestoreLayout::Archive`]. `-` is standard input.
    #[setters(into)]
    pub archive: PathBuf,
    /// An incremental archive on top of it. `-` is standard input; only one of the two can be.
    #[setters(into)]
    pub incremental: Option<PathBuf>,
    /// What to think of the archives' indexes.
    pub index: IndexPolicy,
    /// The roots that the archives must have, in their order: then every frame is compared with its hash.
    #[setters(into)]
    pub expect_roots: Vec<Root>,
    /// Where to restore, and how.
    pub target: RestoreTarget,
}

impl RestoreOptions {
    /// A full archive.
    pub fn new(archive: impl Into<PathBuf>, target: RestoreTarget) -> Self {
        let (archive, index) = (archive.into(), IndexPolicy::default());
        Self { archive, incremental: None, index, expect_roots: Vec::new(), target }
    }

    /// The archives, in their order.
    pub(super) fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        [Some(&self.archive), self.incremental.as_ref()].into_iter().flatten()
    }
}

/// Where to restore, and how, whatever the archives are.
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
pub struct RestoreTarget {
    /// Ledger, snapshots directory, accounts paths.
    pub paths: LedgerPaths,
    /// What is left there.
    pub layout: RestoreLayout,
    /// What becomes of a state that is there already; [`RestoreLayout::Boot`] only.
    pub existing_state: ExistingState,
    /// Threads that decode and write, 1 to 1024.
    pub threads: usize,
    /// Makes what Agave reads of an archive that it does not read, for the archives directory (`recompress_for_agave` does);
    /// without it, such an archive cannot be restored into a ledger that boots.
    pub convert: Option<ConvertArchive>,
    /// How the state is checked on the way.
    pub check: CheckOptions,
    /// Read everything back before the ledger is complete: what of it is checked.
    #[setters(into)]
    pub read_back: Option<CheckOptions>,
    /// How to read and write beside other programs.
    pub io_policy: IoPolicy,
}

impl RestoreTarget {
    /// A new ledger, from which a validator boots: all cores, the state checked.
    pub fn new(ledger: impl Into<PathBuf>) -> Self {
        Self {
            paths: LedgerPaths::new(ledger),
            layout: RestoreLayout::default(),
            existing_state: ExistingState::default(),
            threads: available_threads(),
            convert: None,
            check: CheckOptions::default(),
            read_back: None,
            io_policy: IoPolicy::default(),
        }
    }
}

/// An archive that Agave does not read.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ToConvert<'a> {
    /// The archive.
    pub archive: &'a Path,
    /// The full archive below an incremental one of Firedancer's.
    pub base: Option<&'a Path>,
    /// The slot of that, for an archive without a name.
    pub base_slot: Option<u64>,
    /// The incremental archive that is to go on a full one of Firedancer's, where it is known.
    pub incremental: Option<&'a Path>,
    /// The chain's `genesis.bin`, where the ledger has it.
    pub genesis: Option<&'a Path>,
    /// Whether it is Firedancer's: then its storages and its bank file change.
    pub is_of_firedancer: bool,
    /// Threads that work, 1 to 1024.
    pub threads: usize,
    /// The most memory for finding superseded records, in bytes.
    pub memory_bytes: u64,
    /// How to read and write beside other programs.
    pub io_policy: &'a IoPolicy,
}

/// Makes of an archive one that Agave reads; returns its path, where it has one.
pub type ConvertArchive = for<'a> fn(&ToConvert<'_>, Sink<'a>, &'a dyn Progress) -> Result<Option<PathBuf>>;

/// What was restored.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct RestoreReport {
    /// The bank snapshot that a validator will boot from; for [`RestoreLayout::Archive`], the tree.
    #[serde(serialize_with = "text::path")]
    pub path: PathBuf,
    /// The slot of the state.
    pub slot: u64,
    /// The slot of the full archive, when there is an incremental one.
    pub base_slot: Option<u64>,
    /// The snapshot hash of the state.
    pub hash: Hash,
    /// Storages written.
    pub storages: u64,
    /// Bytes of archives read.
    pub input_bytes: u64,
    /// Bytes of storages written.
    pub output_bytes: u64,
    /// The archives in the archives directory.
    #[serde(serialize_with = "text::paths")]
    pub archives: Vec<PathBuf>,
    /// The accounts paths.
    #[serde(serialize_with = "text::paths")]
    pub accounts: Vec<PathBuf>,
    /// Directories that a former state was moved to.
    #[serde(serialize_with = "text::paths")]
    pub replaced: Vec<PathBuf>,
    /// What integrity and completeness rest on.
    #[serde(flatten)]
    pub assurance: Assurance,
    /// What was read back, where that was asked for.
    pub read_back: Option<ReadBackReport>,
    /// Time from the start until everything was on disk.
    #[serde(flatten)]
    pub elapsed: Elapsed,
}
