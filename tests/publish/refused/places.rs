//! Wrong directories: pipes, links, the validator's own, and others that take their place during a
//! run.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::common::*;
use crate::publish::stage::*;
use crate::publish::works::lives::Running;

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// A pipe with the name of a document of the target is reported, and no run waits for it.
#[test]
fn documents_that_are_pipes() {
    for name in ["latest.json", "api/v1/archives", FULL_26] {
        let stage = Stage::with_pair();
        let path = stage.mirror().join(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o644), 0).expect("made");
        let running = Running::start(&stage, &[]);
        wait_for(name, || !of_type(&running.lines(), "publish_failed").is_empty());
        let said = running.stop();
        let message = of_type(&said, "publish_failed")[0]["message"].as_str().expect("a message").to_string();
        assert!(message.contains(name) || message.contains("snapshot-26"), "{name}: {message}");
        assert!(fs::symlink_metadata(&path).is_ok_and(|it| it.mode() & 0o170_000 == 0o010_000), "{name} stays");
    }
}

/// No file is deleted through a link in the directory of pins: the run reports it, and ends.
#[test]
fn pins_that_are_links() {
    for link in ["pinned", "ready", "quarantine"] {
        let stage = Stage::with_pair();
        fs::create_dir(stage.pins()).expect("made");
        // Behind the link are archives that no node needs: older ones of the validator.
        let victim = stage.dir.path().join("victim");
        fs::create_dir(&victim).expect("made");
        fs::copy(fixture(FULL_26), victim.join(FULL_26.replace("-26-", "-1-"))).expect("copied");
        let before = state_of(&victim);
        symlink(&victim, stage.pins().join(link)).expect("linked");
        let output = stage.once(&[]);
        assert_eq!(state_of(&victim), before, "{link}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && stderr.contains("is a symbolic link"), "{link}: {stderr}");
    }
}

/// The same for the index of a target.
#[test]
fn an_index_that_is_a_link() {
    let stage = Stage::with_pair();
    let victim = stage.dir.path().join("victim");
    fs::create_dir_all(victim.join("v1")).expect("made");
    symlink(&victim, stage.mirror().join("api")).expect("linked");
    let output = stage.once(&[]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), names_in(&victim)), (Some(1), vec!["v1".to_string()]), "{stderr}");
    assert!(names_in(&victim.join("v1")).is_empty() && stderr.contains("is a symbolic link"), "{stderr}");
}

/// Moves a directory aside and puts a link to another one into its place.
fn swap(dir: &Path, aside: &Path, other: &Path) {
    fs::rename(dir, aside).expect("moved");
    symlink(other, dir).expect("linked");
}

/// Links that appear during a run: no file behind them is deleted, and the run continues when they
/// are gone.
#[test]
fn swapped_meanwhile() {
    for swapped in ["snapshots.publish", "snapshots.publish/pinned", "snapshots.publish/ready", "mirror"] {
        let stage = Stage::with_pair();
        let (victim, aside) = (stage.dir.path().join("victim"), stage.dir.path().join("aside"));
        fs::create_dir_all(victim.join("pinned")).expect("made");
        fs::create_dir_all(victim.join("ready")).expect("made");
        for dir in [victim.clone(), victim.join("pinned"), victim.join("ready")] {
            for name in [FULL_26, INCREMENTAL_26_40] {
                fs::copy(fixture(name), dir.join(name)).expect("copied");
            }
        }
        let archives = || [".", "pinned", "ready"].map(|dir| archives_in(&victim.join(dir)));
        let before = archives();
        let running =
            Running::start(&stage, &["--every", "0s", "--keep-full", "1", "--keep-incremental", "0", "--grace", "0s"]);
        running.wait_for_published(INCREMENTAL_26_40);
        stage.wait_until_nothing_is_pinned();
        let path = stage.dir.path().join(swapped);
        swap(&path, &aside, &victim);
        // A link that replaces the whole directory.
        stage.write(&fixture(FULL_3500));
        let has_failed = || !of_type(&running.lines(), "publish_failed").is_empty();
        wait_for("a failure", has_failed);
        assert_eq!(archives().map(|names| names.contains(&FULL_26.to_string())), [true; 3], "{swapped}");
        assert!(before.iter().zip(archives()).all(|(before, now)| before.iter().all(|name| now.contains(name))));
        fs::remove_file(&path).expect("removed");
        fs::rename(&aside, &path).expect("moved back");
        let newest = chain().last().expect("some");
        stage.write(newest);
        wait_for("all to go on", || latest(&stage.mirror()) == [name(newest)]);
        running.stop();
    }
}

/// The validator's own directory is refused under any path: only the validator writes there.
#[test]
fn the_validators_own_directory() {
    let stage = Stage::with_pair();
    let (own, link) = (stage.snapshots(), stage.dir.path().join("link"));
    symlink(&own, &link).expect("linked");
    let before = names_in(&own);
    let (below, dotted) = (own.join("mirror"), stage.mirror().join("../snapshots/x"));
    for path in [&own, &below, &link, &link.join("remote"), &dotted, &stage.pins().join("ready")] {
        for flag in ["--to", "--pins"] {
            if flag != "--to" && path.starts_with(stage.pins()) {
                continue;
            }
            if path.starts_with(stage.pins()) {
                fs::create_dir_all(path).expect("made");
            }
            let output = slotpress().args(stage.arguments(&[flag, text(path), "--once"])).output().expect("runs");
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{flag} {path:?}: {stderr}");
            assert!(stderr.contains("is in ") && stderr.contains("hint: "), "{flag} {path:?}: {stderr}");
            assert_eq!(names_in(&own), before, "{flag} {path:?}");
        }
    }
    assert!(stage.published().is_empty());
}

/// Rebasing needs a directory, because archives that are read twice are not fetched from a bucket.
/// Limits that would remove the result at once are refused.
#[test]
fn nothing_is_rebased_with_buckets_alone_or_to_be_pruned() {
    let stage = Stage::with_pair();
    let (dir, mirror) = (stage.snapshots(), stage.mirror());
    for (target, kept, says) in [
        ("s3://bucket/prefix", "1", "no target is a directory"),
        (text(&mirror), "0", "1 rebased archives are to be made of a full one, but only 0 stay"),
    ] {
        let arguments = ["publish", text(&dir), "--to", target, "--rebase-onto", "1", "--keep-rebased", kept];
        let (code, _, said) = run_json(&arguments, None);
        assert!(code == 2 && said.contains(says), "{said}");
        assert!(!stage.pins().exists());
    }
}

/// Refused at once, before anything is read, with a hint.
#[test]
fn a_target_that_is_missing() {
    let stage = Stage::with_pair();
    fs::remove_dir(stage.mirror()).expect("removed");
    let output = stage.once(&[]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && stderr.contains("create it: mkdir -p"), "{stderr}");
    assert!(lines(&output).is_empty() && !stage.pins().exists(), "{stderr}");
}
