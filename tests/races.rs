//! Somebody who may write into the target directory swaps directories for symbolic links while a restore runs. Nothing of
//! the restore comes to lie outside, and a restore that ends with success is complete.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, renameat, statat, symlinkat, unlinkat};
use tempfile::TempDir;

use crate::common::*;

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

/// A directory under attack. It goes back into the directory that it came from, which may have been moved meanwhile: what
/// is taken away for good after a run's last look at it is no fault of the run.
struct Swapped {
    parent: OwnedFd,
    name: String,
    aside: PathBuf,
}

impl Swapped {
    /// Moves a directory aside, and puts a link into its place.
    fn swap(path: &Path, aside: &Path, outside: &Path) -> Option<Self> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let parent = rustix::fs::open(path.parent()?, flags, Mode::empty()).ok()?;
        let name = name(path);
        // A link of before is none.
        let found = statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        FileType::from_raw_mode(found.st_mode).is_dir().then_some(())?;
        renameat(&parent, &name, CWD, aside).ok()?;
        // Where it cannot be linked, the program has made something of that name.
        let _ = symlinkat(outside, &parent, &name);
        Some(Self { parent, name, aside: aside.to_path_buf() })
    }

    /// Puts it back.
    fn restore(self) {
        let found = statat(&self.parent, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        if found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode).is_symlink()) {
            let _ = unlinkat(&self.parent, &self.name, AtFlags::empty());
        }
        let _ = renameat(CWD, &self.aside, &self.parent, &self.name);
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
    paths.extend(paths.clone().iter().flat_map(|partial| inner(partial, "")));
    paths.extend(inner(accounts, ""));
    paths.extend(inner(&snapshots, ""));
    paths.extend([snapshots, accounts.to_path_buf(), ledger.to_path_buf()]);
    paths
}

/// Runs a command, and swaps the directories of its target from when it has begun until it ends. How it ended, and how often
/// something was swapped.
fn attack(mut command: Command, [ledger, accounts, aside, outside]: [&Path; 4], run: usize) -> (ExitStatus, usize) {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("runs");
    let is_own = |name: String| name.starts_with("slotpress-partial-") || name.starts_with("slotpress-fetch-");
    // What is in them comes and goes meanwhile.
    let is_begun = || fs::read_dir(ledger).into_iter().flatten().flatten().any(|entry| is_own(name(&entry.path())));
    // The operator's own paths are resolved by now: what they lead to is not in question.
    let mut has_begun = false;
    let (mut number, mut swaps) = (run, 0);
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            assert_eq!(names(outside), Vec::<String>::new(), "run {run}: {status}");
            return (status, swaps);
        }
        has_begun = has_begun || is_begun();
        let paths = if has_begun { directories(ledger, accounts) } else { Vec::new() };
        let Some(path) = paths.get(number % paths.len().max(1)) else {
            std::thread::yield_now();
            continue;
        };
        number += 1;
        let Some(swapped) = Swapped::swap(path, aside, outside) else { continue };
        swaps += 1;
        for _ in 0..(number % 7) * 40 {
            std::hint::spin_loop();
        }
        swapped.restore();
    }
}

/// A ledger that says that it is complete has everything that the archive has.
fn check_complete(archive: &Path, archived: &BTreeMap<String, Vec<u8>>, ledger: &Path, accounts: &Path, run: usize) {
    let slot = name(archive).split('-').nth(1).expect("a slot").to_string();
    let bank_snapshot = ledger.join("snapshots").join(&slot);
    assert_eq!(fs::read(bank_snapshot.join("fastboot_version")).expect("the mark"), b"3.0.0", "run {run}");
    assert!(fs::read(bank_snapshot.join(&slot)).expect("a bank file") == archived[&format!("snapshots/{slot}/{slot}")]);
    let list = storages_list(&bank_snapshot);
    assert_eq!(names(&accounts.join("run")).len(), list.len(), "run {run}");
    for (slot, id) in list {
        let content = fs::read(accounts.join(format!("run/{slot}.{id}"))).expect("a storage");
        assert!(content == archived[&format!("accounts/{slot}.{id}")], "run {run}: {slot}.{id}");
    }
    assert!(fs::read(ledger.join(name(archive))).expect("the archive") == fs::read(archive).expect("read"));
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
        let (status, swapped) = attack(command, [&ledger, &accounts, &aside, &outside], run);
        swaps += swapped;
        if !status.success() {
            continue;
        }
        complete += 1;
        check_complete(&archive, &archived, &ledger, &accounts, run);
    }
    println!("{swaps} swaps in {RUNS} runs, of which {complete} were complete");
    assert!(swaps > RUNS, "nothing was swapped: {swaps}");
}

