//! What every pass over pieces of the input does between them: comparing what comes back, and looking up.

use {
    crate::levels::codec::{FrameCodec, FrameDecode, label},
    slotpress_base::{
        error::{Error, Result},
        progress::Progress,
        quantity,
    },
};

/// Decompresses what a piece was compressed to, and compares.
pub fn check_round_trip(
    codec: &dyn FrameCodec,
    decoder: &mut dyn FrameDecode,
    content: &[u8],
    frame: &[u8],
    back: &mut Vec<u8>,
) -> Result<()> {
    let wrong = |how: String| {
        Error::failed(format!(
            "{} does not round-trip: a frame of {} {how}",
            label(codec.name(), codec.level()),
            quantity::bytes(content.len() as u64)
        ))
        .hint("the memory or the processor may be faulty: test them; an archive made on this machine may be damaged")
    };
    decoder.decode(frame, content.len(), back).map_err(|error| wrong(format!("cannot be decompressed ({error})")))?;
    if back.as_slice() == content { Ok(()) } else { Err(wrong("comes back as other bytes".to_string())) }
}

/// Looks up between pieces, but not between any two small ones: that would take longer than they do.
pub struct Pause<'a> {
    progress: &'a dyn Progress,
    pieces: usize,
    bytes: usize,
}

impl<'a> Pause<'a> {
    /// With nothing done yet.
    pub fn new(progress: &'a dyn Progress) -> Self {
        Self { progress, pieces: 0, bytes: 0 }
    }

    /// After a piece. Tells whether it has looked up; an error where the user asked to stop.
    pub fn after(&mut self, bytes: usize, is_progress: bool) -> Result<bool> {
        const PIECES: usize = 256;
        const BYTES: usize = 1 << 20;
        self.pieces += 1;
        self.bytes += bytes;
        if self.pieces < PIECES && self.bytes < BYTES {
            return Ok(false);
        }
        if is_progress {
            self.progress.advance(self.bytes as u64, 0);
        }
        (self.pieces, self.bytes) = (0, 0);
        self.progress.check().map(|()| true)
    }
}
