//! The loop of `fetch` and `bootstrap`: supplies a reader with the archives of the best candidate.
//! After a failure, does what [`next`](super::next) decides, until the reader succeeds. The two
//! commands differ in the reader.
//!
//! All effects go through a [`World`]: it asks servers and writes files, or is simulated by a test.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use slotpress_base::quantity::bytes;
use slotpress_base::threads::guarded;
use slotpress_base::{Error, ErrorKind, Progress, Result};
use slotpress_format::ArchiveName;
use slotpress_net::Download;
use slotpress_read::{Publishable, Source};

use super::archives::FetchedArchive;
use super::choose::ChosenArchive;
use super::next::{Asked, GivenUp, Happened, KEPT_HINT, Left, Step, Taken};
use super::supply::{ArchiveSupply, Stop};
use crate::restore::{Supplied, Supply};

/// Effects that the loop needs.
pub trait World {
    fn progress(&self) -> &dyn Progress;

    /// Returns where an archive would come from now.
    fn taken(&self, choice: &ChosenArchive) -> Taken;

    /// Asks the sources for all their archives, and looks for archives on this node.
    fn look(&mut self, left: &mut Left) -> Result<()>;

    /// Asks the sources again for incremental archives on the full one in use, until a source
    /// offers one.
    ///
    /// # Errors
    /// No source offers one, and a source that answered before does not answer now.
    fn look_for_newest(&mut self, left: &mut Left, full: &Taken) -> Result<()>;

    /// Asks the trusted servers to confirm an archive. Returns `None` if enough of them do,
    /// otherwise the error to report.
    ///
    /// # Errors
    /// A trusted server contradicts the archive.
    fn confirm(&mut self, choice: &ChosenArchive) -> Result<Option<Error>>;

    /// Starts a download in the background, unless the file exists. Updates `taken` if the archive
    /// comes from another place than expected. Reports the download's progress if `is_shown`.
    fn begin(
        &mut self,
        left: &Left,
        choice: &ChosenArchive,
        taken: &mut Taken,
        is_shown: bool,
    ) -> Result<ObtainedArchive, Box<Failed>>;

    /// Waits for the download. For `fetch`, gives the archive its name.
    fn finish(&mut self, obtained: &mut ObtainedArchive) -> Result<(), Box<Failed>>;

    /// Archives whose partial files this run has made or continued, and the number of their bytes
    /// on disk.
    fn kept(&self) -> Vec<(ArchiveName, u64)>;

    /// Removes a partial file.
    fn remove(&mut self, name: &ArchiveName);
}

/// Failure of an archive.
#[derive(Clone, Debug)]
pub struct Failed {
    pub happened: Happened,
    pub error: Error,
}

impl From<Error> for Box<Failed> {
    fn from(error: Error) -> Self {
        Self::new(Failed { happened: Happened::Final, error })
    }
}

/// An archive that is arriving, or exists.
pub struct ObtainedArchive {
    pub archive: FetchedArchive,
    pub taken: Taken,
    /// Download of the archive; `None` if the file existed.
    pub download: Option<Arc<Download>>,
    /// True if an earlier run left bytes of the archive.
    pub had_bytes: bool,
    /// Facts of an existing file when it was chosen.
    pub file: Option<FileFacts>,
}

/// Facts that change if a path leads to another file: device, inode, length and time of
/// modification of the path itself, and of the file to which it leads if it is a link.
pub type FileFacts = [Option<(u64, u64, u64, i64)>; 2];

pub fn facts_of(path: &Path) -> FileFacts {
    use std::os::unix::fs::MetadataExt;
    [fs::symlink_metadata(path), fs::metadata(path)].map(|found| {
        let found = found.ok()?;
        Some((found.dev(), found.ino(), found.len(), found.mtime_nsec().wrapping_add(found.mtime() << 30)))
    })
}

impl ObtainedArchive {
    /// Describes an archive that exists as a file.
    pub fn of_file(archive: FetchedArchive, path: PathBuf, taken: &Taken) -> Self {
        let (taken, file) = (taken.clone(), Some(facts_of(&path)));
        let archive = FetchedArchive { path: Some(path), ..archive };
        Self { archive, taken, download: None, had_bytes: false, file }
    }

    /// True if a local file was replaced or changed since it was chosen.
    pub fn is_swapped(&self) -> bool {
        self.archive.path.as_deref().zip(self.file).is_some_and(|(path, before)| facts_of(path) != before)
    }

