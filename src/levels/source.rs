//! Where the content of an input comes from, and reading chosen frames of it.

use {
    crate::{
        archive::{
            encode::{Codec, content_buffer, encode_frames},
            plan::Plan,
        },
        error::{Error, ErrorKind, IoContext, Result},
        format::{
            entry::{BLOCK_BYTES, END_OF_ARCHIVE_BYTES, Entry},
            entry_parser::{EntryParser, TarEvent},
            frames::FrameSpan,
        },
        ledger::{directory::find_bank_snapshot, lock::LedgerLock, names::ArchiveName},
        levels::input::{ContentFrame, InputKind, InputOptions},
        progress::Progress,
        restore::{
            input::{ArchiveFile, Compression, FrameDecoder},
            tail::{DataFrame, Tail},
        },
    },
    std::{
        fs::File,
        os::unix::fs::FileExt,
        path::{Path, PathBuf},
    },
};

/// A frame to load, and where its content begins in the stream.
#[derive(Clone, Copy, Debug)]
pub struct Chosen {
    /// What it covers.
    pub span: FrameSpan,
    /// Where in the stream it begins.
    pub offset_bytes: u64,
}

impl Chosen {
    /// The chosen ones (ascending numbers) among all frames.
    pub fn of(spans: impl Iterator<Item = FrameSpan>, numbers: &[u64]) -> Vec<Self> {
        let mut numbers = numbers.iter().peekable();
        let mut chosen = Vec::with_capacity(numbers.len());
        let mut offset_bytes = 0;
        for (number, span) in spans.enumerate() {
            if numbers.next_if(|next| **next == number as u64).is_some() {
                chosen.push(Self { span, offset_bytes });
            }
            offset_bytes += span.length_bytes;
        }
        chosen
    }
}

/// An open input of which it is known how long its entries are.
pub struct Source {
    /// What it is.
    pub kind: InputKind,
    /// The entries of the stream; none of a file that is no archive.
    pub entries: Vec<Entry>,
    /// What follows the last entry: the end of the archive, or all of a file.
    rest_bytes: u64,
    content: Content,
}

/// Where contents come from.
enum Content {
    /// Files of a ledger, whose lock is held until they are read.
    Ledger(Box<Plan>, Option<LedgerLock>),
    /// A file, byte by byte as it is.
    Plain(File, PathBuf),
    /// Frames of a zstd file whose places are known.
    Framed(ArchiveFile, Vec<(u64, DataFrame)>),
    /// A compressed file that can only be decoded from the start.
    Stream(ArchiveFile),
}

