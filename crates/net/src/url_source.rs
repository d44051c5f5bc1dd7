//! Reads an archive on a server by range requests: only the pieces that are needed.

use std::io;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use slotpress_base::bytes::count;
use slotpress_base::progress::{self};
use slotpress_base::{
    CancelToken, Error, ErrorKind, Hint, Progress, Result, copy_at_most, range_bytes, split_at_most, to_usize,
};
use slotpress_read::{NamedArchive, Source};

use super::{Client, NetError, NetErrorKind, Remote, Url, shown};

/// Smallest number of bytes per request, for small reads such as a frame's header.
const PIECE_BYTES: u64 = 64 * 1024;

/// Largest number of bytes per request for small reads. Consecutive reads double the piece up to
/// this, for fewer round trips.
const PIECE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Limit on cached bytes, without the tail.
const CACHE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Number of bytes at the end that are requested at once. Seek table and index of mainnet's
/// archives take 4 MB.
const TAIL_BYTES: u64 = 8 * 1024 * 1024;

/// Number of attempts without progress before a read fails.
pub(crate) const TRIES_MAX: u32 = 5;

/// Smallest number of bytes that count as progress on a connection that became too slow.
const PROGRESS_BYTES_MIN: u64 = PIECE_BYTES / 2;

/// Pause before the second attempt; it doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// Number of requests and bytes of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Transferred {
    pub requests: u64,
    #[serde(rename = "transferred_bytes")]
    pub bytes: u64,
}

/// An archive on a server that sends ranges.
#[derive(Debug)]
pub struct UrlSource {
    client: Client,
    remote: Remote,
    length_bytes: u64,
    path: PathBuf,
    stop: CancelToken,
    cache: Mutex<Cache>,
    requests: AtomicU64,
    bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct Cache {
    /// Pieces in the order of their last use.
    pieces: Vec<Piece>,
    tail: Option<Piece>,
    /// End and length of the last piece that was requested.
    last: Option<(u64, u64)>,
}

#[derive(Debug)]
struct Piece {
    start: u64,
    bytes: Vec<u8>,
}

impl Piece {
    fn copy(&self, to: &mut [u8], offset_bytes: u64) -> Option<usize> {
        let from = usize::try_from(offset_bytes.checked_sub(self.start)?).ok()?;
        let bytes = self.bytes.get(from..).filter(|bytes| !bytes.is_empty())?;
        Some(copy_at_most(bytes, to))
    }
}

impl UrlSource {
    /// Opens a file: requests its size. Setting `stop` ends all reads with an error.
    ///
    /// # Errors
    /// The server does not answer, does not tell a size, or does not support ranges.
    pub fn open(client: &Client, url: &Url, stop: CancelToken) -> Result<Self> {
        let remote = client.head(url, &stop)?;
        Self::of_remote(client, remote, stop)
    }

    /// Same as [`UrlSource::open`], for a file whose facts are known.
    ///
    /// # Errors
    /// The server does not tell a size, or does not support ranges.
    pub fn of_remote(client: &Client, remote: Remote, stop: CancelToken) -> Result<Self> {
        let Some(length_bytes) = remote.length_bytes.filter(|_| remote.accepts_ranges) else {
            return Err(no_ranges(&remote.url));
        };
        Ok(Self {
            client: client.clone(),
            path: PathBuf::from(shown(&remote.url)),
            remote,
            length_bytes,
            stop,
            cache: Mutex::default(),
            requests: AtomicU64::new(1),
            bytes: AtomicU64::new(0),
        })
    }

    pub fn remote(&self) -> &Remote {
        &self.remote
    }

    pub fn transferred(&self) -> Transferred {
        Transferred { requests: self.requests.load(Ordering::Relaxed), bytes: self.bytes.load(Ordering::Relaxed) }
    }

    /// Chooses the range to request for a small read at an offset.
    fn piece_around(&self, cache: &mut Cache, offset_bytes: u64) -> Range<u64> {
        let tail_at = self.length_bytes.saturating_sub(TAIL_BYTES);
        if offset_bytes >= tail_at {
            return tail_at..self.length_bytes;
        }
        let length = match cache.last {
            Some((end, length)) if end == offset_bytes => length.saturating_mul(2).min(PIECE_BYTES_MAX),
            _ => PIECE_BYTES,
        };
        let range = offset_bytes..offset_bytes.saturating_add(length).min(self.length_bytes);
        cache.last = Some((range.end, length));
        range
    }

