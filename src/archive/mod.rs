//! Archives a ledger: plans every entry with its length, divides the plan into frames, encodes them
//! on all cores, and publishes the file.
//!
//! The archive's bytes depend only on the ledger, the settings and the version of slotpress, not on
//! threads or timing. With [`ArchiveOptions::base_slot`], the archive is incremental.
//! [`preview_archive`] checks what can be checked without writing.

pub(crate) mod cluster;
mod documents;
pub(crate) mod encode;
pub(crate) mod encoding;
pub(crate) mod layout;
pub(crate) mod ledger_source;
pub(crate) mod lz4;
pub(crate) mod preview;
pub(crate) mod reframe;
pub(crate) mod sink;
pub(crate) mod writer;

pub use self::encode::{ArchiveFormat, Codec, ZSTD_LEVEL_DEFAULT, ZSTD_LEVEL_MAX, ZSTD_LEVEL_MIN};
pub use self::encoding::EncodingOptions;
pub use self::layout::RecordLayout;
pub use self::preview::{ArchivePreview, preview_archive};
#[cfg(feature = "stores")]
pub use self::sink::StoreSink;
pub use self::sink::{DirSink, Sink, StreamSink};
use std::path::{Path, PathBuf};

use derive_setters::Setters;
use serde::Serialize;
use slotpress_base::{
    AheadItem, Elapsed, Error, EscapePath, ItemReader, PageCacheWatch, Progress, Result, Stage, Step, Stopwatch,
    quantity, read_ahead, text,
};
use slotpress_format::{
    ArchiveName, ArchiveRoot, BankSnapshot, FrameCutter, FrameSpan, Layout, LedgerLock, LedgerPaths,
    find_bank_snapshot, serialize_name_and_parts,
};
use slotpress_read::catalog::scan::scan;
use slotpress_read::{
    ArchiveInput, Catalog, CheckOptions, Plan, PlanOptions, ReadBackReport, open_written, read_back_archive,
};

use crate::archive::documents::{judge_bank_snapshot, read_status_cache_during};
use crate::archive::encode::{FrameContent, FrameSummary, encode_frames};
use crate::archive::layout::{FrameLink, FrameLinker, content_buffer, warn_of_unclustered};
use crate::archive::writer::{ArchiveWriter, WrittenArchive};

/// Options of [`archive()`] and [`preview_archive`].
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
pub struct ArchiveOptions {
    /// Directories of the ledger.
    pub paths: LedgerPaths,
    /// Slot of the bank snapshot to archive. Default: the slot of the newest complete one.
    #[setters(strip_option)]
    pub slot: Option<u64>,
    /// Slot of the full archive on which the new archive builds. Default: none, which makes a full
    /// archive.
    #[setters(strip_option)]
    pub base_slot: Option<u64>,
    /// Format, level, frames, threads and memory.
    pub encoding: EncodingOptions,
    /// Accepts a base slot whose full archive is missing, or is not the newest one. Default: false,
    /// because closed accounts may reappear on a different base.
    pub force_base: bool,
    /// Checks to make when the archive is read back, before it is renamed into place. Possible only for an
    /// archive in a directory. Default: the archive is not read back.
    #[setters(strip_option)]
    pub read_back: Option<CheckOptions>,
}

