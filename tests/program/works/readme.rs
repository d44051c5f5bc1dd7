//! The examples of the README print the output that the README shows, except for times and rates.

use std::path::Path;
use std::process::Command;

use crate::common::{slotpress_path, temp_dir};

/// Runs a shell line in which `slotpress` is a command; returns its output.
fn run_in_shell(line: &str, dir: &Path) -> String {
    let programs = slotpress_path().parent().expect("a directory").display().to_string();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap_or_default());
    let output = Command::new("sh").args(["-c", line]).current_dir(dir).env("PATH", path).output().expect("runs");
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Returns a line without times, rates and loads.
fn remove_times(line: &str) -> String {
    if line.trim_start().starts_with("elapsed ") {
        return "elapsed".to_string();
    }
    let words: Vec<&str> = line.split_whitespace().collect();
    let is_time = |word: &str| {
        let unit = word.trim_matches(|char: char| !char.is_alphanumeric());
        ["ms", "s", "min", "h", "d", "KiB/s", "MiB/s", "GiB/s"].contains(&unit)
    };
    let mask_time = |(index, word): (usize, &&str)| {
        let is_number = word.contains(|char: char| char.is_ascii_digit());
        let is_load = index > 0 && words[index - 1] == "load";
        let is_timed = words.get(index + 1).is_some_and(|next| is_time(next));
        if is_time(word) || (is_number && (is_load || is_timed)) { "*" } else { word }.to_string()
    };
    words.iter().enumerate().map(mask_time).collect::<Vec<_>>().join(" ")
}

/// Compares the output with the documented one, in which `…` matches any lines.
fn assert_prints(command: &str, documented: &[&str], printed: &str) {
    let mut lines = printed.lines().map(remove_times);
    let mut is_skipping = false;
    for expected in documented {
        if expected.trim() == "…" {
            is_skipping = true;
            continue;
        }
        let expected = remove_times(expected);
        let is_printed = if std::mem::take(&mut is_skipping) {
            lines.any(|line| line == expected)
        } else {
            lines.next() == Some(expected.clone())
        };
        assert!(is_printed, "{command}\ndoes not print\n{expected}\nbut\n{printed}");
    }
    assert!(is_skipping || lines.next().is_none(), "{command}\nprints more than is documented:\n{printed}");
}

#[test]
fn the_examples_print_the_documented_output() {
    let dir = temp_dir();
    let readme = &include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md"))
        .replace("/home/sol/", &format!("{}/", dir.path().display()));
    let mut commands = 0;
    for block in readme.split("```").skip(1).step_by(2) {
        let block = block.strip_prefix('\n').unwrap_or(block);
        // Skips commands that need a validator or do not end.
        if !block.starts_with("$ ") || block.contains("/mnt/") || block.contains(" serve ") {
            continue;
        }
        for example in block.strip_prefix("$ ").expect("a command").split("\n$ ") {
            let mut lines = example.trim_end().lines();
            let command = lines.next().expect("a command");
            let budget = if command.contains(" levels ") { " --budget 0" } else { "" };
            assert_prints(
                command,
                &lines.collect::<Vec<_>>(),
                &run_in_shell(&format!("{command}{budget}"), dir.path()),
            );
            commands += 1;
        }
    }
    assert!(commands >= 10, "{commands} commands");
    let (_, demo) = readme.split_once("\n# A ledger, as a validator leaves it").expect("the demo");
    let demo = format!("…\n# A ledger, as a validator leaves it{}\n…", demo.split("\n```").next().unwrap_or_default());
    assert_prints("slotpress demo", &demo.lines().collect::<Vec<_>>(), &run_in_shell("slotpress demo", dir.path()));
}