/// The directory of the bank snapshots is another one at the end than at the start, when what is restored went into it.
#[test]
fn bank_snapshots_swapped_for_an_empty_directory() {
    use std::io::Write;
    let dir = temp_dir();
    let ledger = dir.path().join("ledger");
    let mut command = Command::new(slotpress_path());
    command.args(["restore", "-", "--ledger"]).arg(&ledger).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("starts");
    let is_begun = || {
        let mut entries = fs::read_dir(&ledger).into_iter().flatten().flatten();
        entries.any(|entry| name(&entry.path()).starts_with("slotpress-partial-"))
    };
    let bytes = fs::read(fixture(FULL_26)).expect("read");
    let (first, rest) = bytes.split_at(bytes.len() / 2);
    let mut pipe = child.stdin.take().expect("a pipe");
    pipe.write_all(first).expect("written");
    wait_for("the target to be open", is_begun);
    fs::rename(ledger.join("snapshots"), dir.path().join("aside")).expect("moved");
    fs::create_dir(ledger.join("snapshots")).expect("made");
    pipe.write_all(rest).expect("written");
    drop(pipe);
    let output = child.wait_with_output().expect("ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && stderr.contains("snapshots"), "{}: {stderr}", output.status);
}

/// The same where the tree of an archive is unpacked.
#[test]
fn directories_of_a_tree_swapped_for_links() {
    let (_dir, archive) = small_archive();
    let archived = contents(&archive);
    let (mut swaps, mut complete) = (0, 0);
    for run in 0..RUNS / 2 {
        let dir = temp_dir();
        let [out, outside, aside] = ["out", "outside", "aside"].map(|name| dir.path().join(name));
        [&out, &outside].into_iter().for_each(|dir| fs::create_dir(dir).expect("made"));
        let mut command = Command::new(slotpress_path());
        command.arg("restore").arg(&archive).args(["--tree", "archive", "--ledger"]).arg(&out);
        let (status, swapped) = attack(command, [&out, &out.join("accounts"), &aside, &outside], run);
        swaps += swapped;
        if !status.success() {
            continue;
        }
        complete += 1;
        let found = tree(&out).into_iter().filter_map(|(path, content)| Some((path, content?)));
        // Directories have no content.
        let files = archived.clone().into_iter().filter(|(_, content)| !content.is_empty());
        assert!(files.eq(found), "run {run}: {:?}", names(&out));
    }
    println!("{swaps} swaps in {} runs, of which {complete} were complete", RUNS / 2);
    assert!(swaps > RUNS / 2, "nothing was swapped: {swaps}");
}

/// The same where a state is replaced by what is fetched.
#[cfg(feature = "net")]
#[test]
fn directories_of_a_bootstrap_swapped_for_links() {
    use crate::bootstrap::site::{Way, files_in, serve};
    let (from, archive) = small_archive();
    let archived = contents(&archive);
    let old = from.path().join("old");
    let mut restore = slotpress();
    restore.arg("restore").arg(&archive).arg("--ledger").arg(&old).arg("--accounts").arg(old.join("accounts"));
    restore.assert().success();
    // So that it is fetched.
    fs::remove_file(old.join(name(&archive))).expect("removed");
    let server = serve(&files_in(from.path()), Way::Ranges);
    let (mut swaps, mut complete) = (0, 0);
    for run in 0..RUNS / 2 {
        let dir = temp_dir();
        let [ledger, outside, aside] = ["ledger", "outside", "aside"].map(|name| dir.path().join(name));
        let accounts = ledger.join("accounts");
        copy_tree(&old, &ledger);
        fs::create_dir(&outside).expect("made");
        let mut command = Command::new(slotpress_path());
        command.args(["bootstrap", &server.url("/"), "--replace-state", "--no-incremental", "--ledger"]);
        command.arg(&ledger).arg("--accounts").arg(&accounts);
        let (status, swapped) = attack(command, [&ledger, &accounts, &aside, &outside], run);
        swaps += swapped;
        if status.success() {
            complete += 1;
            check_complete(&archive, &archived, &ledger, &accounts, run);
        }
    }
    println!("{swaps} swaps in {} runs, of which {complete} were complete", RUNS / 2);
    assert!(swaps > RUNS / 2, "nothing was swapped: {swaps}");
}

/// Moves a directory away when a stage begins, and leaves a link in its place, or nothing.
struct SwapAt<'a> {
    stage: &'a str,
    path: &'a Path,
    aside: &'a Path,
    link_to: Option<&'a Path>,
}

