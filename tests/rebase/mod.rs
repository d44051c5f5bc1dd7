//! `slotpress rebase`: an incremental archive on any older full archive.

mod works {
    mod states;
}
mod refused {
    mod inputs;
}

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::common::{archive, fixture_of, ledger_of, slotpress};

/// Full archives of a chain at slots 26 and 40.
pub fn two_full_archives(chain: &str, dir: &Path) -> [PathBuf; 2] {
    [fixture_of(chain, "snapshot-26-"), archive(ledger_of(chain, 40).path(), dir, &[])]
}

pub fn run(new: &[&Path], onto: &Path, out: &Path, flags: &[&str]) -> Output {
    let mut command = slotpress();
    command.arg("rebase").args(new).args([OsStr::new("--onto"), onto.as_ref(), "-o".as_ref(), out.as_ref()]);
    command.args(flags).output().expect("runs")
}

pub fn rebase(new: &[&Path], onto: &Path, out: &Path, flags: &[&str]) -> PathBuf {
    let output = run(new, onto, out, flags);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    PathBuf::from(String::from_utf8(output.stdout).expect("text").lines().next().expect("a path"))
}
