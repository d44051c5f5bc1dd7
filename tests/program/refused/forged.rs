//! Carefully forged archives: one account is changed, and every checksum, the index, the frame
//! hashes and the root are recomputed. Only the state check can find the change.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::common::records::{RECORD_HEADER_BYTES, field, record_ranges};
use crate::common::*;

const CHAINS: [&str; 2] = [AGAVE_4_2, AGAVE_4_4];

/// A change of an account.
#[derive(Clone, Copy, Debug)]
enum Forgery {
    Lamports,
    Data,
}

/// The expected result of a command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Accepted,
    Refused,
}

/// Changes one account in the newest storage of an archive. Returns the path of the new archive, which has an index.
fn forge(source: &Path, forgery: Forgery, to: &Path) -> PathBuf {
    let mut entries = entries(source);
    let slot_of = |path: &str| path.strip_prefix("accounts/")?.split_once('.')?.0.parse::<u64>().ok();
    let storage = entries.iter_mut().max_by_key(|entry| slot_of(&entry.path)).expect("a storage");
    let content = &mut storage.content;
    let forged_byte = match forgery {
        Forgery::Lamports => field::LAMPORTS.start,
        Forgery::Data => {
            let has_data = |record: &Range<usize>| record.len() > RECORD_HEADER_BYTES;
            let record = record_ranges(content).into_iter().find(has_data).expect("a record with data");
            (record.start + RECORD_HEADER_BYTES + record.end) / 2
        }
    };
    content[forged_byte] ^= 1;
    let plain = to.join("plain");
    fs::create_dir_all(&plain).expect("made");
    let path = plain.join(name(source));
    fs::write(&path, zstd::stream::encode_all(make_tar(&entries).as_slice(), 1).expect("compresses")).expect("written");
    add_index(&path, to)
}

/// Recompresses an archive with slotpress, into many frames.
fn add_index(source: &Path, to: &Path) -> PathBuf {
    let output = slotpress()
        .args([OsStr::new("recompress"), source.as_ref(), "-o".as_ref(), to.as_ref()])
        .args(["--frame-size", "64KiB", "--check", "frames", "--json"])
        .output()
        .expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let line: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    PathBuf::from(line["path"].as_str().expect("a path"))
}

