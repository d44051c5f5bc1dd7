//! Output for the operator while a ledger is restored.

use std::fs;

use serde_json::Value;

use crate::common::screen::*;
use crate::common::*;

/// The printed lines that start a validator work in any directory.
#[test]
fn restore_ends_with_lines_to_paste() {
    let dir = temp_dir();
    let output = slotpress()
        .current_dir(dir.path())
        .arg("restore")
        .arg(fixture(FULL_26))
        .args(["--ledger", "led ger", "--accounts", "accounts"])
        .output()
        .expect("runs");
    let stdout = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{stdout}");
    let dir = text(dir.path());
    let agave = format!("  agave-validator --ledger '{dir}/led ger' --accounts {dir}/accounts --no-snapshot-fetch\n");
    assert!(stdout.contains(&agave), "{stdout}");
    assert!(stdout.ends_with(&format!("  [paths]\n  snapshots = \"{dir}/led ger\"\n")), "{stdout}");
}

#[test]
fn a_dry_run_of_restore() {
    let dir = temp_dir();
    let (full, incremental) = (fixture(FULL_26), fixture(INCREMENTAL_26_40));
    let target = dir.path().join("ledger");
    let arguments = ["restore", text(&full), text(&incremental), "--ledger", text(&target), "--dry-run"];
    let (code, stdout, stderr) = run(&arguments);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    for part in ["  slot 26, hash 5vEhTbsm", "  slot 40, hash D5jEKFz2", " needed, ", "Nothing was restored.\n"] {
        assert!(stdout.contains(part), "{part:?} is not in: {stdout}");
    }
    assert_eq!(names(dir.path()), Vec::<String>::new());
    let (_, stdout, _) = run(&[&arguments[..], &["--json"]].concat());
    let line: Value = serde_json::from_str(&stdout).expect("JSON");
    let unpacked = line["archives"][0]["unpacked_bytes"].as_u64().expect("a number");
    assert_eq!(unpacked, tar_of(&full).len() as u64, "all of a small archive is the sample");
    // A dry run refuses what a run would refuse, and names what would be replaced.
    fs::create_dir_all(target.join("snapshots/7")).expect("made");
    fails(
        &arguments,
        5,
        &[text(&target), "hint: restore into an empty directory, or replace that state with --replace-state"],
    );
    let (code, stdout, _) = run(&[&arguments[..], &["--replace-state"]].concat());
    let replaced = format!("  replaces {}, moved aside at the end", target.join("snapshots/7").display());
    assert!(code == 0 && stdout.replace("\n           ", " ").contains(&replaced), "{stdout}");
    assert!(target.join("snapshots/7").exists());
    fails(
        &["restore", text(&incremental), "--ledger", text(&target), "--dry-run"],
        2,
        &["an incremental archive alone"],
    );
}
