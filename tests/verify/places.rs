//! Failures say where: the right frame, offset, entry and account, expected and found; and all of them are reported.

use {
    super::fixtures::*,
    slotpress_format::ledger::names::Hash,
    slotpress_read::{
        rules::{
            clients::{Client, Rule},
            findings::Check,
        },
        verify::report::VerifyReport,
    },
};

fn verify_tar(tar: &Tar) -> VerifyReport {
    let dir = tempfile::tempdir().expect("a directory");
    verify(&put(dir.path(), FULL, &zstd(&tar.write())), None, &[])
}

/// Three independent faults in two storages: each is named at its record, and the state is found to differ.
#[test]
fn records() {
    let mut tar = Tar::read(FULL);
    let (second, third);
    let (entry, accounts) = {
        let member = tar.rich_storage();
        let found = super::fixtures::records(&member.content);
        (second, third) = (found[1].0, found[2].0);
        member.content[second + 96] = 2;
        member.content[third + 96] = 77;
        let key = |at: usize| Hash(member.content[at + 16..at + 48].try_into().expect("32"));
        (member.path(), [key(second), key(third)])
    };
    let last = tar.members.last_mut().expect("a storage");
    let (cut_entry, at) = (last.path(), super::fixtures::records(&last.content).last().expect("a record").0);
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
    let cut = of_rule(&report, Rule::RecordCutOff);
    assert_eq!(cut[0].place.entry.as_deref(), Some(cut_entry.as_str()));
    assert_eq!(cut[0].place.offset_bytes, Some(at as u64));
    assert_eq!(of_rule(&report, Rule::StorageMapGap).len(), 1, "its length differs from the storage map");
    assert!(report.failures.iter().any(|failure| failure.check == Check::State));
}

/// An account that its storage holds twice is named at both places.
#[test]
fn twice_in_a_storage() {
    let mut tar = Tar::read(FULL);
    let member = tar.rich_storage();
    let (at, length) = super::fixtures::records(&member.content)[1];
    let mut content = member.content.clone();
    content.resize(content.len().next_multiple_of(8), 0);
    let second = content.len();
    content.extend_from_within(at..at + length);
    let account = Hash(content[at + 16..at + 48].try_into().expect("32"));
    member.set_content(content);
    let entry = member.path();
    let report = verify_tar(&tar);
    let found = of_rule(&report, Rule::DuplicateAccount);
    let places: Vec<_> = found.iter().map(|failure| failure.place.offset_bytes).collect();
    assert_eq!(places, [Some(at as u64), Some(second as u64)], "{}", shown(&report));
    assert!(found.iter().all(|it| it.place.account == Some(account) && it.place.entry.as_deref() == Some(&entry)));
    assert!(report.failures.iter().all(|failure| failure.check != Check::State), "that follows: {}", shown(&report));
}

/// Two damaged frames of an archive with an index are both reported, with their offsets, and the rest is read.
#[test]
fn frames() {
    use {
        slotpress::{ArchiveOptions, Codec, archive},
        slotpress_base::progress::NoProgress,
        slotpress_read::archive::{source::LocalFile, tail::Tail},
    };
    let dir = tempfile::tempdir().expect("a directory");
    let ledger = dir.path().join("ledger");
    std::fs::create_dir(&ledger).expect("a directory");
    tar::Archive::new(tar_of("ledger-at-40.tar.zst").as_slice()).unpack(&ledger).expect("unpacked");
    let options =
        ArchiveOptions::new(ledger, dir.path()).codec(Codec::zstd(1)).frame_size_bytes(64 * 1024).threads(2).read_back(
            std::sync::Arc::new(
                slotpress_read::verify::own::FullReadBack::default()
                    .memory_bytes(64 << 20)
                    .temporary_dir(std::env::temp_dir()),
            ),
        );
    let path = archive(&options, &NoProgress).expect("archived, and read back").path.expect("a file");
    let mut bytes = std::fs::read(&path).expect("read");
    let tail = Tail::read(&LocalFile::open(&path).expect("opened")).expect("sound").expect("an index");
    for number in [3, 7] {
        let frame = tail.frames[number];
        bytes[frame.offset_bytes as usize + frame.compressed_bytes as usize / 2] ^= 0x20;
    }
    std::fs::write(&path, bytes).expect("written");
    let report = verify(&path, None, &[]);
    let found = of_rule(&report, Rule::FrameDamaged);
    let places: Vec<_> = found.iter().map(|failure| (failure.place.frame, failure.place.offset_bytes)).collect();
    let expected: Vec<_> = [3, 7].map(|at| (Some(at as u64), Some(tail.frames[at].offset_bytes))).into();
    assert_eq!(places, expected, "{}", shown(&report));
    assert_eq!(report.failures.len(), 2, "what follows from them is not reported: {}", shown(&report));
    assert!(report.checks.last().is_some_and(|state| state.skipped.is_some()));
    assert!(report.counts.records > 1000, "the other frames are read");
}

/// What a client tolerates is a warning for it, and a failure for the other.
#[test]
fn clients_differ() {
    let mut tar = Tar::read(FULL);
    tar.end = vec![0; 10_240];
    let dir = tempfile::tempdir().expect("a directory");
    let path = put(dir.path(), FULL, &zstd(&tar.write()));
    let agave = verify(&path, None, &Client::AGAVE);
    assert!(agave.ok && agave.warnings.len() == 1);
    assert!(agave.clients.iter().all(|verdict| verdict.loads == (verdict.client != Client::Firedancer)));
    assert!(!verify(&path, None, &[Client::Firedancer]).ok);
    assert!(!verify(&path, None, &Client::ALL).ok);
    assert!(!verify(&path, None, &[]).ok);
}
