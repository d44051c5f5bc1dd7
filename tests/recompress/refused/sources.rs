//! From a damaged source, no archive is made. Existing files are not replaced.

use std::fs;
use std::path::Path;

use crate::common::*;
use crate::recompress::*;

fn assert_refused(source: &Path, out: &Path, flags: &[&str], code: i32, message: &str) {
    let output = slotpress().arg("recompress").arg(source).arg("-o").arg(out).args(flags).output().expect("runs");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(stderr.contains(message), "{stderr}");
    assert_eq!(fs::read_dir(out).expect("read").count(), 0, "files are left");
}

#[test]
fn misnamed_sources_are_refused() {
    let (dir, out) = (temp_dir(), temp_dir());
    let misnamed = dir.path().join(FULL_26.replace("-26-", "-27-"));
    fs::copy(fixture(FULL_26), &misnamed).expect("copied");
    assert_refused(&misnamed, out.path(), &[], 3, "does not match its name");
    let other_base = dir.path().join(INCREMENTAL_26_40.replace("-26-40-", "-20-40-"));
    fs::copy(fixture(INCREMENTAL_26_40), &other_base).expect("copied");
    assert_refused(&other_base, out.path(), &["--base", text(&fixture(FULL_26))], 2, "builds on slot 20");
}

#[test]
fn sources_that_are_cut_off_or_missing_are_refused() {
    let (dir, out) = (temp_dir(), temp_dir());
    let mut bytes = fs::read(fixture(FULL_26)).expect("read");
    bytes.truncate(bytes.len() - 3);
    let cut = dir.path().join(FULL_26);
    fs::write(&cut, bytes).expect("written");
    assert_refused(&cut, out.path(), &[], 3, "truncated");
    assert_refused(Path::new("/nowhere/at-all"), out.path(), &[], 6, "cannot open");
}

#[test]
fn invalid_flags_are_usage_errors() {
    let out = temp_dir();
    assert_refused(&fixture(FULL_26), out.path(), &["--base-slot", "20"], 2, "--base-slot is for standard input");
    assert_refused(&fixture(FULL_26), out.path(), &["--memory", "1MiB"], 2, "is too low for one worker");
}

#[test]
fn an_archive_is_replaced_only_when_asked() {
    let out = temp_dir();
    let copy = out.path().join(name(&fixture(FULL_26)));
    fs::copy(fixture(FULL_26), &copy).expect("copied");
    let output = slotpress().arg("recompress").arg(&copy).arg("-o").arg(out.path()).output().expect("runs");
    assert_eq!(output.status.code(), Some(5));
    assert!(fs::read(&copy).expect("read") == fs::read(fixture(FULL_26)).expect("read"), "untouched");
    assert_eq!(recompress(&copy, out.path(), &["--force"]), copy);
    assert!(fs::read(&copy).expect("read") != fs::read(fixture(FULL_26)).expect("read"), "replaced");
    assert_eq!(fs::read_dir(out.path()).expect("read").count(), 1);
}
