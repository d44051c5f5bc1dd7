//! Opens an input of any kind, and reads chosen frames of it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rayon::prelude::*;
use slotpress_base::{AHEAD_BYTES_MAX, Error, ErrorKind, EscapePath, IoContext, Progress, Result, Stage, start_pool};
use slotpress_format::{
    ArchiveCompression, ArchiveName, END_OF_ARCHIVE_BYTES, Entry, EntryParser, FrameSpan, LedgerLock, TarEvent,
    find_bank_snapshot,
};
use slotpress_read::{OpenArchive, Plan, PlanOptions, read_range};

use crate::levels::MeasureOptions;
use crate::levels::input::{ContentFrame, InputKind};

/// A frame to load, and the offset of its content in the stream.
#[derive(Clone, Copy, Debug)]
pub struct ChosenFrame {
    pub span: FrameSpan,
    pub offset_bytes: u64,
}

impl ChosenFrame {
    /// Finds the frames with the given indices, which must be in ascending order.
    pub fn from_spans(spans: impl Iterator<Item = FrameSpan>, indices: &[u64]) -> Vec<Self> {
        let mut indices = indices.iter().peekable();
        let mut chosen = Vec::with_capacity(indices.len());
        let mut offset_bytes = 0;
        for (index, span) in spans.enumerate() {
            if indices.next_if(|next| **next == index as u64).is_some() {
                chosen.push(Self { span, offset_bytes });
            }
            offset_bytes += span.length_bytes;
        }
        chosen
    }
}

pub struct OpenInput {
    pub kind: InputKind,
    /// Entries of the tar stream; empty for other files.
    pub entries: Vec<Entry>,
    /// Length of the data after the last entry; for other files, of the whole file.
    trailing_bytes: u64,
    content: Content,
}

enum Content {
    /// Files of a ledger. The lock is held until they are read.
    Ledger(Box<Plan>, Option<LedgerLock>),
    /// An uncompressed file, readable at any offset.
    Plain(File, PathBuf),
    /// An archive with an index, whose frames can be decoded independently.
    Framed(OpenArchive),
    /// A compressed file that can only be decoded from its start.
    Stream(OpenArchive),
}

