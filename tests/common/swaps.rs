//! An attacker who may write into the target directory, and swaps directories for symbolic links
//! while a command runs.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, renameat, statat, symlinkat, unlinkat};
use tempfile::TempDir;

use crate::common::*;

/// Number of attacked runs. When the program used paths instead of open directories, one run in six
/// went wrong.
pub const RUNS: usize = 60;

/// Makes a small archive, so that the time between two system calls is a large part of a run.
pub fn small_archive() -> (TempDir, PathBuf) {
    let dir = temp_dir();
    let ledger = dir.path().join("synth");
    synthetic_ledger(&ledger, 2 << 20, 30);
    let archive = archive(&ledger, dir.path(), &[]);
    (dir, archive)
}

/// A directory that was replaced with a link. It is put back into its original parent directory, even if the parent
/// directory was moved in between. Otherwise, a complete run would look like a failed one.
pub struct SwappedDir {
    parent: OwnedFd,
    name: String,
    aside: PathBuf,
}

impl SwappedDir {
    /// Moves a directory aside, and puts a link in its place. Returns `None` if there is no directory at the path.
    pub fn swap(path: &Path, aside: &Path, outside: &Path) -> Option<Self> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let parent = rustix::fs::open(path.parent()?, flags, Mode::empty()).ok()?;
        let name = name(path);
        // A link of an earlier swap is not a directory.
        let stat = statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        if !FileType::from_raw_mode(stat.st_mode).is_dir() {
            return None;
        }
        renameat(&parent, &name, CWD, aside).ok()?;
        // If this fails, the program has made a file of that name.
        let _ = symlinkat(outside, &parent, &name);
        Some(Self { parent, name, aside: aside.to_path_buf() })
    }

    /// Puts the directory back.
    pub fn restore(self) {
        let stat = statat(&self.parent, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        if stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_symlink()) {
            let _ = unlinkat(&self.parent, &self.name, AtFlags::empty());
        }
        let _ = renameat(CWD, &self.aside, &self.parent, &self.name);
    }
}

/// Returns every directory of a target from which or to which files are moved.
fn directories(ledger: &Path, accounts: &Path) -> Vec<PathBuf> {
    let inner = |dir: &Path, prefix: &str| -> Vec<PathBuf> {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| name(path).starts_with(prefix)).collect()
    };
    let snapshots = ledger.join("snapshots");
    let mut paths = inner(ledger, "slotpress-partial-");
    paths.extend(paths.clone().iter().flat_map(|partial| inner(partial, "")));
    paths.extend(inner(accounts, ""));
    paths.extend(inner(&snapshots, ""));
    paths.extend([snapshots, accounts.to_path_buf(), ledger.to_path_buf()]);
    paths
}

/// Directories of an attacked run.
pub struct AttackedDirs<'a> {
    pub ledger: &'a Path,
    pub accounts: &'a Path,
    /// Place of a directory while a link replaces it.
    pub aside: &'a Path,
    /// Directory to which the links lead.
    pub outside: &'a Path,
}

/// Runs a command, and swaps the directories of its target until it ends. Asserts that nothing was written through
/// the links. Returns the exit status and the number of swaps.
pub fn attack(mut command: Command, dirs: &AttackedDirs<'_>, run: usize) -> (ExitStatus, usize) {
    let AttackedDirs { ledger, accounts, aside, outside } = *dirs;
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("runs");
    let is_temporary = |name: String| name.starts_with("slotpress-partial-") || name.starts_with("slotpress-fetch-");
    // Entries may appear and disappear meanwhile.
    let has_temporary =
        || fs::read_dir(ledger).into_iter().flatten().flatten().any(|entry| is_temporary(name(&entry.path())));
    // Swaps begin once the program has made temporary files. By then, it has resolved the operator's paths, which
    // it trusts.
    let mut has_begun = false;
    let (mut number, mut swaps) = (run, 0);
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            assert_eq!(relative_paths(outside), Vec::<String>::new(), "run {run}: {status}");
            return (status, swaps);
        }
        has_begun = has_begun || has_temporary();
        let paths = if has_begun { directories(ledger, accounts) } else { Vec::new() };
        let Some(path) = paths.get(number % paths.len().max(1)) else {
            std::thread::yield_now();
            continue;
        };
        number += 1;
        let Some(swapped) = SwappedDir::swap(path, aside, outside) else { continue };
        swaps += 1;
        for _ in 0..(number % 7) * 40 {
            std::hint::spin_loop();
        }
        swapped.restore();
    }
}

/// Asserts that a ledger is marked complete, and contains everything that the archive contains.
pub fn assert_complete(
    archive: &Path,
    archived: &BTreeMap<String, Vec<u8>>,
    ledger: &Path,
    accounts: &Path,
    run: usize,
) {
    let slot = name(archive).split('-').nth(1).expect("a slot").to_string();
    let bank_snapshot = ledger.join("snapshots").join(&slot);
    assert_eq!(fs::read(bank_snapshot.join("fastboot_version")).expect("marked"), b"3.0.0", "run {run}");
    assert!(fs::read(bank_snapshot.join(&slot)).expect("a bank file") == archived[&format!("snapshots/{slot}/{slot}")]);
    let list = storages_list(&bank_snapshot);
    assert_eq!(relative_paths(&accounts.join("run")).len(), list.len(), "run {run}");
    for (slot, id) in list {
        let content = fs::read(accounts.join(format!("run/{slot}.{id}"))).expect("a storage");
        assert!(content == archived[&format!("accounts/{slot}.{id}")], "run {run}: {slot}.{id}");
    }
    assert!(fs::read(ledger.join(name(archive))).expect("the archive") == fs::read(archive).expect("read"));
}
