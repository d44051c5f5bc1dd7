//! Makes bodies of responses. A file is sent in pieces; each is read when the connection takes it.

use std::io;
use std::sync::Arc;

use futures_util::stream::try_unfold;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use slotpress_base::to_usize;

use super::connection::Steps;
use super::files::Reading;
use super::respond::Content;

pub fn make_body(content: Content, steps: &Arc<Steps>) -> UnsyncBoxBody<Bytes, io::Error> {
    match content {
        Content::Bytes(bytes) => Full::new(bytes).map_err(|never| match never {}).boxed_unsync(),
        Content::File(file) => {
            let first = (file.reading.range.start, Bytes::new(), file, steps.clone());
            let pieces = try_unfold(first, |(offset, last, file, steps)| async move {
                if offset >= file.reading.range.end {
                    return Ok(None);
                }
                steps.work();
                let max = file.admission.piece_bytes();
                let length = file.reading.piece_bytes(offset, max);
                file.admission.wait(length).await;
                let piece = read(&file.reading, offset, length, last).await?;
                file.running.advance(length);
                steps.take();
                let next = (offset.saturating_add(length), piece.clone(), file, steps);
                Ok(Some((Frame::data(piece), next)))
            });
            StreamBody::new(pieces).boxed_unsync()
        }
    }
}

/// Reads a piece: on this thread if it is in memory, else on a thread that may block.
async fn read(reading: &Arc<Reading>, offset: u64, length: u64, last: Bytes) -> io::Result<Bytes> {
    let is_resident = reading.is_resident(offset);
    let reading = reading.clone();
    let read = move || {
        if !is_resident {
            reading.enter(offset);
        }
        // Reuses the buffer of the last piece if all of that was sent, and it is not much longer: the
        // system clears new memory, which takes as long as reading.
        let last = last.try_into_mut().ok();
        let last = last.filter(|last| last.capacity() as u64 / 2 <= length);
        let mut buffer = last.unwrap_or_default();
        buffer.resize(to_usize(length), 0);
        reading.read(offset, &mut buffer)?;
        Ok(buffer.freeze())
    };
    if is_resident { read() } else { tokio::task::spawn_blocking(read).await.map_err(io::Error::other)? }
}
