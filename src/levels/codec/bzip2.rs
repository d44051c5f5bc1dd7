//! bzip2, the format of archives before 2020, with blocks of 1 to 9 times 100,000 bytes.

use bzip2::{Action, Compress, Compression, Decompress, Status};

use super::{Parts, decoder, encoder};

const NAME: &str = "bzip2";

/// Sizes are those of bzip2's manual: a frame takes 1 % more than the content and 600 bytes; compressing takes 400 KB
/// and eight blocks, decompressing 100 KB and four.
pub const PARTS: Parts = Parts {
    // The library cannot reset a stream, so that every frame makes one.
    encoder: |level| {
        encoder(NAME, 400_000 + 8 * block_bytes(level), move |content, to| {
            /// The library's default.
            const WORK_FACTOR: u32 = 0;
            to.reserve((PARTS.bytes_max)(content.len()));
            let mut stream = Compress::new(Compression::new(level.clamp(1, 9) as u32), WORK_FACTOR);
            match stream.compress_vec(content, to, Action::Finish) {
                Ok(Status::StreamEnd) => Ok(()),
                Ok(_) => Err("it needs more room than it should".to_string()),
                Err(error) => Err(error.to_string()),
            }
        })
    },
    decoder: |level| decoder(NAME, 100_000 + 4 * block_bytes(level), decode),
    bytes_max: |content_bytes| content_bytes + content_bytes / 100 + 600,
};

fn block_bytes(level: i32) -> usize {
    level.clamp(1, 9) as usize * 100_000
}

fn decode(frame: &[u8], to: &mut [u8]) -> Result<usize, String> {
    let mut stream = Decompress::new(false);
    // A call may stop at the end of a block although there is room and input left.
    loop {
        let (read, filled) = (stream.total_in() as usize, stream.total_out() as usize);
        let (Some(rest), Some(room)) = (frame.get(read..), to.get_mut(filled..)) else {
            return Err("its counts make no sense".to_string());
        };
        match stream.decompress(rest, room).map_err(|error| error.to_string())? {
            Status::StreamEnd => return Ok(stream.total_out() as usize),
            _ if (stream.total_in() as usize, stream.total_out() as usize) == (read, filled) => {
                return Err("it does not end where it should".to_string());
            }
            _ => {}
        }
    }
}
