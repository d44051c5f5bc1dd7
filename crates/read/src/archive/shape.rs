//! Walks an archive from its first byte to its last without unpacking it, to show that the file is a whole
//! archive.
//!
//! In a zstd archive, only the headers of frames and blocks are read. If the last frame is not too large, it
//! is decoded: it must hold the end of the tar stream, so truncation between two frames is found too. Archives
//! of other compressions are decoded from start to end. The contents are not checked.

use std::io::BufReader;
use std::ops::Range;

use slotpress_base::{Error, IoContext, Progress, Result, range_bytes, saturating_add_to, split_at_most, to_usize};
use slotpress_format::{
    ArchiveCompression, BLOCK_LEN, END_OF_ARCHIVE, FRAME_HEADER_BYTES_MAX, FrameHeader, FrameStart,
    SKIPPABLE_HEADER_BYTES, is_index, parse_block_header, parse_frame_start, skippable_frame_len,
};

use super::compression::detect_compression;
use super::peeker::truncated_error;
use super::source::{SOURCE_PIECE_BYTES, Source, SourceStream};
use super::streams::StreamDecoder;
use super::walk::{BufferPool, StreamPiece, WHOLE_FRAME_BYTES_MAX, damaged_at, decode_error};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveShape {
    pub compression: ArchiveCompression,
    pub length_bytes: u64,
    /// True if there is an index, into which slotpress always writes frame hashes.
    pub has_hashes: bool,
}

struct FrameExtent {
    range: Range<u64>,
    content_bytes_max: u64,
}

/// Number of blocks between two checks for an interrupt.
const BLOCKS_PER_CHECK: u64 = 1024;

/// Walks a source to its end. Waits for bytes that have not arrived yet.
///
/// # Errors
/// The source is not an archive or is truncated ([`Damaged`](slotpress_base::ErrorKind::Damaged)); the source
/// cannot be read; or the walk is interrupted.
pub fn walk_shape(source: &dyn Source, progress: &dyn Progress) -> Result<ArchiveShape> {
    let mut start = [0; BLOCK_LEN];
    let read = read_up_to(source, &mut start, 0)?;
    let compression = detect_compression(split_at_most(&start, read).0)?;
    match compression {
        ArchiveCompression::Zstd => walk_frames(source, progress),
        other => walk_stream(source, other, progress),
    }
}

fn walk_frames(source: &dyn Source, progress: &dyn Progress) -> Result<ArchiveShape> {
    let mut offset = 0u64;
    let mut has_hashes = false;
    let mut last_with_content = None;
    loop {
        let mut bytes = [0; FRAME_HEADER_BYTES_MAX];
        let read = read_up_to(source, &mut bytes, offset)?;
        if read == 0 {
            break;
        }
        let start = parse_frame_start(split_at_most(&bytes, read).0).map_err(|error| damaged_at(error, offset))?;
        match start {
            FrameStart::Skippable { content_bytes, .. } => {
                let (_, content) = split_at_most(split_at_most(&bytes, read).0, SKIPPABLE_HEADER_BYTES);
                has_hashes |= is_index(content);
                saturating_add_to(&mut offset, skippable_frame_len(content_bytes));
            }
            FrameStart::Zstd(header) => {
                let frame = walk_frame(source, offset, &header, progress)?;
                offset = frame.range.end;
                // Encoders may end a stream with an empty frame.
                if frame.content_bytes_max > 0 {
                    last_with_content = Some(frame);
                }
            }
        }
    }
    // The walk skips contents, so it has not shown that the last byte exists.
    if offset > 0 && read_up_to(source, &mut [0], offset.saturating_sub(1))? == 0 {
        return Err(truncated_error(source.length_bytes().unwrap_or(offset)));
    }
    let Some(last) = last_with_content else {
        return Err(Error::damaged("the archive is empty: none of its frames has content")
            .with_hint("download it again; if that does not help, from another source"));
    };
    if last.content_bytes_max <= WHOLE_FRAME_BYTES_MAX {
        check_end(source, &last)?;
    }
    Ok(ArchiveShape { compression: ArchiveCompression::Zstd, length_bytes: offset, has_hashes })
}

