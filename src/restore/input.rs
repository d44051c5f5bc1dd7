//! Opens the archives of a restore: from files, standard input, or a supply. Checks that they
//! belong together, and chooses how each gets into the archives directory.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use slotpress_base::threads::{guarded, panicked, spawn};
use slotpress_base::{Error, ErrorKind, IoContext, KeptDir, Progress, Result, ShowPath, hint};
use slotpress_format::ledger::names::Extension;
use slotpress_format::{ArchiveName, EntryKind, Root};
use slotpress_read::archive::OpenArchive;
use slotpress_read::archive::front::refuse_for_firedancer_only;
use slotpress_read::{
    ArrivingSource, Failures, PairMember, Publishable, SharedSource, Unpublished, is_rebased, judge_expected,
    judge_pair, judge_root,
};

use crate::restore::copies::ArchiveCopy;
use crate::restore::newer::RestoredSlots;
use crate::restore::target::Target;
use crate::restore::{RestoreOptions, RestoreTarget, no_archive};

/// A sequence of archives, such as those that are being downloaded.
pub trait Supply {
    /// Returns the next archive; `None` after the last one. Called when the previous one was read
    /// to its end, so that an incremental archive can be chosen as late as possible.
    fn next(&mut self) -> Result<Option<Supplied>>;
}

#[cfg_attr(not(feature = "net"), allow(dead_code))]
/// An archive of a [`Supply`].
#[derive(Debug)]
pub enum Supplied {
    Arriving { source: SharedSource, name: Option<ArchiveName>, file: Arc<dyn Publishable> },
    File(PathBuf),
}

/// An open archive.
pub struct Opened {
    pub archive: OpenArchive,
    /// How it gets into the archives directory; `None` if it is there.
    pub way: Option<ArchiveCopy>,
    /// Root that the archive must have.
    pub expect_root: Option<Root>,
    /// True if frames and root are compared after the archive was read, because it is still arriving.
    pub is_hashed_at_end: bool,
}

impl Opened {
    /// Refuses an archive with another root than the expected one, unless the root is known only at
    /// the end.
    pub fn check_root(&self) -> Result<()> {
        match self.is_hashed_at_end {
            true => Ok(()),
            false => {
                self.judge_root(self.archive.root()).map_err(|error| error.within_damaged(self.archive.path().shown()))
            }
        }
    }

    pub fn judge_root(&self, root: Option<Root>) -> Result<()> {
        judge_root(self.expect_root, root, &Failures::strict())
    }
}

/// The archives of a restore in their order.
pub struct Feed<'a> {
    pub opened: Vec<Opened>,
    more: Option<&'a mut dyn Supply>,
    expect_roots: Vec<Root>,
}

impl<'a> Feed<'a> {
    #[cfg(feature = "net")]
    pub fn of_supply(supply: &'a mut dyn Supply, expect_roots: &[Root]) -> Self {
        Self { opened: Vec::new(), more: Some(supply), expect_roots: expect_roots.to_vec() }
    }

    /// Adds an archive. `is_below` is true for the full archive of a pair; `had_length` if its length
    /// was known before it was opened.
    fn add(&mut self, archive: OpenArchive, way: Option<ArchiveCopy>, is_below: bool, had_length: bool) -> Result<()> {
        refuse_unread(&archive)?;
        refuse_for_firedancer_only(&archive, is_below)?;
        let expect_root = self.expect_roots.get(self.opened.len()).copied();
        // Its last bytes may have come since, so its length now says nothing.
        let is_hashed_at_end = !had_length && archive.tail.is_none();
        self.opened.push(Opened { archive, way, expect_root, is_hashed_at_end });
        Ok(())
    }

