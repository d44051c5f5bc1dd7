//! A damaged or hostile archive: `restore` fails with a clear error and leaves no files, or the
//! damage does not matter and the result is the same. It never panics, writes outside the target,
//! or leaves a ledger that looks complete.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use slotpress::archive::DirSink;
use slotpress::recompress::{RecompressOptions, recompress};
use slotpress::restore::{RestoreOptions, RestoreReport, TargetOptions, restore};
use slotpress::verify::{VerifyOptions, verify};
use slotpress::{Error, ErrorKind, Snapshot};
use slotpress_base::NoProgress;
use slotpress_format::{Entry, EntryKind, Index, SeekTableItem, seek_table_frame};
use tempfile::TempDir;

use crate::common::records::RECORD_HEADER_BYTES;
use crate::common::*;

type Tree = BTreeMap<String, Option<Vec<u8>>>;

fn try_restore(archive: &Path, to: &Path) -> Result<RestoreReport, Error> {
    restore(&RestoreOptions::new(archive, TargetOptions::new(to).threads(2)), &NoProgress)
}

/// A directory to damage an archive in, and the result of restoring it undamaged.
struct DamageTest {
    dir: TempDir,
    archive: PathBuf,
    bytes: Vec<u8>,
    expected: Tree,
}

impl DamageTest {
    fn new(archive: &Path) -> Self {
        let dir = temp_dir();
        fs::create_dir(dir.path().join("in")).expect("made");
        let bytes = fs::read(archive).expect("read");
        let archive = dir.path().join("in").join(name(archive));
        fs::write(&archive, &bytes).expect("written");
        let mut test = Self { dir, archive, bytes, expected: Tree::new() };
        test.restore().expect("the undamaged archive restores");
        test.expected = test.take_restored();
        test
    }

    fn restore(&self) -> Result<RestoreReport, Error> {
        try_restore(&self.archive, &self.dir.path().join("out"))
    }

    /// Returns the restored files, without the copy of the archive and the lock, and removes them.
    fn take_restored(&self) -> Tree {
        let out = self.dir.path().join("out");
        let mut found = tree(&out);
        found.retain(|path, _| !path.ends_with(".tar.zst") && path != "ledger.lock");
        fs::remove_dir_all(out).expect("removed");
        found
    }

    /// Restores damaged bytes. The result must be the same as without damage, or an error and no files.
    /// Returns true if it is the same.
    fn is_harmless(&self, bytes: &[u8], label: &str) -> bool {
        fs::write(&self.archive, bytes).expect("written");
        match self.restore() {
            Ok(_) => {
                assert!(self.take_restored() == self.expected, "{label}: restored something else");
                true
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Damaged, "{label}: {error}");
                assert!(!error.to_string().is_empty());
                assert_eq!(
                    relative_paths(self.dir.path()),
                    ["in".to_string(), format!("in/{}", name(&self.archive))],
                    "{label}"
                );
                false
            }
        }
    }

    /// Returns every offset in the head and the tail, and evenly spread offsets between them.
    fn offsets(&self) -> Vec<usize> {
        let length = self.bytes.len();
        (0..length).filter(|at| *at < 64 || length - at <= 400 || at % 997 == 0).collect()
    }
}

/// Makes tests of an archive of slotpress that has several frames: with its index, and without it.
fn damage_tests() -> [DamageTest; 2] {
    let ledger = ledger("ledger-at-26");
    let out = temp_dir();
    let archive = archive(ledger.path(), out.path(), &["--frame-size", "256KiB"]);
    let in_order = copy_without_index(&archive, out.path());
    [&*archive, &in_order].map(DamageTest::new)
}

#[test]
fn truncated_archives_are_refused_or_complete() {
    let mut has_whole = Vec::new();
    for test in damage_tests() {
        let offsets = test.offsets();
        let is_whole = |at: &&usize| test.is_harmless(&test.bytes[..**at], &format!("truncated at {at}"));
        let whole = offsets.iter().filter(is_whole).count();
        assert!(offsets.len() - whole > 100, "{whole} whole of {}", offsets.len());
        has_whole.push(whole > 0);
    }
    // The tar is complete if only the seek table, or also the index, is missing.
    assert_eq!(has_whole, [true, false]);
}

