//! Flips single bits of a small archive: each is found, or is part of bytes that have no meaning.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use slotpress::archive::{ArchiveOptions, Codec, DirSink, EncodingOptions, archive};
use slotpress_base::NoProgress;
use slotpress_read::{LocalFile, Snapshot, Tail};

use crate::common::temp_dir;
use crate::verify::fixtures::*;

/// Creates a small archive with an index. Its frames are so small that storages span several of them.
fn small_archive(dir: &Path) -> PathBuf {
    let ledger = dir.join("ledger");
    std::fs::create_dir(&ledger).expect("a directory");
    tar::Archive::new(read_tar("ledger-at-26.tar.zst").as_slice()).unpack(&ledger).expect("unpacked");
    let options = ArchiveOptions::new(ledger)
        .encoding(EncodingOptions::default().codec(Codec::zstd(1)).frame_size_bytes(64 * 1024).threads(2));
    archive(&options, &mut DirSink::open(dir).expect("opened"), &NoProgress)
        .expect("archived")
        .archive
        .path
        .expect("a file")
}

/// Returns the range of the index's version. An index of a different version is ignored.
fn index_version_range(path: &Path) -> std::ops::Range<usize> {
    let tail = Tail::read(&LocalFile::open(path).expect("opened")).expect("valid").expect("an index");
    let index_offset = tail.frames.last().expect("a frame").end_bytes() as usize;
    index_offset + 8..index_offset + 16
}

/// True if both files decode to the same tar stream, with the same frames and entries. Some
/// bits of a compressed block are padding, or choose between two encodings of the same content.
fn is_same_archive(first: &Path, second: &Path) -> bool {
    let read = |path: &Path| {
        let bytes = std::fs::read(path).expect("read");
        let tail = Tail::read(&LocalFile::open(path).ok()?).ok().flatten()?;
        Some((zstd::stream::decode_all(bytes.as_slice()).ok()?, tail.frames, tail.index.entries))
    };
    read(first).is_some_and(|content| Some(content) == read(second))
}

fn is_damage_found(path: &Path) -> bool {
    let options = verify_options(&[]).threads(1);
    match slotpress_read::verify(&Snapshot::archive(path), &options, &NoProgress) {
        Ok(report) => !report.ok,
        Err(error) => error.kind() == slotpress::ErrorKind::Damaged,
    }
}

#[test]
fn every_flipped_bit_is_found_or_has_no_meaning() {
    let dir = temp_dir();
    let path = small_archive(dir.path());
    let bytes = std::fs::read(&path).expect("read");
    let index_version = index_version_range(&path);
    // To take only seconds, the test flips every third bit of headers, index and seek table, and every
    // 4001st bit inside the frames, which checksums cover. With `SLOTPRESS_EVERY_BIT`, it flips all bits.
    let tail = Tail::read(&LocalFile::open(&path).expect("opened")).expect("valid").expect("an index");
    let is_inside_a_frame = |byte: usize| {
        tail.frames.iter().any(|frame| {
            let start = frame.offset_bytes as usize;
            (start + 18..start + frame.compressed_bytes as usize - 4).contains(&byte)
        })
    };
    let (step, inner_step) = if std::env::var_os("SLOTPRESS_EVERY_BIT").is_some() { (1, 1) } else { (3, 4001) };
    let is_tried = |bit: &usize| bit.is_multiple_of(if is_inside_a_frame(bit / 8) { inner_step } else { step });
    let bits: Vec<usize> = (0..bytes.len() * 8).filter(is_tried).collect();
    let frame_starts: Vec<usize> = tail.frames.iter().map(|frame| frame.offset_bytes as usize).collect();
    let next_bit = AtomicUsize::new(0);
    let missed = Mutex::new(Vec::new());
    // Flips one bit of the copy at a time.
    let try_bits = |copy: &Path| {
        let file = File::options().write(true).open(copy).expect("opened");
        let write = |offset: usize, byte: u8| {
            std::os::unix::fs::FileExt::write_all_at(&file, &[byte], offset as u64).expect("written");
        };
        while let Some(bit) = bits.get(next_bit.fetch_add(1, Relaxed)) {
            let offset = bit / 8;
            write(offset, bytes[offset] ^ (1 << (bit % 8)));
            let is_found_or_has_no_meaning = is_damage_found(copy) || is_same_archive(copy, &path);
            write(offset, bytes[offset]);
            // Decoders ignore bit 4 of a frame header's descriptor, the "unused bit" of RFC 8878.
            let is_unused = bit % 8 == 4 && frame_starts.contains(&offset.wrapping_sub(4));
            if !is_found_or_has_no_meaning && !is_unused && !index_version.contains(&offset) {
                missed.lock().expect("not poisoned").push(*bit);
            }
        }
    };
    std::thread::scope(|scope| {
        for worker in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            let worker_dir = dir.path().join(format!("worker-{worker}"));
            std::fs::create_dir(&worker_dir).expect("a directory");
            let copy = write_file(&worker_dir, path.file_name().expect("a name").to_str().expect("text"), &bytes);
            let try_bits = &try_bits;
            scope.spawn(move || try_bits(&copy));
        }
    });
    let missed = missed.into_inner().expect("not poisoned");
    assert!(missed.is_empty(), "of {} bits, missed: {missed:?}", bits.len());
}
