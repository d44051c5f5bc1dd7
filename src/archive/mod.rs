//! Archives a ledger: plans every entry with its length, divides the plan into frames, encodes them
//! on all cores, and publishes the file.
//!
//! The archive's bytes depend only on the ledger, the settings and the version of slotpress, not on
//! threads or timing.
//! [`ArchiveOptions::base_slot`] makes it an incremental one, and [`preview_archive`] checks what can be
//! checked without writing.

pub(crate) mod cluster;
mod documents;
pub(crate) mod dry_run;
pub(crate) mod encode;
pub(crate) mod encoding;
pub(crate) mod layout;
pub(crate) mod ledger_source;
pub(crate) mod lz4;
pub(crate) mod reframe;
pub(crate) mod sink;
pub(crate) mod writer;

pub use self::dry_run::{ArchivePreview, preview_archive};
pub use self::encode::{ArchiveFormat, Codec, ZSTD_LEVEL_DEFAULT, ZSTD_LEVEL_MAX, ZSTD_LEVEL_MIN};
pub use self::encoding::EncodingOptions;
pub use self::layout::RecordLayout;
pub use self::ledger_source::ledger_as_archive;
#[cfg(feature = "stores")]
pub use self::sink::StoreSink;
pub use self::sink::{DirSink, Sink, StreamSink};
use std::path::{Path, PathBuf};

use derive_setters::Setters;
use serde::Serialize;
use slotpress_base::quantity::{bytes, count};
use slotpress_base::{
    AheadItem, Elapsed, Error, EscapePath, ItemReader, PageCacheWatch, Progress, Result, Stage, Step, Stopwatch,
    read_ahead, text,
};
use slotpress_format::{
    ArchiveName, BankSnapshot, FrameCutter, FrameSpan, Layout, LedgerLock, LedgerPaths, Root, find_bank_snapshot,
    serialize_name_and_parts,
};
use slotpress_read::archive::source::open_written;
use slotpress_read::catalog::scan::scan;
use slotpress_read::{Catalog, CheckOptions, NamedArchive, Plan, PlanOptions, ReadBackReport, read_back_archive};

use crate::archive::documents::{judge, run_while_reading};
use crate::archive::encode::{EncodedFrame, FrameContent, encode_frames};
use crate::archive::layout::{FrameLink, FrameLinker, content_buffer, warn_of_unclustered};
use crate::archive::writer::{ArchiveWriter, WrittenArchive};

/// Settings for [`archive()`] and [`preview_archive`].
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
pub struct ArchiveOptions {
    /// Directories of the ledger.
    pub paths: LedgerPaths,
    /// Slot of the bank snapshot to archive. Default: the slot of the newest complete one.
    #[setters(into)]
    pub slot: Option<u64>,
    /// Slot of a full archive: makes an incremental archive based on it. Default: none, a full
    /// archive.
    #[setters(into)]
    pub base_slot: Option<u64>,
    /// Format, level, frames, threads and memory.
    pub encoding: EncodingOptions,
    /// Accepts a base slot whose full archive is missing, or is not the newest one. Default: false,
    /// because closed accounts may reappear on another base.
    pub force_base: bool,
    /// Checks to make when the archive is read back before it gets its name; only for an archive in
    /// a directory. Default: none, and it is not read back.
    #[setters(into)]
    pub read_back: Option<CheckOptions>,
}

impl ArchiveOptions {
    /// Makes options for a full archive of the newest state: zstd level 1, one thread per core.
    pub fn new(ledger: impl Into<PathBuf>) -> Self {
        Self {
            paths: LedgerPaths::new(ledger),
            slot: None,
            base_slot: None,
            encoding: EncodingOptions::default(),
            force_base: false,
            read_back: None,
        }
    }
}

/// Result of the function [`archive()`].
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ArchiveReport {
    /// The archive that was written.
    #[serde(flatten)]
    pub archive: NewArchive,
    /// Length of the tar stream, in bytes.
    pub input_bytes: u64,
    /// Checks that were made when the archive was read back; `None` if it was not.
    pub read_back: Option<ReadBackReport>,
    /// Path of the incremental archive's full archive, if it is in the output directory or the
    /// snapshots directory.
    #[serde(skip)]
    pub base: Option<PathBuf>,
    /// Number of workers that encoded the archive.
    pub threads: usize,
}

