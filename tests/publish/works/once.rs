//! Single runs (`--once`): archives that are published, removed, or stay.

use std::fs;
use std::os::unix::fs::MetadataExt;

use serde_json::Value;

use crate::common::*;
use crate::publish::stage::*;

#[test]
fn a_pair_is_published_and_not_twice() {
    let stage = Stage::with_pair();
    let before = state_of(&stage.snapshots());
    let said = stage.once_succeeds(&[]);
    assert_eq!(state_of(&stage.snapshots()), before, "the validator's directory is as it was");
    assert_eq!(stage.published(), [INCREMENTAL_26_40, FULL_26]);
    assert_eq!(latest(&stage.mirror()), [FULL_26, INCREMENTAL_26_40]);
    verify(&stage.mirror());
    stage.assert_nothing_is_pinned();
    let published = of_type(&said, "published");
    assert_eq!(published.iter().map(|line| &line["name"]).collect::<Vec<_>>(), [FULL_26, INCREMENTAL_26_40]);
    assert_eq!(published.iter().map(|line| &line["state"]).collect::<Vec<_>>(), ["checked", "unchecked"]);

    let index = fs::read(stage.mirror().join("api/v1/archives")).expect("an index");
    let index: Value = serde_json::from_slice(&index).expect("JSON");
    assert_eq!((&index["version"], &index["slot_ms"], &index["newest_slot"]), (&1.into(), &300.into(), &40.into()));
    assert_eq!(index["archives"][0]["root"], published[0]["root"]);
    assert_eq!(
        (&index["archives"][1]["state"], &index["archives"][1]["age_seconds"]),
        (&"unchecked".into(), &Value::Null)
    );

    let index = fs::metadata(stage.mirror().join("api/v1/archives")).expect("an index").ino();
    assert_eq!(of_type(&stage.once_succeeds(&[]), "publish_prepared").len(), 0);
    assert_eq!(fs::metadata(stage.mirror().join("api/v1/archives")).expect("an index").ino(), index, "it was right");
}

/// The index is the list that `serve` would give a reader over HTTP.
#[test]
fn the_index_is_the_list_of_the_api() {
    let stage = Stage::with_pair();
    stage.once_succeeds(&[]);
    verify(&stage.mirror());
    let index = fs::read(stage.mirror().join("api/v1/archives")).expect("an index");
    let index: Value = serde_json::from_slice(&index).expect("JSON");
    let server = crate::common::served::Server::start_in(stage.dir, &[]);
    drop(server);
    assert_eq!(index["choice"]["full"], FULL_26);
}

/// Paths in documents are relative to the document, so they hold below any prefix.
#[test]
fn paths_hold_for_who_reads_them() {
    let stage = Stage::with_pair();
    stage.once_succeeds(&[]);
    for document in ["latest.json", "api/v1/archives"] {
        let document = stage.mirror().join(document);
        let list: Value = serde_json::from_slice(&fs::read(&document).expect("read")).expect("JSON");
        let archives = list["archives"].as_array().expect("archives");
        assert_eq!(archives.len(), 2);
        for archive in archives {
            let path = document.parent().expect("a directory").join(archive["path"].as_str().expect("a path"));
            assert_eq!(fs::metadata(&path).expect("it is there").len(), archive["size_bytes"], "{path:?}");
        }
    }
}

#[test]
fn as_it_is() {
    let stage = Stage::with_pair();
    stage.once_succeeds(&["--as-is"]);
    for name in [FULL_26, INCREMENTAL_26_40] {
        assert!(fs::read(stage.mirror().join(name)).expect("read") == fs::read(fixture(name)).expect("read"), "{name}");
    }
    assert_eq!(latest(&stage.mirror()), [FULL_26, INCREMENTAL_26_40]);
    stage.assert_nothing_is_pinned();
}

#[test]
fn a_target_that_fails_holds_up_no_other() {
    let stage = Stage::with_pair();
    let other = stage.dir.path().join("other");
    let to = ["--to", other.to_str().expect("UTF-8")];
    let output = stage.once(&to);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(latest(&stage.mirror()), [FULL_26, INCREMENTAL_26_40]);
    assert_eq!(of_type(&lines(&output), "publish_failed")[0]["target"], to[1]);
    // Waiting archives are ready, and are not checked again.
    fs::create_dir(&other).expect("made");
    let said = stage.once_succeeds(&to);
    assert_eq!(of_type(&said, "publish_prepared").len(), 0);
    assert_eq!(latest(&other), [FULL_26, INCREMENTAL_26_40]);
    stage.assert_nothing_is_pinned();
}

#[test]
fn old_archives_go_after_the_grace_and_others_never() {
    let stage = Stage::new(&[]);
    let foreign = stage.mirror().join(FULL_26.replace("-26-", "-1-"));
    fs::write(&foreign, "another's").expect("written");
    for archive in chain() {
        stage.write(archive);
        stage.once_succeeds(&["--keep-full", "1", "--keep-incremental", "1", "--grace", "1h"]);
        latest(&stage.mirror());
    }
    assert_eq!(stage.published().len(), 1 + chain().len(), "all are younger than the grace");
    fs::remove_file(stage.snapshots().join(name(&chain()[0]))).expect("removed");
    stage.once_succeeds(&["--keep-full", "1", "--keep-incremental", "1", "--grace", "0s"]);
    let newest = chain().last().expect("some");
    assert_eq!(latest(&stage.mirror()), [name(newest)]);
    // The newest incremental archive and its base stay by the rules of `prune`.
    let stays = [name(&foreign), FULL_3500.to_string(), name(newest), name(&chain()[5])];
    let published = stage.published();
    assert_eq!(published.len(), stays.len(), "{published:?}");
    assert!(stays.iter().all(|name| published.contains(name)), "{published:?}");
    assert_eq!(fs::read_to_string(&foreign).expect("read"), "another's");
}

