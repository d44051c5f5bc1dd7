//! Failures name the right frame, offset, entry and account, expected and found value; all of them
//! are reported.

use std::path::{Path, PathBuf};

use slotpress::archive::{ArchiveOptions, Codec, DirSink, EncodingOptions, archive};
use slotpress_base::NoProgress;
use slotpress_format::{Address, parse_seek_table, seek_table_bytes, seek_table_frame};
use slotpress_read::{Check, LocalFile, Rule, SnapshotClient, Tail, VerifyReport};

use crate::verify::fixtures::*;

fn verify_tar(tar: &Tar) -> VerifyReport {
    let dir = tempfile::tempdir().expect("a directory");
    verify(&put(dir.path(), FULL, &zstd(&tar.write())), None, &[])
}

/// Three independent faults in two storages: each is named at its record, and the state differs.
#[test]
fn records() {
    let mut tar = Tar::read(FULL);
    let (second, third);
    let (entry, accounts) = {
        let member = tar.rich_storage();
        let found = crate::verify::fixtures::records(&member.content);
        (second, third) = (found[1].0, found[2].0);
        member.content[second + 96] = 2;
        member.content[third + 96] = 77;
        let key = |at: usize| Address(member.content[at + 16..at + 48].try_into().expect("32"));
        (member.path(), [key(second), key(third)])
    };
    let last = tar.members.last_mut().expect("a storage");
    let cut_entry = last.path();
    let at = crate::verify::fixtures::records(&last.content).last().expect("a record").0;
    let content = last.content[..at + 99].to_vec();
    last.set_content(content);
    let report = verify_tar(&tar);
    let executable = of_rule(&report, Rule::Executable);
    assert_eq!(executable.len(), 2, "{}", shown(&report));
    for (failure, (at, account)) in executable.iter().zip([second, third].into_iter().zip(accounts)) {
        assert_eq!(failure.place.entry.as_deref(), Some(entry.as_str()));
        assert_eq!((failure.place.offset_bytes, failure.place.account), (Some(at as u64), Some(account)));
        assert_eq!(failure.expected.as_deref(), Some("0 or 1"));
    }
    let cut = of_rule(&report, Rule::StorageTail);
    assert_eq!(cut[0].place.entry.as_deref(), Some(cut_entry.as_str()));
    assert_eq!(cut[0].place.offset_bytes, Some(at as u64));
    assert!(report.failures.iter().any(|failure| failure.check == Check::State));
}

/// An account that its storage holds twice is named at both places.
#[test]
fn twice_in_a_storage() {
    let mut tar = Tar::read(FULL);
    let member = tar.rich_storage();
    let (at, length) = crate::verify::fixtures::records(&member.content)[1];
    let mut content = member.content.clone();
    content.resize(content.len().next_multiple_of(8), 0);
    let second = content.len();
    content.extend_from_within(at..at + length);
    let account = Address(content[at + 16..at + 48].try_into().expect("32"));
    member.set_content(content);
    let entry = member.path();
    let report = verify_tar(&tar);
    let found = of_rule(&report, Rule::DuplicateAccount);
    let places: Vec<_> = found.iter().map(|failure| failure.place.offset_bytes).collect();
    assert_eq!(places, [Some(at as u64), Some(second as u64)], "{}", shown(&report));
    assert!(found.iter().all(|it| it.place.account == Some(account) && it.place.entry.as_deref() == Some(&entry)));
    assert!(report.failures.iter().all(|failure| failure.check != Check::State), "that follows: {}", shown(&report));
}

/// Makes an archive with an index and many frames, and checks it.
fn archive_of_frames(dir: &Path) -> (PathBuf, Vec<u8>, Tail) {
    let ledger = dir.join("ledger");
    std::fs::create_dir(&ledger).expect("a directory");
    tar::Archive::new(tar_of("ledger-at-40.tar.zst").as_slice()).unpack(&ledger).expect("unpacked");
    let options = ArchiveOptions::new(ledger)
        .encoding(EncodingOptions::default().codec(Codec::zstd(1)).frame_size_bytes(64 * 1024).threads(2))
        .read_back(slotpress_read::CheckOptions::default().memory_bytes(64 << 20).temporary_dir(std::env::temp_dir()));
    let path = archive(&options, &mut DirSink::open(dir).expect("opened"), &NoProgress)
        .expect("archived, and read back")
        .archive
        .path
        .expect("a file");
    let bytes = std::fs::read(&path).expect("read");
    let tail = Tail::read(&LocalFile::open(&path).expect("opened")).expect("sound").expect("an index");
    (path, bytes, tail)
}

