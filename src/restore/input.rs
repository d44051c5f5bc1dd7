//! Opens the archives of a restore: from files, standard input, or a supply. Checks that they
//! belong together, and chooses how each gets into the archives directory.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use slotpress_base::threads::{catch_panic, panic_error, spawn};
use slotpress_base::{Error, ErrorKind, EscapePath, IoContext, Progress, Result, hint};
use slotpress_format::ledger::names::ArchiveCompression;
use slotpress_format::{ArchiveName, EntryKind, Root};
use slotpress_read::archive::OpenArchive;
use slotpress_read::archive::front::refuse_unless_agave_loads;
use slotpress_read::{
    ArrivingSource, CheckOptions, Failures, PairMember, Publishable, SharedSource, StagedFile, is_rebased,
    judge_expected, judge_pair, judge_root,
};

use crate::restore::copies::ArchiveCopy;
use crate::restore::newer::RestoredSlots;
use crate::restore::{RestoreOptions, RestoreSource, Run};

/// A sequence of archives, such as those that are being downloaded.
pub trait Supply {
    /// Returns the next archive; `None` after the last one. Called when the previous one was read
    /// to its end, so that an incremental archive can be chosen as late as possible.
    fn next(&mut self) -> Result<Option<Supplied>>;
}

#[cfg_attr(not(feature = "net"), allow(dead_code))]
#[derive(Debug)]
pub enum Supplied {
    Arriving {
        source: SharedSource,
        name: Option<ArchiveName>,
        file: Arc<dyn Publishable>,
    },
    /// Standard input, and the file to which it is saved.
    Saved(SharedSource, StagedFile),
    File(PathBuf),
}

pub struct Opened {
    pub archive: OpenArchive,
    /// `None` if the archive is in the archives directory already.
    pub copy: Option<ArchiveCopy>,
    pub expect_root: Option<Root>,
    /// True if frames and root are compared after the archive was read, because it is still arriving.
    pub is_hashed_at_end: bool,
}

impl Opened {
    pub fn judge_root(&self, root: Option<Root>) -> Result<()> {
        judge_root(self.expect_root, root, &Failures::strict())
    }
}

pub struct RestoreInput<'a> {
    run: Run<'a>,
    pub opened: Vec<Opened>,
    more: Option<&'a mut dyn Supply>,
    expect_roots: &'a [Root],
    move_archives: bool,
}

impl<'a> RestoreInput<'a> {
    #[cfg(feature = "net")]
    pub fn from_supply(run: Run<'a>, supply: &'a mut dyn Supply, expect_roots: &'a [Root]) -> Self {
        Self { run, opened: Vec::new(), more: Some(supply), expect_roots, move_archives: false }
    }

    /// Opens an archive, unless Agave does not read it, or it has another root than the expected one.
    /// `is_below` is true for the full archive of a pair.
    fn open(&mut self, supplied: Supplied, is_below: bool) -> Result<()> {
        let io_policy = &self.run.options.io_policy;
        let (archive, copy, had_length) = match supplied {
            Supplied::Arriving { source, name, file } => {
                let had_length = source.length_bytes().is_some();
                let archive = OpenArchive::from_source(source, name, io_policy)?;
                (archive, Some(ArchiveCopy::Fetched(file)), had_length)
            }
            Supplied::Saved(source, copy) => {
                // A stream is always read in order. How fast it arrives must not make a difference.
                let archive = OpenArchive::from_source(source, None, io_policy)?.without_index();
                (archive, Some(ArchiveCopy::New { file: copy, is_complete: true }), false)
            }
            Supplied::File(path) => {
                let archive = OpenArchive::open(&path, io_policy)?;
                let copy = ArchiveCopy::from_file(&archive, &self.run.target.snapshots_dir, self.move_archives)?;
                (archive, copy, true)
            }
        };
        archive.warn_of_damaged_index(self.run.progress);
        let path = archive.path().escaped();
        let compression = archive.compression;
        if !compression.is_read_by_agave() {
            return Err(unsupported_compression_error(&path, compression));
        }
        refuse_unless_agave_loads(&archive, is_below)?;
        let expect_root = self.expect_roots.get(self.opened.len()).copied();
        // Its last bytes may have come since, so its length now says nothing.
        let is_hashed_at_end = !had_length && archive.tail.is_none();
        let opened = Opened { archive, copy, expect_root, is_hashed_at_end };
        if !is_hashed_at_end {
            opened.judge_root(opened.archive.root()).map_err(|error| error.within_damaged(path))?;
        }
        self.opened.push(opened);
        Ok(())
    }

    pub fn open_next(&mut self) -> Result<bool> {
        let Some(supply) = &mut self.more else { return Ok(false) };
        let Some(supplied) = supply.next()? else {
            self.more = None;
            return Ok(false);
        };
        // It is not known yet whether an incremental archive follows.
        self.open(supplied, false)?;
        self.run.check_space(&self.opened[self.opened.len() - 1..])?;
        Ok(true)
    }

    pub fn check_count(&self) -> Result<()> {
        let Some(root) = self.expect_roots.get(self.opened.len()) else { return Ok(()) };
        let message = format!("no source has an incremental archive of root {root}");
        Err(Error::new(ErrorKind::Network, message).with_hint(hint::USE_FIND))
    }

