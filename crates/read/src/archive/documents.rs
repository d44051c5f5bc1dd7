//! Collects the entries that are not storages: version, status cache, bank file. A thread for each
//! document parses bytes as they arrive, so that neither a temporary file nor a gigabyte of memory
//! is needed.

use std::io::{BufRead, Read};
use std::thread::{Builder, JoinHandle};

use crossbeam_channel::{Receiver, Sender, bounded};
use slotpress_base::threads::{guarded, panicked};
use slotpress_base::{Error, Result, cannot_start, copy_at_most, panic_point, split_at_most};
use slotpress_format::{
    BankFile, Entry, EntryKind, FieldReader, STORAGES_MAX, StatusCache, StorageMapItem, VERSION_BYTES_MAX,
    parse_bank_file_and_end, parse_status_cache,
};

/// Documents of one archive or ledger. A document is `None` if it is missing, or was not read to
/// its end.
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
    pub map: Vec<StorageMapItem>,
    pub end_error: Option<Error>,
}

pub fn parse_bank<R: BufRead>(fields: FieldReader<R>) -> Result<ParsedBank> {
    let mut map = Vec::new();
    let (bank, end_error) = parse_bank_file_and_end(
        fields,
        &mut |item| {
            if map.len() as u64 >= STORAGES_MAX {
                return Err(Error::damaged(format!("the storage map names more than {STORAGES_MAX} storages")));
            }
            map.push(item);
            Ok(())
        },
        true,
    )?;
    Ok(ParsedBank { bank, map, end_error })
}

#[derive(Default)]
pub struct DocumentReader {
    found: Documents,
    current: Option<Current>,
}

enum Current {
    Short(Vec<u8>),
    Bank(Pushed<ParsedBank>),
    StatusCache(Pushed<StatusCache>),
}

impl DocumentReader {
    pub fn begin(&mut self, entry: &Entry) {
        self.abandon();
        let length = entry.content_bytes;
        self.current = match entry.kind {
            EntryKind::Version => Some(Current::Short(Vec::new())),
            EntryKind::BankFile(_) => Some(Current::Bank(Pushed::start(length, "the bank file", parse_bank))),
            // The bank's slot may still be unknown: slots above it are checked later.
            EntryKind::StatusCache => {
                let parse: Parse<StatusCache> = |fields| parse_status_cache(fields, u64::MAX);
                Some(Current::StatusCache(Pushed::start(length, "the status cache", parse)))
            }
            _ => None,
        };
    }

    pub fn is_reading(&self) -> bool {
        self.current.is_some()
    }

    pub fn content(&mut self, bytes: &[u8]) {
        match &mut self.current {
            Some(Current::Short(text)) => {
                // One byte more than the limit is kept, to show that the document is too long.
                let room = (VERSION_BYTES_MAX + 1).saturating_sub(text.len());
                text.extend_from_slice(split_at_most(bytes, room).0);
            }
            Some(Current::Bank(pushed)) => pushed.push(bytes),
            Some(Current::StatusCache(pushed)) => pushed.push(bytes),
            None => {}
        }
    }

    pub fn end(&mut self) {
        match self.current.take() {
            // If two entries have the same name, the later one counts, since unpacking overwrites
            // the first.
            Some(Current::Short(text)) => self.found.version = Some(text),
            Some(Current::Bank(pushed)) => self.found.bank = Some(pushed.finish()),
            Some(Current::StatusCache(pushed)) => self.found.status_cache = Some(pushed.finish()),
            None => {}
        }
    }

    /// Drops the current entry, whose content will not be complete: its document is unknown, not
    /// damaged.
    pub fn abandon(&mut self) {
        match self.current.take() {
            Some(Current::Bank(pushed)) => drop(pushed.finish()),
            Some(Current::StatusCache(pushed)) => drop(pushed.finish()),
            _ => {}
        }
    }

    pub fn finish(mut self) -> Documents {
        self.abandon();
        std::mem::take(&mut self.found)
    }
}

impl Documents {
    /// Takes over the documents of a later part of the archive.
    pub fn merge(&mut self, other: Self) {
        self.bank = other.bank.or(self.bank.take());
        self.status_cache = other.status_cache.or(self.status_cache.take());
        self.version = other.version.or(self.version.take());
    }
}

/// A parser to which bytes are pushed. It runs on a thread of its own; without one, it parses when
/// all bytes are there.
struct Pushed<T> {
    pieces: Sender<Vec<u8>>,
    parser: Parser<T>,
}

