//! Reads ranges of the tar stream of an archive with an index, by decoding the frames that hold
//! them.

use slotpress_base::bytes::count;
use slotpress_base::{Error, Result, copy_at_most, to_usize};

use super::decode::FrameDecoder;
use super::opened::Archive;
use super::source::Pieces;
use super::tail::Tail;

/// Offset in the tar stream at which each frame's content starts.
#[derive(Debug)]
pub struct FrameOffsets(Vec<u64>);

impl FrameOffsets {
    pub fn of(tail: &Tail) -> Self {
        let mut at = 0;
        let mut start = |content_bytes: u32| {
            let start = at;
            count(&mut at, u64::from(content_bytes));
            start
        };
        Self(tail.frames.iter().map(|frame| start(frame.content_bytes)).collect())
    }
}

/// Fills `to` with tar bytes that begin at `offset_bytes`. The archive must have an index.
///
/// # Errors
/// The frames do not decode, or do not hold what the seek table says.
pub fn read_range(archive: &Archive, offsets: &FrameOffsets, mut offset_bytes: u64, mut to: &mut [u8]) -> Result<()> {
    let contradiction = || Error::damaged("the archive's index does not fit its frames");
    let frames = archive.tail.as_ref().map(|tail| tail.frames.as_slice()).unwrap_or_default();
    let pieces = Pieces::new(archive.source.as_ref(), archive.io_policy.io_hint);
    let mut decoder = FrameDecoder::new()?;
    let (mut compressed, mut content) = (Vec::new(), Vec::new());
    let mut number = offsets.0.partition_point(|start| *start <= offset_bytes).saturating_sub(1);
    while !to.is_empty() {
        let (start, frame) = offsets.0.get(number).zip(frames.get(number)).ok_or_else(contradiction)?;
        // zstd never compresses to more than this bound.
        if to_usize(frame.compressed_bytes) > zstd_safe::compress_bound(to_usize(frame.content_bytes)) {
            return Err(contradiction());
        }
        let bytes = pieces.read(&frame.range(), &mut compressed)?;
        decoder.decode(bytes, frame.offset_bytes, u64::from(frame.content_bytes), &mut content)?;
        if content.len() != frame.content_bytes as usize {
            return Err(contradiction());
        }
        let from = to_usize(offset_bytes.checked_sub(*start).ok_or_else(contradiction)?);
        let part = content.get(from..).ok_or_else(contradiction)?;
        let copied = copy_at_most(part, to);
        to = to.get_mut(copied..).unwrap_or_default();
        count(&mut offset_bytes, copied as u64);
        number = number.saturating_add(1);
    }
    Ok(())
}
