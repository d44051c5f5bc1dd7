//! Recognizes plainly truncated files with a few reads. Walking every archive from start to end, as
//! [`shape`](super::shape) does, would take too long for a listing.

use slotpress_base::{Result, split_at_most, to_usize};
use slotpress_format::{
    BLOCK_CONTENT_BYTES_MAX, FRAME_HEADER_BYTES_MAX, FrameStart, SEEK_TABLE_FOOTER_BYTES, SKIPPABLE_MAGIC, ZSTD_MAGIC,
    parse_block_header, parse_frame_start, seek_table_len, skippable_frame_len,
};

use super::shape::read_up_to;
use super::source::Source;

/// True if a few reads show that a zstd file is incomplete: it is empty, or its last bytes are not the
/// end of a frame. Truncation between two frames is not found.
///
/// # Errors
/// The source cannot be read.
pub fn is_plainly_truncated(source: &dyn Source) -> Result<bool> {
    match source.length_bytes() {
        None => Ok(false),
        Some(0) => Ok(true),
        Some(length_bytes) => ends_within_a_frame(source, length_bytes),
    }
}

/// Bytes read at the end of a file. zstd blocks are at most 128 KiB, so in a long archive that is whole, these
/// bytes end in a chain of at least three blocks. The end of a truncated file looks like a block in about 1 of
/// 40 files, and like such a chain in fewer than 1 in a million.
const END_BYTES: u64 = 512 * 1024;

/// Possible meanings of a position near the end of an archive, as bits: the end of a frame, the start of a
/// block in a frame without a checksum, or the start of a block in a frame with a checksum.
type Classes = u8;
const FRAME_END: Classes = 1;
const BLOCK: Classes = 2;
const BLOCK_BEFORE_CHECKSUM: Classes = 4;

/// True if no chain of zstd blocks and frames leads to the end of the file. Works backwards: the class of each
/// position follows from the class of the position that its header points to.
fn ends_within_a_frame(source: &dyn Source, length_bytes: u64) -> Result<bool> {
    let start = length_bytes.saturating_sub(END_BYTES);
    let mut bytes = vec![0; to_usize(length_bytes.saturating_sub(start))];
    if read_up_to(source, &mut bytes, start)? < bytes.len() {
        return Ok(true);
    }
    // A file with a seek table is whole. The table's frame may be longer than the bytes read here.
    if bytes.last_chunk::<SEEK_TABLE_FOOTER_BYTES>().is_some_and(|footer| seek_table_len(footer).is_some()) {
        return Ok(false);
    }
    let mut classes: Vec<Classes> = vec![0; bytes.len().saturating_add(1)];
    if let Some(last) = classes.last_mut() {
        *last = FRAME_END;
    }
    for position in (0..bytes.len()).rev() {
        let following = split_at_most(&bytes, position).1;
        let classes_at =
            |distance: u64| classes.get(position.saturating_add(to_usize(distance))).copied().unwrap_or_default();
        let classes_here = classes_of_block(following, classes_at) | classes_of_frame(following, classes_at);
        if let Some(entry) = classes.get_mut(position) {
            *entry = classes_here;
        }
    }
    // The first position that was read may lie inside a block, or inside its checksum.
    let start_positions = if start == 0 { 1 } else { to_usize(BLOCK_CONTENT_BYTES_MAX.saturating_add(8)) };
    Ok(split_at_most(&classes, start_positions).0.iter().all(|classes| *classes == 0))
}

/// Classifies a position as the start of a block. `classes_at(n)` returns the classes of the
/// position `n` bytes later.
fn classes_of_block(bytes: &[u8], classes_at: impl Fn(u64) -> Classes) -> Classes {
    let Some(header) = bytes.first_chunk::<3>() else { return 0 };
    // Most positions are not the start of a block. This check avoids creating an error for each of them.
    if u64::from(u32::from_le_bytes([header[0], header[1], header[2], 0]) >> 3) > BLOCK_CONTENT_BYTES_MAX {
        return 0;
    }
    let Ok(block) = parse_block_header(*header) else { return 0 };
    let end = u64::from(block.stored_bytes).saturating_add(3);
    if block.is_last {
        let mut classes = 0;
        if classes_at(end) & FRAME_END != 0 {
            classes |= BLOCK;
        }
        if classes_at(end.saturating_add(4)) & FRAME_END != 0 {
            classes |= BLOCK_BEFORE_CHECKSUM;
        }
        classes
    } else {
        classes_at(end) & (BLOCK | BLOCK_BEFORE_CHECKSUM)
    }
}