    pub fn lengths(&self) -> impl Iterator<Item = Option<u64>> + '_ {
        self.archives().map(|archive| archive.source.length_bytes())
    }

    pub fn archives(&self) -> impl Iterator<Item = &OpenArchive> {
        self.opened.iter().map(|opened| &opened.archive)
    }

    pub fn copies_bytes(&self) -> impl Iterator<Item = u64> + '_ {
        self.opened.iter().map(Opened::bytes_to_copy)
    }

    /// Returns the slots of the state, from names and indexes; `None` if these are missing.
    pub fn slots(&self) -> Option<RestoredSlots> {
        let archive = self.archives().last()?;
        let name = archive.name.as_ref()?;
        let storages = archive.tail.iter().flat_map(|tail| &tail.index.entries).filter_map(|entry| match entry.kind {
            EntryKind::Storage { slot, id } => Some((slot, id)),
            _ => None,
        });
        let is_rebased = is_rebased(name.slot, storages);
        let rebased_on = if is_rebased { name.base_slot } else { None };
        Some(RestoredSlots { newest: name.slot, rebased_on })
    }

    /// Refuses archives that by their names do not belong together or are not what is expected, or
    /// whose state cannot be checked although that is requested.
    pub fn check_pair(&self, check: &CheckOptions) -> Result<()> {
        let members: Vec<_> = self.archives().map(|archive| PairMember::from_archive(archive, None)).collect();
        let base_slot = members.first().and_then(|first| first.base_slot);
        match (&members[..], base_slot) {
            ([_], Some(base)) => {
                let message = format!("an incremental archive alone does not make a ledger: it builds on slot {base}");
                return Err(Error::usage(message)
                    .with_hint(format!("give the full archive of slot {base} first, then the incremental one")));
            }
            ([full, incremental], _) => judge_pair(*full, *incremental, &Failures::strict())?,
            _ => {}
        }
        check.checks_state(base_slot.is_some())?;
        if let Some(PairMember { path, name: Some(name), .. }) = members.last() {
            judge_expected(check, name.slot, name.hash, &Failures::strict())
                .map_err(|error| error.within_damaged(path.escaped()))?;
        }
        Ok(())
    }
}

/// Calls `work` with all archives of the options open. Standard input is saved to a file in the
/// archives directory while it is read.
pub fn with_archives<R>(
    run: Run<'_>,
    options: &RestoreOptions,
    work: impl FnOnce(RestoreInput<'_>) -> Result<R>,
) -> Result<R> {
    let streams = options.sources().filter(|source| **source == RestoreSource::StandardInput).count();
    if streams == 0 {
        return work(open_all(run, options, None)?);
    }
    if streams > 1 {
        return Err(Error::usage("only one of the two archives can come from standard input"));
    }
    let copy = StagedFile::create_in(&run.target.snapshots_dir)?;
    let file = copy.file().try_clone().or_path("open", copy.path())?;
    let arriving = &Arc::new(ArrivingSource::new(file, PathBuf::from("standard input")));
    std::thread::scope(|scope| {
        let receiver = spawn(scope, || receive(arriving, run.progress))?;
        // The receiver must be told to stop even after a panic.
        let saved = Supplied::Saved(arriving.clone(), copy);
        let result = catch_panic(|| work(open_all(run, options, Some(saved))?));
        arriving.stop();
        let received = receiver.join().unwrap_or_else(|payload| Err(panic_error(payload.as_ref())));
        match (result, received) {
            // Prefer the receiver's error: it says why bytes did not come.
            (Err(error), Err(cause)) if error.kind() == ErrorKind::Failed => Err(cause),
            (result, _) => result,
        }
    })
}

fn open_all<'a>(run: Run<'a>, options: &'a RestoreOptions, mut saved: Option<Supplied>) -> Result<RestoreInput<'a>> {
    let RestoreOptions { expect_roots, move_archives, .. } = options;
    let mut input = RestoreInput { run, opened: Vec::new(), more: None, expect_roots, move_archives: *move_archives };
    let count = options.sources().count();
    for (number, source) in (1..).zip(options.sources()) {
        let supplied = match source {
            RestoreSource::File(path) => Some(Supplied::File(moved_path(path, options))),
            RestoreSource::StandardInput => saved.take(),
        };
        if let Some(supplied) = supplied {
            input.open(supplied, number < count)?;
        }
    }
    Ok(input)
}

/// Returns the path of an archive, which a former run may have moved into the snapshots directory.
pub fn moved_path(path: &Path, options: &RestoreOptions) -> PathBuf {
    let moved = path.file_name().map(|name| options.target.paths.snapshots_dir().join(name));
    let moved = moved.filter(|moved| options.move_archives && !path.exists() && moved.exists());
    moved.unwrap_or_else(|| path.to_path_buf())
}

fn receive(arriving: &ArrivingSource, progress: &dyn Progress) -> Result<()> {
    let place = Path::new("standard input");
    // Bypasses the standard library's buffer: a wait for bytes would not see buffered ones.
    let stdin = std::io::stdin();
    let mut input = File::from(stdin.as_fd().try_clone_to_owned().or_path("open", place)?);
    arriving.receive(&mut input, progress)
}

/// Makes the error for an archive with a compression that Agave does not read.
pub fn unsupported_compression_error(place: &str, compression: ArchiveCompression) -> Error {
    let extension = compression.extension();
    let message = format!("{place}: Agave does not read .{extension} archives");
    Error::new(ErrorKind::Unsupported, message).with_hint("recompress it first, and restore the result")
}
