//! A node that has an older full archive fetches only the changes since then.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::bootstrap::{FleetMirror, Mirror};
use crate::common::site::{ledger_tree, run_to_json};
use crate::common::xfs::XfsDisk;
use crate::common::*;

/// Assumed ratio of unpacked to compressed size, as in `slotpress::restore`.
const MAINNET_RATIO: u64 = 4;

/// The file system can clone the node's archive, so the plan needs no space for a copy.
#[test]
fn a_plan_needs_no_space_for_a_clone() {
    needs!("sys_admin", "loop_xfs", "mount", "umount", "mkfs.xfs");
    let mirror = Mirror::start();
    let disk = XfsDisk::new();
    let ledger = disk.path().join("ledger");
    let base = mirror.copy_old_to(&disk.path().join("elsewhere"));
    let url = mirror.server.url("");
    let output = run_to_json(&["bootstrap", &url, "--ledger", text(&ledger), "--base", text(&base), "--dry-run"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let length = |path: &Path| fs::metadata(path).expect("the file exists").len();
    let old_bytes = length(&base);
    let rebased_bytes = length(&mirror.server.path(&mirror.rebased_name));
    let needed = output.line("bootstrap_plan")["space"][0]["needed_bytes"].as_u64();
    assert_eq!(needed, Some(MAINNET_RATIO * (old_bytes + rebased_bytes) + rebased_bytes), "{output:?}");
}

/// The old archive is in the snapshots directory, in the subdirectory `remote`, or elsewhere. Only the
/// rebased archive is fetched, and the ledger has the state of both archives.
#[test]
fn only_what_changed_is_fetched() {
    let mirror = Mirror::start();
    let expected = mirror.restore_rebased();
    for place in ["ledger", "ledger/remote", "elsewhere"] {
        let dir = temp_dir();
        let ledger = dir.path().join("ledger");
        let base = mirror.copy_old_to(&dir.path().join(place));
        let url = mirror.server.url("");
        let mut arguments = vec!["bootstrap", &url, "--ledger", text(&ledger)];
        if place == "elsewhere" {
            arguments.extend(["--base", text(&base)]);
        }
        let plan = run_to_json(&[&arguments[..], &["--dry-run"]].concat());
        assert_eq!(plan.code, Some(0), "{plan:?}");
        let plan = plan.line("bootstrap_plan");
        assert_eq!(plan["full"]["name"], mirror.old_name.as_str());
        assert_eq!(plan["incremental"]["name"], mirror.rebased_name.as_str());
        for (number, is_local, fetched) in [(0, true, &mirror.rebased_name), (1, false, &mirror.new_name)] {
            let route = &plan["routes"][number];
            assert_eq!(route["full_is_local"], is_local, "{plan}");
            assert_eq!(route["slot"], 40, "{plan}");
            let fetched_bytes = fs::metadata(mirror.server.path(fetched)).expect("the file exists").len();
            assert_eq!(route["fetch_bytes"], fetched_bytes, "{plan}");
        }
        for route in plan["routes"].as_array().expect("routes") {
            assert!(route["fetch_seconds"].is_f64(), "{route}");
            assert!(route["restore_seconds"].is_f64(), "{route}");
        }

        let output = run_to_json(&arguments);
        assert_eq!(output.code, Some(0), "{place}: {output:?}");
        let archives = output.line("bootstrap")["archives"].as_array().expect("archives").clone();
        assert_eq!(archives.len(), 2, "{place}");
        for (archive, name, was_there) in
            [(&archives[0], &mirror.old_name, true), (&archives[1], &mirror.rebased_name, false)]
        {
            assert_eq!(archive["name"], name.as_str(), "{place}");
            assert_eq!(archive["was_there"], was_there, "{place}: {name}");
        }
        assert_eq!(output.line("restore")["slot"], 40);
        let mut tree = ledger_tree(&ledger);
        tree.retain(|path, _| !path.starts_with("remote"));
        let mut expected = expected.clone();
        // Agave looks into `remote`, so the archive stays there.
        if place == "ledger/remote" {
            expected.remove(&mirror.old_name);
        }
        assert_eq!(tree.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{place}");
        assert!(tree == expected, "{place}");
    }
}

/// `fetch` downloads only the rebased archive into a directory that has the old archive.
#[test]
fn fetch_reuses_the_old_archive() {
    let mirror = Mirror::start();
    let dir = temp_dir();
    mirror.copy_old_to(dir.path());
    let output = run_to_json(&["fetch", &mirror.server.url(""), "-o", text(dir.path())]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let mut expected = vec![mirror.rebased_name.clone(), mirror.old_name.clone()];
    expected.sort();
    assert_eq!(relative_paths(dir.path()), expected);
}

#[test]
fn a_node_without_an_old_archive_fetches_the_newest() {
    let mirror = Mirror::start();
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let output = run_to_json(&["bootstrap", &mirror.server.url(""), "--ledger", text(&ledger)]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(output.line("bootstrap")["archives"][0]["name"], mirror.new_name.as_str());
    assert_eq!(output.line("bootstrap")["archives"].as_array().map(Vec::len), Some(1));
}

/// A validator that has the state of a rebased archive confirms it.
#[test]
fn a_validator_confirms_a_rebased_archive() {
    let mirror = Mirror::start();
    let dir = temp_dir();
    let url = mirror.server.url("");
    let validator = mirror.start_validator();
    let ledger = dir.path().join("ledger");
    mirror.copy_old_to(&ledger);
    let output = run_to_json(&["bootstrap", &url, "--ledger", text(&ledger), "--trust", &validator.url("")]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(output.line("bootstrap")["archives"][1]["name"], mirror.rebased_name.as_str());
    assert_eq!(output.line("bootstrap")["confirmed_by"].as_array().map(Vec::len), Some(1), "{output:?}");
}

/// Ten nodes have old archives of different slots. The mirror has a rebased archive for each node.
#[test]
fn each_node_of_a_fleet_fetches_only_what_changed() {
    let fleet = &FleetMirror::start(10);
    let mut fetched: Vec<(TempDir, u64)> = Vec::new();
    std::thread::scope(|scope| {
        let runs: Vec<_> = fleet
            .old_archives
            .iter()
            .map(|old| {
                scope.spawn(move || {
                    let dir = temp_dir();
                    let ledger = dir.path().join("ledger");
                    fs::create_dir_all(&ledger).expect("made");
                    fs::copy(old, ledger.join(name(old))).expect("copied");
                    let output =
                        run_to_json(&["bootstrap", &fleet.server.url(""), "--ledger", text(&ledger), "--threads", "1"]);
                    assert_eq!(output.code, Some(0), "{output:?}");
                    let archives = output.line("bootstrap")["archives"].clone();
                    assert_eq!(archives[0]["was_there"], true, "{archives}");
                    assert_eq!(output.line("restore")["hash"], fleet.hash.as_str());
                    (dir, archives[1]["fetched_bytes"].as_u64().expect("bytes"))
                })
            })
            .collect();
        fetched.extend(runs.into_iter().map(|run| run.join().expect("no panic")));
    });
    let full_bytes = fs::metadata(fleet.server.path(&fleet.new_name)).expect("the file exists").len();
    for (dir, fetched_bytes) in &fetched {
        assert!(*fetched_bytes > 0);
        assert!(fetched_bytes * 2 < full_bytes, "{fetched_bytes} of {full_bytes}");
        fleet.assert_agave_loads(&dir.path().join("ledger"));
    }
}
