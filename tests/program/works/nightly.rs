//! The nightly job of docs/operating.md.

use std::fs;
use std::process::Command;

use crate::common::*;

/// Runs the job of docs/operating.md as printed, except for its directories and the age that it allows.
#[test]
fn the_nightly_job_runs_as_printed() {
    let dir = temp_dir();
    let [snapshots, archive, bin] = ["snapshots", "archive", "bin"].map(|name| dir.path().join(name));
    for dir in [&snapshots, &archive, &bin] {
        fs::create_dir(dir).expect("made");
    }
    let documented = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operating.md"))
        .replace("/mnt/", &format!("{}/", dir.path().display()));
    let block = |start: &str| {
        let (_, block) = documented.split_once(start).expect("a block");
        block.split_once("```").expect("its end").0.to_string()
    };
    let script = bin.join("slotpress-nightly");
    // The states of the fixtures are older than a day and a half, although their files may be new.
    let write_script = |max_age: &str| write_program(&script, &block("```sh\n").replace("--max-age 36h", max_age));
    write_script("--max-age 9999d");
    std::os::unix::fs::symlink(slotpress_path(), bin.join("slotpress")).expect("linked");
    let crontab = block("```\n# /etc/cron.d/slotpress");
    let (_, job) = crontab.lines().find_map(|line| line.split_once("  sol  ")).expect("a job");
    let run_job = || {
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
        let output = Command::new("/bin/sh").args(["-c", job]).env("PATH", path).output().expect("runs");
        let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (output.status.code(), printed)
    };
    let silent = (Some(0), String::new());
    let assert_error_reported = |problem: &str| {
        let (code, printed) = run_job();
        assert_eq!(code, Some(1), "{problem}: {printed}");
        assert!(printed.starts_with("error: "), "{problem}: {printed}");
    };
    assert_error_reported("a directory that nobody writes to");
    let add_fixture = |name: &str| fs::copy(fixture(name), snapshots.join(name)).expect("copied");
    add_fixture(FULL_26);
    assert_eq!(run_job(), silent, "a full archive");
    assert_eq!(relative_paths(&archive), [FULL_26]);
    add_fixture(INCREMENTAL_26_40);
    assert_eq!(run_job(), silent, "an incremental one on it");
    assert_eq!(relative_paths(&archive), [INCREMENTAL_26_40, FULL_26]);
    let modified =
        |name: &str| fs::metadata(archive.join(name)).and_then(|metadata| metadata.modified()).expect("a time");
    let before = modified(INCREMENTAL_26_40);
    // A full archive that is not among the newest two is removed.
    fs::write(archive.join(FULL_26.replace("-26-", "-5-")), make_skippable_frames(9)).expect("written");
    add_fixture(FULL_3500);
    assert_eq!(run_job(), silent, "a newer full archive");
    assert_eq!(relative_paths(&archive), [INCREMENTAL_26_40, FULL_26, FULL_3500]);
    assert_eq!(run_job(), silent, "nothing new");
    assert_eq!(modified(INCREMENTAL_26_40), before);
    // Failures, whose output cron sends.
    write_script("--max-age 36h");
    assert_error_reported("a validator that has stopped writing");
    write_script("--max-age 9999d");
    fs::copy(fixture(FULL_3500), snapshots.join(FULL_3500.replace("-3500-", "-3600-"))).expect("copied");
    let (code, printed) = run_job();
    assert_eq!(code, Some(3), "{printed}");
    assert!(printed.contains("error: "), "{printed}");
}
