//! Report of a verification: checks, failures with their places, and each client's verdict.

use std::path::PathBuf;

use serde::Serialize;
use slotpress_base::{Elapsed, EscapePath, Result, text};
use slotpress_format::{ArchiveRoot, BankFile, Hash};

use crate::rules::clients::verdicts;
use crate::rules::failures::FailureList;
use crate::{Check, ClientVerdict, Completeness, Failure, Failures, Rule, SnapshotClient};

/// Result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CheckResult {
    /// One of the six checks.
    pub check: Check,
    /// True if the check found nothing wrong, as far as it went.
    pub ok: bool,
    /// Reason why the check did not complete; `None` if it did.
    pub skip_reason: Option<String>,
}

/// Report of a verification.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct VerifyReport {
    /// The verified input: an archive, a full and an incremental one, or a ledger.
    #[serde(serialize_with = "text::paths")]
    pub paths: Vec<PathBuf>,
    /// True if there are no failures. There may be warnings.
    pub ok: bool,
    /// Clients that the caller asked about; may be empty.
    pub asked: Vec<SnapshotClient>,
    /// Snapshot hash that the caller expected.
    pub expected_hash: Option<Hash>,
    /// Slot that the caller expected.
    pub expected_slot: Option<u64>,
    /// Root of each archive, in the order of `paths`; `None` for an archive without frame hashes. Empty for a
    /// ledger.
    pub roots: Vec<Option<ArchiveRoot>>,
    /// Slot of the state, from the bank file; `None` if that could not be read.
    pub slot: Option<u64>,
    /// Slot of the full archive on which an incremental archive builds; `None` for any other input.
    pub base_slot: Option<u64>,
    /// Snapshot hash of the state, from the bank file.
    pub hash: Option<Hash>,
    /// Sum of the lamports of all accounts, from the bank file. The check of the state compares the accounts
    /// with it.
    #[serde(serialize_with = "text::optional_display")]
    pub capitalization_lamports: Option<u64>,
    /// Evidence that no storage is missing; `None` if the bank file could not be read.
    pub complete: Option<Completeness>,
    /// All checks, in their order.
    pub checks: Vec<CheckResult>,
    /// Broken rules that make the input invalid. If the caller asked about clients, these are the rules that at
    /// least one of them does not tolerate. Otherwise, these are all broken rules except differences
    /// between client versions. At most 50 of each rule in each archive, sorted by check and place.
    pub failures: Vec<Failure>,
    /// Broken rules that all clients in `asked` tolerate. At most 50 of each rule in each archive.
    pub warnings: Vec<Failure>,
    /// Number of failures and warnings that are not listed, because an archive breaks a rule more than 50 times.
    pub unlisted_count: u64,
    /// Verdicts of the clients in [`SnapshotClient::JUDGED_BY_DEFAULT`], then of clients judged on request.
    /// For a ledger, only the verdicts of Agave's versions.
    pub clients: Vec<ClientVerdict>,
    /// Counts of what was read.
    #[serde(flatten)]
    pub counts: Counts,
    /// Time that the verification took.
    #[serde(flatten)]
    pub elapsed: Elapsed,
    /// Bank file of the state, if it could be read.
    #[serde(skip)]
    pub(crate) bank: Option<BankFile>,
}

/// Counts over all archives of the input. Counts of records and accounts are 0 if the check of the records was
/// not run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Counts {
    /// Length in bytes of the archives; for a ledger, of the storages that an archive would hold.
    pub input_bytes: u64,
    /// Length in bytes of the tar streams; for a ledger, of the stream that archiving would write.
    pub tar_bytes: u64,
    /// Number of frames with tar data; 0 for a ledger.
    pub frames: u64,
    /// Number of storages in the input.
    pub storages: u64,
    /// Number of records in the storages.
    pub records: u64,
    /// Number of accounts in the state: newest versions with lamports.
    pub accounts: u64,
    /// Number of records without lamports, each of which closes an account.
    pub tombstones: u64,
    /// Number of records that a newer record supersedes.
    pub superseded: u64,
    /// Bytes of the log of records that did not fit in memory, and were written to the temporary directory.
    pub spilled_bytes: u64,
    /// Number of a ledger's obsolete records, which an archive of the ledger would not hold.
    #[serde(skip)]
    #[doc(hidden)]
    pub obsolete_records: Option<u64>,
    #[serde(skip)]
    #[doc(hidden)]
    pub obsolete_bytes: Option<u64>,
}