impl ArchiveOptions {
    /// Creates options for a full archive of the newest state: zstd level 1, one thread per core.
    pub fn new(ledger: impl Into<LedgerPaths>) -> Self {
        Self {
            paths: ledger.into(),
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
    /// Checks that were made when the archive was read back; `None` if it was not read back.
    pub read_back: Option<ReadBackReport>,
    /// Path of the incremental archive's base, if it is in the output directory or the snapshots
    /// directory.
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
    /// Number of pieces of storages that [`RecordLayout::Clustered`] had to leave unchanged. A storage has
    /// a piece in each frame that holds a part of it. Pieces after an invalid record are not counted.
    pub unclustered_pieces: u64,
    /// Root of the archive: one hash that covers its length, the hashes of all frames, and the
    /// index. Only zstd archives have one.
    pub root: Option<ArchiveRoot>,
    /// Time until the archive was complete under its name.
    #[serde(flatten)]
    pub elapsed: Elapsed,
    /// Format and layout of the archive.
    #[serde(flatten)]
    pub codec: Codec,
}

impl NewArchive {
    /// Publishes an archive under its name, unless the run is interrupted, and returns its description.
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
            path: sink.publish(&name.to_string(), progress)?,
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

/// Archives a bank snapshot of a stopped validator. Blocks until the archive is complete and, in a
/// directory, on disk under its name.
///
/// # Errors
/// - The ledger is in use.
/// - Its bank snapshot is not complete, or not valid (bank file, status cache, version).
/// - Options contradict the ledger.
/// - A disk or the sink fails or is full, or there is not enough memory.
/// - The archive already exists: [`ErrorKind::Exists`](crate::ErrorKind::Exists).
/// - Reading the archive back finds it damaged.
///
/// After an error, no file is left behind, except the ledger's lock file if it was missing. A stream may
/// have received a part of the archive.
pub fn archive(options: &ArchiveOptions, sink: &mut dyn Sink, progress: &dyn Progress) -> Result<ArchiveReport> {
    let stopwatch = Stopwatch::start();
    if options.read_back.is_some() && sink.dir_path().is_none() {
        let error = Error::usage("only an archive in a directory can be read back");
        return Err(error.with_hint("write into a directory, or verify it where it arrives"));
    }
    let planned = PlannedArchive::new(options, sink, progress)?;
    let plan = &planned.plan;
    let name = planned.name.clone();
    warn_of_whole_storages(plan.whole_storages, progress);
    progress.check()?;
    planned.check_space(sink, progress)?;

    let encoding = &options.encoding;
    let codec = &encoding.codec;
    let threads = encoding.threads;
    let input_bytes = plan.tar_bytes();
    let mut steps = vec![Step::new(Stage::Archiving, Some(input_bytes))];
    if options.read_back.is_some() {
        steps.push(Step::new(Stage::Verifying, Some(input_bytes)));
    }
    steps.push(Step::new(Stage::Syncing, Some(0)));
    progress.steps(&steps);
    progress.detail(&planned.describe());
    progress.stage(Stage::Archiving, Some(input_bytes));
    sink.begin(Some(&name), input_bytes, encoding.io_policy.io_hint, progress)?;
    let mut writer = ArchiveWriter::new(sink, codec, progress);
    planned.encode(planned.frames(), progress, &mut |bytes, frame| writer.write_frame(bytes, frame))?;
    let written = writer.finish(plan.entries(), None, encoding.frame_size_bytes)?;
    warn_of_unclustered(written.unclustered_pieces, progress);

    let base = planned.find_base(sink);
    let read_back = match (&options.read_back, sink.staged_file()) {
        (Some(check), Some(file)) => {
            let base = base.as_ref().map_err(Error::clone)?.as_ref();
            if let Some(base) = base {
                let path = base.path.escaped();
                progress.status(&format!("reading it back on the full archive {path}"));
            }
            let archive = ArchiveInput::from_source(open_written(file)?, Some(name.clone()));
            Some(read_back_archive(check, &archive, base, threads, progress)?)
        }
        _ => None,
    };
    let storages = plan.storages.len() as u64;
    let archive = NewArchive::publish(sink, name, storages, written, codec, &stopwatch, progress)?;
    // From here on, only the report needs the base, so an unreadable directory is not an error.
    let base = base.ok().flatten().map(|base| base.path);
    Ok(ArchiveReport { archive, input_bytes, read_back, base, threads: planned.workers })
}

/// Lock of a ledger that is being read, and a watch over the page cache of its bank snapshots, whose lists
/// and bank file are read several times. Dropping the watch removes their pages from the cache.
#[derive(Debug)]
struct HeldLedger {
    _lock: Option<LedgerLock>,
    _watch: PageCacheWatch,
}

fn open_snapshot(options: &ArchiveOptions, progress: &dyn Progress) -> Result<(BankSnapshot, HeldLedger)> {
    let io_hint = options.encoding.io_policy.io_hint;
    let watch = io_hint.watch_subdirs(options.paths.snapshots_dir().join("snapshots"));
    progress.stage(Stage::Planning, None);
    let is_ledger = options.paths.ledger.is_dir() && !options.paths.is_unpacked_archive();
    let lock = is_ledger.then(|| LedgerLock::acquire(&options.paths.ledger)).transpose()?;
    let snapshot = find_bank_snapshot(&options.paths, options.slot, options.encoding.threads)?;
    let held = HeldLedger { _lock: lock, _watch: watch };
    Ok((snapshot, held))
}

fn plan_snapshot(
    snapshot: BankSnapshot,
    base_slot: Option<u64>,
    options: &ArchiveOptions,
    progress: &dyn Progress,
) -> Result<Plan> {
    let threads = options.encoding.threads;
    let io_policy = options.encoding.io_policy.clone();
    let plan_options = PlanOptions { base_slot, threads, io_policy };
    let status_cache = snapshot.status_cache.clone();
    let (plan, status_cache) =
        read_status_cache_during(&status_cache, progress, || Plan::new(snapshot, &plan_options, progress))?;
    judge_bank_snapshot(status_cache, &plan.bank)?;
    Ok(plan)
}

struct PlannedArchive<'a> {
    options: &'a ArchiveOptions,
    plan: Plan,
    name: ArchiveName,
    workers: usize,
    _held: HeldLedger,
}

struct PlannedFrame {
    span: FrameSpan,
    link: FrameLink,
}

impl FrameContent for AheadItem<'_, PlannedFrame> {
    fn fill(self, buffer: &mut Vec<u8>) -> Result<(usize, FrameLink)> {
        let frame = self.read(buffer)?;
        Ok((frame.span.length_bytes as usize, frame.link))
    }
}

impl<'a> PlannedArchive<'a> {
    fn new(options: &'a ArchiveOptions, sink: &dyn Sink, progress: &dyn Progress) -> Result<Self> {
        let workers = options.encoding.worker_count(0)?;
        let (snapshot, held) = open_snapshot(options, progress)?;
        if !options.force_base {
            check_base(snapshot.slot, options, sink, progress)?;
        }
        let layout = snapshot.layout;
        let plan = plan_snapshot(snapshot, options.base_slot, options, progress)?;
        if layout == Layout::Unpacked && plan.bank.storage_count == 0 && options.read_back.is_none() {
            progress.warn(
                "the bank file names no storages (Agave 4.4 and later), so missing storages were not detected; \
                 reading the archive back checks this",
            );
        }
        let name = plan.bank.archive_name(options.base_slot, options.encoding.codec.compression());
        sink.check_name(&name.to_string())?;
        Ok(Self { options, plan, name, workers, _held: held })
    }