impl Source {
    /// How much each entry takes of the stream, and what follows the last.
    pub fn entry_lengths(&self) -> impl Iterator<Item = u64> + '_ {
        self.entries.iter().map(Entry::tar_bytes).chain([self.rest_bytes])
    }

    /// Opens the input. Where nothing tells what is in it, all of it is decoded once.
    pub fn open(options: &InputOptions, progress: &dyn Progress) -> Result<Self> {
        let path = &options.paths.ledger;
        let metadata = std::fs::metadata(path).or_path("read", path)?;
        if metadata.is_dir() {
            return Self::open_ledger(options, progress);
        }
        if metadata.is_file() && metadata.len() == 0 {
            return Err(Error::usage(format!("{} is empty: there is nothing to measure", path.display())));
        }
        if options.slot.is_some() || options.base_slot.is_some() {
            return Err(Error::usage("--slot and --base-slot are for ledgers; the input is a file"));
        }
        let archive = match ArchiveFile::open(path) {
            Ok(archive) => archive,
            Err(error) if error.kind() == ErrorKind::Damaged && !is_named_archive(path) => {
                let file = File::open(path).or_path("open", path)?;
                let content = Content::Plain(file, path.clone());
                return Ok(Self { kind: InputKind::File, entries: Vec::new(), rest_bytes: metadata.len(), content });
            }
            Err(error) => return Err(error),
        };
        if archive.compression == Compression::Zstd {
            match Tail::read(&archive.file, path, archive.length_bytes) {
                Ok(Some(tail)) => return Ok(Self::of_tail(archive, &tail)),
                Ok(None) => {}
                Err(error) => {
                    progress.warn(&format!("{}: {error}; reading it without its index", path.display()));
                }
            }
        }
        Self::survey(archive, options.threads, progress)
    }

    fn open_ledger(options: &InputOptions, progress: &dyn Progress) -> Result<Self> {
        let is_unpacked = options.paths.is_unpacked_archive();
        let lock = if is_unpacked { None } else { Some(LedgerLock::acquire(&options.paths.ledger)?) };
        let plan = Plan::new(find_bank_snapshot(&options.paths, options.slot)?, options.base_slot, progress)?;
        Ok(Self {
            kind: if is_unpacked { InputKind::UnpackedArchive } else { InputKind::Ledger },
            entries: plan.entries().collect(),
            rest_bytes: END_OF_ARCHIVE_BYTES,
            content: Content::Ledger(Box::new(plan), lock),
        })
    }

    fn of_tail(archive: ArchiveFile, tail: &Tail) -> Self {
        let mut at = 0;
        let frames = tail.frames.iter().map(|frame| {
            let offset_bytes = at;
            at += u64::from(frame.content_bytes);
            (offset_bytes, *frame)
        });
        let frames = frames.collect();
        Self {
            kind: InputKind::Archive,
            entries: tail.index.entries.clone(),
            rest_bytes: END_OF_ARCHIVE_BYTES,
            content: Content::Framed(archive, frames),
        }
    }

    /// Decodes an archive once, to learn the lengths of its entries, and whether it is sound.
    fn survey(archive: ArchiveFile, threads: usize, progress: &dyn Progress) -> Result<Self> {
        progress.stage("Surveying", Some(archive.length_bytes));
        let mut survey = Survey::new(is_named_archive(&archive.path));
        archive.decode_in_order(threads, progress, &mut |bytes| survey.feed(bytes))?;
        let (kind, entries, rest_bytes) = survey.finish().map_err(|error| error.within(archive.path.display()))?;
        let content = match archive.compression {
            Compression::None => Content::Plain(archive.file, archive.path),
            _ => Content::Stream(archive),
        };
        Ok(Self { kind, entries, rest_bytes, content })
    }

    /// Reads the contents of the chosen entries (ascending numbers).
    pub fn load_entries(&self, numbers: &[usize], threads: usize, progress: &dyn Progress) -> Result<Vec<Vec<u8>>> {
        if let Content::Plain(_, path) = &self.content {
            return load_streamed_entries(&ArchiveFile::open(path)?, numbers, threads, progress);
        }
        if let Content::Stream(archive) = &self.content {
            return load_streamed_entries(archive, numbers, threads, progress);
        }
        let mut wanted = numbers.iter().peekable();
        let mut chosen = Vec::with_capacity(numbers.len());
        let mut offset_bytes = 0;
        for (number, entry) in self.entries.iter().enumerate() {
            if wanted.next_if(|next| **next == number).is_some() {
                let first_entry = number as u64;
                let span = FrameSpan { first_entry, offset_bytes: BLOCK_BYTES, length_bytes: entry.content_bytes };
                chosen.push(Chosen { span, offset_bytes: offset_bytes + BLOCK_BYTES });
            }
            offset_bytes += entry.tar_bytes();
        }
        Ok(self.load(chosen, threads, progress)?.into_iter().map(|frame| frame.content).collect())
    }

    /// Reads the chosen frames.
    pub fn load(&self, chosen: Vec<Chosen>, threads: usize, progress: &dyn Progress) -> Result<Vec<ContentFrame>> {
        progress.stage("Reading", Some(chosen.iter().map(|frame| frame.span.length_bytes).sum()));
        match &self.content {
            Content::Ledger(plan, _lock) => {
                load_each(chosen, threads, progress, &|frame, to| plan.fill(&frame.span, to))
            }
            Content::Plain(file, path) => load_each(chosen, threads, progress, &|frame, to| {
                file.read_exact_at(to, frame.offset_bytes).or_path("read", path)
            }),
            Content::Framed(archive, frames) => load_each(chosen, threads, progress, &|frame, to| {
                read_framed(archive, frames, frame.offset_bytes, to)
                    .map_err(|error| error.within(archive.path.display()))
            }),
            Content::Stream(archive) => load_stream(archive, &chosen, threads, progress),
        }
    }
}

/// Whether the name says that it must be a snapshot archive: then nothing else will do.
fn is_named_archive(path: &Path) -> bool {
    ArchiveName::of_path(path).is_some()
}

/// Loads frames that can be read in any order, on all workers.
fn load_each(
    chosen: Vec<Chosen>,
    threads: usize,
    progress: &dyn Progress,
    fill: &(dyn Fn(Chosen, &mut [u8]) -> Result<()> + Sync),
) -> Result<Vec<ContentFrame>> {
    let mut frames = Vec::with_capacity(chosen.len());
    encode_frames(
        chosen.into_iter().map(Ok),
        &|frame: Chosen, content| {
            let length = frame.span.length_bytes as usize;
            fill(frame, content_buffer(content, length)).map(|()| length)
        },
        &Codec::plain(),
        threads,
        progress,
        &mut |frame| {
            frames.push(ContentFrame::new(frame.bytes.to_vec()));
            Ok(())
        },
    )?;
    Ok(frames)
}

