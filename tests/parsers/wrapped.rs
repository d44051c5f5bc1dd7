//! Makes an archive of any tar stream, so that changed bytes pass the checks of frames and of headers, and reach
//! the readers of entries.

use slotpress_format::{Entry, EntryParser, Index, SeekTableItem, TarEvent, frame_hash, seek_table_frame};

const BLOCK_BYTES: usize = 512;

const CHECKSUM: std::ops::Range<usize> = 148..156;
const LENGTH: std::ops::Range<usize> = 124..136;

/// Writes the correct checksum into every header. Finds headers by the lengths that they state.
pub fn fix_checksums(mut tar: Vec<u8>) -> Vec<u8> {
    let mut offset = 0;
    while let Some(header) = tar.get_mut(offset..offset + BLOCK_BYTES) {
        if header.iter().any(|byte| *byte != 0) {
            header[CHECKSUM].fill(b' ');
            let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
            header[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
        let length = std::str::from_utf8(&header[LENGTH]).unwrap_or_default();
        let length = usize::from_str_radix(length.trim_matches(['\0', ' ']), 8).unwrap_or_default();
        offset += BLOCK_BYTES + length.min(tar.len()).next_multiple_of(BLOCK_BYTES);
    }
    tar
}

/// Makes an archive of one zstd frame.
pub fn compress_to_one_frame(tar: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(tar, 1).expect("compressed")
}

/// Makes an archive of frames of the given size, with the index and seek table that slotpress writes. `alter`
/// changes the entries of the index.
pub fn archive_with_index(tar: &[u8], frame_size_bytes: usize, alter: &dyn Fn(&mut Vec<Entry>)) -> Vec<u8> {
    let mut archive = Vec::new();
    let mut items = Vec::new();
    let mut hashes = Vec::new();
    let item = |bytes: &[u8], content_bytes: usize| SeekTableItem {
        compressed_bytes: bytes.len() as u32,
        content_bytes: content_bytes as u32,
    };
    for piece in tar.chunks(frame_size_bytes) {
        let frame = compress_to_one_frame(piece);
        hashes.push(frame_hash(&frame));
        items.push(item(&frame, piece.len()));
        archive.extend_from_slice(&frame);
    }
    let mut index = Index {
        writer: "a test".into(),
        settings: String::new(),
        frame_size_bytes: frame_size_bytes as u64,
        hashes,
        entries: entries(tar),
    };
    alter(&mut index.entries);
    let index = index.to_frame().expect("small");
    items.push(item(&index, 0));
    archive.extend_from_slice(&index);
    archive.extend_from_slice(&seek_table_frame(&items).expect("small"));
    archive
}

/// Returns the entries of a tar, up to the first invalid one.
fn entries(tar: &[u8]) -> Vec<Entry> {
    let mut parser = EntryParser::default();
    let mut entries = Vec::new();
    let _ = parser.feed(tar, &mut |event| {
        if let TarEvent::Begin(entry) = event {
            entries.push(entry);
        }
        Ok(())
    });
    entries
}