    fn describe(&self) -> String {
        let plan = &self.plan;
        format!(
            "plan: {} of tar, storages: {}; obsolete records left out: {} ({}); {}",
            quantity::bytes(plan.tar_bytes()),
            quantity::count(plan.storages.len() as u64),
            quantity::count(plan.obsolete_records),
            quantity::bytes(plan.obsolete_bytes),
            self.options.encoding.describe(self.workers)
        )
    }

    fn frames(&self) -> impl Iterator<Item = PlannedFrame> + Send {
        let encoding = &self.options.encoding;
        let mut spans = FrameCutter::new(self.plan.entry_lengths(), encoding.frame_size_bytes).peekable();
        let mut linker = FrameLinker::new(encoding.codec.layout);
        std::iter::from_fn(move || {
            let span = spans.next()?;
            let link = linker.link(spans.peek().is_some_and(|next| next.offset_bytes > 0));
            Some(PlannedFrame { span, link })
        })
    }

    fn encode(
        &self,
        frames: impl Iterator<Item = PlannedFrame> + Send,
        progress: &dyn Progress,
        on_frame: &mut dyn FnMut(&[u8], &FrameSummary) -> Result<()>,
    ) -> Result<()> {
        let encoding = &self.options.encoding;
        let read = |frame: &PlannedFrame, content: &mut Vec<u8>| {
            let length_bytes = frame.span.length_bytes;
            encoding.io_policy.wait(length_bytes, progress);
            self.plan.fill(&frame.span, content_buffer(content, length_bytes as usize))
        };
        let reader = ItemReader {
            is_cold: &|frame: &PlannedFrame| self.plan.is_cold(&frame.span),
            read: &read,
            item_bytes_max: encoding.frame_size_bytes,
            ahead_bytes_max: encoding.ahead_bytes(self.workers, 0)?,
        };
        read_ahead(frames, &reader, |frames| encode_frames(frames, &encoding.codec, self.workers, progress, on_frame))
    }