    pub fn supplied(&self) -> Result<Supplied> {
        match (&self.download, &self.archive.path) {
            (Some(download), _) => {
                let (source, file): (Arc<dyn Source>, Arc<dyn Publishable>) =
                    (download.file().clone(), download.file().clone());
                Ok(Supplied::Arriving { source, name: Some(self.archive.name.clone()), file })
            }
            (None, Some(path)) => Ok(Supplied::File(path.clone())),
            (None, None) => {
                let message = format!("{}: there is neither a file nor a download of it", self.archive.name);
                Err(Error::failed(message).with_hint("run the same command again"))
            }
        }
    }
}

/// Result of a run that succeeded.
pub struct Done<R> {
    pub result: R,
    pub archives: Vec<FetchedArchive>,
    pub given_up: Option<GivenUp>,
}

/// Supplies `read` with the archives of the best candidate, and after each failure with those of
/// the next, until `read` succeeds.
///
/// # Errors
/// No candidate is left, or a failure ends the run.
pub fn run<R>(world: &mut dyn World, left: &mut Left, read: &dyn Fn(&mut dyn Supply) -> Result<R>) -> Result<Done<R>> {
    let mut last = Error::new(ErrorKind::Network, "no source has a usable snapshot");
    loop {
        let Some(best) = left.best() else { return Err(left.node.nothing_left(&last)) };
        let mut supply = ArchiveSupply::new(world, left, &best);
        let result = guarded(|| read(&mut supply));
        match supply.end(result) {
            Ok(done) => return Ok(done),
            // The supply has recorded this failure already.
            Err(Stop::Decided(_)) => {}
            Err(Stop::Failed(asked, failed)) => {
                last = failed.error.clone();
                if let Step::AskAgain = follow(world, left, &asked, &failed)? {
                    world.look(left)?;
                }
            }
        }
    }
}

/// Decides what to do after a failure, and tells the operator.
///
/// # Errors
/// The failure ends the run.
pub fn follow(world: &mut dyn World, left: &mut Left, asked: &Asked, failed: &Failed) -> Result<Step> {
    let Failed { happened, error } = failed;
    if error.kind() == ErrorKind::Interrupted || world.progress().is_interrupted() {
        return Err(Error::interrupted().with_hint(KEPT_HINT));
    }
    let newest = asked.newest();
    let fetched_bytes = left.node.kept_bytes(&newest.name);
    world.kept().iter().for_each(|(name, bytes)| left.node.keeps(name, *bytes));
    let kept_bytes = left.node.kept_bytes(&newest.name);
    // What failed a check is not kept, and was fetched all the same.
    let fetched_bytes = fetched_bytes.max(kept_bytes);
    // Removes a partial file that no later run could use.
    if *happened == Happened::Refused || error.kind() == ErrorKind::Unsupported || kept_bytes == 0 {
        remove(world, left, |name| *name == newest.name);
    }
    let step = left.after(asked, happened, error);
    let (place, full) = (&newest.place, &asked.full);
    let in_vain = match &asked.incremental {
        _ if fetched_bytes == 0 => String::new(),
        Some(_) => format!("; {} of {} were fetched for nothing", bytes(fetched_bytes), newest.name),
        None => format!("; {} of {} may be fetched again", bytes(fetched_bytes), newest.name),
    };
    let what = match &step {
        Step::End(error) => return Err(error.clone()),
        Step::Again => "an earlier run may have fetched the wrong bytes".to_string(),
        Step::OtherSource => format!("{place} is not used any more{in_vain}; another source is asked"),
        Step::AskAgain if asked.incremental.is_some() => "looking for the newest incremental archive again".to_string(),
        Step::AskAgain => format!("{place} is not used any more; the sources are asked again"),
        Step::FullAlone => format!("no incremental archive could be fetched; this is the state of {}", full.name),
        Step::WithoutBase => format!("{} is not used any more{in_vain}; a full archive is fetched", full.place),
        Step::NextArchive => format!("{place} is not used any more{in_vain}; the next best is fetched"),
    };
    world.progress().warn(&format!("{error}: {what}"));
    Ok(step)
}

/// Removes partial files that this run does not need any more.
pub fn remove(world: &mut dyn World, left: &mut Left, is_useless: impl Fn(&ArchiveName) -> bool) {
    for (name, _) in world.kept().into_iter().filter(|(name, _)| is_useless(name)) {
        world.remove(&name);
        left.node.keeps(&name, 0);
    }
}

#[cfg(test)]
#[allow(clippy::expect_used, clippy::indexing_slicing)]
mod tests;