impl VerifyReport {
    /// Creates a report with the verdicts of `clients`. If `asked` names clients, broken rules that all of
    /// them tolerate are warnings.
    pub(crate) fn from_failures(
        failures: Failures,
        asked: &[SnapshotClient],
        clients: &[SnapshotClient],
        paths: Vec<PathBuf>,
    ) -> Self {
        let FailureList { mut failures, per_rule, skipped, .. } = failures.into_list();
        failures.sort_by_cached_key(|Failure { check, place, .. }| {
            (*check, place.frame, place.offset_bytes, place.entry.clone())
        });
        // An unexpected value is a failure, whatever clients tolerate.
        let is_refused = |rule: Rule| asked.iter().any(|client| !rule.is_tolerated_by(*client));
        let is_failure = |rule: Rule| match rule {
            Rule::NotExpected | Rule::RootNotExpected => true,
            rule => is_refused(rule) || (asked.is_empty() && !rule.is_version_specific()),
        };
        let clients = verdicts(per_rule.keys().copied(), clients);
        // A difference between client versions is not a warning: the clients' verdicts show it.
        let is_listed = |rule: Rule| is_failure(rule) || !rule.is_version_specific();
        failures.retain(|failure| is_listed(failure.rule));
        let listed = per_rule.iter().filter(|(rule, _)| is_listed(**rule));
        let total: u64 = listed.map(|(_, count)| count).sum();
        let unlisted_count = total.saturating_sub(failures.len() as u64);
        let (mut failures, warnings): (Vec<Failure>, Vec<Failure>) =
            failures.into_iter().partition(|failure| is_failure(failure.rule));
        if failures.is_empty() && asked.is_empty() {
            failures.extend(Failure::from_verdicts(&clients));
        }
        let checks = Check::ALL.map(|check| CheckResult {
            check,
            ok: !failures.iter().any(|failure| failure.check == check),
            skip_reason: skipped.get(&check).cloned(),
        });
        Self {
            paths,
            ok: failures.is_empty(),
            asked: asked.to_vec(),
            checks: checks.to_vec(),
            unlisted_count,
            failures,
            warnings,
            clients,
            ..Self::default()
        }
    }

    /// Succeeds if there is no failure.
    ///
    /// # Errors
    /// The first failure.
    pub fn require_ok(&self) -> Result<()> {
        let Some(failure) = self.failures.first() else { return Ok(()) };
        let error = failure.to_error();
        Err(match failure.place.path.as_ref().or(self.paths.last()) {
            Some(path) => error.with_place(path.escaped()),
            None => error,
        })
    }

    /// True for a ledger, which has no frames.
    pub fn is_ledger(&self) -> bool {
        self.roots.is_empty()
    }

    /// Returns the checks that did not complete, without the check of frames for a ledger.
    pub fn incomplete_checks(&self) -> impl Iterator<Item = &CheckResult> {
        let applies = |result: &&CheckResult| result.check != Check::Frames || !self.is_ledger();
        self.checks.iter().filter(|result| result.skip_reason.is_some()).filter(applies)
    }

    /// Returns the reason why the check did not complete. `None` if it did.
    #[doc(hidden)]
    pub fn skip_reason(&self, check: Check) -> Option<&str> {
        let result = self.checks.iter().find(|result| result.check == check)?;
        result.skip_reason.as_deref()
    }

    /// True if the check was completed.
    pub fn has_completed(&self, check: Check) -> bool {
        self.checks.iter().any(|result| result.check == check && result.skip_reason.is_none())
    }
}
