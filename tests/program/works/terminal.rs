//! Results on terminals of several widths: lines break between words, tables leave out columns, and
//! text to copy stays in one piece.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::termios::{Winsize, tcsetwinsize};

use crate::common::{FULL_26, INCREMENTAL_26_40, fixture, ledger, slotpress_path, temp_dir, terminal};

/// Returns what a command shows on a terminal, line by line.
fn shown(columns: u16, arguments: &[&str]) -> Vec<String> {
    let (mut screen, terminal) = terminal();
    let size = Winsize { ws_row: 40, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&terminal, size).expect("a size");
    let mut command = Command::new(slotpress_path());
    command.args(arguments).args(["--progress", "none"]).env("NO_COLOR", "1");
    let error = terminal.try_clone().expect("another");
    let mut child = command.stdout(Stdio::from(terminal)).stderr(Stdio::from(error)).spawn().expect("starts");
    drop(command);
    // When its last user is gone, a terminal's reader gets an error after the output.
    let mut said = Vec::new();
    let _ = screen.read_to_end(&mut said);
    let status = child.wait().expect("ends");
    let said = String::from_utf8_lossy(&said).replace('\r', "");
    assert!(status.success(), "{arguments:?}: {said}");
    said.lines().map(str::to_string).collect()
}

/// Returns whether a line fits. Only lines that cannot be broken, or are to be copied, may be too
/// long.
fn is_fit(line: &str, columns: usize) -> bool {
    let width = line.chars().count();
    let indent = width - line.trim_start().chars().count();
    let longest = line.split_whitespace().map(|word| word.chars().count()).max().unwrap_or_default();
    let is_to_be_copied =
        ["  agave-validator ", "  snapshots = ", "  genesis = ", "  rm -r ", "  slotpress ", "    --"]
            .iter()
            .any(|start| line.starts_with(start));
    width <= columns || is_to_be_copied || indent.min(columns / 2) + longest > columns
}

#[test]
fn every_result_fits() {
    let (ledger_26, ledger_40, dir) = (ledger("ledger-at-26"), ledger("ledger-at-40"), temp_dir());
    let text = |path: &Path| path.to_str().expect("text").to_string();
    let at = |name: &str| text(&dir.path().join(name));
    let (at_26, at_40) = (text(ledger_26.path()), text(ledger_40.path()));
    let (full, incremental) = (text(&fixture(FULL_26)), text(&fixture(INCREMENTAL_26_40)));
    let quick = ["--repeat", "1", "--min-time", "0", "--frame-size", "64KiB"];
    for columns in [40, 60, 80, 120] {
        let (out, restored, booted) =
            (at(&format!("out-{columns}")), at(&format!("{columns}")), at(&format!("b{columns}")));
        std::fs::create_dir(&out).expect("made");
        let commands: Vec<Vec<&str>> = vec![
            vec!["archive", &at_26, "-o", &out, "--dry-run"],
            vec!["archive", &at_26, "-o", &out, "--verify", "-v"],
            vec!["archive", &at_40, "-o", &out, "--base-slot", "26"],
            vec!["recompress", &full, "-o", &out, "--force"],
            vec!["restore", &full, &incremental, "--ledger", &restored],
            vec!["verify", &full, &incremental],
            vec!["inspect", &full],
            vec!["inspect", &at_26],
            vec!["inspect", &at_26, "--by-owner"],
            vec!["doctor", &at_26],
            vec!["find", "--source", &out],
            vec!["bootstrap", &out, "--ledger", &booted],
            vec!["list", &out],
            vec!["prune", &out, "--keep-full", "1", "--keep-incremental", "1", "--dry-run"],
            [["levels", &full, "--levels", "1,2"].as_slice(), &quick].concat(),
            [["levels", &full, "--codec", "zstd:1,lz4,none"].as_slice(), &quick].concat(),
            [["levels", "link", &full, "--levels", "1,2", "--bandwidth", "1Gbit"].as_slice(), &quick].concat(),
            vec!["levels", "frames", &full, "--min-time", "0"],
            vec!["levels", "sizes", &full, "--repeat", "1", "--min-time", "0"],
        ];
        for command in commands {
            let lines = shown(columns, &command);
            assert!(!lines.is_empty(), "{command:?}");
            let unfit: Vec<&String> = lines.iter().filter(|line| !is_fit(line, usize::from(columns))).collect();
            assert!(unfit.is_empty(), "{columns} columns, {command:?}:\n{unfit:#?}\nof\n{}", lines.join("\n"));
        }
    }
}
