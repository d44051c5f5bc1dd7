//! Frame hashes and the root: the root covers every byte of an archive, so changed bytes are found.

use std::fs;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::event::{PollFd, PollFlags, Timespec};
use slotpress_base::IoPolicy;
use slotpress_format::{ArchiveRoot, frame_hash};
use slotpress_read::OpenArchive;

use crate::common::*;

/// Time between two checks of a pipe.
const MILLISECOND: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

fn run(arguments: &[&str]) -> (i32, serde_json::Value, String) {
    run_to_first_line(arguments, None)
}

/// `archive` and `inspect` print the same root, which is computed as docs/format.md says. It does not
/// depend on the number of threads.
#[test]
fn archive_and_inspect_print_the_same_root() {
    let ledger = ledger("ledger-at-40");
    let out = temp_dir();
    let flags = ["archive", text(ledger.path()), "-o", text(out.path()), "--frame-size", "64KiB"];
    let (code, line, stderr) = run(&flags);
    assert_eq!(code, 0, "{stderr}");
    let root = line["root"].as_str().expect("a root").to_string();
    let path = line["path"].as_str().expect("a path").to_string();
    assert_eq!(run(&["inspect", &path]).1["root"], root.as_str());
    assert_eq!(run(&[flags.as_slice(), &["--force", "--threads", "1"]].concat()).1["root"], root.as_str());

    let bytes = fs::read(&path).expect("read");
    let archive = OpenArchive::open(Path::new(&path), &IoPolicy::default()).expect("opens");
    let tail = archive.tail.as_ref().expect("an index");
    let hashes = tail.hashes.as_ref().expect("hashes");
    assert!(tail.frames.len() > 5);
    // Nothing may lie between the content's frames: validators that distribute frames to decompressors in turn
    // count every frame, skippable ones too.
    let mut offset = 0;
    for (frame, hash) in tail.frames.iter().zip(&hashes.frames) {
        assert_eq!(frame.offset_bytes, offset);
        offset = frame.end_bytes();
        assert_eq!(*hash, frame_hash(&bytes[frame.offset_bytes as usize..offset as usize]));
    }
    assert_eq!(hashes.offset_bytes, offset);
    assert_eq!(ArchiveRoot::new(bytes.len() as u64, [&bytes[offset as usize..]]).to_string(), root);
}

#[test]
fn an_archive_with_another_root_is_refused() {
    let dir = temp_dir();
    let out = temp_dir();
    let full = fixture(FULL_26);
    let root_at = |level: &str| {
        let (code, line, stderr) =
            run(&["recompress", text(&full), "-o", text(out.path()), "--zstd-level", level, "--force"]);
        assert_eq!(code, 0, "{stderr}");
        (line["root"].as_str().expect("a root").to_string(), line["path"].as_str().expect("a path").to_string())
    };
    // The same name and state, other bytes.
    let (other, _) = root_at("3");
    let (root, path) = root_at("1");
    assert_ne!(root, other);

    let (code, line, stderr) = run(&["verify", &path, "--expect-root", &root]);
    assert_eq!((code, &line["roots"][0]), (0, &root.as_str().into()), "{stderr}");
    let (code, line, _) = run(&["verify", &path, "--expect-root", &other]);
    assert_eq!((code, &line["failures"][0]["rule"]), (3, &"root-not-expected".into()), "{line}");
    let ledger = dir.path().join("ledger");
    let restore = |root: &str| run(&["restore", &path, "--ledger", text(&ledger), "--expect-root", root]);
    let (code, _, stderr) = restore(&other);
    assert_eq!(code, 3, "{stderr}");
    assert!(stderr.contains(&root), "{stderr}");
    assert!(stderr.contains(&other), "{stderr}");
    assert!(!ledger.join("snapshots").exists());
    assert_eq!(restore(&root).0, 0);
}

/// An archive with many frames, a copy in which one frame is replaced, and the root of the original.
struct ForgedArchive {
    original: PathBuf,
    forged: PathBuf,
    root: String,
}