fn run_with_input(command: &str, arguments: &[&OsStr], input: Option<&Path>) -> (Option<i32>, String) {
    let mut child = std::process::Command::new(slotpress_path());
    child.arg(command).args(arguments).stdout(Stdio::null()).stderr(Stdio::piped());
    child.stdin(input.map_or_else(Stdio::null, |path| Stdio::from(fs::File::open(path).expect("opened"))));
    let output = child.output().expect("runs");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Asserts the exit code of a command, and that only an accepted command leaves an archive or a ledger that looks
/// complete. Removes the target.
fn assert_result(context: &str, expected: Outcome, (code, stderr): (Option<i32>, String), target: &Path) {
    let exit_code = if expected == Outcome::Accepted { 0 } else { 3 };
    assert_eq!(code, Some(exit_code), "{context}: {stderr}");
    let paths = if target.exists() { relative_paths(target) } else { Vec::new() };
    let is_complete = paths.iter().any(|path| path.ends_with(".tar.zst") || path.ends_with("fastboot_version"));
    assert_eq!(is_complete, expected == Outcome::Accepted, "{context}: {paths:?}");
    if expected == Outcome::Refused {
        assert!(stderr.contains("bank file's"), "{context}: {stderr}");
    }
    let _ = fs::remove_dir_all(target);
}

/// Restores by index, in order and from standard input, and recompresses from files and from standard input. Asserts
/// that each command has the expected result.
fn assert_result_of_restore_and_recompress(context: &str, expected: Outcome, full: &Path, incremental: Option<&Path>) {
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let out = dir.path().join("out");
    let to_ledger: [&OsStr; 2] = ["--ledger".as_ref(), ledger.as_ref()];
    let pipe = OsStr::new("-");
    let newest = incremental.unwrap_or(full);
    let archives: Vec<&OsStr> = [Some(full), incremental].into_iter().flatten().map(Path::as_os_str).collect();
    let piped: Vec<&OsStr> = archives.iter().map(|path| if *path == newest { pipe } else { *path }).collect();
    let restored = run_with_input("restore", &[&archives[..], &to_ledger].concat(), None);
    assert_result(&format!("{context}: restore by index"), expected, restored, &ledger);
    let copies = archives.iter().map(|archive| copy_without_index(Path::new(archive), dir.path()));
    let copies: Vec<PathBuf> = copies.collect();
    let without_index: Vec<&OsStr> = copies.iter().map(|path| path.as_os_str()).collect();
    let restored = run_with_input("restore", &[&without_index[..], &to_ledger].concat(), None);
    assert_result(&format!("{context}: restore in order"), expected, restored, &ledger);
    let restored = run_with_input("restore", &[&piped[..], &to_ledger].concat(), Some(newest));
    assert_result(&format!("{context}: restore from standard input"), expected, restored, &ledger);

    let to_out: [&OsStr; 2] = ["-o".as_ref(), out.as_ref()];
    let base: Vec<&OsStr> = incremental.map_or(Vec::new(), |_| vec!["--base".as_ref(), full.as_ref()]);
    fs::create_dir(&out).expect("made");
    let recompressed = run_with_input("recompress", &[&[newest.as_ref()], &to_out[..], &base].concat(), None);
    assert_result(&format!("{context}: recompress"), expected, recompressed, &out);
    fs::create_dir(&out).expect("made");
    let recompressed = run_with_input("recompress", &[&[pipe], &to_out[..], &base].concat(), Some(newest));
    assert_result(&format!("{context}: recompress from standard input"), expected, recompressed, &out);
}

#[test]
fn a_forged_full_archive_is_refused() {
    for chain in CHAINS {
        let full = fixture_of(chain, "snapshot-26-");
        for forgery in [Forgery::Lamports, Forgery::Data] {
            let dir = temp_dir();
            let forged = forge(&full, forgery, dir.path());
            assert_result_of_restore_and_recompress(&format!("{chain}, {forgery:?}"), Outcome::Refused, &forged, None);
        }
        let dir = temp_dir();
        assert_result_of_restore_and_recompress(chain, Outcome::Accepted, &add_index(&full, dir.path()), None);
    }
}

#[test]
fn a_forged_incremental_archive_is_refused() {
    for chain in CHAINS {
        let full = fixture_of(chain, "snapshot-26-");
        let newest = fixture_of(chain, "incremental-snapshot-26-40-");
        let dir = temp_dir();
        let full = add_index(&full, dir.path());
        for forgery in [Forgery::Lamports, Forgery::Data] {
            let dir = temp_dir();
            let forged = forge(&newest, forgery, dir.path());
            assert_result_of_restore_and_recompress(
                &format!("{chain}, {forgery:?}"),
                Outcome::Refused,
                &full,
                Some(&forged),
            );
        }
        assert_result_of_restore_and_recompress(chain, Outcome::Accepted, &full, Some(&add_index(&newest, dir.path())));
    }
}

/// When an incremental archive is recompressed, the full archive is checked too, and must be its base.
#[test]
fn the_base_of_a_recompressed_archive_is_checked() {
    let chain = AGAVE_4_4;
    let full = fixture_of(chain, "snapshot-26-");
    let newest = fixture_of(chain, "incremental-snapshot-26-40-");
    let dir = temp_dir();
    let out = dir.path().join("out");
    let recompress_with_base = |base: &Path, archive: &Path, more: &[&str]| {
        fs::create_dir_all(&out).expect("made");
        let mut arguments: Vec<&OsStr> =
            vec![archive.as_ref(), "-o".as_ref(), out.as_ref(), "--base".as_ref(), base.as_ref()];
        arguments.extend(more.iter().map(OsStr::new));
        run_with_input("recompress", &arguments, None)
    };
    let forged = forge(&full, Forgery::Lamports, dir.path());
    assert_result("a forged base", Outcome::Refused, recompress_with_base(&forged, &newest, &[]), &out);
    let cut = dir.path().join(name(&full));
    let bytes = fs::read(&full).expect("read");
    fs::write(&cut, &bytes[..bytes.len() / 2]).expect("written");
    let (code, stderr) = recompress_with_base(&cut, &newest, &[]);
    assert_eq!(code, Some(3), "{stderr}");
    let (code, stderr) = recompress_with_base(&newest, &newest, &[]);
    assert_eq!(code, Some(2), "{stderr}");
    let (code, stderr) = recompress_with_base(&full, &full, &[]);
    assert_eq!(code, Some(2), "{stderr}");
    let (code, stderr) = recompress_with_base(&full, &newest, &["--check", "frames"]);
    assert_eq!(code, Some(2), "{stderr}");
    assert!(relative_paths(&out).is_empty());
    assert_result("the correct base", Outcome::Accepted, recompress_with_base(&full, &newest, &[]), &out);
}

/// Output into a pipe cannot be taken back, so the run is refused before a byte is read.
#[test]
fn recompressing_from_a_pipe_into_a_pipe_needs_a_flag() {
    let full = fixture_of(AGAVE_4_4, "snapshot-26-");
    let start = |flags: &[&str], input: Stdio| {
        std::process::Command::new(slotpress_path())
            .args(["recompress", "-", "-o", "-"])
            .args(flags)
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts")
    };
    let (mut unread, mut writer) = std::io::pipe().expect("a pipe");
    writer.write_all(b"not read").expect("written");
    drop(writer);
    let output = start(&[], unread.try_clone().expect("another end").into()).wait_with_output().expect("ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("cannot be taken back"), "{stderr}");
    assert!(stderr.contains("--check frames"), "{stderr}");
    let mut remaining = Vec::new();
    unread.read_to_end(&mut remaining).expect("read");
    assert_eq!((remaining.as_slice(), output.stdout.len()), (&b"not read"[..], 0));

    let mut child = start(&["--check", "frames"], Stdio::piped());
    let mut input = child.stdin.take().expect("a pipe");
    let bytes = fs::read(full).expect("read");
    let writer = std::thread::spawn(move || input.write_all(&bytes));
    let output = child.wait_with_output().expect("ends");
    assert!(output.status.success());
    assert!(!output.stdout.is_empty());
    writer.join().expect("ends").expect("written");
}

/// The state of an incremental archive alone cannot be checked, which is an error unless a flag
/// allows it.
#[test]
fn an_incremental_archive_without_its_base_is_refused() {
    let incremental = fixture_of(AGAVE_4_4, "incremental-snapshot-26-40-");
    let unpacked = temp_dir();
    unpack_into(&incremental, unpacked.path());
    let dir = temp_dir();
    let out = dir.path().join("out");
    fs::create_dir(&out).expect("made");
    let archive = incremental.as_os_str();
    for (command, arguments) in [
        ("verify", vec![archive]),
        ("verify", vec![unpacked.path().as_os_str(), "--base-slot".as_ref(), "26".as_ref()]),
        ("recompress", vec![archive, "-o".as_ref(), out.as_ref()]),
    ] {
        let (code, stderr) = run_with_input(command, &arguments, None);
        assert_eq!(code, Some(1), "{command}: {stderr}");
        let text = stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        let expected = "the state of an incremental archive alone cannot be checked hint: pass its full archive too, or check only \
                        frames: --check frames";
        assert!(text.contains(expected), "{command}: {text}");
        assert!(relative_paths(&out).is_empty(), "{command}");
        let (code, stderr) =
            run_with_input(command, &[&arguments[..], &["--check".as_ref(), "frames".as_ref()]].concat(), None);
        assert_eq!(code, Some(0), "{command}: {stderr}");
        relative_paths(&out).iter().for_each(|name| fs::remove_file(out.join(name)).expect("removed"));
    }
}
