//! Reads back and verifies an archive that slotpress has written, before it is published.

use serde::Serialize;
use slotpress_base::progress::without_steps;
use slotpress_base::{EscapePath, Progress, Result};

use crate::rules::clients::clients_that_read;
use crate::{
    ArchiveInput, Check, CheckOptions, CheckResult, Failure, Rule, Snapshot, VerifyOptions, VerifyReport, verify,
};

/// Checks of an archive that was read back before it got its final name.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct ReadBackReport {
    /// Number of storages in the archive.
    pub storages: u64,
    /// Number of accounts in the state; `None` if the state was not checked.
    pub accounts: Option<u64>,
    /// Names of the checks that completed.
    pub checks: Vec<&'static str>,
    /// Names of the other checks, each with the reason in parentheses.
    pub unknown: Vec<String>,
}

/// Verifies a written archive: every client that reads its format must load it, and its index must be right.
/// If `base` is given, the archive is an incremental one, and is verified together with this full archive.
///
/// # Errors
/// The archive is not valid, or cannot be read.
pub fn read_back_archive(
    check: &CheckOptions,
    archive: &ArchiveInput,
    base: Option<&ArchiveInput>,
    threads: usize,
    progress: &dyn Progress,
) -> Result<ReadBackReport> {
    let snapshot = match base {
        Some(base) => Snapshot::pair(base.clone(), archive.clone()),
        None => Snapshot::archive(archive.clone()),
    };
    let options = VerifyOptions {
        clients: archive.name.as_ref().map(|name| clients_that_read(name.compression)).unwrap_or_default(),
        threads,
        check: check.clone().of_all_frames(),
        // The caller knows that an incremental archive alone does not hold a whole state. The report says that
        // the state was not checked.
        allows_part: true,
        ..VerifyOptions::default()
    };
    let report = verify(&snapshot, &options, &without_steps(progress))?;
    let Some(failure) = find_own_failure(&report, base) else { return Ok(ReadBackReport::new(&report)) };
    let name = archive.name.as_ref().map_or_else(|| archive.path.escaped(), ToString::to_string);
    let (read_back_on, hint) = match base {
        Some(base) => (format!(", read back on {},", base.path.escaped()), PAIR_HINT),
        None => (String::new(), ARCHIVE_HINT),
    };
    let message = format!("the archive {name}{read_back_on} is not valid, and was removed");
    Err(failure.to_error().with_place(message).with_hint(hint))
}

/// Finds a failure that slotpress caused. Ignores differences between client versions, because the
/// written archive keeps them, and a missing name of the full archive, which may not have its final name yet.
fn find_own_failure<'a>(report: &'a VerifyReport, base: Option<&ArchiveInput>) -> Option<&'a Failure> {
    let is_caused_here = |failure: &&Failure| {
        let is_in_base = base.is_some_and(|base| failure.place.path.as_ref() == Some(&base.path));
        let is_unnamed_base = is_in_base && failure.rule == Rule::NameUnknown;
        !failure.rule.is_version_specific() && !is_unnamed_base
    };
    let is_about_index = |warning: &&Failure| warning.rule == Rule::Index;
    let index_warning = report.warnings.iter().find(is_about_index);
    report.failures.iter().find(is_caused_here).or(index_warning)
}

impl ReadBackReport {
    fn new(report: &VerifyReport) -> Self {
        let mut checks = Vec::new();
        let mut unknown = Vec::new();
        for CheckResult { check, skip_reason, .. } in &report.checks {
            match skip_reason {
                None => checks.push(check.name()),
                Some(reason) => unknown.push(format!("{} ({reason})", check.name())),
            }
        }
        let is_state_checked = report.has_completed(Check::State);
        let accounts = is_state_checked.then_some(report.counts.accounts);
        Self { storages: report.counts.storages, accounts, checks, unknown }
    }
}

const ARCHIVE_HINT: &str = "verify the ledger: if it is valid, suspect the disk or the memory";
const PAIR_HINT: &str = "verify the full archive and the ledger: if both are valid, suspect the disk or the memory";