enum Parser<T> {
    Thread(JoinHandle<Result<T>>),
    /// Parses at the end. `error` is the reason if the document needed a thread that could not be
    /// started.
    Here {
        parse: Box<dyn FnOnce(Vec<u8>) -> Result<T> + Send>,
        held: Vec<u8>,
        error: Option<Error>,
    },
}

type Parse<T> = fn(FieldReader<PieceReader>) -> Result<T>;

/// Pieces in the channel: the parser is rarely slower than the reader.
const PIECES_MAX: usize = 4;

/// A document up to this length gets no thread: an archive may name millions of bank files, and
/// starting a thread for each would take a minute instead of seconds.
const SMALL_BYTES_MAX: u64 = 16 * 1024;

/// Limit on a document that is held in memory for lack of a thread: about the size of mainnet's
/// bank file.
const HELD_BYTES_MAX: usize = 1024 * 1024 * 1024;

impl<T: Send + 'static> Pushed<T> {
    fn start(length_bytes: u64, name: &'static str, parse: Parse<T>) -> Self {
        let (pieces, receiver) = bounded(PIECES_MAX);
        let parse_from = move |pieces: Receiver<Vec<u8>>, current| {
            let reader = PieceReader { pieces, current, at: 0 };
            guarded(|| {
                panic_point("document");
                parse(FieldReader::new(reader, length_bytes, name))
            })
        };
        let on_thread = receiver.clone();
        let work = move || parse_from(on_thread, Vec::new());
        let started = (length_bytes > SMALL_BYTES_MAX).then(|| Builder::new().spawn(work));
        let parser = match started.transpose() {
            Ok(Some(thread)) => Parser::Thread(thread),
            failed => Parser::Here {
                parse: Box::new(move |held| parse_from(receiver, held)),
                held: Vec::new(),
                error: failed.err().map(|error| cannot_start(&error)),
            },
        };
        Self { pieces, parser }
    }

    fn push(&mut self, bytes: &[u8]) {
        match &mut self.parser {
            // `send` fails if the parser has ended: it has found an error already.
            Parser::Thread(_) => drop(self.pieces.send(bytes.to_vec())),
            // One byte more than the limit is kept, to show that the document is too long.
            Parser::Here { held, .. } => {
                let room = (HELD_BYTES_MAX + 1).saturating_sub(held.len());
                held.extend_from_slice(split_at_most(bytes, room).0);
            }
        }
    }

    fn finish(self) -> Result<T> {
        drop(self.pieces);
        match self.parser {
            Parser::Thread(thread) => thread.join().unwrap_or_else(|payload| Err(panicked(payload.as_ref()))),
            Parser::Here { held, error: Some(error), .. } if held.len() > HELD_BYTES_MAX => Err(error),
            Parser::Here { parse, held, .. } => parse(held),
        }
    }
}

struct PieceReader {
    pieces: Receiver<Vec<u8>>,
    current: Vec<u8>,
    at: usize,
}

impl BufRead for PieceReader {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        while self.at == self.current.len() {
            match self.pieces.recv() {
                Ok(piece) => (self.current, self.at) = (piece, 0),
                Err(_) => return Ok(&[]),
            }
        }
        Ok(self.current.get(self.at..).unwrap_or_default())
    }

    fn consume(&mut self, count: usize) {
        self.at = self.at.saturating_add(count).min(self.current.len());
    }
}

impl Read for PieceReader {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let count = copy_at_most(self.fill_buf()?, to);
        self.consume(count);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use slotpress_format::Entry;

    use super::*;

    #[test]
    fn a_small_document_takes_no_thread() {
        let mut reader = DocumentReader::default();
        for (content_bytes, has_thread) in [(0, false), (SMALL_BYTES_MAX, false), (SMALL_BYTES_MAX + 1, true)] {
            reader.begin(&Entry { kind: EntryKind::BankFile(7), content_bytes });
            let Some(Current::Bank(pushed)) = &reader.current else { panic!("a bank file") };
            assert_eq!(matches!(pushed.parser, Parser::Thread(_)), has_thread, "{content_bytes}");
            reader.content(&[1]);
            reader.end();
            let error = reader.found.bank.take().expect("parsed").expect_err("not a bank file");
            assert!(error.to_string().contains("the bank file"), "{error}");
        }
    }
}
