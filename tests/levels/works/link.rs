//! `slotpress levels link`: rows add up, and recommendations depend on the link.

use std::fs;

use serde_json::Value;

use crate::common::{FULL_3500, fixture, json_lines, number, slotpress};

fn run_link(arguments: &[&str]) -> Vec<Value> {
    let quick = ["levels", "link", "--json", "--repeat", "1", "--min-time", "0"];
    json_lines(slotpress().args(quick).args(arguments).arg(fixture(FULL_3500)))
}

fn lines_of_type<'a>(lines: &'a [Value], name: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["type"] == name).collect()
}

#[test]
fn json_lines_of_a_link_add_up() {
    let link_flags = ["--bandwidth", "100Mbit", "--rtt", "60ms", "--nodes", "3", "--egress-price", "0.09"];
    let lines = run_link(&[&["--levels", "1,3"][..], &link_flags[..]].concat());
    let link = lines_of_type(&lines, "link")[0];
    assert_eq!(number(link, "bandwidth_bits_per_second"), 1e8);
    assert_eq!((number(link, "rtt_seconds"), number(link, "nodes")), (0.06, 3.0));
    assert_eq!(link["limit"], "bandwidth");
    let rate = number(link, "node_bytes_per_second");
    assert!((rate / (1e8 / 8.0 / 3.0 * 1448.0 / 1538.0) - 1.0).abs() < 1e-9);

    let rows = lines_of_type(&lines, "link_level");
    let names: Vec<_> = rows.iter().map(|row| (row["codec"].as_str(), row["level"].as_i64())).collect();
    assert_eq!(names, [(Some("none"), Some(0)), (Some("zstd"), Some(1)), (Some("zstd"), Some(3))]);
    for row in &rows {
        let stages =
            ["archive_seconds", "send_seconds", "decode_seconds", "place_seconds"].map(|name| number(row, name));
        let sum: f64 = stages.iter().sum();
        let slowest = stages.iter().copied().fold(0.0, f64::max);
        assert!((number(row, "store_and_forward_seconds") - sum).abs() < 1e-9 * sum.max(1.0), "{row}");
        let streaming = number(row, "streaming_seconds");
        assert!(streaming >= slowest, "{row}");
        assert!(streaming <= sum * (1.0 + 1e-9), "{row}");
        assert!(number(row, "send_seconds") >= number(row, "archive_bytes") / rate, "{row}");
        assert_eq!(number(row, "egress_bytes"), number(row, "archive_bytes") * 3.0);
        assert!((number(row, "egress_price") - number(row, "egress_bytes") * 0.09e-9).abs() < 1e-9, "{row}");
    }
    assert_eq!(rows[0]["archive_bytes"], link["tar_bytes"], "uncompressed is the tar");
    assert!(number(rows[1], "archive_bytes") < number(rows[0], "archive_bytes"));

    // Two pairs of levels, in two modes.
    let break_evens = lines_of_type(&lines, "link_break_even");
    assert_eq!(break_evens.len(), 4);
    for break_even in break_evens {
        let range = break_even["heavier_is_sooner"].as_str().expect("a range");
        assert_eq!(break_even["bits_per_second"].is_number(), ["below", "above"].contains(&range), "{break_even}");
    }
    for choice in lines_of_type(&lines, "link_recommendation") {
        let field = format!("{}_seconds", choice["mode"].as_str().expect("a mode"));
        let shortest = rows.iter().map(|row| number(row, &field)).fold(f64::INFINITY, f64::min);
        assert!(number(choice, "seconds") <= shortest * 1.0101, "{choice}");
        assert!(choice["flag"].as_str().is_some_and(|flag| flag.starts_with("--")));
    }
}

/// Over a very slow link, only the size matters; over a very fast one, only the time for compressing.
#[test]
fn the_recommendation_follows_the_link() {
    let flag = |bandwidth: &str, other_flags: &[&str]| {
        let arguments = ["--levels", "-100,19", "--bandwidth", bandwidth, "--read-rate", "100TB/s"];
        let lines = run_link(&[&arguments[..], other_flags].concat());
        let choices = lines_of_type(&lines, "link_recommendation");
        let choice = choices.iter().find(|choice| choice["mode"] == "store_and_forward").expect("one per mode");
        choice["flag"].as_str().expect("a flag").to_string()
    };
    // The rates differ so much that other programs on the cores change nothing.
    assert_eq!(flag("100kbit", &[]), "--zstd-level 19");
    assert_eq!(flag("900Tbit", &[]), "--zstd-level -100", "Agave does not read a plain tar");
    assert_eq!(flag("900Tbit", &["--any-format"]), "--format none");
}

#[test]
fn the_screen_and_the_file_show_the_link() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name);
    let assert = slotpress()
        .args(["levels", "link", "--levels", "1,2", "--bandwidth", "1Gbit", "--repeat", "1", "--min-time", "0"])
        .args(["--codec", "zstd,lz4", "--rtt", "30ms", "--window", "64KiB", "--streams", "4"])
        .arg(fixture(FULL_3500))
        .arg("--csv")
        .arg(path("t.csv"))
        .assert()
        .success();
    let text = String::from_utf8(assert.get_output().stdout.clone()).expect("UTF-8");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    for words in
        ["round trip 30 ms", "a window of 64 KiB", "--read-rate", "Break-even: ", "\nlz4 ", "streaming: --zstd"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert_eq!(fs::read_to_string(path("t.csv")).expect("written").lines().count(), 5);
}

/// With a budget that ends at once, one level is measured, and the others are named.
#[test]
fn a_budget_bounds_the_time() {
    let flags = ["--levels", "1,3,9", "--bandwidth", "100Mbit", "--budget", "0s", "--repeat", "1", "--min-time", "0"];
    let output = slotpress().args(["levels", "link"]).args(flags).arg(fixture(FULL_3500)).output().expect("runs");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains("not measured within 0 s: "), "{stderr}");
    assert!(stderr.contains("zstd 9; raise --budget"), "{stderr}");
}