    /// Downloads a range. Repeats a request that failed for a passing reason, from the last
    /// received byte on.
    fn fetch(&self, range: &Range<u64>, take: &mut dyn FnMut(&[u8])) -> Result<()> {
        let mut at = range.start;
        let mut tries = 0u32;
        while at < range.end {
            self.requests.fetch_add(1, Ordering::Relaxed);
            let before = at;
            let result = self.client.get(&self.remote, Some(at..range.end), &self.stop, &mut |offset, bytes| {
                if offset != at {
                    return ControlFlow::Break(());
                }
                self.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                let (wanted, _) = split_at_most(bytes, to_usize(range.end.saturating_sub(at)));
                take(wanted);
                count(&mut at, wanted.len() as u64);
                // A server that sends more than the range sends the whole file.
                if at >= range.end { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            match result {
                Ok(transfer) if transfer.is_whole && at < range.end => {
                    return Err(no_ranges(&self.remote.url));
                }
                Ok(_) => {}
                Err(error) if error.is_retryable() => {
                    // A few bytes of a connection that was too slow do not count as progress.
                    let least = if error.kind() == NetErrorKind::Timeout { PROGRESS_BYTES_MIN } else { 1 };
                    tries = if at.saturating_sub(before) >= least { 1 } else { tries.saturating_add(1) };
                    if tries >= TRIES_MAX {
                        return Err(Error::from(error).with_hint("try again later"));
                    }
                    pause(&error, tries, &self.stop)?;
                }
                Err(error) if error.kind() == NetErrorKind::Changed => {
                    return Err(Error::from(error).with_hint("start again: another file is there now"));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn read(&self, to: &mut [u8], offset_bytes: u64) -> Result<usize> {
        let left = self.length_bytes.saturating_sub(offset_bytes);
        let wanted = (to.len() as u64).min(left);
        if wanted == 0 {
            return Ok(0);
        }
        let is_in_tail = offset_bytes >= self.length_bytes.saturating_sub(TAIL_BYTES);
        if let Some(copied) = self.cache.lock().copy(to, offset_bytes) {
            return Ok(copied);
        }
        // Large reads are not repeated: bytes go directly to the caller, past the cache.
        if wanted >= PIECE_BYTES && !is_in_tail {
            let mut filled = 0usize;
            self.fetch(&(offset_bytes..offset_bytes.saturating_add(wanted)), &mut |bytes| {
                let copied = copy_at_most(bytes, to.get_mut(filled..).unwrap_or_default());
                filled = filled.saturating_add(copied);
            })?;
            return Ok(filled);
        }
        let range = self.piece_around(&mut self.cache.lock(), offset_bytes);
        let mut bytes = Vec::with_capacity(to_usize(range_bytes(&range)));
        self.fetch(&range, &mut |piece| bytes.extend_from_slice(piece))?;
        let piece = Piece { start: range.start, bytes };
        let copied = piece.copy(to, offset_bytes).unwrap_or_default();
        self.cache.lock().keep(piece, is_in_tail);
        Ok(copied)
    }
}

/// Waits after an attempt without progress.
pub(crate) fn pause(error: &NetError, tries: u32, stop: &CancelToken) -> Result<()> {
    let wait = error.retry_after().unwrap_or(FIRST_WAIT.saturating_mul(1 << tries.saturating_sub(1).min(6)));
    progress::wait(stop, wait);
    stop.check()
}

impl Cache {
    fn copy(&mut self, to: &mut [u8], offset_bytes: u64) -> Option<usize> {
        if let Some(copied) = self.tail.as_ref().and_then(|tail| tail.copy(to, offset_bytes)) {
            return Some(copied);
        }
        let (at, copied) =
            self.pieces.iter().enumerate().find_map(|(at, piece)| Some((at, piece.copy(to, offset_bytes)?)))?;
        let used = self.pieces.remove(at);
        self.pieces.push(used);
        Some(copied)
    }

    fn keep(&mut self, piece: Piece, is_tail: bool) {
        if is_tail {
            self.tail = Some(piece);
            return;
        }
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

    fn read_at(&self, to: &mut [u8], offset_bytes: u64) -> io::Result<usize> {
        self.read(to, offset_bytes).map_err(io::Error::other)
    }
}

fn no_ranges(url: &Url) -> Error {
    Error::new(ErrorKind::Network, format!("{}: the server does not send ranges of the file", shown(url)))
        .with_hint(Hint::UseFetch)
}

/// Opens an archive on a server that sends ranges. Only the needed parts are read. Reads fail once
/// the token is cancelled.
///
/// # Errors
/// The server does not answer, does not tell the file's length, or does not send ranges. The
/// archive has to be fetched then.
pub fn archive_at_url(client: &Client, url: &Url, cancel: CancelToken) -> Result<NamedArchive> {
    let source = UrlSource::open(client, url, cancel)?;
    let name = source.remote().archive_name();
    Ok(NamedArchive::from_source(Arc::new(source), name))
}
