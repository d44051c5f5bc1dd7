//! A directory of archives.

use std::fs;

use slotpress::catalog::Archive;
use slotpress::verify::{VerifyOptions, verify_catalog};
use slotpress::{ErrorKind, NamedArchive, NoProgress};

use crate::common::listed::objects;
use crate::common::served::two_archives;
use crate::common::*;

/// All archives of a directory are verified, with one line each.
#[test]
fn a_directory_is_verified() {
    let dir = two_archives();
    let verify = || {
        let output = slotpress().arg("verify").arg(dir.path()).output().expect("runs");
        (output.status.code(), String::from_utf8(output.stdout).expect("text"))
    };
    let (code, said) = verify();
    assert_eq!((code, said.lines().filter(|line| line.starts_with("ok  ")).count()), (Some(0), 2), "{said}");
    assert!(said.ends_with("\n2 archives: 2 good\n"), "{said}");
    let mut bytes = fs::read(fixture(FULL_26)).expect("read");
    fs::write(dir.path().join(FULL_26.replace("-26-", "-9-")), &bytes[..bytes.len() / 2]).expect("written");
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    fs::write(dir.path().join(FULL_26.replace("-26-", "-27-")), &bytes).expect("written");
    let (code, said) = verify();
    assert_eq!(code, Some(3), "{said}");
    let failed: Vec<&str> = said.lines().filter(|line| line.starts_with("FAILED  ")).collect();
    let is_of = |slot: &str, why: &str| failed.iter().any(|line| line.contains(slot) && line.contains(why));
    assert!(failed.len() == 2 && is_of("-27-", "and 1 more") && is_of("-9-", "the archive is cut off"), "{said}");
    assert!(said.ends_with("\n4 archives: 2 good; 2 damaged\n"), "{said}");
}

/// What a quick check leaves out is said, for an archive whose accounts are damaged too.
#[test]
fn a_quick_check_is_not_a_whole_one() {
    let ledger = ledger("ledger-at-26");
    let dir = temp_dir();
    let path = archive(ledger.path(), dir.path(), &["--frame-size", "64KiB"]);
    let mut bytes = fs::read(&path).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).expect("written");
    let output = slotpress().args(["verify", "--quick"]).arg(dir.path()).output().expect("runs");
    let left_out = "1 without a failure, but not all checks were made: frames, entries, records, state";
    let said = format!("partly  {}\n1 archive: 0 good; {left_out}\n", path.display());
    assert_eq!((output.status.code(), String::from_utf8(output.stdout).expect("text")), (Some(0), said));
    let lines = json_lines(slotpress().args(["verify", "--quick", "--json"]).arg(dir.path()));
    let last = lines.last().expect("a line");
    assert_eq!((&last["type"], &last["good"], &last["partly"]), (&"verified".into(), &0.into(), &1.into()));
}

/// A file has the same verdict alone and in its directory; what cannot be opened has an object too.
#[test]
fn a_directory_has_the_verdicts_of_its_files() {
    let dir = temp_dir();
    let path = dir.path().join(FULL_26);
    fs::write(&path, [fs::read(fixture(FULL_26)).expect("read").as_slice(), b"x"].concat()).expect("written");
    for (client, code) in [("agave-4.2", 0), ("firedancer", 3)] {
        for input in [&path, dir.path()] {
            let output = slotpress().args(["verify", "--for", client]).arg(input).output().expect("runs");
            assert_eq!(output.status.code(), Some(code), "{client}: {}", input.display());
        }
    }
    fs::write(&path, "x").expect("written");
    let output = slotpress().args(["verify", "--json"]).arg(dir.path()).output().expect("runs");
    let [line, last] = &objects(&output.stdout)[..] else { panic!("two lines") };
    assert_eq!((output.status.code(), &line["type"]), (Some(3), &"archive_not_checked".into()), "{line}");
    assert_eq!((&line["file"], &line["damaged"]), (&text(&path).into(), &true.into()), "{line}");
    assert_eq!(last["damaged"], 1, "{last}");
}

