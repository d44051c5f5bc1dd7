//! `slotpress rebase` makes an incremental archive on an older full archive.

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

use crate::common::records::{RECORD_HEADER_BYTES, field};
use crate::common::{archive, entries, fixture_of, ledger_of, name, slotpress, write_archive};

/// Makes full archives of a chain at slots 26 and 40.
pub fn two_full_archives(chain: &str, dir: &Path) -> [PathBuf; 2] {
    [fixture_of(chain, "snapshot-26-"), archive(ledger_of(chain, 40).path(), dir, &[])]
}

pub fn run_rebase(new: &[&Path], onto: &Path, out: &Path, flags: &[&str]) -> Output {
    let mut command = slotpress();
    command.arg("rebase").args(new).args([OsStr::new("--onto"), onto.as_ref(), "-o".as_ref(), out.as_ref()]);
    command.args(flags).output().expect("runs")
}

pub fn rebase(new: &[&Path], onto: &Path, out: &Path, flags: &[&str]) -> PathBuf {
    let output = run_rebase(new, onto, out, flags);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    PathBuf::from(String::from_utf8(output.stdout).expect("text").lines().next().expect("a path"))
}

/// Writes a copy of an archive without its tombstones. Returns `None` if the archive has no tombstones.
pub fn write_without_tombstones(rebased: &Path, dir: &Path) -> Option<PathBuf> {
    let mut entries = entries(rebased);
    let mut removed = 0;
    for entry in entries.iter_mut().filter(|entry| entry.path.starts_with("accounts/")) {
        // Tombstones are the last records of a storage, and have no data.
        let content = &mut entry.content;
        while let Some(header) = content.last_chunk::<RECORD_HEADER_BYTES>()
            && header[field::LAMPORTS] == [0; 8]
        {
            content.truncate(content.len() - RECORD_HEADER_BYTES);
            removed += 1;
        }
    }
    let path = dir.join("without").join(name(rebased));
    fs::create_dir_all(path.parent().expect("a directory")).expect("made");
    write_archive(&path, &entries);
    (removed > 0).then_some(path)
}
