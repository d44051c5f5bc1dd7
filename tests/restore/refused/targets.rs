//! Archives and targets that cannot make up a ledger that boots are refused, and existing files stay unchanged.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use crate::common::disk::Disk;
use crate::common::*;
use crate::restore::target::*;

/// Asserts that the target and the directory around it have no files.
fn assert_nothing_left(target: &Target) {
    assert_eq!(relative_paths(target.dir.path()), Vec::<String>::new());
}

/// Asserts that a command fails with this exit code and these texts. Returns its stderr.
fn assert_fails(command: &mut assert_cmd::Command, code: i32, texts: &[&str]) -> String {
    let output = command.output().expect("runs");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(output.stdout.is_empty(), "nothing on stdout");
    assert!(stderr.starts_with("error: "), "{stderr}");
    for text in texts {
        assert!(stderr.contains(text), "{text:?} is not in: {stderr}");
    }
    stderr
}

#[test]
fn an_incremental_archive_without_its_full_one_is_refused() {
    let incremental = fixture(INCREMENTAL_26_40);
    let target = Target::new(0);
    assert_fails(
        &mut target.command(&[&incremental]),
        2,
        &["builds on slot 26", "hint: pass the full archive of slot 26 first"],
    );
    assert_nothing_left(&target);

    // Under another name, the archive does not look incremental.
    let dir = temp_dir();
    let renamed = dir.path().join("archive");
    fs::copy(&incremental, &renamed).expect("copied");
    assert_fails(
        &mut target.command(&[&renamed]),
        3,
        &["add up to the bank file's", "hint: if it is an incremental archive"],
    );
    assert_nothing_left(&target);

    let full = dir.path().join("full");
    fs::copy(fixture(FULL_3500), &full).expect("copied");
    assert_fails(&mut target.command(&[&full, &incremental]), 2, &["builds on slot 26", "slot 3500"]);
    assert_nothing_left(&target);
    assert_fails(&mut target.command(&[&fixture(FULL_3500), &incremental]), 2, &["builds on slot 26", "slot 3500"]);
    assert_fails(&mut target.command(&[&fixture(FULL_26), &fixture(FULL_3500)]), 2, &["both archives are full ones"]);
    assert_nothing_left(&target);
}

/// The full archive has the correct slot, but lacks a storage of the incremental archive's state.
#[test]
fn an_incremental_archive_on_another_full_one_is_refused() {
    let dir = temp_dir();
    let mut entries = entries(&fixture(FULL_26));
    entries.retain(|entry| entry.path != "accounts/5.5");
    let full = dir.path().join(FULL_26);
    fs::write(&full, zstd::stream::encode_all(make_tar(&entries).as_slice(), 1).expect("compresses")).expect("written");

    let alone = Target::new(0);
    // The check of the state finds the missing storage, unless a flag disables the check.
    assert_fails(&mut alone.command(&[&full]), 3, &["do not add up to the bank file's capitalization"]);
    assert_nothing_left(&alone);
    alone.command(&[&full]).args(["--check", "frames"]).assert().success();
    let target = Target::new(0);
    assert_fails(
        &mut target.command(&[&full, &fixture(INCREMENTAL_26_40)]),
        3,
        &["do not add up to the bank file's capitalization"],
    );
    assert_nothing_left(&target);
}

#[test]
fn an_archive_with_a_wrong_name_is_refused() {
    let dir = temp_dir();
    let hash = "D5jEKFz2JqBFLYETBEnvkiV47AnCXjXEdUgUU1XYNwsi";
    for renamed in [FULL_26.replace("-26-", "-27-"), format!("snapshot-26-{hash}.tar.zst")] {
        let path = dir.path().join(&renamed);
        fs::copy(fixture(FULL_26), &path).expect("copied");
        let target = Target::new(2);
        assert_fails(&mut target.command(&[&path]), 3, &["does not match its name", "hint: do not use it"]);
        assert_nothing_left(&target);
    }
}

/// If a disk is not mounted, its mount point may be missing. It is not made, because the files would then be on the wrong
/// disk.
#[test]
fn directories_of_unmounted_disks_are_not_made() {
    let target = Target::new(0);
    let path = target.dir.path().join("not-mounted/accounts");
    for flag in ["--accounts", "--snapshots"] {
        let words = ["not-mounted does not exist", "hint: mount its disk"];
        assert_fails(target.command(&[&fixture(FULL_26)]).arg(flag).arg(&path), 1, &words);
        assert_nothing_left(&target);
    }
    for command in [["synth", "--size=1MiB", "--"], ["demo", "--size=1MiB", "--keep"]] {
        assert_fails(slotpress().args(command).arg(&path), 1, &["not-mounted does not exist", "hint: mount its disk"]);
        assert_nothing_left(&target);
    }
}

