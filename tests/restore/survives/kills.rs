//! `restore` is killed or interrupted at many moments: no partial ledger looks complete, and the next run succeeds. An
//! interrupted run cleans up after itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::common::scenarios::{make_old_state, read_moved_aside, state_files};
use crate::common::signals::*;
use crate::common::*;

/// Returns a path in a directory whose name begins with `prefix`.
fn find_partial_dir(parent: &Path, prefix: &str) -> Option<PathBuf> {
    let mut paths = fs::read_dir(parent).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    paths.find(|path| name(path).starts_with(prefix))
}

/// The moment at which `run/` is in an accounts path.
const RUN_IS_IN_PLACE: &str = "the storages are in place";

struct TestTarget {
    dir: TempDir,
    ledger: PathBuf,
    accounts: PathBuf,
}

impl TestTarget {
    fn new() -> Self {
        let dir = temp_dir();
        let ledger = dir.path().join("ledger");
        let accounts = dir.path().join("accounts");
        Self { dir, ledger, accounts }
    }

    fn command(&self, source: &LargeLedger) -> Command {
        let mut command = Command::new(slotpress_path());
        command.arg("restore").arg(&source.archive).arg("--ledger").arg(&self.ledger);
        command.arg("--accounts").arg(&self.accounts);
        command
    }

    fn moments<'a>(&'a self, source: &'a LargeLedger) -> Vec<Moment<'a>> {
        let mut moments: Vec<Moment<'_>> = vec![
            ("at once", Box::new(|| true)),
            ("the ledger is made", Box::new(|| self.ledger.exists())),
            ("the archive's copy has begun", Box::new(|| temporary_bytes(&self.ledger).is_some())),
        ];
        for count in [1, 30, 100, 200, 299] {
            let has_files = move || {
                let partial = find_partial_dir(&self.accounts, "slotpress-partial-run-");
                partial.is_some_and(|partial| fs::read_dir(partial).is_ok_and(|dir| dir.count() >= count))
            };
            moments.push(("storages are written", Box::new(has_files)));
        }
        let bank = || find_partial_dir(&self.ledger, "slotpress-partial-bank-");
        let has_lists = move || bank().is_some_and(|bank| bank.join("storages_list").exists());
        moments.push(("the lists are written", Box::new(has_lists)));
        moments.push(("the archive has its name", Box::new(|| self.ledger.join(name(&source.archive)).exists())));
        moments.push((RUN_IS_IN_PLACE, Box::new(|| self.accounts.join("run").exists())));
        let mark = self.ledger.join("snapshots").join(&source.slot);
        moments.push(("the bank snapshot is in place", Box::new(move || mark.exists())));
        moments
    }

    /// Asserts that everything was restored.
    fn assert_complete(&self, source: &LargeLedger) {
        let bank_snapshot = self.ledger.join("snapshots").join(&source.slot);
        assert_eq!(fs::read(bank_snapshot.join("fastboot_version")).expect("the mark"), b"3.0.0");
        let list = storages_list(&bank_snapshot);
        assert_eq!(relative_paths(&self.accounts.join("run")).len(), list.len());
        let archived = contents(&source.archive);
        for (slot, id) in list {
            let content = fs::read(self.accounts.join("run").join(format!("{slot}.{id}"))).expect("read");
            assert!(content == archived[&format!("accounts/{slot}.{id}")], "{slot}.{id}");
        }
        let placed = fs::read(self.ledger.join(name(&source.archive))).expect("read");
        assert!(placed == fs::read(&source.archive).expect("read"));
    }

    fn is_marked(&self, source: &LargeLedger) -> bool {
        self.ledger.join("snapshots").join(&source.slot).join("fastboot_version").exists()
    }
}

