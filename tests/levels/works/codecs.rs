//! `slotpress levels --codec` compares codecs. No test depends on times.

use std::fs;
use std::path::Path;

use crate::common::{FULL_26, fixture, number, slotpress};
use crate::levels::*;

fn screen_output(arguments: &[&str], input: &Path) -> String {
    let assert = slotpress().args(arguments).arg(input).assert().success();
    let text = String::from_utf8(assert.get_output().stdout.clone()).expect("UTF-8");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    text
}

#[test]
fn every_codec_is_compared_with_zstd() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_string();
    let (csv, html) = (path("a.csv"), path("a.html"));
    let codecs = "lz4,zlib,bzip2:1,none,snappy,lzo,zstd:3,1";
    let flags = ["--csv", &csv, "--html", &html, "--codec", codecs];
    let lines = run_with_json(&[&QUICK_LEVELS[..], &flags[..]].concat(), &fixture(FULL_26));
    let names: Vec<String> = lines[..11].iter().map(|row| format!("{} {}", row["codec"], row["level"])).collect();
    let expected = [
        "zstd 1", "zstd 3", "lz4 0", "zlib 1", "zlib 6", "zlib 9", "bzip2 1", "none 0", "snappy 0", "lzo 1", "lzo 999",
    ]
    .map(|name| {
        let (codec, level) = name.split_once(' ').expect("two words");
        format!("\"{codec}\" {level}")
    });
    assert_eq!(names, expected, "the codec with which others are compared comes first");
    let output_bytes = |name: &str| {
        let index = names.iter().position(|other| other.replace('"', "") == name).expect("measured");
        number(&lines[index], "output_bytes")
    };
    assert_eq!(output_bytes("none 0"), number(&lines[6], "input_bytes"));
    assert!(output_bytes("lz4 0") > output_bytes("zstd 1"));
    assert!(output_bytes("zlib 1") > output_bytes("zlib 9"));
    assert!(output_bytes("snappy 0") > output_bytes("zlib 1"));
    assert!(output_bytes("lzo 1") > output_bytes("lzo 999"));
    assert_eq!(lines[0]["size_percent"], 100.0);
    let recommendation = lines.last().expect("lines");
    for choice in ["shortest_time", "smallest_size", "knee"] {
        let codec = recommendation[choice]["codec"].as_str().expect("a codec");
        assert!(["zstd", "lz4"].contains(&codec), "archive does not write {codec}");
    }
    let read = |path: &str| fs::read_to_string(path).expect("written");
    assert_eq!(read(&csv).lines().count(), 12);
    assert!(read(&html).contains("bzip2 1"));

    let text = screen_output(&[&QUICK_LEVELS[..], &["--codec", codecs]].concat(), &fixture(FULL_26));
    assert!(text.contains("\nzlib 9 "), "{text}");
    assert!(text.contains("against zstd 1"), "{text}");
    assert!(!text.contains("--format none"), "{text}");
    assert!(!text.contains("--format zlib"), "{text}");
}

/// Sizes differ by at most 16 bytes from those of the libraries' own writers for the same content.
#[test]
fn sizes_match_those_of_the_libraries() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("content");
    let content: Vec<u8> = (0..200_000u32).flat_map(|number| (number / 5).to_le_bytes()).collect();
    fs::write(&path, &content).expect("written");
    let arguments = [&QUICK_LEVELS[..], &["--frame-size", "1MiB", "--codec", "zlib:6,bzip2:9"]].concat();
    let lines = run_with_json(&arguments, &path);
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::new(6));
    std::io::Write::write_all(&mut zlib, &content).expect("compressed");
    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::new(9));
    std::io::Write::write_all(&mut bzip2, &content).expect("compressed");
    let expected = [zlib.finish().expect("zlib").len() as f64, bzip2.finish().expect("bzip2").len() as f64];
    for (row, expected) in lines.iter().zip(expected) {
        // The libraries' writers process the content in pieces, which moves the borders of blocks.
        assert!((number(row, "output_bytes") - expected).abs() <= 16.0, "{row}, not {expected}");
    }
}
