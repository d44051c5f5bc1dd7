//! Flags that several commands share: inputs and outputs, checks, and limits on the machine's resources.

use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use slotpress::catalog::Keep;
use slotpress::restore::{ExistingState, TargetOptions};
use slotpress::types::{Hash, IoHint, IoPolicy};
use slotpress::verify::{CheckMode, CheckOptions, ReadBackReport};
use slotpress::{LedgerPaths, Progress, Result};
use slotpress_base::{NICENESS_MAX, RATE_MIN, available_threads, lower_priority};
use slotpress_read::STATE_MEMORY_BYTES_DEFAULT;

use super::environment::ACCOUNTS;
use super::memory::{DECODING_WORKER_BYTES, requested_memory_or};
use super::ui::Ui;
use super::values::Choice;
use super::{memory, values};

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Resource use")]
pub struct ThreadArgs {
    /// Worker threads [default: all cores that the process may use]
    #[arg(long, env, value_name = "N", value_parser = values::parse_threads)]
    pub threads: Option<usize>,
}

impl ThreadArgs {
    pub fn threads(&self) -> usize {
        self.threads.unwrap_or_else(available_threads)
    }
}

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Resource use")]
pub struct ResourceArgs {
    #[command(flatten)]
    pub workers: ThreadArgs,
    /// Memory limit for compressing (if it is too small, fewer workers run), and again for a check of the state
    /// (which writes what does not fit to the output directory, or to TMPDIR)
    #[arg(long, env, value_name = "SIZE", value_parser = values::parse_size)]
    pub memory: Option<u64>,
}

impl ResourceArgs {
    /// Returns the number of worker threads that fit into memory: see [`memory::threads_that_fit`].
    pub fn threads(&self, worker_bytes: u64, other_bytes: u64, ui: &Ui) -> Result<usize> {
        let worker_bytes = || Ok(worker_bytes);
        memory::threads_that_fit(self.workers.threads, worker_bytes, other_bytes, ui)
    }
}

#[derive(Debug, Default, Args)]
pub struct DirectoryArgs {
    /// The validator's --snapshots directory [default: the ledger]
    #[arg(long, env, value_name = "DIR")]
    snapshots: Option<PathBuf>,
    /// The validator's --accounts paths; may be given more than once [default: LEDGER/accounts]
    ///
    /// [env: SLOTPRESS_ACCOUNTS, separated by colons]
    #[arg(long, value_name = "DIR")]
    accounts: Vec<PathBuf>,
}

impl DirectoryArgs {
    pub fn paths(&self, ledger: &Path) -> LedgerPaths {
        let mut accounts = self.accounts.clone();
        if accounts.is_empty() {
            let listed = env::var_os(ACCOUNTS).unwrap_or_default();
            accounts.extend(env::split_paths(&listed).filter(|path| !path.as_os_str().is_empty()));
        }
        LedgerPaths { ledger: ledger.to_path_buf(), snapshots: self.snapshots.clone(), accounts }
    }
}

#[derive(Debug, Args)]
pub struct NewLedgerArgs {
    /// The ledger directory to create
    #[arg(long, env, value_name = "DIR")]
    ledger: PathBuf,
    #[command(flatten)]
    directories: DirectoryArgs,
    /// Replace the state of an existing ledger
    ///
    /// When the new state is complete, the old one is moved aside.
    #[arg(long)]
    replace_state: bool,
}

#[derive(Debug, Args)]
pub struct RestoringArgs {
    #[command(flatten)]
    check: CheckArgs,
    #[command(flatten)]
    resources: ResourceArgs,
    #[command(flatten)]
    pub io_policy: IoPolicyArgs,
}

impl NewLedgerArgs {
    pub fn paths(&self) -> LedgerPaths {
        self.directories.paths(&self.ledger)
    }

    /// Returns options for a restore into this ledger, with as many threads as fit into memory together with
    /// `other_bytes`.
    pub fn target_options(&self, restoring: &RestoringArgs, other_bytes: u64, ui: &Ui) -> Result<TargetOptions> {
        let io_policy = restoring.io_policy.apply(ui);
        let check = restoring.check.options(restoring.resources.memory);
        let other_bytes = check.memory_bytes.saturating_add(other_bytes);
        let mut target = TargetOptions::new(&self.ledger).paths(self.paths()).check(check).io_policy(io_policy);
        target.threads = restoring.resources.threads(DECODING_WORKER_BYTES, other_bytes, ui)?;
        if self.replace_state {
            target.existing_state = ExistingState::MoveAside;
        }
        Ok(target)
    }
}

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Resource use")]
pub struct PriorityArgs {
    /// Use of the page cache, which a validator on the same machine needs
    #[arg(long, env, value_name = "HINT", default_value = "gentle", value_parser = values::choice_parser(IO_HINTS))]
    io_hint: IoHint,
    /// Lower the priority for CPU and disk: 1 to 19; at 19, the disk is used only while nothing else uses it
    #[arg(long, env, value_name = "N", default_value_t = 0, hide_default_value = true,
          value_parser = clap::value_parser!(u8).range(0..=i64::from(NICENESS_MAX)))]
    nice: u8,
}

impl PriorityArgs {
    /// Lowers the process's priority, and returns how to use the page cache. Call it before threads are started:
    /// they inherit the priority.
    pub fn apply(&self, ui: &Ui) -> IoHint {
        if let Err(error) = lower_priority(self.nice) {
            let nice = self.nice;
            ui.warn(&format!("cannot set the priority for --nice {nice}: {error}"));
        }
        self.io_hint
    }
}

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Resource use")]
pub struct IoPolicyArgs {
    #[command(flatten)]
    priority: PriorityArgs,
    /// Limit reading (for `bootstrap`, fetching) to this many bytes per second, for example 300MiB
    #[arg(long, env, value_name = "SIZE", value_parser = parse_max_rate)]
    pub max_rate: Option<u64>,
}