#[test]
fn a_killed_restore_can_be_repeated() {
    let source = large_ledger();
    let mut killed = 0;
    let count = TestTarget::new().moments(source).len();
    for number in 0..count {
        let target = TestTarget::new();
        let moment = &target.moments(source)[number];
        let status = run_and_signal(&mut target.command(source), Signal::KILL, moment);
        killed += usize::from(!status.success());
        if status.success() || target.is_marked(source) {
            target.assert_complete(source);
            continue;
        }
        let again = target.command(source).output().expect("runs");
        assert!(again.status.success(), "{}: {}", moment.0, String::from_utf8_lossy(&again.stderr));
        target.assert_complete(source);
        let left = relative_paths(target.dir.path());
        let left: Vec<&String> =
            left.iter().filter(|name| name.contains("slotpress") || name.contains("tmp-")).collect();
        assert_eq!(left, Vec::<&String>::new(), "{}", moment.0);
    }
    assert!(killed >= 6, "the moments were missed: {killed}");
}

#[test]
fn an_interrupted_restore_leaves_nothing() {
    let source = large_ledger();
    let mut interrupted = 0;
    let count = TestTarget::new().moments(source).len();
    for number in 1..count {
        let target = TestTarget::new();
        let moment = &target.moments(source)[number];
        let status = run_and_signal(&mut target.command(source), Signal::INT, moment);
        if status.success() {
            target.assert_complete(source);
            continue;
        }
        assert_eq!(status.code(), Some(130), "{}", moment.0);
        assert_eq!(relative_paths(target.dir.path()), Vec::<String>::new(), "{}", moment.0);
        interrupted += 1;
    }
    assert!(interrupted >= 6, "the moments were missed: {interrupted}");
}

/// The replaced state is never lost, whenever the run is killed.
#[test]
fn a_killed_restore_loses_no_old_state() {
    let source = large_ledger();
    let slot: u64 = source.slot.parse().expect("a number");
    let old = TestTarget::new();
    make_old_state(&source.archive, slot, &old.ledger, &old.accounts);
    let expected: Vec<_> = [&old.ledger, &old.accounts].into_iter().flat_map(|dir| state_files(dir)).collect();
    let mut killed = 0;
    let count = old.moments(source).len();
    for number in 0..=count {
        let target = TestTarget::new();
        copy_tree(&old.ledger, &target.ledger);
        copy_tree(&old.accounts, &target.accounts);
        let mut moments = target.moments(source);
        let newer = target.ledger.join(format!("snapshots/{}", slot + 1));
        moments.push(("the newest is moved aside", Box::new(move || !newer.exists())));
        let mut command = target.command(source);
        killed +=
            usize::from(!run_and_signal(command.arg("--replace-state"), Signal::KILL, &moments[number]).success());
        let again = target.command(source).arg("--replace-state").output().expect("runs");
        assert!(again.status.success(), "{}: {}", moments[number].0, String::from_utf8_lossy(&again.stderr));
        target.assert_complete(source);
        let aside: Vec<_> = [&target.ledger, &target.accounts].into_iter().map(|dir| read_moved_aside(dir)).collect();
        for (path, file) in &expected {
            assert!(aside.iter().any(|aside| aside.get(path) == Some(file)), "{}: {path} is lost", moments[number].0);
        }
    }
    assert!(killed >= 6, "the moments were missed: {killed}");
}

/// Existing files in the target stay if the restore does not finish.
#[test]
fn an_interrupted_restore_keeps_existing_files() {
    let source = large_ledger();
    let target = TestTarget::new();
    for dir in [target.accounts.join("run"), target.accounts.join("snapshot"), target.ledger.join("snapshots")] {
        fs::create_dir_all(dir).expect("made");
    }
    for file in ["genesis.bin", "ledger.lock"] {
        fs::write(target.ledger.join(file), file).expect("written");
    }
    let before = tree(target.dir.path());
    let count = target.moments(source).len();
    let mut interrupted = 0;
    for number in 2..count {
        let moment = &target.moments(source)[number];
        if moment.0 == RUN_IS_IN_PLACE {
            continue; // this holds from the start
        }
        if run_and_signal(&mut target.command(source), Signal::INT, moment).success() {
            break;
        }
        interrupted += 1;
        assert!(tree(target.dir.path()) == before, "{}: {:?}", moment.0, relative_paths(target.dir.path()));
    }
    assert!(interrupted >= 4, "the moments were missed: {interrupted}");
}
