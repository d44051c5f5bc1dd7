//! A node with an older full archive fetches only the changes since then.

use std::fs;
use std::path::Path;

use crate::bootstrap::Mirror;
use crate::common::site::{ledger_tree, run};
use crate::common::xfs::XfsDisk;
use crate::common::*;

/// Where the file system clones it, the node's archive takes no room, as in the run.
#[test]
fn a_clone_takes_no_room() {
    needs!("sys_admin", "loop_xfs", "mount", "umount", "mkfs.xfs");
    let mirror = Mirror::start();
    let disk = XfsDisk::new();
    let ledger = disk.path().join("ledger");
    let base = mirror.put_old(&disk.path().join("elsewhere"));
    let url = mirror.server.url("");
    let output = run(&["bootstrap", &url, "--ledger", text(&ledger), "--base", text(&base), "--dry-run"]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let bytes = |path: &Path| fs::metadata(path).expect("there").len();
    let old = bytes(&base);
    let rebased = bytes(&mirror.server.path(&mirror.rebased));
    let needed = output.line("bootstrap_plan")["space"][0]["needed_bytes"].as_u64();
    assert_eq!(needed, Some(4 * (old + rebased) + rebased), "{output:?}");
}

/// The old archive is in the snapshots directory, in its `remote`, or elsewhere. Only the rebased
/// one is fetched, and the ledger has the state of both archives.
#[test]
fn only_what_changed_is_fetched() {
    let mirror = Mirror::start();
    let expected = mirror.restore_old();
    for place in ["ledger", "ledger/remote", "elsewhere"] {
        let dir = temp_dir();
        let ledger = dir.path().join("ledger");
        let base = mirror.put_old(&dir.path().join(place));
        let url = mirror.server.url("");
        let mut arguments = vec!["bootstrap", &url, "--ledger", text(&ledger)];
        if place == "elsewhere" {
            arguments.extend(["--base", text(&base)]);
        }
        let plan = run(&[&arguments[..], &["--dry-run"]].concat());
        assert_eq!(plan.code, Some(0), "{plan:?}");
        let plan = plan.line("bootstrap_plan");
        assert_eq!(
            (&plan["full"]["name"], &plan["incremental"]["name"]),
            (&mirror.old.clone().into(), &mirror.rebased.clone().into())
        );
        let ways: Vec<(bool, u64, u64)> = plan["ways"]
            .as_array()
            .expect("ways")
            .iter()
            .map(|way| {
                let number = |field: &str| way[field].as_u64().expect("a number");
                (way["full_is_local"] == true, number("slot"), number("fetch_bytes"))
            })
            .collect();
        let bytes = |name: &str| fs::metadata(mirror.server.path(name)).expect("there").len();
        assert_eq!(ways[..2], [(true, 40, bytes(&mirror.rebased)), (false, 40, bytes(&mirror.new))], "{plan}");
        for way in plan["ways"].as_array().expect("ways") {
            assert!(way["fetch_seconds"].is_f64(), "{way}");
            assert!(way["restore_seconds"].is_f64(), "{way}");
        }

        let output = run(&arguments);
        assert_eq!(output.code, Some(0), "{place}: {output:?}");
        let archives = output.line("bootstrap")["archives"].as_array().expect("archives").clone();
        let fetched: Vec<_> =
            archives.iter().map(|one| (one["name"].as_str().expect("a name"), one["was_there"] == true)).collect();
        assert_eq!(fetched, [(mirror.old.as_str(), true), (mirror.rebased.as_str(), false)], "{place}");
        assert_eq!(output.line("restore")["slot"], 40);
        let mut tree = ledger_tree(&ledger);
        tree.retain(|path, _| !path.starts_with("remote"));
        let mut expected = expected.clone();
        // If Agave already looks there, the archive stays.
        if place == "ledger/remote" {
            expected.remove(&mirror.old);
        }
        assert_eq!(tree.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{place}");
        assert!(tree == expected, "{place}");
    }
}

/// `fetch` does the same into a directory that has the old archive.
#[test]
fn fetch_reuses_the_old_archive() {
    let mirror = Mirror::start();
    let dir = temp_dir();
    mirror.put_old(dir.path());
    let output = run(&["fetch", &mirror.server.url(""), "-o", text(dir.path())]);
    assert_eq!(output.code, Some(0), "{output:?}");
    let mut expected = vec![mirror.rebased.clone(), mirror.old.clone()];
    expected.sort();
    assert_eq!(names(dir.path()), expected);
}

/// A node without an old archive fetches the full archive; so does a node whose old archive is
/// newer than the mirror's.
#[test]
fn without_an_old_archive_the_newest_is_fetched() {
    let mirror = Mirror::start();
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let output = run(&["bootstrap", &mirror.server.url(""), "--ledger", text(&ledger)]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(output.line("bootstrap")["archives"][0]["name"], mirror.new.as_str());
    assert_eq!(output.line("bootstrap")["archives"].as_array().map(Vec::len), Some(1));
}

/// A validator that has the state of a rebased archive confirms it.
#[test]
fn a_validator_confirms_a_rebased_archive() {
    let mirror = Mirror::start();
    let dir = temp_dir();
    let url = mirror.server.url("");
    // Like a validator, it has only the full archive of that slot.
    let validator = mirror.validator();
    let ledger = dir.path().join("ledger");
    mirror.put_old(&ledger);
    let output = run(&["bootstrap", &url, "--ledger", text(&ledger), "--trust", &validator.url("")]);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(output.line("bootstrap")["archives"][1]["name"], mirror.rebased.as_str());
    assert_eq!(output.line("bootstrap")["vouched_by"].as_array().map(Vec::len), Some(1), "{output:?}");
}

/// Ten nodes have old archives of different slots. The mirror rebases onto each of these archives.
#[test]
fn each_node_of_a_fleet_fetches_only_what_changed() {
    let fleet = &crate::bootstrap::Fleet::start(10);
    let mut fetched = Vec::new();
    std::thread::scope(|scope| {
        let runs: Vec<_> = fleet
            .olds
            .iter()
            .map(|old| {
                scope.spawn(move || {
                    let dir = temp_dir();
                    let ledger = dir.path().join("ledger");
                    fs::create_dir_all(&ledger).expect("made");
                    fs::copy(old, ledger.join(name(old))).expect("copied");
                    let output =
                        run(&["bootstrap", &fleet.server.url(""), "--ledger", text(&ledger), "--threads", "1"]);
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
    let whole = fs::metadata(fleet.server.path(&fleet.new)).expect("there").len();
    assert!(fetched.iter().all(|(_, bytes)| *bytes > 0 && bytes * 2 < whole), "{whole}");
    for (dir, _) in &fetched {
        fleet.check(&dir.path().join("ledger"));
    }
}
