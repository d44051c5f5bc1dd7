//! Commands for tests of faults: their sources, their results, and the checks after a fault.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::common::runs::*;
use crate::common::strace::Call;
use crate::common::*;
#[cfg(feature = "net")]
use crate::common::{
    http::Server,
    oracle::Oracle,
    site::{Files, TransferMode, ledger_tree, pair_and_genesis, restore_files, serve},
};
#[cfg(feature = "net")]
use crate::rebase::{rebase, two_full_archives};

/// A command, its source, and its expected result.
pub struct Scenario {
    /// Name in tables. It begins with the command's.
    pub name: &'static str,
    dir: TempDir,
    source: PathBuf,
    out: PathBuf,
    expected: ExpectedResult,
    /// Server of the archives that the command fetches.
    #[cfg(feature = "net")]
    server: Option<Server>,
}

enum ExpectedResult {
    /// An archive of this name and content.
    Archive(String, Vec<u8>),
    /// A ledger.
    Ledger,
    /// A ledger that replaces an old state. These are the old state's files.
    Replaced(BTreeMap<String, Option<Vec<u8>>>),
    /// Only a report.
    Report,
    /// Fetched archives by name.
    #[cfg(feature = "net")]
    Fetched(Files),
    /// A ledger equal to this one, made of fetched archives.
    #[cfg(feature = "net")]
    Bootstrapped(BTreeMap<String, Option<Vec<u8>>>),
}

/// Memory for `verify`. By default, it uses up to half of the free memory, and clearing its tables takes a second.
const MEMORY: &str = "64MiB";

/// The stages of a run, in their order.
pub const STAGES: &[&str] = &["before writing", "writing", "syncing", "renaming", "after the last rename"];

// Indexes into `STAGES`.
const BEFORE_WRITING: usize = 0;
const WRITING: usize = 1;
const SYNCING: usize = 2;
/// From this stage on, a result may look complete.
pub const RENAMING: usize = 3;
const AFTER_LAST_RENAME: usize = 4;

/// The stages of a run that fetches archives one after another.
#[cfg(feature = "net")]
const STAGES_OF_FETCH: &[&str] =
    &["asking", "fetching", "writing the journal", "naming an archive", "after the last archive"];

/// The stages of a run that makes a ledger of fetched archives.
#[cfg(feature = "net")]
const STAGES_OF_BOOTSTRAP: &[&str] = &[
    "asking",
    "fetching, unpacking",
    "writing the journal",
    "naming an archive",
    "syncing",
    "renaming",
    "after the last rename",
];

// Indexes into the stages of runs that fetch.
#[cfg(feature = "net")]
const ASKING: usize = 0;
#[cfg(feature = "net")]
const FETCHING: usize = 1;
#[cfg(feature = "net")]
const WRITING_JOURNAL: usize = 2;
#[cfg(feature = "net")]
const NAMING_ARCHIVE: usize = 3;

/// System calls that change a file or a directory.
pub const MUTATING_CALLS: &str = "rename,renameat,renameat2,link,linkat,symlink,symlinkat,unlink,unlinkat,rmdir,mkdir,mkdirat,\
    openat,fsync,fdatasync,syncfs,flock,fchown,fchmod,write,writev,pwrite64,pwritev,ftruncate,fallocate,copy_file_range,\
    sendfile,sync_file_range,poll";

/// Leaves out the calls of the dynamic loader. Rust's runtime then begins with a `poll` of the first three
/// descriptors.
pub fn skip_loading(calls: &[Call]) -> &[Call] {
    let first = calls.iter().position(|call| call.name == "poll").expect("the program begins");
    &calls[first + 1..]
}

