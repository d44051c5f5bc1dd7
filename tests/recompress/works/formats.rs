//! Recompressed archives have the same entries in every format.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::*;
use crate::recompress::*;

/// Runs the program with these bytes on its standard input.
fn run_with_stdin(bytes: &[u8], arguments: &[&std::ffi::OsStr]) -> std::process::Output {
    let mut child = Command::new(slotpress_path())
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut stdin = child.stdin.take().expect("piped");
    let bytes = bytes.to_vec();
    // The program may stop reading early.
    let writer = std::thread::spawn(move || {
        let _ = stdin.write_all(&bytes);
    });
    let output = child.wait_with_output().expect("ends");
    writer.join().expect("written");
    output
}

#[test]
fn recompressed_archives_keep_their_entries() {
    let base = fixture(FULL_26);
    for source in [FULL_26, INCREMENTAL_26_40, FULL_3500] {
        let base = (source == INCREMENTAL_26_40).then(|| ["--base", base.to_str().expect("text")]);
        let base = base.as_ref().map_or(&[][..], |flags| flags);
        let source = fixture(source);
        for flags in
            [&["--zstd-level", "19"][..], &["--frame-size", "64KiB"], &["--format", "lz4"], &["--format", "none"]]
        {
            let out = temp_dir();
            let made = recompress(&source, out.path(), &[flags, base].concat());
            assert_eq!(name(&made).split(".tar").next(), name(&source).split(".tar").next(), "the name is kept");
            // Paths of directories may or may not end with a slash; contents and order are the same.
            let plain_entries = |archive: &Path| {
                // slotpress itself reads lz4 back, so that this test does not need the program `lz4`.
                let tar = if flags.contains(&"lz4") && archive == made {
                    let plain = temp_dir();
                    tar_of(&recompress(archive, plain.path(), &[&["--format", "none"], base].concat()))
                } else {
                    tar_of(archive)
                };
                entries_of_tar(&tar)
                    .into_iter()
                    .map(|entry| (entry.path.trim_end_matches('/').to_string(), entry.content))
                    .collect::<Vec<_>>()
            };
            assert!(plain_entries(&made) == plain_entries(&source), "{flags:?}");
        }
    }
}

#[test]
fn the_result_equals_an_archive_of_the_ledger() {
    let ledger = ledger("ledger-at-40");
    for flags in [&["--zstd-level", "3"][..], &["--frame-size", "64KiB"], &["--format", "lz4"], &["--format", "none"]] {
        let (direct, recompressed, other) = (temp_dir(), temp_dir(), temp_dir());
        let expected = archive(ledger.path(), direct.path(), flags);
        // The source has a different level and frame size, so that nothing can depend on its frames.
        let source = archive(ledger.path(), other.path(), &["--zstd-level", "9", "--frame-size", "100KiB"]);
        for threads in ["1", "3"] {
            let made = recompress(&source, recompressed.path(), &[flags, &["--threads", threads, "--force"]].concat());
            assert!(fs::read(&expected).expect("read") == fs::read(&made).expect("read"), "{flags:?}");
        }
    }
}

#[test]
fn an_archive_is_recompressed_from_a_stream_into_a_stream() {
    let source = fs::read(fixture(FULL_26)).expect("read");
    let file = temp_dir();
    let expected = fs::read(recompress(&fixture(FULL_26), file.path(), &[])).expect("read");
    let arguments = ["recompress", "-", "-o", "-", "--check", "frames"].map(std::ffi::OsStr::new);
    let output = run_with_stdin(&source, &arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout == expected, "nothing but the archive goes to standard output");
    assert!(String::from_utf8_lossy(&output.stderr).contains("ratio"), "the report goes to standard error");
}