const IO_HINTS: &[Choice<IoHint>] = &[
    Choice("gentle", IoHint::Gentle, "Keep what was cached before, and drop what slotpress reads and writes"),
    Choice("none", IoHint::None, "Use the cache as other programs do"),
];

impl IoPolicyArgs {
    /// Lowers the process's priority, and returns the policy for reading and writing: see
    /// [`PriorityArgs::apply`].
    pub fn apply(&self, ui: &Ui) -> IoPolicy {
        let policy = IoPolicy::default().io_hint(self.priority.apply(ui));
        match self.max_rate {
            Some(bytes_per_second) => policy.rate(bytes_per_second),
            None => policy,
        }
    }
}

/// Parses bytes per second. Refuses rates that are too low for progress.
pub fn parse_max_rate(text: &str) -> Result<u64, String> {
    match values::parse_size(text)? {
        bytes if bytes >= RATE_MIN => Ok(bytes),
        bytes => Err(format!("{bytes} B/s is too slow; for example, 100MiB is 100 MiB per second")),
    }
}

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Check")]
pub struct CheckArgs {
    /// The checks to run; only a check of the state reads the accounts
    #[arg(long, value_name = "CHECKS", default_value = "state", value_parser = values::choice_parser(CHECK_MODES))]
    pub check: CheckMode,
    #[command(flatten)]
    pub expected: ExpectedArgs,
}

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Check")]
pub struct ExpectedArgs {
    /// Expected snapshot hash, as a node that you trust advertises it
    #[arg(long, value_name = "HASH")]
    pub expect_hash: Option<Hash>,
    /// Expected slot of the state
    #[arg(long, value_parser = values::parse_slot, value_name = "SLOT")]
    pub expect_slot: Option<u64>,
}

const CHECK_MODES: &[Choice<CheckMode>] = &[
    Choice("state", CheckMode::State, "What `frames` checks, and whether all accounts match the bank file"),
    Choice("frames", CheckMode::Frames, "Only frames, entries, bank file and status cache"),
];

impl CheckArgs {
    pub fn options(&self, memory_bytes: Option<u64>) -> CheckOptions {
        self.expected.options(memory_bytes).mode(self.check)
    }
}

impl ExpectedArgs {
    pub fn options(&self, memory_bytes: Option<u64>) -> CheckOptions {
        let memory_bytes = requested_memory_or(memory_bytes, STATE_MEMORY_BYTES_DEFAULT);
        let mut options = CheckOptions::default().memory_bytes(memory_bytes);
        options.expect_hash = self.expect_hash;
        options.expect_slot = self.expect_slot;
        options
    }
}

pub const STATE_ROW: &str = "state: {state}[ ({state_reason})][, {accounts_checked} accounts]";
pub const COMPLETE_ROW: &str = "complete: {complete}";

pub fn say_read_back(report: &ReadBackReport, ui: &Ui) {
    let text = if report.unknown.is_empty() {
        "GOOD: read back: {storages}[, {accounts}]; checked: {checks}"
    } else {
        "no failure was found; read back: {storages}[, {accounts}]; checked: {checks}; not checked: {unknown}"
    };
    ui.say_filled(report, text);
}

#[derive(Clone, Debug, Args)]
pub struct RetentionArgs {
    /// Number of newest results of `rebase` to keep [default: all, or none if only flags for times are given;
    /// for `publish`, the number of --rebase-onto]
    ///
    /// A result is deleted together with its full archive.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=10_000))]
    keep_rebased: Option<u64>,
    /// Also keep what was modified or published within this time, for example 24h or 7d
    #[arg(long, value_name = "TIME", value_parser = values::parse_duration)]
    keep_within: Option<Duration>,
    /// Also keep the newest state of each of the newest N days that have one
    ///
    /// Days are in UTC, and times come from the bank files. An archive is kept if its time is unknown.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=10_000))]
    keep_daily: Option<u64>,
    /// The same for weeks, which begin on Monday
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=10_000))]
    keep_weekly: Option<u64>,
    /// The same for epochs that have ended
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=10_000))]
    keep_epoch_ends: Option<u64>,
}

impl RetentionArgs {
    /// True if the rule needs the times in bank files. A count of 0 does not.
    pub fn needs_bank_times(&self) -> bool {
        let counts = [self.keep_daily, self.keep_weekly, self.keep_epoch_ends];
        counts.into_iter().flatten().any(|count| count > 0)
    }

    /// True if these flags keep archives only because of their times.
    pub fn is_by_time_alone(&self) -> bool {
        (self.keep_within.is_some() || self.needs_bank_times()) && self.keep_rebased.is_none()
    }

    /// Adds these flags to a rule. Without `--keep-rebased`, the rule keeps `rebased_default` results of `rebase`.
    pub fn apply(&self, keep: Keep, rebased_default: usize) -> Keep {
        let count = |flag: Option<u64>| flag.unwrap_or_default() as usize;
        let rebased = self.keep_rebased.map_or(rebased_default, |count| count as usize);
        keep.rebased(rebased)
            .within(self.keep_within.unwrap_or_default())
            .daily(count(self.keep_daily))
            .weekly(count(self.keep_weekly))
            .epoch_ends(count(self.keep_epoch_ends))
    }
}
