//! Single runs (`--once`): which archives are published, removed and kept.

use std::fs;
use std::os::unix::fs::MetadataExt;

use serde_json::Value;

use crate::common::*;
use crate::publish::setup::*;

#[test]
fn a_pair_is_published_once() {
    let setup = Setup::with_pair();
    let before = file_states(&setup.snapshots());
    let events = setup.publish_once(&[]);
    assert_eq!(file_states(&setup.snapshots()), before, "the validator's directory is unchanged");
    assert_eq!(setup.published(), [INCREMENTAL_26_40, FULL_26]);
    assert_eq!(read_latest(&setup.mirror()), [FULL_26, INCREMENTAL_26_40]);
    verify_published(&setup.mirror());
    setup.assert_nothing_is_pinned();
    let published = events_of_type(&events, "published");
    assert_eq!(published.iter().map(|event| &event["name"]).collect::<Vec<_>>(), [FULL_26, INCREMENTAL_26_40]);
    assert_eq!(published.iter().map(|event| &event["state"]).collect::<Vec<_>>(), ["checked", "not checked"]);
}

#[test]
fn the_index_describes_the_archives() {
    let setup = Setup::with_pair();
    let events = setup.publish_once(&[]);
    let index = read_index(&setup.mirror());
    assert_eq!((&index["version"], &index["slot_ms"], &index["newest_slot"]), (&1.into(), &300.into(), &40.into()));
    assert_eq!(index["archives"][0]["root"], events_of_type(&events, "published")[0]["root"]);
    let incremental = &index["archives"][1];
    assert_eq!((&incremental["state"], &incremental["age_seconds"]), (&"not checked".into(), &Value::Null));
}

#[test]
fn a_second_run_prepares_and_writes_nothing() {
    let setup = Setup::with_pair();
    setup.publish_once(&[]);
    let index_inode = || fs::metadata(setup.mirror().join("api/v1/archives")).expect("an index").ino();
    let before = index_inode();
    assert_eq!(events_of_type(&setup.publish_once(&[]), "publish_prepared").len(), 0);
    assert_eq!(index_inode(), before, "the index was already correct");
}

#[test]
fn the_index_names_the_archives_that_a_node_would_choose() {
    let setup = Setup::with_pair();
    setup.publish_once(&[]);
    let index = read_index(&setup.mirror());
    assert_eq!(index["choice"]["full"], FULL_26);
}

/// Paths in documents are relative to the document, so they are right under any prefix.
#[test]
fn paths_in_documents_lead_to_archives() {
    let setup = Setup::with_pair();
    setup.publish_once(&[]);
    for document in ["latest.json", "api/v1/archives"] {
        let document = setup.mirror().join(document);
        let list: Value = serde_json::from_slice(&fs::read(&document).expect("read")).expect("JSON");
        let archives = list["archives"].as_array().expect("archives");
        assert_eq!(archives.len(), 2);
        for archive in archives {
            let path = document.parent().expect("a directory").join(archive["path"].as_str().expect("a path"));
            assert_eq!(fs::metadata(&path).expect("it exists").len(), archive["size_bytes"], "{path:?}");
        }
    }
}

#[test]
fn archives_are_published_as_they_are() {
    let setup = Setup::with_pair();
    setup.publish_once(&["--as-is"]);
    for name in [FULL_26, INCREMENTAL_26_40] {
        assert!(fs::read(setup.mirror().join(name)).expect("read") == fs::read(fixture(name)).expect("read"), "{name}");
    }
    assert_eq!(read_latest(&setup.mirror()), [FULL_26, INCREMENTAL_26_40]);
    setup.assert_nothing_is_pinned();
}

#[test]
fn a_failing_target_delays_no_other() {
    let setup = Setup::with_pair();
    let failing_target = setup.dir.path().join("failing");
    let to = ["--to", text(&failing_target)];
    let output = setup.run_once(&to);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(read_latest(&setup.mirror()), [FULL_26, INCREMENTAL_26_40]);
    assert_eq!(events_of_type(&parse_events(&output), "publish_failed")[0]["target"], to[1]);
    // The waiting archives have been prepared, so they are not checked again.
    fs::create_dir(&failing_target).expect("made");
    let events = setup.publish_once(&to);
    assert_eq!(events_of_type(&events, "publish_prepared").len(), 0);
    assert_eq!(read_latest(&failing_target), [FULL_26, INCREMENTAL_26_40]);
    setup.assert_nothing_is_pinned();
}

#[test]
fn only_listed_archives_are_deleted_and_only_after_the_grace_period() {
    let setup = Setup::new(&[]);
    let foreign = setup.mirror().join(FULL_26.replace("-26-", "-1-"));
    fs::write(&foreign, "another's").expect("written");
    for archive in chain_archives() {
        setup.write(archive);
        setup.publish_once(&["--keep-full", "1", "--keep-incremental", "1", "--grace", "1h"]);
        read_latest(&setup.mirror());
    }
    assert_eq!(setup.published().len(), 1 + chain_archives().len(), "all are younger than the grace period");
    fs::remove_file(setup.snapshots().join(name(&chain_archives()[0]))).expect("removed");
    setup.publish_once(&["--keep-full", "1", "--keep-incremental", "1", "--grace", "0s"]);
    let newest = chain_archives().last().expect("some");
    assert_eq!(read_latest(&setup.mirror()), [name(newest)]);
    // Like `prune`, the run keeps the newest incremental archive and its base.
    let kept = [name(&foreign), FULL_3500.to_string(), name(newest), name(&chain_archives()[5])];
    let published = setup.published();
    assert_eq!(published.len(), kept.len(), "{published:?}");
    assert!(kept.iter().all(|name| published.contains(name)), "{published:?}");
    assert_eq!(fs::read_to_string(&foreign).expect("read"), "another's");
}

