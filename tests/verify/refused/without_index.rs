//! Archives without an index: damage ends the reading, and does not hide faults before it.

use slotpress_read::{Check, Rule, VerifyReport};

use crate::verify::fixtures::*;

/// Makes a frame with a checksum, with or without its content size.
fn frame(content: &[u8], has_content_size: bool) -> Vec<u8> {
    if has_content_size {
        let mut compressor = zstd::bulk::Compressor::new(1).expect("a compressor");
        compressor.include_checksum(true).expect("set");
        return compressor.compress(content).expect("compresses");
    }
    let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).expect("an encoder");
    encoder.include_checksum(true).expect("set");
    std::io::Write::write_all(&mut encoder, content).expect("written");
    encoder.finish().expect("finished")
}

/// Verifies frames of the given tar, some of them damaged; returns also where each frame starts.
fn verify_frames(
    tar: &[u8],
    frame_bytes: usize,
    damaged: &[usize],
    has_content_size: bool,
) -> (VerifyReport, Vec<u64>) {
    let mut bytes = Vec::new();
    let mut starts = Vec::new();
    for (number, content) in tar.chunks(frame_bytes).enumerate() {
        starts.push(bytes.len() as u64);
        let mut frame = frame(content, has_content_size);
        if damaged.contains(&number) {
            // Changes the checksum: the frame's end stays.
            let last = frame.len() - 1;
            frame[last] ^= 1;
        }
        bytes.extend(frame);
    }
    let dir = tempfile::tempdir().expect("a directory");
    (verify(&put(dir.path(), FULL, &bytes), None, &[]), starts)
}

fn skipped(report: &VerifyReport, check: Check) -> Option<String> {
    report.checks.iter().find(|result| result.name == check).and_then(|result| result.skipped.clone())
}

/// The first damaged frame is named with number and offset, and ends the reading. Faults before it
/// are found too.
#[test]
fn the_first_damaged_frame_is_reported() {
    let mut tar = Tar::read(FULL);
    let sound = verify_frames(&tar.write(), 40_000, &[], true).0;
    assert!(sound.ok, "{}", shown(&sound));
    let storages = tar.storages();
    let early = storages[2];
    let late = storages[storages.len() - 2];
    for at in [early, late] {
        tar.members[at].content[96] = 9;
    }
    let bytes = tar.write();
    let count = bytes.len().div_ceil(40_000);
    for has_content_size in [true, false] {
        for damaged in [vec![count / 2, count - 2], vec![count - 2], vec![count - 1], vec![0]] {
            let (report, starts) = verify_frames(&bytes, 40_000, &damaged, has_content_size);
            let first = damaged[0];
            let found = of_rule(&report, Rule::FrameDamaged);
            let places: Vec<_> = found.iter().map(|one| (one.place.frame, one.place.offset_bytes)).collect();
            assert_eq!(places, [(Some(first as u64), Some(starts[first]))], "{}", shown(&report));
            assert_eq!(report.counts.frames, first as u64 + 1);
            assert!(report.counts.records < sound.counts.records);
            let executable = of_rule(&report, Rule::Executable);
            let entries: Vec<_> = executable.iter().filter_map(|failure| failure.place.entry.clone()).collect();
            if first > 0 {
                assert!(entries.contains(&tar.members[early].path()), "{}", shown(&report));
            }
            assert_eq!(report.failures.len(), 1 + entries.len(), "nothing follows from it: {}", shown(&report));
            for check in [Check::Entries, Check::Records, Check::State] {
                assert!(skipped(&report, check).is_some(), "{check:?}");
            }
            assert_eq!((skipped(&report, Check::Bank).is_some(), report.slot.is_none()), (first == 0, first == 0));
        }
    }
}

/// An invalid header is named at its offset, and ends the reading. Faults before it are still
/// found.
#[test]
fn a_damaged_header_does_not_hide_faults_before_it() {
    let mut tar = Tar::read(FULL);
    let storages = tar.storages();
    let early = storages[2];
    let broken = storages[3];
    let late = storages[storages.len() - 2];
    let offset: usize = tar.members[..broken].iter().map(|it| 512 + it.content.len().next_multiple_of(512)).sum();
    tar.members[broken].header.as_mut_bytes()[0] ^= 1;
    tar.members[early].content[96] = 9;
    tar.members[late].content[96] = 9;
    for frame_bytes in [10_000, usize::MAX] {
        let report = verify_frames(&tar.write(), frame_bytes, &[], true).0;
        let damaged = of_rule(&report, Rule::TarDamaged);
        assert_eq!(damaged.len(), 1, "{}", shown(&report));
        let found = damaged[0].found.clone().unwrap_or_default();
        assert!(found.contains(&format!("at offset {offset} of the tar stream")), "{found}");
        assert_eq!(of_rule(&report, Rule::Executable)[0].place.entry, Some(tar.members[early].path()));
        assert_eq!(report.failures.len(), 2, "{}", shown(&report));
        for check in [Check::Entries, Check::Records] {
            assert_eq!(skipped(&report, check).as_deref(), Some("nothing after the damage was read"));
        }
    }
}

/// Damaged headers take no time, and the report says what was not checked.
#[test]
fn a_stream_is_given_up_at_a_damaged_header() {
    let mut tar = Tar::read(FULL);
    let version = tar.position(|path| path == "version");
    let mut bad = Member::new("accounts/1.1", b'0', b"");
    bad.header.as_mut_bytes()[0] ^= 1;
    let good = tar.members[version].clone();
    for _ in 0..200 {
        tar.members.splice(1..1, [bad.clone(), good.clone()]);
    }
    let report = verify_frames(&tar.write(), usize::MAX, &[], true).0;
    assert!(!report.ok);
    assert_eq!(of_rule(&report, Rule::TarDamaged).len(), 1);
    assert_eq!(report.counts.storages, 0, "given up before the storages");
    assert!(skipped(&report, Check::Entries).is_some());
}
