//! Verdicts as an operator reads them, and the hints that follow.

use std::fs;
use std::path::Path;

use crate::common::screen::*;
use crate::common::*;

/// Returns the pair, under its names and under others.
fn pairs(dir: &Path) -> [(String, String); 2] {
    let renamed = (dir.join("full.tar.zst"), dir.join("incremental.tar.zst"));
    fs::copy(fixture(FULL_26), &renamed.0).expect("copied");
    fs::copy(fixture(INCREMENTAL_26_40), &renamed.1).expect("copied");
    let named = (fixture(FULL_26), fixture(INCREMENTAL_26_40));
    [named, renamed].map(|(full, incremental)| (text(&full).to_string(), text(&incremental).to_string()))
}

#[test]
fn swapped_archives_are_recognised() {
    let dir = temp_dir();
    let [named, renamed] = pairs(dir.path());
    let target = dir.path().join("ledger");
    for (full, incremental) in [&named, &renamed] {
        let said = fails(
            &["verify", incremental, full],
            2,
            &["the two archives are swapped", "hint: give the full archive first"],
        );
        assert_eq!(said.lines().count(), 2, "{said}");
    }
    // Without names, `restore` finds only that the archives do not fit.
    for ((full, incremental), code, words) in [(&named, 2, "the two archives are swapped"), (&renamed, 3, "")] {
        fails(&["restore", incremental, full, "--ledger", text(&target)], code, &[words]);
        assert!(!target.join("snapshots").exists());
    }
}

/// The state of an incremental archive without a name does not add up.
#[test]
fn an_archive_without_a_name_may_be_an_incremental_one() {
    let dir = temp_dir();
    let [_, (_, incremental)] = pairs(dir.path());
    let (target, out) = (dir.path().join("ledger"), dir.path().join("out"));
    fs::create_dir(&out).expect("made");
    let words = ["add up to the bank file's", "if it is an incremental archive, give its full archive"];
    fails(&["restore", &incremental, "--ledger", text(&target)], 3, &words);
    fails(&["recompress", &incremental, "-o", text(&out)], 3, &words);
    let output = slotpress().args(["verify", &incremental]).output().expect("runs");
    let said = String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(output.status.code() == Some(3) && words.iter().all(|words| said.contains(words)), "{said}");
}

/// What is not zstd is good for a client that reads it, and otherwise not good.
#[test]
fn other_compressions() {
    let (dir, lz4) = (temp_dir(), temp_dir());
    assert_eq!(run(&["recompress", text(&fixture(FULL_26)), "--format", "lz4", "-o", text(lz4.path())]).0, 0);
    let tar = tar_of(&fixture(FULL_26));
    let put = |extension: &str, bytes: &[u8]| {
        let path = dir.path().join(FULL_26.replace("tar.zst", extension));
        fs::write(&path, bytes).expect("written");
        path
    };
    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    std::io::Write::write_all(&mut bzip2, &tar).expect("compressed");
    let lz4 = lz4.path().join(&names(lz4.path())[0]);
    for (path, client) in [(&lz4, "agave"), (&put("tar", &tar), "firedancer")] {
        let (code, said, _) = run(&["verify", text(path), "--for", client]);
        assert!(code == 0 && said.contains("loads it") && said.contains("frames   ok"), "{said}");
        let (code, said, _) = run(&["verify", text(path)]);
        assert!(code == 3 && said.contains("loads it") && said.contains("what to do: recompress it"), "{said}");
    }
    let (code, said, _) = run(&["verify", text(&put("tar.bz2", &bzip2.finish().expect("compressed")))]);
    assert!(
        code == 3 && said.matches("refuses it").count() == 2 && said.contains("what to do: recompress it"),
        "{said}"
    );
}

