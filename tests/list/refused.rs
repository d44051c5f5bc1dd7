//! Files that a list leaves out, and lists that fail.

use std::fs;

use serde_json::Value;

use crate::common::listed::objects;
use crate::common::served::{Server, two_archives};
use crate::common::*;

/// A cut download under an archive's name, with one frame, does not count as an archive.
#[test]
fn what_is_cut_off_is_left_out() {
    let bytes = fs::read(fixture(FULL_26)).expect("read");
    for length in [0, 1, bytes.len() / 3, bytes.len() - 1, bytes.len()] {
        let dir = two_archives();
        fs::write(dir.path().join(FULL_26), &bytes[..length]).expect("written");
        let output = slotpress().args(["list", "--json"]).arg(dir.path()).output().expect("run");
        let is_full = |object: &Value| object["type"] == "archive_listed" && object["name"] == FULL_26;
        let is_listed = objects(&output.stdout).iter().any(is_full);
        assert_eq!(is_listed, length == bytes.len(), "{length} bytes");
        let unusable = objects(&output.stdout).into_iter().find(|object| object["type"] == "archive_unusable");
        let fault = match length {
            0 => "empty".into(),
            1 => "not_an_archive".into(),
            _ if is_listed => Value::Null,
            _ => "cut".into(),
        };
        assert_eq!(unusable.unwrap_or_default()["fault"], fault, "{length} bytes");
        let server = Server::start_in(dir, &[]);
        assert_eq!(server.get("/", "").text().contains(FULL_26), is_listed, "{length} bytes");
        if !is_listed {
            server.wait_for_line(&["warning", FULL_26, "is not used: it"]);
        }
    }
}

/// Old states are old for any source, without an RPC server that tells the current slot, and even
/// if their files are new.
#[cfg(feature = "net")]
#[test]
fn a_stale_mirror_is_stale() {
    let dir = temp_dir();
    for (name, bytes) in crate::common::site::archives(&[]) {
        fs::write(dir.path().join(name), bytes).expect("written");
    }
    let server = Server::start_in(dir, &[]);
    let (url, out) = (server.url("/"), temp_dir());
    let local = server.dir.path().to_str().expect("UTF-8").to_string();
    let archive = server.url(&format!("/{FULL_26}"));
    let ledger = out.path().join("ledger").to_str().expect("UTF-8").to_string();
    let run = |arguments: &[&str]| {
        let output = slotpress().args(arguments).output().expect("run");
        (output.status.code(), objects(&output.stdout), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (_, listed, _) = run(&["list", "--json", &local]);
    let age_of = |line: &Value| line["age_seconds"].as_f64().unwrap_or_default();
    let age = age_of(&listed[0]);
    assert!(age > 86_400.0, "{listed:?}");
    let is_so_old = |line: &Value| (age_of(line) - age).abs() < 3600.0;
    for source in [&url, &archive, &local] {
        let (_, listed, errors) =
            if *source == archive { (None, vec![], String::new()) } else { run(&["list", "--json", source]) };
        assert!(listed.iter().filter(|line| line["type"] == "archive_listed").all(is_so_old), "{listed:?} {errors}");
        for arguments in [&["find", source][..], &["bootstrap", "--dry-run", source, "--ledger", &ledger]] {
            let (code, _, errors) = run(&[arguments, &["--json", "--max-age", "1h"]].concat());
            assert_eq!(code, Some(4), "{arguments:?}: {errors}");
            assert!(errors.contains(" d (") && errors.contains("--max-age"), "{errors}");
            let (code, found, errors) = run(&[arguments, &["--json", "--max-age", "9999d"]].concat());
            assert_eq!(code, Some(0), "{arguments:?}: {errors}");
            assert!(is_so_old(&found[0]), "{arguments:?}: {found:?}");
        }
    }
    // Without a limit, the program only says so.
    let (code, _, errors) = run(&["bootstrap", "--dry-run", &url, "--ledger", &ledger, "--json"]);
    assert!(code == Some(0) && errors.contains("by its bank file, the state will be"), "{errors}");
    // Slots come from the server's list.
    let (_, found, _) = run(&["find", "--json", &url]);
    let last = found.last().expect("a summary");
    assert_eq!((&last["slot_ms"], &last["slot_time_source"]), (&300.into(), &"bank-file".into()));
}

/// A check for timers: an age limit that is exceeded is an error.
#[test]
fn a_list_with_an_age_ends_with_an_error_when_it_is_exceeded() {
    let dir = two_archives();
    let list = |flags: &[&str]| slotpress().arg("list").arg(dir.path()).args(flags).assert();
    // The files are new, their states are old.
    let said = list(&["--max-age", "2h"]).failure().code(1).get_output().stderr.clone();
    assert!(String::from_utf8_lossy(&said).contains("d old, more than 2"), "{}", String::from_utf8_lossy(&said));
    let said = list(&["--max-age", "9999d"]).success().get_output().stdout.clone();
    assert!(String::from_utf8_lossy(&said).contains(" d old, here for "), "{}", String::from_utf8_lossy(&said));
    slotpress().arg("list").arg(temp_dir().path()).args(["--max-age", "2h"]).assert().failure().code(1);
}
