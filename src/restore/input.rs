//! Opens the archives of a restore, from files, standard input or a supply. Checks that they belong
//! together, and chooses how each gets into the snapshots directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use slotpress_base::{Error, ErrorKind, EscapePath, IoContext, Result, catch_panic, hint, join_thread, spawn};
use slotpress_format::{ArchiveCompression, ArchiveName, ArchiveRoot, EntryKind};
use slotpress_read::archive::front::refuse_unless_agave_loads;
use slotpress_read::archive::local::STANDARD_INPUT;
use slotpress_read::{
    ArrivingSource, CheckOptions, Failures, LocalArchive, OpenArchive, PairMember, Publishable, SharedSource,
    StagedFile, judge_expected, judge_pair, judge_root,
};

use crate::restore::conflicts::RestoredSlots;
use crate::restore::copies::ArchiveCopy;
use crate::restore::{RestoreJob, RestoreOptions};

/// A sequence of archives, such as those that are being downloaded.
pub trait Supply {
    /// Returns the next archive; `None` after the last one. Called after the previous archive was read to
    /// its end, so that an incremental archive can be chosen as late as possible.
    fn next(&mut self) -> Result<Option<SuppliedArchive>>;
}

#[cfg_attr(not(feature = "net"), allow(dead_code))]
#[derive(Debug)]
pub enum SuppliedArchive {
    Arriving {
        source: SharedSource,
        name: Option<ArchiveName>,
        file: Arc<dyn Publishable>,
    },
    /// A stream, and the file to which it is saved.
    Saved(SharedSource, StagedFile),
    File(PathBuf),
}

pub struct ArchiveToRestore {
    pub archive: OpenArchive,
    /// `None` if the archive is already in the snapshots directory.
    pub copy: Option<ArchiveCopy>,
    pub expect_root: Option<ArchiveRoot>,
    /// True if the root can be compared only after the archive has been read, because the tail has not
    /// arrived yet.
    pub is_judged_at_end: bool,
}

impl ArchiveToRestore {
    pub fn judge_root(&self, root: Option<ArchiveRoot>) -> Result<()> {
        judge_root(self.expect_root, root, &Failures::strict())
    }

    pub fn add_path(&self, error: Error) -> Error {
        error.with_place_if_damaged(self.archive.path().escaped())
    }
}

pub struct RestoreInput<'a> {
    job: RestoreJob<'a>,
    pub opened: Vec<ArchiveToRestore>,
    supply: Option<&'a mut dyn Supply>,
    expect_roots: &'a [ArchiveRoot],
    move_archives: bool,
}

impl<'a> RestoreInput<'a> {
    pub fn new(job: RestoreJob<'a>, supply: Option<&'a mut dyn Supply>, expect_roots: &'a [ArchiveRoot]) -> Self {
        Self { job, opened: Vec::new(), supply, expect_roots, move_archives: false }
    }

    /// Opens an archive. Refuses it if Agave does not read it, or if its root is not the
    /// expected one. `is_base` is true if an incremental archive is known to follow.
    fn open(&mut self, supplied: SuppliedArchive, is_base: bool) -> Result<()> {
        let io_policy = &self.job.options.io_policy;
        let (archive, copy, had_length) = match supplied {
            SuppliedArchive::Arriving { source, name, file } => {
                let had_length = source.length_bytes().is_some();
                let archive = OpenArchive::from_source(source, name, io_policy)?;
                (archive, Some(ArchiveCopy::Fetched(file)), had_length)
            }
            SuppliedArchive::Saved(source, file) => {
                // A stream is always read in order, even if its tail has already arrived. So the result
                // does not depend on the stream's speed.
                let archive = OpenArchive::from_source(source, None, io_policy)?.without_index();
                let copy = ArchiveCopy::New { file, is_complete: true };
                (archive, Some(copy), false)
            }
            SuppliedArchive::File(path) => {
                let archive = OpenArchive::open(&path, io_policy)?;
                let dir = &self.job.target.snapshots_dir;
                let copy = ArchiveCopy::from_file(&archive, dir, self.move_archives)?;
                (archive, copy, true)
            }
        };
        archive.warn_of_damaged_index(self.job.progress);
        if !archive.compression.is_read_by_agave() {
            let path = archive.path().escaped();
            return Err(unsupported_compression_error(&path, archive.compression));
        }
        refuse_unless_agave_loads(&archive, is_base)?;
        let expect_root = self.expect_roots.get(self.opened.len()).copied();
        // Without a length, the tail was not read, even if the length has become known since.
        let is_judged_at_end = !had_length && archive.tail.is_none();
        let opened = ArchiveToRestore { archive, copy, expect_root, is_judged_at_end };
        if !is_judged_at_end {
            let judged = opened.judge_root(opened.archive.root());
            judged.map_err(|error| opened.add_path(error))?;
        }
        self.opened.push(opened);
        Ok(())
    }

    /// Opens the next archive of the supply. Returns false if there is none.
    pub fn open_next(&mut self) -> Result<bool> {
        let Some(supply) = &mut self.supply else { return Ok(false) };
        let Some(supplied) = supply.next()? else {
            self.supply = None;
            return Ok(false);
        };
        let count = self.opened.len();
        let is_base = false;
        self.open(supplied, is_base)?;
        self.job.check_space(&self.opened[count..])?;
        Ok(true)
    }

