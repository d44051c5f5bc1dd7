//! Reads an archive from a server that sends no ranges: once, from the first byte to the last.

use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use slotpress_base::{
    CancelToken, Error, ErrorKind, EscapePath, Result, copy_at_most, hint, saturating_add_to, to_usize,
};
use slotpress_read::{Source, TransferTotals};

use super::retries::Retries;
use super::url_source::READ_PATIENCE;
use super::{Body, Client, Remote, show_url};

/// Number of bytes that are kept from the beginning, because they are read once to detect the compression,
/// and once more to decode them.
const FRONT_BYTES: u64 = 4096;

/// An archive that is sent over one connection. Bytes can be read only in order.
#[derive(Debug)]
pub struct StreamSource {
    client: Client,
    remote: Remote,
    path: PathBuf,
    cancel: CancelToken,
    transfer: Mutex<Transfer>,
}

#[derive(Debug)]
struct Transfer {
    body: Body,
    totals: TransferTotals,
    /// First bytes of the archive, which can be read again.
    front: Vec<u8>,
    piece: Vec<u8>,
    /// Offset of the first byte of `piece`.
    piece_offset_bytes: u64,
    is_complete: bool,
}

impl StreamSource {
    /// Requests a file, and retries until the first bytes have arrived. After `cancel` is cancelled, reads
    /// fail.
    ///
    /// # Errors
    /// The server has failed for 15 seconds, or in a way that another request would not change.
    pub fn open(client: &Client, remote: Remote, cancel: CancelToken) -> Result<Self> {
        // Counts the request for the description of the file, which the caller made.
        let mut totals = TransferTotals { requests: 1, transferred_bytes: 0 };
        let opened = Retries::new(READ_PATIENCE).run(&cancel, || {
            saturating_add_to(&mut totals.requests, 1);
            let mut body = client.open(&remote, None, &cancel)?;
            let first_piece = body.next(client, &cancel)?;
            Ok((body, first_piece.map(|piece| piece.to_vec())))
        });
        let (body, first_piece) = opened.map_err(add_retry_hint)?;
        let mut transfer =
            Transfer { body, totals, front: Vec::new(), piece: Vec::new(), piece_offset_bytes: 0, is_complete: false };
        transfer.replace_piece(first_piece);
        Ok(Self {
            client: client.clone(),
            path: PathBuf::from(show_url(&remote.url)),
            remote,
            cancel,
            transfer: Mutex::new(transfer),
        })
    }
}

/// Adds a hint to a network error, because a transfer without ranges cannot resume.
fn add_retry_hint(error: Error) -> Error {
    if error.kind() == ErrorKind::Network && error.hint().is_none() {
        error.with_hint("try again later")
    } else {
        error
    }
}

impl Transfer {
    fn read(&mut self, source: &StreamSource, buf: &mut [u8], offset_bytes: u64) -> Result<usize> {
        let front = self.front.get(to_usize(offset_bytes)..).unwrap_or_default();
        if !front.is_empty() {
            return Ok(copy_at_most(front, buf));
        }
        while !self.is_complete && offset_bytes >= self.piece_end() {
            let next = self.body.next(&source.client, &source.cancel).map_err(|error| add_retry_hint(error.into()))?;
            self.replace_piece(next.map(|piece| piece.to_vec()));
        }
        let offset_in_piece = offset_bytes.checked_sub(self.piece_offset_bytes);
        match offset_in_piece.and_then(|offset_in_piece| self.piece.get(to_usize(offset_in_piece)..)) {
            Some(bytes) => Ok(copy_at_most(bytes, buf)),
            None if self.is_complete && offset_in_piece.is_some() => Ok(0),
            None => Err(Error::failed("the server sends no ranges: bytes that were sent before cannot be read again")
                .with_hint(hint::USE_FETCH)),
        }
    }

    /// Replaces the piece with the next one, which is `None` at the end of the archive.
    fn replace_piece(&mut self, next: Option<Vec<u8>>) {
        self.piece_offset_bytes = self.piece_end();
        self.is_complete = next.is_none();
        self.piece = next.unwrap_or_default();
        saturating_add_to(&mut self.totals.transferred_bytes, self.piece.len() as u64);
        if self.piece_offset_bytes < FRONT_BYTES {
            let kept_bytes = to_usize(FRONT_BYTES.saturating_sub(self.piece_offset_bytes));
            self.front.extend(self.piece.iter().take(kept_bytes));
        }
    }

    fn piece_end(&self) -> u64 {
        self.piece_offset_bytes.saturating_add(self.piece.len() as u64)
    }
}

impl Source for StreamSource {
    fn path(&self) -> &Path {
        &self.path
    }

    fn length_bytes(&self) -> Option<u64> {
        self.remote.length_bytes
    }

    fn transfer_totals(&self) -> Option<TransferTotals> {
        Some(self.transfer.lock().totals)
    }

    fn read_at(&self, buf: &mut [u8], offset_bytes: u64) -> io::Result<usize> {
        let read = self.transfer.lock().read(self, buf, offset_bytes);
        // Network errors already name the server.
        read.map_err(|error| match error.kind() {
            ErrorKind::Failed => io::Error::other(error.with_place(self.path.escaped())),
            _ => io::Error::other(error),
        })
    }

    fn is_stream(&self) -> bool {
        true
    }
}