/// A written archive, as part of several reports.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct NewArchive {
    /// Path of the archive, or its URL in a bucket; `None` for a stream.
    #[serde(serialize_with = "text::optional_path")]
    pub path: Option<PathBuf>,
    /// Name of the archive, even if it went to a stream.
    #[serde(flatten, serialize_with = "serialize_name_and_parts")]
    pub name: ArchiveName,
    /// Number of storages in the archive.
    pub storages: u64,
    /// Length of the archive, in bytes.
    pub output_bytes: u64,
    /// Number of frames, without skippable ones.
    pub frames: u64,
    /// Storages whose records kept their order although the layout is clustered. Counted once per
    /// frame that holds a part. See [`RecordLayout::Clustered`].
    pub unclustered_pieces: u64,
    /// Root of the archive: one hash that covers its length, the hashes of all frames, and the
    /// index. Only zstd archives have one.
    pub root: Option<Root>,
    /// Time until the archive was on disk under its name.
    #[serde(flatten)]
    pub elapsed: Elapsed,
    /// Format and layout of the archive.
    #[serde(flatten)]
    pub codec: Codec,
}

impl NewArchive {
    /// Gives an archive its name, unless the run is interrupted, and describes it.
    pub(crate) fn publish(
        sink: &mut dyn Sink,
        name: ArchiveName,
        storages: u64,
        written: WrittenArchive,
        codec: &Codec,
        stopwatch: &Stopwatch,
        progress: &dyn Progress,
    ) -> Result<Self> {
        progress.stage(Stage::Syncing, None);
        progress.check()?;
        Ok(Self {
            path: sink.publish(&name.to_string())?,
            name,
            storages,
            output_bytes: written.length_bytes,
            frames: written.frames,
            unclustered_pieces: written.unclustered_pieces,
            root: written.root,
            elapsed: stopwatch.elapsed(),
            codec: codec.clone(),
        })
    }
}

/// Archives a bank snapshot of a stopped validator. Blocks until the archive is on disk under
/// its name.
///
/// # Errors
/// - The ledger is in use.
/// - Its bank snapshot is not complete, or not sound (bank file, status cache, version).
/// - Options contradict the ledger.
/// - A disk fails, or is full.
/// - The archive exists already: [`ErrorKind::Exists`](crate::ErrorKind::Exists).
///
/// After an error, no file is left behind, but a stream may have received a part of the archive.
pub fn archive(options: &ArchiveOptions, sink: &mut dyn Sink, progress: &dyn Progress) -> Result<ArchiveReport> {
    let stopwatch = Stopwatch::start();
    if options.read_back.is_some() && sink.dir_path().is_none() {
        return Err(Error::usage("only an archive in a directory can be read back")
            .with_hint("write into a directory, or verify it where it arrives"));
    }
    let planned = PlannedArchive::new(options, sink, progress)?;
    let plan = &planned.plan;
    let name = &planned.name;
    warn_of_whole_storages(plan.whole_storages, progress);
    progress.check()?;
    planned.check_room(sink, progress)?;

    let encoding = &options.encoding;
    let input_bytes = plan.tar_bytes();
    let mut steps = vec![Step::new(Stage::Archiving, Some(input_bytes))];
    if options.read_back.is_some() {
        steps.push(Step::new(Stage::Verifying, Some(input_bytes)));
    }
    steps.push(Step::new(Stage::Syncing, Some(0)));
    progress.steps(&steps);
    progress.detail(&planned.describe());
    progress.stage(Stage::Archiving, Some(input_bytes));
    sink.begin(Some(name), input_bytes, encoding.io_policy.io_hint)?;
    let mut writer = ArchiveWriter::new(sink, &encoding.codec);
    planned.encode(planned.frames(), progress, &mut |frame| writer.write_frame(&frame))?;
    let written_archive = writer.finish(plan.entries(), None, encoding.frame_size_bytes)?;
    warn_of_unclustered(written_archive.unclustered_pieces, progress);

    let base = planned.find_base(sink);
    let read_back = match (&options.read_back, sink.file()) {
        (Some(check), Some(file)) => {
            let base = base.as_ref().map_err(Error::clone)?.as_ref();
            if let Some(base) = base {
                progress.status(&format!("reading it back on the full archive {}", base.path.escaped()));
            }
            let archive = NamedArchive::from_source(open_written(file)?, Some(name.clone()));
            Some(read_back_archive(check, &archive, base, encoding.threads, progress)?)
        }
        _ => None,
    };
    let archive = NewArchive::publish(
        sink,
        name.clone(),
        plan.storages.len() as u64,
        written_archive,
        &encoding.codec,
        &stopwatch,
        progress,
    )?;
    // Only the report needs the base, so an unreadable directory is no error here.
    let base = base.ok().flatten().map(|base| base.path);
    Ok(ArchiveReport { archive, input_bytes, read_back, base, threads: planned.workers })
}

