//! bzip2, in which archives were made before 2020.

use {
    super::{FrameCodec, FrameDecode, FrameEncoder, check_length, undecodable},
    bzip2::{Action, Compress, Compression, Decompress, Status},
    slotpress_base::error::{Error, Result},
};

/// bzip2 with blocks of 1 to 9 times 100,000 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Bzip2Level(pub i32);

impl Bzip2Level {
    /// Bytes in a block.
    fn block_bytes(self) -> usize {
        self.0.clamp(1, 9) as usize * 100_000
    }
}

impl FrameCodec for Bzip2Level {
    fn name(&self) -> &str {
        "bzip2"
    }

    fn level(&self) -> i32 {
        self.0
    }

    fn new_encoder(&self) -> Result<Box<dyn FrameEncoder>> {
        Ok(Box::new(Encoder(*self)))
    }

    fn new_decoder(&self) -> Result<Box<dyn FrameDecode>> {
        Ok(Box::new(Decoder(*self)))
    }

    /// What its manual asks for: 1 % more than the content, and 600 bytes.
    fn encoded_bytes_max(&self, content_bytes: usize) -> usize {
        content_bytes + content_bytes / 100 + 600
    }
}

/// The library cannot reset a stream: each frame makes one, as any user of it has to.
struct Encoder(Bzip2Level);

impl FrameEncoder for Encoder {
    fn encode(&mut self, content: &[u8], to: &mut Vec<u8>) -> Result<()> {
        /// The library's default, named `0` there.
        const WORK_FACTOR: u32 = 0;
        to.clear();
        to.reserve(self.0.encoded_bytes_max(content.len()));
        let mut stream = Compress::new(Compression::new(self.0.0.clamp(1, 9) as u32), WORK_FACTOR);
        match stream.compress_vec(content, to, Action::Finish) {
            Ok(Status::StreamEnd) => Ok(()),
            Ok(_) => Err(Error::failed("bzip2 needs more room than it should")),
            Err(error) => Err(Error::failed(format!("bzip2 cannot compress a frame: {error}"))),
        }
    }

    /// As its manual estimates it.
    fn context_bytes(&self) -> usize {
        400_000 + 8 * self.0.block_bytes()
    }
}

struct Decoder(Bzip2Level);

impl FrameDecode for Decoder {
    fn decode(&mut self, frame: &[u8], content_bytes: usize, to: &mut Vec<u8>) -> Result<()> {
        to.resize(content_bytes, 0);
        let mut stream = Decompress::new(false);
        let mut used = 0;
        // One call may stop at the end of a block with room and input left.
        loop {
            let (read, filled) = (stream.total_in() as usize, used);
            let (Some(rest), Some(room)) = (frame.get(read..), to.get_mut(filled..)) else {
                return Err(undecodable("bzip2", "its counts make no sense"));
            };
            let status = stream.decompress(rest, room).map_err(|error| undecodable("bzip2", &error.to_string()))?;
            used = stream.total_out() as usize;
            match status {
                Status::StreamEnd => return check_length(content_bytes, used),
                _ if stream.total_in() as usize == read && used == filled => {
                    return Err(undecodable("bzip2", "it does not end where it should"));
                }
                _ => {}
            }
        }
    }

    /// As its manual estimates it.
    fn context_bytes(&self) -> usize {
        100_000 + 4 * self.0.block_bytes()
    }
}
