//! Reads an archive with an index: every worker reads, decodes and parses frames independently.
//!
//! The index agreed with the seek table when the archive was opened, so a contradiction is damage. A frame
//! that contradicts the seek table is lost, and a tar header that contradicts the index ends the reading.
//!
//! A storage or document may continue in the next frame. The worker of a frame then sends the parser's state
//! to the worker of the next frame. For a storage, it does so as soon as it has walked over the record
//! headers. A frame is taken before the frame that continues it, so a waiting worker always waits for a
//! running one.

mod events;

use crossbeam_channel::{Receiver, Sender, bounded};
use events::{DecodeWorker, FrameEvents, UnfinishedEntry};
use slotpress_base::{
    AHEAD_BYTES_MAX, AheadItem, Error, ErrorKind, ItemReader, Result, panic_point, range_bytes, read_ahead,
    run_in_order, to_usize,
};
use slotpress_format::{
    Entry, EntryParser, FrameSpan, FrameStart, RecordWalker, TarEnd, frame_hash, parse_frame_start,
};

use super::decode::FrameDecoder;
use super::documents::{DocumentReader, Documents};
use super::opened::{ArchiveContents, ArchivePass, OpenArchive};
use super::source::PieceReader;
use super::tail::{DataFrame, Tail};
use super::visit::{EntryRole, ReadFault, Visitor};
use super::walk::SeenFrame;

pub fn read_by_index(
    archive: &OpenArchive,
    tail: &Tail,
    pass: &ArchivePass<'_>,
    visitor: &dyn Visitor,
) -> Result<ArchiveContents> {
    let entries = tail.index.entries.iter();
    let roles = entries.map(|entry| visitor.visit_entry(entry)).collect::<Result<_>>()?;
    let pieces = PieceReader::new(archive.source.as_ref(), archive.io_policy.io_hint);
    let reader = IndexReader { archive, pieces, tail, roles, pass, visitor };
    let new_worker = || {
        let records = visitor.records().map(|records| records.new_worker());
        let decoder = FrameDecoder::new()?;
        let walker = RecordWalker::default();
        let mut worker = DecodeWorker { decoder, compressed: Vec::new(), records, walker };
        let reader = &reader;
        Ok(move |item: AheadItem<'_, FrameItem>, content: &mut Vec<u8>| reader.read_frame(item, &mut worker, content))
    };
    let mut contents = ArchiveContents { has_all_entries: true, ..ArchiveContents::default() };
    contents.tar_bytes = tail.index.tar_bytes();
    (contents.frames.frames, contents.frames.skippable_bytes) = (tail.frames.len() as u64, tail.length_bytes);
    let item_reader = ItemReader {
        is_cold: &|item: &FrameItem| reader.pieces.is_cold(&item.frame.range()),
        read: &|item, buf| reader.read_item(item, buf),
        item_bytes_max: tail.frames.iter().map(|frame| range_bytes(&frame.range())).max().unwrap_or_default(),
        ahead_bytes_max: AHEAD_BYTES_MAX,
    };
    read_ahead(reader.items(), &item_reader, |items| {
        run_in_order(items, pass.threads, &new_worker, pass.progress, &mut |_, (documents, frame)| {
            contents.documents.merge(documents);
            pass.progress.advance(frame.compressed_bytes.into(), frame.content_bytes.into());
            Ok(())
        })
    })?;
    visitor.check()?;
    Ok(contents)
}

fn contradiction_error(frame: &DataFrame, why: impl std::fmt::Display) -> Error {
    let offset_bytes = frame.offset_bytes;
    Error::damaged(format!("the archive's index contradicts the frame at offset {offset_bytes}: {why}"))
        .at_offset(offset_bytes)
        .with_hint("get the archive from another source, or recompress it, which writes a new index")
}

struct IndexReader<'a> {
    archive: &'a OpenArchive,
    pieces: PieceReader<'a>,
    tail: &'a Tail,
    roles: Vec<EntryRole>,
    pass: &'a ArchivePass<'a>,
    visitor: &'a dyn Visitor,
}

/// A frame to read, with channels from and to the workers of neighboring frames that share an entry with it.
struct FrameItem {
    number: usize,
    frame: DataFrame,
    span: FrameSpan,
    from_previous: Option<Receiver<UnfinishedEntry>>,
    to_next: Option<Sender<UnfinishedEntry>>,
}

