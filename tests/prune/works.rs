//! `slotpress prune`: archives that are removed, and archives that stay.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use serde_json::Value;
use tempfile::TempDir;

use crate::common::listed::{file_names, objects};
use crate::common::served::{ServeProcess, two_archives};
use crate::common::*;
use crate::rebase::{rebase, two_full_archives};

const HASH: &str = "D5jEKFz2JqBFLYETBEnvkiV47AnCXjXEdUgUU1XYNwsi";

fn full_name(slot: u64) -> String {
    format!("snapshot-{slot}-{HASH}.tar.zst")
}

fn incremental_name(base_slot: u64, slot: u64) -> String {
    format!("incremental-snapshot-{base_slot}-{slot}-{HASH}.tar.zst")
}

/// Names of files that are not archives.
const OTHER_FILES: [&str; 4] = ["bank.txt", "tmp-snapshot-archive-300.tar.zst", "snapshot-x.tar.zst", "tmp-genesis"];

/// Creates a directory with archives, one of them in the subdirectory `remote`, with other files, and
/// with a link that has the name of an archive.
fn dir_with_other_files() -> TempDir {
    let dir = temp_dir();
    let fulls = [100, 200, 300].map(full_name);
    let incrementals = [(100, 150), (200, 250), (200, 260)].map(|(base_slot, slot)| incremental_name(base_slot, slot));
    for name in fulls.iter().chain(&incrementals).map(String::as_str).chain(OTHER_FILES) {
        fs::write(dir.path().join(name), make_skippable_frames(9)).expect("written");
    }
    fs::create_dir(dir.path().join("remote")).expect("created");
    fs::write(dir.path().join("remote").join(full_name(90)), make_skippable_frames(9)).expect("written");
    std::os::unix::fs::symlink("bank.txt", dir.path().join(full_name(1))).expect("linked");
    dir
}

