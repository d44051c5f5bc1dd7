//! The loop of `fetch` and `bootstrap`: supplies a reader with the archives of the best candidate. After
//! each failure, [`next`](super::next) ranks the remaining candidates, until the reader succeeds. The two
//! commands differ in the reader.
//!
//! All effects go through a [`World`], which asks servers and writes files. A test simulates it.

use std::sync::Arc;

use slotpress_base::{Error, ErrorKind, FileStat, Progress, Result, catch_panic, quantity};
use slotpress_format::ArchiveName;
use slotpress_net::Download;

use super::choose::ChosenArchive;
use super::fetch::FetchedArchive;
use super::next::{AbandonedState, Attempt, FaultReason, KEPT_HINT, Selection};
use super::supply::ArchiveSupply;
use crate::restore::{SuppliedArchive, Supply};

/// Servers and files on which the loop acts.
pub trait World {
    fn progress(&self) -> &dyn Progress;

    /// Chooses the file in the snapshots directory if there is one with the archive's name.
    fn prefer_local_file(&self, choice: ChosenArchive) -> ChosenArchive;

    /// Asks the sources for all their archives, and looks for archives on this node.
    fn ask_sources(&mut self, selection: &mut Selection) -> Result<()>;

    /// Asks each source for incremental archives on this full archive. Sources that answered before but
    /// fail now are asked again until any source offers one. Warns if they keep failing and no source
    /// offers one.
    fn find_incremental(&mut self, selection: &mut Selection, full: &ChosenArchive) -> Result<()>;

    /// Asks the trusted servers to confirm an archive.
    ///
    /// # Errors
    /// Too few servers confirm it, or a server contradicts it. A contradiction ends the run.
    fn confirm(&mut self, choice: &ChosenArchive) -> FaultResult<()>;

    /// Starts a download in the background, unless the archive is a local file.
    fn begin(&mut self, selection: &Selection, choice: &ChosenArchive) -> FaultResult<ObtainedArchive>;

    /// Waits for the download. For `fetch`, also gives the file its final name.
    fn finish(&mut self, obtained: &mut ObtainedArchive) -> FaultResult<()>;

    /// Returns the archives whose partial files this run has created or continued, and the number of
    /// bytes that each has on disk.
    fn list_partials(&self) -> Vec<(ArchiveName, u64)>;

    fn remove_partial(&mut self, name: &ArchiveName);
}

/// Failure to obtain or to use an archive.
#[derive(Clone, Debug)]
pub struct ArchiveFault {
    /// `None` if the failure ends the run: no other archive would help.
    pub reason: Option<FaultReason>,
    pub error: Error,
}

pub type FaultResult<T> = Result<T, Box<ArchiveFault>>;

impl ArchiveFault {
    /// Makes a fault after which the run tries other archives.
    pub fn new(reason: FaultReason, error: Error) -> Box<Self> {
        Box::new(Self { reason: Some(reason), error })
    }
}

impl From<Error> for Box<ArchiveFault> {
    fn from(error: Error) -> Self {
        Self::new(ArchiveFault { reason: None, error })
    }
}

/// An archive that is arriving or already there.
pub struct ObtainedArchive {
    pub archive: FetchedArchive,
    pub choice: ChosenArchive,
    /// Download of the archive; `None` if the file existed.
    pub download: Option<Arc<Download>>,
    /// State of the local file when it was chosen; `None` for a download.
    pub stat: Option<FileStat>,
}

impl ObtainedArchive {
    pub fn new(choice: &ChosenArchive) -> Self {
        let archive = FetchedArchive { name: choice.name.clone(), path: None, fetched: None, root: None };
        Self { archive, choice: choice.clone(), download: None, stat: None }
    }

    /// Returns true if a local file has changed since it was chosen.
    pub fn is_replaced(&self) -> bool {
        let path = self.archive.path.as_deref();
        self.stat.is_some() && path.is_some_and(|path| FileStat::read(path) != self.stat)
    }