#[test]
fn flipped_bytes_are_refused_or_harmless() {
    let mut has_harmless = Vec::new();
    for test in damage_tests() {
        let mut harmless = 0;
        let mut refused = 0;
        for at in test.offsets() {
            let mut bytes = test.bytes.clone();
            bytes[at] ^= 1 << (at % 8);
            if test.is_harmless(&bytes, &format!("flipped at {at}")) { harmless += 1 } else { refused += 1 }
        }
        assert!(refused > 100, "{harmless} harmless, {refused} refused");
        has_harmless.push(harmless > 100);
    }
    // A damaged index is passed over.
    assert_eq!(has_harmless, [true, false]);
}

/// Agave's archive has one frame, no index and no checksum. Changed bytes that have no meaning are not found, but a
/// refused archive leaves no files.
#[test]
fn damaged_archives_of_agave_leave_no_files() {
    let dir = temp_dir();
    let path = dir.path().join("in").join(FULL_26);
    fs::create_dir(path.parent().expect("a parent")).expect("made");
    let bytes = fs::read(fixture(FULL_26)).expect("read");
    let mut refused = 0;
    for at in (0..bytes.len()).filter(|at| *at < 40 || at % 2999 == 0) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x10;
        for (bytes, is_truncated) in [(&flipped[..], false), (&bytes[..at], true)] {
            fs::write(&path, bytes).expect("written");
            match try_restore(&path, &dir.path().join("out")) {
                Ok(_) => {
                    assert!(!is_truncated, "truncated at {at}");
                    fs::remove_dir_all(dir.path().join("out")).expect("removed");
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
                    refused += 1;
                    assert_eq!(relative_paths(dir.path()).len(), 2, "nothing is left");
                }
            }
        }
    }
    assert!(refused > 100);
}

#[test]
fn the_program_reports_damage() {
    let dir = temp_dir();
    let bytes = fs::read(fixture(FULL_26)).expect("read");
    let html = b"<!DOCTYPE html><html><body><h1>404 Not Found</h1></body></html>".as_slice();
    let long_html = html.repeat(40);
    for (content, message) in [
        (b"".as_slice(), "the file is empty"),
        (html, "not a snapshot archive"),
        (&long_html, "not a snapshot archive"),
        (&bytes[..bytes.len() / 2], "truncated"),
        (&[0; 5000], "not a snapshot archive"),
    ] {
        let archive = dir.path().join(FULL_26);
        fs::write(&archive, content).expect("written");
        let output = slotpress().arg("restore").arg(&archive).arg("--ledger").arg(dir.path().join("x")).output();
        let output = output.expect("runs");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{stderr}");
        assert!(stderr.starts_with("error: "), "{stderr}");
        assert!(stderr.contains(message), "{stderr}");
        assert!(stderr.contains("\nhint: "), "{stderr}");
        assert_eq!(relative_paths(dir.path()), [FULL_26]);
    }
    let output =
        slotpress().arg("restore").arg(dir.path()).arg("--ledger").arg(dir.path().join("x")).output().expect("runs");
    assert!(String::from_utf8_lossy(&output.stderr).contains("has no archive that a node would choose"));
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(relative_paths(dir.path()), [FULL_26]);
}

fn file_entry(path: &str, content: &[u8]) -> TarEntry {
    TarEntry { path: path.to_string(), kind: b'0', content: content.to_vec() }
}

/// Asserts that a crafted tar, in one frame or several, is refused, and leaves no files inside or
/// outside the target.
fn assert_refused(tar: &[u8], label: &str) {
    for bytes in [
        zstd::stream::encode_all(tar, 1).expect("compresses"),
        tar.chunks(700).flat_map(|piece| zstd::bulk::compress(piece, 1).expect("compresses")).collect(),
    ] {
        let dir = temp_dir();
        let archive = dir.path().join("crafted.tar.zst");
        fs::write(&archive, bytes).expect("written");
        let error = try_restore(&archive, &dir.path().join("out")).err();
        let error = error.unwrap_or_else(|| panic!("{label} was restored"));
        assert_eq!(error.kind(), ErrorKind::Damaged, "{label}: {error}");
        assert_eq!(relative_paths(dir.path()), ["crafted.tar.zst"], "{label}");
    }
}

