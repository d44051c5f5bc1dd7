//! Old full archives that cannot be used.

use std::fs;

use crate::bootstrap::Mirror;
use crate::common::site::run;
use crate::common::*;

#[test]
fn what_is_no_full_archive_is_no_base() {
    let mirror = Mirror::start();
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let url = mirror.server.url("");
    for base in [mirror.server.path(&mirror.rebased), dir.path().join(&mirror.old), fixture("genesis.bin")] {
        let said = run(&["bootstrap", &url, "--ledger", text(&ledger), "--base", text(&base)]);
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.stderr.contains("is not the file of a full archive"), "{said:?}");
    }
    assert!(!ledger.join("snapshots").exists());
}

/// A full archive between the old one and the state: a validator would make its next incremental
/// archive on it. The old archive is used only if that one is moved aside.
#[test]
fn an_archive_between_the_two() {
    let mirror = Mirror::start();
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let url = mirror.server.url("");
    mirror.put_old(&ledger);
    let between = mirror.old.replace("-26-", "-30-");
    fs::copy(ledger.join(&mirror.old), ledger.join(&between)).expect("copied");
    let said = run(&["bootstrap", &url, "--ledger", text(&ledger)]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(said.line("bootstrap")["archives"][0]["name"], mirror.new.as_str());
    fs::remove_dir_all(&ledger).expect("removed");
    mirror.put_old(&ledger);
    fs::copy(ledger.join(&mirror.old), ledger.join(&between)).expect("copied");
    let said = run(&["bootstrap", &url, "--ledger", text(&ledger), "--replace-state"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(said.line("bootstrap")["archives"][1]["name"], mirror.rebased.as_str());
    assert!(!ledger.join(&between).exists());
}

/// The rebased archive is on a full archive of that slot of another chain. The list says so, so
/// nothing is fetched in vain.
#[test]
fn a_base_of_another_cluster() {
    let mirror = Mirror::start();
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    fs::create_dir_all(&ledger).expect("made");
    let other = fixture_of("agave-4.4.0", "snapshot-26-");
    fs::copy(&other, ledger.join(name(&other))).expect("copied");
    let said = run(&["bootstrap", &mirror.server.url(""), "--ledger", text(&ledger)]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let archives = said.line("bootstrap")["archives"].as_array().expect("archives").clone();
    assert_eq!((archives.len(), archives[0]["name"].as_str()), (1, Some(mirror.new.as_str())));
    assert!(!said.stderr.contains("for nothing"), "{said:?}");
}