/// Every command that takes two archives gives the same two lines if they are not a pair.
#[test]
fn archives_that_are_no_pair() {
    let [full, other, incremental] = [FULL_26, FULL_3500, INCREMENTAL_26_40].map(fixture);
    let (dir, out) = (temp_dir(), temp_dir());
    let unnamed = dir.path().join("full.tar.zst");
    fs::copy(&other, &unnamed).expect("copied");
    let (target, out) = (out.path().join("ledger"), out.path().join("out"));
    fs::create_dir(&out).expect("made");
    for (first, second, words) in [
        (&full, &full, "both archives are full ones"),
        (&incremental, &incremental, "both archives are incremental ones"),
        (&other, &incremental, "the incremental archive builds on slot 26, but the full archive is of slot 3500"),
        (&unnamed, &incremental, "the incremental archive builds on slot 26, but the full archive is of slot 3500"),
    ] {
        let said = [
            fails(&["verify", text(first), text(second)], 2, &[words, "hint: give the full archive"]),
            fails(&["restore", text(first), text(second), "--ledger", text(&target)], 2, &[words]),
            fails(&["inspect", text(first), text(second), "--by-owner"], 2, &[words]),
        ];
        assert!(said.iter().all(|one| *one == said[0] && one.lines().count() == 2), "{said:?}");
        if *second == incremental {
            fails(&["recompress", text(second), "--base", text(first), "-o", text(&out)], 2, &[words]);
        }
    }
    assert_eq!(names(&out), [""; 0]);
}

/// Many similar failures take a few lines, unless all are requested.
#[test]
fn failures_that_are_alike_stand_together() {
    let ledger = ledger("ledger-at-40");
    let run_dir = ledger.path().join("accounts/run");
    for name in names(&run_dir).iter().take(10) {
        fs::remove_file(run_dir.join(name)).expect("removed");
    }
    let (code, grouped, _) = run(&["verify", text(ledger.path())]);
    assert_eq!(code, 3);
    assert_eq!(grouped.matches("failure: entries: a storage is missing").count(), 1, "{grouped}");
    let (_, all, _) = run(&["verify", "--all", text(ledger.path())]);
    // One of the ten records is not part of the state.
    let count = all.matches("failure: entries: a storage is missing").count();
    assert!((5..=10).contains(&count), "{all}");
    assert!(grouped.contains(&format!("  {count} storages: accounts/")), "{grouped}");
    assert!(grouped.contains("--all lists them") && !all.contains("--all lists them"), "{grouped}");
}

/// `inspect` and `verify` agree on an archive whose name is not its own.
#[test]
fn a_renamed_archive_has_one_verdict() {
    let dir = temp_dir();
    for name in ["renamed.tar.zst".to_string(), FULL_26.replace("-26-", "-27-")] {
        let path = dir.path().join(name);
        fs::copy(fixture(FULL_26), &path).expect("copied");
        let (_, inspected, _) = run(&["inspect", text(&path)]);
        let (code, verified, _) = run(&["verify", text(&path)]);
        assert_eq!(code, 3);
        for client in ["Agave 4.2 to 4.5: ", "Firedancer: "] {
            assert!(inspected.contains(&format!("{client}NO: ")), "{inspected}");
        }
        assert_eq!(verified.matches("refuses it: ").count(), 2, "{verified}");
    }
}

/// Room in a chosen --temporary-dir is checked before anything is read: no time is lost, and
/// nothing is written.
#[test]
fn a_temporary_directory_without_room_is_refused_at_once() {
    const HUGE_BYTES: u64 = 8 << 40;
    let dir = temp_dir();
    let on_disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let (archive, temporary) = (dir.path().join(FULL_26), on_disk.path());
    fs::copy(fixture(FULL_26), &archive).expect("copied");
    // A hole after the archive: its length gives the estimated unpacked size.
    fs::File::options().write(true).open(&archive).and_then(|file| file.set_len(HUGE_BYTES)).expect("grown");
    let arguments = ["verify", text(&archive), "--memory", "64MiB", "--temporary-dir"];
    fails(&[&arguments[..], &[text(temporary)]].concat(), 1, &["not enough space under ", "hint: "]);
    assert_eq!(names(temporary), Vec::<String>::new());
    // A directory in memory has no room either, whatever it reports.
    let memory = Path::new("/dev/shm");
    if dir.path().starts_with(memory) {
        let expected =
            ["/dev/shm is in memory too", "hint: give more --memory, or a directory on a disk: --temporary-dir"];
        fails(&[&arguments[..], &[text(memory)]].concat(), 1, &expected);
    }
}