#[test]
fn a_target_that_holds_a_state_is_refused() {
    let full = fixture(FULL_26);
    for path in ["snapshots/7/7", "accounts/run/1.1", "accounts/snapshot/7/1.1"] {
        let target = Target::new(0);
        let existing = target.ledger.join(path);
        fs::create_dir_all(existing.parent().expect("a parent")).expect("made");
        fs::write(&existing, "precious").expect("written");
        fs::write(target.ledger.join("ledger.lock"), "").expect("written");
        let before = tree(&target.ledger);
        assert_fails(&mut target.command(&[&full]), 5, &["already exists", "hint: restore into an empty directory"]);
        assert_eq!(before, tree(&target.ledger), "{path}");
    }
}

/// The error names old states that could be removed.
#[test]
fn a_lack_of_space_names_old_states() {
    needs!("sys_admin", "mount", "umount");
    let ledger = ledger("ledger-at-26");
    let out = temp_dir();
    let full = archive(ledger.path(), out.path(), &[]);
    let bytes = tar_of(&full).len() as u64 * 3 / 2 + fs::metadata(&full).expect("there").len();
    let disk = Disk::mount(&format!("size={bytes}"));
    let target = disk.path().join("ledger");
    let restore = |flags: &[&str]| {
        let mut command = slotpress();
        command.arg("restore").arg(&full).arg("--ledger").arg(&target).args(flags);
        command
    };
    restore(&[]).assert().success();
    let before = tree(&target);
    let parts = ["snapshots/26", "accounts/run"].map(|part| target.join(part).display().to_string());
    let aside = target.join("slotpress-replaced-1");
    fs::create_dir(&aside).expect("made");
    fs::write(aside.join("storage"), vec![1; 64 << 10]).expect("written");
    let aside = format!("{} (64 KiB)", aside.display());
    let hint = "hint: an old state could be removed, if you do not need it: ";
    assert_fails(
        &mut restore(&["--replace-state"]),
        1,
        &["not enough space", hint, &parts[0], &parts[1], "KiB), ", &aside],
    );
    fs::remove_dir_all(target.join("slotpress-replaced-1")).expect("removed");
    assert!(tree(&target) == before);
}

/// Such archives are refused even if they come from a pipe.
#[test]
fn compressions_that_agave_does_not_read_are_refused() {
    let dir = temp_dir();
    let tar = tar_of(&fixture(FULL_26));
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    gzip.write_all(&tar).expect("compressed");
    bzip2.write_all(&tar).expect("compressed");
    let gzip = gzip.finish().expect("compressed");
    let bzip2 = bzip2.finish().expect("compressed");
    for (extension, bytes) in [("tar", tar), ("tar.gz", gzip), ("tar.bz2", bzip2)] {
        let path = dir.path().join(FULL_26.replace("tar.zst", extension));
        fs::write(&path, &bytes).expect("written");
        let target = Target::new(0);
        let message = format!("Agave does not read .{extension} archives");
        let hint = "hint: recompress it first";
        assert_fails(&mut target.command(&[&path]), 1, &[&message, hint]);
        assert_nothing_left(&target);
        assert_fails(target.command(&[Path::new("-")]).write_stdin(bytes), 1, &["standard input: ", &message, hint]);
        assert_nothing_left(&target);
        // An incremental archive with such a compression is refused, too.
        let incremental = dir.path().join(INCREMENTAL_26_40.replace("tar.zst", extension));
        fs::copy(&path, &incremental).expect("copied");
        assert_fails(&mut target.command(&[&fixture(FULL_26), &incremental]), 1, &[&message]);
        assert_nothing_left(&target);
    }
}

#[test]
fn a_ledger_whose_lock_is_held_is_refused() {
    let target = Target::new(0);
    fs::create_dir(&target.ledger).expect("made");
    let lock = fs::File::create(target.ledger.join("ledger.lock")).expect("made");
    lock.lock().expect("locked");
    assert_fails(
        &mut target.command(&[&fixture(FULL_26)]),
        1,
        &["is in use", "held by ", "(process ", "hint: stop the"],
    );
    assert_eq!(relative_paths(&target.ledger), ["ledger.lock"]);
    unlock(lock);
    target.restore(&[&fixture(FULL_26)]);
}

