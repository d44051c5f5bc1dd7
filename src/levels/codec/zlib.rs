//! zlib: deflate with a header and an Adler-32 of the content, by zlib-rs.

use {
    super::{FrameCodec, FrameDecode, FrameEncoder, check_length, undecodable},
    flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status},
    slotpress_base::error::{Error, Result},
};

/// zlib at a level of 1 to 9.
#[derive(Clone, Copy, Debug)]
pub struct ZlibLevel(pub i32);

/// What zlib's manual names for a window of 32 KiB: `(1 << (windowBits + 2)) + (1 << (memLevel + 9))`, and a few KB.
const ENCODER_BYTES: usize = (1 << 17) + (1 << 17) + 6 * 1024;

/// The same for decompressing: `1 << windowBits`, and about 7 KB.
const DECODER_BYTES: usize = (1 << 15) + 7 * 1024;

impl FrameCodec for ZlibLevel {
    fn name(&self) -> &str {
        "zlib"
    }

    fn level(&self) -> i32 {
        self.0
    }

    fn new_encoder(&self) -> Result<Box<dyn FrameEncoder>> {
        let level = Compression::new(self.0.clamp(1, 9) as u32);
        Ok(Box::new(Encoder { stream: Compress::new(level, true), level: *self }))
    }

    fn new_decoder(&self) -> Result<Box<dyn FrameDecode>> {
        Ok(Box::new(Decoder(Decompress::new(true))))
    }

    /// zlib-rs writes 9 bits per byte at worst (its fastest strategy), and header, trailer and block marks.
    fn encoded_bytes_max(&self, content_bytes: usize) -> usize {
        content_bytes + content_bytes / 8 + 64
    }
}

struct Encoder {
    stream: Compress,
    level: ZlibLevel,
}

impl FrameEncoder for Encoder {
    fn encode(&mut self, content: &[u8], to: &mut Vec<u8>) -> Result<()> {
        to.clear();
        to.reserve(self.level.encoded_bytes_max(content.len()));
        self.stream.reset();
        match self.stream.compress_vec(content, to, FlushCompress::Finish) {
            Ok(Status::StreamEnd) => Ok(()),
            Ok(_) => Err(Error::failed("zlib needs more room than it should")),
            Err(error) => Err(Error::failed(format!("zlib cannot compress a frame: {error}"))),
        }
    }

    fn context_bytes(&self) -> usize {
        ENCODER_BYTES
    }
}

struct Decoder(Decompress);

impl FrameDecode for Decoder {
    fn decode(&mut self, frame: &[u8], content_bytes: usize, to: &mut Vec<u8>) -> Result<()> {
        to.resize(content_bytes, 0);
        self.0.reset(true);
        match self.0.decompress(frame, to, FlushDecompress::Finish) {
            Ok(Status::StreamEnd) => check_length(content_bytes, self.0.total_out() as usize),
            Ok(_) => Err(undecodable("zlib", "it does not end where it should")),
            Err(error) => Err(undecodable("zlib", &error.to_string())),
        }
    }

    fn context_bytes(&self) -> usize {
        DECODER_BYTES
    }
}