/// Replaces a frame of an archive. The new frame has the same length and a correct checksum, and index and
/// seek table match it, so only its hash reveals the change.
fn forge_frame(dir: &Path, out: &Path) -> ForgedArchive {
    let full = fixture(FULL_26);
    // At this level, changing a byte of the content does not change the frame's length.
    let flags = ["--zstd-level=-1000", "--frame-size", "64KiB"];
    let (code, line, stderr) = run(&[&["recompress", text(&full), "-o", text(out)], &flags[..]].concat());
    assert_eq!(code, 0, "{stderr}");
    let root = line["root"].as_str().expect("a root").to_string();
    let path = PathBuf::from(line["path"].as_str().expect("a path"));
    let mut bytes = fs::read(&path).expect("read");
    let archive = OpenArchive::open(&path, &IoPolicy::default()).expect("opens");
    // Changes the mode in a tar header, and recomputes the header's checksum.
    let frame = archive.tail.as_ref().expect("an index").frames[0];
    let start = frame.offset_bytes as usize;
    let end = frame.end_bytes() as usize;
    let mut content = zstd::bulk::decompress(&bytes[start..end], frame.content_bytes as usize).expect("decodes");
    let mode = content.windows(8).position(|window| window == b"0000644\0").expect("a mode");
    content[mode + 6] = b'0';
    let sum: u32 = (0..512).map(|i| if (148..156).contains(&i) { 32 } else { u32::from(content[i]) }).sum();
    content[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut compressor = zstd::bulk::Compressor::new(-1000).expect("a compressor");
    compressor.include_checksum(true).expect("set");
    let forged = compressor.compress(&content).expect("compressed");
    assert_eq!(forged.len(), end - start, "a different length would show without hashes");
    bytes[start..end].copy_from_slice(&forged);
    let forged = dir.join(name(&path));
    fs::write(&forged, &bytes).expect("written");
    ForgedArchive { original: path, forged, root }
}

#[test]
fn a_foreign_frame_is_refused() {
    let dir = temp_dir();
    let out = temp_dir();
    let ForgedArchive { forged, root, .. } = forge_frame(dir.path(), out.path());
    let (code, line, stderr) = run(&["verify", text(&forged)]);
    assert_eq!(code, 3, "{stderr}");
    assert_eq!(line["failures"][0]["rule"], "frame-hash", "{line}");
    let ledger = dir.path().join("ledger");
    let (code, _, stderr) = run(&["restore", text(&forged), "--ledger", text(&ledger), "--expect-root", &root]);
    assert_eq!(code, 3, "{stderr}");
    assert!(stderr.contains("does not match its hash"), "{stderr}");
    assert!(!ledger.join("snapshots").exists());
}

/// If a root is expected, even `--quick` reads every frame, because the root covers all of them.
#[test]
fn quick_verifying_reads_all_frames_with_a_root() {
    let dir = temp_dir();
    let out = temp_dir();
    let ForgedArchive { original, forged, root } = forge_frame(dir.path(), out.path());
    let quick = |path: &Path, flags: &[&str]| run(&[&["verify", "--quick", text(path)], flags].concat());
    assert_eq!(quick(&original, &["--expect-root", &root]).0, 0);
    // `--quick` always reads the forged frame, which has documents. The next change is in a frame of accounts.
    assert_eq!(quick(&forged, &["--expect-root", &root]).0, 3);
    let archive = OpenArchive::open(&original, &IoPolicy::default()).expect("opens");
    let frames = &archive.tail.as_ref().expect("an index").frames;
    let number = frames.len() - 2;
    let mut bytes = fs::read(&original).expect("read");
    bytes[(frames[number].offset_bytes + frames[number].end_bytes()) as usize / 2] ^= 1;
    fs::write(&forged, &bytes).expect("written");
    assert_eq!(quick(&forged, &[]).0, 0, "without a root, accounts are not read");
    let (code, line, stderr) = quick(&forged, &["--expect-root", &root]);
    assert_eq!(code, 3, "{stderr}");
    let failure = &line["failures"][0];
    assert_eq!((&failure["rule"], &failure["frame"]), (&"frame-damaged".into(), &(number as u64).into()), "{line}");
}

/// The rate at which standard input arrives.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InputRate {
    Slow,
    Full,
}