#[test]
fn entries_that_no_snapshot_holds_are_refused() {
    let good = entries(&fixture(FULL_26));
    let with = |entry: TarEntry| {
        let mut entries = good.clone();
        entries.push(entry);
        make_tar(&entries)
    };
    for path in [
        "../x",
        "../../x",
        "/tmp/slotpress-test-absolute",
        "./version",
        "accounts/../../x",
        "accounts/../version",
        "snapshots/../x",
        "accounts/1.1/",
        "accounts/27.4294967296",
        "accounts/x",
        "genesis.bin",
        "snapshots/26/../../../x",
        "snapshots/26/x",
        "",
    ] {
        assert_refused(&with(file_entry(path, b"content")), path);
    }
    assert!(!Path::new("/tmp/slotpress-test-absolute").exists());
    for kind in [b'1', b'2', b'3', b'4', b'6', b'7', b'S', b'L', b'K', b'x', b'g', b'V', b'M', b'D', 0x80] {
        let entry = TarEntry { path: "accounts/27.99".to_string(), kind, content: b"23 path=../../outside\n".to_vec() };
        assert_refused(&with(entry), &format!("kind {:?}", char::from(kind)));
    }
    // Long names before a valid entry.
    for (kind, path) in [(b'L', "././@LongLink"), (b'x', "PaxHeaders/x")] {
        let mut entries = good.clone();
        entries.insert(0, TarEntry { path: path.to_string(), kind, content: b"../../outside\0".to_vec() });
        assert_refused(&make_tar(&entries), "a long name");
    }
}

#[test]
fn sets_of_entries_that_no_client_loads_are_refused() {
    let good = entries(&fixture(FULL_26));
    let assert_change_refused = |label: &str, change: &dyn Fn(&mut Vec<TarEntry>)| {
        let mut entries = good.clone();
        change(&mut entries);
        assert_refused(&make_tar(&entries), label);
    };
    for path in ["version", "snapshots/status_cache", "snapshots/26/26", "accounts/5.5"] {
        assert_change_refused(&format!("{path} twice"), &|entries| {
            let again = entries.iter().find(|entry| entry.path == path).expect("the entry").clone();
            entries.push(again);
        });
        assert_change_refused(&format!("no {path}"), &|entries| entries.retain(|entry| entry.path != path));
        assert_change_refused(&format!("an empty {path}"), &|entries| {
            entries.iter_mut().find(|entry| entry.path == path).expect("the entry").content.clear();
        });
    }
    assert_change_refused("two storages of a slot", &|entries| {
        entries.push(file_entry("accounts/5.99", &[1; RECORD_HEADER_BYTES]))
    });
    assert_change_refused("a storage of the future", &|entries| {
        entries.push(file_entry("accounts/27.99", &[1; RECORD_HEADER_BYTES]))
    });
    assert_change_refused("two bank files", &|entries| {
        let bank = entries.iter().find(|entry| entry.path == "snapshots/26/26").expect("the entry").content.clone();
        entries.push(file_entry("snapshots/27/27", &bank));
    });
    assert_change_refused("a bank file of a different slot", &|entries| {
        for entry in entries.iter_mut().filter(|entry| entry.path.starts_with("snapshots/26")) {
            entry.path = entry.path.replace("26", "25");
        }
        entries.retain(|entry| entry.path != "accounts/26.26");
    });
    assert_change_refused("an unknown version", &|entries| {
        entries.iter_mut().find(|entry| entry.path == "version").expect("the entry").content = b"9.9.9".to_vec();
    });
    assert_change_refused("a bank file with a byte too many", &|entries| {
        entries.iter_mut().find(|entry| entry.path == "snapshots/26/26").expect("the entry").content.push(0);
    });
    assert_change_refused("a bank file that is truncated", &|entries| {
        entries.iter_mut().find(|entry| entry.path == "snapshots/26/26").expect("the entry").content.truncate(9_000);
    });
    assert_refused(&make_tar(&[]), "an empty tar");
    assert_refused(&make_tar(&good[..5]), "no storages");
    let tar = make_tar(&good);
    assert_refused(&tar[..tar.len() - 1024], "no end of archive");
}

