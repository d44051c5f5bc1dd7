//! Archive to archive, in one pass over a stream: decode, check, cut into frames anew, compress, publish.
//!
//! A running validator's state cannot be read from outside, but the archives that it writes can. The result is, byte
//! for byte, what archiving the same entries in the same order would give. Nothing gets its name unless the whole
//! source was sound and is what its name says.

use {
    crate::{
        archive::{
            check_frame_size,
            encode::{Codec, ZSTD_LEVEL_DEFAULT, encode_linked_frames},
            layout::{FrameLink, Linker, warn_left_as_is},
            sink::{OpenSink, Sink},
            threads_within,
            writer::{ArchiveWriter, FrameTotals},
        },
        error::{Error, Result},
        format::{
            assemble::FrameAssembler,
            entry::{END_OF_ARCHIVE_BYTES, Entry, EntryKind},
            frames::FRAME_SIZE_BYTES_DEFAULT,
        },
        io::{Manners, Watch},
        ledger::{bank_file::BankFile, names::ArchiveName},
        progress::Progress,
        read::{
            Archive, ArchiveStream, IndexPolicy, Pass, ReadArchive,
            compression::{Compression, sniff},
            in_order::read_in_order,
            visit::{EntrySink, EntryUse, Problem, RecordVisitor, Visitor},
            walk::{Recycler, SeenFrame},
        },
        restore,
        rules::{
            archive::{ArchiveRules, JudgedArchive, SeenSlots},
            clients::Rule,
            documents::judge_storage_map,
            findings::Findings,
        },
        state::{
            accounts::AccountsPass,
            again::read_again,
            check::{Assurance, CheckMode, CheckOptions, StateCheck, StateOutcome, has_frame_checksums, judge_outcome},
            settle::RATIO_TYPICAL,
        },
        stopwatch::{Stopwatch, Taken},
    },
    crossbeam_channel::{Receiver, Sender, bounded},
    std::{
        io::{Cursor, Read},
        path::{Path, PathBuf},
        sync::{
            Mutex, PoisonError,
            atomic::{AtomicU64, Ordering::Relaxed},
        },
    },
};

/// Where the archive comes from.
pub enum Source {
    /// A file.
    File(PathBuf),
    /// A stream, which has no name to check its content against.
    Stream(Box<dyn Read + Send>),
}

/// How to recompress.
#[derive(Clone, Debug)]
pub struct RecompressOptions {
    /// How frames are compressed.
    pub codec: Codec,
    /// Bytes of tar in a frame.
    pub frame_size_bytes: u64,
    /// Workers that compress; about half as many decode.
    pub threads: usize,
    /// The most memory for buffers, in bytes: fewer workers are started where it does not suffice.
    pub memory_bytes: Option<u64>,
    /// The base slot of an incremental archive that comes without a name.
    pub base_slot: Option<u64>,
    /// How the state is checked on the way.
    pub check: CheckOptions,
    /// How to behave towards whoever else uses the machine.
    pub manners: Manners,
}

/// What was recompressed.
#[derive(Clone, Debug)]
pub struct RecompressReport {
    /// The new archive; `None` when it went into a stream.
    pub path: Option<PathBuf>,
    /// Its name.
    pub name: ArchiveName,
    /// Storages inside.
    pub storages: u64,
    /// Length of the source in bytes.
    pub input_bytes: u64,
    /// Bytes of tar.
    pub tar_bytes: u64,
    /// Length of the new archive in bytes.
    pub output_bytes: u64,
    /// Frames inside, without skippable ones.
    pub frames: FrameTotals,
    /// What integrity and completeness rest on.
    pub assurance: Assurance,
    /// Time from the start until the archive was on disk under its name.
    pub taken: Taken,
}

/// Frames on their way from the decoding to the encoding side: enough that neither waits for the other's next step.
const FRAMES_UNDER_WAY: usize = 2;

/// What the decoding side takes at most for frames of 32 MiB and one decoder: three frames decoded, two compressed.
const DECODING_BYTES: u64 = 3 * 32 * 1024 * 1024 + 2 * 16 * 1024 * 1024;

