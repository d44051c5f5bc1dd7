//! A directory of archives.

use std::fs;

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