/// The length of a stream is unknown, so only its content shows that its end is missing.
#[test]
fn a_stream_that_is_truncated_anywhere_is_damaged() {
    let source = fs::read(fixture(FULL_26)).expect("read");
    for length in [0, 1, 100, source.len() / 2, source.len() - 1] {
        let out = temp_dir();
        let output = run_with_stdin(
            &source[..length],
            &["recompress".as_ref(), "-".as_ref(), "-o".as_ref(), out.path().as_os_str()],
        );
        assert_eq!(output.status.code(), Some(3), "truncated at {length}");
        assert_eq!(fs::read_dir(out.path()).expect("read").count(), 0);
    }
}

/// The base slot is part of an archive's name, and a stream has no name.
#[test]
fn an_incremental_archive_of_a_stream_needs_its_base() {
    let incremental = fs::read(fixture(INCREMENTAL_26_40)).expect("read");
    let (out, full) = (temp_dir(), fixture(FULL_26));
    let arguments = ["recompress".as_ref(), "-".as_ref(), "-o".as_ref(), out.path().as_os_str()];
    let output = run_with_stdin(&incremental, &arguments);
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("pass its full archive with --base"));
    let unchecked = ["--base-slot", "26", "--check", "frames"].map(std::ffi::OsStr::new);
    for more in [&unchecked[..], &["--base".as_ref(), full.as_os_str()]] {
        let output = run_with_stdin(&incremental, &[&arguments[..], more].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let made = fs::read_dir(out.path()).expect("read").next().expect("one").expect("read").path();
        assert_eq!(name(&made), name(&fixture(INCREMENTAL_26_40)));
        fs::remove_file(made).expect("removed");
    }
}

#[test]
fn bzip2_is_read() {
    needs!("bzip2");
    assert_format_is_read("bzip2", "bz2");
}

#[test]
fn gzip_is_read() {
    needs!("gzip");
    assert_format_is_read("gzip", "gz");
}

#[test]
fn lz4_is_read() {
    needs!("lz4");
    assert_format_is_read("lz4", "lz4");
}

fn assert_format_is_read(tool: &str, extension: &str) {
    let (old, out) = (temp_dir(), temp_dir());
    let path = old.path().join(name(&fixture(FULL_26)).replace("tar.zst", &format!("tar.{extension}")));
    let tar = old.path().join("tar");
    fs::write(&tar, tar_of(&fixture(FULL_26))).expect("written");
    let compressed = Command::new(tool).arg("-c").arg(&tar).output().expect("runs");
    fs::write(&path, compressed.stdout).expect("written");
    let made = recompress(&path, out.path(), &[]);
    let direct = temp_dir();
    let expected = recompress(&fixture(FULL_26), direct.path(), &[]);
    assert!(fs::read(made).expect("read") == fs::read(expected).expect("read"), "{tool}");

    // A ledger boots only if Agave can read the archive beside it.
    let target = temp_dir();
    let ledger = target.path().join("ledger");
    let restored = slotpress().arg("restore").arg(&path).arg("--ledger").arg(&ledger).output().expect("runs");
    let stderr = String::from_utf8_lossy(&restored.stderr);
    if extension == "lz4" {
        assert!(restored.status.success(), "{stderr}");
        assert!(ledger.join(name(&path)).exists(), "{stderr}");
    } else {
        assert_eq!(restored.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("recompress it first"), "{stderr}");
    }

    // Damage in the middle, and a missing end.
    let good = fs::read(&path).expect("read");
    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 0x10;
    for (bytes, label) in [(flipped, "flipped"), (good[..good.len() * 2 / 3].to_vec(), "truncated")] {
        fs::write(&path, bytes).expect("written");
        let out = temp_dir();
        let output = slotpress().arg("recompress").arg(&path).arg("-o").arg(out.path()).output().expect("runs");
        // lz4 has checksums of blocks, or else one checksum of the whole. Either must show the damage.
        assert_eq!(output.status.code(), Some(3), "{tool}, {label}");
        assert_eq!(fs::read_dir(out.path()).expect("read").count(), 0);
    }
}