/// Recompresses an archive into a sink.
pub fn recompress(
    source: Source,
    sink: Sink<'_>,
    options: &RecompressOptions,
    progress: &dyn Progress,
) -> Result<RecompressReport> {
    let stopwatch = Stopwatch::start();
    check_frame_size(options.frame_size_bytes)?;
    let threads = threads_within(
        &options.codec,
        options.frame_size_bytes,
        options.threads,
        options.memory_bytes,
        DECODING_BYTES + options.frame_size_bytes * (FRAMES_UNDER_WAY as u64 + 2),
    )?;
    let mut input = Input::open(source, options)?;
    let base_slot = match input.name() {
        Some(name) => name.base_slot,
        None => options.base_slot,
    };
    let extension = options.codec.extension();
    if let Some(name) = input.name() {
        sink.check_name(&ArchiveName { extension, ..name.clone() }.to_string())?;
    }
    let mut sink = sink.open()?;
    let sink_path = sink.path();
    progress.stage("Recompressing", input.length_bytes());

    let (state, why_not) = plan_state_check(&input, base_slot, &sink, options)?;
    let recycler = Recycler::default();
    let (frames_tx, frames_rx) = bounded::<Result<(Vec<u8>, FrameLink)>>(FRAMES_UNDER_WAY);
    let mut writer = ArchiveWriter::new(sink.writer(options.manners.io_hint), &sink_path, &options.codec);
    let (decoded, encoded) = std::thread::scope(|scope| {
        let state = state.as_ref();
        let reading = Reading { recycler: &recycler, frames_tx, options, threads, base_slot, state, progress };
        let input = &mut input;
        let decoding = scope.spawn(move || reading.run(input));
        let encoded = encode_linked_frames(
            FrameQueue(frames_rx),
            &|frame: Vec<u8>, content| {
                recycler.give(std::mem::replace(content, frame));
                Ok(content.len())
            },
            &options.codec,
            threads,
            &EncodeProgress(progress),
            &mut |frame| writer.frame(&frame),
        );
        let decoded = decoding.join().unwrap_or_else(|_| Err(Error::failed("the decoding thread has died")));
        (decoded, encoded)
    });
    // What is wrong with the source comes first: when the encoding side fails, the decoding side only stops.
    let decoded = match (decoded, encoded) {
        (Ok(Some(decoded)), Ok(())) => decoded,
        (Err(error), _) | (_, Err(error)) => return Err(error),
        (Ok(None), Ok(())) => return Err(Error::failed("the encoding side stopped early")),
    };
    let storages = decoded.entries.iter().filter(|entry| matches!(entry.kind, EntryKind::Storage { .. })).count();
    let tar_bytes = decoded.entries.iter().map(Entry::tar_bytes).sum::<u64>() + END_OF_ARCHIVE_BYTES;
    let (output_bytes, frames) = writer.finish(decoded.entries.into_iter(), options.frame_size_bytes)?;
    warn_left_as_is(frames.left_as_is, progress);
    let outcome = match &state {
        None => StateOutcome::NotChecked(why_not.to_string()),
        Some(state) => finish_state(state, &decoded.bank, &input, &sink, options, progress)?,
    };
    let is_choice = why_not == CHECKSUMS || options.check.mode == CheckMode::Frames;
    judge_outcome(&outcome, is_choice, &decoded.bank, &options.check, progress)
        .map_err(|error| error.within_damaged(input.place()))?;
    let assurance = Assurance::new(outcome, &decoded.bank, input.has_index());

    progress.stage("Syncing", None);
    progress.check()?;
    let name = ArchiveName { base_slot, slot: decoded.bank.slot, hash: decoded.bank.snapshot_hash(), extension };
    let path = sink.publish(&name.to_string())?;
    Ok(RecompressReport {
        path,
        name,
        storages: storages as u64,
        input_bytes: decoded.input_bytes,
        tar_bytes,
        output_bytes,
        frames,
        assurance,
        taken: stopwatch.taken(),
    })
}

/// Why a state need not be checked.
const CHECKSUMS: &str = "every frame carries a checksum";

/// Decides whether the state is checked; if not, says why not.
fn plan_state_check(
    input: &Input,
    base_slot: Option<u64>,
    sink: &OpenSink<'_>,
    options: &RecompressOptions,
) -> Result<(Option<StateCheck>, &'static str)> {
    let check = &options.check;
    let is_asked = check.mode == CheckMode::State || check.expect_hash.is_some() || check.is_required;
    let why_not = match check.mode {
        _ if base_slot.is_some() => Some("an incremental archive alone is part of a state only"),
        CheckMode::Frames if !is_asked => Some("--check frames"),
        CheckMode::Auto if !is_asked && input.has_frame_checksums() => Some(CHECKSUMS),
        _ => None,
    };
    if let Some(why_not) = why_not {
        return Ok((None, why_not));
    }
    // Beside the output; of a stream, where other programs put what is temporary.
    let spill_dir = sink.file_path().and_then(Path::parent).map_or_else(std::env::temp_dir, Path::to_path_buf);
    let bytes = input.length_bytes().unwrap_or_default().saturating_mul(RATIO_TYPICAL);
    Ok((Some(StateCheck::new(check.memory_bytes, &spill_dir, bytes, is_refused)?), ""))
}