fn walk_frame(source: &dyn Source, start: u64, header: &FrameHeader, progress: &dyn Progress) -> Result<FrameExtent> {
    let mut offset = start.saturating_add(header.header_bytes as u64);
    let mut blocks = 0u64;
    loop {
        if blocks.is_multiple_of(BLOCKS_PER_CHECK) {
            progress.check()?;
        }
        saturating_add_to(&mut blocks, 1);
        let mut bytes = [0; 3];
        if read_up_to(source, &mut bytes, offset)? < bytes.len() {
            return Err(truncated_error(source.length_bytes().unwrap_or(offset)));
        }
        let block = parse_block_header(bytes).map_err(|error| damaged_at(error, offset))?;
        saturating_add_to(&mut offset, u64::from(block.stored_bytes).saturating_add(bytes.len() as u64));
        if block.is_last {
            let checksum_bytes = if header.has_checksum { 4 } else { 0 };
            let bound = blocks.saturating_mul(header.block_bytes_max);
            let content_bytes_max = header.content_bytes.unwrap_or(bound);
            return Ok(FrameExtent { range: start..offset.saturating_add(checksum_bytes), content_bytes_max });
        }
    }
}

fn check_end(source: &dyn Source, frame: &FrameExtent) -> Result<()> {
    let start = frame.range.start;
    let content_bytes_max = to_usize(frame.content_bytes_max);
    let frame_bytes = to_usize(range_bytes(&frame.range));
    // zstd never compresses to more than this bound. A longer frame is not decoded.
    if frame_bytes > zstd_safe::compress_bound(content_bytes_max) {
        return Ok(());
    }
    let mut bytes = vec![0; frame_bytes];
    if read_up_to(source, &mut bytes, start)? < frame_bytes {
        return Err(truncated_error(source.length_bytes().unwrap_or_default()));
    }
    let mut content = Vec::with_capacity(content_bytes_max);
    zstd_safe::decompress(&mut content, &bytes).map_err(|code| decode_error(start, code))?;
    check_zeros(content.last_chunk::<{ END_OF_ARCHIVE.len() }>().map_or(content.as_slice(), |end| end))
}

fn walk_stream(source: &dyn Source, compression: ArchiveCompression, progress: &dyn Progress) -> Result<ArchiveShape> {
    let mut reader = SourceStream::new(source);
    let pool = BufferPool::default();
    let mut end: Vec<u8> = Vec::new();
    let input = BufReader::with_capacity(SOURCE_PIECE_BYTES, &mut reader);
    for piece in StreamDecoder::new(input, compression, pool.clone()) {
        progress.check()?;
        let (StreamPiece::Content { bytes, .. } | StreamPiece::Frame { bytes, .. }) = piece?;
        end.extend_from_slice(&bytes);
        end.drain(..end.len().saturating_sub(END_OF_ARCHIVE.len()));
        pool.give(bytes);
    }
    check_zeros(&end)?;
    Ok(ArchiveShape { compression, length_bytes: reader.position, has_hashes: false })
}

fn check_zeros(end: &[u8]) -> Result<()> {
    if end.iter().all(|byte| *byte == 0) && !end.is_empty() {
        Ok(())
    } else {
        Err(Error::damaged("the archive is truncated: its last frame does not end the tar stream")
            .with_hint("the download did not finish: download it again"))
    }
}

