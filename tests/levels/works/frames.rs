//! `slotpress levels frames`: rows add up, and files have a row for each size. No test depends on times.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::{FULL_26, fixture, json_lines, number};
use crate::levels::*;

fn run_frames(input: &Path, arguments: &[&str]) -> Vec<Value> {
    json_lines(frames_command(&["--json"]).args(arguments).arg(input))
}

/// Checks that the lines add up, and returns them.
fn assert_adds_up(lines: Vec<Value>) -> Vec<Value> {
    for row in &lines {
        let (input, output) = (number(row, "input_bytes"), number(row, "output_bytes"));
        assert!(input > 0.0, "{row}");
        assert!(output > 0.0, "{row}");
        assert!(number(row, "frames") > 0.0, "{row}");
        assert!((number(row, "saving_percent") - 100.0 * (1.0 - output / input)).abs() < 1e-9, "{row}");
        assert_eq!(row["type"], "frame_size", "{row}");
        assert!((number(row, "ratio") - input / output).abs() < 1e-9, "{row}");
        assert!(input <= number(row, "frames") * number(row, "frame_size_bytes"), "{row}");
        for work in ["compress", "decompress"] {
            let times = &row[work];
            assert_eq!(number(times, "samples"), number(row, "frames"), "one pass: {row}");
            let min = number(times, "min_seconds");
            let max = number(times, "max_seconds");
            assert!((min..=max).contains(&number(times, "average_seconds")), "{row}");
            let mut previous = min;
            for (name, one_in) in [("p50", 2.0), ("p90", 10.0), ("p99", 1e2), ("p99_99", 1e4), ("p99_9999", 1e6)] {
                let seconds = &times[format!("{name}_seconds")];
                assert_eq!(seconds.is_null(), number(times, "samples") < one_in, "{name} of {row}");
                if let Some(seconds) = seconds.as_f64() {
                    assert!((previous..=max).contains(&seconds), "{name} of {row}");
                    previous = seconds;
                }
            }
        }
    }
    lines
}

#[test]
fn frames_of_an_archive_add_up() {
    let sizes = assert_adds_up(run_frames(&fixture(FULL_26), &["--sizes", "64,4KiB,32MiB", "--codec", "zstd:3"]));
    let bytes: Vec<f64> = sizes.iter().map(|row| number(row, "frame_size_bytes")).collect();
    assert_eq!(bytes, [64.0, 4096.0, f64::from(32 << 20)]);
    assert!(sizes.iter().all(|row| row["codec"] == "zstd" && row["level"] == 3));
    assert!(number(&sizes[0], "ratio") < number(&sizes[1], "ratio"));
    assert!(number(&sizes[1], "ratio") < number(&sizes[2], "ratio"));
    assert!(number(&sizes[1], "worker_memory_bytes") < number(&sizes[2], "worker_memory_bytes"));
}

#[test]
fn any_file_can_be_cut_into_frames() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("log");
    let text: String =
        (0..5000).map(|number| format!("slot {} rooted after {} ms\n", 7000 + number, number % 97)).collect();
    fs::write(&path, &text).expect("written");
    let sizes = assert_adds_up(run_frames(&path, &["--sizes", "100,1k"]));
    assert_eq!(sizes.len(), 2);
    // Without compression, no bytes are saved.
    let sizes = assert_adds_up(run_frames(&path, &["--sizes", "100", "--codec", "none"]));
    assert_eq!(number(&sizes[0], "output_bytes"), number(&sizes[0], "input_bytes"));
}

#[test]
fn files_have_a_row_for_each_size() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name);
    let mut command = frames_command(&[]);
    for (flag, name) in [("--csv", "t.csv"), ("--html", "t.html")] {
        command.arg(flag).arg(path(name));
    }
    let assert = command.arg(fixture(FULL_26)).assert().success();
    let screen = String::from_utf8(assert.get_output().stdout.clone()).expect("UTF-8");
    // The first line is the input's name, of any length.
    assert!(screen.lines().skip(1).all(|line| line.chars().count() <= 80), "{screen}");
    for text in ["memory", "99.9999"] {
        assert!(screen.contains(text), "{text}: {screen}");
    }
    let read = |name: &str| fs::read_to_string(path(name)).expect("written");
    // The fixture is small: larger frame sizes would produce the same frames. The program leaves them out,
    // and says so.
    let stderr = String::from_utf8_lossy(&assert.get_output().stderr).to_string();
    assert!(stderr.contains("would be the same as those of"), "{stderr}");
    let rows = read("t.csv").lines().filter(|line| line.starts_with("frame_size,")).count();
    assert!((5..11).contains(&rows), "{}", read("t.csv"));
    assert_eq!(read("t.csv").lines().count(), 1 + rows);
    assert!(read("t.html").contains("id=\"frames-table\""));
}