/// The lock of a ledger, and the watch that drops pages of its bank snapshots from the page cache at
/// the end if they were not there before. The lists and the bank file are read several times.
type HeldLedger = (Option<LedgerLock>, PageCacheWatch);

fn open_snapshot(options: &ArchiveOptions, progress: &dyn Progress) -> Result<(BankSnapshot, HeldLedger)> {
    let watch = options.encoding.io_policy.io_hint.watch_subdirs(options.paths.snapshots_dir().join("snapshots"));
    progress.stage(Stage::Planning, None);
    let is_ledger = options.paths.ledger.is_dir() && !options.paths.is_unpacked_archive();
    let lock = is_ledger.then(|| LedgerLock::acquire(&options.paths.ledger)).transpose()?;
    let snapshot = find_bank_snapshot(&options.paths, options.slot, options.encoding.threads)?;
    Ok((snapshot, (lock, watch)))
}

fn plan_snapshot(
    snapshot: BankSnapshot,
    base_slot: Option<u64>,
    options: &ArchiveOptions,
    progress: &dyn Progress,
) -> Result<Plan> {
    let EncodingOptions { threads, io_policy, .. } = &options.encoding;
    let plan_options = PlanOptions { base_slot, threads: *threads, io_policy: io_policy.clone() };
    let status_cache = snapshot.status_cache.clone();
    let (plan, status_cache) = run_while_reading(&status_cache, progress, || {
        Plan::new_with(snapshot, &plan_options, progress, &mut |fault| Err(fault.error))
    })?;
    judge(status_cache, &plan.bank)?;
    Ok(plan)
}

struct PlannedArchive<'a> {
    options: &'a ArchiveOptions,
    plan: Plan,
    name: ArchiveName,
    workers: usize,
    _held: HeldLedger,
}

impl FrameContent for AheadItem<'_, (FrameSpan, FrameLink)> {
    fn fill(self, buffer: &mut Vec<u8>) -> Result<(usize, FrameLink)> {
        let (span, link) = self.read(buffer)?;
        Ok((span.length_bytes as usize, link))
    }
}

impl<'a> PlannedArchive<'a> {
    fn new(options: &'a ArchiveOptions, sink: &dyn Sink, progress: &dyn Progress) -> Result<Self> {
        let workers = options.encoding.worker_count(0)?;
        let (snapshot, held) = open_snapshot(options, progress)?;
        if !options.force_base {
            check_base(snapshot.slot, options, sink)?;
        }
        let layout = snapshot.layout;
        let plan = plan_snapshot(snapshot, options.base_slot, options, progress)?;
        if layout == Layout::Unpacked && plan.bank.storage_count == 0 && options.read_back.is_none() {
            progress.warn(
                "the bank file names no storages (Agave 4.4 and later), so missing storages were not detected; \
                 reading the archive back checks this",
            );
        }
        let name = ArchiveName {
            base_slot: options.base_slot,
            slot: plan.bank.slot,
            hash: plan.bank.snapshot_hash(),
            compression: options.encoding.codec.compression(),
        };
        sink.check_name(&name.to_string())?;
        Ok(Self { options, plan, name, workers, _held: held })
    }

    fn describe(&self) -> String {
        let plan = &self.plan;
        format!(
            "plan: {} of tar, storages: {}; obsolete records left out: {} ({}); {}",
            bytes(plan.tar_bytes()),
            count(plan.storages.len() as u64),
            count(plan.obsolete_records),
            bytes(plan.obsolete_bytes),
            self.options.encoding.describe(self.workers)
        )
    }

