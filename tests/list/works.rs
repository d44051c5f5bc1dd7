//! `slotpress list` shows archives, and which of them a node would choose.

use std::path::Path;

use serde_json::Value;

use crate::common::listed::{file_names, objects};
use crate::common::screen::{assert_fails, run_to_text};
use crate::common::served::{ServeProcess, two_archives};
use crate::common::*;

fn list_json(dir: &Path) -> Vec<Value> {
    let output = slotpress().args(["list", "--json"]).arg(dir).output().expect("run");
    objects(&output.stdout)
}

#[test]
fn a_list_shows_the_archives_that_a_node_would_choose() {
    let dir = two_archives();
    let (code, stdout, stderr) = run_to_text(&["list", text(dir.path())]);
    assert_eq!(code, 0, "{stderr}");
    for part in
        [&format!("* {FULL_26}"), &format!("* {INCREMENTAL_26_40}"), "14 slots (4 s) behind", "start at slot 40"]
    {
        assert!(stdout.contains(part), "{part}: {stdout}");
    }
    let objects = list_json(dir.path());
    assert_eq!(objects.len(), 3);
    assert_eq!((&objects[0]["name"], &objects[0]["chosen"]), (&FULL_26.into(), &true.into()));
    assert_eq!(objects[1]["base"], FULL_26);
    assert_eq!((&objects[2]["type"], &objects[2]["incremental"]), (&"choice".into(), &INCREMENTAL_26_40.into()));
    assert_eq!((&objects[0]["slots_behind"], &objects[0]["seconds_behind"]), (&14.into(), &4.into()));
}

/// The archive first has no index, and then has one.
#[test]
fn the_slot_time_comes_from_the_bank_file() {
    let dir = two_archives();
    let assert_slot_time = || {
        let objects = list_json(dir.path());
        assert_eq!(objects[2]["slot_ms"], 300);
        assert_eq!(objects[2]["slot_time_source"], "bank-file");
    };
    assert_slot_time();
    archive(ledger("ledger-at-26").path(), dir.path(), &["--force"]);
    assert_slot_time();
}

#[test]
fn a_missing_directory_is_an_error() {
    assert_fails(&["list", text(&temp_dir().path().join("none"))], 1, &[]);
}

#[test]
fn an_empty_directory_has_no_newest_archive() {
    let empty = temp_dir();
    let (code, stdout, stderr) = run_to_text(&["list", text(empty.path())]);
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.starts_with("no archives in"), "{stdout}");
    for flags in [&["--newest"][..], &["--newest", "-q"], &["--newest", "--json"]] {
        let arguments = [&["list", text(empty.path())], flags].concat();
        assert_fails(&arguments, 1, &["has no archive that a node would choose"]);
    }
    slotpress().args(["list", "--newest"]).arg(two_archives().path()).assert().success();
}

#[cfg(feature = "net")]
#[test]
fn the_archives_of_a_server_are_listed() {
    let server = ServeProcess::start(&[]);
    let list = |url: &str| {
        let (code, stdout, _) = run_to_text(&["list", "--json", url]);
        (code, objects(stdout.as_bytes()))
    };
    let (code, listed) = list(&server.url("/"));
    assert_eq!((code, listed.len()), (0, 3));
    assert_eq!((&listed[0]["name"], &listed[0]["size_bytes"]), (&FULL_26.into(), &218_457.into()));
    assert_eq!(listed[0]["file"], server.url(&format!("/{FULL_26}")));
    assert_eq!((&listed[1]["base"], &listed[1]["chosen"]), (&FULL_26.into(), &true.into()));
    // A single archive may be listed too.
    let (code, listed) = list(&server.url(&format!("/{INCREMENTAL_26_40}")));
    assert_eq!((code, &listed[0]["name"], listed.len()), (0, &INCREMENTAL_26_40.into(), 2));
    assert_eq!(listed[0]["size_bytes"], 110_400);
    // The bank file is beyond what a few requests read, and the file's time does not tell the age of the state.
    assert!(listed[0]["age_seconds"].is_null(), "{listed:?}");
    assert!(listed[0]["modified_unix_seconds"].is_number(), "{listed:?}");
    let url = server.url("/");
    let (status, _) = server.stop();
    assert!(status.success());
    assert_fails(&["list", "--json", &url], 4, &[]);
}

/// Redirects lead only to the newest archives. The list also has older archives, and roots.
#[cfg(feature = "net")]
#[test]
fn find_and_fetch_use_the_list_of_a_server() {
    let dir = two_archives();
    let newer = fixture(FULL_3500);
    slotpress().arg("recompress").arg(&newer).arg("-o").arg(dir.path()).assert().success();
    let server = ServeProcess::start_in(dir, &[]);
    let output = slotpress().args(["find", "--json", &server.url("/")]).output().expect("run");
    let found = objects(&output.stdout);
    let candidate = |slot: u64| found.iter().find(|line| line["type"] == "candidate" && line["slot"] == slot);
    let older = candidate(40).expect("a pair on the older archive");
    assert_eq!((&older["full"]["name"], &older["full"]["root"]), (&FULL_26.into(), &Value::Null));
    let newer = &candidate(3500).expect("the newer archive")["full"];
    let output = slotpress().args(["list", "--json", &server.url("/")]).output().expect("run");
    let listed = objects(&output.stdout);
    assert!(listed.iter().any(|line| line["name"] == newer["name"] && line["root"] == newer["root"]), "{listed:?}");
    let root = newer["root"].as_str().expect("a root");
    assert_eq!(root.len(), 64);

    let out = temp_dir();
    let fetch = |root: &str| {
        slotpress().arg("fetch").arg(server.url("/")).args(["--expect-root", root, "-o"]).arg(out.path()).assert()
    };
    let other = root.replace(|digit: char| digit != 'f', "f");
    let output = fetch(&other).failure().code(3).get_output().clone();
    // Both archives are refused: one has a different root, and the other has no frame hashes.
    assert!(String::from_utf8_lossy(&output.stderr).contains("not the archive with root"));
    assert!(!out.path().join(FULL_3500).exists());
    fetch(root).success();
    assert_eq!(file_names(out.path()), [FULL_3500]);
}
