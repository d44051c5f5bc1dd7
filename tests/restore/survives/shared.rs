//! If two restores share a directory, one is refused, and the other makes a complete ledger.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::common::runs::*;
use crate::common::*;

/// Number of tries: on a busy machine, two programs started together may run one after another.
const ROUNDS_MAX: usize = 60;

/// Returns an archive, made once, that takes a moment to restore.
fn large_archive() -> &'static Path {
    static ARCHIVE: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = ARCHIVE.get_or_init(|| {
        let dir = temp_dir();
        let ledger = dir.path().join("synth");
        synthetic_ledger(&ledger, 24 << 20, 300);
        let path = archive(&ledger, dir.path(), &["--zstd-level", "1"]);
        (dir, path)
    });
    path
}

/// Counts the files below a directory, which may change at the same time.
fn count_files(dir: &Path) -> usize {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| if entry.path().is_dir() { count_files(&entry.path()) } else { 1 }).sum()
}

/// Runs two restores at the same time. The second begins once `dir` has this number of files, or the first
/// has ended.
fn restore_both(arguments: [&[&str]; 2], dir: &Path, files: usize) -> [Output; 2] {
    let [first, second] = arguments.map(|arguments| {
        let mut command = program(&["restore", text(large_archive())]);
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    });
    let start = |mut command: Command| command.spawn().expect("runs");
    let mut first = start(first);
    wait_for("the first restore", || count_files(dir) >= files || first.try_wait().expect("a child").is_some());
    let second = start(second);
    [first, second].map(|child| child.wait_with_output().expect("ends"))
}

fn assert_complete(ledger: &Path, accounts: &Path) {
    let snapshots = fs::read_dir(ledger.join("snapshots")).expect("read");
    let bank = snapshots.map(|entry| entry.expect("an entry").path()).next().expect("a bank snapshot");
    assert!(bank.join("fastboot_version").exists());
    assert_eq!(relative_paths(&accounts.join("run")).len(), storages_list(&bank).len());
}

#[test]
fn two_restores_into_one_accounts_path_exclude_each_other() {
    let mut refused = 0;
    for round in 0..ROUNDS_MAX {
        if round >= 8 && refused > 0 {
            break;
        }
        let dir = temp_dir();
        let [first_ledger, second_ledger, accounts] = ["first", "second", "accounts"].map(|name| dir.path().join(name));
        let flags = |ledger: &PathBuf| {
            ["--ledger".to_string(), text(ledger).into(), "--accounts".into(), text(&accounts).into()]
        };
        let first_flags = flags(&first_ledger);
        let second_flags = flags(&second_ledger);
        let arguments = [&first_flags, &second_flags].map(|flags| flags.iter().map(String::as_str).collect::<Vec<_>>());
        let outputs = restore_both([&arguments[0], &arguments[1]], &accounts, round % 8 * 40);
        let mut complete = 0;
        for (output, ledger) in outputs.iter().zip([&first_ledger, &second_ledger]) {
            let (code, stderr) = code_and_stderr(output);
            if code == Some(0) {
                complete += 1;
                assert_complete(ledger, &accounts);
                continue;
            }
            // If the second restore began after the first had ended, the state exists.
            assert!(code == Some(1) || code == Some(5) && stderr.contains("already exists"), "{code:?}: {stderr}");
            refused += usize::from(stderr.contains(&format!("{} is in use", accounts.display())));
            assert!(!ledger.exists(), "the refused restore left a ledger: {stderr}");
        }
        assert_eq!(complete, 1, "{}", outputs.map(|output| code_and_stderr(&output).1).join("\n"));
        assert!(!relative_paths(dir.path()).iter().any(|name| name.contains("slotpress-partial")));
    }
    assert!(refused >= 1, "no two restores ran at the same time");
}

#[test]
fn restores_into_distinct_targets_run_side_by_side() {
    let dir = temp_dir();
    let [first, second] = ["first", "second"].map(|name| dir.path().join(name));
    let outputs = restore_both([&["--ledger", text(&first)], &["--ledger", text(&second)]], dir.path(), 0);
    for (output, ledger) in outputs.iter().zip([first, second]) {
        assert_eq!(output.status.code(), Some(0), "{}", code_and_stderr(output).1);
        assert_complete(&ledger, &ledger.join("accounts"));
    }
}

/// Directories that a dead run left are removed. Those that are locked stay.
#[test]
fn only_directories_of_dead_runs_are_removed() {
    let dir = temp_dir();
    let dead = dir.path().join("accounts/slotpress-partial-run-dead");
    let live = dir.path().join("accounts/slotpress-partial-run-live");
    for path in [&dead, &live] {
        fs::create_dir_all(path.join("deep")).expect("made");
        fs::write(path.join("deep/1.1"), "left").expect("written");
    }
    let lock = fs::File::open(&live).expect("opened");
    lock.lock().expect("locked");
    let (code, stderr) = run_to_stderr(&["restore", text(&fixture(FULL_26)), "--ledger", text(dir.path())]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(!dead.exists());
    assert!(live.join("deep/1.1").exists());
}
