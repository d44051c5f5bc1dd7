//! `--rebase-onto`: archives that bring nodes from older full archives of a target to its newest state.

use serde_json::Value;

use crate::common::*;
use crate::publish::setup::*;
use crate::publish::survives::stores;
use crate::stores::gateway::Gateway;

pub const ONTO_ONE: [&str; 2] = ["--rebase-onto", "1"];

/// Publishes the full archive for slot 26. Then writes that for slot 40 to the validator's directory, for the
/// next run. The archive rebased from these two has the same name as the fixture's incremental one.
pub fn setup_with_two_full_archives() -> Setup {
    let setup = Setup::new(&[&fixture(FULL_26)]);
    setup.publish_once(&ONTO_ONE);
    setup.write(&chain_archives()[2]);
    setup
}

/// Reads the archives in the index of a target. Checks that a node would not choose a rebased one.
pub fn read_list(dir: &std::path::Path) -> Vec<Value> {
    let list = read_index(dir);
    assert_eq!(list["choice"]["incremental"], Value::Null, "rebased archives are not chosen");
    list["archives"].as_array().expect("archives").clone()
}

/// Checks that the list has both full archives, and the rebased one with its base.
pub fn assert_rebased_is_listed(dir: &std::path::Path) {
    let (list, full_40) = (read_list(dir), name(&chain_archives()[2]));
    let names: Vec<_> = list.iter().map(|archive| archive["name"].as_str().expect("a name")).collect();
    assert_eq!(names, [&full_40, FULL_26, INCREMENTAL_26_40]);
    let [_, old, rebased] = &list[..] else { panic!("three archives") };
    assert_eq!((&rebased["base"], &rebased["base_slot"]), (&old["name"], &old["slot"]));
    assert_eq!((&rebased["rebased_on"], &rebased["state"]), (&old["hash"], &"checked".into()));
    assert_eq!(read_latest(dir), [full_40]);
}

/// Returns the events of the rebased archive.
fn events_of_rebased(events: &[Value]) -> Vec<&Value> {
    events.iter().filter(|line| line["name"] == INCREMENTAL_26_40).collect()
}

#[test]
fn a_node_with_an_older_full_archive_reaches_the_new_state() {
    let setup = setup_with_two_full_archives();
    let before = file_states(&setup.snapshots());
    let events = setup.publish_once(&["--rebase-onto", "3"]);
    assert_eq!(file_states(&setup.snapshots()), before);
    assert_rebased_is_listed(&setup.mirror());
    let events = events_of_rebased(&events);
    let hash = &read_list(&setup.mirror())[1]["hash"];
    assert_eq!(events.iter().map(|line| &line["type"]).collect::<Vec<_>>(), ["publish_prepared", "published"]);
    assert!(events.iter().all(|line| line["rebased_on"] == *hash && line["state"] == "checked"), "{events:?}");
    setup.assert_nothing_is_pinned();
    assert_eq!(events_of_rebased(&setup.publish_once(&ONTO_ONE)).len(), 0, "not twice");

    let (ledger, out) = (setup.dir.path().join("ledger"), temp_dir());
    let pair = [FULL_26, INCREMENTAL_26_40].map(|name| setup.mirror().join(name));
    slotpress().arg("restore").args(pair).arg("--ledger").arg(&ledger).assert().success();
    assert_eq!(
        name(&archive(&ledger, out.path(), &[])),
        name(&chain_archives()[2]),
        "the restored state is the new one"
    );
}

#[test]
fn rebased_archives_are_removed_with_their_full_archive_or_above_their_limit() {
    let setup = setup_with_two_full_archives();
    setup.publish_once(&[&ONTO_ONE[..], &["--grace", "0s", "--keep-incremental", "0"]].concat());
    assert_rebased_is_listed(&setup.mirror());
    setup.write(&fixture(FULL_3500));
    let keep = ["--grace", "0s", "--keep-incremental", "0", "--keep-rebased", "1", "--keep-full"];
    setup.publish_once(&[&keep[..], &["3"]].concat());
    assert_eq!(setup.published(), [INCREMENTAL_26_40, FULL_26, FULL_3500, &name(&chain_archives()[2])]);
    assert_eq!(read_latest(&setup.mirror()), [FULL_3500]);
    setup.publish_once(&[&keep[..], &["2"]].concat());
    assert_eq!(setup.published(), [FULL_3500, &name(&chain_archives()[2])]);
    let setup = setup_with_two_full_archives();
    setup.publish_once(&ONTO_ONE);
    setup.publish_once(&["--grace", "0s"]);
    assert_eq!(setup.published(), [FULL_26, &name(&chain_archives()[2])], "none is to be kept");
}

#[test]
fn a_bucket_receives_archives_that_are_rebased_in_a_directory() {
    needs!("versitygw");
    let (gateway, setup) = (Gateway::start(), Setup::new(&[&fixture(FULL_26)]));
    let mirror = setup.mirror();
    let flags = ["--to", text(&mirror), "--rebase-onto", "1"];
    for archive in [None, Some(&chain_archives()[2])] {
        if let Some(archive) = archive {
            setup.write(archive);
        }
        let output = stores::publish_once_to_bucket(&gateway, &setup, &flags);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_rebased_is_listed(&mirror);
    assert_rebased_is_listed(&gateway.bucket().join("mainnet"));
    setup.assert_nothing_is_pinned();
}
