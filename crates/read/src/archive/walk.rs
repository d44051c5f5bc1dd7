//! Finds the frames of a zstd stream by walking from header to header of its frames and blocks. Any encoder may
//! have written the stream.
//!
//! A frame that is not too large is passed on whole, so that any worker can decode it. A larger frame, such as
//! the single frame that `zstd` and Agave up to 4.2 write, is decoded here piece by piece. Lengths are limited
//! before memory is allocated for them.

use std::io::BufRead;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;
use slotpress_base::{Error, Result, saturating_add_to, to_usize};
use slotpress_format::{
    AGAVE_WINDOW_LOG_MAX, FRAME_HEADER_BYTES_MAX, FrameHeader, FrameStart, SKIPPABLE_HEADER_BYTES, is_index,
    parse_block_header, parse_frame_start, skippable_frame_len,
};
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

use crate::archive::peeker::{Peeker, truncated_error};

/// Frames that decode to at most this many bytes are decoded whole. Agave 4.3 and Firedancer write frames of
/// about 32 MiB. Twice that length leaves a margin, and still bounds the memory of a worker.
pub const WHOLE_FRAME_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Bytes decoded at a time from a stream that cannot be divided. They stay in a core's second-level cache until
/// they are parsed.
pub(super) const DECODED_PIECE_BYTES: usize = 1024 * 1024;

pub(super) const DOWNLOAD_AGAIN_HINT: &str = "download the archive again; if that does not help, from another source";

#[derive(Debug)]
pub enum StreamPiece {
    Frame {
        bytes: Vec<u8>,
        /// Number among the frames with content, from 0.
        number: u64,
        offset_bytes: u64,
        content_bytes_max: u64,
    },
    Content {
        bytes: Vec<u8>,
        compressed_bytes: u64,
    },
}

/// Buffers for reuse. A new buffer for every frame would cause page faults.
#[derive(Clone, Debug, Default)]
pub struct BufferPool(Arc<Mutex<Vec<Vec<u8>>>>);

/// Limit on the number of free buffers that are kept. More are seldom free at once.
const POOLED_MAX: usize = 64;

impl BufferPool {
    pub fn take(&self) -> Vec<u8> {
        self.0.lock().pop().unwrap_or_default()
    }

    pub fn give(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        let mut buffers = self.0.lock();
        if buffers.len() < POOLED_MAX {
            buffers.push(buffer);
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct SeenFrame {
    /// Number among the frames with tar data, from 0; `None` for a skippable frame.
    pub number: Option<u64>,
    pub offset_bytes: u64,
    pub start: FrameStart,
    /// True if this is an index of slotpress. Set only if the archive is read in order.
    pub is_index: bool,
}

pub type OnFrame<'a> = Box<dyn FnMut(SeenFrame) -> Result<()> + Send + 'a>;

pub struct FrameWalker<'a, R> {
    on_frame: OnFrame<'a>,
    input: Peeker<R>,
    pool: BufferPool,
    streamed: Option<StreamedFrame>,
    frames: u64,
}

/// Statistics of the frames of a stream, as far as it was walked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FrameStatistics {
    pub frames: u64,
    /// The largest content size that a frame header states, in bytes.
    pub frame_bytes_max: u64,
    pub frames_with_checksum: u64,
    pub skippable_bytes: u64,
}

impl FrameStatistics {
    pub fn add(&mut self, frame: &FrameStart) {
        match frame {
            FrameStart::Skippable { content_bytes, .. } => {
                saturating_add_to(&mut self.skippable_bytes, skippable_frame_len(*content_bytes));
            }
            FrameStart::Zstd(header) => {
                saturating_add_to(&mut self.frames, 1);
                saturating_add_to(&mut self.frames_with_checksum, u64::from(header.has_checksum));
                self.frame_bytes_max = self.frame_bytes_max.max(header.content_bytes.unwrap_or(0));
            }
        }
    }
}

struct StreamedFrame {
    context: DCtx<'static>,
    /// Bytes that were read before the frame turned out to be large.
    buffered: Vec<u8>,
    /// Number of buffered bytes that have been decoded.
    decoded_bytes: usize,
    offset_bytes: u64,
}

impl<'a, R: BufRead> FrameWalker<'a, R> {
    /// Creates a walker that calls `on_frame` for every frame, including skippable ones, before it reads the
    /// frame. An error of `on_frame` ends the walk.
    pub fn new(input: R, pool: BufferPool, on_frame: OnFrame<'a>) -> Self {
        Self { on_frame, input: Peeker::new(input), pool, streamed: None, frames: 0 }
    }