    /// Opens the next archive. Returns false if there is none. `dir` is the archives directory.
    pub fn open_next(&mut self, dir: &Arc<KeptDir>, options: &RestoreTarget, progress: &dyn Progress) -> Result<bool> {
        let Some(supply) = &mut self.more else { return Ok(false) };
        let (archive, way, had_length) = match supply.next()? {
            None => {
                self.more = None;
                return Ok(false);
            }
            Some(Supplied::Arriving { source, name, file }) => {
                let had_length = source.length_bytes().is_some();
                let archive = OpenArchive::of_source(source, name, &options.io_policy)?;
                (archive, Some(ArchiveCopy::Fetched(file)), had_length)
            }
            Some(Supplied::File(path)) => {
                let archive = OpenArchive::open(&path, &options.io_policy)?;
                (archive, ArchiveCopy::of_file(&path, dir, false)?, true)
            }
        };
        archive.warn_of_index(progress);
        // It is not known yet whether an incremental archive follows.
        self.add(archive, way, false, had_length)?;
        Ok(true)
    }

    pub fn check_roots(&self) -> Result<()> {
        self.opened.iter().try_for_each(Opened::check_root)
    }

    /// Fails if there are fewer archives than expected roots.
    pub fn check_count(&self) -> Result<()> {
        let Some(root) = self.expect_roots.get(self.opened.len()) else { return Ok(()) };
        Err(Error::new(ErrorKind::Network, format!("no source has an incremental archive of root {root}"))
            .with_hint(hint::USE_FIND))
    }

    /// Size of each archive; `None` if it is still arriving.
    pub fn lengths(&self) -> impl Iterator<Item = Option<u64>> + '_ {
        self.archives().map(|archive| archive.source.length_bytes())
    }

    pub fn archives(&self) -> impl Iterator<Item = &OpenArchive> {
        self.opened.iter().map(|one| &one.archive)
    }

    /// Number of bytes of each archive that must be copied to the archives directory.
    pub fn copies_bytes(&self) -> impl Iterator<Item = u64> + '_ {
        self.opened.iter().map(Opened::bytes_to_copy)
    }
}

