//! `verify DIRECTORY`: verdicts on all archives of a directory.

use std::fs;
use std::path::Path;

use serde_json::Value;
use slotpress::catalog::ListedArchive;
use slotpress::verify::{VerifyOptions, verify_catalog};
use slotpress::{ArchiveInput, ErrorKind, NoProgress};
use tempfile::TempDir;

use crate::common::listed::objects;
use crate::common::served::two_archives;
use crate::common::*;

/// The result of `verify DIRECTORY`.
struct VerifyOutput {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn verify_directory(dir: &Path, flags: &[&str]) -> VerifyOutput {
    let output = slotpress().arg("verify").arg(dir).args(flags).output().expect("runs");
    let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("text"));
    VerifyOutput { code: output.status.code(), stdout, stderr }
}

/// Returns the object of an archive that was not checked completely.
fn find_unchecked_archive(stdout: &str) -> Value {
    let line = objects(stdout.as_bytes()).into_iter().find(|line| line["type"] == "archive_not_checked");
    line.unwrap_or_else(|| panic!("{stdout}"))
}

#[test]
fn all_archives_of_a_directory_are_verified() {
    let dir = two_archives();
    let output = verify_directory(dir.path(), &[]);
    let stdout = output.stdout;
    assert_eq!(output.code, Some(0), "{stdout}");
    assert_eq!(stdout.lines().filter(|line| line.starts_with("ok  ")).count(), 2, "{stdout}");
    assert!(stdout.ends_with("\n2 archives: 2 good\n"), "{stdout}");
}

#[test]
fn damaged_archives_of_a_directory_are_listed() {
    let dir = two_archives();
    let mut bytes = fs::read(fixture(FULL_26)).expect("read");
    let middle = bytes.len() / 2;
    fs::write(dir.path().join(FULL_26.replace("-26-", "-9-")), &bytes[..middle]).expect("written");
    bytes[middle] ^= 1;
    fs::write(dir.path().join(FULL_26.replace("-26-", "-27-")), &bytes).expect("written");
    let output = verify_directory(dir.path(), &[]);
    let stdout = output.stdout;
    assert_eq!(output.code, Some(3), "{stdout}");
    let failed: Vec<&str> = stdout.lines().filter(|line| line.starts_with("FAILED  ")).collect();
    assert_eq!(failed.len(), 2, "{stdout}");
    for (slot, failure) in [("-27-", "and 1 more"), ("-9-", "the archive is truncated")] {
        let line = failed.iter().find(|line| line.contains(slot)).unwrap_or_else(|| panic!("{stdout}"));
        assert!(line.contains(failure), "{stdout}");
    }
    assert!(stdout.ends_with("\n4 archives: 2 good; 2 damaged\n"), "{stdout}");
}

/// A quick check does not find that accounts are damaged, so its report names the checks that it left
/// out.
#[test]
fn a_quick_check_names_the_checks_that_it_leaves_out() {
    let ledger = ledger("ledger-at-26");
    let dir = temp_dir();
    let path = archive(ledger.path(), dir.path(), &["--frame-size", "64KiB"]);
    let mut bytes = fs::read(&path).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).expect("written");
    let output = verify_directory(dir.path(), &["--quick"]);
    let left_out = "1 without a failure, but not all checks were made: frames, entries, records, state";
    assert_eq!(output.stdout, format!("partial {}\n1 archive: 0 good; {left_out}\n", path.display()));
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let lines = json_lines(slotpress().args(["verify", "--quick", "--json"]).arg(dir.path()));
    let last = lines.last().expect("a line");
    assert_eq!(last["type"], "verified");
    assert_eq!(last["good"], 0);
    assert_eq!(last["partly_checked"], 1);
}

#[test]
fn a_file_has_the_same_verdict_alone_and_in_its_directory() {
    let dir = temp_dir();
    let path = dir.path().join(FULL_26);
    fs::write(&path, [fs::read(fixture(FULL_26)).expect("read").as_slice(), b"x"].concat()).expect("written");
    for (client, code) in [("agave-4.2", 0), ("firedancer", 3)] {
        for input in [&path, dir.path()] {
            let output = slotpress().args(["verify", "--for", client]).arg(input).output().expect("runs");
            assert_eq!(output.status.code(), Some(code), "{client}: {}", input.display());
        }
    }
}

#[test]
fn a_file_that_is_not_an_archive_has_a_line_of_json() {
    let dir = temp_dir();
    let path = dir.path().join(FULL_26);
    fs::write(&path, "x").expect("written");
    let output = verify_directory(dir.path(), &["--json"]);
    assert_eq!(output.code, Some(3), "{}", output.stdout);
    let [line, last] = &objects(output.stdout.as_bytes())[..] else { panic!("two lines: {}", output.stdout) };
    assert_eq!(line["type"], "archive_not_checked");
    assert_eq!(line["file"], text(&path));
    assert_eq!(line["damaged"], true);
    assert_eq!(last["damaged"], 1, "{last}");
}

