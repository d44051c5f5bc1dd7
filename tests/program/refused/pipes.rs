//! A pipe in the place of a file is refused or skipped; no command waits for it.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::runs::*;
use crate::common::*;

/// Time limit: a command that runs longer is assumed to wait for a pipe.
const SECONDS_MAX: &str = "20";

fn make_pipe(path: &Path) {
    let _ = fs::remove_file(path);
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o644.into(), 0).expect("a pipe");
}

/// Asserts that the program does not wait for a pipe; returns its exit code and standard error.
fn assert_does_not_wait(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new("timeout")
        .args(["--signal=KILL", SECONDS_MAX])
        .arg(slotpress_path())
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("runs");
    let (code, stderr) = code_and_stderr(&output);
    assert!(code.is_some_and(|code| code != 137), "{arguments:?} waits for a pipe: {stderr}");
    (code, stderr)
}

#[test]
fn pipes_are_refused_as_archives() {
    let dir = temp_dir();
    let archive = dir.path().join(FULL_26);
    let out = dir.path().join("out");
    let target = dir.path().join("restored");
    fs::create_dir(&out).expect("made");
    make_pipe(&archive);
    for arguments in [
        vec!["verify", text(&archive)],
        vec!["inspect", text(&archive)],
        vec!["restore", text(&archive), "--ledger", text(&target)],
        vec!["recompress", text(&archive), "-o", text(&out)],
        vec!["levels", text(&archive), "--levels", "1"],
    ] {
        let (code, stderr) = assert_does_not_wait(&arguments);
        assert_eq!(code, Some(1), "{arguments:?}: {code:?} {stderr}");
        assert!(stderr.contains("is not a file"), "{arguments:?}: {code:?} {stderr}");
    }
}

#[test]
fn pipes_in_a_ledger_do_not_block() {
    let out = temp_dir();
    let storage = "accounts/run/11.11";
    for file in ["26", "status_cache", "storages_list", "obsolete_accounts", "fastboot_version", "version"]
        .map(|file| format!("snapshots/26/{file}"))
        .into_iter()
        .chain([storage.to_string(), "ledger.lock".to_string()])
    {
        let ledger = ledger("ledger-at-26");
        assert!(file == "ledger.lock" || ledger.path().join(&file).exists(), "{file}");
        make_pipe(&ledger.path().join(&file));
        for arguments in [
            vec!["verify", text(ledger.path())],
            vec!["archive", text(ledger.path()), "-o", text(out.path())],
            vec!["inspect", text(ledger.path())],
            vec!["levels", text(ledger.path()), "--levels", "1", "--repeat", "1", "--min-time", "0"],
        ] {
            let (code, stderr) = assert_does_not_wait(&arguments);
            if matches!(arguments[0], "verify" | "archive") {
                assert!(matches!(code, Some(1 | 3)), "{file}, {arguments:?}: {code:?} {stderr}");
            }
            assert!(
                fs::read_dir(out.path()).expect("read").next().is_none() || code == Some(0),
                "{file}: files are left"
            );
        }
        for entry in fs::read_dir(out.path()).expect("read").flatten() {
            fs::remove_file(entry.path()).expect("removed");
        }
    }
}

#[test]
fn pipes_at_output_paths_do_not_block() {
    let dir = temp_dir();
    let ledger = ledger("ledger-at-26");
    let out = dir.path().join("out");
    fs::create_dir(&out).expect("made");
    // A pipe with the name of a temporary file was not made by slotpress.
    make_pipe(&out.join("tmp-snapshot-archive-slotpress-dead"));
    make_pipe(&out.join(FULL_26.replace("-26-", "-11-")));
    let arguments = ["archive", text(ledger.path()), "-o", text(&out)];
    assert_eq!(assert_does_not_wait(&arguments).0, Some(0));
    fs::remove_file(out.join(FULL_26)).expect("removed");
    make_pipe(&out.join(FULL_26));
    let (code, stderr) = assert_does_not_wait(&arguments);
    assert_eq!(code, Some(5), "{code:?} {stderr}");
    assert!(stderr.contains("already exists"), "{code:?} {stderr}");
    let forced: Vec<&str> = arguments.into_iter().chain(["--force"]).collect();
    assert_eq!(assert_does_not_wait(&forced).0, Some(0));
    assert!(out.join(FULL_26).is_file());
    for name in ["slotpress-partial-journal", "ledger.lock", FULL_26] {
        let target = dir.path().join(format!("restored-{}", name.len()));
        fs::create_dir(&target).expect("made");
        make_pipe(&target.join(name));
        let (code, stderr) = assert_does_not_wait(&["restore", text(&fixture(FULL_26)), "--ledger", text(&target)]);
        assert_eq!(code, Some(1), "{name}: {code:?} {stderr}");
        assert!(stderr.contains(name), "{name}: {code:?} {stderr}");
        let left: Vec<String> = relative_paths(&target).into_iter().filter(|left| left != "ledger.lock").collect();
        assert_eq!(left.len(), usize::from(name != "ledger.lock"), "{left:?}");
    }
}

/// If writing the output fails, the run ends, even if its input neither continues nor ends.
#[test]
fn a_run_whose_output_failed_does_not_wait_for_its_input() {
    let ledger = ledger("ledger-at-26");
    let dir = temp_dir();
    // Small frames, each of which is decoded as soon as it has arrived.
    let archive = fs::read(archive(ledger.path(), dir.path(), &["--frame-size", "64KiB"])).expect("read");
    let mut child = program(&["recompress", "-", "-o", "-", "--frame-size", "64KiB", "--check", "frames"])
        .stdin(Stdio::piped())
        .stdout(fs::File::options().write(true).open("/dev/full").expect("opened"))
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let writer = std::thread::spawn(move || {
        let _ = stdin.write_all(&archive[..archive.len() - 10_000]);
        stdin
    });
    // The input never ends, so the run ends because of the output or not at all.
    let code = exit_code(&mut child);
    drop(writer.join());
    let mut stderr = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut stderr).expect("read");
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("no space left on device"), "{stderr}");
}
