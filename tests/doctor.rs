//! `slotpress doctor` reports what hinders slotpress on a machine and a ledger.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::screen::*;
use crate::common::*;

fn doctor_json(ledger: &Path) -> (i32, Value) {
    let (code, stdout, _) = run_to_text(&["doctor", text(ledger), "--json"]);
    (code, serde_json::from_str(&stdout).expect("JSON"))
}

#[test]
fn a_ledger_that_can_be_archived_has_no_problem() {
    let ledger = ledger("ledger-at-26");
    let (code, stdout, stderr) = run_to_text(&["doctor", text(ledger.path())]);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    assert!(stdout.contains("it can be archived"), "{stdout}");
    assert!(!stdout.contains("once the lock is free"), "{stdout}");
    for subject in ["lock", "bank", "owner", "space", "open files", "memory", "processors", "disk", "cores"] {
        let is_shown = stdout.lines().any(|line| line.get(5..).is_some_and(|rest| rest.starts_with(subject)));
        assert!(is_shown, "{subject}: {stdout}");
    }
    assert!(stdout.lines().all(|line| line.chars().count() <= 80 || !line.contains(": ")), "{stdout}");
}

#[test]
fn a_held_lock_is_a_problem() {
    let ledger = ledger("ledger-at-26");
    let lock = fs::OpenOptions::new().create(true).truncate(false).write(true).open(ledger.path().join("ledger.lock"));
    let lock = lock.expect("opened");
    lock.lock().expect("locked");
    let (code, line) = doctor_json(ledger.path());
    let findings = &line["findings"];
    assert_eq!((code, &findings[0]["verdict"]), (1, &"bad".into()), "{line}");
    assert_eq!(findings[1]["means"], "it can be archived once the lock is free");
    let holder = format!("(process {})", std::process::id());
    assert!(findings[0]["found"].as_str().is_some_and(|found| found.ends_with(&holder)), "{line}");
    let alternative = "slotpress can verify, recompress and serve the archives";
    assert_fails(
        &["archive", text(ledger.path()), "-o", text(ledger.path())],
        1,
        &[&holder, "hint: stop the validator", alternative],
    );
    unlock(lock);
}

#[test]
fn the_journal_of_a_killed_restore_is_named_with_a_hint() {
    let ledger = ledger("ledger-at-26");
    fs::write(ledger.path().join("slotpress-partial-journal"), "").expect("written");
    let (code, stdout, _) = run_to_text(&["doctor", text(ledger.path())]);
    assert_eq!(code, 1, "{stdout}");
    let (_, _, stderr) = run_to_text(&["verify", text(ledger.path())]);
    for printed in [stdout, stderr] {
        assert!(printed.contains("slotpress-partial-journal"), "{printed}");
        assert!(printed.contains("run the same"), "{printed}");
    }
}

/// A validator may choose a damaged archive by its name, and an unfinished download takes up space.
#[test]
fn damaged_archives_and_unfinished_downloads_are_notes() {
    let ledger = ledger("ledger-at-26");
    let cut = FULL_26.replace("-26-", "-27-");
    fs::write(ledger.path().join(&cut), [0; 1000]).expect("written");
    fs::write(ledger.path().join(format!("slotpress-fetch-{FULL_26}")), [0; 1000]).expect("written");
    let (code, line) = doctor_json(ledger.path());
    assert_eq!(code, 0, "{line}");
    let line = line.to_string();
    for part in [&cut, "its first bytes are not those of an archive", "slotpress-fetch-", "prune --unusable"] {
        assert!(line.contains(part), "{part}: {line}");
    }
}

/// A killed validator's bank snapshot is not marked complete.
#[test]
fn an_incomplete_bank_snapshot_is_a_problem() {
    let ledger = ledger("ledger-at-26");
    fs::remove_file(ledger.path().join("snapshots/26/fastboot_version")).expect("removed");
    let (code, stdout, _) = run_to_text(&["doctor", text(ledger.path())]);
    assert_eq!(code, 1, "{stdout}");
    assert!(stdout.contains("slot 26 is not complete: it has no fastboot_version"), "{stdout}");
    assert!(!stdout.contains("can be archived"), "{stdout}");
}

#[test]
fn a_path_that_is_not_a_directory_is_refused() {
    assert_fails(&["doctor", "/no/such/ledger"], 1, &["is not a directory", "hint: "]);
}
