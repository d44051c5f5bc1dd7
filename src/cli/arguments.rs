//! Flags that several commands share.

use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use slotpress::{ExistingState, LedgerPaths, Result};

use super::ui::Ui;
use super::{planned, values};

#[derive(Clone, Debug, Args)]
pub struct WorkerArgs {
    /// Worker threads [default: all cores that the process may use]
    #[arg(long, value_name = "N", value_parser = values::threads, env = "SLOTPRESS_THREADS")]
    threads: Option<usize>,
}

impl WorkerArgs {
    pub fn threads(&self) -> usize {
        values::threads_or_all(self.threads)
    }

    /// Like [`WorkerArgs::threads`], reduced to the number that fits into memory: see
    /// [`planned::threads_that_fit`].
    pub fn that_fit(&self, worker_bytes: impl FnOnce() -> Result<u64>, other_bytes: u64, ui: &Ui) -> Result<usize> {
        planned::threads_that_fit(self.threads, worker_bytes, other_bytes, ui)
    }
}

/// Directories of a validator outside its ledger directory (`--snapshots`, `--accounts`).
#[derive(Debug, Default)]
pub struct DirectoryArgs {
    flags: DirectoryFlags,
    is_given: bool,
}

#[derive(Debug, Default, Args)]
struct DirectoryFlags {
    /// The validator's --snapshots directory [default: the ledger]
    #[arg(long, value_name = "DIR", env = "SLOTPRESS_SNAPSHOTS")]
    snapshots: Option<PathBuf>,
    /// The validator's --accounts paths; may be given more than once [default: LEDGER/accounts]
    #[arg(long, value_name = "DIR", env = "SLOTPRESS_ACCOUNTS")]
    accounts: Vec<PathBuf>,
}

impl Args for DirectoryArgs {
    fn augment_args(command: Command) -> Command {
        DirectoryFlags::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        DirectoryFlags::augment_args_for_update(command)
    }
}

impl FromArgMatches for DirectoryArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = DirectoryFlags::from_arg_matches(matches)?;
        // The environment variable holds several paths separated by colons, like `PATH`.
        if matches.value_source("accounts") == Some(ValueSource::EnvVariable) {
            let paths = flags.accounts.iter().flat_map(std::env::split_paths);
            flags.accounts = paths.filter(|path| !path.as_os_str().is_empty()).collect();
        }
        let is_given =
            ["snapshots", "accounts"].map(|id| matches.value_source(id)).contains(&Some(ValueSource::CommandLine));
        Ok(Self { flags, is_given })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl DirectoryArgs {
    /// True if a flag is on the command line. Environment variables do not count: they are set for
    /// all commands, including those that read an archive.
    pub fn is_given(&self) -> bool {
        self.is_given
    }

    pub fn paths(&self, ledger: &Path) -> LedgerPaths {
        let DirectoryFlags { snapshots, accounts } = &self.flags;
        LedgerPaths { ledger: ledger.to_path_buf(), snapshots: snapshots.clone(), accounts: accounts.clone() }
    }
}

/// The ledger to create, and what to do with one that exists.
#[derive(Debug, Args)]
pub struct NewLedgerArgs {
    /// The ledger directory to create
    #[arg(long, value_name = "DIR", env = "SLOTPRESS_LEDGER")]
    ledger: PathBuf,
    #[command(flatten)]
    directories: DirectoryArgs,
    /// Replace the state of an existing ledger; the old one is moved aside when the new one is
    /// complete
    #[arg(long)]
    replace_state: bool,
}

impl NewLedgerArgs {
    pub fn existing_state(&self) -> ExistingState {
        if self.replace_state { ExistingState::MoveAside } else { ExistingState::Refuse }
    }

    pub fn paths(&self) -> LedgerPaths {
        self.directories.paths(&self.ledger)
    }
}
