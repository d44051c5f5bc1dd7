//! Contents as hyper sends them: pieces of a file are read on threads that may wait, one ahead of what is being sent.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use parking_lot::Mutex;
use slotpress_base::bytes::count;
use slotpress_base::to_usize;
use tokio::sync::mpsc;

use super::limits::Admission;
use super::respond::{Content, FileContent};
use super::transfers::Running;

/// Read at a time: what is read is still in the processor's cache when it is sent. A transfer holds three at most: one being
/// sent, one that waits, one being read.
const PIECE_BYTES: u64 = 256 * 1024;

/// Buffers that wait for their next use.
const SPARE_BUFFERS_MAX: usize = 64;

/// The body of a response.
#[derive(Debug)]
pub enum ContentBody {
    /// All at once, or nothing.
    Bytes(Option<Bytes>),
    /// Pieces.
    File(FileBody),
}

/// Pieces of a file.
#[derive(Debug)]
pub struct FileBody {
    pieces: mpsc::Receiver<io::Result<Bytes>>,
    left_bytes: u64,
    running: Running,
}

impl ContentBody {
    /// Starts reading, where there is something to read.
    pub fn new(content: Content, admission: &Arc<Admission>, buffers: &Arc<Buffers>) -> Self {
        match content {
            Content::None => Self::Bytes(None),
            Content::Bytes(bytes) => Self::Bytes(Some(bytes).filter(|bytes| !bytes.is_empty())),
            Content::File(FileContent { reading, running, client }) => {
                let (sender, pieces) = mpsc::channel(1);
                let range = reading.range();
                let (admission, buffers) = (client.unwrap_or_else(|| admission.clone()), buffers.clone());
                tokio::spawn(async move {
                    let mut offset = range.start;
                    while offset < range.end {
                        let most = admission.piece_bytes().unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
                        let length = reading.piece_bytes(offset, most);
                        admission.wait(length).await;
                        let Ok(permit) = sender.reserve().await else { return };
                        let (reading, buffers) = (reading.clone(), buffers.clone());
                        let read = move || buffers.filled(length, |buffer| reading.read(offset, buffer).map(drop));
                        let piece = tokio::task::spawn_blocking(read).await;
                        let piece = piece.unwrap_or_else(|error| Err(io::Error::other(error)));
                        let has_failed = piece.is_err();
                        permit.send(piece);
                        if has_failed {
                            return;
                        }
                        count(&mut offset, length);
                    }
                });
                let left_bytes = running.total_bytes();
                Self::File(FileBody { pieces, left_bytes, running })
            }
        }
    }
}

impl Body for ContentBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match &mut *self {
            Self::Bytes(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::File(file) => file.pieces.poll_recv(context).map(|piece| {
                let piece = piece?;
                if let Ok(bytes) = &piece {
                    file.left_bytes = file.left_bytes.saturating_sub(bytes.len() as u64);
                    file.running.advance(bytes.len() as u64);
                }
                Some(piece.map(Frame::data))
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Bytes(bytes) => bytes.is_none(),
            Self::File(file) => file.left_bytes == 0,
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(match self {
            Self::Bytes(bytes) => bytes.as_ref().map_or(0, |bytes| bytes.len() as u64),
            Self::File(file) => file.left_bytes,
        })
    }
}

/// Buffers that are used again: the system clears new ones, which takes as long as reading.
#[derive(Debug, Default)]
pub struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    /// A buffer of this length, filled by `fill`; it comes back when its bytes are sent.
    fn filled(self: &Arc<Self>, length: u64, fill: impl FnOnce(&mut [u8]) -> io::Result<()>) -> io::Result<Bytes> {
        let spare = self.0.lock().pop();
        let mut buffer = Lent { bytes: spare.unwrap_or_default(), home: self.clone(), length: to_usize(length) };
        if buffer.bytes.len() < buffer.length {
            buffer.bytes.resize(buffer.length, 0);
        }
        fill(buffer.bytes.get_mut(..buffer.length).unwrap_or_default())?;
        Ok(Bytes::from_owner(buffer))
    }
}

#[derive(Debug)]
struct Lent {
    bytes: Vec<u8>,
    length: usize,
    home: Arc<Buffers>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut spare = self.home.0.lock();
        if spare.len() < SPARE_BUFFERS_MAX {
            spare.push(std::mem::take(&mut self.bytes));
        }
    }
}
