//! Arguments that several commands have.

use {
    super::{planned, ui::Ui, values},
    clap::Args,
    slotpress_base::error::Result,
    slotpress_format::ledger::directory::LedgerPaths,
    std::path::{Path, PathBuf},
};

/// How many workers.
#[derive(Debug, Args)]
pub struct WorkerArgs {
    /// Worker threads [default: all cores that the process may use]
    #[arg(long, value_name = "N", value_parser = values::threads)]
    threads: Option<usize>,
}

impl WorkerArgs {
    /// As many as asked for, or all cores.
    pub fn threads(&self) -> usize {
        values::threads_or_all(self.threads)
    }

    /// As many of them as fit into the limits of memory: see [`planned::threads_that_fit`].
    pub fn that_fit(&self, worker_bytes: impl FnOnce() -> Result<u64>, other_bytes: u64, ui: &Ui) -> Result<usize> {
        planned::threads_that_fit(self.threads, worker_bytes, other_bytes, ui)
    }
}

/// Where a validator keeps what is not in its ledger directory.
#[derive(Debug, Args)]
pub struct DirectoryArgs {
    /// The validator's --snapshots directory [default: the ledger]
    #[arg(long, value_name = "DIR")]
    snapshots: Option<PathBuf>,
    /// The validator's --accounts paths; may be given more than once [default: LEDGER/accounts]
    #[arg(long, value_name = "DIR")]
    pub accounts: Vec<PathBuf>,
}

impl DirectoryArgs {
    /// Whether any of them is given.
    pub fn is_given(&self) -> bool {
        self.snapshots.is_some() || !self.accounts.is_empty()
    }

    /// The directories of a ledger.
    pub fn paths(&self, ledger: &Path) -> LedgerPaths {
        LedgerPaths { ledger: ledger.to_path_buf(), snapshots: self.snapshots.clone(), accounts: self.accounts.clone() }
    }
}

/// Where a new ledger goes.
#[derive(Debug, Args)]
pub struct NewLedgerArgs {
    /// The ledger directory to create
    #[arg(long, value_name = "DIR")]
    ledger: PathBuf,
    #[command(flatten)]
    directories: DirectoryArgs,
}

impl NewLedgerArgs {
    /// Its directories.
    pub fn paths(&self) -> LedgerPaths {
        self.directories.paths(&self.ledger)
    }
}
