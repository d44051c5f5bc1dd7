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
            sink::Sink,
            threads_within,
            writer::{ArchiveWriter, FrameTotals},
        },
        error::{Error, Result},
        format::{
            assemble::FrameAssembler,
            entry::{Entry, EntryKind},
            entry_parser::{EntryParser, TarEvent},
            frames::FRAME_SIZE_BYTES_DEFAULT,
        },
        io::{Manners, Watch, reader::StreamReader},
        ledger::{bank_file::BankFile, names::ArchiveName},
        progress::Progress,
        restore::{
            assign::Assigner,
            check::{MissingStorages, check_bank},
            documents::DocumentReader,
            input::{ArchiveFile, Compression, decode_in_order, sniff},
            walk::Recycler,
        },
        stopwatch::{Stopwatch, Taken},
    },
    crossbeam_channel::{Receiver, Sender, bounded},
    std::{
        cell::Cell,
        io::{Cursor, Read},
        path::{Path, PathBuf},
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
    let base_slot = match &input.name {
        Some(name) => name.base_slot,
        None => options.base_slot,
    };
    let extension = options.codec.extension();
    if let Some(name) = &input.name {
        sink.check_name(&ArchiveName { extension, ..name.clone() }.to_string())?;
    }
    let mut sink = sink.open()?;
    let sink_path = sink.path();
    progress.stage("Recompressing", input.length_bytes);

    let recycler = Recycler::default();
    let (frames_tx, frames_rx) = bounded::<Result<(Vec<u8>, FrameLink)>>(FRAMES_UNDER_WAY);
    let mut writer = ArchiveWriter::new(sink.writer(options.manners.io_hint), &sink_path, &options.codec);
    let (decoded, encoded) = std::thread::scope(|scope| {
        let reading = Reading { recycler: &recycler, frames_tx, options, threads, base_slot, progress };
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
    let tar_bytes =
        decoded.entries.iter().map(Entry::tar_bytes).sum::<u64>() + crate::format::entry::END_OF_ARCHIVE_BYTES;
    let (output_bytes, frames) = writer.finish(decoded.entries.into_iter(), options.frame_size_bytes)?;
    warn_left_as_is(frames.left_as_is, progress);

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
        taken: stopwatch.taken(),
    })
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
        manners: manners.clone(),
    };
    let sink = Sink::Dir { dir, replace: false };
    let report = recompress(Source::File(archive.to_path_buf()), sink, &options, progress)?;
    report.path.ok_or_else(|| Error::failed("the archive has no path"))
}

/// The source, open.
struct Input {
    reader: Box<dyn Read + Send>,
    compression: Compression,
    name: Option<ArchiveName>,
    length_bytes: Option<u64>,
    place: String,
    /// Dropped last: what looking at the first bytes brought into the page cache.
    _watch: Watch,
}