pub(super) fn read_up_to(source: &dyn Source, buf: &mut [u8], offset_bytes: u64) -> Result<usize> {
    source.read_up_to(buf, offset_bytes).or_path("read", source.path())
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;
    use slotpress_base::{ErrorKind, NoProgress};

    use super::*;
    use crate::LocalFile;

    fn walk(bytes: &[u8]) -> Result<ArchiveShape> {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("archive");
        std::fs::write(&path, bytes).expect("written");
        walk_shape(&LocalFile::open(&path).expect("opened"), &NoProgress)
    }

    pub fn tar(content: &[u8]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        builder.append_data(&mut header, "version", content).expect("appended");
        builder.into_inner().expect("ended")
    }

    fn archives_of_several_compressions(content: &[u8], frame_bytes: usize) -> Vec<Vec<u8>> {
        use std::io::Write;
        let tar = tar(content);
        let mut frames: Vec<u8> =
            tar.chunks(frame_bytes).flat_map(|part| zstd::bulk::compress(part, 1).expect("compresses")).collect();
        frames.extend(slotpress_format::archive::zstd_frame::skippable_frame(3, b"a mark").expect("small"));
        let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
        lz4.write_all(&tar).expect("written");
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&tar).expect("written");
        vec![frames, lz4.finish().expect("ended"), gzip.finish().expect("ended"), tar]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        /// Whole archives pass. Truncated archives do not, whatever their compression and wherever they end.
        #[test]
        fn truncated_archives_are_refused(
            content in proptest::collection::vec(1u8.., 1..5000),
            frame_bytes in 700usize..4000,
            cut in any::<prop::sample::Index>(),
        ) {
            for bytes in archives_of_several_compressions(&content, frame_bytes) {
                let shape = walk(&bytes).expect("whole");
                prop_assert_eq!(shape.length_bytes, bytes.len() as u64);
                let cut = cut.index(bytes.len());
                // The skippable frame (zstd) and end mark (lz4) hold no content, and some zeros at
                // the end of a plain tar may be missing.
                let mark = match shape.compression {
                    ArchiveCompression::Zstd => 14,
                    ArchiveCompression::Lz4 => 8,
                    _ => 0,
                };
                let zeros = if shape.compression == ArchiveCompression::None { END_OF_ARCHIVE.len() + BLOCK_LEN } else { 0 };
                if cut < bytes.len() - mark - zeros {
                    match walk(&bytes[..cut]) {
                        Ok(_) => prop_assert!(has_all_but_zeros(&bytes, cut), "truncated at {}", cut),
                        Err(error) => prop_assert_eq!(error.kind(), ErrorKind::Damaged),
                    }
                }
            }
        }
    }

    /// True if a truncated archive consists of whole zstd frames, and lacks only some of the zeros at the end of
    /// the tar stream.
    fn has_all_but_zeros(bytes: &[u8], cut: usize) -> bool {
        let (Ok(kept), Ok(whole)) = (zstd::decode_all(&bytes[..cut]), zstd::decode_all(bytes)) else { return false };
        kept.ends_with(&[0]) && whole[kept.len()..].iter().all(|byte| *byte == 0)
    }

    /// The zeros at the end of the tar stream begin in the second of three frames, so the third may be missing.
    #[test]
    fn a_last_frame_of_zeros_may_be_missing() {
        let bytes = &archives_of_several_compressions(&[1; 1387], 1462)[0];
        let accepted_cuts: Vec<usize> = (0..bytes.len()).filter(|cut| walk(&bytes[..*cut]).is_ok()).collect();
        assert_eq!(accepted_cuts.len(), 2, "before the last frame, and before the mark: {accepted_cuts:?}");
        assert!(accepted_cuts.iter().all(|cut| has_all_but_zeros(bytes, *cut)));
    }

    #[test]
    fn files_that_are_not_archives_are_refused() {
        let page = b"<!DOCTYPE html><html><body>503</body></html>".repeat(20);
        let frame = zstd::bulk::compress(&tar(b"1.2.0"), 1).expect("compresses");
        for bytes in [Vec::new(), vec![0; 5000], page.clone(), [frame, page].concat()] {
            assert_eq!(walk(&bytes).expect_err("not an archive").kind(), ErrorKind::Damaged);
        }
    }
}
