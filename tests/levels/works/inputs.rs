//! `slotpress levels`: every row adds up, for any input. No test depends on times.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{FULL_26, archive, fixture, ledger, number, slotpress, temp_dir, text, unpack_into};
use crate::levels::*;

/// A measured level, and the lengths of its input and output.
#[derive(Clone, Copy, Debug, PartialEq)]
struct LevelSizes {
    level: i64,
    input_bytes: u64,
    output_bytes: u64,
}

/// Checks what holds for every row; returns its level and sizes.
fn assert_row_adds_up(row: &Value) -> LevelSizes {
    let codec = row["codec"].as_str().expect("a codec");
    assert!(row["type"] == "level", "{row}");
    assert!(["zstd", "clustered"].contains(&codec), "{row}");
    let (input, output) = (number(row, "input_bytes"), number(row, "output_bytes"));
    assert!(output > 0.0, "{row}");
    assert!((number(row, "ratio") - input / output).abs() < 1e-9, "{row}");
    for work in ["compress", "decompress"] {
        let median = number(row, &format!("{work}_seconds"));
        assert!(median > 0.0, "{row}");
        assert!(number(row, &format!("{work}_seconds_min")) <= median, "{row}");
        assert!(number(row, &format!("{work}_seconds_max")) >= median, "{row}");
        assert!(number(row, &format!("{work}_runs")) >= 1.0, "{row}");
    }
    assert!(number(row, "compress_cpu_percent") >= 0.0, "{row}");
    assert!(number(row, "peak_memory_bytes") > 0.0, "{row}");
    let level = row["level"].as_i64().expect("a level");
    LevelSizes { level, input_bytes: input as u64, output_bytes: output as u64 }
}

/// Checks the rows and the recommendation; returns the rows of zstd without clustering.
fn assert_rows_add_up(lines: &[Value], expected_levels: &[i64]) -> Vec<LevelSizes> {
    let (recommendation, rows) = lines.split_last().expect("some lines");
    let smallest = rows.iter().map(assert_row_adds_up).map(|row| row.output_bytes).min();
    assert_eq!(recommendation["type"], "recommendation");
    let is_smallest = |row: &&Value| {
        let chosen = &recommendation["smallest_size"];
        (&row["codec"], &row["level"]) == (&chosen["codec"], &chosen["level"])
    };
    assert_eq!(rows.iter().find(is_smallest).map(|row| assert_row_adds_up(row).output_bytes), smallest);
    let rows: Vec<_> = rows.iter().filter(|row| row["codec"] == "zstd").map(assert_row_adds_up).collect();
    assert_eq!(rows.iter().map(|row| row.level).collect::<Vec<_>>(), expected_levels);
    for choice in ["shortest_time", "smallest_size", "knee"] {
        let choice = &recommendation[choice];
        assert!(expected_levels.contains(&choice["level"].as_i64().expect("a level")), "{choice}");
        assert!(!choice["reason"].as_str().expect("a reason").is_empty());
    }
    rows
}

const FRAME_SIZE: [&str; 2] = ["--frame-size", "64KiB"];

/// The same content in four inputs: a ledger, its archive, the plain tar, and the unpacked archive.
struct SameContent {
    dir: TempDir,
    ledger: TempDir,
    archive: PathBuf,
    plain: PathBuf,
}

impl SameContent {
    fn new() -> Self {
        let dir = temp_dir();
        let ledger = ledger("ledger-at-26");
        let archive = archive_into(&dir.path().join("zstd"), &ledger, &["--format", "zstd"]);
        let plain = archive_into(&dir.path().join("plain"), &ledger, &["--format", "none"]);
        unpack_into(&archive, &dir.path().join("tree"));
        Self { dir, ledger, archive, plain }
    }

    fn inputs(&self) -> [PathBuf; 4] {
        [self.ledger.path().into(), self.archive.clone(), self.plain.clone(), self.dir.path().join("tree")]
    }
}

fn archive_into(out: &Path, ledger: &TempDir, flags: &[&str]) -> PathBuf {
    fs::create_dir(out).expect("made");
    archive(ledger.path(), out, &[&FRAME_SIZE[..], flags].concat())
}

fn measure_sizes(input: &Path) -> LevelSizes {
    assert_rows_add_up(&run_levels(input, &[&FRAME_SIZE[..], &["--levels", "1"]].concat()), &[1])[0]
}

#[test]
fn archives_of_agave_are_measured() {
    let lines = run_levels(&fixture(FULL_26), &["--levels", "3,-5--4,1"]);
    let rows = assert_rows_add_up(&lines, &[-5, -4, 1, 3]);
    let size = |level: i64| rows.iter().find(|row| row.level == level).map(|row| row.output_bytes);
    assert!(size(-5) > size(1));
    assert!(size(1) > size(3));
    assert!(rows.iter().all(|row| row.input_bytes == rows[0].input_bytes), "the same input for all");
    assert_eq!(lines[2]["size_percent"], 100.0, "against level 1");
}

#[test]
fn sizes_do_not_depend_on_the_kind_of_input() {
    let sizes = SameContent::new().inputs().map(|input| measure_sizes(&input));
    assert_eq!(sizes, [sizes[0]; 4]);
}