impl Input {
    fn open(source: Source, options: &RecompressOptions) -> Result<Self> {
        let hint = options.manners.io_hint;
        match source {
            Source::File(path) => {
                let _watch = hint.watch([&path]);
                let archive = ArchiveFile::open(&path)?;
                Ok(Self {
                    reader: Box::new(StreamReader::new(archive.file, &path, archive.length_bytes, hint)),
                    compression: archive.compression,
                    name: ArchiveName::of_path(&path),
                    length_bytes: Some(archive.length_bytes),
                    place: path.display().to_string(),
                    _watch,
                })
            }
            Source::Stream(mut reader) => {
                let mut start = Vec::new();
                let place = "standard input".to_string();
                reader
                    .by_ref()
                    .take(crate::format::entry::BLOCK_BYTES)
                    .read_to_end(&mut start)
                    .map_err(|error| Error::io("read", Path::new(&place), &error))?;
                let compression = sniff(&start).map_err(|error| error.within(&place))?;
                let reader = Box::new(Cursor::new(start).chain(reader));
                Ok(Self { reader, compression, name: None, length_bytes: None, place, _watch: Watch::default() })
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
    progress: &'a dyn Progress,
}

impl Reading<'_> {
    /// Reads the whole source. `Ok(None)`: the encoding side has failed, and says why itself.
    fn run(self, input: &mut Input) -> Result<Option<Decoded>> {
        let result = self.read(input).map_err(|error| match error.kind() {
            crate::ErrorKind::Damaged => error.within(&input.place),
            _ => error,
        });
        match result {
            // A frame could not be handed over.
            Err(error) if error.kind() == crate::ErrorKind::Failed && error.to_string() == STOPPED => Ok(None),
            Err(error) => {
                let _ = self.frames_tx.send(Err(error.clone()));
                Err(error)
            }
            Ok(decoded) => Ok(Some(decoded)),
        }
    }

    fn read(&self, input: &mut Input) -> Result<Decoded> {
        let mut content = Content::new(self.base_slot);
        let mut parser = EntryParser::new();
        let mut assembler = FrameAssembler::new(self.options.frame_size_bytes, self.recycler.take());
        let mut linker = Linker::new(self.options.codec.layout);
        // Whether the stream is inside an entry whose header is in a frame already.
        let is_inside = Cell::new(false);
        let mut on_frame = |frame: Vec<u8>| {
            let link = linker.link(is_inside.get());
            self.frames_tx.send(Ok((frame, link))).map_err(|_| Error::failed(STOPPED))?;
            Ok(self.recycler.take())
        };
        let count = CountedProgress { inner: self.progress, input_bytes: Default::default() };
        // Decoding is two to three times as fast as compressing: half the workers keep up, and halve the buffers.
        let decoders = self.threads.div_ceil(2);
        let reader = self.options.manners.paced(&mut input.reader, self.progress);
        decode_in_order(reader, input.compression, decoders, &count, &mut |bytes| {
            parser.feed(bytes, &mut |event| {
                content.look_at(&event)?;
                match event {
                    TarEvent::Begin(entry) => {
                        assembler.begin(&entry, &mut on_frame)?;
                        is_inside.set(true);
                    }
                    TarEvent::Content { bytes, .. } => assembler.content(bytes, &mut on_frame)?,
                    TarEvent::End(entry) => {
                        assembler.end(&entry, &mut on_frame)?;
                        is_inside.set(false);
                    }
                }
                Ok(())
            })
        })?;
        if parser.has_junk_after_end() {
            return Err(Error::damaged("bytes that are not zero follow the end of the tar stream")
                .hint("Agave ignores them, others refuse the archive: find out where they come from"));
        }
        parser.finish()?;
        let (entries, bank) = content.finish(input.name.as_ref())?;
        assembler.finish(&mut on_frame)?;
        let input_bytes = count.input_bytes.into_inner();
        Ok(Decoded { entries, bank, input_bytes: input.length_bytes.unwrap_or(input_bytes) })
    }
}

/// The message of the error by which the decoding side learns that nobody takes its frames.
const STOPPED: &str = "the encoding side has stopped";

/// What the entries are, checked as they stream by.
struct Content {
    base_slot: Option<u64>,
    entries: Vec<Entry>,
    assigner: Assigner,
    head: DocumentReader,
}

impl Content {
    fn new(base_slot: Option<u64>) -> Self {
        let mut assigner = Assigner::new(1, true);
        assigner.begin_archive(base_slot);
        Self { base_slot, entries: Vec::new(), assigner, head: DocumentReader::of_head() }
    }

    fn look_at(&mut self, event: &TarEvent<'_>) -> Result<()> {
        if let TarEvent::Begin(entry) = event {
            self.assigner.assign(entry)?;
            self.entries.push(*entry);
        }
        self.head.look_at(event);
        Ok(())
    }

    fn finish(mut self, name: Option<&ArchiveName>) -> Result<(Vec<Entry>, BankFile)> {
        let slot = self.assigner.end_archive()?;
        let (bank, version) = self.head.finish().into_head()?;
        check_bank(&bank.bank, &version, slot, name)?;
        let has_slot = |slot| self.assigner.has_slot(slot);
        let mut missing = MissingStorages::new(&has_slot, self.base_slot);
        bank.map.iter().for_each(|item| missing.look_at(item));
        missing.check().map_err(|error| match name {
            None => error.hint("an incremental archive from standard input needs --base-slot"),
            Some(_) => error,
        })?;
        Ok((self.entries, bank.bank))
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
    input_bytes: std::sync::atomic::AtomicU64,
}

impl Progress for CountedProgress<'_> {
    fn advance(&self, input_bytes: u64, _: u64) {
        self.input_bytes.fetch_add(input_bytes, std::sync::atomic::Ordering::Relaxed);
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
