//! Output for the operator while archives are made.

use std::fs;

use serde_json::Value;

use crate::common::screen::*;
use crate::common::*;

/// A dry run shows what would be written, and writes nothing.
#[test]
fn a_dry_run_writes_nothing() {
    let ledger = ledger("ledger-at-26");
    let dir = temp_dir();
    let arguments = ["archive", text(ledger.path()), "-o", text(dir.path()), "--dry-run"];
    let files = || relative_paths(ledger.path()).into_iter().filter(|name| name != "ledger.lock").collect::<Vec<_>>();
    let before = files();
    let (code, stdout, stderr) = run_to_text(&arguments);
    let path = dir.path().join(FULL_26);
    assert_eq!((code, stdout.lines().next(), stderr.as_str()), (0, path.to_str(), ""), "{stdout}");
    assert!(stdout.contains("  slot       26, 27 storages\n"), "{stdout}");
    assert!(stdout.ends_with("Nothing was written.\n"), "{stdout}");
    let (_, stdout, _) = run_to_text(&[&arguments[..], &["--json"]].concat());
    assert_eq!(relative_paths(dir.path()), Vec::<String>::new());
    assert_eq!(files(), before);
    let line: Value = serde_json::from_str(&stdout).expect("JSON");
    let estimated = line["estimated_bytes"].as_u64().expect("a number");
    let made = archive(ledger.path(), dir.path(), &[]);
    let length = fs::metadata(&made).expect("metadata").len();
    assert!(estimated.abs_diff(length) * 20 < length, "{estimated} estimated, {length} made");
    // A dry run refuses what a run would refuse.
    assert_fails(&arguments, 5, &["already exists"]);
    assert_fails(&[&arguments[..], &["--base-slot", "25"]].concat(), 1, &["there is no full archive of slot 25"]);
    assert_fails(&["archive", text(ledger.path()), "-o", "-", "--dry-run"], 2, &["--dry-run"]);
}

/// An incremental archive is read back together with the full archive beside it, which the program names. Without such an
/// archive, the program says how to check the state.
#[test]
fn an_incremental_archive_is_read_back_on_its_full_one() {
    let ledger = ledger("ledger-at-40");
    let out = temp_dir();
    fs::copy(fixture(FULL_26), out.path().join(FULL_26)).expect("copied");
    let archive_incremental = |flags: &[&str]| {
        let mut command = slotpress();
        command.arg("archive").arg(ledger.path()).arg("-o").arg(out.path()).args(["--base-slot", "26", "--force"]);
        let run = command.args(flags).output().expect("runs");
        (run.status.code(), String::from_utf8([run.stdout, run.stderr].concat()).expect("text"))
    };
    let (code, output) = archive_incremental(&["--verify"]);
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("GOOD: read back"), "{output}");
    assert!(!output.contains("verify FULL"), "{output}");
    assert!(output.contains("reading it back on the full archive"), "{output}");
    assert!(output.contains(FULL_26), "{output}");
    // The command that checks the archive can be pasted.
    let (code, output) = archive_incremental(&[]);
    let [full, incremental] = [FULL_26, INCREMENTAL_26_40].map(|name| out.path().join(name).display().to_string());
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains(&format!("\n  slotpress verify {full} {incremental}\n")), "{output}");
    fs::remove_file(out.path().join(FULL_26)).expect("removed");
    let (code, output) = archive_incremental(&["--verify", "--force-base"]);
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("not checked"), "{output}");
    assert!(output.contains("slotpress verify FULL "), "{output}");
    // A truncated full archive is not used. A damaged one is named as a possible cause.
    let bytes = fs::read(fixture(FULL_26)).expect("read");
    fs::write(out.path().join(FULL_26), &bytes[..bytes.len() - 1]).expect("written");
    let (code, output) = archive_incremental(&[]);
    assert_eq!(code, Some(1), "{output}");
    assert!(output.contains("there is no full archive of slot 26"), "{output}");
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 1;
    fs::write(out.path().join(FULL_26), &flipped).expect("written");
    let (code, output) = archive_incremental(&["--verify"]);
    assert_eq!(code, Some(3), "{output}");
    assert!(output.contains("read back on"), "{output}");
    assert!(output.contains("verify the full archive and the ledger"), "{output}");
}
