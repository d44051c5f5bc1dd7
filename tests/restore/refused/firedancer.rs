//! Archives that only Firedancer loads are refused.

use std::io::{Read, Write};
use std::path::Path;
use std::process::Stdio;

use crate::common::firedancer::*;
use crate::common::*;

/// Returns the files of a ledger without locks.
fn files_without_locks(ledger: &Path) -> Vec<String> {
    relative_paths(ledger).into_iter().filter(|name| !name.ends_with(".lock")).collect()
}

#[test]
fn an_archive_for_firedancer_alone_is_refused() {
    let agave_archives = ["snapshot-26-", "incremental-"].map(|prefix| fixture_of(AGAVE_4_2, prefix));
    let firedancer_archives = [full(OLD_CHAIN), incremental(OLD_CHAIN)];
    for pair in [
        vec![&firedancer_archives[0]],
        vec![&firedancer_archives[0], &firedancer_archives[1]],
        vec![&firedancer_archives[0], &agave_archives[1]],
        vec![&agave_archives[0], &firedancer_archives[1]],
        vec![&full(CHAIN_WITHOUT_STAKES)],
        vec![&full(NEW_CHAIN), &incremental("firedancer-2026-09/full-bank-hashes-0")],
    ] {
        let dir = temp_dir();
        let ledger = empty_ledger_of(AGAVE_4_2, dir.path(), "ledger");
        for more in [&[][..], &["--replace-state"]] {
            let (code, _, stderr) =
                run_command_to_first_line(command("restore").args(&pair).arg("--ledger").arg(&ledger).args(more));
            assert_eq!(code, 1, "{code}: {stderr}");
            assert!(stderr.contains("only Firedancer loads it"), "{code}: {stderr}");
            assert!(stderr.contains(HINT), "{stderr}");
            assert_eq!(files_without_locks(&ledger), ["genesis.bin"], "{stderr}");
        }
    }
}

/// An archive from a pipe is refused as soon as its first entries show that only Firedancer loads it, without waiting
/// for the rest.
#[test]
fn a_piped_archive_is_refused_before_its_end() {
    let dir = temp_dir();
    let ledger = empty_ledger_of(AGAVE_4_2, dir.path(), "ledger");
    let archive = std::fs::read(full(OLD_CHAIN)).expect("read");
    let mut restore = command("restore");
    restore.args(["-", "--ledger"]).arg(&ledger).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = restore.spawn().expect("starts");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(&archive[..archive.len() / 2]).expect("taken");
    let mut stderr = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut stderr).expect("read");
    assert_eq!(child.wait().expect("ends").code(), Some(1), "{stderr}");
    let message = stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(message.contains("only Firedancer loads it"), "{stderr}");
    assert!(message.contains(HINT), "{stderr}");
    assert_eq!(files_without_locks(&ledger), ["genesis.bin"], "{stderr}");
}
