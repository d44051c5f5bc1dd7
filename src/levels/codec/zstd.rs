//! zstd as `archive` uses it: with content size and checksum in each frame.

use slotpress_base::Result;
use slotpress_read::FrameDecoder;

use super::{FrameCoder, Parts, check_length};
use crate::archive::encode::{Codec, FrameCompressor};

pub const PARTS: Parts = Parts {
    encoder: |level| Ok(Box::new(FrameCompressor::new(&Codec::zstd(level))?)),
    decoder: |_| Ok(Box::new(FrameDecoder::new()?)),
    bytes_max: zstd_safe::compress_bound,
};

impl FrameCoder for FrameCompressor {
    fn code(&mut self, content: &[u8], _: usize, to: &mut Vec<u8>) -> Result<()> {
        self.compress(content, to)
    }

    fn context_bytes(&self) -> usize {
        FrameCompressor::context_bytes(self)
    }
}

impl FrameCoder for FrameDecoder {
    fn code(&mut self, frame: &[u8], content_bytes: usize, to: &mut Vec<u8>) -> Result<()> {
        FrameDecoder::decode(self, frame, 0, content_bytes as u64, to)?;
        check_length(content_bytes, to.len())
    }

    fn context_bytes(&self) -> usize {
        FrameDecoder::context_bytes(self)
    }
}
