//! A directory of archives.

use std::fs;

use slotpress::catalog::Archive;
use slotpress::{ErrorKind, NamedArchive, NoProgress, VerifyOptions, verify_catalog};

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
    let mut bytes = fs::read(fixture(FULL_26)).expect("read");
    fs::write(dir.path().join(FULL_26.replace("-26-", "-9-")), &bytes[..bytes.len() / 2]).expect("written");
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    fs::write(dir.path().join(FULL_26.replace("-26-", "-27-")), &bytes).expect("written");
    let (code, said) = verify();
    assert_eq!(code, Some(3), "{said}");
    let failed: Vec<&str> = said.lines().filter(|line| line.starts_with("FAILED  ")).collect();
    assert!(failed.len() == 2 && failed[0].contains("-27-") && failed[1].contains("it has no end"), "{said}");
}

/// Faults of a full archive are not reported for the incremental one on it.
#[test]
fn a_good_archive_is_not_blamed_for_its_full_one() {
    let bytes = fs::read(fixture(FULL_26)).expect("read");
    let (mut flipped, cut) = (bytes.clone(), &bytes[..bytes.len() / 2]);
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
        let expected = format!("not checked  {}: its full archive {FULL_26} is damaged", path.display());
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
    assert_eq!((code, said), (Some(1), format!("not checked  {path}: {why}; its frames and files are good\n")));
    let errors = errors.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(errors.contains(&format!("its state was not checked: {why}")), "{errors}");
    assert!(errors.contains("hint: give its full archive too, or check only frames: --check frames"), "{errors}");
    assert_eq!(verify(&["-q"]).1[0], "", "what -q prints is good");
    let (code, [json, _]) = verify(&["--json"]);
    let line = objects(json.as_bytes()).into_iter().find(|line| line["type"] == "archive_not_checked");
    assert_eq!((code, &line.expect("a line")["reason"]), (Some(1), &why.into()));
    for flags in [&["--check", "frames"], &["--quick", "--check=state"]] {
        assert_eq!(verify(flags).1[0], format!("ok      {path}\n"));
        assert_eq!(verify(flags).0, Some(0));
    }
    let catalog = slotpress::catalog::scan(&[dir.path().into()]).expect("scanned");
    let open = |archive: &Archive, _| Ok(NamedArchive::from_path(archive.path()));
    let verdict = verify_catalog(&catalog, &open, &VerifyOptions::default(), &NoProgress, &mut |_| {});
    let error = verdict.expect("verified").require_ok("here").expect_err("not checked");
    assert_eq!(error.kind(), ErrorKind::Failed, "{error}");
}