    pub fn require_expected_archives(&self) -> Result<()> {
        let Some(root) = self.expect_roots.get(self.opened.len()) else { return Ok(()) };
        let message = format!("no source has an incremental archive with root {root}");
        Err(Error::new(ErrorKind::Network, message).with_hint(hint::USE_FIND))
    }

    pub fn lengths(&self) -> impl Iterator<Item = Option<u64>> + '_ {
        self.archives().map(|archive| archive.source.length_bytes())
    }

    pub fn archives(&self) -> impl Iterator<Item = &OpenArchive> {
        self.opened.iter().map(|opened| &opened.archive)
    }

    pub fn bytes_to_copy(&self) -> impl Iterator<Item = u64> + '_ {
        self.opened.iter().map(ArchiveToRestore::bytes_to_copy)
    }

    /// Returns the slots of the state according to the last archive's name and index; `None` without a
    /// name.
    pub fn slots(&self) -> Option<RestoredSlots> {
        let archive = self.archives().last()?;
        let name = archive.name.as_ref()?;
        let entries = archive.tail.iter().flat_map(|tail| &tail.index.entries);
        let storages = entries.filter_map(|entry| match entry.kind {
            EntryKind::Storage { slot, id } => Some((slot, id)),
            _ => None,
        });
        Some(RestoredSlots::new(name.slot, name.base_slot, storages))
    }

    /// Refuses archives whose names show that they do not belong together or are not the expected ones.
    /// Also fails if a check of the state is requested but impossible.
    pub fn check_pair(&self, check: &CheckOptions) -> Result<()> {
        let members = self.archives().map(|archive| PairMember::from_archive(archive, None));
        let members: Vec<_> = members.collect();
        let base_slot = members.first().and_then(|first| first.base_slot);
        match (&members[..], base_slot) {
            ([_], Some(base)) => {
                let message = format!("an incremental archive alone does not make a ledger: it builds on slot {base}");
                let hint = format!("pass the full archive of slot {base} first, then the incremental one");
                return Err(Error::usage(message).with_hint(hint));
            }
            ([full, incremental], _) => judge_pair(*full, *incremental, &Failures::strict())?,
            _ => {}
        }
        check.checks_state(base_slot.is_some())?;
        let Some(newest) = members.last() else { return Ok(()) };
        let Some(name) = newest.name else { return Ok(()) };
        let judged = judge_expected(check, name.slot, name.hash, &Failures::strict());
        judged.map_err(|error| error.with_place_if_damaged(newest.path.escaped()))
    }
}

/// Opens all archives of the options, and calls `work` with them. Saves a stream to a file in the
/// snapshots directory while it is read.
pub fn with_archives<R>(
    job: RestoreJob<'_>,
    options: &RestoreOptions,
    work: impl FnOnce(RestoreInput<'_>) -> Result<R>,
) -> Result<R> {
    let mut streams = options.archives().filter_map(|archive| match archive {
        LocalArchive::Stream(stream) => Some(&**stream),
        LocalArchive::File(_) => None,
    });
    let Some(stream) = streams.next() else { return work(open_all(job, options, None)?) };
    if streams.next().is_some() {
        return Err(Error::usage("only one of the two archives can come from standard input"));
    }
    let staged = StagedFile::create_in(&job.target.snapshots_dir)?;
    let file = staged.file().try_clone().or_path("open", staged.path())?;
    let arriving = &Arc::new(ArrivingSource::new(file, PathBuf::from(STANDARD_INPUT)));
    std::thread::scope(|scope| {
        let receiver = spawn(scope, || arriving.receive(&mut &*stream, job.progress))?;
        let saved = SuppliedArchive::Saved(arriving.clone(), staged);
        // The receiver must be told to stop even after a panic.
        let result = catch_panic(|| work(open_all(job, options, Some(saved))?));
        arriving.stop();
        match (result, join_thread(receiver)) {
            // The receiver's error says why bytes did not arrive.
            (Err(error), Err(cause)) if error.kind() == ErrorKind::Failed => Err(cause),
            (result, _) => result,
        }
    })
}

fn open_all<'a>(
    job: RestoreJob<'a>,
    options: &'a RestoreOptions,
    mut saved: Option<SuppliedArchive>,
) -> Result<RestoreInput<'a>> {
    let mut input = RestoreInput::new(job, None, &options.expect_roots);
    input.move_archives = options.move_archives;
    let count = options.archives().count();
    for (index, archive) in options.archives().enumerate() {
        let supplied = match archive {
            LocalArchive::File(path) => Some(SuppliedArchive::File(current_path(path, options))),
            LocalArchive::Stream(_) => saved.take(),
        };
        if let Some(supplied) = supplied {
            let is_base = index + 1 < count;
            input.open(supplied, is_base)?;
        }
    }
    Ok(input)
}

/// Returns the path of an archive, which an earlier run may have moved into the snapshots directory.
pub fn current_path(path: &Path, options: &RestoreOptions) -> PathBuf {
    if options.move_archives
        && !path.exists()
        && let Some(name) = path.file_name()
    {
        let moved = options.target.paths.snapshots_dir().join(name);
        if moved.exists() {
            return moved;
        }
    }
    path.to_path_buf()
}

/// Makes the error for an archive with a compression that Agave does not read.
pub fn unsupported_compression_error(place: &str, compression: ArchiveCompression) -> Error {
    let extension = compression.extension();
    let message = format!("{place}: Agave does not read .{extension} archives");
    Error::new(ErrorKind::Unsupported, message).with_hint("recompress it first, and restore the result")
}
