//! Reads an archive in the order of its tar stream, whatever program wrote it. Frames are decoded on all
//! cores unless they are too large. The calling thread parses the tar stream, other threads receive the
//! contents, and workers receive the records in batches.
//!
//! Reading ends at the first frame that does not decode. After an invalid tar header, frames are
//! still decoded, but no further entries are read.

use std::io::BufRead;
use std::thread::Scope;

use crossbeam_channel::bounded;
use parking_lot::Mutex;
use rayon::Scope as PoolScope;
use slotpress_base::{Error, ErrorKind, Result, ThreadPool, catch_panic, panic_point, spawn_workers, start_pool};
use slotpress_format::{ArchiveCompression, Entry, EntryParser, TarEnd, TarEvent};

use super::batches::{Batcher, StorageBatch, visit_batches};
use super::decode::{FrameFault, decode_stream};
use super::documents::DocumentReader;
use super::opened::{ArchiveContents, ArchivePass};
use super::visit::{EntrySink, ReadFault, RecordVisitor, Visitor};
use super::walk::{FrameStatistics, SeenFrame};

/// Limit on the threads for the visitor's sinks. Each thread creates and fills files at 1 to 2 GB per second,
/// so more threads would wait for the disk.
const SINKS_MAX: usize = 4;

const NOTHING_AFTER: &str = "nothing after the damage was read";

/// Reads a stream in order until its end, or until the visitor or a sink returns an error. Passes contents to
/// `sink` in order, or, if it is `None`, to sinks of the visitor on several threads.
pub fn read_in_order(
    input: Box<dyn BufRead + Send + '_>,
    compression: ArchiveCompression,
    pass: &ArchivePass<'_>,
    visitor: &dyn Visitor,
    sink: Option<&mut (dyn EntrySink + '_)>,
) -> Result<ArchiveContents> {
    let first_error = FirstError::default();
    let has_sinks = sink.is_none() && visitor.new_sink().is_some();
    let sinks = has_sinks.then(|| start_pool(pass.threads.min(SINKS_MAX))).transpose()?;
    let documents = DocumentReader::default();
    let events =
        Events { visitor, first_error: &first_error, sink, documents, entries: 0, batcher: None, sink_entry: None };
    let parser = EntryParser::default();
    let mut reader =
        EntryReader { parser, sinks: sinks.as_ref(), has_lost_entries: false, has_lost_frame: false, events };
    let decoded = std::thread::scope(|scope| {
        reader.events.batcher =
            visitor.records().map(|records| start_workers(scope, pass, records, &first_error)).transpose()?;
        // The channel to the workers must close even after a panic. Otherwise they would wait
        // forever.
        let decoded = catch_panic(|| {
            let decoded = decode(input, compression, pass, &mut reader);
            reader.events.abandon();
            decoded
        });
        drop(reader.events.batcher.take());
        decoded
    });
    if let Some(error) = first_error.lock().take() {
        return Err(error);
    }
    visitor.check()?;
    reader.finish(decoded)
}

/// The first error other than damage to the archive: an error of the visitor or of a sink, or the panic of a
/// worker, whose records were not visited. It ends the reading.
type FirstError = Mutex<Option<Error>>;

fn start_workers<'scope, 'a: 'scope>(
    scope: &'scope Scope<'scope, '_>,
    pass: &ArchivePass<'_>,
    records: &'a dyn RecordVisitor,
    first_error: &'scope FirstError,
) -> Result<Batcher> {
    let (batches, received) = bounded::<StorageBatch>(pass.threads);
    let (emptied, free) = bounded::<StorageBatch>(pass.threads.saturating_mul(2).saturating_add(2));
    let new_worker = || {
        let received = received.clone();
        let emptied = emptied.clone();
        move || {
            let visited = catch_panic(|| {
                visit_batches(records, &received, &emptied);
                Ok(())
            });
            if let Err(error) = visited {
                first_error.lock().get_or_insert(error);
            }
        }
    };
    spawn_workers(scope, pass.threads.max(1), new_worker)?;
    Ok(Batcher::new(batches, free))
}

