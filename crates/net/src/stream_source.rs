//! Reads an archive from a server that sends no ranges: once, from the first byte to the last.

use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use parking_lot::Mutex;
use slotpress_base::bytes::count;
use slotpress_base::threads::{guarded, panic_point};
use slotpress_base::{CancelToken, Error, ErrorKind, Hint, IoContext, Result, ShowPath, copy_at_most, to_usize};
use slotpress_read::Source;

use super::url_source::{TRIES_MAX, Transferred, pause};
use super::{Client, Remote, shown};

/// Number of received pieces that wait for the reader. A piece is as long as a read from the
/// connection: at most 64 KiB, the size of its buffer.
const PIECES_MAX: usize = 64;

/// Number of bytes at the beginning that are kept: those that tell the compression are read twice.
const FRONT_BYTES: u64 = 4096;

/// An archive that is sent over one connection. Bytes can be read only in order.
pub struct StreamSource {
    remote: Remote,
    path: PathBuf,
    taken: Arc<Counts>,
    reading: Mutex<Reading>,
}

#[derive(Debug)]
struct Counts {
    requests: AtomicU64,
    bytes: AtomicU64,
}

struct Reading {
    pieces: Receiver<Result<Vec<u8>>>,
    /// First bytes of the archive, which can be read again.
    front: Vec<u8>,
    /// Piece that is being read.
    piece: Vec<u8>,
    /// Offset of the first byte of `piece`.
    piece_at: u64,
    is_over: bool,
}

impl fmt::Debug for StreamSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamSource").field("path", &self.path).finish_non_exhaustive()
    }
}

impl StreamSource {
    /// Starts to receive a file on a thread of its own. Setting `stop` ends all reads with an
    /// error.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn open(client: &Client, remote: Remote, stop: CancelToken) -> Result<Self> {
        let (sender, pieces) = sync_channel(PIECES_MAX);
        // Counts the request for the file's facts, which the caller made.
        let taken = Arc::new(Counts { requests: AtomicU64::new(1), bytes: AtomicU64::new(0) });
        let path = PathBuf::from(shown(&remote.url));
        let (client, of_thread, counted) = (client.clone(), remote.clone(), taken.clone());
        // The thread ends when the source is dropped, because sending fails then.
        std::thread::Builder::new()
            .name("stream".to_string())
            .spawn(move || receive(&client, &of_thread, &stop, &counted, &sender))
            .or_path("start a thread for", &path)?;
        let reading = Reading { pieces, front: Vec::new(), piece: Vec::new(), piece_at: 0, is_over: false };
        Ok(Self { remote, path, taken, reading: Mutex::new(reading) })
    }

    pub fn remote(&self) -> &Remote {
        &self.remote
    }

    pub fn transferred(&self) -> Transferred {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Transferred { requests: of(&self.taken.requests), bytes: of(&self.taken.bytes) }
    }
}

/// Receives the file and sends it piece by piece. An empty piece marks the end of the file. Repeats
/// the request if it fails before the first byte.
fn receive(client: &Client, remote: &Remote, stop: &CancelToken, taken: &Counts, to: &SyncSender<Result<Vec<u8>>>) {
    let end = guarded(|| {
        panic_point("sent stream");
        let mut tries = 0u32;
        loop {
            taken.requests.fetch_add(1, Ordering::Relaxed);
            let result = client.get(remote, None, stop, &mut |_, piece| {
                taken.bytes.fetch_add(piece.len() as u64, Ordering::Relaxed);
                match piece.is_empty() || to.send(Ok(piece.to_vec())).is_ok() {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            });
            tries = tries.saturating_add(1);
            match result {
                Ok(_) => return Ok(Vec::new()),
                // Without ranges, a transfer cannot go on where it broke off.
                Err(error) if error.is_retryable() && tries < TRIES_MAX && taken.bytes.load(Ordering::Relaxed) == 0 => {
                    pause(&error, tries, stop)?;
                }
                Err(error) => return Err(Error::from(error).with_hint("try again later")),
            }
        }
    });
    // Fails if the source was dropped. Nobody waits for the end then.
    let _ = to.send(end);
}

impl Reading {
    fn read(&mut self, to: &mut [u8], offset_bytes: u64) -> Result<usize> {
        if let Some(front) = self.front.get(to_usize(offset_bytes)..).filter(|front| !front.is_empty()) {
            return Ok(copy_at_most(front, to));
        }
        while !self.is_over && offset_bytes >= self.end() {
            self.piece_at = self.end();
            let ended = || Err(Error::failed("the thread of the connection ended"));
            self.piece = self.pieces.recv().unwrap_or_else(|_| ended())?;
            self.is_over = self.piece.is_empty();
            if self.piece_at < FRONT_BYTES && self.piece_at == self.front.len() as u64 {
                self.front.extend(self.piece.iter().take(to_usize(FRONT_BYTES.saturating_sub(self.piece_at))));
            }
        }
        let within = offset_bytes.checked_sub(self.piece_at);
        match within.and_then(|within| self.piece.get(to_usize(within)..)) {
            Some(bytes) => Ok(copy_at_most(bytes, to)),
            None if self.is_over && within.is_some() => Ok(0),
            None => Err(Error::failed("the server sends no ranges: what was sent before cannot be read again")
                .with_hint(Hint::UseFetch)),
        }
    }

    fn end(&self) -> u64 {
        let mut end = self.piece_at;
        count(&mut end, self.piece.len() as u64);
        end
    }
}

impl Source for StreamSource {
    fn path(&self) -> &Path {
        &self.path
    }

    fn length_bytes(&self) -> Option<u64> {
        self.remote.length_bytes
    }

    fn read_at(&self, to: &mut [u8], offset_bytes: u64) -> io::Result<usize> {
        let read = self.reading.lock().read(to, offset_bytes);
        // Network errors already name the server.
        read.map_err(|error| match error.kind() {
            ErrorKind::Failed => io::Error::other(error.within(self.path.shown())),
            _ => io::Error::other(error),
        })
    }

    fn is_stream(&self) -> bool {
        true
    }
}
