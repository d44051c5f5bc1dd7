//! Bodies of responses: files in pieces, which are read when the connection takes the next one.

use std::io;
use std::sync::Arc;

use futures_util::stream::try_unfold;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use parking_lot::Mutex;
use slotpress_base::bytes::count;
use slotpress_base::to_usize;

use super::limits::Admission;
use super::respond::{Content, FileContent};

/// Read at a time: what is read is still in the processor's cache when it is sent. A transfer holds one piece, or the end of one
/// and the next.
const PIECE_BYTES: u64 = 512 * 1024;

/// Buffers that wait for their next use.
const SPARE_BUFFERS_MAX: usize = 64;

/// The body of a response of a connection that was admitted.
pub fn body(content: Content, admission: &Arc<Admission>, buffers: &Arc<Buffers>) -> UnsyncBoxBody<Bytes, io::Error> {
    match content {
        Content::Bytes(bytes) => Full::new(bytes).map_err(|never| match never {}).boxed_unsync(),
        Content::File(mut file) => {
            let admission = file.client.take().unwrap_or_else(|| admission.clone());
            let offset = file.reading.range().start;
            let pieces = try_unfold(
                (offset, file, admission, buffers.clone()),
                |(mut offset, file, admission, buffers)| async move {
                    if offset >= file.reading.range().end {
                        return Ok(None);
                    }
                    let most = admission.piece_bytes().unwrap_or(PIECE_BYTES);
                    let length = file.reading.piece_bytes(offset, most);
                    admission.wait(length).await;
                    let piece = read(&file, offset, length, &buffers).await?;
                    file.running.advance(length);
                    count(&mut offset, length);
                    Ok(Some((Frame::data(piece), (offset, file, admission, buffers))))
                },
            );
            StreamBody::new(pieces).boxed_unsync()
        }
    }
}

/// Reads a piece: here if it is in memory, otherwise on a thread that may wait.
async fn read(file: &FileContent, offset: u64, length: u64, buffers: &Arc<Buffers>) -> io::Result<Bytes> {
    let is_resident = file.reading.is_resident(offset);
    let (reading, buffers) = (file.reading.clone(), buffers.clone());
    let read = move || {
        if !is_resident {
            reading.enter(offset);
        }
        buffers.filled(length, |buffer| reading.read(offset, buffer))
    };
    match is_resident {
        true => read(),
        false => tokio::task::spawn_blocking(read).await.map_err(io::Error::other)?,
    }
}

/// Buffers that are used again: the system clears new ones, which takes as long as reading.
#[derive(Debug, Default)]
pub struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    /// A buffer of this length, filled by `fill`; it comes back when its bytes are sent.
    fn filled(self: &Arc<Self>, length: u64, fill: impl FnOnce(&mut [u8]) -> io::Result<()>) -> io::Result<Bytes> {
        let mut bytes = self.0.lock().pop().unwrap_or_default();
        bytes.resize(to_usize(length), 0);
        let mut buffer = Lent { bytes, buffers: self.clone() };
        fill(&mut buffer.bytes)?;
        Ok(Bytes::from_owner(buffer))
    }
}

#[derive(Debug)]
struct Lent {
    bytes: Vec<u8>,
    buffers: Arc<Buffers>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut spare = self.buffers.0.lock();
        if spare.len() < SPARE_BUFFERS_MAX {
            spare.push(std::mem::take(&mut self.bytes));
        }
    }
}
