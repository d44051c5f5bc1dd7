//! lz4's high compression by the C library, in the blocks of `archive --format lz4`. Decompressed by the same decoder.

use {
    super::{
        FrameCodec, FrameDecode, FrameEncoder,
        lz4::{BlockDecoder, blocks_bytes_max},
    },
    crate::archive::lz4::append_blocks_with,
    slotpress_base::error::Result,
};

/// lz4 at a level of 3 to 12.
#[derive(Clone, Copy, Debug)]
pub struct Lz4HcLevel(pub i32);

/// `LZ4_STREAMHCSIZE` of lz4hc.h, which the library keeps once per thread.
const ENCODER_BYTES: usize = 262_200;

impl FrameCodec for Lz4HcLevel {
    fn name(&self) -> &str {
        "lz4hc"
    }

    fn level(&self) -> i32 {
        self.0
    }

    fn new_encoder(&self) -> Result<Box<dyn FrameEncoder>> {
        Ok(Box::new(*self))
    }

    fn new_decoder(&self) -> Result<Box<dyn FrameDecode>> {
        Ok(Box::new(BlockDecoder))
    }

    fn encoded_bytes_max(&self, content_bytes: usize) -> usize {
        blocks_bytes_max(content_bytes)
    }
}

impl FrameEncoder for Lz4HcLevel {
    fn encode(&mut self, content: &[u8], to: &mut Vec<u8>) -> Result<()> {
        to.clear();
        let compress = |block: &[u8], to: &mut [u8]| lzzzz::lz4_hc::compress(block, to, self.0).ok();
        append_blocks_with(content, true, 0, &compress, to);
        Ok(())
    }

    fn context_bytes(&self) -> usize {
        ENCODER_BYTES
    }
}
