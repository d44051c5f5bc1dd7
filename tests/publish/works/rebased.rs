//! `--rebase-onto`: archives that bring nodes from older full archives of a target to the newest
//! one.

use std::fs;

use serde_json::Value;

use crate::common::*;
use crate::publish::stage::*;
use crate::publish::survives::stores;
use crate::stores::gateway::Gateway;

pub const ONTO_ONE: [&str; 2] = ["--rebase-onto", "1"];

/// Makes a target with the full archives of slots 26 and 40. The archive that `rebase` makes of the
/// two has the name of the fixture's incremental one.
pub fn with_two_full_archives() -> Stage {
    let stage = Stage::new(&[&fixture(FULL_26)]);
    stage.once_succeeds(&ONTO_ONE);
    stage.write(&chain()[2]);
    stage
}

pub fn list(dir: &std::path::Path) -> Vec<Value> {
    let list = fs::read(dir.join("api/v1/archives")).expect("a list");
    let list: Value = serde_json::from_slice(&list).expect("JSON");
    assert_eq!(list["choice"]["incremental"], Value::Null, "what was rebased is not chosen");
    list["archives"].as_array().expect("archives").clone()
}

/// Checks that the list has both full archives, and the rebased one with its base.
pub fn assert_is_listed(dir: &std::path::Path) {
    let (list, full_40) = (list(dir), name(&chain()[2]));
    let names: Vec<_> = list.iter().map(|archive| archive["name"].as_str().expect("a name")).collect();
    assert_eq!(names, [&full_40, FULL_26, INCREMENTAL_26_40]);
    let [_, old, rebased] = &list[..] else { panic!("three archives") };
    assert_eq!((&rebased["base"], &rebased["base_slot"]), (&old["name"], &old["slot"]));
    assert_eq!((&rebased["rebased_on"], &rebased["state"]), (&old["hash"], &"checked".into()));
    assert_eq!(latest(dir), [full_40]);
}

/// Returns the messages about the rebased archive: prepared and published.
fn said_of_it(said: &[Value]) -> Vec<&Value> {
    said.iter().filter(|line| line["name"] == INCREMENTAL_26_40).collect()
}

#[test]
fn a_node_with_an_older_full_archive_gets_what_changed() {
    let stage = with_two_full_archives();
    let before = state_of(&stage.snapshots());
    let said = stage.once_succeeds(&["--rebase-onto", "3"]);
    assert_eq!(state_of(&stage.snapshots()), before);
    assert_is_listed(&stage.mirror());
    let (hash, said) = (&list(&stage.mirror())[1]["hash"], said_of_it(&said));
    assert_eq!(said.iter().map(|line| &line["type"]).collect::<Vec<_>>(), ["publish_prepared", "published"]);
    assert!(said.iter().all(|line| line["rebased_on"] == *hash && line["state"] == "checked"), "{said:?}");
    stage.assert_nothing_is_pinned();
    assert_eq!(said_of_it(&stage.once_succeeds(&ONTO_ONE)).len(), 0, "not twice");

    let (ledger, out) = (stage.dir.path().join("ledger"), temp_dir());
    let pair = [FULL_26, INCREMENTAL_26_40].map(|name| stage.mirror().join(name));
    slotpress().arg("restore").args(pair).arg("--ledger").arg(&ledger).assert().success();
    assert_eq!(name(&archive(&ledger, out.path(), &[])), name(&chain()[2]), "it is the new state");
}

/// Rebased archives are removed with their full archive, or above their limit.
#[test]
fn rebased_archives_go() {
    let stage = with_two_full_archives();
    stage.once_succeeds(&[&ONTO_ONE[..], &["--grace", "0s", "--keep-incremental", "0"]].concat());
    assert_is_listed(&stage.mirror());
    stage.write(&fixture(FULL_3500));
    let keep = ["--grace", "0s", "--keep-incremental", "0", "--keep-rebased", "1", "--keep-full"];
    stage.once_succeeds(&[&keep[..], &["3"]].concat());
    assert_eq!(stage.published(), [INCREMENTAL_26_40, FULL_26, FULL_3500, &name(&chain()[2])]);
    assert_eq!(latest(&stage.mirror()), [FULL_3500]);
    stage.once_succeeds(&[&keep[..], &["2"]].concat());
    assert_eq!(stage.published(), [FULL_3500, &name(&chain()[2])]);
    let stage = with_two_full_archives();
    stage.once_succeeds(&ONTO_ONE);
    stage.once_succeeds(&["--grace", "0s"]);
    assert_eq!(stage.published(), [FULL_26, &name(&chain()[2])], "none is to be kept");
}

#[test]
fn a_bucket_gets_what_is_made_in_a_directory() {
    needs!("versitygw");
    let (gateway, stage) = (Gateway::start(), Stage::new(&[&fixture(FULL_26)]));
    let mirror = stage.mirror();
    let flags = ["--to", text(&mirror), "--rebase-onto", "1"];
    for archive in [None, Some(&chain()[2])] {
        archive.into_iter().for_each(|archive| stage.write(archive));
        let output = stores::once(&gateway, &stage, &flags);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_is_listed(&mirror);
    assert_is_listed(&gateway.bucket().join("mainnet"));
    stage.assert_nothing_is_pinned();
}
