//! Other programs that read zstd and tar read our archives, with small frames and large ones.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;
use zstd_safe::seekable::Seekable;

use crate::common::seeded_rng::SeededRng;
use crate::common::*;

struct Archives {
    _dir: TempDir,
    paths: Vec<PathBuf>,
}

/// Makes full archives of the chain and of the real validator, and an incremental archive of the chain,
/// each with three frame sizes and levels.
fn make_archives() -> Archives {
    let dir = temp_dir();
    let chain = ledger("ledger-at-40");
    let validator = ledger("ledger-at-3575");
    let mut paths = Vec::new();
    for (number, flags) in [
        ["--frame-size", "64KiB", "--zstd-level=1"].as_slice(),
        &["--frame-size", "8MiB", "--zstd-level=-5"],
        &["--frame-size", "32MiB", "--zstd-level=3"],
    ]
    .into_iter()
    .enumerate()
    {
        let out = dir.path().join(number.to_string());
        fs::create_dir(&out).expect("made");
        paths.push(archive(chain.path(), &out, flags));
        paths.push(archive(validator.path(), &out, flags));
        let incremental: Vec<&str> =
            flags.iter().copied().chain(["--base-slot", "26", "--force-base", "--slot", "40"]).collect();
        paths.push(archive(chain.path(), &out, &incremental));
    }
    Archives { _dir: dir, paths }
}

/// Runs a program that must succeed. Returns its output.
fn output_of(program: &str, arguments: &[&str], archive: &Path) -> Vec<u8> {
    let output = Command::new(program).args(arguments).arg(archive).output().expect("runs");
    assert!(
        output.status.success(),
        "{program} {arguments:?} {}: {}",
        archive.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

fn parse_listing(paths: &str) -> Vec<String> {
    paths.lines().map(str::to_string).collect()
}

#[test]
fn zstd_and_tar_read_our_archives() {
    needs!("zstd", "tar");
    for archive in make_archives().paths {
        output_of("zstd", &["-t", "-q"], &archive);
        let list = String::from_utf8(output_of("zstd", &["-lv"], &archive)).expect("text");
        assert!(list.contains("Number of files listed: 1") || list.contains("# Zstandard Frames"), "{list}");
        let mut zstd = Command::new("zstd").args(["-dcq"]).arg(&archive).stdout(Stdio::piped()).spawn().expect("runs");
        let tar =
            Command::new("tar").args(["tf", "-"]).stdin(zstd.stdout.take().expect("a pipe")).output().expect("runs");
        assert!(zstd.wait().expect("ends").success());
        assert!(tar.status.success(), "{}", String::from_utf8_lossy(&tar.stderr));
        assert!(tar.stderr.is_empty(), "{}", String::from_utf8_lossy(&tar.stderr));
        let expected: Vec<String> = entries(&archive).into_iter().map(|entry| entry.path).collect();
        assert_eq!(parse_listing(&String::from_utf8_lossy(&tar.stdout)), expected);
    }
}

#[test]
fn pzstd_reads_our_archives() {
    needs!("pzstd");
    for archive in make_archives().paths {
        assert!(output_of("pzstd", &["-d", "-c", "-q"], &archive) == tar_of(&archive), "{}", archive.display());
    }
}

#[test]
fn bsdtar_reads_our_archives() {
    needs!("bsdtar");
    for archive in make_archives().paths {
        let expected: Vec<String> = entries(&archive).into_iter().map(|entry| entry.path).collect();
        assert_eq!(parse_listing(&String::from_utf8_lossy(&output_of("bsdtar", &["-tf"], &archive))), expected);
    }
}

/// Another reader of the seekable format reads an entry in the middle of an archive.
#[test]
fn zeekstd_reads_our_archives() {
    for archive in make_archives().paths {
        let entries = entries(&archive);
        let middle = entries.len() / 2;
        let offset: usize = entries[..middle].iter().map(|entry| 512 + entry.content.len().next_multiple_of(512)).sum();
        let file = fs::File::open(&archive).expect("opened");
        let mut decoder = zeekstd::Decoder::new(file).expect("a seek table");
        decoder.seek(SeekFrom::Start(offset as u64 + 512)).expect("within the archive");
        let mut content = vec![0; entries[middle].content.len()];
        decoder.read_exact(&mut content).expect("read");
        assert!(!content.is_empty(), "{}", entries[middle].path);
        assert!(content == entries[middle].content, "{}", entries[middle].path);
    }
}

/// zstd's own reader of the seekable format reads at many offsets: inside frames, across them, and at
/// the end.
#[test]
fn the_reference_seekable_reader_reads_our_archives() {
    for archive in make_archives().paths {
        let file = fs::read(&archive).expect("read");
        let tar = tar_of(&archive);
        let mut reader = Seekable::create();
        reader.init_buff(&file).expect("a seek table");
        let frames = reader.num_frames();
        assert!(frames >= 2, "a frame and the index at least");
        let last = frames - 1;
        let end = reader.frame_decompressed_offset(last).expect("an offset")
            + reader.frame_decompressed_size(last).expect("a size") as u64;
        assert_eq!(end, tar.len() as u64);
        let mut rng = SeededRng::new(1);
        for round in 0..300 {
            let offset = if round == 0 { tar.len() - 1 } else { rng.below(tar.len()) };
            let length = 1 + rng.below(100_000).min(tar.len() - offset - 1);
            let mut read = 0;
            while read < length {
                let mut buffer = vec![0u8; length - read];
                let count = reader.decompress(buffer.as_mut_slice(), (offset + read) as u64).expect("reads");
                assert!(count > 0, "no progress at {}", offset + read);
                assert!(buffer[..count] == tar[offset + read..offset + read + count], "at {}", offset + read);
                read += count;
            }
        }
    }
}
