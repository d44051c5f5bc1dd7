//! Files that slotpress is not allowed to read are not reported as damage; missing files are. Hints can be
//! followed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::common::runs::*;
use crate::common::*;

/// Returns the arguments of the two commands that read all files of a ledger.
fn reading_commands<'a>(ledger: &'a Path, out: &'a Path) -> [Vec<&'a str>; 2] {
    [vec!["verify", text(ledger)], vec!["archive", text(ledger), "-o", text(out)]]
}

#[test]
fn unreadable_files_are_not_reported_as_damage() {
    let out = temp_dir();
    fs::set_permissions(out.path(), fs::Permissions::from_mode(0o777)).expect("permissions");
    let program = UnprivilegedProgram::new();
    for path in [
        "snapshots/26/26",
        "snapshots/26/status_cache",
        "snapshots/26/storages_list",
        "snapshots/26/obsolete_accounts",
        "snapshots/26/fastboot_version",
        "snapshots/26/version",
        "snapshots/26",
        "snapshots",
        "accounts",
        "accounts/run",
        "accounts/run/11.11",
    ] {
        let ledger = ledger("ledger-at-26");
        fs::set_permissions(ledger.path(), fs::Permissions::from_mode(0o777)).expect("permissions");
        fs::write(ledger.path().join("ledger.lock"), "").expect("written");
        fs::set_permissions(ledger.path().join("ledger.lock"), fs::Permissions::from_mode(0o666)).expect("permissions");
        let closed = ledger.path().join(path);
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).expect("permissions");
        for arguments in reading_commands(ledger.path(), out.path()) {
            let (code, stderr) = code_and_stderr(&program.command().args(&arguments).output().expect("runs"));
            assert_eq!(code, Some(1), "{path}: {arguments:?}: {stderr}");
            assert!(stderr.to_lowercase().contains("permission denied"), "{path}: {arguments:?}: {stderr}");
        }
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).expect("permissions");
    }
}

/// A symbolic link to itself cannot be followed.
#[test]
fn other_system_errors_are_not_reported_as_damage() {
    let out = temp_dir();
    for file in ["26", "status_cache", "storages_list", "obsolete_accounts"] {
        let ledger = ledger("ledger-at-26");
        let path = ledger.path().join("snapshots/26").join(file);
        fs::remove_file(&path).expect("removed");
        std::os::unix::fs::symlink(&path, &path).expect("linked");
        for arguments in reading_commands(ledger.path(), out.path()) {
            let (code, stderr) = run_to_stderr(&arguments);
            assert_eq!(code, Some(1), "{file}: {arguments:?}: {code:?} {stderr}");
            assert!(stderr.contains("symbolic link"), "{file}: {arguments:?}: {code:?} {stderr}");
        }
    }
}

#[test]
fn missing_files_of_a_ledger_are_damage() {
    let out = temp_dir();
    for file in ["26", "status_cache", "storages_list", "obsolete_accounts"] {
        let ledger = ledger("ledger-at-26");
        fs::remove_file(ledger.path().join("snapshots/26").join(file)).expect("removed");
        for arguments in reading_commands(ledger.path(), out.path()) {
            let (code, stderr) = run_to_stderr(&arguments);
            assert_eq!(code, Some(3), "{file} is missing: {arguments:?}: {stderr}");
        }
    }
}

#[test]
fn hints_name_arguments_that_work() {
    let dir = temp_dir();
    let full = fixture(FULL_26);
    let unnamed = dir.path().join("unnamed.tar.zst");
    fs::copy(fixture(INCREMENTAL_26_40), &unnamed).expect("copied");
    let (code, stderr) = run_to_stderr(&["recompress", text(&unnamed), "-o", text(dir.path())]);
    assert_eq!(code, Some(3), "{code:?} {stderr}");
    assert!(stderr.contains("pass its full archive with --base"), "{code:?} {stderr}");
    // With `--base`, the archive may come from standard input or from a file.
    let output = program(&["recompress", "-", "--base", text(&full), "-o", text(dir.path())])
        .stdin(fs::File::open(&unnamed).expect("opened"))
        .output()
        .expect("runs");
    assert_eq!(output.status.code(), Some(0), "{}", code_and_stderr(&output).1);
    assert!(dir.path().join(INCREMENTAL_26_40).exists());
    fs::remove_file(dir.path().join(INCREMENTAL_26_40)).expect("removed");
    let (code, stderr) = run_to_stderr(&["recompress", text(&unnamed), "--base", text(&full), "-o", text(dir.path())]);
    assert_eq!(code, Some(0), "{stderr}");
}