fn classes_of_frame(bytes: &[u8], classes_at: impl Fn(u64) -> Classes) -> Classes {
    let magic = bytes.first_chunk().map_or(0, |magic| u32::from_le_bytes(*magic));
    if magic != ZSTD_MAGIC && magic & !15 != SKIPPABLE_MAGIC {
        return 0;
    }
    let is_frame = match parse_frame_start(split_at_most(bytes, FRAME_HEADER_BYTES_MAX).0) {
        Ok(FrameStart::Skippable { content_bytes, .. }) => {
            classes_at(skippable_frame_len(content_bytes)) & FRAME_END != 0
        }
        Ok(FrameStart::Zstd(header)) => {
            let block = if header.has_checksum { BLOCK_BEFORE_CHECKSUM } else { BLOCK };
            classes_at(header.header_bytes as u64) & block != 0
        }
        Err(_) => false,
    };
    if is_frame { FRAME_END } else { 0 }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::super::shape::tests::tar;
    use super::*;
    use crate::LocalFile;

    fn is_truncated(bytes: &[u8]) -> bool {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("archive");
        std::fs::write(&path, bytes).expect("written");
        is_plainly_truncated(&LocalFile::open(&path).expect("opened")).expect("read")
    }

    fn archive_of_one_frame(content_bytes: usize, level: i32, has_checksum: bool) -> Vec<u8> {
        let mut content = vec![0; content_bytes];
        let mut draw = 1u64;
        for word in content.chunks_mut(8) {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let bytes = (draw >> 7).to_le_bytes();
            let random = word.len().min((draw >> 60) as usize);
            word[..random].copy_from_slice(&bytes[..random]);
        }
        let mut encoder = zstd::stream::Encoder::new(Vec::new(), level).expect("an encoder");
        encoder.include_checksum(has_checksum).expect("set");
        encoder.write_all(&tar(&content)).expect("compressed");
        encoder.finish().expect("ended")
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        /// A whole archive of one frame, as Agave writes it, is not reported as truncated, and the same archive
        /// truncated anywhere is. The result does not change if other frames precede the frame, or if a
        /// skippable frame follows it.
        #[test]
        fn truncation_inside_a_frame_is_found(
            content_bytes in 1usize..3_000_000, level in -20i32..4, has_checksum: bool, cuts in prop::collection::vec(any::<prop::sample::Index>(), 6),
        ) {
            use slotpress_format::skippable_frame;
            let archive = archive_of_one_frame(content_bytes, level, has_checksum);
            let small = archive_of_one_frame(500, 1, !has_checksum);
            prop_assert!(!is_truncated(&archive));
            prop_assert!(!is_truncated(&[small.as_slice(), &small, &archive].concat()));
            prop_assert!(!is_truncated(&[archive.as_slice(), &small, &skippable_frame(3, &[5; 100]).expect("small")].concat()));
            for cut in cuts {
                let cut = cut.index(archive.len() - 1) + 1;
                prop_assert!(is_truncated(&archive[..cut]), "truncated at {} of {}", cut, archive.len());
                let two_frames = [small.as_slice(), &archive[..cut]].concat();
                prop_assert!(is_truncated(&two_frames), "truncated at {} of {}, the second", cut, archive.len());
            }
        }
    }

    /// `pzstd` writes a skippable frame before each frame.
    #[test]
    fn truncation_inside_frames_of_pzstd_is_found() {
        use slotpress_format::skippable_frame;
        let mut marked = Vec::new();
        let mut ends = vec![];
        for part in tar(&[7; 5000]).chunks(1000) {
            let frame = zstd::bulk::compress(part, 1).expect("compresses");
            for frame in [skippable_frame(0, &(frame.len() as u32).to_le_bytes()).expect("small"), frame] {
                marked.extend(frame);
                ends.push(marked.len());
            }
        }
        marked.extend(skippable_frame(3, &[5; 100]).expect("small"));
        let unmarked = zstd::bulk::compress(&tar(b"1.2.0"), 1).expect("compresses");
        assert!(!is_truncated(&marked));
        assert!(!is_truncated(&unmarked));
        assert!(is_truncated(b""));
        let not_found: Vec<usize> = (1..marked.len()).filter(|length| !is_truncated(&marked[..*length])).collect();
        assert_eq!(not_found, ends);
    }
}
