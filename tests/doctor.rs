//! `slotpress doctor`.

use std::fs;

use serde_json::Value;

use crate::common::screen::*;
use crate::common::*;

/// A problem that stops the work is an error; all others are shown with their effect.
#[test]
fn the_doctor_looks_at_a_ledger() {
    let ledger = ledger("ledger-at-26");
    let (code, stdout, stderr) = run(&["doctor", text(ledger.path())]);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    assert!(stdout.contains("it can be archived") && !stdout.contains("once the lock is free"), "{stdout}");
    for subject in ["lock", "bank", "owner", "space", "open files", "memory", "processors", "disk", "cores"] {
        assert!(
            stdout.lines().any(|line| line.get(5..).is_some_and(|rest| rest.starts_with(subject))),
            "{subject}: {stdout}"
        );
    }
    assert!(stdout.lines().all(|line| line.chars().count() <= 80 || !line.contains(": ")), "{stdout}");
    let held = fs::OpenOptions::new().create(true).truncate(false).write(true).open(ledger.path().join("ledger.lock"));
    let held = held.expect("opened");
    held.lock().expect("locked");
    let (code, stdout, _) = run(&["doctor", text(ledger.path()), "--json"]);
    let line: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!((code, &line["findings"][0]["verdict"]), (1, &"bad".into()), "{stdout}");
    assert_eq!(line["findings"][1]["means"], "it can be archived once the lock is free");
    let holder = format!("(process {})", std::process::id());
    assert!(line["findings"][0]["found"].as_str().is_some_and(|found| found.ends_with(&holder)), "{stdout}");
    let beside = "slotpress can verify, recompress and serve the archives";
    fails(
        &["archive", text(ledger.path()), "-o", text(ledger.path())],
        1,
        &[&holder, "hint: stop the validator", beside],
    );
    // Files of a killed restore are named, with a hint.
    release(held);
    fs::write(ledger.path().join("slotpress-partial-journal"), "").expect("written");
    let (code, stdout, _) = run(&["doctor", text(ledger.path())]);
    assert!(code == 1 && stdout.contains("slotpress-partial-journal") && stdout.contains("run the same"), "{stdout}");
    let (_, _, stderr) = run(&["verify", text(ledger.path())]);
    assert!(stderr.contains("slotpress-partial-journal") && stderr.contains("run the same"), "{stderr}");
    // Files that a validator may choose by their name, and files that take space.
    let cut = FULL_26.replace("-26-", "-27-");
    fs::write(ledger.path().join(&cut), [0; 1000]).expect("written");
    fs::write(ledger.path().join(format!("slotpress-fetch-{FULL_26}")), [0; 1000]).expect("written");
    let (code, stdout, _) = run(&["doctor", text(ledger.path()), "--json"]);
    for part in [&cut, "its first bytes are not those of an archive", "slotpress-fetch-", "prune --unusable"] {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
    assert_eq!(code, 1, "the journal is there");
    // A killed validator's bank snapshot is not marked complete.
    fs::remove_file(ledger.path().join("slotpress-partial-journal")).expect("removed");
    fs::remove_file(ledger.path().join("snapshots/26/fastboot_version")).expect("removed");
    let (code, stdout, _) = run(&["doctor", text(ledger.path())]);
    assert!(code == 1 && stdout.contains("slot 26 is not complete: it has no fastboot_version"), "{stdout}");
    assert!(!stdout.contains("can be archived"), "{stdout}");
    // A name that other tools use.
    let level = ["archive", text(ledger.path()), "-o", "/", "--level", "x"];
    fails(&level, 2, &["'x' for '--zstd-level <N>'"]);
    fails(&["serve", "/", "--listen", "8899"], 2, &["an address and a port are needed: 127.0.0.1:8899"]);
    fails(&["doctor", "/no/such/ledger"], 1, &["is not a directory", "hint: "]);
}