/// Everything has been read and written: has superseded records read again, from the new archive where that is a file,
/// from the source where only that is one, and compares.
fn finish_state(
    state: &StateCheck,
    bank: &BankFile,
    input: &Input,
    sink: &OpenSink<'_>,
    options: &RecompressOptions,
    progress: &dyn Progress,
) -> Result<StateOutcome> {
    let path = match (sink.file_path(), input) {
        (Some(path), _) => Some(path.to_path_buf()),
        (None, Input::File { archive, .. }) => Some(archive.path_buf()),
        (None, Input::Stream { .. }) => None,
    };
    let mut is_lost = false;
    let outcome = state.finish(bank, options.threads, progress, &mut |task, wanted| {
        let Some(path) = &path else {
            is_lost = true;
            return Err(Error::failed("superseded accounts cannot be read again from a pipe"));
        };
        progress.stage("Subtracting", None);
        let mut archive = Archive::open(path, IndexPolicy::Hint, &options.manners)?;
        // A source is not known to be indexed rightly; what was just written is.
        if sink.file_path().is_none() {
            archive.tail = None;
        }
        Ok(read_again(&archive, 0, wanted, &state.pass(task), options.threads, progress)?)
    });
    match outcome {
        Err(error) if is_lost => Ok(StateOutcome::NotChecked(error.to_string())),
        outcome => outcome.map_err(|error| error.within_damaged(input.place())),
    }
}

/// Recompresses an archive that Agave does not read, such as a `.tar.bz2` of old, into one that it reads, in `dir`;
/// returns its path.
pub fn recompress_for_agave(
    archive: &Path,
    dir: &Path,
    threads: usize,
    manners: &Manners,
    progress: &dyn Progress,
) -> Result<PathBuf> {
    let options = RecompressOptions {
        codec: Codec::zstd(ZSTD_LEVEL_DEFAULT),
        frame_size_bytes: FRAME_SIZE_BYTES_DEFAULT,
        threads,
        memory_bytes: None,
        base_slot: None,
        // Restoring checks what it reads.
        check: CheckOptions { mode: CheckMode::Frames, ..CheckOptions::default() },
        manners: manners.clone(),
    };
    let sink = Sink::Dir { dir, replace: false };
    let report = recompress(Source::File(archive.to_path_buf()), sink, &options, progress)?;
    report.path.ok_or_else(|| Error::failed("the archive has no path"))
}

/// The source, open.
enum Input {
    File {
        archive: Archive,
        /// Dropped last: what looking at the first bytes brought into the page cache.
        _watch: Watch,
    },
    Stream {
        reader: Box<dyn Read + Send>,
        compression: Compression,
    },
}

/// What errors call a stream.
const STANDARD_INPUT: &str = "standard input";

impl Input {
    fn open(source: Source, options: &RecompressOptions) -> Result<Self> {
        match source {
            Source::File(path) => {
                let _watch = options.manners.io_hint.watch([&path]);
                // It is read in order; the index tells what is in it, and whether frames carry checksums.
                let archive = Archive::open(&path, IndexPolicy::Hint, &options.manners)?;
                Ok(Self::File { archive, _watch })
            }
            Source::Stream(mut reader) => {
                let mut start = Vec::new();
                reader
                    .by_ref()
                    .take(crate::format::entry::BLOCK_BYTES)
                    .read_to_end(&mut start)
                    .map_err(|error| Error::io("read", Path::new(STANDARD_INPUT), &error))?;
                let compression = sniff(&start).map_err(|error| error.within(STANDARD_INPUT))?;
                Ok(Self::Stream { reader: Box::new(Cursor::new(start).chain(reader)), compression })
            }
        }
    }

    fn name(&self) -> Option<&ArchiveName> {
        match self {
            Self::File { archive, .. } => archive.name.as_ref(),
            Self::Stream { .. } => None,
        }
    }

    fn length_bytes(&self) -> Option<u64> {
        match self {
            Self::File { archive, .. } => archive.source.length_bytes(),
            Self::Stream { .. } => None,
        }
    }

    /// Whether an index tells what belongs into the archive.
    fn has_index(&self) -> bool {
        matches!(self, Self::File { archive, .. } if archive.tail.is_some())
    }

    /// Whether an index says that every frame carries a checksum.
    fn has_frame_checksums(&self) -> bool {
        matches!(self, Self::File { archive, .. } if has_frame_checksums(archive))
    }

