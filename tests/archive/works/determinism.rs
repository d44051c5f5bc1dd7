//! The same ledger, settings and version produce the same bytes, whatever the number of threads.

use std::fs;
use std::path::Path;

use slotpress::archive::{ArchiveOptions, Codec, DirSink, EncodingOptions, archive};
use slotpress_base::NoProgress;

use crate::common::*;

const KIB: u64 = 1024;

fn archive_bytes(ledger: &Path, level: i32, frame_size_bytes: u64, threads: usize) -> Vec<u8> {
    let out = temp_dir();
    let options = ArchiveOptions::new(ledger).encoding(
        EncodingOptions::default().codec(Codec::zstd(level)).frame_size_bytes(frame_size_bytes).threads(threads),
    );
    let report = archive(&options, &mut DirSink::open(out.path()).expect("opened"), &NoProgress).expect("archived");
    fs::read(report.archive.path.expect("a file")).expect("read")
}

/// For every level and frame size, any number of threads produces the same bytes. All levels and frame
/// sizes produce the same tar stream.
#[test]
fn the_number_of_threads_changes_no_byte() {
    let ledger = ledger("ledger-at-26");
    let mut tar: Option<Vec<u8>> = None;
    for level in [-5, 1, 3, 10, 19] {
        for frame_size in [64 * KIB, 1024 * KIB, 8192 * KIB, 32768 * KIB] {
            let expected = archive_bytes(ledger.path(), level, frame_size, 1);
            for threads in [1, 2, 3, 8] {
                let again = archive_bytes(ledger.path(), level, frame_size, threads);
                assert!(again == expected, "level {level}, frames of {frame_size}, {threads} threads");
            }
            let content = zstd::stream::decode_all(expected.as_slice()).expect("decodes");
            assert!(*tar.get_or_insert_with(|| content.clone()) == content, "level {level}, frames of {frame_size}");
        }
    }
}

/// An archive does not depend on the ledger's path or the times of its files.
#[test]
fn copies_of_a_ledger_make_the_same_archive() {
    let first = ledger("ledger-at-3575");
    let second = temp_dir();
    copy_tree(first.path(), second.path());
    assert!(archive_bytes(first.path(), 1, 256 * KIB, 2) == archive_bytes(second.path(), 1, 256 * KIB, 3));
}

#[test]
fn level_and_frame_size_change_the_bytes() {
    let ledger = ledger("ledger-at-26");
    let plain = archive_bytes(ledger.path(), 1, 64 * KIB, 2);
    assert!(plain != archive_bytes(ledger.path(), 3, 64 * KIB, 2));
    assert!(plain != archive_bytes(ledger.path(), 1, 128 * KIB, 2));
}
