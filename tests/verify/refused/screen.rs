//! Verdicts as an operator reads them, and the hints that follow.

use std::fs;
use std::path::Path;

use slotpress::verify::{CheckOptions, VerifyOptions};
use slotpress::{NamedArchive, NoProgress, Snapshot};

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

/// Archives may be in any order where their names say which is which.
#[test]
fn archives_in_any_order() {
    let dir = temp_dir();
    let [(full, incremental), renamed] = pairs(dir.path());
    let target = dir.path().join("ledger");
    let words = ["the two archives are swapped", "hint: give the full archive first"];
    let said = fails(&["verify", &renamed.1, &renamed.0], 2, &words);
    assert_eq!(said.lines().count(), 2, "{said}");
    // Without names, `restore` finds only that the archives do not fit.
    fails(&["restore", &renamed.1, &renamed.0, "--ledger", text(&target)], 3, &[]);
    assert!(!target.join("snapshots").exists());
    for arguments in
        [["verify", &incremental, &full].as_slice(), &["restore", &incremental, &full, "--ledger", text(&target)]]
    {
        let (code, said, errors) = run(arguments);
        assert!(code == 0 && said.contains(" 40 on "), "{said}{errors}");
    }
}

/// A snapshots directory as validators have it: two full archives, and two incremental ones on each.
#[test]
fn a_state_is_chosen_of_many_archives() {
    let dir = temp_dir();
    let out = temp_dir();
    let names = [FULL_26, INCREMENTAL_26_40, FULL_3500, INCREMENTAL_3500_3550];
    for name in names {
        fs::copy(fixture(name), dir.path().join(name)).expect("copied");
    }
    for (base, later) in [(INCREMENTAL_26_40, ("-40-", "-39-")), (INCREMENTAL_3500_3550, ("-3550-", "-3549-"))] {
        fs::copy(fixture(base), dir.path().join(base.replace(later.0, later.1))).expect("copied");
    }
    let listed: Vec<String> =
        crate::common::names(dir.path()).iter().map(|name| text(&dir.path().join(name)).to_string()).collect();
    let listed: Vec<&str> = listed.iter().rev().map(String::as_str).collect();
    let ledgers = [out.path().join("of-the-list"), out.path().join("of-the-directory")];
    for (archives, ledger) in [(&listed[..], &ledgers[0]), (&[text(dir.path())], &ledgers[1])] {
        let (code, said, errors) = run(&[&["restore"], archives, &["--ledger", text(ledger)]].concat());
        assert!(code == 0 && said.contains("  3550 on the full archive of slot 3500"), "{said}{errors}");
        let (code, said, _) = run(&[&["verify", "--newest"], archives].concat());
        assert!(code == 0 && said.contains("  slot 3550 on 3500") && said.contains("GOOD: "), "{said}");
        let (code, said, _) = run(&[&["verify"], archives].concat());
        assert!(code == 3 && said.ends_with("\n6 archives: 4 good; 2 damaged\n"), "{said}");
        let (code, said, errors) = run(&[&["recompress", "--force", "-o", text(out.path())], archives].concat());
        let made = [FULL_3500, INCREMENTAL_3500_3550].map(|name| out.path().join(name));
        assert!(code == 0 && made.iter().all(|path| said.contains(text(path))), "{said}{errors}");
        let (code, said, _) = run(&["verify", text(&made[0]), text(&made[1])]);
        assert_eq!(code, 0, "{said}");
    }
    let unnamed = dir.path().join("unnamed");
    fs::copy(fixture(FULL_26), &unnamed).expect("copied");
    fails(&[&["verify", text(&unnamed)], &listed[..]].concat(), 2, &["unnamed does not have the name of an archive"]);
}

/// An archive that is good but for its name is told the name.
#[test]
fn the_name_of_a_renamed_archive_is_told() {
    let dir = temp_dir();
    let [(full, _), (renamed, incremental)] = pairs(dir.path());
    let wrong = dir.path().join(FULL_26.replace("-26-", "-27-"));
    fs::copy(&full, &wrong).expect("copied");
    let said = |arguments: &[&str]| {
        let (code, said, _) = run(&[&["verify"], arguments].concat());
        assert_eq!(code, 3, "{said}");
        said.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    for path in [renamed.as_str(), text(&wrong)] {
        assert!(said(&[path]).contains(&format!("what to do: all but the name is good: name it {FULL_26}")));
    }
    assert!(said(&[&full, &incremental]).contains(&format!("name it {INCREMENTAL_26_40}")));
    for arguments in [&[&*incremental][..], &[&renamed, "--quick"]] {
        assert!(!said(arguments).contains("name it"), "it may be an incremental archive");
    }
}

/// The state of an incremental archive without a name does not add up.
#[test]
fn an_archive_without_a_name_may_be_an_incremental_one() {
    let dir = temp_dir();
    let [_, (_, incremental)] = pairs(dir.path());
    let target = dir.path().join("ledger");
    let out = dir.path().join("out");
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
    let dir = temp_dir();
    let lz4 = temp_dir();
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
    let dir = temp_dir();
    let out = temp_dir();
    let unnamed = dir.path().join("full.tar.zst");
    fs::copy(&other, &unnamed).expect("copied");
    let target = out.path().join("ledger");
    let out = out.path().join("out");
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

/// Of many similar failures, the first three are printed.
#[test]
fn failures_that_are_alike_stand_together() {
    let ledger = ledger("ledger-at-40");
    let run_dir = ledger.path().join("accounts/run");
    for name in names(&run_dir).iter().take(10) {
        fs::remove_file(run_dir.join(name)).expect("removed");
    }
    let (code, said, _) = run(&["verify", text(ledger.path())]);
    let (_, report, _) = run_json(&["verify", text(ledger.path())], None);
    // One of the ten records is not part of the state.
    let all = report["failures"].as_array().expect("failures").len();
    assert!(code == 3 && (5..=10).contains(&all), "{report}");
    assert_eq!(said.matches("failure: entries: a storage is missing").count(), 3, "{said}");
    assert!(said.contains(&format!("and {} more (`--json` lists", all - 3)), "{said}");
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

/// Room in a chosen directory for temporary files is checked before anything is read: no time is
/// lost, and nothing is written.
#[test]
fn a_temporary_directory_without_room_is_refused_at_once() {
    const HUGE_BYTES: u64 = 8 << 40;
    let dir = temp_dir();
    let on_disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let archive = dir.path().join(FULL_26);
    let temporary = on_disk.path();
    fs::copy(fixture(FULL_26), &archive).expect("copied");
    // A hole after the archive: its length gives the estimated unpacked size.
    fs::File::options().write(true).open(&archive).and_then(|file| file.set_len(HUGE_BYTES)).expect("grown");
    let verify = |dir: &Path| {
        let check = CheckOptions::default().memory_bytes(64 << 20).temporary_dir(dir.to_path_buf());
        let options = VerifyOptions::default().check(check);
        slotpress_read::verify(Snapshot::archive(&NamedArchive::from_path(&archive)), &options, &NoProgress)
            .expect_err("no room")
            .to_string()
    };
    assert!(verify(temporary).contains("not enough space under "));
    assert_eq!(names(temporary), Vec::<String>::new());
    // A directory in memory has no room either, whatever it reports.
    let memory = Path::new("/dev/shm");
    if dir.path().starts_with(memory) {
        assert!(verify(memory).contains("/dev/shm is in memory too"));
    }
}
