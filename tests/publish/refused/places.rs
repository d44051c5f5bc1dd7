//! Directories and files that must not be used: pipes, links, the validator's own directory, and
//! links that replace directories during a run.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::common::*;
use crate::publish::setup::*;
use crate::publish::works::running::PublishProcess;

/// No run waits for a writer of the pipe.
#[test]
fn pipes_in_place_of_documents_are_reported() {
    for name in ["latest.json", "api/v1/archives", FULL_26] {
        let setup = Setup::with_pair();
        let path = setup.mirror().join(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o644), 0).expect("made");
        let running = PublishProcess::start(&setup, &[]);
        wait_for(name, || !events_of_type(&running.events(), "publish_failed").is_empty());
        let events = running.stop();
        let message = events_of_type(&events, "publish_failed")[0]["message"].as_str().expect("a message").to_string();
        assert!(message.contains(name) || message.contains("snapshot-26"), "{name}: {message}");
        assert!(
            fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.mode() & 0o170_000 == 0o010_000),
            "the pipe {name} is gone"
        );
    }
}

/// No file is deleted through a link in the directory of pins.
#[test]
fn linked_pin_directories_are_refused() {
    for link in ["pinned", "ready", "quarantine"] {
        let setup = Setup::with_pair();
        fs::create_dir(setup.pins()).expect("made");
        // The link leads to an archive that a run would delete as needless: it is older than the validator's.
        let victim = setup.dir.path().join("victim");
        fs::create_dir(&victim).expect("made");
        fs::copy(fixture(FULL_26), victim.join(FULL_26.replace("-26-", "-1-"))).expect("copied");
        let before = file_states(&victim);
        symlink(&victim, setup.pins().join(link)).expect("linked");
        let output = setup.run_once(&[]);
        assert_eq!(file_states(&victim), before, "{link}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{link}: {stderr}");
        assert!(stderr.contains("is a symbolic link"), "{link}: {stderr}");
    }
}

/// No file is written through a link in a target.
#[test]
fn a_linked_index_is_refused() {
    let setup = Setup::with_pair();
    let victim = setup.dir.path().join("victim");
    fs::create_dir_all(victim.join("v1")).expect("made");
    symlink(&victim, setup.mirror().join("api")).expect("linked");
    let output = setup.run_once(&[]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), file_names(&victim)), (Some(1), vec!["v1".to_string()]), "{stderr}");
    assert_eq!(file_names(&victim.join("v1")), [""; 0], "{stderr}");
    assert!(stderr.contains("is a symbolic link"), "{stderr}");
}

/// Moves a directory aside and puts a link to another one in its place.
fn replace_with_link(dir: &Path, aside: &Path, other: &Path) {
    fs::rename(dir, aside).expect("moved");
    symlink(other, dir).expect("linked");
}

/// No file behind the links is deleted, and the run continues once they are gone.
#[test]
fn directories_swapped_for_links_are_not_touched() {
    for swapped in ["snapshots.publish", "snapshots.publish/pinned", "snapshots.publish/ready", "mirror"] {
        let setup = Setup::with_pair();
        let (victim, aside) = (setup.dir.path().join("victim"), setup.dir.path().join("aside"));
        fs::create_dir_all(victim.join("pinned")).expect("made");
        fs::create_dir_all(victim.join("ready")).expect("made");
        for dir in [victim.clone(), victim.join("pinned"), victim.join("ready")] {
            for name in [FULL_26, INCREMENTAL_26_40] {
                fs::copy(fixture(name), dir.join(name)).expect("copied");
            }
        }
        let archives = || [".", "pinned", "ready"].map(|dir| archives_in(&victim.join(dir)));
        let before = archives();
        let running = PublishProcess::start(
            &setup,
            &["--every", "0s", "--keep-full", "1", "--keep-incremental", "0", "--grace", "0s"],
        );
        running.wait_for_published(INCREMENTAL_26_40);
        setup.wait_until_nothing_is_pinned();
        let path = setup.dir.path().join(swapped);
        replace_with_link(&path, &aside, &victim);
        setup.write(&fixture(FULL_3500));
        wait_for("a failure", || !events_of_type(&running.events(), "publish_failed").is_empty());
        for (names_before, names) in before.iter().zip(archives()) {
            assert!(names_before.iter().all(|name| names.contains(name)), "{swapped}: {names_before:?} {names:?}");
        }
        fs::remove_file(&path).expect("removed");
        fs::rename(&aside, &path).expect("moved back");
        let newest = chain_archives().last().expect("some");
        setup.write(newest);
        wait_for("the run to continue", || read_latest(&setup.mirror()) == [name(newest)]);
        running.stop();
    }
}

/// Neither a target nor the directory of pins may be in the validator's directory, whichever path leads there. A
/// target may not be in the directory of pins either.
#[test]
fn the_validators_directory_is_refused() {
    let setup = Setup::with_pair();
    let snapshots = setup.snapshots();
    let link = setup.dir.path().join("link");
    symlink(&snapshots, &link).expect("linked");
    let before = file_names(&snapshots);
    let below = snapshots.join("mirror");
    let dotted = setup.mirror().join("../snapshots/x");
    let below_link = link.join("remote");
    let ready = setup.pins().join("ready");
    fs::create_dir_all(&ready).expect("made");
    let in_snapshots = [&snapshots, &below, &link, &below_link, &dotted];
    let cases = in_snapshots.into_iter().flat_map(|path| [("--to", path), ("--pins", path)]);
    for (flag, path) in cases.chain([("--to", &ready)]) {
        let output = slotpress().args(setup.arguments(&[flag, text(path), "--once"])).output().expect("runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flag} {path:?}: {stderr}");
        assert!(stderr.contains("is in "), "{flag} {path:?}: {stderr}");
        assert!(stderr.contains("hint: "), "{flag} {path:?}: {stderr}");
        assert_eq!(file_names(&snapshots), before, "{flag} {path:?}");
    }
    assert!(setup.published().is_empty());
}

/// Rebasing reads archives twice, and does not fetch them from a bucket, so it needs a target that is a
/// directory. Limits that would remove the result at once are refused.
#[test]
fn rebasing_without_a_directory_or_retention_is_refused() {
    let setup = Setup::with_pair();
    let (dir, mirror) = (setup.snapshots(), setup.mirror());
    for (target, kept, message) in [
        ("s3://bucket/prefix", "1", "no target is a directory"),
        (text(&mirror), "0", "1 rebased archives are to be made of each full archive, but only 0 are kept"),
    ] {
        let arguments = ["publish", text(&dir), "--to", target, "--rebase-onto", "1", "--keep-rebased", kept];
        let (code, _, stderr) = run_to_first_line(&arguments, None);
        assert_eq!(code, 2, "{stderr}");
        assert!(stderr.contains(message), "{stderr}");
        assert!(!setup.pins().exists());
    }
}

/// The run fails before it pins anything.
#[test]
fn a_missing_target_is_refused() {
    let setup = Setup::with_pair();
    fs::remove_dir(setup.mirror()).expect("removed");
    let output = setup.run_once(&[]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("create it: mkdir -p"), "{stderr}");
    assert!(parse_events(&output).is_empty(), "{stderr}");
    assert!(!setup.pins().exists(), "{stderr}");
}