/// A program that allocated as much as these sizes state would not survive the test.
#[test]
fn huge_sizes_are_refused() {
    let good = entries(&fixture(FULL_26));
    for size in [1 << 34, (1u64 << 34) + 1, u64::from(u32::MAX), 1 << 62, u64::MAX] {
        let mut tar = make_tar(&good[..7]);
        tar.truncate(tar.len() - 1024);
        tar.extend_from_slice(&tar_header("accounts/9.9", b'0', size));
        tar.extend_from_slice(&[7; 4096]);
        assert_refused(&tar, &format!("a size of {size}"));
    }
    // A zstd frame that states a terabyte, or needs a window of gigabytes.
    for frame in [
        b"\x28\xb5\x2f\xfd\xe0\x00\x00\x00\x00\x00\x01\x00\x00\x01\x00\x00".as_slice(),
        b"\x28\xb5\x2f\xfd\x00\xff\x01\x00\x00",
    ] {
        let dir = temp_dir();
        let archive = dir.path().join("crafted.tar.zst");
        fs::write(&archive, frame).expect("written");
        let error = try_restore(&archive, &dir.path().join("out")).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
        assert_eq!(relative_paths(dir.path()), ["crafted.tar.zst"]);
    }
}

/// Makes an archive with an index and a seek table. Each frame has a part of a tar stream, and the length that the seek
/// table lists for it. The lengths and the index entries may be wrong.
fn forge_archive(frames: &[(&[u8], u32)], entries: Vec<Entry>) -> Vec<u8> {
    let mut file = Vec::new();
    let mut items = Vec::new();
    for (tar, listed_bytes) in frames {
        let frame = zstd::bulk::compress(tar, 1).expect("compresses");
        items.push(SeekTableItem { compressed_bytes: frame.len() as u32, content_bytes: *listed_bytes });
        file.extend(frame);
    }
    let writer = "forged".to_string();
    let settings = String::new();
    let index = Index { writer, settings, frame_size_bytes: 1 << 20, hashes: Vec::new(), entries };
    let index = index.to_frame().expect("small");
    items.push(SeekTableItem { compressed_bytes: index.len() as u32, content_bytes: 0 });
    file.extend(index);
    file.extend(seek_table_frame(&items).expect("a few"));
    file
}

fn index_entries(entries: &[TarEntry]) -> Vec<Entry> {
    let entry = |entry: &TarEntry| Entry {
        kind: EntryKind::parse(&entry.path).expect("a good name"),
        content_bytes: entry.content.len() as u64,
    };
    entries.iter().map(entry).collect()
}

