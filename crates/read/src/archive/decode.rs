//! Decodes a stream from its first byte to its last on several threads, and passes on its content in order.

use std::io::BufRead;

use slotpress_base::{Error, ErrorKind, Progress, Result, panic_point, run_in_order, to_usize};
use slotpress_format::ArchiveCompression;
use zstd_safe::DCtx;

use crate::BufferPool;
use crate::archive::streams::StreamDecoder;
use crate::archive::walk::{FrameWalker, OnFrame, StreamPiece, decode_error, no_memory_error};

pub struct FrameFault {
    /// Number among the frames that hold content, from 0.
    pub number: u64,
    pub error: Error,
}

type OnDecoded<'a> = dyn FnMut(Result<&[u8], FrameFault>) -> Result<()> + 'a;

pub fn decode_stream<'a>(
    input: impl BufRead + Send + 'a,
    compression: ArchiveCompression,
    threads: usize,
    progress: &dyn Progress,
    on_frame: OnFrame<'a>,
    on_decoded: &mut OnDecoded<'_>,
) -> Result<()> {
    let pool = BufferPool::default();
    let new_worker = || {
        let mut decoder = FrameDecoder::new()?;
        let pool = pool.clone();
        Ok(move |piece: StreamPiece, buf: &mut Vec<u8>| decoder.decode_piece(piece, &pool, buf))
    };
    let mut pieces: Box<dyn Iterator<Item = Result<StreamPiece>> + Send + '_> = match compression {
        ArchiveCompression::Zstd => Box::new(FrameWalker::new(input, pool.clone(), on_frame)),
        _ => Box::new(StreamDecoder::new(input, compression, pool.clone())),
    };
    // Nothing is read after an error or the end.
    let mut is_over = false;
    let pieces = std::iter::from_fn(|| {
        let piece = if is_over { None } else { pieces.next() };
        is_over = !matches!(piece, Some(Ok(_)));
        piece
    });
    run_in_order(pieces, threads, &new_worker, progress, &mut |content, decoded| match decoded {
        Ok(compressed_bytes) => {
            on_decoded(Ok(content))?;
            progress.advance(compressed_bytes, content.len() as u64);
            Ok(())
        }
        Err(fault) => on_decoded(Err(fault)),
    })
}

pub struct FrameDecoder {
    context: DCtx<'static>,
}

impl FrameDecoder {
    pub fn new() -> Result<Self> {
        let context = DCtx::try_create().ok_or_else(no_memory_error)?;
        Ok(Self { context })
    }

    /// Decodes a frame into `buf`, and replaces what was there. Fails if the content does not fit into the
    /// buffer's capacity, which is at least `content_bytes_max`. Errors name `offset_bytes`, the frame's
    /// position.
    pub fn decode(&mut self, frame: &[u8], offset_bytes: u64, content_bytes_max: u64, buf: &mut Vec<u8>) -> Result<()> {
        buf.clear();
        buf.reserve(to_usize(content_bytes_max));
        self.context.decompress(buf, frame).map_err(|code| decode_error(offset_bytes, code))?;
        Ok(())
    }

    /// Decodes a piece, and returns the number of its compressed bytes. The inner error is damage to a frame.
    fn decode_piece(
        &mut self,
        piece: StreamPiece,
        pool: &BufferPool,
        buf: &mut Vec<u8>,
    ) -> Result<Result<u64, FrameFault>> {
        match piece {
            StreamPiece::Frame { bytes, number, offset_bytes, content_bytes_max } => {
                panic_point("decoder");
                let decoded = self.decode(&bytes, offset_bytes, content_bytes_max, buf);
                let compressed_bytes = bytes.len() as u64;
                pool.give(bytes);
                match decoded {
                    Err(error) if error.kind() == ErrorKind::Damaged => Ok(Err(FrameFault { number, error })),
                    decoded => decoded.map(|()| Ok(compressed_bytes)),
                }
            }
            StreamPiece::Content { mut bytes, compressed_bytes } => {
                std::mem::swap(buf, &mut bytes);
                pool.give(bytes);
                Ok(Ok(compressed_bytes))
            }
        }
    }

    pub fn context_bytes(&self) -> usize {
        self.context.sizeof()
    }
}