    fn next_piece(&mut self) -> Result<Option<StreamPiece>> {
        loop {
            if self.streamed.is_some() {
                return self.continue_streamed().map(Some);
            }
            let offset_bytes = self.input.position();
            let bytes = self.input.peek(FRAME_HEADER_BYTES_MAX)?;
            if bytes.is_empty() {
                return Ok(None);
            }
            let start = parse_frame_start(bytes).map_err(|error| damaged_at(error, offset_bytes))?;
            match start {
                FrameStart::Skippable { content_bytes, .. } => {
                    let is_index = is_index(bytes.get(SKIPPABLE_HEADER_BYTES..).unwrap_or_default());
                    (self.on_frame)(SeenFrame { number: None, offset_bytes, start, is_index })?;
                    self.input.skip(skippable_frame_len(content_bytes))?;
                }
                FrameStart::Zstd(header) => {
                    let number = self.frames;
                    (self.on_frame)(SeenFrame { number: Some(number), offset_bytes, start, is_index: false })?;
                    saturating_add_to(&mut self.frames, 1);
                    if let Some(piece) = self.start_frame(&header, number, offset_bytes)? {
                        return Ok(Some(piece));
                    }
                }
            }
        }
    }

    fn start_frame(&mut self, header: &FrameHeader, number: u64, offset_bytes: u64) -> Result<Option<StreamPiece>> {
        let mut bytes = self.pool.take();
        let stated = header.content_bytes;
        let mut is_small = stated.is_none_or(|content_bytes| content_bytes <= WHOLE_FRAME_BYTES_MAX);
        let mut blocks: u64 = 0;
        self.input.take(header.header_bytes, &mut bytes)?;
        while is_small {
            let block_header = self.input.peek(3)?.first_chunk().copied();
            let block_header = block_header.ok_or_else(|| truncated_error(self.input.position()))?;
            let block = parse_block_header(block_header).map_err(|error| damaged_at(error, self.input.position()))?;
            self.input.take(to_usize(block.stored_bytes).saturating_add(3), &mut bytes)?;
            saturating_add_to(&mut blocks, 1);
            if block.is_last {
                if header.has_checksum {
                    self.input.take(4, &mut bytes)?;
                }
                let bound = blocks.saturating_mul(header.block_bytes_max);
                let content_bytes_max = stated.unwrap_or(bound);
                return Ok(Some(StreamPiece::Frame { bytes, number, offset_bytes, content_bytes_max }));
            }
            is_small = match stated {
                // zstd never compresses to more than this bound.
                Some(content_bytes) => bytes.len() <= zstd_safe::compress_bound(to_usize(content_bytes)),
                None => blocks.saturating_add(1).saturating_mul(header.block_bytes_max) <= WHOLE_FRAME_BYTES_MAX,
            };
        }
        let mut context = DCtx::try_create().ok_or_else(no_memory_error)?;
        context.set_parameter(DParameter::WindowLogMax(AGAVE_WINDOW_LOG_MAX)).map_err(|code| {
            Error::failed(format!("zstd does not accept the limit on windows: {}", zstd_safe::get_error_name(code)))
        })?;
        self.streamed = Some(StreamedFrame { context, buffered: bytes, decoded_bytes: 0, offset_bytes });
        Ok(None)
    }

    fn continue_streamed(&mut self) -> Result<StreamPiece> {
        let mut content = self.pool.take();
        let Some(frame) = &mut self.streamed else { return Err(truncated_error(self.input.position())) };
        content.reserve(DECODED_PIECE_BYTES);
        let mut compressed_bytes = 0;
        let mut is_end = false;
        while content.len() < DECODED_PIECE_BYTES && !is_end {
            let prefix = frame.buffered.get(frame.decoded_bytes..).unwrap_or_default();
            let is_prefix = !prefix.is_empty();
            let available = if is_prefix { prefix } else { self.input.peek(1)? };
            if available.is_empty() {
                return Err(truncated_error(self.input.position()));
            }
            let mut input = InBuffer::around(available);
            let content_bytes = content.len();
            let mut output = OutBuffer::around_pos(&mut content, content_bytes);
            let decoded = frame.context.decompress_stream(&mut output, &mut input);
            let next_input_bytes = decoded.map_err(|code| decode_error(frame.offset_bytes, code))?;
            let used = input.pos();
            saturating_add_to(&mut compressed_bytes, used as u64);
            if is_prefix {
                frame.decoded_bytes = frame.decoded_bytes.saturating_add(used);
            } else {
                self.input.consume(used);
            }
            is_end = next_input_bytes == 0;
        }
        if is_end {
            self.streamed = None;
        }
        Ok(StreamPiece::Content { bytes: content, compressed_bytes })
    }
}

impl<R: BufRead> Iterator for FrameWalker<'_, R> {
    type Item = Result<StreamPiece>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_piece().transpose()
    }
}