impl OpenInput {
    /// Returns the length of each entry in the stream with its header, then the length of the data
    /// after the last entry.
    pub fn entry_lengths(&self) -> impl Iterator<Item = u64> + '_ {
        self.entries.iter().map(Entry::tar_bytes).chain([self.trailing_bytes])
    }

    /// Opens the input. An archive without an index is decoded once, to find its entries.
    pub fn open(options: &MeasureOptions, progress: &dyn Progress) -> Result<Self> {
        let path = &options.input.ledger;
        let metadata = std::fs::metadata(path).or_path("read", path)?;
        if metadata.is_dir() {
            return Self::open_ledger(options, progress);
        }
        if metadata.is_file() && metadata.len() == 0 {
            let message = format!("{} is empty: there is nothing to measure", path.escaped());
            return Err(Error::usage(message));
        }
        if options.slot.is_some() || options.base_slot.is_some() {
            let path = path.escaped();
            let message = format!("{path} is a file, which has no slot or base slot to choose");
            return Err(Error::usage(message).with_hint("pass a ledger, or leave them out"));
        }
        let archive = match OpenArchive::open(path, &Default::default()) {
            Ok(archive) => archive,
            Err(error) if error.kind() == ErrorKind::Damaged && ArchiveName::from_path(path).is_none() => {
                let file = slotpress_base::open_file(path)?;
                let content = Content::Plain(file, path.clone());
                return Ok(Self {
                    kind: InputKind::File,
                    entries: Vec::new(),
                    trailing_bytes: metadata.len(),
                    content,
                });
            }
            Err(error) => return Err(error),
        };
        archive.warn_of_damaged_index(progress);
        if let Some(tail) = &archive.tail {
            let entries = tail.index.entries.clone();
            let content = Content::Framed(archive);
            return Ok(Self { kind: InputKind::Archive, entries, trailing_bytes: END_OF_ARCHIVE_BYTES, content });
        }
        Self::survey(archive, options.threads, progress)
    }

    fn open_ledger(options: &MeasureOptions, progress: &dyn Progress) -> Result<Self> {
        let mut kind = InputKind::UnpackedArchive;
        let mut lock = None;
        if !options.input.is_unpacked_archive() {
            kind = InputKind::Ledger;
            lock = Some(LedgerLock::acquire(&options.input.ledger)?);
        }
        let snapshot = find_bank_snapshot(&options.input, options.slot, options.threads)?;
        let plan_options = PlanOptions::new(options.base_slot, options.threads);
        let plan = Plan::new(snapshot, &plan_options, progress)?;
        Ok(Self {
            kind,
            entries: plan.entries().collect(),
            trailing_bytes: END_OF_ARCHIVE_BYTES,
            content: Content::Ledger(Box::new(plan), lock),
        })
    }

    /// Decodes an archive once, to check it and to find the lengths of its entries.
    fn survey(archive: OpenArchive, threads: usize, progress: &dyn Progress) -> Result<Self> {
        progress.stage(Stage::Surveying, archive.source.length_bytes());
        // Under the name of an archive, any other content is an error; under a different name, it is a
        // plain file.
        let must_be_archive = ArchiveName::from_path(archive.path()).is_some();
        let mut entries = Vec::new();
        let mut total_bytes = 0u64;
        // `None` once the stream is known not to be a snapshot's tar stream.
        let mut parser = Some(EntryParser::default());
        archive.decode_stream(threads, AHEAD_BYTES_MAX, progress, &mut |bytes| {
            total_bytes += bytes.len() as u64;
            let Some(entry_parser) = &mut parser else { return Ok(()) };
            let result = entry_parser.feed(bytes, &mut |event| {
                if let TarEvent::Begin(entry) = event {
                    entries.push(entry);
                }
                Ok(())
            });
            if result.is_err() && entries.is_empty() && !must_be_archive {
                parser = None;
                return Ok(());
            }
            result
        })?;
        if total_bytes == 0 {
            let error = Error::usage("the archive holds nothing to measure");
            return Err(error.with_place(archive.path().escaped()));
        }
        let mut kind = InputKind::File;
        if let Some(parser) = parser
            && (must_be_archive || !entries.is_empty())
        {
            kind = InputKind::Archive;
            parser.finish().map_err(|error| error.with_place(archive.path().escaped()))?;
        }
        let trailing_bytes = total_bytes.saturating_sub(entries.iter().map(Entry::tar_bytes).sum());
        let content = match archive.compression {
            ArchiveCompression::None => {
                let path = archive.path().to_path_buf();
                Content::Plain(File::open(&path).or_path("open", &path)?, path)
            }
            _ => Content::Stream(archive),
        };
        Ok(Self { kind, entries, trailing_bytes, content })
    }

    /// Reads the chosen frames.
    pub fn load(&self, chosen: &[ChosenFrame], threads: usize, progress: &dyn Progress) -> Result<Vec<ContentFrame>> {
        let bytes = chosen.iter().map(|frame| frame.span.length_bytes).sum();
        progress.stage(Stage::Reading, Some(bytes));
        match &self.content {
            Content::Ledger(plan, _lock) => {
                load_each(chosen, threads, progress, &|frame, buf| plan.fill(&frame.span, buf))
            }
            Content::Plain(file, path) => load_each(chosen, threads, progress, &|frame, buf| {
                file.read_exact_at(buf, frame.offset_bytes).or_path("read", path)
            }),
            Content::Framed(archive) => load_each(chosen, threads, progress, &|frame, buf| {
                read_range(archive, frame.offset_bytes, buf).map_err(|error| error.with_place(archive.path().escaped()))
            }),
            Content::Stream(archive) => load_stream(archive, chosen, threads, progress),
        }
    }
}

fn load_each(
    chosen: &[ChosenFrame],
    threads: usize,
    progress: &dyn Progress,
    fill: &(dyn Fn(&ChosenFrame, &mut [u8]) -> Result<()> + Sync),
) -> Result<Vec<ContentFrame>> {
    let load = |frame: &ChosenFrame| {
        progress.check()?;
        let mut content = vec![0; frame.span.length_bytes as usize];
        fill(frame, &mut content)?;
        progress.advance(frame.span.length_bytes, 0);
        Ok(ContentFrame::new(content))
    };
    start_pool(threads)?.install(|| chosen.par_iter().map(load).collect())
}

/// Decodes a file from start to end, and keeps the chosen frames.
fn load_stream(
    archive: &OpenArchive,
    chosen: &[ChosenFrame],
    threads: usize,
    progress: &dyn Progress,
) -> Result<Vec<ContentFrame>> {
    progress.stage(Stage::Reading, archive.source.length_bytes());
    let mut frames: Vec<ContentFrame> = Vec::with_capacity(chosen.len());
    let mut content = Vec::new();
    let mut position = 0;
    archive.decode_stream(threads, AHEAD_BYTES_MAX, progress, &mut |mut bytes| {
        while let Some(frame) = chosen.get(frames.len()) {
            let next_offset = frame.offset_bytes + content.len() as u64;
            let skipped = (next_offset - position).min(bytes.len() as u64) as usize;
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
        let path = archive.path().escaped();
        return Err(Error::failed(format!("{path} changed while it was read"))
            .with_hint("something writes to it: run this again once it is complete"));
    }
    Ok(frames)
}
