//! Decodes archives that one thread must decode from start to end: lz4, bzip2, gzip, and plain tar.

use std::io::{self, BufReader, Read};

use slotpress_base::bytes::count;
use slotpress_base::{Error, Result};

use crate::archive::walk::Piece;
use crate::{Compression, Recycler};

/// Read-ahead of the only reader; disks are faster with large reads.
const READ_BUFFER_BYTES: usize = 1024 * 1024;

/// Bytes decoded at a time: they stay in the second-level cache until they are parsed.
const PIECE_BYTES: u64 = 1024 * 1024;

pub struct StreamPieces<R: Read> {
    decoder: Decoder<Counted<BufReader<R>>>,
    recycler: Recycler,
    counted_bytes: u64,
    is_over: bool,
}

enum Decoder<R: Read> {
    None(R),
    Lz4(Box<lz4_flex::frame::FrameDecoder<R>>),
    Bzip2(Box<bzip2::read::MultiBzDecoder<R>>),
    Gzip(Box<flate2::read::MultiGzDecoder<R>>),
}

impl<R: Read> Decoder<R> {
    fn reader(&mut self) -> &mut dyn Read {
        match self {
            Self::None(reader) => reader,
            Self::Lz4(decoder) => decoder,
            Self::Bzip2(decoder) => decoder,
            Self::Gzip(decoder) => decoder,
        }
    }

    fn source(&self) -> &R {
        match self {
            Self::None(reader) => reader,
            Self::Lz4(decoder) => decoder.get_ref(),
            Self::Bzip2(decoder) => decoder.get_ref(),
            Self::Gzip(decoder) => decoder.get_ref(),
        }
    }
}

impl<R: Read> StreamPieces<R> {
    /// Decodes `input`. zstd passes unchanged; [`walk`](super::walk) decodes it.
    pub fn new(input: R, compression: Compression, recycler: Recycler) -> Self {
        let input = Counted { inner: BufReader::with_capacity(READ_BUFFER_BYTES, input), bytes: 0, has_failed: false };
        let decoder = match compression {
            Compression::None | Compression::Zstd => Decoder::None(input),
            Compression::Lz4 => Decoder::Lz4(Box::new(lz4_flex::frame::FrameDecoder::new(input))),
            Compression::Bzip2 => Decoder::Bzip2(Box::new(bzip2::read::MultiBzDecoder::new(input))),
            Compression::Gzip => Decoder::Gzip(Box::new(flate2::read::MultiGzDecoder::new(input))),
        };
        Self { decoder, recycler, counted_bytes: 0, is_over: false }
    }

    fn next_piece(&mut self) -> Result<Option<Piece>> {
        let mut bytes = self.recycler.take();
        let read = self.decoder.reader().take(PIECE_BYTES).read_to_end(&mut bytes);
        let source = self.decoder.source();
        if let Err(error) = read {
            return Err(match source.has_failed {
                true => Error::of_reading(&error),
                false => Error::damaged(format!(
                    "the archive is damaged: it does not decode ({error}), near offset {}",
                    source.bytes
                ))
                .with_hint("download the archive again; if the result is the same, from another source")
                .at_offset(source.bytes),
            });
        }
        let compressed_bytes = source.bytes.saturating_sub(self.counted_bytes);
        self.counted_bytes = source.bytes;
        Ok((!bytes.is_empty()).then_some(Piece::Content { bytes, compressed_bytes }))
    }
}

impl<R: Read> Iterator for StreamPieces<R> {
    type Item = Result<Piece>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let piece = self.next_piece().transpose();
        self.is_over = !matches!(piece, Some(Ok(_)));
        piece
    }
}

/// Counts bytes, and remembers a read error, to tell it from a decoding error.
struct Counted<R> {
    inner: R,
    bytes: u64,
    has_failed: bool,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self.inner.read(to) {
            Ok(read) => {
                count(&mut self.bytes, read as u64);
                Ok(read)
            }
            Err(error) => {
                self.has_failed |= error.kind() != io::ErrorKind::Interrupted;
                Err(error)
            }
        }
    }
}
