//! Options and report of a restore.

use std::path::PathBuf;

use derive_setters::Setters;
use serde::Serialize;
use slotpress_base::{Elapsed, IoPolicy, available_threads, text};
use slotpress_format::{ArchiveRoot, Genesis, Hash, LedgerPaths};
use slotpress_read::{Assurance, CheckOptions, LocalArchive};

/// Treatment of bank snapshots and accounts that are already in the target, and of archives there that
/// would make a validator ignore or damage the restored state. Other archives are not affected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExistingState {
    /// Refuses to restore over them.
    #[default]
    Refuse,
    /// Moves them aside when the new state is complete. There must be space for both states.
    MoveAside,
}

/// Archives to restore, and their destination.
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
pub struct RestoreOptions {
    /// The full archive. A stream is saved in the snapshots directory while it is read.
    #[setters(into)]
    pub archive: LocalArchive,
    /// An incremental archive on the full one. Only one of the two can be a stream. Default: none.
    #[setters(into, strip_option)]
    pub incremental: Option<LocalArchive>,
    /// Roots that the archives must have, in order. With these, every frame is compared with its
    /// hash. Default: any.
    #[setters(into)]
    pub expect_roots: Vec<ArchiveRoot>,
    /// Renames archives into the snapshots directory, which must be on their file system. Default:
    /// false, which clones or copies them.
    pub move_archives: bool,
    /// Destination and settings. [`RestoreOptions`] has their setters too.
    pub target: TargetOptions,
}

impl RestoreOptions {
    /// Creates options that restore a full archive.
    pub fn new(archive: impl Into<LocalArchive>, target: impl Into<TargetOptions>) -> Self {
        Self {
            archive: archive.into(),
            incremental: None,
            expect_roots: Vec::new(),
            move_archives: false,
            target: target.into(),
        }
    }

    pub(super) fn archives(&self) -> impl Iterator<Item = &LocalArchive> {
        std::iter::once(&self.archive).chain(&self.incremental)
    }
}

/// Destination and settings of a restore. [`RestoreOptions`] and `bootstrap::BootstrapOptions` have the
/// same setters.
#[derive(Clone, Debug, Setters)]
// Clippy takes the field's name, which is the same in both types, for a duplicate.
#[allow(clippy::duplicated_attributes)]
#[setters(generate_delegates(ty = "RestoreOptions", field = "target"))]
#[cfg_attr(feature = "net", setters(generate_delegates(ty = "crate::bootstrap::BootstrapOptions", field = "target")))]
#[non_exhaustive]
pub struct TargetOptions {
    /// Ledger, snapshots directory and accounts paths.
    pub paths: LedgerPaths,
    /// Treatment of an existing state. Default: refuse to restore over it.
    pub existing_state: ExistingState,
    /// Number of threads that decode and write, 1 to 1024. Default: one per core.
    pub threads: usize,
    /// Checks that are made while the archives are unpacked. Default: all, including the state.
    pub check: CheckOptions,
    /// Use of the page cache, and rate limit. Default: gentle on the page cache, without a rate limit.
    pub io_policy: IoPolicy,
    /// Genesis blocks. One of them must be that of the archives' chain. If there are none, the ledger's genesis
    /// is used instead, if it is readable.
    #[doc(hidden)]
    #[setters(skip)]
    pub genesis: Vec<Genesis>,
}

impl TargetOptions {
    /// Creates options for a new ledger, with all cores and a check of the state. A path converts into
    /// the same options.
    pub fn new(ledger: impl Into<LedgerPaths>) -> Self {
        Self {
            paths: ledger.into(),
            existing_state: ExistingState::default(),
            threads: available_threads(),
            check: CheckOptions::default(),
            io_policy: IoPolicy::default(),
            genesis: Vec::new(),
        }
    }
}

impl<L: Into<LedgerPaths>> From<L> for TargetOptions {
    fn from(ledger: L) -> Self {
        Self::new(ledger)
    }
}

/// Result of a restore.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct RestoreReport {
    /// Directory of the bank snapshot from which a validator will boot.
    #[serde(serialize_with = "text::path")]
    pub path: PathBuf,
    /// Slot of the state.
    pub slot: u64,
    /// Slot of the full archive, if there is an incremental one.
    pub base_slot: Option<u64>,
    /// Snapshot hash of the state, as in the newest archive's name.
    pub hash: Hash,
    /// Number of storages that were written.
    pub storages: u64,
    /// Length of the archives, in bytes.
    pub input_bytes: u64,
    /// Length of the storages, in bytes.
    pub output_bytes: u64,
    /// Paths of the restored archives in the snapshots directory, the full one first.
    #[serde(serialize_with = "text::paths")]
    pub archives: Vec<PathBuf>,
    /// Accounts directories that hold the storages.
    #[serde(serialize_with = "text::paths")]
    pub accounts: Vec<PathBuf>,
    /// Directories to which the former state and conflicting archives were moved.
    #[serde(serialize_with = "text::paths")]
    pub replaced: Vec<PathBuf>,
    /// Facts on which the result relies: the check of the state, and the evidence that no storage is
    /// missing.
    #[serde(flatten)]
    pub assurance: Assurance,
    /// Time from the start until everything was on disk.
    #[serde(flatten)]
    pub elapsed: Elapsed,
    /// Genesis of the chain, one of [`TargetOptions::genesis`].
    #[doc(hidden)]
    #[serde(skip)]
    pub genesis: Option<Genesis>,
}
