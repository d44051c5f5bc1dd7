//! Ranges of the tar stream of an archive with an index, by decoding the frames that hold them.

use {
    super::{Archive, decode::FrameDecoder, source::Pieces, tail::Tail},
    crate::error::{Error, Result},
};

/// Where each frame's content starts in the tar stream.
#[derive(Debug)]
pub struct FrameOffsets(Vec<u64>);

impl FrameOffsets {
    /// Of the frames that a tail lists.
    pub fn of(tail: &Tail) -> Self {
        let mut at = 0;
        let mut start = |content_bytes: u32| {
            let start = at;
            at += u64::from(content_bytes);
            start
        };
        Self(tail.frames.iter().map(|frame| start(frame.content_bytes)).collect())
    }
}

/// Reads, of an archive with an index, the bytes of the tar stream from `offset_bytes` on into `to`.
pub fn read_range(archive: &Archive, offsets: &FrameOffsets, offset_bytes: u64, to: &mut [u8]) -> Result<()> {
    let contradiction = || Error::damaged("the archive's index does not fit its frames");
    let frames = archive.tail.as_ref().map(|tail| tail.frames.as_slice()).unwrap_or_default();
    let pieces = Pieces::new(archive.source.as_ref(), archive.manners.io_hint);
    let mut decoder = FrameDecoder::new()?;
    let (mut compressed, mut content) = (Vec::new(), Vec::new());
    let mut filled = 0;
    let mut number = offsets.0.partition_point(|start| *start <= offset_bytes).saturating_sub(1);
    while filled < to.len() {
        let (start, frame) = offsets.0.get(number).zip(frames.get(number)).ok_or_else(contradiction)?;
        let bytes = pieces.read(&(frame.offset_bytes..frame.end_bytes()), &mut compressed)?;
        decoder.decode(bytes, frame.offset_bytes, u64::from(frame.content_bytes), &mut content)?;
        if content.len() != frame.content_bytes as usize {
            return Err(contradiction());
        }
        let from = (offset_bytes + filled as u64 - start) as usize;
        let part = content.get(from..).ok_or_else(contradiction)?;
        let length = part.len().min(to.len() - filled);
        to[filled..filled + length].copy_from_slice(&part[..length]);
        filled += length;
        number += 1;
    }
    Ok(())
}