impl IndexReader<'_> {
    fn items(&self) -> Box<dyn Iterator<Item = FrameItem> + Send + '_> {
        if self.pass.newest_first {
            Box::new(reverse_chains(self.forward_items().collect()).into_iter())
        } else {
            Box::new(self.forward_items())
        }
    }

    fn forward_items(&self) -> impl Iterator<Item = FrameItem> + Send + '_ {
        let is_read = |span: &FrameSpan| !self.pass.wanted_only || self.is_wanted(span);
        let mut items = self.tail.spans().enumerate().filter(move |(_, (_, span))| is_read(span));
        let mut next = items.next();
        let mut from_previous = None;
        std::iter::from_fn(move || {
            let (number, (frame, span)) = next.take()?;
            let mut item = FrameItem { number, frame, span, from_previous: from_previous.take(), to_next: None };
            next = items.next();
            if let Some((next_number, (_, next_span))) = &next
                && *next_number == number.saturating_add(1)
                && next_span.offset_bytes > 0
            {
                let (sender, receiver) = bounded(1);
                (item.to_next, from_previous) = (Some(sender), Some(receiver));
            }
            Some(item)
        })
    }

    fn is_wanted(&self, span: &FrameSpan) -> bool {
        let roles = self.roles.get(to_usize(span.first_entry)..first_entry_after(span, &self.tail.index.entries));
        roles.is_some_and(|roles| roles.iter().any(EntryRole::is_wanted))
    }

    fn read_item(&self, item: &FrameItem, buf: &mut Vec<u8>) -> Result<()> {
        let range = item.frame.range();
        self.archive.io_policy.wait(range_bytes(&range), self.pass.progress);
        self.pieces.read(&range, buf).map(drop)
    }

    fn read_frame(
        &self,
        item: AheadItem<'_, FrameItem>,
        worker: &mut DecodeWorker<'_>,
        content: &mut Vec<u8>,
    ) -> Result<(Documents, DataFrame)> {
        panic_point("frame by index");
        self.visitor.check()?;
        let item = item.read(&mut worker.compressed)?;
        let number = item.number;
        let frame = item.frame;
        let bytes = worker.compressed.as_slice();
        let decoded =
            self.check_header(number, &frame, bytes).and_then(|()| decode(&mut worker.decoder, &frame, bytes, content));
        match decoded {
            Err(error) if error.kind() == ErrorKind::Damaged => {
                let fault = ReadFault::LostFrame { number: number as u64, error: &error, is_after_end: false };
                self.visitor.handle_fault(fault, Some("records in frames that do not decode were not read"))?;
                return Ok(Default::default());
            }
            decoded => decoded?,
        }
        if self.pass.check_hashes
            && let Some(hashes) = &self.tail.hashes
            && hashes.frames.get(number) != Some(&frame_hash(bytes))
        {
            let fault = ReadFault::WrongHash { number: number as u64, offset_bytes: frame.offset_bytes };
            self.visitor.handle_fault(fault, None)?;
        }
        Ok((self.parse_frame(item, worker, content)?, frame))
    }

    fn check_header(&self, number: usize, frame: &DataFrame, bytes: &[u8]) -> Result<()> {
        let start = parse_frame_start(bytes).map_err(|error| error.at_offset(frame.offset_bytes))?;
        let number = Some(number as u64);
        let offset_bytes = frame.offset_bytes;
        self.visitor.observe_frame(SeenFrame { number, offset_bytes, start, is_index: false })?;
        match start {
            FrameStart::Zstd(header)
                if header.content_bytes.is_none_or(|content| content == u64::from(frame.content_bytes)) =>
            {
                Ok(())
            }
            _ => Err(contradiction_error(frame, "it is not the frame of the seek table")),
        }
    }

    fn parse_frame(&self, item: FrameItem, worker: &mut DecodeWorker<'_>, content: &[u8]) -> Result<Documents> {
        panic_point("entries by index");
        let FrameItem { frame, span, from_previous, to_next, .. } = item;
        let entries = &self.tail.index.entries;
        let mut events = FrameEvents {
            entries,
            roles: &self.roles,
            worker,
            sink: self.visitor.new_sink(),
            documents: DocumentReader::default(),
            next_entry: to_usize(span.first_entry),
            role: EntryRole::default(),
            to_next,
            consumer_error: None,
        };
        let mut parser = EntryParser::default();
        if span.offset_bytes > 0 {
            let Some(entry) = entries.get(events.next_entry) else {
                if content.iter().any(|byte| *byte != 0) {
                    return Err(contradiction_error(&frame, "the tar stream does not end with zeros"));
                }
                return Ok(Documents::default());
            };
            parser = EntryParser::resume(*entry, span.offset_bytes)
                .ok_or_else(|| contradiction_error(&frame, "an entry is cut inside its header"))?;
            // `recv` fails if the previous frame was lost. The rest of its last entry is then lost too.
            events.resume(entry, from_previous.and_then(|receiver| receiver.recv().ok()))?;
        }
        let result = parser.feed(content, &mut |event| events.handle(event));
        if let Some(error) = events.consumer_error.take() {
            return Err(error);
        }
        result.map_err(|error| contradiction_error(&frame, error))?;
        // Zeros in place of a header end the tar stream, so later entries would be lost silently.
        let end_entry = first_entry_after(&span, entries);
        let is_over = parser.end() != TarEnd::Inside;
        if events.next_entry != end_entry || (is_over && end_entry != entries.len()) || parser.end() == TarEnd::Junk {
            return Err(contradiction_error(&frame, "the tar stream ends early"));
        }
        events.suspend()?;
        Ok(events.documents.finish())
    }
}

fn decode(decoder: &mut FrameDecoder, frame: &DataFrame, bytes: &[u8], content: &mut Vec<u8>) -> Result<()> {
    let content_bytes = u64::from(frame.content_bytes);
    decoder.decode(bytes, frame.offset_bytes, content_bytes, content)?;
    if zstd_safe::find_frame_compressed_size(bytes) == Ok(bytes.len()) && content.len() as u64 == content_bytes {
        Ok(())
    } else {
        Err(contradiction_error(frame, "it has a different length"))
    }
}

/// Reverses the order of frames, except within chains of linked frames: there, each frame waits for the
/// previous one.
fn reverse_chains(mut items: Vec<FrameItem>) -> Vec<FrameItem> {
    let starts = items.iter().enumerate().filter(|(_, item)| item.from_previous.is_none());
    let starts: Vec<usize> = starts.map(|(number, _)| number).collect();
    let mut reversed = Vec::with_capacity(items.len());
    for start in starts.into_iter().rev() {
        reversed.extend(items.drain(start..));
    }
    reversed
}

fn first_entry_after(span: &FrameSpan, entries: &[Entry]) -> usize {
    let mut number = to_usize(span.first_entry);
    let mut remaining_bytes = span.offset_bytes.saturating_add(span.length_bytes);
    while remaining_bytes > 0
        && let Some(entry) = entries.get(number)
    {
        remaining_bytes = remaining_bytes.saturating_sub(entry.tar_bytes());
        number = number.saturating_add(1);
    }
    number
}
