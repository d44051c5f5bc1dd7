//! Old full archives that cannot be used.

use std::fs;

use crate::bootstrap::Mirror;
use crate::common::site::run_to_json;
use crate::common::*;

#[test]
fn only_full_archives_are_bases() {
    let mirror = Mirror::start();
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let url = mirror.server.url("");
    for base in [mirror.server.path(&mirror.rebased_name), dir.path().join(&mirror.old_name), fixture("genesis.bin")] {
        let output = run_to_json(&["bootstrap", &url, "--ledger", text(&ledger), "--base", text(&base)]);
        assert_eq!(output.code, Some(2), "{output:?}");
        assert!(output.stderr.contains("is not the file of a full archive"), "{output:?}");
    }
    assert!(!ledger.join("snapshots").exists());
}

/// The node also has a full archive with a slot between the old archive and the state. A validator would
/// make its next incremental archive on that archive, so the old archive is used only if the newer one is
/// moved aside.
#[test]
fn a_base_with_a_newer_archive_beside_it_is_used_only_to_replace_a_state() {
    let mirror = Mirror::start();
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let url = mirror.server.url("");
    mirror.copy_old_to(&ledger);
    let between = mirror.old_name.replace("-26-", "-30-");
    fs::copy(ledger.join(&mirror.old_name), ledger.join(&between)).expect("copied");
    let output = run_to_json(&["bootstrap", &url, "--ledger", text(&ledger)]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(output.line("bootstrap")["archives"][0]["name"], mirror.new_name.as_str());
    fs::remove_dir_all(&ledger).expect("removed");
    mirror.copy_old_to(&ledger);
    fs::copy(ledger.join(&mirror.old_name), ledger.join(&between)).expect("copied");
    let output = run_to_json(&["bootstrap", &url, "--ledger", text(&ledger), "--replace-state"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(output.line("bootstrap")["archives"][1]["name"], mirror.rebased_name.as_str());
    assert!(!ledger.join(&between).exists());
}

/// The node's full archive has the slot of the base, but belongs to a different chain. The server's list
/// shows this, so nothing is fetched needlessly.
#[test]
fn a_base_of_another_cluster_is_not_used() {
    let mirror = Mirror::start();
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    fs::create_dir_all(&ledger).expect("made");
    let other = fixture_of("agave-4.4.0", "snapshot-26-");
    fs::copy(&other, ledger.join(name(&other))).expect("copied");
    let output = run_to_json(&["bootstrap", &mirror.server.url(""), "--ledger", text(&ledger)]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let archives = output.line("bootstrap")["archives"].as_array().expect("archives").clone();
    assert_eq!(archives.len(), 1);
    assert_eq!(archives[0]["name"], mirror.new_name.as_str());
    assert!(!output.stderr.contains("for nothing"), "{output:?}");
}