    fn frames(&self) -> impl Iterator<Item = (FrameSpan, FrameLink)> + Send {
        let encoding = &self.options.encoding;
        let mut spans = FrameCutter::new(self.plan.entry_lengths(), encoding.frame_size_bytes).peekable();
        let mut linker = FrameLinker::new(encoding.codec.layout);
        std::iter::from_fn(move || {
            let span = spans.next()?;
            let link = linker.link(spans.peek().is_some_and(|next| next.offset_bytes > 0));
            Some((span, link))
        })
    }

    fn encode(
        &self,
        frames: impl Iterator<Item = (FrameSpan, FrameLink)> + Send,
        progress: &dyn Progress,
        on_frame: &mut dyn FnMut(EncodedFrame<'_>) -> Result<()>,
    ) -> Result<()> {
        let encoding = &self.options.encoding;
        let read = |(span, _): &(FrameSpan, FrameLink), content: &mut Vec<u8>| {
            encoding.io_policy.wait(span.length_bytes, progress);
            self.plan.fill(span, content_buffer(content, span.length_bytes as usize))
        };
        let reading = ItemReader {
            is_cold: &|(span, _)| self.plan.is_cold(span),
            read: &read,
            item_bytes_max: encoding.frame_size_bytes,
            ahead_bytes_max: encoding.ahead_bytes(self.workers, 0)?,
        };
        read_ahead(frames, &reading, |frames| encode_frames(frames, &encoding.codec, self.workers, progress, on_frame))
    }

    /// Finds the full archive of an incremental one in the directories of [`archives_beside`].
    fn find_base(&self, sink: &dyn Sink) -> Result<Option<NamedArchive>> {
        let Some(base_slot) = self.name.base_slot else { return Ok(None) };
        let beside = archives_beside(self.options, sink.dir_path())?;
        let mut full_archives = beside.archives().iter().filter(|archive| archive.is_full());
        let base = full_archives.find(|archive| archive.name.slot == base_slot);
        Ok(base.map(|base| NamedArchive::from_path(base.path())))
    }
}

/// Warns of storages that are longer than the bank file says, although no list names obsolete
/// records in them: the ledger was restored, and no validator has run on it since. These storages
/// are archived whole, so the archive is somewhat larger. A dry run does not show this warning.
fn warn_of_whole_storages(count: u64, progress: &dyn Progress) {
    let (storages, are) = if count == 1 { ("storage", "is") } else { ("storages", "are") };
    if count > 0 {
        progress.warn(&format!(
            "{count} {storages} {are} longer than the bank file says, without obsolete records: this ledger was restored \
             and has not run since; the archive holds these in full, and is somewhat larger"
        ));
    }
}

/// Refuses an incremental archive unless its base is the newest full archive. Agave keeps
/// tombstones only above the newest full archive's slot, so closed accounts could reappear on an
/// older base. Full archives at or above `slot` do not count.
fn check_base(slot: u64, options: &ArchiveOptions, sink: &dyn Sink) -> Result<()> {
    let Some(base_slot) = options.base_slot.filter(|base| *base < slot) else { return Ok(()) };
    let in_store = sink.archives()?;
    let beside = archives_beside(options, sink.dir_path())?;
    let names = beside.archives().iter().map(|archive| &archive.name).chain(&in_store);
    let newest = names.filter(|name| name.base_slot.is_none() && name.slot < slot).map(|name| name.slot).max();
    let places = sink.location().into_iter().chain([options.paths.snapshots_dir().escaped()]);
    let places = places.collect::<Vec<_>>().join(" or ");
    let (message, hint) = match newest {
        Some(newest) if newest == base_slot => return Ok(()),
        Some(newest) => {
            let found = format!("the newest full archive below slot {slot} in {places} is of slot {newest}");
            (
                format!("{found}, not of the base slot {base_slot}"),
                format!(
                    "use --base-slot {newest}; with another base, closed accounts may reappear (--force-base accepts that risk)"
                ),
            )
        }
        None => (
            format!("there is no full archive of slot {base_slot} in {places}"),
            "put the full archive there, or use --force-base to continue without it".to_string(),
        ),
    };
    Err(Error::failed(message).with_hint(hint))
}

fn archives_beside(options: &ArchiveOptions, out_dir: Option<&Path>) -> Result<Catalog> {
    let dirs = out_dir.into_iter().chain([options.paths.snapshots_dir()]);
    let dirs = dirs.filter(|dir| dir.is_dir()).map(Path::to_path_buf);
    scan(&dirs.collect::<Vec<_>>())
}
