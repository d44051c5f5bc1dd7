//! Tables that are added to those of the same slot.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::*;
use crate::export::{files, manifest, pair, run};

fn export(out: &Path, flags: &[&str]) -> (Option<i32>, String) {
    let archives = pair("agave-4.2.2");
    let done = run(&archives.each_ref().map(|archive| archive.as_path()), out, flags);
    (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
}

/// Names of the tables in the manifest; checks that their files, and no others, are there.
pub fn tables(out: &Path) -> Vec<String> {
    let manifest = manifest(out);
    let tables = manifest["tables"].as_array().expect("a list");
    let listed = tables.iter().flat_map(|table| table["files"].as_array().expect("a list"));
    let mut listed: Vec<String> = listed.map(|file| file["path"].as_str().expect("a path").to_string()).collect();
    listed.push("_manifest-40.json".to_string());
    listed.sort();
    assert_eq!(files(out), listed);
    tables.iter().map(|table| table["table"].as_str().expect("a name").to_string()).collect()
}

#[test]
fn one_table_after_the_other() {
    let [out, at_once] = [temp_dir(), temp_dir()];
    let (out, at_once) = (out.path(), at_once.path());
    assert_eq!(export(at_once, &["--table", "accounts,token-accounts,stakes,votes"]).0, Some(0));
    assert_eq!(export(out, &[]).0, Some(0));
    for table in ["token-accounts", "stakes,votes"] {
        let done = export(out, &["--table", table]);
        assert_eq!(done.0, Some(0), "{done:?}");
    }
    assert_eq!(tables(out), ["accounts", "token_accounts", "stakes", "votes"]);
    let (ours, theirs) = (manifest(out), manifest(at_once));
    let without_files = |manifest: &Value| {
        let mut manifest = manifest.clone();
        for table in manifest["tables"].as_array_mut().expect("a list") {
            *table = serde_json::json!([table["table"], table["rows"]]);
        }
        manifest
    };
    assert_eq!(without_files(&ours), without_files(&theirs));
    let before = tree(out);
    for (flags, words) in [
        (&["--table", "mints,votes"][..], "it has the table votes"),
        (&["--table", "votes"], "it has the table votes"),
        (&["--table", "mints", "--owner", "stake"], "its `filter` is"),
        (&["--table", "mints", "--data-size", "82"], "its `filter` is"),
        (&["--table", "mints", "--check", "frames"], "its `state` is \"checked\", not \"not checked\""),
    ] {
        let (code, said) = export(out, flags);
        assert!(code == Some(5) && said.contains(words) && said.contains("_manifest-40.json"), "{flags:?}: {said}");
        assert!(tree(out) == before, "{flags:?}");
    }
}

/// Of a long list of addresses, a manifest has the hash.
#[test]
fn long_filters_are_told_apart() {
    let [out, lists] = [temp_dir(), temp_dir()];
    let list = |name: &str, last: u8| {
        let address = |number: u8| bs58::encode([number; 32]).into_string() + "\n";
        let path = lists.path().join(name);
        fs::write(&path, (1..=150).chain([last]).map(address).collect::<String>()).expect("written");
        format!("@{}", text(&path))
    };
    let (first, other) = (list("first", 200), list("other", 201));
    assert_eq!(export(out.path(), &["--address", &first]).0, Some(0));
    assert_eq!(export(out.path(), &["--table", "votes", "--address", &first]).0, Some(0));
    let (code, said) = export(out.path(), &["--format", "test-validator", "--address", &first]);
    assert!(code == Some(5) && said.contains("its `format` is \"parquet\", not \"test-validator\""), "{said}");
    let (code, said) = export(out.path(), &["--table", "stakes", "--address", &other]);
    assert!(code == Some(5) && said.contains("its `filter` is"), "{said}");
}

/// What is there in the manifest's place, or in that of a table, stays.
#[test]
fn what_is_no_export() {
    for content in ["", "[]", "null", "{", "{\"slot\": 40}", "\u{9b}31m", "{\"tables\": 1}"] {
        let out = temp_dir();
        fs::write(out.path().join("_manifest-40.json"), content).expect("written");
        let (code, said) = export(out.path(), &["--table", "votes"]);
        assert!(code == Some(5) && !said.contains('\u{9b}'), "{content}: {said}");
        assert_eq!(files(out.path()), ["_manifest-40.json"]);
    }
    let out = temp_dir();
    assert_eq!(export(out.path(), &[]).0, Some(0));
    // A manifest whose tables are none.
    let path = out.path().join("_manifest-40.json");
    let mut manifest = manifest(out.path());
    manifest["tables"] = 1.into();
    fs::write(&path, manifest.to_string()).expect("written");
    let (code, said) = export(out.path(), &["--table", "votes"]);
    assert!(code == Some(1) && said.contains("lists no tables"), "{said}");
    // A directory in the place of the table.
    let out = temp_dir();
    assert_eq!(export(out.path(), &[]).0, Some(0));
    fs::create_dir_all(out.path().join("votes/snapshot_slot=40")).expect("made");
    assert_eq!(export(out.path(), &["--table", "votes"]).0, Some(5));
    assert_eq!(tables(out.path()), ["accounts"]);
}
