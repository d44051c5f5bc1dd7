//! Verdicts and hints of `verify`, as an operator reads them.

use std::fs;
use std::path::Path;

use slotpress::verify::{CheckOptions, VerifyOptions};
use slotpress::{NoProgress, Snapshot};
use tempfile::TempDir;

use crate::common::screen::*;
use crate::common::*;

struct Pair {
    full: String,
    incremental: String,
}

/// Returns the pair of the fixtures.
fn fixture_pair() -> Pair {
    let [full, incremental] = [FULL_26, INCREMENTAL_26_40].map(|name| text(&fixture(name)).to_string());
    Pair { full, incremental }
}

/// Copies the pair under names from which no slot and hash can be read.
fn copy_pair_without_names(dir: &Path) -> Pair {
    let copy = |fixture_name: &str, name: &str| {
        let path = dir.join(name);
        fs::copy(fixture(fixture_name), &path).expect("copied");
        text(&path).to_string()
    };
    let full = copy(FULL_26, "full.tar.zst");
    Pair { full, incremental: copy(INCREMENTAL_26_40, "incremental.tar.zst") }
}

/// Runs `verify`; returns its exit code, and its output in one line.
fn verify(arguments: &[&str]) -> (i32, String) {
    let (code, stdout, _) = run_to_text(&[&["verify"], arguments].concat());
    (code, stdout.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[test]
fn archives_with_names_may_be_in_any_order() {
    let dir = temp_dir();
    let Pair { full, incremental } = fixture_pair();
    let target = dir.path().join("ledger");
    for arguments in
        [["verify", &incremental, &full].as_slice(), &["restore", &incremental, &full, "--ledger", text(&target)]]
    {
        let (code, stdout, stderr) = run_to_text(arguments);
        assert_eq!(code, 0, "{stdout}{stderr}");
        assert!(stdout.contains(" 40 on "), "{stdout}");
    }
}

#[test]
fn archives_without_names_must_be_in_order() {
    let dir = temp_dir();
    let Pair { full, incremental } = copy_pair_without_names(dir.path());
    let target = dir.path().join("ledger");
    let texts = ["the two archives are swapped", "hint: pass the full archive first"];
    let stderr = assert_fails(&["verify", &incremental, &full], 2, &texts);
    assert_eq!(stderr.lines().count(), 2, "{stderr}");
    // `restore` finds only that the archives do not fit.
    assert_fails(&["restore", &incremental, &full, "--ledger", text(&target)], 3, &[]);
    assert!(!target.join("snapshots").exists());
}

/// Creates a directory like a validator's snapshots directory, with two full archives and two incremental ones on each.
fn make_snapshots_directory() -> TempDir {
    let dir = temp_dir();
    for name in [FULL_26, INCREMENTAL_26_40, FULL_3500, INCREMENTAL_3500_3550] {
        fs::copy(fixture(name), dir.path().join(name)).expect("copied");
    }
    for (name, slot, other_slot) in [(INCREMENTAL_26_40, "-40-", "-39-"), (INCREMENTAL_3500_3550, "-3550-", "-3549-")] {
        fs::copy(fixture(name), dir.path().join(name.replace(slot, other_slot))).expect("copied");
    }
    dir
}

/// Returns the paths of all files in a directory, in reverse order.
fn paths_in(dir: &Path) -> Vec<String> {
    relative_paths(dir).iter().rev().map(|name| text(&dir.join(name)).to_string()).collect()
}

#[test]
fn the_newest_state_is_chosen_from_many_archives() {
    let dir = make_snapshots_directory();
    let out = temp_dir();
    let paths = paths_in(dir.path());
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let ledgers = [out.path().join("from-paths"), out.path().join("from-directory")];
    for (archives, ledger) in [(&paths[..], &ledgers[0]), (&[text(dir.path())], &ledgers[1])] {
        let (code, stdout, stderr) = run_to_text(&[&["restore"], archives, &["--ledger", text(ledger)]].concat());
        assert_eq!(code, 0, "{stdout}{stderr}");
        assert!(stdout.contains("  3550 on the full archive of slot 3500"), "{stdout}");
        let (code, stdout, _) = run_to_text(&[&["verify", "--newest"], archives].concat());
        assert_eq!(code, 0, "{stdout}");
        assert!(stdout.contains("  slot 3550 on 3500"), "{stdout}");
        assert!(stdout.contains("GOOD: "), "{stdout}");
        let (code, stdout, stderr) =
            run_to_text(&[&["recompress", "--force", "-o", text(out.path())], archives].concat());
        assert_eq!(code, 0, "{stdout}{stderr}");
        let recompressed = [FULL_3500, INCREMENTAL_3500_3550].map(|name| out.path().join(name));
        for path in &recompressed {
            assert!(stdout.contains(text(path)), "{stdout}");
        }
        let (code, stdout) = verify(&recompressed.each_ref().map(|path| text(path)));
        assert_eq!(code, 0, "{stdout}");
    }
}

#[test]
fn verify_checks_each_of_many_archives() {
    let dir = make_snapshots_directory();
    let paths = paths_in(dir.path());
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    for archives in [&paths[..], &[text(dir.path())]] {
        let (code, stdout, _) = run_to_text(&[&["verify"], archives].concat());
        assert_eq!(code, 3, "{stdout}");
        assert!(stdout.ends_with("\n6 archives: 4 good; 2 damaged\n"), "{stdout}");
    }
}

#[test]
fn one_of_many_archives_without_a_name_is_a_usage_error() {
    let dir = make_snapshots_directory();
    let unnamed = dir.path().join("unnamed");
    let paths = paths_in(dir.path());
    fs::copy(fixture(FULL_26), &unnamed).expect("copied");
    let archives: Vec<&str> = [text(&unnamed)].into_iter().chain(paths.iter().map(String::as_str)).collect();
    assert_fails(&[&["verify"], &archives[..]].concat(), 2, &["unnamed does not have the name of an archive"]);
}

#[test]
fn the_right_name_of_a_renamed_archive_is_reported() {
    let dir = temp_dir();
    let full = fixture_pair().full;
    let renamed = copy_pair_without_names(dir.path());
    let misnamed = dir.path().join(FULL_26.replace("-26-", "-27-"));
    fs::copy(&full, &misnamed).expect("copied");
    for path in [renamed.full.as_str(), text(&misnamed)] {
        let (code, stdout) = verify(&[path]);
        assert_eq!(code, 3, "{stdout}");
        let remedy = format!("what to do: everything except the name is valid: name it {FULL_26}");
        assert!(stdout.contains(&remedy), "{stdout}");
    }
    let (code, stdout) = verify(&[&full, &renamed.incremental]);
    assert_eq!(code, 3, "{stdout}");
    assert!(stdout.contains(&format!("name it {INCREMENTAL_26_40}")), "{stdout}");
}

#[test]
fn no_name_is_reported_if_the_archive_may_be_incremental() {
    let dir = temp_dir();
    let renamed = copy_pair_without_names(dir.path());
    for arguments in [&[&*renamed.incremental][..], &[&renamed.full, "--quick"]] {
        let (code, stdout) = verify(arguments);
        assert_eq!(code, 3, "{stdout}");
        assert!(!stdout.contains("name it"), "{stdout}");
    }
}

/// Without its name, an incremental archive looks like a full one whose state does not add up.
#[test]
fn an_archive_without_a_name_may_be_an_incremental_one() {
    let dir = temp_dir();
    let incremental = copy_pair_without_names(dir.path()).incremental;
    let target = dir.path().join("ledger");
    let out = dir.path().join("out");
    fs::create_dir(&out).expect("made");
    let texts = ["add up to the bank file's", "if it is an incremental archive, pass its full archive"];
    assert_fails(&["restore", &incremental, "--ledger", text(&target)], 3, &texts);
    assert_fails(&["recompress", &incremental, "-o", text(&out)], 3, &texts);
    let (code, stdout) = verify(&[&incremental]);
    assert_eq!(code, 3, "{stdout}");
    for text in texts {
        assert!(stdout.contains(text), "{stdout}");
    }
}

/// An archive that is not compressed with zstd is good if the chosen client reads it. Without a chosen
/// client, it is not good.
#[test]
fn archives_in_other_formats_are_good_for_clients_that_read_them() {
    let dir = temp_dir();
    let lz4_dir = temp_dir();
    let (code, _, stderr) =
        run_to_text(&["recompress", text(&fixture(FULL_26)), "--format", "lz4", "-o", text(lz4_dir.path())]);
    assert_eq!(code, 0, "{stderr}");
    let lz4 = lz4_dir.path().join(&relative_paths(lz4_dir.path())[0]);
    let tar = dir.path().join(FULL_26.replace("tar.zst", "tar"));
    fs::write(&tar, tar_of(&fixture(FULL_26))).expect("written");
    for (path, client) in [(&lz4, "agave"), (&tar, "firedancer")] {
        let (code, stdout, _) = run_to_text(&["verify", text(path), "--for", client]);
        assert_eq!(code, 0, "{stdout}");
        assert!(stdout.contains("loads it"), "{stdout}");
        assert!(stdout.contains("frames   ok"), "{stdout}");
        let (code, stdout, _) = run_to_text(&["verify", text(path)]);
        assert_eq!(code, 3, "{stdout}");
        assert!(stdout.contains("loads it"), "{stdout}");
        assert!(stdout.contains("what to do: recompress it"), "{stdout}");
    }
}

#[test]
fn all_clients_refuse_an_archive_in_bzip2() {
    let dir = temp_dir();
    let path = dir.path().join(FULL_26.replace("tar.zst", "tar.bz2"));
    let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    std::io::Write::write_all(&mut encoder, &tar_of(&fixture(FULL_26))).expect("compressed");
    fs::write(&path, encoder.finish().expect("compressed")).expect("written");
    let (code, stdout, _) = run_to_text(&["verify", text(&path)]);
    assert_eq!(code, 3, "{stdout}");
    assert_eq!(stdout.matches("refuses it").count(), 2, "{stdout}");
    assert!(stdout.contains("what to do: recompress it"), "{stdout}");
}

/// `verify`, `restore` and `inspect` print the same two lines if two archives are not a pair. `recompress` prints the same
/// error.
#[test]
fn archives_that_are_not_a_pair_are_a_usage_error() {
    let [full, other, incremental] = [FULL_26, FULL_3500, INCREMENTAL_26_40].map(fixture);
    let dir = temp_dir();
    let out = temp_dir();
    let unnamed = dir.path().join("full.tar.zst");
    fs::copy(&other, &unnamed).expect("copied");
    let target = out.path().join("ledger");
    let out = out.path().join("out");
    fs::create_dir(&out).expect("made");
    for (first, second, error) in [
        (&full, &full, "both archives are full ones"),
        (&incremental, &incremental, "both archives are incremental ones"),
        (&other, &incremental, "the incremental archive builds on slot 26, but the full archive is of slot 3500"),
        (&unnamed, &incremental, "the incremental archive builds on slot 26, but the full archive is of slot 3500"),
    ] {
        let stderr = assert_fails(&["verify", text(first), text(second)], 2, &[error, "hint: pass the full archive"]);
        assert_eq!(stderr.lines().count(), 2, "{stderr}");
        let restore = ["restore", text(first), text(second), "--ledger", text(&target)];
        assert_eq!(assert_fails(&restore, 2, &[error]), stderr);
        assert_eq!(assert_fails(&["inspect", text(first), text(second), "--by-owner"], 2, &[error]), stderr);
        if *second == incremental {
            assert_fails(&["recompress", text(second), "--base", text(first), "-o", text(&out)], 2, &[error]);
        }
    }
    assert_eq!(relative_paths(&out), [""; 0]);
}

#[test]
fn only_the_first_three_of_many_similar_failures_are_printed() {
    let ledger = ledger("ledger-at-40");
    let run_dir = ledger.path().join("accounts/run");
    for name in relative_paths(&run_dir).iter().take(10) {
        fs::remove_file(run_dir.join(name)).expect("removed");
    }
    let (code, stdout, _) = run_to_text(&["verify", text(ledger.path())]);
    assert_eq!(code, 3, "{stdout}");
    let (_, report, _) = run_to_first_line(&["verify", text(ledger.path())], None);
    // Some of the ten storages may not be part of the state.
    let failures = report["failures"].as_array().expect("failures").len();
    assert!((5..=10).contains(&failures), "{report}");
    assert_eq!(stdout.matches("failure: entries: a storage is missing").count(), 3, "{stdout}");
    assert!(stdout.contains(&format!("and {} more (`--json` lists", failures - 3)), "{stdout}");
}

#[test]
fn inspect_and_verify_agree_on_a_renamed_archive() {
    let dir = temp_dir();
    for name in ["renamed.tar.zst".to_string(), FULL_26.replace("-26-", "-27-")] {
        let path = dir.path().join(name);
        fs::copy(fixture(FULL_26), &path).expect("copied");
        let (_, inspected, _) = run_to_text(&["inspect", text(&path)]);
        let (code, verified, _) = run_to_text(&["verify", text(&path)]);
        assert_eq!(code, 3);
        for client in ["Agave 4.2 to 4.5: ", "Firedancer: "] {
            assert!(inspected.contains(&format!("{client}NO: ")), "{inspected}");
        }
        assert_eq!(verified.matches("refuses it: ").count(), 2, "{verified}");
    }
}

/// If there is too little space for temporary files, nothing is written.
#[test]
fn a_temporary_directory_without_space_is_refused() {
    const HUGE_BYTES: u64 = 8 << 40;
    let dir = temp_dir();
    let on_disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let archive = dir.path().join(FULL_26);
    let temporary_dir = on_disk.path();
    fs::copy(fixture(FULL_26), &archive).expect("copied");
    // A hole after the archive makes it longer. The unpacked size is estimated from the length.
    fs::File::options().write(true).open(&archive).and_then(|file| file.set_len(HUGE_BYTES)).expect("grown");
    let verify_error = |dir: &Path| {
        let check = CheckOptions::default().memory_bytes(64 << 20).temporary_dir(dir.to_path_buf());
        let options = VerifyOptions::default().check(check);
        slotpress_read::verify(&Snapshot::archive(&archive), &options, &NoProgress).expect_err("no space").to_string()
    };
    assert!(verify_error(temporary_dir).contains("not enough space under "));
    assert_eq!(relative_paths(temporary_dir), Vec::<String>::new());
    // A directory in memory is refused, whatever free space it reports.
    let memory = Path::new("/dev/shm");
    if dir.path().starts_with(memory) {
        assert!(verify_error(memory).contains("/dev/shm is in memory too"));
    }
}