    fn place(&self) -> String {
        match self {
            Self::File { archive, .. } => archive.path().display().to_string(),
            Self::Stream { .. } => STANDARD_INPUT.to_string(),
        }
    }

    fn stream<'a>(&'a mut self, manners: &Manners, progress: &'a dyn Progress) -> ArchiveStream<'a> {
        match self {
            Self::File { archive, .. } => archive.stream(progress),
            Self::Stream { reader, compression } => {
                ArchiveStream { reader: Box::new(manners.paced(reader, progress)), compression: *compression }
            }
        }
    }
}

/// What came out of the decoding side.
struct Decoded {
    entries: Vec<Entry>,
    bank: BankFile,
    input_bytes: u64,
}

/// The decoding side: source to frames of tar.
struct Reading<'a> {
    recycler: &'a Recycler,
    frames_tx: Sender<Result<(Vec<u8>, FrameLink)>>,
    options: &'a RecompressOptions,
    threads: usize,
    base_slot: Option<u64>,
    state: Option<&'a StateCheck>,
    progress: &'a dyn Progress,
}

/// Rules whose breach ends a recompression: as with a restore, but for windows, which the result does not have.
fn is_refused(rule: Rule) -> bool {
    restore::is_refused(rule) && rule != Rule::WindowRefused
}

impl Reading<'_> {
    /// Reads the whole source. `Ok(None)`: the encoding side has failed, and says why itself.
    fn run(self, input: &mut Input) -> Result<Option<Decoded>> {
        let mut frames = FramesOut {
            frames_tx: &self.frames_tx,
            recycler: self.recycler,
            linker: Linker::new(self.options.codec.layout),
            is_inside: false,
            is_refused: false,
        };
        let result = self.read(input, &mut frames);
        match result {
            Err(_) if frames.is_refused => Ok(None),
            Err(error) => {
                let error = error.within_damaged(input.place());
                let _ = self.frames_tx.send(Err(error.clone()));
                Err(error)
            }
            Ok(decoded) => Ok(Some(decoded)),
        }
    }

    fn read(&self, input: &mut Input, frames: &mut FramesOut<'_>) -> Result<Decoded> {
        let (findings, seen_slots) = (Findings::refusing(is_refused), SeenSlots::default());
        let rules = ArchiveRules::new(self.base_slot, false, input.length_bytes(), &seen_slots, &findings);
        let records = self.state.map(StateCheck::first_pass);
        let reader = Reader { rules, entries: Mutex::default(), records: records.as_ref() };
        let count = CountedProgress { inner: self.progress, input_bytes: AtomicU64::default() };
        // Decoding is two to three times as fast as compressing: half the workers keep up, and halve the buffers.
        let pass = Pass { decoders: Some(self.threads.div_ceil(2)), ..Pass::new(self.threads, &count) };
        let assembler = FrameAssembler::new(self.options.frame_size_bytes, self.recycler.take());
        let mut reframing = Reframing { assembler, frames };
        let stream = input.stream(&self.options.manners, self.progress);
        let read = read_in_order(stream, &pass, &reader, &mut reframing)?;
        let Reframing { assembler, frames } = reframing;
        self.check_index(input, &read, &reader)?;
        let judged = self.judge(input, &reader.rules, read)?;
        let Some((bank, _)) = judged.bank else { return Err(Error::damaged("the archive holds no bank file")) };
        assembler.finish(&mut |frame| frames.send(frame))?;
        let input_bytes = count.input_bytes.into_inner();
        let entries = reader.entries.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(Decoded { entries, bank, input_bytes: input.length_bytes().unwrap_or(input_bytes) })
    }

    /// What was not checked for its checksums' sake must have them, and be what its index says.
    fn check_index(&self, input: &Input, read: &ReadArchive, reader: &Reader<'_>) -> Result<()> {
        let (None, Input::File { archive: Archive { tail: Some(tail), .. }, .. }) = (self.state, input) else {
            return Ok(());
        };
        let entries = reader.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let has_checksums = read.frames.frames_with_checksum == read.frames.frames || !input.has_frame_checksums();
        if has_checksums && *entries == tail.index.entries {
            return Ok(());
        }
        Err(Error::damaged("the archive's index does not say what is in it")
            .hint("--check state goes by the accounts instead"))
    }

    /// Whether the source as a whole is what it should be.
    fn judge(&self, input: &Input, rules: &ArchiveRules<'_>, mut read: ReadArchive) -> Result<JudgedArchive> {
        let judged = match input {
            Input::File { archive, .. } => rules.finish(archive, &mut read)?,
            Input::Stream { .. } => rules.finish_entries(read.documents, read.is_whole)?,
        };
        if let Some((_, map)) = &judged.bank {
            let findings = Findings::refusing(is_refused);
            let storages = judged.entries.storages();
            judge_storage_map(map, storages, self.base_slot, false, &findings).map_err(|error| match input.name() {
                None => error.hint("an incremental archive from standard input needs --base-slot"),
                Some(_) => error,
            })?;
        }
        Ok(judged)
    }
}

