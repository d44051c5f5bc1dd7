//! zstd as `archive` uses it: content size stated, with a checksum.

use {
    super::{FrameCodec, FrameDecode, FrameEncoder, check_length},
    crate::archive::encode::{Codec, FrameCompressor},
    slotpress_base::error::Result,
    slotpress_read::archive::decode::FrameDecoder,
};

/// zstd as `archive` uses it: content size stated, with a checksum.
#[derive(Clone, Copy, Debug)]
pub struct ZstdLevel(pub i32);

impl ZstdLevel {
    /// The same, as archives are made with it.
    pub fn archive_codec(self) -> Codec {
        Codec::zstd(self.0)
    }
}

impl FrameCodec for ZstdLevel {
    fn name(&self) -> &str {
        "zstd"
    }

    fn level(&self) -> i32 {
        self.0
    }

    fn new_encoder(&self) -> Result<Box<dyn FrameEncoder>> {
        Ok(Box::new(FrameCompressor::new(&self.archive_codec())?))
    }

    fn new_decoder(&self) -> Result<Box<dyn FrameDecode>> {
        Ok(Box::new(FrameDecoder::new()?))
    }

    fn encoded_bytes_max(&self, content_bytes: usize) -> usize {
        zstd_safe::compress_bound(content_bytes)
    }
}

impl FrameEncoder for FrameCompressor {
    fn encode(&mut self, content: &[u8], to: &mut Vec<u8>) -> Result<()> {
        self.compress(content, to).map(drop)
    }

    fn context_bytes(&self) -> usize {
        FrameCompressor::context_bytes(self)
    }
}

impl FrameDecode for FrameDecoder {
    fn decode(&mut self, frame: &[u8], content_bytes: usize, to: &mut Vec<u8>) -> Result<()> {
        FrameDecoder::decode(self, frame, 0, content_bytes as u64, to)?;
        check_length(content_bytes, to.len())
    }

    fn context_bytes(&self) -> usize {
        FrameDecoder::context_bytes(self)
    }
}
