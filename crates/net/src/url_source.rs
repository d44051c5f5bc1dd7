//! Reads an archive on a server with range requests, and only the pieces that are needed.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use slotpress_base::{CancelToken, Error, ErrorKind, Result, copy_at_most, hint, range_bytes, to_usize};
use slotpress_read::{ArchiveInput, Source, TransferTotals};

use super::fetch::mirrors::Mirror;
use super::{Client, NetError, NetErrorKind, Remote, Url, show_url};

/// Smallest number of bytes per request, for small reads such as a frame's header.
const PIECE_BYTES_MIN: u64 = 64 * 1024;

/// Largest number of bytes per request for small reads. Each consecutive read doubles the piece, up
/// to this length, to save round trips.
const PIECE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// The cache has room for the tail and two of the largest pieces.
const CACHE_BYTES_MAX: usize = 24 * 1024 * 1024;

/// Number of bytes at the archive's end that are requested at once. The seek table and the index of a
/// mainnet archive fit into them.
const TAIL_BYTES: u64 = 8 * 1024 * 1024;

/// Time after which a read gives up on a failing server. It is short, because a user waits.
pub(crate) const READ_PATIENCE: Duration = Duration::from_secs(15);

/// An archive on a server that sends ranges.
#[derive(Debug)]
pub struct UrlSource {
    client: Client,
    mirror: Mirror,
    length_bytes: u64,
    path: PathBuf,
    cancel: CancelToken,
    cache: Mutex<Cache>,
}

#[derive(Debug, Default)]
struct Cache {
    /// Pieces in the order of their last use.
    pieces: Vec<CachedPiece>,
    last_requested: Range<u64>,
}

#[derive(Debug)]
struct CachedPiece {
    start: u64,
    bytes: Vec<u8>,
}

impl CachedPiece {
    fn copy(&self, buf: &mut [u8], offset_bytes: u64) -> Option<usize> {
        let from = usize::try_from(offset_bytes.checked_sub(self.start)?).ok()?;
        let bytes = self.bytes.get(from..).filter(|bytes| !bytes.is_empty())?;
        Some(copy_at_most(bytes, buf))
    }
}

impl UrlSource {
    /// Opens a file: requests its size. After `cancel` is cancelled, reads fail.
    ///
    /// # Errors
    /// The server does not answer, does not state a size, or does not support ranges.
    pub fn open(client: &Client, url: &Url, cancel: CancelToken) -> Result<Self> {
        let remote = client.head(url, &cancel)?;
        Self::from_remote(client, remote, cancel)
    }

    /// Same as [`UrlSource::open`], for a file that was described by an earlier request.
    ///
    /// # Errors
    /// The server does not state a size, or does not support ranges.
    pub fn from_remote(client: &Client, remote: Remote, cancel: CancelToken) -> Result<Self> {
        let (Some(length_bytes), true) = (remote.length_bytes, remote.accepts_ranges) else {
            let message = format!("{}: the server does not send ranges of the file", show_url(&remote.url));
            return Err(Error::new(ErrorKind::Network, message).with_hint(hint::USE_FETCH));
        };
        Ok(Self {
            client: client.clone(),
            path: PathBuf::from(show_url(&remote.url)),
            mirror: Mirror::new(remote, READ_PATIENCE),
            length_bytes,
            cancel,
            cache: Mutex::default(),
        })
    }

    pub fn remote(&self) -> &Remote {
        &self.mirror.remote
    }

