//! Files that are not listed, and states that are too old.

use std::fs;

use serde_json::Value;

use crate::common::listed::objects;
use crate::common::served::{ServeProcess, two_archives};
use crate::common::{screen, *};

/// The archive has one frame, and is truncated at several lengths.
#[test]
fn truncated_archives_are_not_listed() {
    let bytes = fs::read(fixture(FULL_26)).expect("read");
    for length in [0, 1, bytes.len() / 3, bytes.len() - 1, bytes.len()] {
        let dir = two_archives();
        fs::write(dir.path().join(FULL_26), &bytes[..length]).expect("written");
        let output = slotpress().args(["list", "--json"]).arg(dir.path()).output().expect("run");
        let is_listing = |object: &Value| object["type"] == "archive_listed" && object["name"] == FULL_26;
        let is_listed = objects(&output.stdout).iter().any(is_listing);
        assert_eq!(is_listed, length == bytes.len(), "{length} bytes");
        let unusable = objects(&output.stdout).into_iter().find(|object| object["type"] == "archive_unusable");
        let fault = match length {
            0 => "empty".into(),
            1 => "not_an_archive".into(),
            _ if is_listed => Value::Null,
            _ => "cut".into(),
        };
        assert_eq!(unusable.unwrap_or_default()["fault"], fault, "{length} bytes");
        let server = ServeProcess::start_in(dir, &[]);
        assert_eq!(server.get("/", "").text().contains(FULL_26), is_listed, "{length} bytes");
        if !is_listed {
            server.wait_for_line(&["warning", FULL_26, "is not used: it"]);
        }
    }
}

/// The files are new, and no RPC server reports the current slot.
#[cfg(feature = "net")]
#[test]
fn the_age_of_a_state_does_not_depend_on_the_source() {
    let dir = temp_dir();
    for (name, bytes) in crate::common::site::archives(&[]) {
        fs::write(dir.path().join(name), bytes).expect("written");
    }
    let server = ServeProcess::start_in(dir, &[]);
    let url = server.url("/");
    let out = temp_dir();
    let local = server.dir.path().to_str().expect("UTF-8").to_string();
    let archive = server.url(&format!("/{FULL_26}"));
    let ledger = out.path().join("ledger").to_str().expect("UTF-8").to_string();
    let run = |arguments: &[&str]| {
        let (code, stdout, stderr) = screen::run_to_text(arguments);
        (code, objects(stdout.as_bytes()), stderr)
    };
    let (_, listed, _) = run(&["list", "--json", &local]);
    let age_of = |line: &Value| line["age_seconds"].as_f64().unwrap_or_default();
    let age = age_of(&listed[0]);
    assert!(age > 86_400.0, "{listed:?}");
    let has_same_age = |line: &Value| (age_of(line) - age).abs() < 3600.0;
    for source in [&url, &local] {
        let (_, listed, stderr) = run(&["list", "--json", source]);
        assert!(listed.iter().filter(|line| line["type"] == "archive_listed").all(has_same_age), "{listed:?} {stderr}");
    }
    for source in [&url, &archive, &local] {
        for arguments in [&["find", source][..], &["bootstrap", "--dry-run", source, "--ledger", &ledger]] {
            let (code, _, stderr) = run(&[arguments, &["--json", "--max-age", "1h"]].concat());
            assert_eq!(code, 4, "{arguments:?}: {stderr}");
            assert!(stderr.contains(" d ("), "{stderr}");
            assert!(stderr.contains("--max-age"), "{stderr}");
            let (code, found, stderr) = run(&[arguments, &["--json", "--max-age", "9999d"]].concat());
            assert_eq!(code, 0, "{arguments:?}: {stderr}");
            assert!(has_same_age(&found[0]), "{arguments:?}: {found:?}");
        }
    }
    // Without a limit, the age is only a warning.
    let (code, _, stderr) = run(&["bootstrap", "--dry-run", &url, "--ledger", &ledger, "--json"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("according to its bank file, the state will be"), "{stderr}");
    // The slot time comes from the server's list.
    let (_, found, _) = run(&["find", "--json", &url]);
    let last = found.last().expect("a summary");
    assert_eq!(last["slot_ms"], 300);
    assert_eq!(last["slot_time_source"], "bank-file");
}

#[test]
fn a_state_older_than_the_limit_is_an_error() {
    let dir = two_archives();
    // The files are new, but their states are old.
    screen::assert_fails(&["list", text(dir.path()), "--max-age", "2h"], 1, &["d old, more than 2"]);
    let (code, stdout, stderr) = screen::run_to_text(&["list", text(dir.path()), "--max-age", "9999d"]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.contains(" d old, modified "), "{stdout}");
    screen::assert_fails(&["list", text(temp_dir().path()), "--max-age", "2h"], 1, &[]);
}
