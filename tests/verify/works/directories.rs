//! A directory of archives.

use std::fs;

use crate::common::listed::objects;
use crate::common::served::two_archives;
use crate::common::*;

/// All archives of a directory, one line each.
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

/// What is wrong with a full archive is not said of the incremental one on it.
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
        // A sound copy of it elsewhere in the directory serves.
        fs::create_dir(dir.path().join("remote")).expect("made");
        fs::copy(fixture(FULL_26), dir.path().join("remote").join(FULL_26)).expect("copied");
        let (_, [said, _]) = verify(&[]);
        assert!(said.contains(&format!("ok      {}\n", path.display())), "{said}");
        // What is wrong with itself is.
        let mut own = fs::read(&path).expect("read");
        let middle = own.len() / 2;
        own[middle] ^= 1;
        fs::write(&path, own).expect("written");
        let (_, [said, _]) = verify(&[]);
        assert!(said.contains(&format!("FAILED  {}", path.display())), "{said}");
    }
}
