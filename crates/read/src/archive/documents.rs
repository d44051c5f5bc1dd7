//! Parses the entries that are not storages: version, status cache, bank file. A thread for each document
//! parses bytes as they arrive, so neither a temporary file nor a gigabyte of memory is needed.

use std::io::{BufRead, Read};
use std::thread::{Builder, JoinHandle};

use crossbeam_channel::{Receiver, Sender, bounded};
use slotpress_base::{Error, Result, catch_panic, panic_point, spawn_error};
use slotpress_format::{
    BankFile, BankStakes, Entry, EntryKind, FieldReader, StatusCache, VERSION_BYTES_MAX, parse_bank_file_lenient,
    parse_status_cache,
};

use super::source::PieceStream;

/// Documents of one archive or ledger. A document is `None` if it is missing or could not be read to its end.
#[derive(Debug, Default)]
pub struct Documents {
    pub bank: Option<Result<ParsedBank>>,
    pub status_cache: Option<Result<StatusCache>>,
    pub version: Option<Vec<u8>>,
}

/// A bank file that could be parsed at least up to its lattice hash.
#[derive(Debug)]
pub struct ParsedBank {
    pub bank: BankFile,
    pub end_error: Option<Error>,
}

pub fn parse_bank<R: BufRead>(fields: FieldReader<R>) -> Result<ParsedBank> {
    let (bank, end_error) = parse_bank_file_lenient(fields, &mut |_| Ok(()), BankStakes::Keep)?;
    Ok(ParsedBank { bank, end_error })
}

#[derive(Default)]
pub struct DocumentReader {
    finished: Documents,
    current: Option<PushParser>,
    threads: usize,
}

/// Limit on the threads of a reader, which starts a thread for each document. Further documents are not parsed.
/// An archive with several documents of a kind is refused, but a hostile archive may hold millions, and
/// starting a thread for each of them would take a minute.
const THREADS_MAX: usize = 8;

impl DocumentReader {
    pub fn begin(&mut self, entry: &Entry) -> Result<()> {
        self.abandon();
        let parse: Parse = match entry.kind {
            _ if self.threads >= THREADS_MAX => return Ok(()),
            // One byte more than the limit is kept, which shows that the document is too long.
            EntryKind::Version => |pieces, _, documents| {
                let mut version = Vec::new();
                let read = pieces.take((VERSION_BYTES_MAX as u64).saturating_add(1)).read_to_end(&mut version);
                documents.version = read.ok().map(|_| version);
            },
            EntryKind::BankFile(_) => |pieces, length, documents| {
                let fields = FieldReader::new(pieces, length, "the bank file");
                documents.bank = Some(try_parse(fields, parse_bank));
            },
            // The bank's slot may still be unknown. Slots above it are checked later.
            EntryKind::StatusCache => |pieces, length, documents| {
                let fields = FieldReader::new(pieces, length, "the status cache");
                let parse = |fields| parse_status_cache(fields, u64::MAX);
                documents.status_cache = Some(try_parse(fields, parse));
            },
            _ => return Ok(()),
        };
        self.current = Some(PushParser::start(entry.content_bytes, parse)?);
        self.threads = self.threads.saturating_add(1);
        Ok(())
    }

    pub fn is_reading(&self) -> bool {
        self.current.is_some()
    }

    pub fn push(&mut self, bytes: &[u8]) {
        if let Some(parser) = &mut self.current {
            parser.push(bytes);
        }
    }

    /// Ends the current entry. If two entries have the same name, the later one is used, because
    /// unpacking it overwrites the earlier one.
    pub fn end(&mut self) {
        if let Some(parser) = self.current.take() {
            self.finished.merge(parser.finish());
        }
    }

    /// Drops the current entry, whose content will not be complete. Its document is unknown, not damaged.
    pub fn abandon(&mut self) {
        if let Some(parser) = self.current.take() {
            parser.finish();
        }
    }

    pub fn finish(mut self) -> Documents {
        self.abandon();
        self.finished
    }
}

impl Documents {
    pub fn merge(&mut self, other: Self) {
        self.bank = other.bank.or(self.bank.take());
        self.status_cache = other.status_cache.or(self.status_cache.take());
        self.version = other.version.or(self.version.take());
    }
}

struct PushParser {
    pieces: Sender<Vec<u8>>,
    thread: JoinHandle<Documents>,
}

type DocumentStream = PieceStream<Receiver<Vec<u8>>>;

type Parse = fn(DocumentStream, u64, &mut Documents);

/// Parses a document. If the parser panics, returns an error.
fn try_parse<T>(fields: FieldReader<DocumentStream>, parse: fn(FieldReader<DocumentStream>) -> Result<T>) -> Result<T> {
    catch_panic(|| {
        panic_point("document");
        parse(fields)
    })
}

/// Limit on the pieces in the channel. The parser is rarely slower than the reader.
const PIECES_MAX: usize = 4;

impl PushParser {
    fn start(length_bytes: u64, parse: Parse) -> Result<Self> {
        let (pieces, received) = bounded(PIECES_MAX);
        let stream = PieceStream::new(received, |received, piece| {
            *piece = received.recv().unwrap_or_default();
            Ok(())
        });
        let work = move || {
            let mut documents = Documents::default();
            parse(stream, length_bytes, &mut documents);
            documents
        };
        let thread = Builder::new().spawn(work).map_err(|error| spawn_error(&error))?;
        Ok(Self { pieces, thread })
    }

    fn push(&mut self, bytes: &[u8]) {
        // Sending fails if the parser has ended because of an error.
        let _ = self.pieces.send(bytes.to_vec());
    }

    fn finish(self) -> Documents {
        drop(self.pieces);
        self.thread.join().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use slotpress_format::Entry;

    use super::*;

    #[test]
    fn many_documents_start_few_threads() {
        let mut reader = DocumentReader::default();
        for number in 0..2 * THREADS_MAX {
            reader.begin(&Entry { kind: EntryKind::BankFile(7), content_bytes: 1 }).expect("a thread");
            assert_eq!(reader.is_reading(), number < THREADS_MAX);
            reader.push(&[1]);
            reader.end();
        }
        let error = reader.finish().bank.expect("parsed").expect_err("not a bank file");
        assert!(error.to_string().contains("the bank file"), "{error}");
    }
}