/// A wrong index is damage, although all its checksums are right: nothing is restored. Recompressing
/// does not use the index, and makes a good archive.
#[test]
fn a_wrong_index_is_damage() {
    let good = entries(&fixture(FULL_26));
    let tar = make_tar(&good);
    let true_entries = index_entries(&good);
    let ends: Vec<usize> = true_entries
        .iter()
        .scan(0, |at, entry| {
            *at += entry.tar_bytes() as usize;
            Some(*at)
        })
        .collect();
    let in_frames = |entries: Vec<Entry>, cuts: &[usize]| {
        let cuts: Vec<usize> = std::iter::once(0).chain(cuts.iter().copied()).chain([tar.len()]).collect();
        let frames: Vec<(&[u8], u32)> =
            cuts.windows(2).map(|cut| (&tar[cut[0]..cut[1]], (cut[1] - cut[0]) as u32)).collect();
        forge_archive(&frames, entries)
    };
    let dir = temp_dir();
    let path = dir.path().join(FULL_26);
    fs::write(&path, in_frames(true_entries.clone(), &[ends[9], ends[12], ends[20]])).expect("written");
    let test = DamageTest::new(&path);
    let assert_damage = |bytes: &[u8], label: &str| {
        assert!(!test.is_harmless(bytes, label), "{label}: restored");
        let out = temp_dir();
        let mut sink = DirSink::open(out.path()).expect("opened");
        let made = recompress(&RecompressOptions::new(&test.archive), &mut sink, &NoProgress);
        let made = made.expect(label).archive.path.expect("a path");
        let report = verify(&Snapshot::archive(made), &VerifyOptions::default(), &NoProgress).expect(label);
        assert!(report.ok, "{label}: {:?}", report.failures);
    };

    // With a correct index, frames may be cut anywhere except inside a header.
    for cuts in [vec![ends[9] + 700], vec![ends[6] - 1], vec![ends[26] + 1000, ends[31] + 512]] {
        let bytes = in_frames(true_entries.clone(), &cuts);
        assert!(test.is_harmless(&bytes, &format!("cuts at {cuts:?}")), "cuts at {cuts:?}");
    }
    assert_damage(&in_frames(true_entries.clone(), &[ends[9] + 100]), "a cut inside a header");

    type Change = Box<dyn Fn(&mut Vec<Entry>)>;
    let changes: Vec<(&str, Change)> = vec![
        (
            "shifted sizes",
            Box::new(|entries| {
                entries[10].content_bytes += 512;
                entries[11].content_bytes -= 512;
            }),
        ),
        (
            "sizes within a block",
            Box::new(|entries| entries[10].content_bytes = entries[10].content_bytes.next_multiple_of(512)),
        ),
        ("a different order", Box::new(|entries| entries.swap(10, 11))),
        ("a different id", Box::new(|entries| entries[12].kind = EntryKind::Storage { slot: 5, id: 77 })),
        ("a different kind", Box::new(|entries| entries[0].kind = EntryKind::StatusCache)),
        (
            "two entries as one",
            Box::new(|entries| {
                let next = entries.remove(13);
                entries[12].content_bytes = entries[12].content_bytes.next_multiple_of(512) + next.tar_bytes();
            }),
        ),
        (
            "one entry as two",
            Box::new(|entries| {
                let size = entries[12].content_bytes;
                entries[12].content_bytes = 512;
                let kind = EntryKind::Storage { slot: 27, id: 900 };
                entries.insert(13, Entry { kind, content_bytes: size.next_multiple_of(512) - 1024 });
            }),
        ),
    ];
    for (label, change) in &changes {
        let mut entries = true_entries.clone();
        change(&mut entries);
        for cuts in [vec![], vec![ends[9]], vec![ends[11] - 300], vec![ends[10], ends[12], ends[13] + 800]] {
            assert_damage(&in_frames(entries.clone(), &cuts), label);
        }
    }

    // With wrong sums, an index is passed over.
    let kind = EntryKind::Storage { slot: 27, id: 900 };
    let with_end = [&true_entries[..], &[Entry { kind, content_bytes: 512 }]].concat();
    assert!(test.is_harmless(&in_frames(with_end, &[ends[9]]), "the end as an entry"));
}

/// The seek table lists a frame of the tar stream as skippable. But readers of the stream find the frame, which has a
/// storage that no client loads.
#[test]
fn a_frame_that_the_seek_table_hides_is_damage() {
    let good = entries(&fixture(FULL_26));
    let tar = make_tar(&good);
    let hidden = make_tar(&[file_entry("accounts/5.99", &[1; 1000])]);
    let hidden = &hidden[..hidden.len() - 1024];
    let cut = index_entries(&good[..12]).iter().map(|entry| entry.tar_bytes() as usize).sum::<usize>();
    let frames = [(&tar[..cut], cut as u32), (hidden, 0), (&tar[cut..], (tar.len() - cut) as u32)];
    let dir = temp_dir();
    let path = dir.path().join(FULL_26);
    fs::write(&path, forge_archive(&frames, index_entries(&good))).expect("written");
    let error = try_restore(&path, &dir.path().join("out"));
    assert_eq!(error.expect_err("refused").kind(), ErrorKind::Damaged);
    assert_eq!(relative_paths(dir.path()), [FULL_26]);
}
