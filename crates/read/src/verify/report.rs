//! The report of a verification: checks, failures with their place, and each client's verdict.

use std::path::PathBuf;

use serde::Serialize;
use slotpress_base::text::{self};
use slotpress_base::{Elapsed, Result, ShowPath};
use slotpress_format::{BankFile, Hash, Root};

use crate::rules::clients::verdicts;
use crate::state::accounts::Accounts;
use crate::state::finish::StateCounts;
use crate::{Assurance, Check, Client, ClientVerdict, Completeness, Failure, Findings, Rule, StateOutcome};

/// Whether a check was made, and what it said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CheckResult {
    /// The check.
    pub name: Check,
    /// Whether nothing was wrong, as far as it was made.
    pub ok: bool,
    /// Why it was not made, or not to its end.
    pub skipped: Option<String>,
}

/// Everything that verifying found out.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct VerifyReport {
    /// What was verified: an archive, a full and an incremental one, or a ledger.
    #[serde(serialize_with = "text::paths")]
    pub paths: Vec<PathBuf>,
    /// Whether everything that was asked about is right.
    pub ok: bool,
    /// The clients that were asked about; empty for all, and without any departure.
    pub asked: Vec<Client>,
    /// The snapshot hash that the state was compared with.
    pub expected_hash: Option<Hash>,
    /// The slot that it was compared with.
    pub expected_slot: Option<u64>,
    /// What stands for all bytes of each archive that has frame hashes, in the order of the paths.
    pub roots: Vec<Option<Root>>,
    /// The state's slot.
    pub slot: Option<u64>,
    /// The base slot, for an incremental archive.
    pub base_slot: Option<u64>,
    /// The snapshot hash of the state, as the bank file gives it.
    pub hash: Option<Hash>,
    /// Lamports in existence, as recomputed, or as the bank file says.
    #[serde(flatten, serialize_with = "text::capitalization")]
    pub capitalization: Option<u64>,
    /// What tells that no storage is missing; `None` where the bank file could not be read.
    pub complete: Option<Completeness>,
    /// The checks, in order.
    pub checks: Vec<CheckResult>,
    /// What is wrong.
    pub failures: Vec<Failure>,
    /// What is odd, but tolerated by every client that was asked about.
    pub warnings: Vec<Failure>,
    /// Failures and warnings beyond those listed, which are of the same kinds.
    pub unlisted_count: u64,
    /// Each client's verdict.
    pub clients: Vec<ClientVerdict>,
    /// What was counted.
    #[serde(flatten)]
    pub counts: Counts,
    /// Time and CPU time.
    #[serde(flatten)]
    pub elapsed: Elapsed,
}

/// Obsolete records of storages that are not emptied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ObsoleteTotals {
    /// How many there are.
    pub records: u64,
    /// Their bytes, as records of an append vec.
    pub bytes: u64,
}

/// What was counted on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Counts {
    /// Bytes of archives or storages read.
    pub input_bytes: u64,
    /// Bytes of tar, or of storages.
    pub tar_bytes: u64,
    /// Frames that hold tar.
    pub frames: u64,
    /// Storages.
    pub storages: u64,
    /// Records of all versions.
    pub records: u64,
    /// Accounts in the state: with lamports, newest version.
    pub accounts: u64,
    /// Records that close an account.
    pub tombstones: u64,
    /// Records that a newer one supersedes, as far as they were counted.
    pub superseded: u64,
    /// Bytes spilled to a temporary directory.
    pub spilled_bytes: u64,
    /// Of a ledger: what an archive of it would not hold.
    #[serde(skip)]
    pub obsolete: Option<ObsoleteTotals>,
}

impl Counts {
    /// Adds what was counted of the state.
    pub(crate) fn add_state(&mut self, counted: &StateCounts, accounts: &Accounts) {
        let sums = accounts.sums();
        self.records = sums.records;
        self.tombstones = sums.tombstones;
        self.accounts = counted.accounts;
        self.superseded = counted.superseded;
        self.spilled_bytes = accounts.spilled_bytes();
    }
}

impl VerifyReport {
    /// Puts everything together. With `asked`, what all of those clients tolerate is a warning.
    pub(crate) fn of_findings(findings: Findings, asked: &[Client], paths: Vec<PathBuf>) -> Self {
        let (mut failures, per_rule, skipped) = findings.into_parts();
        failures.sort_by(|a, b| {
            let key = |failure: &Failure| (failure.check, failure.place.frame, failure.place.offset_bytes);
            key(a).cmp(&key(b)).then_with(|| a.place.entry.cmp(&b.place.entry))
        });
        // Expected values are compared for the caller, not for a client.
        let is_minded = |rule: Rule| asked.iter().any(|client| !rule.is_tolerated_by(*client));
        let is_failure = |rule: Rule| match rule {
            Rule::NotExpected | Rule::RootNotExpected => true,
            rule => is_minded(rule) || (asked.is_empty() && !rule.is_of_version()),
        };
        let clients = verdicts(per_rule.keys().copied());
        // How another version writes is nothing to warn of: the verdicts say it.
        let is_told = |rule: Rule| is_failure(rule) || !rule.is_of_version();
        failures.retain(|failure| is_told(failure.rule));
        let found: u64 = per_rule.iter().filter(|(rule, _)| is_told(**rule)).map(|(_, count)| count).sum();
        let unlisted_count = found.saturating_sub(failures.len() as u64);
        let (failures, warnings): (Vec<Failure>, Vec<Failure>) =
            failures.into_iter().partition(|failure| is_failure(failure.rule));
        let checks = Check::ALL
            .into_iter()
            .map(|name| CheckResult {
                name,
                ok: !failures.iter().any(|failure| failure.check == name),
                skipped: skipped.get(&name).cloned(),
            })
            .collect();
        Self {
            paths,
            ok: failures.is_empty(),
            asked: asked.to_vec(),
            expected_hash: None,
            expected_slot: None,
            roots: Vec::new(),
            slot: None,
            base_slot: None,
            hash: None,
            capitalization: None,
            complete: None,
            checks,
            unlisted_count,
            failures,
            warnings,
            clients,
            counts: Counts::default(),
            elapsed: Elapsed::default(),
        }
    }

    /// Whether nothing is wrong.
    ///
    /// # Errors
    /// The first of what is.
    pub fn require_ok(&self) -> Result<()> {
        let Some(failure) = self.failures.first() else { return Ok(()) };
        let place = failure.place.path.as_ref().or(self.paths.last());
        Err(place.map_or_else(|| failure.to_error(), |path| failure.to_error().within(path.shown())))
    }

    /// Says what tells that nothing is missing: the state where it was checked, else the storage map, else an index (of
    /// a ledger, its storages list).
    pub fn set_completeness(&mut self, bank: Option<&BankFile>, has_index: bool) {
        let Some(bank) = bank else { return };
        let outcome = match self.was_made(Check::State) {
            true => StateOutcome::Checked { accounts: self.counts.accounts },
            false => StateOutcome::NotChecked(String::new()),
        };
        self.complete = Some(Assurance::new(outcome, bank, has_index).complete);
    }

    /// Whether it is about a ledger, which has no frames.
    pub fn is_ledger(&self) -> bool {
        self.counts.frames == 0
    }

    /// Whether a check was made to its end.
    pub fn was_made(&self, check: Check) -> bool {
        self.checks.iter().any(|result| result.name == check && result.skipped.is_none())
    }
}