/// A clustered archive and a verbatim one differ in length only by their frames and settings.
#[test]
fn clustered_sizes_are_those_of_archive() {
    let content = SameContent::new();
    let clustered_archive =
        archive_into(&content.dir.path().join("clustered"), &content.ledger, &["--layout", "clustered"]);
    let bytes_beside_frames = |archive: &Path, frames_bytes: u64, settings: &str| {
        fs::metadata(archive).expect("there").len() - frames_bytes - settings.len() as u64
    };
    let plain_bytes = measure_sizes(&content.archive).output_bytes;
    for input in content.inputs() {
        let lines = run_levels(&input, &[&FRAME_SIZE[..], &["--codec", "clustered:1"]].concat());
        let clustered_bytes = assert_row_adds_up(&lines[0]).output_bytes;
        assert!(clustered_bytes < plain_bytes, "{clustered_bytes}");
        assert_eq!(
            bytes_beside_frames(&clustered_archive, clustered_bytes, " layout=clustered"),
            bytes_beside_frames(&content.archive, plain_bytes, ""),
            "{clustered_bytes}"
        );
    }
}

/// Frames are found in four ways: in the plan of an archive, by the index, in a plain file, and by
/// decoding. The samples are equal.
#[test]
fn samples_do_not_depend_on_the_kind_of_input() {
    let content = SameContent::new();
    let foreign = content.dir.path().join("foreign.tar.zst");
    let plain = fs::File::open(&content.plain).expect("there");
    fs::write(&foreign, zstd::encode_all(plain, 1).expect("zstd")).expect("written");
    let arguments = [&FRAME_SIZE[..], &["--levels", "1", "--sample", "300KiB"]].concat();
    let whole = measure_sizes(&content.archive);
    let first = assert_row_adds_up(&run_levels(content.ledger.path(), &arguments)[0]);
    for input in content.inputs().into_iter().chain([foreign]) {
        let row = run_levels(&input, &arguments)[0].clone();
        let sample = assert_row_adds_up(&row);
        assert!(sample.input_bytes <= 300 * 1024, "{row}");
        assert!(sample.input_bytes < whole.input_bytes, "{row}");
        assert_eq!(sample, first);
        assert!(number(&row, "size_error_percent") > 0.0);
        assert!(number(&row, "estimated_output_bytes") > sample.output_bytes as f64);
    }
}

/// Any other file is cut at the frame size. Its frames are as long as those of zstd's library.
#[test]
fn any_file_can_be_measured() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("bank");
    let content: Vec<u8> = (0..300_000u32).flat_map(|number| (number / 3).to_le_bytes()).collect();
    fs::write(&path, &content).expect("written");
    let rows = assert_rows_add_up(&run_levels(&path, &["--levels", "2", "--frame-size", "256KiB"]), &[2]);
    /// Length of the checksum that slotpress adds to frames of `zstd`.
    const CHECKSUM_BYTES: usize = 4;
    let expected: usize = content
        .chunks(256 * 1024)
        .map(|chunk| zstd::bulk::compress(chunk, 2).expect("compressed").len() + CHECKSUM_BYTES)
        .sum();
    let input_bytes = content.len() as u64;
    assert_eq!(rows, [LevelSizes { level: 2, input_bytes, output_bytes: expected as u64 }]);
}

/// Clustering, which makes archives smaller, has rows of its own.
#[test]
fn clustered_records_are_measured_too() {
    let lines = run_levels(&fixture(FULL_26), &["--levels", "1-4"]);
    let codec_and_level = |line: &Value| Some((line["codec"].as_str()?.to_string(), line["level"].as_i64()?));
    let rows: Vec<_> =
        lines.iter().filter_map(codec_and_level).map(|(codec, level)| format!("{codec} {level}")).collect();
    let expected = ["zstd 1", "zstd 2", "zstd 3", "zstd 4", "clustered 1", "clustered 2", "clustered 3"];
    assert_eq!(rows, expected);
    let sizes: Vec<u64> = lines[..7].iter().map(|line| assert_row_adds_up(line).output_bytes).collect();
    assert!(sizes[4] < sizes[0], "{sizes:?}");
    assert!(sizes[6] < sizes[2], "{sizes:?}");
    assert!(lines[7]["measured_well_enough"].is_boolean(), "{}", lines[7]);
    // If codecs are named, only these are measured.
    let lines = run_levels(&fixture(FULL_26), &["--codec", "zstd", "--levels", "1"]);
    assert_eq!(lines.iter().filter_map(codec_and_level).count(), 1);
}

/// The time is limited and announced. Levels that were not measured in time are named.
#[test]
fn a_budget_bounds_the_time() {
    let arguments = ["levels", "--levels", "1-3", "--budget", "0", "--progress", "none"];
    let output = slotpress().args(arguments).arg(fixture(FULL_26)).assert().success().get_output().clone();
    let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("text"));
    let mut lines = stderr.lines();
    assert_eq!(lines.next(), Some("measuring 6 levels for at most 0 s (--budget)"), "{stderr}");
    assert!(
        stderr.contains("not measured within 0 s: clustered 1, zstd 2, clustered 2, zstd 3, clustered 3; "),
        "{stderr}"
    );
    assert!(stderr.contains("measured 1 of 3 times"), "{stderr}");
    assert_eq!(stdout.lines().filter(|line| line.starts_with("zstd ")).count(), 1, "{stdout}");
}

#[test]
fn files_have_a_row_for_each_level() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name);
    let assert = slotpress()
        .args(["levels", "--levels", "1-3", "--repeat", "1", "--min-time", "0", "--progress", "none"])
        .args(["--csv", text(&path("a.csv")), "--html", text(&path("a.html"))])
        .arg(fixture(FULL_26))
        .assert()
        .success();
    let screen = String::from_utf8(assert.get_output().stdout.clone()).expect("UTF-8");
    assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    assert_eq!(screen.matches("--zstd-level").count(), 3, "{screen}");
    let read = |name: &str| fs::read_to_string(path(name)).expect("written");
    assert_eq!(read("a.csv").lines().count(), 1 + 6);
    assert!(read("a.html").starts_with("<!doctype html>"));
    assert!(read("a.html").contains("id=\"levels-table\""));
}