fn decode(
    input: Box<dyn BufRead + Send + '_>,
    compression: ArchiveCompression,
    pass: &ArchivePass<'_>,
    reader: &mut EntryReader<'_, '_>,
) -> Result<FrameStatistics> {
    let Events { visitor, first_error, .. } = reader.events;
    let keep_first = |error: Error| first_error.lock().get_or_insert(error).clone();
    let statistics = Mutex::new(FrameStatistics::default());
    let on_frame = |frame: SeenFrame| {
        statistics.lock().add(&frame.start);
        visitor.observe_frame(frame).map_err(keep_first)
    };
    decode_stream(input, compression, pass.decoders, pass.progress, Box::new(on_frame), &mut |decoded| {
        reader.take_decoded(decoded).map_err(|error| if reader.has_lost_frame { error } else { keep_first(error) })
    })?;
    Ok(statistics.into_inner())
}

struct EntryReader<'a, 's> {
    parser: EntryParser,
    sinks: Option<&'a ThreadPool>,
    /// True after damage, after which no further entries are read.
    has_lost_entries: bool,
    /// True after a frame that does not decode, which was reported to the visitor.
    has_lost_frame: bool,
    events: Events<'a, 's>,
}

impl<'a> EntryReader<'a, '_> {
    fn take_decoded(&mut self, decoded: Result<&[u8], FrameFault>) -> Result<()> {
        if let Some(error) = &*self.events.first_error.lock() {
            return Err(error.clone());
        }
        self.events.visitor.check()?;
        match decoded {
            Ok(bytes) => self.parse(bytes),
            Err(fault) => self.report_lost_frame(fault),
        }
    }

    fn parse(&mut self, bytes: &[u8]) -> Result<()> {
        panic_point("entries in order");
        if self.has_lost_entries {
            return Ok(());
        }
        let result = match self.sinks {
            Some(sinks) => sinks.in_place_scope(|scope| self.feed(bytes, Some(scope))),
            None => self.feed(bytes, None),
        }?;
        let visitor = self.events.visitor;
        let Err(error) = result else { return Ok(()) };
        let fault = ReadFault::DamagedHeader { error: &error, offset_bytes: self.parser.position() };
        visitor.handle_fault(fault, Some(NOTHING_AFTER))?;
        self.abandon_entries();
        Ok(())
    }

    /// Feeds the next bytes to the parser. The inner result is that of the parser, and the outer result that of
    /// the visitor and the sink.
    fn feed<'b>(&mut self, bytes: &'b [u8], sinks: Option<&PoolScope<'b>>) -> Result<Result<()>>
    where
        'a: 'b,
    {
        let Self { parser, events, .. } = self;
        let mut consumer_error = None;
        let result = parser.feed(bytes, &mut |event| {
            events.handle(event, sinks).map_err(|error| consumer_error.insert(error).clone())
        });
        match consumer_error {
            Some(error) => Err(error),
            None => Ok(result),
        }
    }

    fn report_lost_frame(&mut self, FrameFault { number, error }: FrameFault) -> Result<()> {
        let is_after_end = self.parser.end() != TarEnd::Inside;
        let lost = (!is_after_end).then_some(NOTHING_AFTER);
        self.events.visitor.handle_fault(ReadFault::LostFrame { number, error: &error, is_after_end }, lost)?;
        if !is_after_end {
            self.abandon_entries();
        }
        self.has_lost_frame = true;
        Err(error)
    }

    fn abandon_entries(&mut self) {
        self.events.abandon();
        self.has_lost_entries = true;
    }

    fn finish(self, decoded: Result<FrameStatistics>) -> Result<ArchiveContents> {
        let is_over = self.parser.end() != TarEnd::Inside;
        let Self { parser, events, .. } = self;
        let visitor = events.visitor;
        let mut contents = ArchiveContents {
            documents: events.documents.finish(),
            tar_bytes: parser.position(),
            is_from_firedancer: parser.is_from_firedancer(),
            has_all_entries: is_over,
            ..ArchiveContents::default()
        };
        match decoded {
            Ok(frames) => {
                contents.frames = frames;
                if !self.has_lost_entries {
                    contents.has_all_entries |= parser.is_between_entries();
                    if parser.end() != TarEnd::Clean {
                        let lost = (!contents.has_all_entries).then_some(NOTHING_AFTER);
                        visitor.handle_fault(ReadFault::End { parser: &parser }, lost)?;
                    }
                }
            }
            Err(_) if self.has_lost_frame => {}
            Err(error) if error.kind() == ErrorKind::Damaged => {
                let lost = (!is_over).then_some(NOTHING_AFTER);
                visitor.handle_fault(ReadFault::Unreadable { error: &error, is_after_end: is_over }, lost)?;
            }
            Err(error) => return Err(error),
        }
        Ok(contents)
    }
}

