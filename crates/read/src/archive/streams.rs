//! Decodes archives that a single thread decodes from start to end: lz4, bzip2, gzip, and plain tar.

use std::io::{self, BufRead, Read};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use slotpress_base::{Error, Result};
use slotpress_format::ArchiveCompression;

use crate::BufferPool;
use crate::archive::peeker::read_error;
use crate::archive::walk::{DECODED_PIECE_BYTES, DOWNLOAD_AGAIN_HINT, StreamPiece};

pub struct StreamDecoder<'a> {
    decoder: Box<dyn Read + Send + 'a>,
    input: Arc<InputState>,
    pool: BufferPool,
    counted_bytes: u64,
}

impl<'a> StreamDecoder<'a> {
    /// Creates a decoder of `input`. Zstd is passed on unchanged, because [`walk`](super::walk) decodes it.
    pub fn new(input: impl BufRead + Send + 'a, compression: ArchiveCompression, pool: BufferPool) -> Self {
        let input = CountingReader { inner: input, state: Arc::default() };
        let state = input.state.clone();
        let decoder: Box<dyn Read + Send + 'a> = match compression {
            ArchiveCompression::None | ArchiveCompression::Zstd => Box::new(input),
            ArchiveCompression::Lz4 => Box::new(lz4_flex::frame::FrameDecoder::new(input)),
            ArchiveCompression::Bzip2 => Box::new(bzip2::read::MultiBzDecoder::new(input)),
            ArchiveCompression::Gzip => Box::new(flate2::read::MultiGzDecoder::new(input)),
        };
        Self { decoder, input: state, pool, counted_bytes: 0 }
    }

    fn next_piece(&mut self) -> Result<Option<StreamPiece>> {
        let mut bytes = self.pool.take();
        let read = self.decoder.as_mut().take(DECODED_PIECE_BYTES as u64).read_to_end(&mut bytes);
        let read_bytes = self.input.bytes.load(Relaxed);
        if let Err(error) = read {
            if self.input.has_failed.load(Relaxed) {
                return Err(read_error(&error));
            }
            let why = format!("the archive is damaged: it does not decode ({error}), near offset {read_bytes}");
            return Err(Error::damaged(why).with_hint(DOWNLOAD_AGAIN_HINT).at_offset(read_bytes));
        }
        let compressed_bytes = read_bytes.saturating_sub(self.counted_bytes);
        self.counted_bytes = read_bytes;
        Ok((!bytes.is_empty()).then_some(StreamPiece::Content { bytes, compressed_bytes }))
    }
}

impl Iterator for StreamDecoder<'_> {
    type Item = Result<StreamPiece>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_piece().transpose()
    }
}

/// Number of bytes read, and whether a read failed. If so, the decoder's error comes from that read.
#[derive(Default)]
struct InputState {
    bytes: AtomicU64,
    has_failed: AtomicBool,
}

struct CountingReader<R> {
    inner: R,
    state: Arc<InputState>,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buf);
        match &read {
            Ok(read) => _ = self.state.bytes.fetch_add(*read as u64, Relaxed),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => self.state.has_failed.store(true, Relaxed),
        }
        read
    }
}
