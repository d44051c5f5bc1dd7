//! Reading the bank file while it streams by: a thread parses what another decodes, so that neither a file nor a
//! gigabyte of memory is needed in between.

use {
    crate::{
        error::{Error, Result},
        format::{entry::EntryKind, entry_parser::TarEvent},
        ledger::{
            bank_file::{BankFile, StorageMapItem, parse_bank_file},
            fields::FieldReader,
            lists::STORAGES_MAX,
        },
    },
    crossbeam_channel::{Receiver, Sender, bounded},
    std::{
        io::{self, BufRead, Read},
        thread::JoinHandle,
    },
};

/// Pieces that may wait between the two threads; each is at most a frame long.
const PIECES_MAX: usize = 4;

/// A bank file that is on its way through.
#[derive(Debug)]
pub struct BankFileStream {
    pieces: Sender<Vec<u8>>,
    parser: JoinHandle<Result<StreamedBank>>,
}

/// What came out.
#[derive(Clone, Debug)]
pub struct StreamedBank {
    /// The bank.
    pub bank: BankFile,
    /// Its storage map.
    pub storage_map: Vec<StorageMapItem>,
}

impl BankFileStream {
    /// Starts a parser for a bank file of the given length.
    pub fn start(content_bytes: u64) -> Self {
        let (pieces, received) = bounded(PIECES_MAX);
        let parser = std::thread::spawn(move || parse(received, content_bytes));
        Self { pieces, parser }
    }

    /// Hands over the next bytes. A parser that has failed already takes no more; [`Self::finish`] tells why.
    pub fn feed(&self, bytes: &[u8]) {
        let _ = self.pieces.send(bytes.to_vec());
    }

    /// The whole bank file has been handed over.
    pub fn finish(self) -> Result<StreamedBank> {
        drop(self.pieces);
        self.parser.join().unwrap_or_else(|_| Err(Error::failed("the parser of the bank file has died")))
    }
}

/// What tells of which state an archive is, caught as its entries stream by: the version, and the bank file.
#[derive(Debug, Default)]
pub struct StreamedHead {
    /// The version file, or as much of it as a version can be.
    pub version: Vec<u8>,
    bank: Option<BankFileStream>,
    current: Option<EntryKind>,
}

impl StreamedHead {
    /// Looks at the next event of the tar stream.
    pub fn look_at(&mut self, event: &TarEvent<'_>) {
        /// A version takes five bytes; more are no version, and are not kept.
        const VERSION_BYTES_MAX: usize = 64;
        match event {
            TarEvent::Begin(entry) => {
                self.current = Some(entry.kind);
                if matches!(entry.kind, EntryKind::BankFile(_)) && self.bank.is_none() {
                    self.bank = Some(BankFileStream::start(entry.content_bytes));
                }
            }
            TarEvent::Content { bytes, .. } => match (self.current, &self.bank) {
                (Some(EntryKind::Version), _) if self.version.len() < VERSION_BYTES_MAX => {
                    self.version.extend_from_slice(&bytes[..bytes.len().min(VERSION_BYTES_MAX)]);
                }
                (Some(EntryKind::BankFile(_)), Some(bank)) => bank.feed(bytes),
                _ => {}
            },
            TarEvent::End(_) => self.current = None,
        }
    }

    /// The bank, when the stream has ended.
    pub fn finish(&mut self) -> Result<StreamedBank> {
        self.bank.take().ok_or_else(|| Error::damaged("the archive holds no bank file"))?.finish()
    }
}

fn parse(pieces: Receiver<Vec<u8>>, content_bytes: u64) -> Result<StreamedBank> {
    let mut storage_map = Vec::new();
    let reader = PieceReader { pieces, piece: Vec::new(), used: 0 };
    let bank = parse_bank_file(FieldReader::new(reader, content_bytes, "the bank file"), &mut |item| {
        if storage_map.len() as u64 >= STORAGES_MAX {
            return Err(Error::damaged("the bank file's storage map is longer than any snapshot's"));
        }
        storage_map.push(item);
        Ok(())
    })?;
    Ok(StreamedBank { bank, storage_map })
}

struct PieceReader {
    pieces: Receiver<Vec<u8>>,
    piece: Vec<u8>,
    used: usize,
}

impl BufRead for PieceReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.used == self.piece.len() {
            let Ok(piece) = self.pieces.recv() else { return Ok(&[]) };
            (self.piece, self.used) = (piece, 0);
        }
        Ok(&self.piece[self.used..])
    }

    fn consume(&mut self, count: usize) {
        self.used += count;
    }
}

impl Read for PieceReader {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let count = available.len().min(to.len());
        to[..count].copy_from_slice(&available[..count]);
        self.consume(count);
        Ok(count)
    }
}