impl Scenario {
    /// Returns the stages of a run, in their order.
    pub fn stage_names(&self) -> &'static [&'static str] {
        match self.expected {
            #[cfg(feature = "net")]
            ExpectedResult::Fetched(_) => STAGES_OF_FETCH,
            #[cfg(feature = "net")]
            ExpectedResult::Bootstrapped(_) => STAGES_OF_BOOTSTRAP,
            _ => STAGES,
        }
    }

    /// Returns the command line.
    pub fn arguments(&self) -> Vec<String> {
        #[cfg(feature = "net")]
        if let Some(server) = &self.server {
            let (url, out, accounts) = (server.url("/"), text(&self.out), self.accounts());
            let arguments = match self.expected {
                ExpectedResult::Fetched(_) => vec!["fetch", &url, "-o", out, "--streams", "2"],
                _ => {
                    let accounts = text(&accounts);
                    vec!["bootstrap", &url, "--ledger", out, "--accounts", accounts, "--streams", "2", "--threads", "2"]
                }
            };
            let base: &[&str] = if self.source.exists() { &["--base", text(&self.source)] } else { &[] };
            return arguments.iter().chain(base).map(ToString::to_string).collect();
        }
        let (source, out) = (text(&self.source).to_string(), text(&self.out).to_string());
        let arguments = match (self.name, &self.expected) {
            (name, ExpectedResult::Archive(..)) => vec![name.into(), source, "-o".into(), out, "--force".into()],
            (name, ExpectedResult::Ledger | ExpectedResult::Replaced(_)) => {
                let accounts = text(&self.accounts()).to_string();
                let words = name.split(' ').map(String::from);
                words.chain([source, "--ledger".into(), out, "--accounts".into(), accounts]).collect()
            }
            (_, ExpectedResult::Report) => vec!["verify".into(), source, "--memory".into(), MEMORY.into()],
            #[cfg(feature = "net")]
            (_, ExpectedResult::Fetched(_) | ExpectedResult::Bootstrapped(_)) => Vec::new(),
        };
        arguments.into_iter().chain(["--threads".to_string(), "2".to_string()]).collect()
    }

    fn accounts(&self) -> PathBuf {
        self.dir.path().join("accounts")
    }

    /// Restores the directory to its state before the command.
    pub fn reset(&self) {
        let _ = fs::remove_dir_all(&self.out);
        let _ = fs::remove_dir_all(self.accounts());
        if let ExpectedResult::Replaced(..) = self.expected {
            copy_tree(&self.dir.path().join("old/out"), &self.out);
            copy_tree(&self.dir.path().join("old/accounts"), &self.accounts());
        }
        if matches!(self.expected, ExpectedResult::Archive(..)) {
            fs::create_dir(&self.out).expect("made");
        }
    }

    /// Returns the source's files.
    pub fn source_tree(&self) -> BTreeMap<String, Option<Vec<u8>>> {
        #[cfg(feature = "net")]
        if self.server.is_some() && !self.source.exists() {
            return BTreeMap::new();
        }
        if self.source.is_file() {
            return BTreeMap::from([(name(&self.source), fs::read(&self.source).ok())]);
        }
        let mut tree = tree(&self.source);
        // Commands make the lock, as a validator does.
        tree.remove("ledger.lock");
        tree
    }

    /// Returns the stage of each call, as an index into [`Scenario::stage_names`].
    pub fn stages(&self, calls: &[Call]) -> Vec<usize> {
        let last_renamed = match &self.expected {
            ExpectedResult::Archive(name, _) => name,
            ExpectedResult::Ledger | ExpectedResult::Replaced(_) => "slotpress-partial-bank-",
            ExpectedResult::Report => return vec![BEFORE_WRITING; calls.len()],
            #[cfg(feature = "net")]
            ExpectedResult::Fetched(_) | ExpectedResult::Bootstrapped(_) => return self.stages_of_fetching(calls),
        };
        let (mut stage, mut is_last) = (BEFORE_WRITING, false);
        let is_archive = matches!(self.expected, ExpectedResult::Archive(..));
        let stage_of = |call: &Call| {
            let line = call.line.as_str();
            let begun_stage = match call.name.as_str() {
                _ if is_last => AFTER_LAST_RENAME,
                "openat" if line.contains("slotpress-partial-journal") && line.contains("O_CREAT") => RENAMING,
                "openat" if line.contains("O_CREAT") && line.contains("tmp-snapshot-archive-slotpress") => WRITING,
                "mkdir" | "mkdirat" if line.contains("slotpress-partial") => WRITING,
                // A sync before the first write is ignored.
                "fsync" | "fdatasync" | "syncfs" if stage == BEFORE_WRITING => BEFORE_WRITING,
                "fsync" | "fdatasync" | "syncfs" => SYNCING,
                name if name.starts_with("rename") => {
                    is_last = line.contains(last_renamed);
                    // For a ledger, this stage begins with the journal.
                    if is_archive || is_last { RENAMING } else { BEFORE_WRITING }
                }
                _ => BEFORE_WRITING,
            };
            stage = stage.max(begun_stage);
            stage
        };
        calls.iter().map(stage_of).collect()
    }

    /// Returns the stage of each call if archives are fetched. Journals of downloads are written during the fetch.
    #[cfg(feature = "net")]
    fn stages_of_fetching(&self, calls: &[Call]) -> Vec<usize> {
        let is_bootstrap = matches!(self.expected, ExpectedResult::Bootstrapped(_));
        let (syncing, renaming, after) = if is_bootstrap { (4, 5, 6) } else { (4, 4, 4) };
        let mut next_stage = ASKING;
        let stage_of = |call: &Call| {
            let line = call.line.as_str();
            let is_rename = call.name.starts_with("rename");
            let is_creation = call.name == "openat" && line.contains("O_CREAT");
            let stage = match next_stage {
                stage if stage >= renaming => stage,
                _ if is_creation && line.contains("slotpress-partial-journal") => renaming,
                _ if is_bootstrap && call.name == "syncfs" => syncing,
                stage if is_bootstrap && stage == syncing => stage,
                _ if line.contains("slotpress-fetch-") && line.contains(".journal") && (is_creation || is_rename) => {
                    WRITING_JOURNAL
                }
                _ if line.contains("slotpress-fetch-") && is_rename => NAMING_ARCHIVE,
                _ if is_creation && line.contains("slotpress-fetch-") => FETCHING,
                stage => stage,
            };
            next_stage = match stage {
                // More bytes arrive.
                WRITING_JOURNAL if is_rename => FETCHING,
                NAMING_ARCHIVE if is_bootstrap => NAMING_ARCHIVE,
                NAMING_ARCHIVE if is_rename && line.contains("\"incremental-snapshot-") => after,
                NAMING_ARCHIVE if is_rename => ASKING,
                stage if is_bootstrap && stage == renaming && is_rename && line.contains("partial-bank-") => after,
                stage => stage,
            };
            stage
        };
        calls.iter().map(stage_of).collect()
    }

    /// True if the result has its final names.
    pub fn looks_complete(&self) -> bool {
        match &self.expected {
            #[cfg(feature = "net")]
            ExpectedResult::Fetched(files) => files.keys().all(|name| self.out.join(name).exists()),
            #[cfg(feature = "net")]
            ExpectedResult::Bootstrapped(_) => has_complete_bank_snapshot(&self.out),
            ExpectedResult::Archive(name, _) => self.out.join(name).exists(),
            ExpectedResult::Ledger => has_complete_bank_snapshot(&self.out),
            ExpectedResult::Replaced(_) => {
                let bank = self.out.join("snapshots/26");
                bank.join("fastboot_version").exists() && !bank.join(OLD_STATE_MARK).exists()
            }
            ExpectedResult::Report => true,
        }
    }

    /// True if the command makes files.
    pub fn has_result(&self) -> bool {
        !matches!(self.expected, ExpectedResult::Report)
    }

    /// Checks that every archive with a final name is whole, and that a result that looks complete is.
    pub fn check_final_names(&self, moment: &str) {
        let archives = fs::read_dir(&self.out).into_iter().flatten().map(|entry| entry.expect("an entry").path());
        let is_archive = |path: &Path| ["snapshot-", "incremental-"].iter().any(|start| name(path).starts_with(start));
        for path in archives.filter(|path| is_archive(path) && path.is_file()) {
            let expected = match &self.expected {
                ExpectedResult::Archive(_, bytes) => bytes,
                #[cfg(feature = "net")]
                ExpectedResult::Fetched(files) => &files[&name(&path)],
                #[cfg(feature = "net")]
                ExpectedResult::Bootstrapped(tree) => tree[&name(&path)].as_ref().expect("a file"),
                _ => &fs::read(&self.source).expect("read"),
            };
            assert!(&fs::read(&path).expect("read") == expected, "{moment}: {} is not whole", path.display());
        }
        if self.looks_complete() {
            self.check_whole(moment);
        }
    }

    fn check_whole(&self, moment: &str) {
        let mut arguments: Vec<String> = ["verify", "--memory", MEMORY].map(Into::into).into();
        match &self.expected {
            ExpectedResult::Archive(name, _) => arguments.push(text(&self.out.join(name)).into()),
            ExpectedResult::Ledger | ExpectedResult::Replaced(_) => {
                arguments.extend(["--accounts".into(), text(&self.accounts()).into(), text(&self.out).into()])
            }
            ExpectedResult::Report => return,
            #[cfg(feature = "net")]
            ExpectedResult::Fetched(_) => return,
            #[cfg(feature = "net")]
            ExpectedResult::Bootstrapped(expected) => {
                let mut files = ledger_tree(&self.out);
                files.extend(
                    ledger_tree(&self.accounts()).into_iter().map(|(path, file)| (format!("accounts/{path}"), file)),
                );
                files.retain(|path, _| path != "ledger.lock" && !path.starts_with("slotpress-"));
                let paths_of = |tree: &BTreeMap<String, Option<Vec<u8>>>| tree.keys().cloned().collect::<Vec<_>>();
                assert_eq!(paths_of(&files), paths_of(expected), "{moment}");
                assert!(files == *expected, "{moment}: the ledger has other contents");
                return;
            }
        }
        let (code, stderr) = run_to_stderr(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(code, Some(0), "{moment}: the result looks complete, but is not: {stderr}");
    }

    /// Returns the paths of temporary files. A run that was not killed leaves none.
    pub fn partial_paths(&self) -> BTreeSet<String> {
        let paths = relative_paths(self.dir.path()).into_iter();
        let is_partial = |path: &String| path.contains("slotpress-") || path.contains("tmp");
        paths.filter(|path| is_partial(path) && !path.contains("slotpress-replaced-")).collect()
    }

    /// Checks what must hold after a fault, reruns the command, and checks its result.
    pub fn check(&self, source: &BTreeMap<String, Option<Vec<u8>>>, moment: &str) {
        assert!(self.source_tree() == *source, "{moment}: the source has changed");
        self.check_final_names(moment);
        let looked_complete = self.looks_complete();
        let arguments = self.arguments();
        let (code, stderr) = run_to_stderr(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        let refuses_existing_result = match self.expected {
            ExpectedResult::Ledger => true,
            #[cfg(feature = "net")]
            ExpectedResult::Bootstrapped(_) => true,
            _ => false,
        };
        if looked_complete && refuses_existing_result {
            assert_eq!(code, Some(5), "{moment}: {code:?} {stderr}");
            assert!(stderr.contains("already"), "{moment}: {code:?} {stderr}");
        } else {
            assert_eq!(code, Some(0), "{moment}: a rerun fails: {stderr}\n{:?}", relative_paths(self.dir.path()));
        }
        assert!(self.looks_complete(), "{moment}: a rerun makes no result");
        self.check_final_names(moment);
        assert_eq!(self.partial_paths(), BTreeSet::new(), "{moment}: temporary files are left");
        if let ExpectedResult::Replaced(old) = &self.expected {
            let (ledger, accounts) = (read_moved_aside(&self.out), read_moved_aside(&self.accounts()));
            let is_lost = |(path, file): &(&String, &Option<Vec<u8>>)| {
                ![&ledger, &accounts].iter().any(|aside| aside.get(*path) == Some(*file))
            };
            let lost_paths: Vec<&String> = old.iter().filter(is_lost).map(|(path, _)| path).collect();
            assert_eq!(lost_paths, Vec::<&String>::new(), "{moment}: files of the old state are lost");
        }
    }
}

/// Name of a file that marks a bank snapshot of an old state.
const OLD_STATE_MARK: &str = "old";

/// Makes a ledger whose state is to be replaced. It has complete bank snapshots of this slot, of the slot before and
/// of the slot after.
pub fn make_old_state(archive: &Path, slot: u64, ledger: &Path, accounts: &Path) {
    let arguments = ["restore", text(archive), "--ledger", text(ledger), "--accounts", text(accounts)];
    let (code, stderr) = run_to_stderr(&arguments);
    assert_eq!(code, Some(0), "{stderr}");
    let bank = ledger.join(format!("snapshots/{slot}"));
    fs::write(bank.join(OLD_STATE_MARK), "old").expect("written");
    for other in [slot - 1, slot + 1] {
        copy_tree(&bank, &ledger.join(format!("snapshots/{other}")));
    }
}

/// Returns the files of a state in place: bank snapshots and storages.
pub fn state_files(dir: &Path) -> BTreeMap<String, Option<Vec<u8>>> {
    let is_state = |path: &String| path.starts_with("snapshots/") || path.starts_with("run/");
    tree(dir).into_iter().filter(|(path, _)| is_state(path)).collect()
}

/// Returns the files that restores have moved aside in a directory, by their former paths.
pub fn read_moved_aside(dir: &Path) -> BTreeMap<String, Option<Vec<u8>>> {
    let with_former_path = |(path, file): (String, _)| {
        Some((path.strip_prefix("slotpress-replaced-")?.split_once('/')?.1.to_string(), file))
    };
    // If a path was moved aside several times, the first file is the old state's.
    tree(dir).into_iter().rev().filter_map(with_former_path).collect()
}

fn has_complete_bank_snapshot(ledger: &Path) -> bool {
    fs::read_dir(ledger.join("snapshots"))
        .is_ok_and(|slots| slots.flatten().any(|slot| slot.path().join("fastboot_version").exists()))
}

/// Returns the scenarios that fetch from a server with ranges: `fetch`, and `bootstrap` without and with `--base`.
#[cfg(feature = "net")]
pub fn net_scenarios() -> Vec<Scenario> {
    let (files, genesis) = pair_and_genesis();
    let restored = restore_files(&files);
    let ledger = restored.path().join("ledger");
    let mut expected = ledger_tree(&ledger);
    expected.retain(|path, _| path != "ledger.lock" && path != "accounts");
    // Each rerun must make the same bytes as this ledger, from which Agave must start.
    let bank_snapshot =
        expected.keys().find_map(|path| path.strip_suffix("/fastboot_version")).expect("a bank snapshot");
    fs::write(restored.path().join("genesis.bin"), genesis).expect("written");
    for oracle in Oracle::all() {
        let state = oracle.load_dir(&ledger.join(bank_snapshot), &[ledger.join("accounts")], restored.path());
        println!("{}: {state:?}", oracle.path.display());
    }
    let mut scenarios: Vec<Scenario> = ["fetch", "bootstrap"]
        .map(|name| {
            let dir = temp_dir();
            let result = match name {
                "fetch" => ExpectedResult::Fetched(files.clone()),
                _ => ExpectedResult::Bootstrapped(expected.clone()),
            };
            let (source, out) = (dir.path().join("nothing"), dir.path().join("out"));
            Scenario { name, dir, source, out, expected: result, server: Some(serve(&files, TransferMode::Ranges)) }
        })
        .into();
    scenarios.push(make_base_scenario());
    scenarios
}

/// Makes the scenario in which a node has an older full archive, and a mirror has an incremental archive on it.
#[cfg(feature = "net")]
fn make_base_scenario() -> Scenario {
    let dir = temp_dir();
    let [old, new] = two_full_archives(AGAVE_4_2, dir.path());
    let rebased = rebase(&[&new], &old, dir.path(), &["--frame-size", "64KiB"]);
    let read = |path: &PathBuf| (name(path), fs::read(path).expect("read"));
    let mut expected = ledger_tree(&restore_files(&[read(&old), read(&rebased)].into()).path().join("ledger"));
    expected.retain(|path, _| path != "ledger.lock" && path != "accounts");
    let server = Some(serve(&[read(&new), read(&rebased)].into(), TransferMode::Ranges));
    let (source, out) = (dir.path().join(name(&old)), dir.path().join("out"));
    fs::copy(&old, &source).expect("copied");
    let expected = ExpectedResult::Bootstrapped(expected);
    Scenario { name: "bootstrap --base", dir, source, out, expected, server }
}

/// Returns the scenarios that need no network.
pub fn scenarios() -> Vec<Scenario> {
    let make = |name, prepare: &dyn Fn(&Path) -> (PathBuf, ExpectedResult)| {
        let dir = temp_dir();
        let (source, expected) = prepare(dir.path());
        let out = dir.path().join("out");
        Scenario {
            name,
            dir,
            source,
            out,
            expected,
            #[cfg(feature = "net")]
            server: None,
        }
    };
    let make_archive = |dir: &Path, command: &str, source: PathBuf| {
        let out = dir.join("first");
        fs::create_dir(&out).expect("made");
        let (code, stderr) = run_to_stderr(&[command, text(&source), "-o", text(&out)]);
        assert_eq!(code, Some(0), "{stderr}");
        let archive = fs::read_dir(&out).expect("read").next().expect("an archive").expect("an entry").path();
        let expected = ExpectedResult::Archive(name(&archive), fs::read(&archive).expect("read"));
        fs::remove_dir_all(out).expect("removed");
        (source, expected)
    };
    let copy_archive = |dir: &Path| {
        let source = dir.join(FULL_26);
        fs::copy(fixture(FULL_26), &source).expect("copied");
        source
    };
    let unpack_ledger = |dir: &Path| {
        let ledger = dir.join("ledger");
        unpack_into(&fixture("ledger-at-26.tar.zst"), &ledger);
        ledger
    };
    vec![
        make("archive", &|dir| make_archive(dir, "archive", unpack_ledger(dir))),
        make("recompress", &|dir| make_archive(dir, "recompress", copy_archive(dir))),
        make("restore", &|dir| (copy_archive(dir), ExpectedResult::Ledger)),
        make("restore --replace-state", &|dir| {
            let (archive, old) = (copy_archive(dir), dir.join("old"));
            fs::create_dir(&old).expect("made");
            make_old_state(&archive, 26, &old.join("out"), &old.join("accounts"));
            let files = [state_files(&old.join("out")), state_files(&old.join("accounts"))];
            (archive, ExpectedResult::Replaced(files.into_iter().flatten().collect()))
        }),
        make("verify ARCHIVE", &|dir| (copy_archive(dir), ExpectedResult::Report)),
        make("verify LEDGER", &|dir| (unpack_ledger(dir), ExpectedResult::Report)),
    ]
}