    /// Chooses the range to request for a small read at an offset.
    fn choose_range(&self, cache: &mut Cache, offset_bytes: u64) -> Range<u64> {
        let tail_start = self.length_bytes.saturating_sub(TAIL_BYTES);
        if offset_bytes >= tail_start {
            return tail_start..self.length_bytes;
        }
        let mut piece_bytes = PIECE_BYTES_MIN;
        if cache.last_requested.end == offset_bytes {
            let doubled_bytes = range_bytes(&cache.last_requested).saturating_mul(2);
            piece_bytes = doubled_bytes.clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX);
        }
        cache.last_requested = offset_bytes..offset_bytes.saturating_add(piece_bytes).min(self.length_bytes);
        cache.last_requested.clone()
    }

    fn fetch(&self, range: &Range<u64>, on_bytes: &mut dyn FnMut(&[u8])) -> Result<()> {
        let fetched = self.mirror.fetch_range(&self.client, range.clone(), &self.cancel, &mut |_, bytes| {
            on_bytes(bytes);
            Ok(bytes.len() as u64)
        });
        fetched.map_err(|error| match NetError::find_in(&error).map(NetError::kind) {
            Some(NetErrorKind::NoRanges) => error.with_hint(hint::USE_FETCH),
            Some(NetErrorKind::Changed) => error.with_hint("start again: the file was replaced"),
            Some(_) if error.hint().is_none() => error.with_hint("try again later"),
            _ => error,
        })
    }

    fn read(&self, buf: &mut [u8], offset_bytes: u64) -> Result<usize> {
        let remaining_bytes = self.length_bytes.saturating_sub(offset_bytes);
        let wanted_bytes = remaining_bytes.min(buf.len() as u64);
        if wanted_bytes == 0 {
            return Ok(0);
        }
        if let Some(copied) = self.cache.lock().copy(buf, offset_bytes) {
            return Ok(copied);
        }
        // Large reads are not repeated, so their bytes bypass the cache.
        if wanted_bytes >= PIECE_BYTES_MIN && remaining_bytes > TAIL_BYTES {
            let mut filled_bytes = 0usize;
            self.fetch(&(offset_bytes..offset_bytes.saturating_add(wanted_bytes)), &mut |bytes| {
                let copied = copy_at_most(bytes, buf.get_mut(filled_bytes..).unwrap_or_default());
                filled_bytes = filled_bytes.saturating_add(copied);
            })?;
            return Ok(filled_bytes);
        }
        let range = self.choose_range(&mut self.cache.lock(), offset_bytes);
        let mut bytes = Vec::with_capacity(to_usize(range_bytes(&range)));
        self.fetch(&range, &mut |piece| bytes.extend_from_slice(piece))?;
        let piece = CachedPiece { start: range.start, bytes };
        let copied = piece.copy(buf, offset_bytes).unwrap_or_default();
        self.cache.lock().insert(piece);
        Ok(copied)
    }
}

impl Cache {
    fn copy(&mut self, buf: &mut [u8], offset_bytes: u64) -> Option<usize> {
        for index in 0..self.pieces.len() {
            if let Some(copied) = self.pieces.get(index)?.copy(buf, offset_bytes) {
                let piece = self.pieces.remove(index);
                self.pieces.push(piece);
                return Some(copied);
            }
        }
        None
    }

    fn insert(&mut self, piece: CachedPiece) {
        self.pieces.push(piece);
        while self.pieces.iter().map(|piece| piece.bytes.len()).sum::<usize>() > CACHE_BYTES_MAX {
            self.pieces.remove(0);
        }
    }
}

impl Source for UrlSource {
    fn path(&self) -> &Path {
        &self.path
    }

    fn length_bytes(&self) -> Option<u64> {
        Some(self.length_bytes)
    }

    fn read_at(&self, buf: &mut [u8], offset_bytes: u64) -> io::Result<usize> {
        self.read(buf, offset_bytes).map_err(io::Error::other)
    }

    fn transfer_totals(&self) -> Option<TransferTotals> {
        // One more request asked for the size of the file.
        let requests = self.mirror.requests.load(Ordering::Relaxed).saturating_add(1);
        Some(TransferTotals { requests, transferred_bytes: self.mirror.useful_bytes() })
    }
}

/// Opens an archive on a server that sends ranges. Only the needed parts are read. After `cancel` is
/// cancelled, reads fail.
///
/// # Errors
/// The server does not answer, does not state the file's length, or does not send ranges. Such an
/// archive has to be fetched.
pub fn open_archive_at_url(client: &Client, url: &Url, cancel: CancelToken) -> Result<ArchiveInput> {
    let source = UrlSource::open(client, url, cancel)?;
    let name = source.remote().archive_name();
    Ok(ArchiveInput::from_source(Arc::new(source), name))
}
