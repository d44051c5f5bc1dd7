//! SIGKILL at system calls that change files, by `strace --inject`: the archives in `latest.json`
//! are whole at every moment, and the next run ends the work and unpins archives.

use std::collections::BTreeSet;

use crate::common::strace::{number_of, trace};
use crate::common::*;
use crate::publish::stage::*;

/// System calls that change directories, or make files durable.
const CALLS: &str = "linkat,rename,renameat,renameat2,unlink,unlinkat,fsync,mkdir,mkdirat";

/// Largest number of kills, spread over the whole run. `PUBLISH_KILLS` sets another.
const KILLS_DEFAULT: u64 = 24;

fn killed(flags: &[&str]) {
    let stage = Stage::with_pair();
    let whole = trace(&[stage.arguments(flags), vec!["--once".into()]].concat(), CALLS, None);
    assert!(whole.output.status.success(), "{:?}", whole.output);
    let moments: BTreeSet<(String, u64)> = whole.calls.iter().map(|call| (call.name.clone(), call.number)).collect();
    let apart = (moments.len() as u64).div_ceil(number_of("PUBLISH_KILLS", KILLS_DEFAULT)).max(1) as usize;
    let mut kills = 0;
    for (call, number) in moments.iter().step_by(apart) {
        let moment = format!("{call} {number}");
        let stage = Stage::with_pair();
        let before = state_of(&stage.snapshots());
        let arguments = [stage.arguments(flags), vec!["--once".into()]].concat();
        let killed = trace(&arguments, CALLS, Some(&format!("{call}:signal=KILL:when={number}")));
        kills += usize::from(killed.is_killed);
        let was = latest(&stage.mirror());
        assert!(was.is_empty() || was[0] == FULL_26, "{moment}: {was:?}");
        // A pin may be there; all else is unchanged.
        let now = state_of(&stage.snapshots());
        assert!(
            now.iter()
                .zip(&before)
                .all(|((_, now), (_, before))| (now.0, now.2, &now.3) == (before.0, before.2, &before.3))
        );

        let said = stage.once_succeeds(flags);
        assert_eq!(latest(&stage.mirror()), [FULL_26, INCREMENTAL_26_40], "{moment}: {said:?}");
        let left = names_in(&stage.mirror());
        assert!(left.iter().all(|name| !name.starts_with("tmp-")), "{moment}: {left:?}");
        stage.assert_nothing_is_pinned();
        let links = if flags.contains(&"--as-is") { 2 } else { 1 };
        assert!(state_of(&stage.snapshots()).values().all(|file| file.1 == links), "{moment}: pins are freed");
        // Archives on the target were not written a second time.
        let again =
            of_type(&said, "publish_prepared").into_iter().filter(|line| was.iter().any(|name| line["name"] == **name));
        assert_eq!(again.count(), 0, "{moment}");
    }
    assert!(kills >= 10, "the moments were missed: {kills}");
}

/// Temporary files of a killed run are removed at the next start, even if there is no work.
#[test]
fn temporary_files_go_at_the_next_start() {
    let stage = Stage::with_pair();
    stage.once_succeeds(&[]);
    for dir in ["pinned", "ready"] {
        let temporary = stage.pins().join(dir).join("tmp-snapshot-archive-slotpress-0");
        std::fs::write(temporary, "half of an archive").expect("written");
    }
    stage.once_succeeds(&[]);
    stage.assert_nothing_is_pinned();
}

#[test]
fn killed_at_system_calls() {
    needs!("strace");
    killed(&[]);
}

#[test]
fn killed_while_archives_stay_as_they_are() {
    needs!("strace");
    killed(&["--as-is"]);
}

/// A panic ends one piece of work, and is reported. The next run does that work.
#[test]
fn a_panic_on_the_thread_of_a_target() {
    let stage = Stage::with_pair();
    let output = slotpress()
        .args(stage.arguments(&["--once"]))
        .env("FAULTS_PANIC_AT", "publishing")
        .env_remove("RUST_BACKTRACE")
        .output()
        .expect("runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && stderr.contains("an injected panic"), "{stderr}");
    stage.once_succeeds(&[]);
    assert_eq!(latest(&stage.mirror()), [FULL_26, INCREMENTAL_26_40]);
}

/// The disk of the target is full, and then has room again.
#[test]
fn a_full_target() {
    needs!("sys_admin", "mount", "umount");
    use std::fs;
    use std::process::Command;
    let stage = Stage::with_pair();
    let disk = stage.mirror();
    let mount = |options: &str| {
        let status = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&disk).status();
        assert!(status.expect("runs").success());
    };
    mount("size=64k");
    let output = stage.once(&[]);
    let whole = latest(&disk);
    mount("remount,size=64m");
    let said = stage.once(&[]);
    let after = (latest(&disk), names_in(&disk));
    assert!(Command::new("umount").arg(&disk).status().expect("runs").success());
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(whole.is_empty());
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    assert_eq!(of_type(&lines(&said), "publish_prepared").len(), 0, "all was ready");
    assert_eq!(after.0, [FULL_26, INCREMENTAL_26_40]);
    assert!(after.1.iter().all(|name| !name.starts_with("tmp-")), "{:?}", after.1);
    drop(fs::remove_dir(&disk));
    stage.assert_nothing_is_pinned();
}

/// A target that becomes full gets room when it is needed: older archives are removed first,
/// without a new start.
#[test]
fn a_target_that_becomes_full() {
    needs!("sys_admin", "mount", "umount");
    use std::fs;
    use std::path::PathBuf;
    use std::process::Command;

    use crate::publish::works::lives::Running;
    struct Mounted(PathBuf);
    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        }
    }
    let stage = Stage::new(&[&fixture(FULL_26)]);
    let mount = |size: &str| {
        let status = Command::new("mount").args(["-t", "tmpfs", "-o", size, "tmpfs"]).arg(stage.mirror()).status();
        assert!(status.expect("runs").success());
    };
    mount("size=64m");
    let _disk = Mounted(stage.mirror());
    let keep = ["--as-is", "--keep-full", "1", "--keep-incremental", "0", "--grace", "1h"];
    let running = Running::start(&stage, &keep);
    running.wait_for_published(FULL_26);
    let full_40 = &chain()[2];
    stage.write(full_40);
    running.wait_for_published(&name(full_40));
    stage.wait_until_nothing_is_pinned();
    assert_eq!(stage.published().len(), 2, "both are younger than the grace");
    // The index now says that the archives are hours old.
    let path = stage.mirror().join("api/v1/archives");
    let mut index: serde_json::Value = serde_json::from_slice(&fs::read(&path).expect("read")).expect("JSON");
    for archive in index["archives"].as_array_mut().expect("archives") {
        archive["modified_unix_seconds"] = 1.into();
    }
    fs::write(&path, index.to_string()).expect("written");
    // Another file takes the room, except half of the oldest archive's length.
    let free_bytes = rustix::fs::statvfs(stage.mirror()).map(|it| it.f_bavail * it.f_frsize).expect("told");
    let bytes_of = |path: PathBuf| fs::metadata(path).expect("metadata").len();
    let left_bytes = bytes_of(fixture(FULL_3500)) - bytes_of(fixture(FULL_26)) / 2;
    fs::write(stage.mirror().join("other"), vec![1; (free_bytes - left_bytes) as usize]).expect("written");
    stage.write(&fixture(FULL_3500));
    running.wait_for_published(FULL_3500);
    let said = running.stop();
    assert_eq!(of_type(&said, "publish_failed").len(), 0, "{said:?}");
    assert_eq!(latest(&stage.mirror()), [FULL_3500]);
}