struct Events<'a, 's> {
    visitor: &'a dyn Visitor,
    first_error: &'a FirstError,
    sink: Option<&'a mut (dyn EntrySink + 's)>,
    documents: DocumentReader,
    entries: u32,
    batcher: Option<Batcher>,
    /// The current entry and its number, if sinks receive it.
    sink_entry: Option<(u32, Entry)>,
}

impl<'a> Events<'a, '_> {
    fn handle<'b>(&mut self, event: TarEvent<'b>, sinks: Option<&PoolScope<'b>>) -> Result<()>
    where
        'a: 'b,
    {
        match event {
            TarEvent::Begin(entry) => {
                let number = self.entries;
                self.entries = number.saturating_add(1); // The parser refuses more entries than fit into a `u32`.
                let role = self.visitor.visit_entry(&entry)?;
                if let Some(batcher) = &mut self.batcher {
                    batcher.begin(role.storage);
                }
                if role.is_document {
                    self.documents.begin(&entry)?;
                }
                self.sink_entry = role.is_for_sink.then_some((number, entry));
                if let (Some(sink), Some(_)) = (&mut self.sink, self.sink_entry) {
                    sink.begin(number, &entry)?;
                }
            }
            TarEvent::Content { offset_bytes, bytes } => {
                // The sink comes first, because nothing else needs the bytes if it fails.
                match (&mut self.sink, self.sink_entry) {
                    (Some(sink), Some(_)) => sink.write(offset_bytes, bytes)?,
                    (None, Some(sink_entry)) => self.pass_on(sink_entry, offset_bytes, bytes, sinks),
                    _ => {}
                }
                self.documents.push(bytes);
                if let Some(batcher) = &mut self.batcher {
                    batcher.push(bytes);
                }
            }
            TarEvent::End(entry) => {
                match (&mut self.sink, self.sink_entry.take()) {
                    (Some(sink), Some(_)) => sink.end(&entry)?,
                    (None, Some(sink_entry)) if entry.content_bytes == 0 => self.pass_on(sink_entry, 0, &[], sinks),
                    _ => {}
                }
                self.documents.end();
                if let Some(batcher) = &mut self.batcher {
                    batcher.end();
                }
            }
        }
        Ok(())
    }

    /// Passes a part of an entry to a new sink on one of the threads for sinks.
    fn pass_on<'b>(
        &self,
        (number, entry): (u32, Entry),
        offset_bytes: u64,
        bytes: &'b [u8],
        sinks: Option<&PoolScope<'b>>,
    ) where
        'a: 'b,
    {
        let Self { visitor, first_error, .. } = *self;
        let fill_sink = move || {
            let Some(mut sink) = visitor.new_sink() else { return Ok(()) };
            sink.begin(number, &entry)?;
            sink.write(offset_bytes, bytes)?;
            sink.end(&entry)
        };
        if let Some(sinks) = sinks {
            sinks.spawn(move |_| {
                if let Err(error) = catch_panic(fill_sink) {
                    first_error.lock().get_or_insert(error);
                }
            });
        }
    }

    fn abandon(&mut self) {
        self.documents.abandon();
        self.sink_entry = None;
        if let Some(batcher) = &mut self.batcher {
            batcher.abandon();
        }
    }
}