/// Reads a range of the tar stream by decoding the frames that hold it.
fn read_framed(archive: &ArchiveFile, frames: &[(u64, DataFrame)], offset_bytes: u64, to: &mut [u8]) -> Result<()> {
    let mut decoder = FrameDecoder::new()?;
    let (mut compressed, mut content) = (Vec::new(), Vec::new());
    let mut filled = 0;
    let mut number = frames.partition_point(|(start, _)| *start <= offset_bytes).saturating_sub(1);
    while filled < to.len() {
        let contradiction = || Error::damaged("the archive's index does not fit its frames");
        let (start, frame) = frames.get(number).ok_or_else(contradiction)?;
        compressed.resize(frame.compressed_bytes as usize, 0);
        archive.file.read_exact_at(&mut compressed, frame.offset_bytes).or_path("read", &archive.path)?;
        decoder.decode(&compressed, frame.offset_bytes, u64::from(frame.content_bytes), &mut content)?;
        if content.len() != frame.content_bytes as usize {
            return Err(contradiction());
        }
        let from = (offset_bytes + filled as u64 - start) as usize;
        let part = content.get(from..).ok_or_else(contradiction)?;
        let length = part.len().min(to.len() - filled);
        to[filled..filled + length].copy_from_slice(&part[..length]);
        filled += length;
        number += 1;
    }
    Ok(())
}

/// Decodes from the start, and keeps what is chosen.
fn load_stream(
    archive: &ArchiveFile,
    chosen: &[Chosen],
    threads: usize,
    progress: &dyn Progress,
) -> Result<Vec<ContentFrame>> {
    progress.stage("Reading", Some(archive.length_bytes));
    let mut frames: Vec<ContentFrame> = Vec::with_capacity(chosen.len());
    let mut content = Vec::new();
    let mut position = 0;
    archive.decode_in_order(threads, progress, &mut |mut bytes| {
        while let Some(frame) = chosen.get(frames.len()) {
            let wanted = frame.offset_bytes + content.len() as u64;
            let skipped = (wanted - position).min(bytes.len() as u64) as usize;
            position += skipped as u64;
            bytes = &bytes[skipped..];
            let missing = frame.span.length_bytes as usize - content.len();
            let taken = missing.min(bytes.len());
            content.extend_from_slice(&bytes[..taken]);
            position += taken as u64;
            bytes = &bytes[taken..];
            if taken < missing {
                break;
            }
            frames.push(ContentFrame::new(std::mem::take(&mut content)));
        }
        position += bytes.len() as u64;
        Ok(())
    })?;
    if frames.len() < chosen.len() {
        return Err(Error::failed(format!("{} changed while it was read", archive.path.display())));
    }
    Ok(frames)
}

/// Decodes from the start, and keeps the contents of the chosen entries.
fn load_streamed_entries(
    archive: &ArchiveFile,
    numbers: &[usize],
    threads: usize,
    progress: &dyn Progress,
) -> Result<Vec<Vec<u8>>> {
    progress.stage("Reading", Some(archive.length_bytes));
    let mut parser = EntryParser::new();
    let mut contents: Vec<Vec<u8>> = Vec::with_capacity(numbers.len());
    let (mut entry_number, mut is_chosen) = (0, false);
    archive.decode_in_order(threads, progress, &mut |bytes| {
        parser.feed(bytes, &mut |event| {
            match event {
                TarEvent::Begin(_) => {
                    is_chosen = numbers.get(contents.len()) == Some(&entry_number);
                    entry_number += 1;
                    if is_chosen {
                        contents.push(Vec::new());
                    }
                }
                TarEvent::Content { bytes, .. } if is_chosen => {
                    if let Some(content) = contents.last_mut() {
                        content.extend_from_slice(bytes);
                    }
                }
                _ => {}
            }
            Ok(())
        })
    })?;
    match contents.len() == numbers.len() {
        true => Ok(contents),
        false => Err(Error::failed(format!("{} changed while it was read", archive.path.display()))),
    }
}

/// Learns what a decoded stream is, and what its entries are.
struct Survey {
    /// `None` once it is clear that it is no tar stream of a snapshot.
    parser: Option<EntryParser>,
    must_be_archive: bool,
    entries: Vec<Entry>,
    total_bytes: u64,
}

impl Survey {
    fn new(must_be_archive: bool) -> Self {
        Self { parser: Some(EntryParser::new()), must_be_archive, entries: Vec::new(), total_bytes: 0 }
    }

    fn feed(&mut self, bytes: &[u8]) -> Result<()> {
        self.total_bytes += bytes.len() as u64;
        let Some(parser) = &mut self.parser else { return Ok(()) };
        let entries = &mut self.entries;
        let result = parser.feed(bytes, &mut |event| {
            if let TarEvent::Begin(entry) = event {
                entries.push(entry);
            }
            Ok(())
        });
        match result {
            Err(_) if self.entries.is_empty() && !self.must_be_archive => {
                self.parser = None;
                Ok(())
            }
            result => result,
        }
    }

    /// What it is, its entries, and what follows them.
    fn finish(self) -> Result<(InputKind, Vec<Entry>, u64)> {
        if self.total_bytes == 0 {
            return Err(Error::usage("the archive holds nothing to measure"));
        }
        match &self.parser {
            Some(parser) if self.must_be_archive || !self.entries.is_empty() => parser.finish()?,
            _ => return Ok((InputKind::File, Vec::new(), self.total_bytes)),
        }
        let rest_bytes = self.total_bytes.saturating_sub(self.entries.iter().map(Entry::tar_bytes).sum());
        Ok((InputKind::Archive, self.entries, rest_bytes))
    }
}