/// Faults of a full archive are not reported for the incremental one on it.
#[test]
fn a_good_archive_is_not_blamed_for_its_full_one() {
    let bytes = fs::read(fixture(FULL_26)).expect("read");
    let mut flipped = bytes.clone();
    let cut = &bytes[..bytes.len() / 2];
    flipped[bytes.len() / 2] ^= 1;
    for damaged in [&flipped, cut] {
        let dir = two_archives();
        fs::write(dir.path().join(FULL_26), damaged).expect("written");
        let verify = |flags: &[&str]| {
            let output = slotpress().arg("verify").arg(dir.path()).args(flags).output().expect("runs");
            let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("text"));
            (output.status.code(), said)
        };
        let (code, [said, errors]) = verify(&[]);
        let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("FAILED  ")).collect();
        assert!(code == Some(3) && lines.len() == 1 && lines[0].contains(FULL_26), "{said}");
        let path = dir.path().join(INCREMENTAL_26_40);
        let expected = format!("partly  {}: its full archive {FULL_26} is damaged", path.display());
        assert!(said.lines().any(|line| line.starts_with(&expected)), "{said}");
        assert!(errors.contains("1 of 2 archives in "), "{errors}");
        let (_, [quiet, _]) = verify(&["-q"]);
        assert!(!quiet.lines().any(|line| line == path.display().to_string()), "what -q prints is good: {quiet}");
        let (_, [json, _]) = verify(&["--json"]);
        let line = objects(json.as_bytes()).into_iter().find(|line| line["type"] == "archive_not_checked");
        assert_eq!(line.expect("a line")["reason"], format!("its full archive {FULL_26} is damaged"));
        // A good copy elsewhere in the directory is used.
        fs::create_dir(dir.path().join("remote")).expect("made");
        fs::copy(fixture(FULL_26), dir.path().join("remote").join(FULL_26)).expect("copied");
        let (_, [said, _]) = verify(&[]);
        assert!(said.contains(&format!("ok      {}\n", path.display())), "{said}");
        // Its own faults are reported.
        let mut own = fs::read(&path).expect("read");
        let middle = own.len() / 2;
        own[middle] ^= 1;
        fs::write(&path, own).expect("written");
        let (_, [said, _]) = verify(&[]);
        assert!(said.contains(&format!("FAILED  {}", path.display())), "{said}");
    }
}

/// An incremental archive without its full one is not reported as good, unless only frames are
/// checked.
#[test]
fn an_incremental_archive_alone_is_not_reported_as_good() {
    let dir = two_archives();
    fs::remove_file(dir.path().join(FULL_26)).expect("removed");
    let verify = |flags: &[&str]| {
        let output = slotpress().arg("verify").arg(dir.path()).args(flags).output().expect("runs");
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("text"));
        (output.status.code(), said)
    };
    let path = dir.path().join(INCREMENTAL_26_40).display().to_string();
    let why = "its full archive is not here";
    let (code, [said, errors]) = verify(&[]);
    let left_out = "1 without a failure, but not all checks were made: records, state";
    assert_eq!((code, said), (Some(1), format!("partly  {path}: {why}\n1 archive: 0 good; {left_out}\n")));
    let errors = errors.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(errors.contains(&format!("its state was not checked: {why}")), "{errors}");
    assert!(errors.contains("hint: give its full archive too, or check only frames: --check frames"), "{errors}");
    assert_eq!(verify(&["-q"]).1[0], "", "what -q prints is good");
    let (code, [json, _]) = verify(&["--json"]);
    let line = objects(json.as_bytes()).into_iter().find(|line| line["type"] == "archive_not_checked");
    assert_eq!((code, &line.expect("a line")["reason"]), (Some(1), &why.into()));
    for flags in [&["--check", "frames"], &["--quick", "--check=state"]] {
        let (code, [said, _]) = verify(flags);
        assert!(code == Some(0) && said.starts_with(&format!("partly  {path}\n1 archive: 0 good; ")), "{said}");
    }
    let catalog = slotpress::catalog::scan(&[dir.path().into()]).expect("scanned");
    let open = |archive: &Archive, _| Ok(NamedArchive::from_path(archive.path()));
    let verdict = verify_catalog(&catalog, &open, &VerifyOptions::default(), &NoProgress, &mut |_| {});
    let error = verdict.expect("verified").require_ok("here").expect_err("not checked");
    assert_eq!(error.kind(), ErrorKind::Failed, "{error}");
}