pub fn no_memory_error() -> Error {
    Error::failed("not enough memory to decompress")
        .with_hint("raise the limit (ulimit -v, MemoryMax of the service), or use fewer threads")
}

pub fn decode_error(offset_bytes: u64, code: usize) -> Error {
    // The bindings show `ZSTD_error_memory_allocation` only as a message.
    if zstd_safe::get_error_name(code).starts_with("Allocation error") {
        return no_memory_error();
    }
    Error::damaged(format!(
        "the archive is damaged: the frame at offset {offset_bytes} does not decode ({})",
        zstd_safe::get_error_name(code)
    ))
    .with_hint(DOWNLOAD_AGAIN_HINT)
    .at_offset(offset_bytes)
}

pub(super) fn damaged_at(error: Error, offset_bytes: u64) -> Error {
    let error = error.with_place(format!("the archive is damaged: at offset {offset_bytes}"));
    error.with_hint(DOWNLOAD_AGAIN_HINT).at_offset(offset_bytes)
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use proptest::prelude::*;

    use super::*;

    /// Walks a stream through a buffer of 7 bytes, so that headers cross its end.
    fn walker(stream: &[u8]) -> FrameWalker<'_, BufReader<&[u8]>> {
        FrameWalker::new(BufReader::with_capacity(7, stream), BufferPool::default(), Box::new(|_| Ok(())))
    }

    fn decode(stream: &[u8]) -> Result<Vec<u8>> {
        let mut content = Vec::new();
        for piece in walker(stream) {
            match piece? {
                StreamPiece::Frame { bytes, content_bytes_max, .. } => content.extend(
                    zstd::bulk::decompress(&bytes, content_bytes_max as usize)
                        .map_err(|error| Error::damaged(error.to_string()))?,
                ),
                StreamPiece::Content { bytes, .. } => content.extend(bytes),
            }
        }
        Ok(content)
    }

    proptest! {
        #[test]
        fn streams_of_many_frames_are_decoded(
            frames in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..5000), 0u8..4), 0..6),
        ) {
            let mut stream = Vec::new();
            let mut expected = Vec::new();
            for (content, kind) in frames {
                match kind {
                    0 => stream.extend(zstd::bulk::compress(&content, 1).expect("compresses")),
                    1 => stream.extend(zstd::stream::encode_all(content.as_slice(), 1).expect("compresses")),
                    _ => {
                        stream.extend(slotpress_format::archive::zstd_frame::skippable_frame(kind, &content).expect("small"));
                        continue;
                    }
                }
                expected.extend(content);
            }
            prop_assert_eq!(decode(&stream).expect("a good stream"), expected);
        }

        #[test]
        fn truncation_is_found(content in proptest::collection::vec(any::<u8>(), 0..3000), index in any::<prop::sample::Index>()) {
            let stream = zstd::bulk::compress(&content, 1).expect("compresses");
            let length = 1 + index.index(stream.len() - 1);
            prop_assert!(decode(&stream[..length]).is_err());
        }

        #[test]
        fn hostile_streams_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut stream = 0xFD2F_B528u32.to_le_bytes().to_vec();
            stream.extend(bytes);
            let _ = decode(&stream);
        }
    }

    #[test]
    fn a_large_frame_is_streamed() {
        let content: Vec<u8> = (0..WHOLE_FRAME_BYTES_MAX as u32 / 4 + 100_000).flat_map(u32::to_le_bytes).collect();
        let stream = zstd::stream::encode_all(content.as_slice(), 1).expect("compresses");
        let mut pieces = walker(&stream);
        assert!(matches!(pieces.next(), Some(Ok(StreamPiece::Content { .. }))));
        assert!(decode(&stream).expect("a good stream") == content);
        assert!(decode(&stream[..stream.len() - 1]).is_err());
    }
}