/// Writes bytes into a pipe in pieces, each after the reader has taken the previous piece.
fn write_slowly(bytes: &[u8], mut pipe: impl Write + AsFd) {
    for piece in bytes.chunks(bytes.len().div_ceil(60)) {
        // The reader closes the pipe when it needs no more.
        while rustix::io::ioctl_fionread(&pipe).expect("asked") > 0 {
            let mut polled = [PollFd::new(&pipe, PollFlags::empty())];
            if rustix::event::poll(&mut polled, Some(&MILLISECOND)).expect("polled") > 0 {
                return;
            }
        }
        if pipe.write_all(piece).is_err() {
            return;
        }
    }
}

/// `restore -` reads in order, and compares frame hashes and the root at the end.
#[test]
fn the_rate_of_standard_input_does_not_change_the_result() {
    let dir = temp_dir();
    let out = temp_dir();
    let ForgedArchive { original, forged, root } = forge_frame(dir.path(), out.path());
    let ledger = dir.path().join("ledger");
    let bytes = fs::read(&original).expect("read");
    let restore = |path: &Path, root: Option<&str>, rate: InputRate| -> (Option<i32>, String) {
        let mut command = std::process::Command::new(slotpress_path());
        command.args(["-q", "restore", "-", "--ledger", text(&ledger)]).stdout(Stdio::null()).stderr(Stdio::piped());
        command.args(root.into_iter().flat_map(|root| ["--expect-root", root]));
        let output = if rate == InputRate::Slow {
            let mut child = command.stdin(Stdio::piped()).spawn().expect("starts");
            write_slowly(&fs::read(path).expect("read"), child.stdin.take().expect("a pipe"));
            child.wait_with_output().expect("ends")
        } else {
            command.stdin(fs::File::open(path).expect("opened")).output().expect("ends")
        };
        for path in [ledger.join(name(&original)), ledger.join("snapshots")] {
            assert_eq!(path.exists(), output.status.success(), "only a checked archive appears under its name");
        }
        let _ = fs::remove_dir_all(&ledger);
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let other = root.chars().rev().collect::<String>();
    let lying_index = dir.path().join("lying-index");
    let mut lying = bytes.clone();
    let index = bytes.windows(8).rposition(|window| window == b"slotidx2").expect("an index");
    lying[index + 40] ^= 1;
    fs::write(&lying_index, lying).expect("written");
    let cut = dir.path().join("cut");
    fs::write(&cut, &bytes[..bytes.len() - 100]).expect("written");
    let plain = fixture(FULL_26);
    for (path, root, code, words) in [
        (&original, None, 0, ""),
        (&original, Some(&root), 0, ""),
        (&original, Some(&other), 3, "root"),
        (&forged, None, 0, ""),
        (&forged, Some(&root), 3, "does not match its hash"),
        (&lying_index, None, 0, ""),
        (&lying_index, Some(&root), 3, "root"),
        (&cut, None, 3, "truncated"),
        (&cut, Some(&root), 3, "truncated"),
        (&plain, Some(&root), 3, "no frame hashes"),
    ] {
        let root = root.map(String::as_str);
        let first = restore(path, root, InputRate::Full);
        assert_eq!(first.0, Some(code), "{}, {root:?}: {first:?}", path.display());
        assert!(first.1.contains(words), "{}, {root:?}: {first:?}", path.display());
        for rate in [InputRate::Slow, InputRate::Slow, InputRate::Slow, InputRate::Full, InputRate::Full] {
            assert_eq!(restore(path, root, rate), first, "{}, {root:?}", path.display());
        }
    }
}