/// If another slotpress uses the ledger, the error does not speak of a validator.
#[test]
fn a_ledger_that_another_slotpress_restores_is_refused() {
    let target = Target::new(0);
    let mut other = std::process::Command::new(slotpress_path());
    other.args(["restore", "-", "--ledger"]).arg(&target.ledger).stdin(Stdio::piped()).stderr(Stdio::null());
    let mut other = other.spawn().expect("starts");
    let is_begun = || {
        let mut entries = fs::read_dir(&target.ledger).into_iter().flatten().flatten();
        entries.any(|entry| name(&entry.path()).starts_with("tmp-snapshot-archive-slotpress-"))
    };
    let bytes = fs::read(fixture(FULL_26)).expect("read");
    other.stdin.as_mut().expect("a pipe").write_all(&bytes[..bytes.len() / 2]).expect("written");
    wait_for("the target to be locked", is_begun);
    let words = ["is in use", "held by slotpress (process ", "hint: wait until it is done"];
    let stderr = assert_fails(&mut target.command(&[&fixture(FULL_26)]), 1, &words);
    assert!(!stderr.contains("validator"), "{stderr}");
    drop(other.stdin.take());
    assert!(!other.wait().expect("ends").success(), "half an archive");
}

#[test]
fn overlapping_directories_are_refused() {
    let full = fixture(FULL_26);
    let target = Target::new(0);
    let mut same = target.command(&[&full]);
    same.arg("--accounts").arg(&target.ledger);
    assert_fails(&mut same, 2, &["is or overlaps another directory of this ledger", "hint: "]);
    let snapshots = target.dir.path().join("snapshots-path");
    let mut same = target.command(&[&full]);
    same.arg("--snapshots").arg(&snapshots).arg("--accounts").arg(&snapshots);
    assert_fails(&mut same, 2, &["is or overlaps another directory of this ledger"]);
    let mut twice = target.command(&[&full]);
    let dir = target.dir.path().join("accounts");
    twice.arg("--accounts").arg(&dir).arg("--accounts").arg(dir.join("."));
    assert_fails(&mut twice, 2, &["is or overlaps another directory of this ledger"]);
    let mut inside = target.command(&[&full]);
    inside.arg("--accounts").arg(&dir).arg("--accounts").arg(dir.join("run"));
    assert_fails(&mut inside, 2, &["is or overlaps another directory of this ledger"]);
    assert_nothing_left(&target);
}

/// A different archive of the same name in the target is not mistaken for the restored one, even if it has
/// the same length.
#[test]
fn another_archive_of_the_same_name_is_not_replaced() {
    for is_longer in [false, true] {
        let target = Target::new(0);
        fs::create_dir(&target.ledger).expect("made");
        let mut other = fs::read(fixture(FULL_26)).expect("read");
        other[1000] ^= 1;
        if is_longer {
            other.push(0);
        }
        fs::write(target.ledger.join(FULL_26), &other).expect("written");
        assert_fails(&mut target.command(&[&fixture(FULL_26)]), 5, &["already exists", "hint: "]);
        assert!(fs::read(target.ledger.join(FULL_26)).expect("read") == other);
        assert_eq!(relative_paths(&target.ledger), ["ledger.lock", FULL_26]);
    }
}

/// Agave compares the bank with the ledger's genesis, and exits if the creation time or the epoch
/// schedule differs.
#[test]
fn a_ledger_of_another_chain_is_refused() {
    let chains = [AGAVE_4_2, AGAVE_4_4, AGAVE_4_5];
    let genesis = |chain: &str| fs::read(fixture_of(chain, "genesis.bin")).expect("a genesis");
    for (number, chain) in chains.into_iter().enumerate() {
        let own_genesis = genesis(chain);
        // The epoch schedule is the last field but one; the kind of cluster follows. The schedule begins with the
        // slots per epoch, and ends with the first slot of an epoch of full length.
        let schedule = own_genesis.len() - 4 - 33;
        let altered = [schedule, own_genesis.len() - 5].map(|offset| {
            let mut altered = own_genesis.clone();
            altered[offset] ^= 1;
            altered
        });
        let other_genesis = genesis(chains[(number + 1) % 3]);
        let archive = fixture_of(chain, "snapshot-26-");
        for (content, is_own) in
            [(&own_genesis, true), (&other_genesis, false), (&altered[0], false), (&altered[1], false)]
        {
            let target = Target::new(0);
            fs::create_dir_all(&target.ledger).expect("made");
            fs::write(target.ledger.join("genesis.bin"), content).expect("written");
            let assert = target.command(&[&archive]).assert();
            assert_eq!(target.ledger.join("snapshots/26/fastboot_version").exists(), is_own, "{chain}");
            if is_own {
                assert.success();
                continue;
            }
            let stderr = String::from_utf8_lossy(&assert.code(3).get_output().stderr).into_owned();
            assert!(stderr.contains("is from a different chain than"), "{stderr}");
            assert!(stderr.contains("genesis.bin"), "{stderr}");
            let left: Vec<String> =
                relative_paths(&target.ledger).into_iter().filter(|name| name != "ledger.lock").collect();
            assert_eq!(left, ["genesis.bin"]);
        }
    }
}