/// Damaged frames of an archive with an index are all reported with their offsets, and the rest is
/// read. Damage may lie across two frames, or at the start of one.
#[test]
fn frames() {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, sound, tail) = archive_of_frames(dir.path());
    let middle =
        |number: usize| tail.frames[number].offset_bytes as usize + tail.frames[number].compressed_bytes as usize / 2;
    let start = |number: usize| tail.frames[number].offset_bytes as usize;
    let last = tail.frames.len() - 1;
    for (numbers, places) in [
        (vec![3, 7], vec![middle(3), middle(7)]),
        (vec![3, 4, 5], vec![middle(3), middle(4), middle(5)]),
        (vec![4], vec![start(4)]),
        (vec![last], vec![start(last)]),
        (vec![0], vec![middle(0)]),
    ] {
        let mut bytes = sound.clone();
        places.iter().for_each(|at| bytes[*at] ^= 0x20);
        std::fs::write(&path, bytes).expect("written");
        let report = verify(&path, None, &[]);
        let found = of_rule(&report, Rule::FrameDamaged);
        let places: Vec<_> = found.iter().map(|failure| (failure.place.frame, failure.place.offset_bytes)).collect();
        let expected: Vec<_> =
            numbers.iter().map(|at| (Some(*at as u64), Some(tail.frames[*at].offset_bytes))).collect();
        assert_eq!(places, expected, "{}", shown(&report));
        assert_eq!(report.failures.len(), numbers.len(), "nothing follows from them: {}", shown(&report));
        assert!(report.checks.last().is_some_and(|state| state.skipped.is_some()));
        assert!(report.counts.records > 1000, "the other frames are read");
    }
}

/// A seek table with right sums and a wrong end of a frame: the frames beside it are not where it
/// says.
#[test]
fn a_seek_table_that_lies() {
    let dir = tempfile::tempdir().expect("a directory");
    let (path, sound, _) = archive_of_frames(dir.path());
    let footer = sound.last_chunk().expect("a footer");
    let table_at = sound.len() - seek_table_bytes(footer).expect("a seek table") as usize;
    let items = parse_seek_table(&sound[table_at..]).expect("a seek table");
    for by in [1, 700] {
        let mut lying = items.clone();
        lying[3].compressed_bytes += by;
        lying[4].compressed_bytes -= by;
        let bytes = [&sound[..table_at], &seek_table_frame(&lying).expect("few")].concat();
        std::fs::write(&path, &bytes).expect("written");
        assert_eq!(Tail::read(&LocalFile::open(&path).expect("opened")).expect("sums").map(|_| ()), Some(()));
        let report = verify(&path, None, &[]);
        let found = of_rule(&report, Rule::FrameDamaged);
        assert_eq!(found.iter().map(|failure| failure.place.frame).collect::<Vec<_>>(), [Some(3), Some(4)]);
        assert_eq!(report.failures.len(), 2, "{}", shown(&report));
    }
}

/// A fault that a client accepts is a warning for it, and a failure for the other.
#[test]
fn clients_differ() {
    let mut tar = Tar::read(FULL);
    tar.end = vec![0; 10_240];
    let dir = tempfile::tempdir().expect("a directory");
    let path = put(dir.path(), FULL, &zstd(&tar.write()));
    let agave = verify(&path, None, &SnapshotClient::AGAVE);
    assert!(agave.ok && agave.warnings.len() == 1);
    assert!(agave.clients.iter().all(|verdict| verdict.loads == verdict.client.is_agave()));
    assert!(!verify(&path, None, &[SnapshotClient::Firedancer]).ok);
    assert!(!verify(&path, None, &SnapshotClient::ALL).ok);
    assert!(!verify(&path, None, &[]).ok);
}
