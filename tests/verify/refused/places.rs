//! Every fault is reported, with the right frame, offset, entry and account.

use std::path::{Path, PathBuf};

use slotpress::archive::{ArchiveOptions, Codec, DirSink, EncodingOptions, archive};
use slotpress_base::NoProgress;
use slotpress_format::{Address, parse_seek_table, seek_table_frame, seek_table_len};
use slotpress_read::{Check, LocalFile, Rule, SnapshotClient, Tail, VerifyReport};

use crate::common::temp_dir;
use crate::verify::fixtures::*;

fn verify_tar(tar: &Tar) -> VerifyReport {
    let dir = temp_dir();
    verify(&write_file(dir.path(), FULL_26, &compress(&tar.write())), None, &[])
}

/// Two storages have three independent faults. Each is reported at its record. The state is reported as wrong, too.
#[test]
fn faults_of_records_are_reported_at_their_offsets() {
    let mut tar = Tar::read(FULL_26);
    let member = tar.rich_storage();
    let offsets = [1, 2].map(|index| record_ranges(&member.content)[index].start);
    member.content[offsets[0] + 96] = 2;
    member.content[offsets[1] + 96] = 77;
    let accounts = offsets.map(|offset| address_at(&member.content, offset));
    let entry = member.path();
    let last = tar.members.last_mut().expect("a storage");
    let cut_entry = last.path();
    let cut_offset = record_ranges(&last.content).pop().expect("a record").start;
    let content = last.content[..cut_offset + 99].to_vec();
    last.set_content(content);
    let report = verify_tar(&tar);
    let executable = failures_of(&report, Rule::Executable);
    assert_eq!(executable.len(), 2, "{}", describe(&report));
    for (failure, (offset, account)) in executable.iter().zip(offsets.into_iter().zip(accounts)) {
        assert_eq!(failure.place.entry.as_deref(), Some(entry.as_str()));
        assert_eq!(failure.place.offset_bytes, Some(offset as u64));
        assert_eq!(failure.place.account, Some(account));
        assert_eq!(failure.expected.as_deref(), Some("0 or 1"));
    }
    let cut = failures_of(&report, Rule::StorageTail);
    assert_eq!(cut[0].place.entry.as_deref(), Some(cut_entry.as_str()));
    assert_eq!(cut[0].place.offset_bytes, Some(cut_offset as u64));
    assert!(report.failures.iter().any(|failure| failure.check == Check::State));
}

/// Returns the address of the account whose record starts at this offset.
fn address_at(storage: &[u8], offset: usize) -> Address {
    Address(storage[offset + 16..offset + 48].try_into().expect("32 bytes"))
}

#[test]
fn an_account_that_occurs_twice_in_a_storage_is_reported_at_both_places() {
    let mut tar = Tar::read(FULL_26);
    let member = tar.rich_storage();
    let first = record_ranges(&member.content)[1].clone();
    let mut content = member.content.clone();
    content.resize(content.len().next_multiple_of(8), 0);
    let second = content.len();
    content.extend_from_within(first.clone());
    let account = address_at(&content, first.start);
    member.set_content(content);
    let entry = member.path();
    let report = verify_tar(&tar);
    let found = failures_of(&report, Rule::DuplicateAccount);
    let places: Vec<_> = found.iter().map(|failure| failure.place.offset_bytes).collect();
    assert_eq!(places, [Some(first.start as u64), Some(second as u64)], "{}", describe(&report));
    for failure in &found {
        assert_eq!(failure.place.account, Some(account));
        assert_eq!(failure.place.entry.as_deref(), Some(entry.as_str()));
    }
    let has_state_failure = report.failures.iter().any(|failure| failure.check == Check::State);
    assert!(!has_state_failure, "the wrong state is a consequence: {}", describe(&report));
}

/// An undamaged archive with an index and many frames.
struct FramedArchive {
    path: PathBuf,
    bytes: Vec<u8>,
    tail: Tail,
}

fn make_framed_archive(dir: &Path) -> FramedArchive {
    let ledger = dir.join("ledger");
    std::fs::create_dir(&ledger).expect("a directory");
    tar::Archive::new(read_tar("ledger-at-40.tar.zst").as_slice()).unpack(&ledger).expect("unpacked");
    let options = ArchiveOptions::new(ledger)
        .encoding(EncodingOptions::default().codec(Codec::zstd(1)).frame_size_bytes(64 * 1024).threads(2))
        .read_back(slotpress_read::CheckOptions::default().memory_bytes(64 << 20).temporary_dir(std::env::temp_dir()));
    let path = archive(&options, &mut DirSink::open(dir).expect("opened"), &NoProgress)
        .expect("archived, and read back")
        .archive
        .path
        .expect("a file");
    let bytes = std::fs::read(&path).expect("read");
    let tail = Tail::read(&LocalFile::open(&path).expect("opened")).expect("valid").expect("an index");
    FramedArchive { path, bytes, tail }
}

