//! Passes what the parser finds in one frame to sink, documents and record worker. Sends the state
//! of a storage or document that continues in the next frame to the worker of that frame.

use crossbeam_channel::Sender;
use slotpress_base::{Error, Result};
use slotpress_format::{Entry, NoSink, RecordWalker, TarEvent};

use crate::archive::decode::FrameDecoder;
use crate::archive::documents::DocumentReader;
use crate::{EntrySink, EntryUse, RecordWorker};

/// State of an entry that continues in the next frame. If a frame is lost, no state is sent, and
/// the rest of the entry is lost too.
pub(super) enum EntryCarry {
    Records(Box<RecordWalker>),
    Document(Box<DocumentReader>),
}

/// Bytes passed on at a time: they stay in a core's cache between sink and parser; a whole frame
/// would not.
const CONTENT_PIECE_BYTES: usize = 128 * 1024;

/// Converts an entry's number; an index cannot hold more entries than a `u32` can count.
fn entry_number(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

pub(super) struct DecodeWorker<'r> {
    pub decoder: FrameDecoder,
    pub compressed: Vec<u8>,
    pub records: Option<Box<dyn RecordWorker + 'r>>,
    pub walker: RecordWalker,
}

pub(super) struct FrameEvents<'a, 'w, 'r> {
    pub entries: &'a [Entry],
    pub uses: &'a [EntryUse],
    pub worker: &'w mut DecodeWorker<'r>,
    pub sink: Option<Box<dyn EntrySink + 'a>>,
    pub documents: DocumentReader,
    pub number: usize,
    pub wanted: EntryUse,
    pub after: Option<Sender<EntryCarry>>,
    /// An error of the sink, as opposed to a contradiction of the index.
    pub stopped: Option<Error>,
}

impl FrameEvents<'_, '_, '_> {
    pub fn resume(&mut self, entry: &Entry, carry: Option<EntryCarry>) -> Result<()> {
        self.wanted = self.uses.get(self.number).copied().unwrap_or_default();
        if self.wanted.is_for_sink
            && let Some(sink) = &mut self.sink
        {
            sink.begin(entry_number(self.number), entry)?;
        }
        match (carry, self.wanted.storage, &mut self.worker.records) {
            (Some(EntryCarry::Records(walker)), Some(storage), Some(records)) => {
                self.worker.walker = *walker;
                records.begin(storage);
            }
            (carry, ..) => {
                self.wanted.storage = None;
                if let Some(EntryCarry::Document(documents)) = carry {
                    self.documents = *documents;
                }
            }
        }
        self.number = self.number.saturating_add(1);
        Ok(())
    }

    pub fn event(&mut self, event: TarEvent<'_>) -> Result<()> {
        let result = match event {
            TarEvent::Begin(entry) => match self.entries.get(self.number) {
                Some(expected) if *expected == entry => self.begin(&entry),
                // This is not the sink's error: the index is wrong.
                _ => return Err(Error::damaged(format!("{} is not where the index says", entry.kind))),
            },
            TarEvent::Content { offset_bytes, bytes } => self.content(offset_bytes, bytes),
            TarEvent::End(entry) => self.end(&entry),
        };
        result.map_err(|error| self.stopped.insert(error).clone())
    }

    fn begin(&mut self, entry: &Entry) -> Result<()> {
        let number = self.number;
        self.wanted = self.uses.get(number).copied().unwrap_or_default();
        self.number = number.saturating_add(1);
        if let (Some(storage), Some(records)) = (self.wanted.storage, &mut self.worker.records) {
            records.begin(storage);
            self.worker.walker.restart();
        }
        if self.wanted.is_document {
            self.documents.begin(entry)?;
        }
        if self.wanted.is_for_sink
            && let Some(sink) = &mut self.sink
        {
            sink.begin(entry_number(number), entry)?;
        }
        Ok(())
    }

    fn content(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<()> {
        let entry = self.entries.get(self.number.saturating_sub(1));
        let end = offset_bytes.saturating_add(bytes.len() as u64);
        let goes_on = entry.is_some_and(|entry| end < entry.content_bytes);
        let mut records = if self.wanted.storage.is_some() { self.worker.records.as_mut() } else { None };
        let walker = &mut self.worker.walker;
        // The worker of the next frame may be waiting for the walker. Walking over record headers
        // is cheap, so that is done first, and the records are visited after the walker was sent.
        let after = if goes_on && records.is_some() { self.after.take() } else { None };
        let mut next = after.map(|after| (after, walker.clone()));
        let mut sink = if self.wanted.is_for_sink { self.sink.as_mut() } else { None };
        let mut offset_bytes = offset_bytes;
        for piece in bytes.chunks(CONTENT_PIECE_BYTES) {
            if let Some(sink) = &mut sink {
                sink.write(offset_bytes, piece)?;
            }
            self.documents.content(piece);
            match (&mut next, &mut records) {
                (Some((_, next)), _) => next.feed(piece, &mut NoSink),
                (None, Some(records)) => walker.feed(piece, records.as_mut()),
                (None, None) => {}
            }
            offset_bytes = offset_bytes.saturating_add(piece.len() as u64);
        }
        if let (Some((after, next)), Some(records)) = (next, records) {
            // Fails only if the next frame was lost.
            let _ = after.send(EntryCarry::Records(Box::new(next)));
            walker.feed(bytes, records.as_mut());
        }
        Ok(())
    }

    fn end(&mut self, entry: &Entry) -> Result<()> {
        if self.wanted.is_for_sink
            && let Some(sink) = &mut self.sink
        {
            sink.end(entry)?;
        }
        self.documents.end();
        if let (Some(_), Some(records)) = (self.wanted.storage, &mut self.worker.records) {
            self.worker.walker.finish(records.as_mut());
        }
        self.wanted = EntryUse::default();
        Ok(())
    }

    pub fn suspend(&mut self) -> Result<()> {
        let last = self.number.checked_sub(1).and_then(|last| self.entries.get(last));
        if self.wanted.is_for_sink
            && let (Some(sink), Some(entry)) = (&mut self.sink, last)
        {
            sink.end(entry)?;
        }
        if self.documents.is_reading()
            && let Some(after) = self.after.take()
        {
            let documents = Box::new(std::mem::take(&mut self.documents));
            let _ = after.send(EntryCarry::Document(documents));
        }
        Ok(())
    }
}
