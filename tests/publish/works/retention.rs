//! Archives that stay on a target because of their day, week or epoch, and targets that have no space for
//! others.

use std::fs;

use crate::common::disk::Disk;
use crate::common::*;
use crate::publish::setup::*;

/// Returns the names of the archives that stay for this reason, according to the index.
fn names_kept_because(setup: &Setup, reason: &str) -> Vec<String> {
    let index = read_index(&setup.mirror());
    let archives = index["archives"].as_array().expect("archives");
    assert!(archives.iter().all(|archive| archive["kept_because"].is_string()), "{index}");
    let kept = archives.iter().filter(|archive| archive["kept_because"] == reason);
    kept.map(|archive| archive["name"].as_str().expect("a name").to_string()).collect()
}

/// In the cluster of the first archives, epochs become longer, and the first one ends with slot 31. In
/// the cluster of the other archives, epochs have 200 slots. The newest full archive's schedule is used.
#[test]
fn newest_states_of_epochs_stay() {
    let setup = Setup::new(&[]);
    let flags = ["--keep-full", "1", "--keep-incremental", "0", "--grace", "0s", "--keep-epoch-ends", "1"];
    for archive in &chain_archives()[..3] {
        setup.write(archive);
        setup.publish_once(&flags);
        verify_published(&setup.mirror());
    }
    assert_eq!(names_kept_because(&setup, "epoch_end"), [FULL_26]);
    let output = slotpress().arg("list").arg(setup.mirror()).output().expect("runs");
    let listed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(listed.matches("kept: epoch_end").count(), 1, "{listed}");
    for archive in &chain_archives()[3..] {
        setup.write(archive);
        setup.publish_once(&flags);
        verify_published(&setup.mirror());
    }
    assert_eq!(names_kept_because(&setup, "epoch_end"), [name(&chain_archives()[2])]);
    assert!(!setup.published().contains(&FULL_26.to_string()));
}

/// Both states are from the same day, so the older one is removed.
#[test]
fn only_the_newest_state_of_a_day_and_week_stays() {
    let setup = Setup::new(&[]);
    for archive in [FULL_26, FULL_3500].map(fixture) {
        setup.write(&archive);
        setup.publish_once(&["--keep-full", "1", "--grace", "0s", "--keep-daily", "9", "--keep-weekly", "9"]);
    }
    assert_eq!(setup.published(), [FULL_3500]);
    assert_eq!(names_kept_because(&setup, "weekly"), [FULL_3500]);
}

/// Nothing is deleted, and the run reports that there is too little space.
#[test]
fn a_target_without_room_for_the_next_archive_keeps_its_archives() {
    needs!("sys_admin", "mount", "umount");
    let (setup, disk) = (Setup::new(&[&fixture(FULL_26)]), Disk::mount("size=4m"));
    let to = ["--to", text(disk.path())];
    setup.publish_once(&to);
    let filler = disk.path().join("filler");
    // Fills the disk, and so fails.
    fs::write(&filler, vec![1; 8 << 20]).expect_err("a full disk");
    setup.write(&fixture(FULL_3500));
    let output = setup.run_once(&to);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("the archives that are kept leave no space"), "{stderr}");
    assert!(stderr.contains("keep fewer archives, days, weeks or epochs"), "{stderr}");
    assert_eq!(read_latest(disk.path()), [FULL_26]);
    fs::remove_file(filler).expect("removed");
    setup.publish_once(&to);
    assert_eq!(read_latest(disk.path()), [FULL_3500]);
}