/// All damaged frames of an archive with an index are reported with their offsets, and the others are
/// read. Several neighboring frames may be damaged, and a frame may be damaged at its start.
#[test]
fn all_damaged_frames_are_reported() {
    let dir = temp_dir();
    let FramedArchive { path, bytes: intact, tail } = make_framed_archive(dir.path());
    let start = |number: usize| tail.frames[number].offset_bytes as usize;
    let middle = |number: usize| start(number) + tail.frames[number].compressed_bytes as usize / 2;
    let last = tail.frames.len() - 1;
    for (damaged, flipped_bytes) in [
        (vec![3, 7], vec![middle(3), middle(7)]),
        (vec![3, 4, 5], vec![middle(3), middle(4), middle(5)]),
        (vec![4], vec![start(4)]),
        (vec![last], vec![start(last)]),
        (vec![0], vec![middle(0)]),
    ] {
        let mut bytes = intact.clone();
        flipped_bytes.iter().for_each(|offset| bytes[*offset] ^= 0x20);
        std::fs::write(&path, bytes).expect("written");
        let report = verify(&path, None, &[]);
        let found = failures_of(&report, Rule::FrameDamaged);
        let places: Vec<_> = found.iter().map(|failure| (failure.place.frame, failure.place.offset_bytes)).collect();
        let expected: Vec<_> =
            damaged.iter().map(|number| (Some(*number as u64), Some(tail.frames[*number].offset_bytes))).collect();
        assert_eq!(places, expected, "{}", describe(&report));
        assert_eq!(report.failures.len(), damaged.len(), "no consequences are reported: {}", describe(&report));
        assert!(report.checks.last().is_some_and(|state| state.skip_reason.is_some()));
        assert!(report.counts.records > 1000, "the other frames are read");
    }
}

/// The sums of a seek table are right, but the end of a frame is wrong. The two frames at that end are reported as
/// damaged.
#[test]
fn frames_that_a_seek_table_misplaces_are_reported() {
    let dir = temp_dir();
    let FramedArchive { path, bytes: intact, .. } = make_framed_archive(dir.path());
    let footer = intact.last_chunk().expect("a footer");
    let table_offset = intact.len() - seek_table_len(footer).expect("a seek table") as usize;
    let items = parse_seek_table(&intact[table_offset..]).expect("a seek table");
    for shift_bytes in [1, 700] {
        let mut shifted = items.clone();
        shifted[3].compressed_bytes += shift_bytes;
        shifted[4].compressed_bytes -= shift_bytes;
        let bytes = [&intact[..table_offset], &seek_table_frame(&shifted).expect("a few")].concat();
        std::fs::write(&path, &bytes).expect("written");
        let tail = Tail::read(&LocalFile::open(&path).expect("opened"));
        assert!(tail.expect("right sums").is_some());
        let report = verify(&path, None, &[]);
        let found = failures_of(&report, Rule::FrameDamaged);
        assert_eq!(found.iter().map(|failure| failure.place.frame).collect::<Vec<_>>(), [Some(3), Some(4)]);
        assert_eq!(report.failures.len(), 2, "{}", describe(&report));
    }
}

/// A fault is a warning if all chosen clients accept it, and a failure if one of them does not.
#[test]
fn a_fault_that_a_client_accepts_is_a_warning_for_it() {
    let mut tar = Tar::read(FULL_26);
    tar.end = vec![0; 10_240];
    let dir = temp_dir();
    let path = write_file(dir.path(), FULL_26, &compress(&tar.write()));
    let agave = verify(&path, None, &SnapshotClient::AGAVE);
    assert!(agave.ok, "{}", describe(&agave));
    assert_eq!(agave.warnings.len(), 1);
    assert!(agave.clients.iter().all(|verdict| verdict.loads == verdict.client.is_agave()));
    assert!(!verify(&path, None, &[SnapshotClient::Firedancer]).ok);
    assert!(!verify(&path, None, &SnapshotClient::JUDGED_BY_DEFAULT).ok);
    assert!(!verify(&path, None, &[]).ok);
}
