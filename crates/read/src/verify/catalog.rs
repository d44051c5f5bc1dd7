//! Verifies all archives of a catalog, and each incremental archive together with its full archive.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

use serde::Serialize;
use slotpress_base::{Error, ErrorKind, EscapePath, Progress, Result, hint, quantity};
use slotpress_format::ArchiveName;

use crate::{ArchiveInput, Catalog, Check, CheckMode, ListedArchive, Snapshot, VerifyOptions, VerifyReport, verify};

/// Verdict on one archive of a catalog.
#[derive(Debug)]
#[non_exhaustive]
pub struct ArchiveVerdict<'a> {
    /// The archive that was verified.
    pub archive: &'a ListedArchive,
    /// Full archive on which the archive builds, and whether it could be used.
    pub base: ArchiveBase<'a>,
    /// Report on the archive, or the reason why it could not be verified. The report on an incremental archive
    /// is about the pair. An error of the kind [`ErrorKind::Damaged`] means that the file is not an archive, or
    /// that its index contradicts its frames.
    pub report: Result<VerifyReport>,
    requests_state: bool,
}

impl ArchiveVerdict<'_> {
    /// Returns the reason why the state of an incremental archive was not checked, if that was requested and
    /// nothing else is wrong: its full archive is damaged or missing.
    pub fn state_skip_reason(&self) -> Option<String> {
        let why = match self.base {
            ArchiveBase::Damaged(name) => format!("its full archive {name} is damaged"),
            ArchiveBase::Missing => "its full archive is not here".to_string(),
            ArchiveBase::NotNeeded | ArchiveBase::Good(_) => return None,
        };
        let is_good = self.report.as_ref().is_ok_and(|report| report.ok);
        (self.requests_state && is_good).then_some(why)
    }

    /// True if the archive is damaged, or is not what its name says.
    pub fn is_damaged(&self) -> bool {
        match &self.report {
            Ok(report) => !report.ok,
            Err(error) => error.kind() == ErrorKind::Damaged,
        }
    }
}