/// Firedancer refuses to start if one of its files has a second name. So none gets one, unless only
/// Agave writes: where the file system has no reflinks, the run ends at once.
#[test]
fn no_file_gets_a_second_name_unless_only_agave_writes() {
    let stage = Stage::with_pair();
    let before = state_of(&stage.snapshots());
    for writer in [&[][..], &["--writer", "firedancer"]] {
        let output = slotpress().args(stage.arguments_of_any(writer)).arg("--once").output().expect("runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(state_of(&stage.snapshots()), before, "{stderr}");
        if output.status.success() {
            assert_eq!(latest(&stage.mirror()), [FULL_26, INCREMENTAL_26_40], "by reflinks");
            continue;
        }
        assert!(output.status.code() == Some(2) && stderr.contains("has no reflinks"), "{stderr}");
        assert!(stderr.contains("hint: if only Agave writes archives here, use --writer agave"), "{stderr}");
        assert!(stage.published().is_empty());
    }
}

/// There is too little room for a pin: an empty target is a failure.
#[test]
fn everything_is_left_out() {
    let stage = Stage::with_pair();
    let output = stage.once(&["--pin-bytes", "1"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && stderr.contains("give more room for pins"), "{stderr}");
    assert!(stage.published().is_empty());
}

/// Validators with `--incremental-snapshot-archive-path`.
#[test]
fn incremental_archives_in_a_directory_of_their_own() {
    let stage = Stage::new(&[&fixture(FULL_26)]);
    let other = stage.dir.path().join("incremental");
    fs::create_dir(&other).expect("made");
    fs::copy(fixture(INCREMENTAL_26_40), other.join(INCREMENTAL_26_40)).expect("copied");
    let flag = ["--incremental-snapshot-archive-path", text(&other)];
    stage.once_succeeds(&flag);
    assert_eq!(latest(&stage.mirror()), [FULL_26, INCREMENTAL_26_40]);
    stage.assert_nothing_is_pinned();
    // No other file may be written there, either.
    let within = other.join("mirror");
    fs::create_dir(&within).expect("made");
    let refused = stage.once(&[&flag[..], &["--to", text(&within)]].concat());
    assert_eq!(refused.status.code(), Some(2), "{}", String::from_utf8_lossy(&refused.stderr));
}

/// Only the end of the run waits for the hook.
#[test]
fn a_hook_of_the_last_archive_that_fails_is_told() {
    let stage = Stage::new(&[&fixture(FULL_26)]);
    let hook = stage.dir.path().join("hook");
    // When the archive is unpinned, no other work is left.
    let ready = stage.pins().join("ready").join(FULL_26);
    write_program(&hook, &format!("#!/bin/sh\nwhile [ -e {} ]; do sleep 0.01; done\nexit 3\n", ready.display()));
    let said = stage.once_succeeds(&["--on-published", text(&hook)]);
    let failed = of_type(&said, "publish_failed");
    assert!(failed.len() == 1 && failed[0]["message"].as_str().expect("text").contains("exit status: 3"), "{said:?}");
}

/// A run was killed before it deleted an archive, which has been published again since.
#[test]
fn what_is_in_the_index_again_is_not_deleted() {
    let stage = Stage::with_pair();
    stage.once_succeeds(&[]);
    let path = stage.pins().join("journal.json");
    let mut journal: Value = serde_json::from_slice(&fs::read(&path).expect("read")).expect("JSON");
    let gone = FULL_26.replace("-26-", "-1-");
    fs::write(stage.mirror().join(&gone), "left").expect("written");
    journal["targets"][text(&stage.mirror())]["pending_deletes"] = Value::from(vec![FULL_26, &gone]);
    fs::write(&path, journal.to_string()).expect("written");
    let said = stage.once_succeeds(&[]);
    let pruned = of_type(&said, "publish_pruned");
    assert!(pruned.len() == 1 && pruned[0]["names"] == Value::from(vec![gone]), "{pruned:?}");
    assert_eq!(stage.published(), [INCREMENTAL_26_40, FULL_26]);
    assert_eq!(of_type(&stage.once_succeeds(&[]), "publish_pruned").len(), 0, "nothing is pending");
}

#[test]
fn nothing_to_do_is_said() {
    let stage = Stage::with_pair();
    let said = |flags: &[&str]| {
        let output = slotpress().args(stage.arguments(flags)).output().expect("runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).contains("nothing to publish: no archive there is newer")
    };
    assert!(!said(&["--once"]), "it publishes");
    assert!(said(&["--once"]), "all is current");
    assert!(!said(&["--once", "-q"]));
}