/// Checks entries, and remembers them.
struct Reader<'a> {
    rules: ArchiveRules<'a>,
    entries: Mutex<Vec<Entry>>,
    /// What looks at records.
    records: Option<&'a AccountsPass<'a>>,
}

impl Visitor for Reader<'_> {
    fn entry(&self, _: u32, entry: &Entry) -> Result<EntryUse> {
        self.rules.entry(entry)?;
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).push(*entry);
        let EntryKind::Storage { slot, id } = entry.kind else {
            return Ok(EntryUse { is_document: true, is_for_sink: true, records_of: None });
        };
        let records_of = self.records.map(|records| records.accounts.add_storage(slot, id));
        Ok(EntryUse { is_document: false, is_for_sink: true, records_of })
    }

    fn records(&self) -> Option<&dyn RecordVisitor> {
        self.records.map(|records| records as &dyn RecordVisitor)
    }

    fn check(&self) -> Result<()> {
        self.records.map_or(Ok(()), |records| records.accounts.check())
    }

    fn frame(&self, frame: SeenFrame<'_>) -> Result<()> {
        self.rules.frame(frame)
    }

    fn problem(&self, problem: Problem<'_>) -> Result<()> {
        self.rules.problem(problem)
    }
}

/// Frames on their way to the encoding side.
struct FramesOut<'a> {
    frames_tx: &'a Sender<Result<(Vec<u8>, FrameLink)>>,
    recycler: &'a Recycler,
    linker: Linker,
    /// Whether the stream is inside an entry whose header is in a frame already.
    is_inside: bool,
    /// Nobody takes frames any more.
    is_refused: bool,
}

impl FramesOut<'_> {
    fn send(&mut self, frame: Vec<u8>) -> Result<Vec<u8>> {
        let link = self.linker.link(self.is_inside);
        if self.frames_tx.send(Ok((frame, link))).is_err() {
            self.is_refused = true;
            return Err(Error::failed("the encoding side has stopped"));
        }
        Ok(self.recycler.take())
    }
}

/// Puts entries into frames anew.
struct Reframing<'a, 'f> {
    assembler: FrameAssembler,
    frames: &'a mut FramesOut<'f>,
}

impl EntrySink for Reframing<'_, '_> {
    fn begin(&mut self, _: u32, entry: &Entry, _: u64) -> Result<()> {
        self.assembler.begin(entry, &mut |frame| self.frames.send(frame))?;
        self.frames.is_inside = true;
        Ok(())
    }

    fn content(&mut self, _: u64, bytes: &[u8]) -> Result<()> {
        self.assembler.content(bytes, &mut |frame| self.frames.send(frame))
    }

    fn end(&mut self, entry: &Entry) -> Result<()> {
        self.assembler.end(entry, &mut |frame| self.frames.send(frame))?;
        self.frames.is_inside = false;
        Ok(())
    }
}

/// The encoding side's items: frames as they come over the channel.
struct FrameQueue(Receiver<Result<(Vec<u8>, FrameLink)>>);

impl Iterator for FrameQueue {
    type Item = Result<(Vec<u8>, FrameLink)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.recv().ok()
    }
}

/// Counts the compressed bytes that were read, and reports them as input.
struct CountedProgress<'a> {
    inner: &'a dyn Progress,
    input_bytes: AtomicU64,
}

impl Progress for CountedProgress<'_> {
    fn advance(&self, input_bytes: u64, _: u64) {
        self.input_bytes.fetch_add(input_bytes, Relaxed);
        self.inner.advance(input_bytes, 0);
    }

    fn is_interrupted(&self) -> bool {
        self.inner.is_interrupted()
    }
}

/// Reports what was written; what was read is reported by the decoding side.
struct EncodeProgress<'a>(&'a dyn Progress);

impl Progress for EncodeProgress<'_> {
    fn advance(&self, _: u64, output_bytes: u64) {
        self.0.advance(0, output_bytes);
    }

    fn is_interrupted(&self) -> bool {
        self.0.is_interrupted()
    }
}