/// Firedancer refuses to start if one of its files has a second hard link. Unless only Agave writes archives,
/// they are therefore pinned with reflinks. On a file system without reflinks, the run ends at once.
#[test]
fn archives_are_hard_linked_only_if_only_agave_writes_them() {
    let setup = Setup::with_pair();
    let before = file_states(&setup.snapshots());
    for writer in [&[][..], &["--writer", "firedancer"]] {
        let output = slotpress().args(setup.arguments_for_any_writer(writer)).arg("--once").output().expect("runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(file_states(&setup.snapshots()), before, "{stderr}");
        if output.status.success() {
            assert_eq!(read_latest(&setup.mirror()), [FULL_26, INCREMENTAL_26_40], "with reflinks");
            continue;
        }
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains("does not support reflinks"), "{stderr}");
        assert!(stderr.contains("hint: if only Agave writes archives here, use --writer agave"), "{stderr}");
        assert!(setup.published().is_empty());
    }
}

/// The target stays empty, because the limit on pins is too low for the archive.
#[test]
fn an_archive_beyond_the_limit_on_pins_is_a_failure() {
    let setup = Setup::with_pair();
    let output = setup.run_once(&["--pin-bytes", "1"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("allow more space for pins"), "{stderr}");
    assert!(setup.published().is_empty());
}

/// A validator with `--incremental-snapshot-archive-path` writes incremental archives to that directory.
#[test]
fn incremental_archives_in_another_directory_are_published() {
    let setup = Setup::new(&[&fixture(FULL_26)]);
    let incrementals = setup.dir.path().join("incremental");
    fs::create_dir(&incrementals).expect("made");
    fs::copy(fixture(INCREMENTAL_26_40), incrementals.join(INCREMENTAL_26_40)).expect("copied");
    let flag = ["--incremental-snapshot-archive-path", text(&incrementals)];
    setup.publish_once(&flag);
    assert_eq!(read_latest(&setup.mirror()), [FULL_26, INCREMENTAL_26_40]);
    setup.assert_nothing_is_pinned();
    // The target must not be inside this directory either.
    let within = incrementals.join("mirror");
    fs::create_dir(&within).expect("made");
    let refused = setup.run_once(&[&flag[..], &["--to", text(&within)]].concat());
    assert_eq!(refused.status.code(), Some(2), "{}", String::from_utf8_lossy(&refused.stderr));
}

/// The end of the run waits for the hook.
#[test]
fn a_failing_hook_of_the_last_archive_is_reported() {
    let setup = Setup::new(&[&fixture(FULL_26)]);
    let hook = setup.dir.path().join("hook");
    // The hook ends once the archive is unpinned, when no other work is left.
    let ready = setup.pins().join("ready").join(FULL_26);
    write_program(&hook, &format!("#!/bin/sh\nwhile [ -e {} ]; do sleep 0.01; done\nexit 3\n", ready.display()));
    let events = setup.publish_once(&["--on-published", text(&hook)]);
    let failed = events_of_type(&events, "publish_failed");
    assert_eq!(failed.len(), 1, "{events:?}");
    assert!(failed[0]["message"].as_str().expect("text").contains("exit status: 3"), "{events:?}");
}

/// A run was killed before it deleted an archive. Since then, the archive has been published again.
#[test]
fn archives_that_are_in_the_index_again_are_not_deleted() {
    let setup = Setup::with_pair();
    setup.publish_once(&[]);
    let path = setup.pins().join("journal.json");
    let mut journal: Value = serde_json::from_slice(&fs::read(&path).expect("read")).expect("JSON");
    let unlisted = FULL_26.replace("-26-", "-1-");
    fs::write(setup.mirror().join(&unlisted), "left").expect("written");
    journal["targets"][text(&setup.mirror())]["pending_deletes"] = Value::from(vec![FULL_26, &unlisted]);
    fs::write(&path, journal.to_string()).expect("written");
    let events = setup.publish_once(&[]);
    let pruned = events_of_type(&events, "publish_pruned");
    assert_eq!(pruned.len(), 1, "{pruned:?}");
    assert_eq!(pruned[0]["names"], Value::from(vec![unlisted]));
    assert_eq!(setup.published(), [INCREMENTAL_26_40, FULL_26]);
    assert_eq!(events_of_type(&setup.publish_once(&[]), "publish_pruned").len(), 0, "nothing is pending");
}

#[test]
fn a_run_with_nothing_to_publish_says_so() {
    let setup = Setup::with_pair();
    let says_nothing_to_publish = |flags: &[&str]| {
        let output = slotpress().args(setup.arguments(flags)).output().expect("runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).contains("nothing to publish: no archive is newer")
    };
    assert!(!says_nothing_to_publish(&["--once"]), "the pair is published");
    assert!(says_nothing_to_publish(&["--once"]), "all is current");
    assert!(!says_nothing_to_publish(&["--once", "-q"]));
}