    /// Finds the base of an incremental archive in the output directory or the snapshots directory.
    fn find_base(&self, sink: &dyn Sink) -> Result<Option<ArchiveInput>> {
        let Some(base_slot) = self.name.base_slot else { return Ok(None) };
        let catalog = scan_for_bases(self.options, sink.dir_path())?;
        let mut archives = catalog.archives().iter();
        let base = archives.find(|archive| archive.is_full() && archive.name.slot == base_slot);
        Ok(base.map(|base| ArchiveInput::from_path(base.path())))
    }
}

/// Warns of storages that are longer than the bank file says, although no list names obsolete records
/// in them: the ledger was restored, and no validator has run on it since. They are archived in full.
/// A preview does not warn of them.
fn warn_of_whole_storages(count: u64, progress: &dyn Progress) {
    if count > 0 {
        progress.warn(&format!(
            "{} longer than the bank file says, without obsolete records: this ledger was restored and has not \
             run since; the archive holds these storages in full, and is somewhat larger",
            quantity::count_of(count, "storage")
        ));
    }
}

/// Refuses an incremental archive unless its base is the newest full archive. Agave keeps
/// tombstones only above the newest full archive's slot, so closed accounts could reappear on an
/// older base. Ignores full archives at or above `slot`.
fn check_base(slot: u64, options: &ArchiveOptions, sink: &dyn Sink, progress: &dyn Progress) -> Result<()> {
    let Some(base_slot) = options.base_slot.filter(|base| *base < slot) else { return Ok(()) };
    let in_store = sink.archives(progress)?;
    let catalog = scan_for_bases(options, sink.dir_path())?;
    let in_dirs = catalog.archives().iter().map(|archive| &archive.name);
    let is_base = |name: &&ArchiveName| name.base_slot.is_none() && name.slot < slot;
    let slots = in_dirs.chain(&in_store).filter(is_base).map(|name| name.slot);
    let snapshots_dir = options.paths.snapshots_dir().escaped();
    let places = Vec::from_iter(sink.location().into_iter().chain([snapshots_dir])).join(" or ");
    let (message, hint) = match slots.max() {
        Some(newest) if newest == base_slot => return Ok(()),
        Some(newest) => (
            format!(
                "the newest full archive below slot {slot} in {places} is of slot {newest}, not of the base slot {base_slot}"
            ),
            format!(
                "use --base-slot {newest}; with a different base, closed accounts may reappear (--force-base accepts that risk)"
            ),
        ),
        None => (
            format!("there is no full archive of slot {base_slot} in {places}"),
            "put the full archive there, or use --force-base to continue without it".to_string(),
        ),
    };
    Err(Error::failed(message).with_hint(hint))
}

fn scan_for_bases(options: &ArchiveOptions, out_dir: Option<&Path>) -> Result<Catalog> {
    let dirs = out_dir.into_iter().chain([options.paths.snapshots_dir()]);
    let dirs = dirs.filter(|dir| dir.is_dir()).map(Path::to_path_buf);
    scan(&dirs.collect::<Vec<_>>())
}
