//! Passes the entries of one frame to the sink, the document reader and the record worker. If a storage or
//! document continues in the next frame, sends its state to the worker of that frame.

use crossbeam_channel::Sender;
use slotpress_base::{Error, Result};
use slotpress_format::{Entry, NoSink, RecordWalker, TarEvent};

use crate::archive::documents::DocumentReader;
use crate::{EntryRole, EntrySink, FrameDecoder, RecordWorker};

/// State of an entry that continues in the next frame. If a frame is lost, no state is sent, and the rest of
/// its last entry is lost too.
pub(super) enum UnfinishedEntry {
    Records(Box<RecordWalker>),
    Document(Box<DocumentReader>),
}

/// Bytes that are passed on at a time. They stay in a core's cache from the sink to the parser. A whole frame
/// would not.
const CONTENT_PIECE_BYTES: usize = 128 * 1024;

pub(super) struct DecodeWorker<'r> {
    pub decoder: FrameDecoder,
    pub compressed: Vec<u8>,
    pub records: Option<Box<dyn RecordWorker + 'r>>,
    pub walker: RecordWalker,
}

pub(super) struct FrameEvents<'a, 'w, 'r> {
    pub entries: &'a [Entry],
    pub roles: &'a [EntryRole],
    pub worker: &'w mut DecodeWorker<'r>,
    pub sink: Option<Box<dyn EntrySink + 'a>>,
    pub documents: DocumentReader,
    pub next_entry: usize,
    pub role: EntryRole,
    pub to_next: Option<Sender<UnfinishedEntry>>,
    /// An error of the sink, or of starting a document's thread, as opposed to a contradiction of the index.
    pub consumer_error: Option<Error>,
}

impl<'a> FrameEvents<'a, '_, '_> {
    fn wanted_sink(&mut self) -> Option<&mut Box<dyn EntrySink + 'a>> {
        if self.role.is_for_sink { self.sink.as_mut() } else { None }
    }

    fn enter(&mut self, entry: &Entry) -> Result<()> {
        let number = self.next_entry;
        self.role = self.roles.get(number).copied().unwrap_or_default();
        self.next_entry = number.saturating_add(1);
        match self.wanted_sink() {
            // An index cannot hold more entries than a `u32` can count.
            Some(sink) => sink.begin(u32::try_from(number).unwrap_or(u32::MAX), entry),
            None => Ok(()),
        }
    }

    pub fn resume(&mut self, entry: &Entry, unfinished: Option<UnfinishedEntry>) -> Result<()> {
        self.enter(entry)?;
        match (unfinished, self.role.storage, &mut self.worker.records) {
            (Some(UnfinishedEntry::Records(walker)), Some(storage), Some(records)) => {
                self.worker.walker = *walker;
                records.begin(storage);
            }
            (unfinished, ..) => {
                self.role.storage = None;
                if let Some(UnfinishedEntry::Document(documents)) = unfinished {
                    self.documents = *documents;
                }
            }
        }
        Ok(())
    }

    pub fn handle(&mut self, event: TarEvent<'_>) -> Result<()> {
        let result = match event {
            TarEvent::Begin(entry) => match self.entries.get(self.next_entry) {
                Some(expected) if *expected == entry => self.begin(&entry),
                // This is a contradiction of the index, not an error of a consumer.
                _ => return Err(Error::damaged(format!("{} is not where the index says", entry.kind))),
            },
            TarEvent::Content { offset_bytes, bytes } => self.pass_on(offset_bytes, bytes),
            TarEvent::End(entry) => self.end(&entry),
        };
        result.map_err(|error| self.consumer_error.insert(error).clone())
    }

    fn begin(&mut self, entry: &Entry) -> Result<()> {
        self.enter(entry)?;
        if let (Some(storage), Some(records)) = (self.role.storage, &mut self.worker.records) {
            records.begin(storage);
            self.worker.walker.restart();
        }
        if self.role.is_document {
            self.documents.begin(entry)?;
        }
        Ok(())
    }

    fn pass_on(&mut self, mut offset_bytes: u64, bytes: &[u8]) -> Result<()> {
        let entry = self.entries.get(self.next_entry.saturating_sub(1));
        let end = offset_bytes.saturating_add(bytes.len() as u64);
        let is_unfinished = entry.is_some_and(|entry| end < entry.content_bytes);
        let mut records = if self.role.storage.is_some() { self.worker.records.as_mut() } else { None };
        let walker = &mut self.worker.walker;
        // The worker of the next frame may be waiting for the walker. Walking over record headers takes little
        // time, so it is done first, and the records are visited after the walker has been sent.
        let to_next = if is_unfinished && records.is_some() { self.to_next.take() } else { None };
        let mut next = to_next.map(|to_next| (to_next, walker.clone()));
        let mut sink = if self.role.is_for_sink { self.sink.as_mut() } else { None };
        for piece in bytes.chunks(CONTENT_PIECE_BYTES) {
            if let Some(sink) = &mut sink {
                sink.write(offset_bytes, piece)?;
            }
            self.documents.push(piece);
            match (&mut next, &mut records) {
                (Some((_, next_walker)), _) => next_walker.feed(piece, &mut NoSink),
                (None, Some(records)) => walker.feed(piece, records.as_mut()),
                (None, None) => {}
            }
            offset_bytes = offset_bytes.saturating_add(piece.len() as u64);
        }
        if let (Some((to_next, next_walker)), Some(records)) = (next, records) {
            // Sending fails only if the next frame was lost.
            let _ = to_next.send(UnfinishedEntry::Records(Box::new(next_walker)));
            walker.feed(bytes, records.as_mut());
        }
        Ok(())
    }

    fn end(&mut self, entry: &Entry) -> Result<()> {
        if let Some(sink) = self.wanted_sink() {
            sink.end(entry)?;
        }
        self.documents.end();
        if let (Some(_), Some(records)) = (self.role.storage, &mut self.worker.records) {
            self.worker.walker.finish(records.as_mut());
        }
        self.role = EntryRole::default();
        Ok(())
    }

    /// Ends the frame. Sends an unfinished document to the worker of the next frame.
    pub fn suspend(&mut self) -> Result<()> {
        let last = self.next_entry.checked_sub(1).and_then(|number| self.entries.get(number));
        if let (Some(sink), Some(entry)) = (self.wanted_sink(), last) {
            sink.end(entry)?;
        }
        if self.documents.is_reading()
            && let Some(to_next) = self.to_next.take()
        {
            let documents = Box::new(std::mem::take(&mut self.documents));
            let _ = to_next.send(UnfinishedEntry::Document(documents));
        }
        Ok(())
    }
}
