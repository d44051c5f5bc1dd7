//! No compression: a copy in memory, which is what every codec is up against.

use {
    super::{FrameCodec, FrameDecode, FrameEncoder, check_length},
    slotpress_base::error::Result,
};

/// A copy.
#[derive(Clone, Copy, Debug)]
pub struct NoCodec;

impl FrameCodec for NoCodec {
    fn name(&self) -> &str {
        "none"
    }

    fn level(&self) -> i32 {
        0
    }

    fn new_encoder(&self) -> Result<Box<dyn FrameEncoder>> {
        Ok(Box::new(Self))
    }

    fn new_decoder(&self) -> Result<Box<dyn FrameDecode>> {
        Ok(Box::new(Self))
    }

    fn encoded_bytes_max(&self, content_bytes: usize) -> usize {
        content_bytes
    }
}

impl FrameEncoder for NoCodec {
    fn encode(&mut self, content: &[u8], to: &mut Vec<u8>) -> Result<()> {
        to.clear();
        to.extend_from_slice(content);
        Ok(())
    }

    fn context_bytes(&self) -> usize {
        0
    }
}

impl FrameDecode for NoCodec {
    fn decode(&mut self, frame: &[u8], content_bytes: usize, to: &mut Vec<u8>) -> Result<()> {
        to.clear();
        check_length(content_bytes, frame.len())?;
        to.extend_from_slice(frame);
        Ok(())
    }

    fn context_bytes(&self) -> usize {
        0
    }
}
