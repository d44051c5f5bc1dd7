//! Somebody who may write into the target directory swaps directories for symbolic links while a restore runs. Nothing of
//! the restore comes to lie outside, and a restore that ends with success is complete.

use {
    crate::common::*,
    std::{
        fs,
        path::{Path, PathBuf},
        process::{Command, Stdio},
    },
    tempfile::TempDir,
};

/// Runs with somebody in the way. Without open directories, one in six of them went wrong.
const RUNS: usize = 60;

/// Small, so that the moments between two system calls are a large part of a run.
fn small_archive() -> (TempDir, PathBuf) {
    let dir = temp_dir();
    let ledger = dir.path().join("synth");
    slotpress().arg("synth").arg(&ledger).args(["--size", "2MiB", "--storages", "30"]).assert().success();
    let archive = archive(&ledger, dir.path(), &[]);
    (dir, archive)
}

/// A directory under attack.
struct Swapped {
    path: PathBuf,
    aside: PathBuf,
}

impl Swapped {
    /// Moves a directory aside, and puts a link into its place.
    fn swap(path: &Path, aside: &Path, outside: &Path) -> Option<Self> {
        // A link of before is none.
        fs::symlink_metadata(path).ok().filter(fs::Metadata::is_dir)?;
        fs::rename(path, aside).ok()?;
        // Where it cannot be linked, the program has made something of that name.
        let _ = std::os::unix::fs::symlink(outside, path);
        Some(Self { path: path.to_path_buf(), aside: aside.to_path_buf() })
    }

    /// Puts it back.
    fn restore(self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|found| found.is_symlink()) {
            let _ = fs::remove_file(&self.path);
        }
        let _ = fs::rename(&self.aside, &self.path);
    }
}

/// Every directory of a target that something is moved to, or from.
fn directories(ledger: &Path, accounts: &Path) -> Vec<PathBuf> {
    let inner = |dir: &Path, prefix: &str| -> Vec<PathBuf> {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| name(path).starts_with(prefix)).collect()
    };
    let snapshots = ledger.join("snapshots");
    let mut paths = inner(ledger, "slotpress-partial-");
    paths.extend(inner(accounts, ""));
    paths.extend(inner(&snapshots, ""));
    paths.extend([snapshots, accounts.to_path_buf(), ledger.to_path_buf()]);
    paths
}

#[test]
fn directories_swapped_for_links() {
    let (_dir, archive) = small_archive();
    let archived = contents(&archive);
    let (mut swaps, mut complete) = (0, 0);
    for run in 0..RUNS {
        let dir = temp_dir();
        let (ledger, accounts) = (dir.path().join("ledger"), dir.path().join("accounts"));
        let (outside, aside) = (dir.path().join("outside"), dir.path().join("aside"));
        [&ledger, &accounts, &outside].into_iter().for_each(|dir| fs::create_dir(dir).expect("made"));
        let mut command = Command::new(slotpress_path());
        command.arg("restore").arg(&archive).arg("--ledger").arg(&ledger).arg("--accounts").arg(&accounts);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("runs");
        let is_begun = || names(&ledger).iter().any(|name| name.starts_with("slotpress-partial-bank-"));
        // The operator's own paths are resolved by now: what they lead to is not in question.
        let mut has_begun = false;
        let mut number = run;
        let status = loop {
            if let Some(status) = child.try_wait().expect("a child") {
                break status;
            }
            has_begun = has_begun || is_begun();
            let paths = if has_begun { directories(&ledger, &accounts) } else { Vec::new() };
            let Some(path) = paths.get(number % paths.len().max(1)) else {
                std::thread::yield_now();
                continue;
            };
            number += 1;
            let Some(swapped) = Swapped::swap(path, &aside, &outside) else { continue };
            swaps += 1;
            for _ in 0..(number % 7) * 40 {
                std::hint::spin_loop();
            }
            swapped.restore();
        };
        assert_eq!(names(&outside), Vec::<String>::new(), "run {run}: {status}");
        if !status.success() {
            continue;
        }
        complete += 1;
        let slot = name(&archive).split('-').nth(1).expect("a slot").to_string();
        let bank_snapshot = ledger.join("snapshots").join(&slot);
        assert_eq!(fs::read(bank_snapshot.join("fastboot_version")).expect("the mark"), b"3.0.0", "run {run}");
        assert!(
            fs::read(bank_snapshot.join(&slot)).expect("a bank file") == archived[&format!("snapshots/{slot}/{slot}")]
        );
        let list = storages_list(&bank_snapshot);
        assert_eq!(names(&accounts.join("run")).len(), list.len(), "run {run}");
        for (slot, id) in list {
            let content = fs::read(accounts.join(format!("run/{slot}.{id}"))).expect("a storage");
            assert!(content == archived[&format!("accounts/{slot}.{id}")], "run {run}: {slot}.{id}");
        }
        assert!(fs::read(ledger.join(name(&archive))).expect("the archive") == fs::read(&archive).expect("read"));
    }
    println!("{swaps} swaps in {RUNS} runs, of which {complete} were complete");
    assert!(swaps > RUNS, "nothing was swapped: {swaps}");
}
