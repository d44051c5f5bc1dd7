//! Creates bodies of responses. A file is sent in pieces. Each piece is read when the connection is ready for it.

use std::io;
use std::sync::Arc;

use futures_util::stream::try_unfold;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use slotpress_base::to_usize;

use super::connection::ConnectionProgress;
use super::respond::{Content, FileContent};

type Body = UnsyncBoxBody<Bytes, io::Error>;

pub fn create_body(content: Content, progress: &Arc<ConnectionProgress>) -> Body {
    match content {
        Content::Bytes(bytes) => Full::new(bytes).map_err(|never| match never {}).boxed_unsync(),
        Content::File(file) => {
            let progress = progress.clone();
            let pieces = try_unfold(file, move |file| next_piece(file, progress.clone()));
            StreamBody::new(pieces).boxed_unsync()
        }
    }
}

/// Returns the next piece of a file as soon as the rate limits allow it; `None` at the end.
async fn next_piece(
    mut file: FileContent,
    progress: Arc<ConnectionProgress>,
) -> io::Result<Option<(Frame<Bytes>, FileContent)>> {
    if file.next_offset >= file.reader.range.end {
        return Ok(None);
    }
    progress.begin_step();
    let max = file.admission.piece_bytes_max();
    let length = file.reader.piece_bytes(file.next_offset, max);
    file.admission.wait_for_rate(length).await;
    let piece = file.read_piece(length).await?;
    file.running_request.advance(length);
    progress.end_step();
    file.next_offset = file.next_offset.saturating_add(length);
    file.last_piece = piece.clone();
    Ok(Some((Frame::data(piece), file)))
}

impl FileContent {
    /// Reads a piece: on this thread if it is in the page cache, otherwise on a thread that may block.
    async fn read_piece(&mut self, length: u64) -> io::Result<Bytes> {
        let offset = self.next_offset;
        let reader = self.reader.clone();
        let is_resident = reader.is_resident(offset);
        let last_piece = std::mem::take(&mut self.last_piece);
        let read = move || {
            if !is_resident {
                reader.prefetch(offset);
            }
            // Reuses the buffer of the last piece if that piece was sent completely and the buffer is not much
            // longer than necessary. The system clears new memory, which takes as long as reading.
            let mut buffer = match last_piece.try_into_mut() {
                Ok(buffer) if buffer.capacity() as u64 / 2 <= length => buffer,
                _ => Default::default(),
            };
            buffer.resize(to_usize(length), 0);
            reader.read(offset, &mut buffer)?;
            Ok(buffer.freeze())
        };
        if is_resident { read() } else { tokio::task::spawn_blocking(read).await.map_err(io::Error::other)? }
    }
}
