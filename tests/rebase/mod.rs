//! `slotpress rebase`: an incremental archive on any older full archive.

mod works {
    mod chains;
    mod states;
}
mod refused {
    mod inputs;
}

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::common::{archive, entries, fixture_of, ledger_of, make_tar, name, slotpress};

/// Makes full archives of a chain at slots 26 and 40.
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

/// Writes the archive without its tombstones into a directory of its own; `None` if it has none.
pub fn without_tombstones(rebased: &Path, dir: &Path) -> Option<PathBuf> {
    let mut entries = entries(rebased);
    let mut removed = 0;
    for entry in entries.iter_mut().filter(|entry| entry.path.starts_with("accounts/")) {
        // They are last, and have no data.
        while entry.content.len() >= 136 && entry.content[entry.content.len() - 88..][..8] == [0; 8] {
            entry.content.truncate(entry.content.len() - 136);
            removed += 1;
        }
    }
    let path = dir.join("without").join(name(rebased));
    fs::create_dir_all(path.parent().expect("a directory")).expect("made");
    fs::write(&path, zstd::encode_all(make_tar(&entries).as_slice(), 1).expect("compressed")).expect("written");
    (removed > 0).then_some(path)
}