impl slotpress::Progress for SwapAt<'_> {
    fn stage(&self, name: &str, _: Option<u64>) {
        if name == self.stage && !self.aside.exists() {
            fs::rename(self.path, self.aside).expect("moved");
            self.link_to.into_iter().for_each(|to| std::os::unix::fs::symlink(to, self.path).expect("linked"));
        }
    }
    fn advance(&self, _: u64, _: u64) {}
    fn is_interrupted(&self) -> bool {
        false
    }
}

/// An archive goes into the directory that was there at the start, and what is said to be there is there.
#[test]
fn output_directory_swapped_while_archiving() {
    use slotpress::{ArchiveOptions, RecompressOptions, RecompressSource, Sink, archive, recompress};
    let (from, full) = small_archive();
    let (mut cases, mut failed) = (0, Vec::new());
    let stages = ["Planning", "Archiving", "Recompressing", "Verifying", "Syncing"];
    for (stage, is_link) in stages.into_iter().flat_map(|stage| [(stage, true), (stage, false)]) {
        for is_archive in [true, false] {
            let dir = temp_dir();
            let [out, outside, aside] = ["out", "outside", "aside"].map(|name| dir.path().join(name));
            [&out, &outside].into_iter().for_each(|dir| fs::create_dir(dir).expect("made"));
            let link_to = is_link.then_some(outside.as_path());
            let swap = SwapAt { stage, path: &out, aside: &aside, link_to };
            let made = match is_archive {
                true => {
                    let read_back = slotpress::CheckOptions::default();
                    archive(
                        &ArchiveOptions::new(from.path().join("synth")).read_back(read_back),
                        Sink::dir(&out),
                        &swap,
                    )
                    .map(|report| report.path)
                }
                false => {
                    let sink = Sink::dir(&out);
                    recompress(RecompressSource::File(full.clone()), sink, &RecompressOptions::default(), &swap)
                        .map(|report| report.path)
                }
            };
            // A stage that the command does not have.
            if !aside.exists() {
                continue;
            }
            cases += 1;
            let message = made.as_ref().map_or_else(ToString::to_string, |path| format!("made {path:?}"));
            let left: Vec<String> = names(&aside).into_iter().filter(|name| name.starts_with("tmp-")).collect();
            if made.is_ok() || !names(&outside).is_empty() || !message.contains("another process") || !left.is_empty() {
                failed.push(format!(
                    "{stage}, link {is_link}, archive {is_archive}: {message}, {:?}, {left:?}",
                    names(&outside)
                ));
            }
        }
    }
    assert!(cases >= 12 && failed.is_empty(), "{} of {cases} went wrong:\n{}", failed.len(), failed.join("\n"));
}
