//! The loop of `fetch` and `bootstrap`: supplies a reader with the archives of the best candidate.
//! After a failure, [`next`](super::next) ranks what is left, until the reader succeeds. The two
//! commands differ in the reader.
//!
//! All effects go through a [`World`]: it asks servers and writes files, or is simulated by a test.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use slotpress_base::quantity::bytes;
use slotpress_base::threads::catch_panic;
use slotpress_base::{Error, ErrorKind, Progress, Result};
use slotpress_format::ArchiveName;
use slotpress_net::Download;

use super::choose::ChosenArchive;
use super::fetch::FetchedArchive;
use super::next::{AbandonedState, Attempt, KEPT_HINT, Reason, Selection};
use super::supply::ArchiveSupply;
use crate::restore::{Supplied, Supply};

/// Effects that the loop needs.
pub trait World {
    fn progress(&self) -> &dyn Progress;

    /// Puts a file of the archives directory in place of other places that have the archive.
    fn prefer_local_file(&self, choice: ChosenArchive) -> ChosenArchive;

    /// Asks the sources for all their archives, and looks for archives on this node.
    fn look(&mut self, selection: &mut Selection) -> Result<()>;

    /// Asks the sources again for incremental archives on the full one in use, until a source
    /// offers one. Warns if none does, and a source that answered before does not answer now.
    fn look_for_newest(&mut self, selection: &mut Selection, full: &ChosenArchive) -> Result<()>;

    /// Asks the trusted servers to confirm an archive.
    ///
    /// # Errors
    /// Too few servers confirm it, or one contradicts it, which ends the run.
    fn confirm(&mut self, choice: &ChosenArchive) -> Attempted<()>;

    /// Starts a download in the background, unless the file exists.
    fn begin(&mut self, selection: &Selection, choice: &ChosenArchive) -> Attempted<ObtainedArchive>;

    /// Waits for the download. For `fetch`, gives the archive its name.
    fn finish(&mut self, obtained: &mut ObtainedArchive) -> Attempted<()>;

    /// Returns the archives whose partial files this run has made or continued, and the number of
    /// their bytes on disk.
    fn list_kept(&self) -> Vec<(ArchiveName, u64)>;

    fn remove(&mut self, name: &ArchiveName);
}

#[derive(Clone, Debug)]
pub struct ArchiveFault {
    /// `None` if no other archive would help.
    pub reason: Option<Reason>,
    pub error: Error,
}

pub type Attempted<T> = Result<T, Box<ArchiveFault>>;

impl ArchiveFault {
    /// Makes a failure after which other archives are tried.
    pub fn new(reason: Reason, error: Error) -> Box<Self> {
        Box::new(Self { reason: Some(reason), error })
    }
}

impl From<Error> for Box<ArchiveFault> {
    fn from(error: Error) -> Self {
        Self::new(ArchiveFault { reason: None, error })
    }
}

/// An archive that is arriving, or exists.
pub struct ObtainedArchive {
    pub archive: FetchedArchive,
    pub choice: ChosenArchive,
    /// Download of the archive; `None` if the file existed.
    pub download: Option<Arc<Download>>,
    /// Facts of an existing file when it was chosen.
    pub file: Option<FileFacts>,
}

/// Facts that change if a path leads to another file: device, inode, length and time of
/// modification of the path itself, and of the file to which it leads if it is a link.
pub type FileFacts = [Option<(u64, u64, u64, i64)>; 2];

pub fn read_facts(path: &Path) -> FileFacts {
    use std::os::unix::fs::MetadataExt;
    [fs::symlink_metadata(path), fs::metadata(path)].map(|found| {
        let found = found.ok()?;
        Some((found.dev(), found.ino(), found.len(), found.mtime_nsec().wrapping_add(found.mtime() << 30)))
    })
}

impl ObtainedArchive {
    pub fn new(choice: &ChosenArchive) -> Self {
        Self { archive: FetchedArchive::new(&choice.name), choice: choice.clone(), download: None, file: None }
    }

    /// Returns true if a local file was replaced or changed since it was chosen.
    pub fn is_swapped(&self) -> bool {
        self.archive.path.as_deref().zip(self.file).is_some_and(|(path, before)| read_facts(path) != before)
    }

    pub fn to_supplied(&self) -> Supplied {
        let Some(download) = &self.download else {
            return Supplied::File(self.archive.path.clone().unwrap_or_default());
        };
        let name = Some(self.archive.name.clone());
        Supplied::Arriving { source: download.file.clone(), name, file: download.file.clone() }
    }
}

pub struct Finished<R> {
    pub result: R,
    pub archives: Vec<FetchedArchive>,
    pub given_up: Option<AbandonedState>,
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
) -> Result<Finished<R>> {
    loop {
        if std::mem::take(&mut selection.is_outdated) {
            world.look(selection)?;
        }
        let best = selection.require_best()?;
        warn_of_last_failure(world, selection, "");
        let mut supply = ArchiveSupply::new(world, selection, &best);
        let result = catch_panic(|| read(&mut supply));
        if let Some(done) = supply.end(result)? {
            return Ok(done);
        }
    }
}

/// Warns of the last failure, once it is known how the run continues.
pub fn warn_of_last_failure(world: &dyn World, selection: &mut Selection, then: &str) {
    if let Some(failure) = selection.pending_warning.take() {
        world.progress().warn(&format!("{failure}{then}"));
    }
}

/// Records a failure, and removes a partial file that no later run could use.
///
/// # Errors
/// The failure ends the run.
pub fn record(world: &mut dyn World, selection: &mut Selection, tried: &Attempt, failed: &ArchiveFault) -> Result<()> {
    let ArchiveFault { reason, error } = failed;
    if error.kind() == ErrorKind::Interrupted || world.progress().is_interrupted() {
        return Err(Error::interrupted().with_hint(KEPT_HINT));
    }
    let newest = tried.newest();
    let fetched_bytes = selection.node.kept_bytes(&newest.name);
    for (name, bytes) in world.list_kept() {
        selection.node.record_kept(&name, bytes);
    }
    let kept_bytes = selection.node.kept_bytes(&newest.name);
    // What failed a check is not kept, and was fetched all the same.
    let fetched_bytes = fetched_bytes.max(kept_bytes);
    if *reason == Some(Reason::Refused) || error.kind() == ErrorKind::Unsupported || kept_bytes == 0 {
        remove(world, selection, |name| *name == newest.name);
    }
    let Some(reason) = reason else { return Err(error.clone()) };
    selection.record(tried, reason, error);
    let in_vain = match &tried.incremental {
        _ if fetched_bytes == 0 => String::new(),
        Some(_) => format!("; {} of {} were fetched for nothing", bytes(fetched_bytes), newest.name),
        None => format!("; {} of {} may be fetched again", bytes(fetched_bytes), newest.name),
    };
    selection.pending_warning = Some(match reason {
        Reason::KeptIsWrong => format!("{error}: an earlier run may have fetched the wrong bytes"),
        _ => format!("{error}: {} is not used any more{in_vain}", newest.first_place()),
    });
    Ok(())
}

/// Removes partial files that this run does not need any more.
pub fn remove(world: &mut dyn World, selection: &mut Selection, is_useless: impl Fn(&ArchiveName) -> bool) {
    for (name, _) in world.list_kept().into_iter().filter(|(name, _)| is_useless(name)) {
        world.remove(&name);
        selection.node.record_kept(&name, 0);
    }
}

#[cfg(test)]
#[allow(clippy::expect_used, clippy::indexing_slicing)]
mod tests;
