//! Archives without an index: reading ends at damage, and faults before the damage are still found.

use slotpress_read::{Check, Rule, VerifyReport};

use crate::common::temp_dir;
use crate::verify::fixtures::*;

/// Whether a frame's header states the length of the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ContentSize {
    Stated,
    Unknown,
}

/// Returns a frame with a checksum.
fn compress_frame(content: &[u8], content_size: ContentSize) -> Vec<u8> {
    if content_size == ContentSize::Stated {
        let mut compressor = zstd::bulk::Compressor::new(1).expect("a compressor");
        compressor.include_checksum(true).expect("set");
        return compressor.compress(content).expect("compresses");
    }
    let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).expect("an encoder");
    encoder.include_checksum(true).expect("set");
    std::io::Write::write_all(&mut encoder, content).expect("written");
    encoder.finish().expect("finished")
}

/// An archive of many frames, and the report on it.
struct VerifiedFrames {
    report: VerifyReport,
    /// Offset of each frame.
    starts: Vec<u64>,
}

/// Makes frames of a tar, some of them damaged, and verifies the archive.
fn verify_frames(tar: &[u8], frame_bytes: usize, damaged: &[usize], content_size: ContentSize) -> VerifiedFrames {
    let mut bytes = Vec::new();
    let mut starts = Vec::new();
    for (number, content) in tar.chunks(frame_bytes).enumerate() {
        starts.push(bytes.len() as u64);
        let mut frame = compress_frame(content, content_size);
        if damaged.contains(&number) {
            // The checksum is changed, so the frame's end stays where it is.
            let last = frame.len() - 1;
            frame[last] ^= 1;
        }
        bytes.extend(frame);
    }
    let dir = temp_dir();
    VerifiedFrames { report: verify(&write_file(dir.path(), FULL_26, &bytes), None, &[]), starts }
}

/// The first damaged frame is reported with its number and offset, and reading ends there. Faults
/// before it are found too.
#[test]
fn the_first_damaged_frame_is_reported() {
    let mut tar = Tar::read(FULL_26);
    let intact = verify_frames(&tar.write(), 40_000, &[], ContentSize::Stated).report;
    assert!(intact.ok, "{}", describe(&intact));
    let storages = tar.storages();
    let early = storages[2];
    let late = storages[storages.len() - 2];
    for index in [early, late] {
        tar.members[index].content[field::EXECUTABLE] = 9;
    }
    let bytes = tar.write();
    let count = bytes.len().div_ceil(40_000);
    for content_size in [ContentSize::Stated, ContentSize::Unknown] {
        for damaged in [vec![count / 2, count - 2], vec![count - 2], vec![count - 1], vec![0]] {
            let VerifiedFrames { report, starts } = verify_frames(&bytes, 40_000, &damaged, content_size);
            let first = damaged[0];
            let found = failures_of(&report, Rule::FrameDamaged);
            let places: Vec<_> =
                found.iter().map(|failure| (failure.place.frame, failure.place.offset_bytes)).collect();
            assert_eq!(places, [(Some(first as u64), Some(starts[first]))], "{}", describe(&report));
            assert_eq!(report.counts.frames, first as u64 + 1);
            assert!(report.counts.records < intact.counts.records);
            let executable = failures_of(&report, Rule::Executable);
            let entries: Vec<_> = executable.iter().filter_map(|failure| failure.place.entry.clone()).collect();
            if first > 0 {
                assert!(entries.contains(&tar.members[early].path()), "{}", describe(&report));
            }
            assert_eq!(report.failures.len(), 1 + entries.len(), "no consequences are reported: {}", describe(&report));
            for check in [Check::Entries, Check::Records, Check::State] {
                assert!(report.skip_reason(check).is_some(), "{check:?}");
            }
            assert_eq!(report.skip_reason(Check::Bank).is_some(), first == 0);
            assert_eq!(report.slot.is_none(), first == 0);
        }
    }
}

/// An invalid header is reported with its offset, and reading ends there. Faults before it are still
/// found.
#[test]
fn a_damaged_header_does_not_hide_faults_before_it() {
    let mut tar = Tar::read(FULL_26);
    let storages = tar.storages();
    let early = storages[2];
    let broken = storages[3];
    let late = storages[storages.len() - 2];
    let offset: usize =
        tar.members[..broken].iter().map(|member| 512 + member.content.len().next_multiple_of(512)).sum();
    tar.members[broken].header.as_mut_bytes()[0] ^= 1;
    tar.members[early].content[field::EXECUTABLE] = 9;
    tar.members[late].content[field::EXECUTABLE] = 9;
    for frame_bytes in [10_000, usize::MAX] {
        let report = verify_frames(&tar.write(), frame_bytes, &[], ContentSize::Stated).report;
        let damaged = failures_of(&report, Rule::TarDamaged);
        assert_eq!(damaged.len(), 1, "{}", describe(&report));
        let found = damaged[0].found.clone().unwrap_or_default();
        assert!(found.contains(&format!("at offset {offset} of the tar stream")), "{found}");
        assert_eq!(failures_of(&report, Rule::Executable)[0].place.entry, Some(tar.members[early].path()));
        assert_eq!(report.failures.len(), 2, "{}", describe(&report));
        for check in [Check::Entries, Check::Records] {
            assert_eq!(report.skip_reason(check), Some("nothing after the damage was read"));
        }
    }
}

/// Reading ends at the first of many damaged headers, and the report names a check that was skipped.
#[test]
fn reading_ends_at_the_first_damaged_header() {
    let mut tar = Tar::read(FULL_26);
    let version = tar.position(|path| path == "version");
    let mut damaged = Member::new("accounts/1.1", b'0', b"");
    damaged.header.as_mut_bytes()[0] ^= 1;
    let undamaged = tar.members[version].clone();
    for _ in 0..200 {
        tar.members.splice(1..1, [damaged.clone(), undamaged.clone()]);
    }
    let report = verify_frames(&tar.write(), usize::MAX, &[], ContentSize::Stated).report;
    assert!(!report.ok);
    assert_eq!(failures_of(&report, Rule::TarDamaged).len(), 1);
    assert_eq!(report.counts.storages, 0, "reading ended before the storages");
    assert!(report.skip_reason(Check::Entries).is_some());
}
