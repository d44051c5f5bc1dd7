//! Every single flipped bit of a small archive is found, or lies in bytes without meaning.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use slotpress::archive::{ArchiveOptions, Codec, DirSink, EncodingOptions, archive};
use slotpress_base::NoProgress;
use slotpress_read::{LocalFile, NamedArchive, Snapshot, Tail};

use crate::verify::fixtures::*;

/// Makes a small archive by slotpress, with an index, and frames small enough to cut storages.
fn small_archive(dir: &Path) -> PathBuf {
    let ledger = dir.join("ledger");
    std::fs::create_dir(&ledger).expect("a directory");
    tar::Archive::new(tar_of("ledger-at-26.tar.zst").as_slice()).unpack(&ledger).expect("unpacked");
    let options = ArchiveOptions::new(ledger)
        .encoding(EncodingOptions::default().codec(Codec::zstd(1)).frame_size_bytes(64 * 1024).threads(2));
    archive(&options, &mut DirSink::open(dir).expect("opened"), &NoProgress)
        .expect("archived")
        .archive
        .path
        .expect("a file")
}

/// Returns the bytes that make the index one of another version, which is passed over.
fn version(path: &Path) -> std::ops::Range<usize> {
    let tail = Tail::read(&LocalFile::open(path).expect("opened")).expect("sound").expect("an index");
    let index_at = tail.frames.last().expect("a frame").end_bytes() as usize;
    index_at + 8..index_at + 16
}

/// Returns whether two files decode to the same tar stream, with the same frames and entries. Some
/// bits of a compressed block are padding, or encode the same in two ways.
fn is_same_archive(one: &Path, other: &Path) -> bool {
    let read = |path: &Path| {
        let bytes = std::fs::read(path).expect("read");
        let tail = Tail::read(&LocalFile::open(path).ok()?).ok().flatten()?;
        Some((zstd::stream::decode_all(bytes.as_slice()).ok()?, tail.frames, tail.index.entries))
    };
    read(one).is_some_and(|one| Some(one) == read(other))
}

#[test]
fn every_flipped_bit_is_found_or_without_meaning() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = small_archive(dir.path());
    let bytes = std::fs::read(&path).expect("read");
    let version = version(&path);
    // One bit of three in headers, index and seek table; one of some thousand inside the
    // frames, which checksums cover. That takes seconds. SLOTPRESS_EVERY_BIT takes all bits.
    let tail = Tail::read(&LocalFile::open(&path).expect("opened")).expect("sound").expect("an index");
    let inner = |at: usize| {
        tail.frames.iter().any(|frame| {
            let start = frame.offset_bytes as usize;
            (start + 18..start + frame.compressed_bytes as usize - 4).contains(&at)
        })
    };
    let (step, inner_step) = if std::env::var_os("SLOTPRESS_EVERY_BIT").is_some() { (1, 1) } else { (3, 4001) };
    let is_tried = |bit: &usize| bit.is_multiple_of(if inner(bit / 8) { inner_step } else { step });
    let bits: Vec<usize> = (0..bytes.len() * 8).filter(is_tried).collect();
    let frame_starts: Vec<usize> = tail.frames.iter().map(|frame| frame.offset_bytes as usize).collect();
    let next = AtomicUsize::new(0);
    let missed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for worker in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            let bytes = &bytes;
            let bits = &bits;
            let next = &next;
            let missed = &missed;
            let path = &path;
            let version = &version;
            let frame_starts = &frame_starts;
            let own = dir.path().join(format!("worker-{worker}"));
            std::fs::create_dir(&own).expect("a directory");
            let copy = put(&own, path.file_name().expect("a name").to_str().expect("text"), bytes);
            scope.spawn(move || {
                let mut options = options(&[]);
                options.threads = 1;
                let file = File::options().write(true).open(&copy).expect("opened");
                let write = |at: usize, byte: u8| {
                    std::os::unix::fs::FileExt::write_all_at(&file, &[byte], at as u64).expect("written");
                };
                while let Some(bit) = bits.get(next.fetch_add(1, Relaxed)) {
                    let at = bit / 8;
                    write(at, bytes[at] ^ (1 << (bit % 8)));
                    let found = match slotpress_read::verify(
                        Snapshot::archive(&NamedArchive::from_path(&copy)),
                        &options,
                        &NoProgress,
                    ) {
                        Ok(report) => !report.ok,
                        Err(error) => error.kind() == slotpress::ErrorKind::Damaged,
                    };
                    let means_nothing = !found && is_same_archive(&copy, path);
                    write(at, bytes[at]);
                    // Bit 4 of a frame header's descriptor is the "unused bit" of RFC 8878, which
                    // decoders pass over.
                    let is_unused = bit % 8 == 4 && frame_starts.contains(&at.wrapping_sub(4));
                    if !found && !means_nothing && !is_unused && !version.contains(&at) {
                        missed.lock().expect("not poisoned").push(*bit);
                    }
                }
            });
        }
    });
    let missed = missed.into_inner().expect("not poisoned");
    assert!(missed.is_empty(), "of {} bits, missed: {missed:?}", bits.len());
}
