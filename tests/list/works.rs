//! `slotpress list`: archives, and those that a node would choose.

use serde_json::Value;

use crate::common::listed::{names, objects};
use crate::common::served::{Server, two_archives};
use crate::common::*;

#[test]
fn a_list_tells_what_a_node_would_choose() {
    let dir = two_archives();
    let output = slotpress().arg("list").arg(dir.path()).output().expect("run");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success());
    for part in
        [&format!("* {FULL_26}"), &format!("* {INCREMENTAL_26_40}"), "14 slots (4 s) behind", "start at slot 40"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let output = slotpress().args(["list", "--json"]).arg(dir.path()).output().expect("run");
    let objects = objects(&output.stdout);
    assert_eq!(objects.len(), 3);
    assert_eq!((&objects[0]["name"], &objects[0]["chosen"]), (&FULL_26.into(), &true.into()));
    assert_eq!(objects[1]["base"], FULL_26);
    assert_eq!((&objects[2]["type"], &objects[2]["incremental"]), (&"choice".into(), &INCREMENTAL_26_40.into()));
    assert_eq!((&objects[0]["slots_behind"], &objects[0]["seconds_behind"]), (&14.into(), &4.into()));
    // The bank file gives the age, of an archive with or without an index.
    let told = |objects: &[Value]| (objects[2]["slot_ms"].clone(), objects[2]["slot_time_source"].clone());
    assert_eq!(told(&objects), (300.into(), "bank-file".into()));
    archive(ledger("ledger-at-26").path(), dir.path(), &["--force"]);
    let output = slotpress().args(["list", "--json"]).arg(dir.path()).output().expect("run");
    assert_eq!(told(&self::objects(&output.stdout)), (300.into(), "bank-file".into()));
    slotpress().arg("list").arg(dir.path().join("none")).assert().failure().code(1);
    let empty = temp_dir();
    let output = slotpress().arg("list").arg(empty.path()).output().expect("run");
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).starts_with("no archives in"));
    // `--newest` fails if there is none.
    for flags in [&["--newest"][..], &["--newest", "-q"], &["--newest", "--json"]] {
        let said =
            slotpress().arg("list").arg(empty.path()).args(flags).assert().failure().code(1).get_output().clone();
        assert!(String::from_utf8_lossy(&said.stderr).contains("has no archive that a node would choose"), "{said:?}");
    }
    slotpress().args(["list", "--newest"]).arg(dir.path()).assert().success();
}

/// The list of a server says as much as its directory. A server without a list gives the archives
/// to which it redirects.
#[cfg(feature = "net")]
#[test]
fn a_list_of_a_server() {
    let server = crate::common::served::Server::start(&[]);
    let list = |url: &str| {
        let output = slotpress().args(["list", "--json", url]).output().expect("run");
        (output.status.code(), objects(&output.stdout), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, listed, _) = list(&server.url("/"));
    assert_eq!((code, listed.len()), (Some(0), 3));
    assert_eq!((&listed[0]["name"], &listed[0]["size_bytes"]), (&FULL_26.into(), &218_457.into()));
    assert_eq!(listed[0]["file"], server.url(&format!("/{FULL_26}")));
    assert_eq!((&listed[1]["base"], &listed[1]["chosen"]), (&FULL_26.into(), &true.into()));
    // A single archive may be listed too.
    let (code, listed, _) = list(&server.url(&format!("/{INCREMENTAL_26_40}")));
    assert_eq!((code, &listed[0]["name"], listed.len()), (Some(0), &INCREMENTAL_26_40.into(), 2));
    assert_eq!(listed[0]["size_bytes"], 110_400);
    // A few requests do not reach its bank file; that the file is new has no meaning.
    assert!(listed[0]["age_seconds"].is_null() && listed[0]["modified_unix_seconds"].is_number(), "{listed:?}");
    let url = server.url("/");
    let (status, _) = server.stop();
    assert!(status.success());
    let (code, _, errors) = list(&url);
    assert_eq!(code, Some(4), "{errors}");
}

/// Redirects lead only to the newest archives. The list also has older ones, archives on them, and
/// roots.
#[cfg(feature = "net")]
#[test]
fn find_and_fetch_use_the_list_of_a_server() {
    let dir = two_archives();
    let newer = fixture(FULL_3500);
    slotpress().arg("recompress").arg(&newer).arg("-o").arg(dir.path()).assert().success();
    let server = Server::start_in(dir, &[]);
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

    // Roots in the list are compared before a byte is fetched.
    let out = temp_dir();
    let fetch = |root: &str| {
        slotpress().arg("fetch").arg(server.url("/")).args(["--expect-root", root, "-o"]).arg(out.path()).assert()
    };
    let other = root.replace(|digit: char| digit != 'f', "f");
    let output = fetch(&other).failure().code(3).get_output().clone();
    // Archives without a known root may have this root.
    assert!(String::from_utf8_lossy(&output.stderr).contains("not the archive of root"));
    assert!(!out.path().join(FULL_3500).exists());
    fetch(root).success();
    assert_eq!(names(out.path()), [FULL_3500]);
}