    /// Returns what a restore reads: the download while it arrives, or the local file.
    pub fn to_supplied(&self) -> SuppliedArchive {
        let Some(download) = &self.download else {
            return SuppliedArchive::File(self.archive.path.clone().unwrap_or_default());
        };
        let name = Some(self.archive.name.clone());
        SuppliedArchive::Arriving { source: download.file.clone(), name, file: download.file.clone() }
    }
}

/// A run that has ended with a result: what the reader returned, and the archives that it has read.
pub struct FinishedRun<R> {
    pub result: R,
    pub archives: Vec<FetchedArchive>,
    pub abandoned: Option<AbandonedState>,
}

/// Supplies `read` with the archives of the best candidate, and after each failure with the
/// archives of the next candidate, until `read` succeeds.
///
/// # Errors
/// No candidate is left, or a failure ends the run.
pub fn run<R>(
    world: &mut dyn World,
    selection: &mut Selection,
    read: &dyn Fn(&mut dyn Supply) -> Result<R>,
) -> Result<FinishedRun<R>> {
    loop {
        if std::mem::take(&mut selection.is_outdated) {
            world.ask_sources(selection)?;
        }
        let best = selection.require_best()?;
        warn_of_last_failure(world, selection, "");
        let mut supply = ArchiveSupply::new(world, selection, &best);
        let result = catch_panic(|| read(&mut supply));
        if let Some(finished) = supply.end(result)? {
            return Ok(finished);
        }
    }
}

/// Warns of the last failure once it is known how the run continues. Appends `consequence` to the warning.
pub fn warn_of_last_failure(world: &dyn World, selection: &mut Selection, consequence: &str) {
    if let Some(failure) = selection.pending_warning.take() {
        world.progress().warn(&format!("{failure}{consequence}"));
    }
}

/// Records the fault of an attempt, and removes a partial file that no later run could use.
///
/// # Errors
/// The fault ends the run.
pub fn record_fault(
    world: &mut dyn World,
    selection: &mut Selection,
    attempt: &Attempt,
    fault: &ArchiveFault,
) -> Result<()> {
    let ArchiveFault { reason, error } = fault;
    if error.kind() == ErrorKind::Interrupted || world.progress().is_interrupted() {
        return Err(Error::interrupted().with_hint(KEPT_HINT));
    }
    let newest = attempt.newest();
    let fetched_bytes = selection.node.kept_bytes(&newest.name);
    for (name, bytes) in world.list_partials() {
        selection.node.record_kept(&name, bytes);
    }
    let kept_bytes = selection.node.kept_bytes(&newest.name);
    // Bytes that failed a check are not kept, but they were fetched too.
    let fetched_bytes = fetched_bytes.max(kept_bytes);
    let is_refused = *reason == Some(FaultReason::Refused);
    if is_refused || error.kind() == ErrorKind::Unsupported || kept_bytes == 0 {
        remove_partials(world, selection, |name| *name == newest.name);
    }
    let Some(reason) = reason else { return Err(error.clone()) };
    selection.record_failure(attempt, reason, error);
    let fetched = quantity::bytes(fetched_bytes);
    let loss = match &attempt.incremental {
        _ if fetched_bytes == 0 => String::new(),
        Some(_) => format!("; {fetched} of {} were fetched for nothing", newest.name),
        None => format!("; {fetched} of {} may be fetched again", newest.name),
    };
    selection.pending_warning = Some(match reason {
        FaultReason::OldBytes => format!("{error}: an earlier run may have fetched the wrong bytes"),
        _ => format!("{error}: {} is not used any more{loss}", newest.first_location()),
    });
    Ok(())
}

/// Removes the partial files of archives for which `is_unneeded` is true.
pub fn remove_partials(world: &mut dyn World, selection: &mut Selection, is_unneeded: impl Fn(&ArchiveName) -> bool) {
    for (name, _) in world.list_partials() {
        if is_unneeded(&name) {
            world.remove_partial(&name);
            selection.node.record_kept(&name, 0);
        }
    }
}

#[cfg(test)]
#[allow(clippy::expect_used, clippy::indexing_slicing)]
mod tests;