/// The full archive of an archive in a catalog. If an incremental archive has no good full archive, it is
/// checked as with [`CheckMode::Frames`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum ArchiveBase<'a> {
    /// The archive is a full archive.
    NotNeeded,
    /// A full archive in which nothing wrong was found.
    Good(&'a ListedArchive),
    /// A full archive that is damaged or unusable.
    Damaged(&'a ArchiveName),
    /// The catalog does not contain the full archive.
    Missing,
}

impl<'a> ArchiveBase<'a> {
    fn choose(base_slot: Option<u64>, all: &[&'a ListedArchive], damaged: &[PathBuf]) -> Self {
        let Some(slot) = base_slot else { return Self::NotNeeded };
        let mut fulls = all.iter().filter(|full| full.is_full() && full.name.slot == slot);
        match (fulls.clone().find(|full| !damaged.contains(&full.path())), fulls.next()) {
            (Some(good), _) => Self::Good(good),
            (None, Some(full)) => Self::Damaged(&full.name),
            (None, None) => Self::Missing,
        }
    }
}

/// Verdict on a catalog.
#[derive(Debug, Default, Serialize)]
#[non_exhaustive]
pub struct CatalogVerdict {
    /// Number of archives, including unusable files that are named like archives.
    pub archives: u64,
    /// Number of archives that passed all checks.
    pub good: u64,
    /// Number of archives without failures but with incomplete checks.
    pub partly_checked: u64,
    /// Number of files that are damaged or not archives.
    pub damaged: u64,
    /// Checks that did not complete on some archive without failures.
    pub incomplete_checks: BTreeSet<Check>,
    /// Error of the first archive that could not be verified, or whose state was not checked.
    #[serde(skip)]
    pub error: Option<Error>,
}

impl CatalogVerdict {
    fn add(&mut self, verdict: &ArchiveVerdict<'_>) {
        let report = match &verdict.report {
            Ok(report) => report,
            Err(error) => {
                self.error.get_or_insert_with(|| error.clone());
                return;
            }
        };
        let skipped: Vec<Check> = report.incomplete_checks().map(|result| result.check).collect();
        let count = if skipped.is_empty() { &mut self.good } else { &mut self.partly_checked };
        *count = count.saturating_add(1);
        self.incomplete_checks.extend(skipped);
        if let Some(why) = verdict.state_skip_reason() {
            let error =
                Error::failed(format!("its state was not checked: {why}")).with_place(verdict.archive.path().escaped());
            self.error.get_or_insert(error.with_hint(hint::PASS_FULL_ARCHIVE));
        }
    }

    /// Succeeds if all archives were verified and none is damaged. `place` names the catalog's directory,
    /// server or store.
    ///
    /// # Errors
    /// An archive is damaged. Otherwise, the error of the first archive that could not be verified, or whose
    /// state was not checked.
    pub fn require_ok(&self, place: impl fmt::Display) -> Result<()> {
        let damaged = self.damaged;
        if damaged > 0 {
            let all = quantity::count_of(self.archives, "archive");
            let verb = if damaged == 1 { "is" } else { "are" };
            return Err(Error::damaged(format!("{damaged} of {all} in {place} {verb} not valid")));
        }
        self.error.clone().map_or(Ok(()), Err)
    }
}

/// Verifies the archives and the unusable files of a catalog, each full archive before the incremental ones
/// that build on it. Passes each verdict to `on_verdict` as soon as it is known. `open` opens an archive, and
/// may be called several times for the same archive. With [`CheckMode::State`], parts of an archive are read
/// again.
///
/// # Errors
/// The run was interrupted; or the options expect a hash, slot or root, which only one archive can have.
pub fn verify_catalog(
    catalog: &Catalog,
    options: &VerifyOptions,
    progress: &dyn Progress,
    open: impl Fn(&ListedArchive, CheckMode) -> Result<ArchiveInput>,
    mut on_verdict: impl FnMut(&ArchiveVerdict<'_>),
) -> Result<CatalogVerdict> {
    let check = &options.check;
    if check.expect_hash.is_some() || check.expect_slot.is_some() || !options.expect_roots.is_empty() {
        return Err(Error::usage("an expected hash, slot or root belongs to one archive, not to a catalog"));
    }
    let mut damaged: Vec<PathBuf> = Vec::new();
    let unusable = || catalog.unusable().iter().map(|unusable| &unusable.archive);
    let full = unusable().filter(|archive| archive.is_full());
    let incremental = unusable().filter(|archive| !archive.is_full());
    let all: Vec<&ListedArchive> = full.chain(catalog.archives()).chain(incremental).collect();
    let mut total = CatalogVerdict { archives: all.len() as u64, ..CatalogVerdict::default() };
    for archive in all.iter().copied() {
        let base = ArchiveBase::choose(archive.name.base_slot, &all, &damaged);
        let report = verify_archive(archive, base, &open, options, progress);
        let verdict = ArchiveVerdict { archive, base, report, requests_state: options.state_skip_reason().is_none() };
        match &verdict.report {
            Err(error) if error.kind() == ErrorKind::Interrupted => return Err(error.clone()),
            _ if verdict.is_damaged() => damaged.push(archive.path()),
            _ => total.add(&verdict),
        }
        on_verdict(&verdict);
    }
    total.damaged = damaged.len() as u64;
    Ok(total)
}

fn verify_archive(
    archive: &ListedArchive,
    base: ArchiveBase<'_>,
    open: impl Fn(&ListedArchive, CheckMode) -> Result<ArchiveInput>,
    options: &VerifyOptions,
    progress: &dyn Progress,
) -> Result<VerifyReport> {
    let mut options = options.clone();
    let lacks_base = matches!(base, ArchiveBase::Damaged(_) | ArchiveBase::Missing);
    if lacks_base && options.check.mode == CheckMode::State {
        options.check.mode = CheckMode::Frames;
    }
    let mode = options.check.mode;
    let opened = open(archive, mode)?;
    let snapshot = match base {
        ArchiveBase::Good(base) => Snapshot::pair(open(base, mode)?, opened),
        _ => Snapshot::archive(opened),
    };
    verify(&snapshot, &options, progress)
}
