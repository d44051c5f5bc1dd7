//! An attacker swaps directories of the target for symbolic links while a ledger is fetched. No
//! part of the ledger is written elsewhere.

use std::fs;
use std::process::Command;

use crate::common::site::{TransferMode, files_in, serve};
use crate::common::swaps::*;
use crate::common::*;

/// The run replaces an old state.
#[test]
fn links_in_place_of_directories_are_not_followed() {
    let (source_dir, archive) = small_archive();
    let archived = contents(&archive);
    let old = source_dir.path().join("old");
    let mut restore = slotpress();
    restore.arg("restore").arg(&archive).arg("--ledger").arg(&old).arg("--accounts").arg(old.join("accounts"));
    restore.assert().success();
    // The archive is removed from the old ledger, so that it is fetched.
    fs::remove_file(old.join(name(&archive))).expect("removed");
    let server = serve(&files_in(source_dir.path()), TransferMode::Ranges);
    let mut swaps = 0;
    for run in 0..RUNS / 2 {
        let dir = temp_dir();
        let [ledger, outside, aside] = ["ledger", "outside", "aside"].map(|name| dir.path().join(name));
        let accounts = ledger.join("accounts");
        copy_tree(&old, &ledger);
        fs::create_dir(&outside).expect("made");
        let mut command = Command::new(slotpress_path());
        command.args(["bootstrap", &server.url("/"), "--replace-state", "--no-incremental", "--ledger"]);
        command.arg(&ledger).arg("--accounts").arg(&accounts);
        let dirs = AttackedDirs { ledger: &ledger, accounts: &accounts, aside: &aside, outside: &outside };
        let (status, swapped) = attack(command, &dirs, run);
        swaps += swapped;
        if status.success() {
            assert_complete(&archive, &archived, &ledger, &accounts, run);
        }
    }
    assert!(swaps > RUNS / 2, "only {swaps} swaps");
}