/// Runs `prune`, which must succeed. Returns its standard output.
fn prune(dir: &Path, flags: &[&str]) -> String {
    let output = slotpress().arg("prune").arg(dir).args(flags).output().expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_dry_run_reports_why_archives_stay_and_removes_nothing() {
    let dir = dir_with_other_files();
    let before = file_names(dir.path());
    let printed = prune(dir.path(), &["--keep-full", "1", "--keep-incremental", "1", "--dry-run", "--json"]);
    assert_eq!(file_names(dir.path()), before);
    let lines = objects(printed.as_bytes());
    let summary = lines.last().expect("a summary");
    assert_eq!((&summary["removed"], &summary["kept"], &summary["dry_run"]), (&4.into(), &3.into(), &true.into()));
    let reason = |name: &str| lines.iter().find(|line| line["name"] == name).map(|line| line["kept_because"].clone());
    assert_eq!(reason(&full_name(300)), Some("newest".into()));
    assert_eq!(reason(&full_name(200)), Some("base".into()), "an incremental archive that stays needs it");
    assert_eq!(reason(&incremental_name(200, 260)), Some("newest".into()));
    assert_eq!(reason(&full_name(100)), Some(Value::Null));
}

#[test]
fn recent_archives_stay() {
    let dir = dir_with_other_files();
    let before = file_names(dir.path());
    let counts_and_time = ["--keep-full", "0", "--keep-incremental", "0", "--keep-within", "1h"];
    for flags in [&counts_and_time[..], &["--keep-within", "1h"]] {
        let printed = prune(dir.path(), flags);
        assert!(printed.contains("removed 0 archives"), "{flags:?}: {printed}");
        assert_eq!(file_names(dir.path()), before, "{flags:?}");
    }
}

/// The newest pair and all archives that a node would choose stay.
#[test]
fn only_old_archives_are_removed() {
    let dir = dir_with_other_files();
    let printed = prune(dir.path(), &["--keep-full", "0", "--keep-incremental", "0"]);
    assert!(printed.contains("removed 4 archives"), "{printed}");
    let mut remaining = vec![full_name(200), full_name(300), incremental_name(200, 260), full_name(1)];
    remaining.extend(OTHER_FILES.map(String::from));
    remaining.push("remote".to_string());
    remaining.sort();
    assert_eq!(file_names(dir.path()), remaining);
    assert_eq!(file_names(&dir.path().join("remote")), [""; 0]);
}

#[test]
fn prune_without_limits_is_a_usage_error() {
    let dir = dir_with_other_files();
    slotpress().arg("prune").arg(dir.path()).assert().failure().code(2);
}

/// With limits of size and of free space, the oldest archives are removed first, incremental ones
/// before the full archive that they build on, and never those that a node needs.
#[test]
fn old_archives_are_removed_until_there_is_room() {
    let all = [
        full_name(100),
        incremental_name(100, 150),
        full_name(200),
        incremental_name(200, 250),
        full_name(300),
        incremental_name(300, 310),
    ];
    let dir_with_all = || {
        let dir = temp_dir();
        all.iter().for_each(|name| fs::write(dir.path().join(name), make_skippable_frames(1000)).expect("written"));
        dir
    };
    let prune_dirs = |dirs: &[&Path], flags: &[&str]| {
        let output = slotpress().arg("prune").args(dirs).args(flags).output().expect("runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let remaining = |numbers: &[usize]| -> Vec<String> {
        let mut names: Vec<String> = numbers.iter().map(|number| all[*number].clone()).collect();
        names.sort();
        names
    };
    for (bytes, expected) in [
        ("6000", &[0, 1, 2, 3, 4, 5][..]),
        ("5999", &[0, 2, 3, 4, 5]),
        ("4000", &[2, 3, 4, 5]),
        ("3000", &[2, 4, 5]),
        ("2000", &[4, 5]),
    ] {
        let (first, second) = (dir_with_all(), dir_with_all());
        assert_eq!(
            prune_dirs(&[first.path(), second.path()], &["--keep-bytes", bytes]),
            (Some(0), String::new()),
            "{bytes}"
        );
        assert_eq!(file_names(first.path()), remaining(expected), "{bytes}");
        assert_eq!(file_names(second.path()), remaining(expected), "each directory has its own limit: {bytes}");
    }
    // Archives that a node needs stay, and the program says so. Counts and sizes apply together.
    let dir = dir_with_all();
    let (code, stderr) = prune_dirs(&[dir.path()], &["--keep-free", "900TiB"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains("the kept archives exceed the limit by "), "{stderr}");
    assert_eq!(file_names(dir.path()), remaining(&[4, 5]));
    let dir = dir_with_all();
    prune_dirs(&[dir.path()], &["--keep-full", "2", "--keep-incremental", "0", "--keep-free", "1KiB"]);
    assert_eq!(file_names(dir.path()), remaining(&[2, 4, 5]));
}

/// The newest state of each past day, week and epoch stays. In the cluster of the first two archives,
/// epochs become longer, and the first one ends with slot 31. In the cluster of the other archives,
/// epochs have 200 slots. The newest full archive's schedule is used.
#[test]
fn newest_states_of_days_weeks_and_epochs_stay() {
    let dir = temp_dir();
    let all = [FULL_26, INCREMENTAL_26_40, FULL_3500, INCREMENTAL_3500_3550];
    let copy = |names: &[&str]| {
        names.iter().for_each(|name| assert!(fs::copy(fixture(name), dir.path().join(name)).is_ok()));
    };
    copy(&all[..2]);
    let reasons = |flags: &[&str]| {
        let lines = objects(prune(dir.path(), &[flags, &["--dry-run", "--json"]].concat()).as_bytes());
        let line = |name: &str| lines.iter().find(|line| line["name"] == name);
        all.map(|name| line(name).map_or(Value::Null, |line| line["kept_because"].clone()))
    };
    let expected = |reasons: [Option<&str>; 4]| reasons.map(Value::from);
    let pair = Some("last_pair");
    assert_eq!(reasons(&["--keep-epoch-ends", "1"]), expected([Some("epoch_end"), pair, None, None]));
    copy(&all[2..]);
    assert_eq!(reasons(&["--keep-epoch-ends", "0", "--keep-within", "0s"]), expected([None, None, pair, pair]));
    assert_eq!(reasons(&["--keep-epoch-ends", "1"]), expected([Some("base"), Some("epoch_end"), pair, pair]));
    let reasons_of_day = reasons(&["--keep-daily", "1"]);
    assert_eq!(reasons_of_day, expected([None, None, pair, Some("daily")]));
    let printed = prune(dir.path(), &["--keep-weekly", "1", "--dry-run"]);
    assert!(printed.contains(&format!("{INCREMENTAL_3500_3550} (")), "{printed}");
    assert!(printed.contains("): weekly"), "{printed}");
}

#[test]
fn archives_without_a_known_time_and_epoch_stay() {
    let dir = temp_dir();
    for slot in 1..4 {
        fs::write(dir.path().join(full_name(slot)), make_skippable_frames(9)).expect("written");
    }
    for (flag, message) in [("--keep-daily", ""), ("--keep-epoch-ends", "the epochs are unknown")] {
        let output = slotpress().arg("prune").arg(dir.path()).args([flag, "1", "--keep-bytes", "1"]).output();
        let output = output.expect("runs");
        let printed = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
        assert!(output.status.success(), "{printed}");
        assert!(printed.contains("undated"), "{printed}");
        assert!(printed.contains(message), "{printed}");
        assert_eq!(file_names(dir.path()).len(), 3, "{printed}");
    }
}

#[test]
fn the_modification_time_decides_what_is_old() {
    let dir = two_archives();
    let path = dir.path().join(INCREMENTAL_26_40.replace("-40-", "-30-"));
    fs::write(&path, make_skippable_frames(9)).expect("written");
    let file = fs::File::options().write(true).open(&path).expect("opened");
    file.set_modified(SystemTime::now() - std::time::Duration::from_secs(7200)).expect("set");
    let flags = ["--keep-full", "1", "--keep-incremental", "0", "--keep-within"];
    slotpress().arg("prune").arg(dir.path()).args(flags).arg("3h").assert().success();
    assert!(path.exists());
    slotpress().arg("prune").arg(dir.path()).args(flags).arg("1h").assert().success();
    assert!(!path.exists());
    assert!(dir.path().join(FULL_26).exists());

    // With a limit of time alone, older archives are removed, except those that a node would
    // choose. Other limits apply first.
    for (flags, stays) in [(&["3h"][..], true), (&["1h", "--keep-bytes", "1GiB"], true), (&["1h"], false)] {
        fs::write(&path, make_skippable_frames(9)).expect("written");
        for name in file_names(dir.path()) {
            let file = fs::File::options().write(true).open(dir.path().join(name)).expect("opened");
            file.set_modified(SystemTime::now() - std::time::Duration::from_secs(7200)).expect("set");
        }
        slotpress().arg("prune").arg(dir.path()).arg("--keep-within").args(flags).assert().success();
        assert_eq!(path.exists(), stays, "{flags:?}");
        assert!(dir.path().join(FULL_26).exists());
        assert!(dir.path().join(INCREMENTAL_26_40).exists());
    }
}

/// Files that are truncated or are not archives, with names of full archives newer than a good one, are
/// shown as unusable. They are not counted as kept, and are removed on request.
#[test]
fn unusable_archives_are_not_counted_as_kept() {
    let bytes = fs::read(fixture(FULL_26)).expect("read");
    let name = |slot: u64| FULL_26.replace("-26-", &format!("-{slot}-"));
    let dir = two_archives();
    for (slot, content) in [(700, &bytes[..bytes.len() / 2]), (701, &bytes[..bytes.len() - 1]), (702, &[0; 4096][..])] {
        fs::write(dir.path().join(name(slot)), content).expect("written");
    }
    let run = |command: &str, flags: &[&str]| {
        let output = slotpress().arg(command).arg(dir.path()).args(flags).output().expect("runs");
        (output.status.code(), String::from_utf8(output.stdout).expect("text"))
    };
    let (code, listed) = run("list", &[]);
    assert_eq!(code, Some(0), "{listed}");
    assert!(listed.contains("start at slot 40"), "{listed}");
    for slot in [700, 701, 702] {
        assert!(listed.contains(&format!("! {}", name(slot))), "{listed}");
    }
    assert!(listed.contains("not usable: its end is missing"), "{listed}");
    assert!(listed.contains("not usable: its first bytes"), "{listed}");

    let all = file_names(dir.path());
    let (code, stdout) = run("prune", &["--keep-full", "2", "--keep-incremental", "4"]);
    assert_eq!(code, Some(0), "{stdout}");
    assert!(stdout.contains("removed 0 archives"), "{stdout}");
    assert!(stdout.contains("--unusable would remove it"), "{stdout}");
    assert_eq!(file_names(dir.path()), all, "no usable archive is removed");
    let lines = objects(run("prune", &["--keep-full", "0", "--keep-incremental", "0", "--json"]).1.as_bytes());
    let summary = lines.last().expect("a summary");
    assert_eq!((&summary["kept"], &summary["unusable"], &summary["removed"]), (&2.into(), &3.into(), &0.into()));
    assert_eq!(file_names(dir.path()), all);

    // A file that has just changed may be unfinished.
    let (_, stdout) = run("prune", &["--unusable"]);
    assert!(stdout.contains("it stays, because it changed within the last minute"), "{stdout}");
    for slot in [700, 701, 702] {
        let file = fs::File::options().write(true).open(dir.path().join(name(slot))).expect("opened");
        file.set_modified(SystemTime::now() - std::time::Duration::from_secs(120)).expect("set");
    }
    let (_, stdout) = run("prune", &["--unusable", "--dry-run"]);
    assert!(stdout.contains(&format!("would remove {}", dir.path().join(name(700)).display())), "{stdout}");
    assert_eq!(file_names(dir.path()), all);
    assert_eq!(run("prune", &["--unusable"]).0, Some(0));
    assert_eq!(file_names(dir.path()), file_names(two_archives().path()));
}

/// Commands that scan the directory report unfinished downloads. `prune` removes them on request.
#[test]
fn unfinished_downloads_are_shown_and_removed_on_request() {
    let dir = two_archives();
    let old = FULL_26.replace("-26-", "-9-");
    let partial = dir.path().join(format!("slotpress-fetch-{old}"));
    fs::write(&partial, vec![1; 100_000]).expect("written");
    fs::write(dir.path().join(format!("slotpress-fetch-{old}.journal")), "{}").expect("written");
    let print = |arguments: &[&str]| {
        let output = slotpress().args(arguments).output().expect("runs");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8([output.stdout, output.stderr].concat()).expect("text")
    };
    let dir_path = text(dir.path());
    let partial_path = partial.display().to_string();
    let server = ServeProcess::start(&[]);
    let url = server.url("/");
    for arguments in
        [&["list", dir_path][..], &["fetch", &url, "-o", dir_path], &["prune", dir_path, "--unusable", "--dry-run"]]
    {
        let printed = print(arguments);
        assert!(printed.contains(&partial_path), "{printed}");
        assert!(printed.contains("KiB"), "{printed}");
        assert!(!printed.contains("so far"), "the space is reserved at the start: {printed}");
        assert!(partial.exists());
    }
    let held = fs::File::open(&partial).expect("opened");
    held.lock().expect("locked");
    print(&["prune", dir_path, "--unusable"]);
    assert!(partial.exists(), "it is in use");
    unlock(held);
    print(&["prune", dir_path, "--keep-full", "9", "--keep-incremental", "9"]);
    assert!(partial.exists(), "it was not asked for");
    print(&["prune", dir_path, "--unusable"]);
    assert_eq!(file_names(dir.path()), file_names(two_archives().path()));
}

/// Rebased archives have their own limit, and are removed with their full archive.
#[test]
fn rebased_archives_are_removed_with_their_full_archive() {
    let dir = temp_dir();
    let [old, new] = two_full_archives("agave-4.2.2", dir.path());
    let rebased = rebase(&[&new], &old, dir.path(), &[]);
    fs::copy(&old, dir.path().join(name(&old))).expect("copied");
    let [old, new, rebased] = [&old, &new, &rebased].map(|path| name(path));
    let kept = |flags: &[&str]| -> Vec<String> {
        let lines = objects(prune(dir.path(), &[flags, &["--dry-run", "--json"]].concat()).as_bytes());
        let mut kept: Vec<String> = lines
            .iter()
            .filter(|line| line["removed"] == false && line["kept_because"].is_string())
            .map(|line| line["name"].as_str().expect("a name").to_string())
            .collect();
        kept.sort();
        kept
    };
    assert_eq!(kept(&["--keep-full", "2", "--keep-incremental", "0"]), sorted_names(&[&old, &new, &rebased]));
    assert_eq!(
        kept(&["--keep-full", "2", "--keep-incremental", "0", "--keep-rebased", "0"]),
        sorted_names(&[&old, &new])
    );
    assert_eq!(kept(&["--keep-full", "1", "--keep-incremental", "0"]), sorted_names(&[&new]));
    // If a validator's incremental archive has this name, the old full archive stays.
    fs::copy(fixture(INCREMENTAL_26_40), dir.path().join(&rebased)).expect("copied");
    assert_eq!(kept(&["--keep-full", "1", "--keep-incremental", "1"]), sorted_names(&[&old, &new, &rebased]));
}

fn sorted_names(names: &[&String]) -> Vec<String> {
    let mut names: Vec<String> = names.iter().map(ToString::to_string).collect();
    names.sort();
    names
}
