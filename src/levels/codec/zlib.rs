//! zlib at levels 1 to 9, by zlib-rs: deflate, and the Adler-32 checksum of the content.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::{Parts, decoder, encoder};

const NAME: &str = "zlib";

/// Memory of compressing with a window of 32 KiB, from zlib's manual: `(1 << (windowBits + 2)) + (1
/// << (memLevel + 9))`, and a few KB.
const ENCODER_BYTES: usize = (1 << 17) + (1 << 17) + 6 * 1024;

/// Memory of decompressing, from zlib's manual: `1 << windowBits`, and about 7 KB.
const DECODER_BYTES: usize = (1 << 15) + 7 * 1024;

pub const PARTS: Parts = Parts {
    encoder: |level| {
        let mut stream = Compress::new(Compression::new(level.clamp(1, 9) as u32), true);
        encoder(NAME, ENCODER_BYTES, move |content, to| {
            to.reserve((PARTS.bytes_max)(content.len()));
            stream.reset();
            match stream.compress_vec(content, to, FlushCompress::Finish) {
                Ok(Status::StreamEnd) => Ok(()),
                Ok(_) => Err("it needs more room than it should".to_string()),
                Err(error) => Err(error.to_string()),
            }
        })
    },
    decoder: |_| {
        let mut stream = Decompress::new(true);
        decoder(NAME, DECODER_BYTES, move |frame, to| {
            stream.reset(true);
            match stream.decompress(frame, to, FlushDecompress::Finish) {
                Ok(Status::StreamEnd) => Ok(stream.total_out() as usize),
                Ok(_) => Err("it does not end where it should".to_string()),
                Err(error) => Err(error.to_string()),
            }
        })
    },
    // At worst, in its fastest strategy, zlib-rs writes 9 bits per byte, plus header, trailer and
    // block marks.
    bytes_max: |content_bytes| content_bytes + content_bytes / 8 + 64,
};
