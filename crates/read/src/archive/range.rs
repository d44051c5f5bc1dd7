//! Reads ranges of the tar stream of an archive with an index, by decoding the frames that hold
//! them.

use slotpress_base::{Error, Result, copy_at_most, saturating_add_to, to_usize};

use super::decode::FrameDecoder;
use super::opened::OpenArchive;
use super::source::PieceReader;

/// Fills `buf` with bytes of the tar stream from `offset_bytes` onwards. The archive must have an index.
///
/// # Errors
/// The frames cannot be read, do not decode, or do not hold what the seek table says.
pub fn read_range(archive: &OpenArchive, mut offset_bytes: u64, mut buf: &mut [u8]) -> Result<()> {
    let mismatch = || Error::damaged("the archive's index does not fit its frames");
    let frames = archive.tail.as_ref().map(|tail| tail.frames.as_slice());
    let mut frames = frames.unwrap_or_default().iter();
    let pieces = PieceReader::new(archive.source.as_ref(), archive.io_policy.io_hint);
    let mut decoder = FrameDecoder::new()?;
    let mut compressed = Vec::new();
    let mut content = Vec::new();
    let mut end = 0u64;
    while !buf.is_empty() {
        let frame = frames.next().ok_or_else(mismatch)?;
        let start = end;
        saturating_add_to(&mut end, u64::from(frame.content_bytes));
        if end <= offset_bytes {
            continue;
        }
        // zstd never compresses to more than this bound.
        if to_usize(frame.compressed_bytes) > zstd_safe::compress_bound(to_usize(frame.content_bytes)) {
            return Err(mismatch());
        }
        let bytes = pieces.read(&frame.range(), &mut compressed)?;
        decoder.decode(bytes, frame.offset_bytes, u64::from(frame.content_bytes), &mut content)?;
        if content.len() != frame.content_bytes as usize {
            return Err(mismatch());
        }
        let part = content.get(to_usize(offset_bytes.saturating_sub(start))..).ok_or_else(mismatch)?;
        let copied = copy_at_most(part, buf);
        buf = buf.get_mut(copied..).unwrap_or_default();
        saturating_add_to(&mut offset_bytes, copied as u64);
    }
    Ok(())
}