pub fn is_standard_input(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Open archives; `None` stands for standard input.
pub struct Inputs(Vec<Option<OpenArchive>>);

impl Inputs {
    pub fn open(options: &RestoreOptions, progress: &dyn Progress) -> Result<Self> {
        let open = |path: &PathBuf| {
            if is_standard_input(path) {
                return Ok(None);
            }
            let archive = OpenArchive::open(path, &options.target.io_policy)?;
            archive.warn_of_index(progress);
            Ok(Some(archive))
        };
        let archives = options.paths().map(open).collect::<Result<Vec<_>>>()?;
        match archives.iter().filter(|archive| archive.is_none()).count() {
            0 | 1 => Ok(Self(archives)),
            _ => Err(Error::usage("only one of the two archives can come from standard input")),
        }
    }

    /// Name of the archive whose state the ledger gets, if it has one.
    pub fn newest(&self) -> Option<&ArchiveName> {
        self.0.last()?.as_ref()?.name.as_ref()
    }

    /// Slots of the state, by names and indexes; `None` if these are missing.
    pub fn slots(&self) -> Option<RestoredSlots> {
        let ArchiveName { slot, base_slot, .. } = *self.newest()?;
        let archive = self.0.last()?.as_ref()?;
        let storages = archive.tail.iter().flat_map(|tail| &tail.index.entries).filter_map(|entry| match entry.kind {
            EntryKind::Storage { slot, id } => Some((slot, id)),
            _ => None,
        });
        Some(RestoredSlots { newest: slot, rebased_on: base_slot.filter(|_| is_rebased(slot, storages)) })
    }

    /// Refuses archives that Agave does not read, that by their names do not belong together, or
    /// whose state cannot be checked although that is requested.
    pub fn check_pair(&self, options: &RestoreOptions) -> Result<()> {
        let name_of = |at: usize| self.0.get(at)?.as_ref()?.name.as_ref();
        let base_slot = name_of(0).and_then(|name| name.base_slot);
        match (self.0.as_slice(), base_slot) {
            ([_], Some(base)) => Err(Error::usage(format!(
                "an incremental archive alone does not make a ledger: it builds on slot {base}"
            ))
            .with_hint(format!("give the full archive of slot {base} first, then the incremental one"))),
            ([full, incremental], _) => {
                let [full, incremental] = [full, incremental].map(|archive| member(archive.as_ref()));
                judge_pair(full, incremental, &Failures::strict())
            }
            _ => Ok(()),
        }?;
        options.target.check.checks_state(base_slot.is_some())?;
        for (number, archive) in (1..).zip(&self.0) {
            let Some(archive) = archive else { continue };
            refuse_unread(archive)?;
            refuse_for_firedancer_only(archive, number < self.0.len())?;
        }
        let newest = self.0.last().and_then(Option::as_ref);
        newest.and_then(|archive| Some((archive, archive.name.as_ref()?))).map_or(Ok(()), |(archive, name)| {
            judge_expected(&options.target.check, name.slot, name.hash, &Failures::strict())
                .map_err(|error| error.within_damaged(archive.path().shown()))
        })
    }

    /// Calls `work` with all archives open. Standard input is saved to a file in the archives
    /// directory while it is read.
    pub fn with_archives<R>(
        self,
        target: &Target,
        options: &RestoreOptions,
        progress: &dyn Progress,
        work: impl FnOnce(Feed<'_>) -> Result<R>,
    ) -> Result<R> {
        if self.0.iter().all(Option::is_some) {
            return work(self.open_all(None, target, options)?);
        }
        let copy = Unpublished::create_in(&target.snapshots_dir)?;
        let file = copy.file().try_clone().or_path("open", copy.path())?;
        let arriving = &Arc::new(ArrivingSource::new(file, PathBuf::from("standard input")));
        std::thread::scope(|scope| {
            let receiver = spawn(scope, || receive(arriving, progress))?;
            // The receiver must be told to stop even after a panic.
            let result = guarded(|| work(self.open_all(Some((copy, arriving.clone())), target, options)?));
            arriving.stop();
            let received = receiver.join().unwrap_or_else(|payload| Err(panicked(payload.as_ref())));
            match (result, received) {
                // Prefer the receiver's error: it says why bytes did not come.
                (Err(error), Err(cause)) if error.kind() == ErrorKind::Failed => Err(cause),
                (result, _) => result,
            }
        })
    }

    fn open_all(
        self,
        mut saved: Option<(Unpublished, SharedSource)>,
        target: &Target,
        options: &RestoreOptions,
    ) -> Result<Feed<'static>> {
        let mut feed = Feed { opened: Vec::new(), more: None, expect_roots: options.expect_roots.clone() };
        let count = self.0.len();
        for (number, archive) in (1..).zip(self.0) {
            let is_file = archive.is_some();
            let (archive, way) = match archive {
                Some(archive) => {
                    let way = ArchiveCopy::of_file(archive.path(), &target.snapshots_dir, options.is_moved)?;
                    (archive, way)
                }
                None => {
                    let (copy, source) = saved.take().ok_or_else(no_archive)?;
                    // A stream is always read in order. How fast it arrives must not make a
                    // difference.
                    let archive = OpenArchive::of_source(source, None, &options.target.io_policy)?.without_index();
                    (archive, Some(ArchiveCopy::New(copy, None)))
                }
            };
            feed.add(archive, way, number < count, is_file)?;
        }
        Ok(feed)
    }
}

fn receive(arriving: &ArrivingSource, progress: &dyn Progress) -> Result<()> {
    let place = Path::new("standard input");
    // Bypasses the standard library's buffer: a wait for bytes would not see buffered ones.
    let mut input = File::from(std::io::stdin().as_fd().try_clone_to_owned().or_path("open", place)?);
    arriving.receive(&mut input, progress)
}

/// An archive of a pair. Standard input has no name.
fn member(archive: Option<&OpenArchive>) -> PairMember<'_> {
    archive.map_or(PairMember::new(Path::new("standard input"), None), |archive| PairMember::of_archive(archive, None))
}

/// Refuses an archive whose compression Agave does not read.
fn refuse_unread(archive: &OpenArchive) -> Result<()> {
    let extension = archive.compression;
    if extension.is_read_by_agave() { Ok(()) } else { Err(unread(&archive.path().shown(), extension)) }
}

/// Error for an archive with a compression that Agave does not read.
pub fn unread(place: &str, extension: Extension) -> Error {
    let message = format!("{place}: Agave does not read .{} archives", extension.as_str());
    Error::new(ErrorKind::Unsupported, message).with_hint("recompress it first, and restore the result")
}
