//! bzip2, the compression of archives before 2020, with blocks of 100,000 to 900,000 bytes.

use bzip2::{Action, Compress, Compression, Decompress, Status};

use super::{Parts, decoder, encoder};

const NAME: &str = "bzip2";

/// Sizes from bzip2's manual. A frame is at most 1 % plus 600 bytes longer than its content.
/// Compressing takes 400 KB plus eight times the block size, decompressing 100 KB plus four times
/// the block size.
pub const PARTS: Parts = Parts {
    // The library cannot reset a stream: a new one is created for every frame.
    encoder: |level| {
        encoder(NAME, 400_000 + 8 * block_bytes(level), move |content, to| {
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
    // A call may return at the end of a block although input and output space remain.
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
