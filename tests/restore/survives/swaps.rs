//! An attacker swaps directories of the target for symbolic links during a restore. No file is
//! written elsewhere, and a restore that ends with success is complete.

use std::fs;
use std::process::{Command, Stdio};

use crate::common::swaps::*;
use crate::common::*;

#[test]
fn links_in_place_of_directories_are_not_followed() {
    let (_dir, archive) = small_archive();
    let archived = contents(&archive);
    let mut swaps = 0;
    let mut complete = 0;
    for run in 0..RUNS {
        let dir = temp_dir();
        let ledger = dir.path().join("ledger");
        let accounts = dir.path().join("accounts");
        let outside = dir.path().join("outside");
        let aside = dir.path().join("aside");
        for dir in [&ledger, &accounts, &outside] {
            fs::create_dir(dir).expect("made");
        }
        let mut command = Command::new(slotpress_path());
        command.arg("restore").arg(&archive).arg("--ledger").arg(&ledger).arg("--accounts").arg(&accounts);
        let dirs = AttackedDirs { ledger: &ledger, accounts: &accounts, aside: &aside, outside: &outside };
        let (status, swapped) = attack(command, &dirs, run);
        swaps += swapped;
        if !status.success() {
            continue;
        }
        complete += 1;
        assert_complete(&archive, &archived, &ledger, &accounts, run);
    }
    println!("{swaps} swaps in {RUNS} runs, of which {complete} were complete");
    assert!(swaps > RUNS, "nothing was swapped: {swaps}");
}

/// The directory of bank snapshots is replaced while the archive is still arriving.
#[test]
fn a_swapped_bank_snapshots_directory_is_an_error() {
    use std::io::Write;
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let mut command = Command::new(slotpress_path());
    command.args(["restore", "-", "--ledger"]).arg(&ledger).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("starts");
    let is_begun = || {
        let mut entries = fs::read_dir(&ledger).into_iter().flatten().flatten();
        entries.any(|entry| name(&entry.path()).starts_with("tmp-snapshot-archive-slotpress-"))
    };
    let bytes = fs::read(fixture(FULL_26)).expect("read");
    let (first, rest) = bytes.split_at(bytes.len() / 2);
    let mut pipe = child.stdin.take().expect("a pipe");
    pipe.write_all(first).expect("written");
    wait_for("the target to be open", is_begun);
    fs::rename(ledger.join("snapshots"), dir.path().join("aside")).expect("moved");
    fs::create_dir(ledger.join("snapshots")).expect("made");
    pipe.write_all(rest).expect("written");
    drop(pipe);
    let output = child.wait_with_output().expect("ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{}: {stderr}", output.status);
    assert!(stderr.contains("snapshots"), "{}: {stderr}", output.status);
}