/// Creates two directories, each with a good incremental archive and a damaged full one.
fn directories_with_a_damaged_full_archive() -> [TempDir; 2] {
    let bytes = fs::read(fixture(FULL_26)).expect("read");
    let middle = bytes.len() / 2;
    let mut flipped = bytes.clone();
    flipped[middle] ^= 1;
    [&flipped[..], &bytes[..middle]].map(|damaged| {
        let dir = two_archives();
        fs::write(dir.path().join(FULL_26), damaged).expect("written");
        dir
    })
}

#[test]
fn faults_of_a_full_archive_are_not_reported_for_the_incremental_one() {
    for dir in directories_with_a_damaged_full_archive() {
        let path = dir.path().join(INCREMENTAL_26_40).display().to_string();
        let VerifyOutput { code, stdout, stderr } = verify_directory(dir.path(), &[]);
        assert_eq!(code, Some(3), "{stdout}");
        let failed: Vec<&str> = stdout.lines().filter(|line| line.starts_with("FAILED  ")).collect();
        assert_eq!(failed.len(), 1, "{stdout}");
        assert!(failed[0].contains(FULL_26), "{stdout}");
        let expected = format!("partial {path}: its full archive {FULL_26} is damaged");
        assert!(stdout.lines().any(|line| line.starts_with(&expected)), "{stdout}");
        assert!(stderr.contains("1 of 2 archives in "), "{stderr}");
        let good = verify_directory(dir.path(), &["-q"]).stdout;
        assert!(!good.lines().any(|line| line == path), "-q prints only good archives: {good}");
        let line = find_unchecked_archive(&verify_directory(dir.path(), &["--json"]).stdout);
        assert_eq!(line["reason"], format!("its full archive {FULL_26} is damaged"));
    }
}

#[test]
fn a_good_copy_of_the_full_archive_elsewhere_in_the_directory_is_used() {
    for dir in directories_with_a_damaged_full_archive() {
        fs::create_dir(dir.path().join("remote")).expect("made");
        fs::copy(fixture(FULL_26), dir.path().join("remote").join(FULL_26)).expect("copied");
        let incremental = dir.path().join(INCREMENTAL_26_40);
        let stdout = verify_directory(dir.path(), &[]).stdout;
        assert!(stdout.contains(&format!("ok      {}\n", incremental.display())), "{stdout}");
        // The incremental archive's own faults are still reported.
        let mut bytes = fs::read(&incremental).expect("read");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&incremental, bytes).expect("written");
        let stdout = verify_directory(dir.path(), &[]).stdout;
        assert!(stdout.contains(&format!("FAILED  {}", incremental.display())), "{stdout}");
    }
}

/// Creates a directory with an incremental archive whose full one is missing.
fn directory_with_an_incremental_archive() -> TempDir {
    let dir = two_archives();
    fs::remove_file(dir.path().join(FULL_26)).expect("removed");
    dir
}

#[test]
fn an_incremental_archive_alone_is_not_good() {
    let dir = directory_with_an_incremental_archive();
    let path = dir.path().join(INCREMENTAL_26_40).display().to_string();
    let reason = "its full archive is not here";
    let VerifyOutput { code, stdout, stderr } = verify_directory(dir.path(), &[]);
    let left_out = "1 without a failure, but not all checks were made: records, state";
    assert_eq!(stdout, format!("partial {path}: {reason}\n1 archive: 0 good; {left_out}\n"));
    assert_eq!(code, Some(1), "{stderr}");
    let stderr = stderr.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(stderr.contains(&format!("its state was not checked: {reason}")), "{stderr}");
    assert!(stderr.contains("hint: pass its full archive too, or check only frames: --check frames"), "{stderr}");
    assert_eq!(verify_directory(dir.path(), &["-q"]).stdout, "", "-q prints only good archives");
    let output = verify_directory(dir.path(), &["--json"]);
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    assert_eq!(find_unchecked_archive(&output.stdout)["reason"], reason);
}

#[test]
fn an_incremental_archive_alone_has_no_failure_if_only_frames_are_checked() {
    let dir = directory_with_an_incremental_archive();
    let path = dir.path().join(INCREMENTAL_26_40).display().to_string();
    for flags in [&["--check", "frames"], &["--quick", "--check=state"]] {
        let output = verify_directory(dir.path(), flags);
        assert_eq!(output.code, Some(0), "{flags:?}: {}", output.stderr);
        let expected = format!("partial {path}\n1 archive: 0 good; ");
        assert!(output.stdout.starts_with(&expected), "{flags:?}: {}", output.stdout);
    }
}

#[test]
fn the_library_fails_for_an_incremental_archive_alone() {
    let dir = directory_with_an_incremental_archive();
    let catalog = slotpress::catalog::scan(&[dir.path()]).expect("scanned");
    let open = |archive: &ListedArchive, _| Ok(ArchiveInput::from_path(archive.path()));
    let verdict = verify_catalog(&catalog, &VerifyOptions::default(), &NoProgress, open, |_| {});
    let error = verdict.expect("verified").require_ok("here").expect_err("not checked");
    assert_eq!(error.kind(), ErrorKind::Failed, "{error}");
}
