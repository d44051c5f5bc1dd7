//! A validator's directory with a target beside it, and helpers that check the target.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use tempfile::TempDir;

pub use crate::common::listed::file_names;
use crate::common::listed::objects;
use crate::common::*;

/// Returns archives in the order in which a validator writes them: full 26, incremental 40, full 40, full 3500,
/// incremental 3550, incremental 3575, full 3575.
pub fn chain_archives() -> &'static Vec<PathBuf> {
    static CHAIN: OnceLock<(TempDir, Vec<PathBuf>)> = OnceLock::new();
    let (_, chain) = CHAIN.get_or_init(|| {
        let dir = temp_dir();
        let at_40 = ledger("ledger-at-40");
        let at_3575 = ledger("ledger-at-3575");
        let full_40 = archive(at_40.path(), dir.path(), &[]);
        fs::copy(fixture(FULL_3500), dir.path().join(FULL_3500)).expect("copied");
        let incremental_3575 = archive(at_3575.path(), dir.path(), &["--base-slot", "3500"]);
        let full_3575 = archive(at_3575.path(), dir.path(), &[]);
        let fixtures = [FULL_26, INCREMENTAL_26_40].map(fixture);
        let newer_fixtures = [FULL_3500, INCREMENTAL_3500_3550].map(fixture);
        (dir, [&fixtures[..], &[full_40], &newer_fixtures, &[incremental_3575, full_3575]].concat())
    });
    chain
}

pub struct Setup {
    pub dir: TempDir,
}

impl Setup {
    /// Makes the directories, with these archives in the validator's.
    pub fn new(archives: &[&Path]) -> Self {
        Self::new_in(temp_dir(), archives)
    }

    pub fn new_in(dir: TempDir, archives: &[&Path]) -> Self {
        let setup = Self { dir };
        fs::create_dir(setup.snapshots()).expect("made");
        fs::create_dir(setup.mirror()).expect("made");
        archives.iter().for_each(|archive| setup.write(archive));
        setup
    }

    /// Makes the directories, with a pair of the fixtures in the validator's.
    pub fn with_pair() -> Self {
        Self::new(&[&fixture(FULL_26), &fixture(INCREMENTAL_26_40)])
    }

    pub fn snapshots(&self) -> PathBuf {
        self.dir.path().join("snapshots")
    }

    pub fn mirror(&self) -> PathBuf {
        self.dir.path().join("mirror")
    }

    pub fn pins(&self) -> PathBuf {
        self.dir.path().join("snapshots.publish")
    }

    /// Writes an archive as Agave does: under a temporary name, then renamed.
    pub fn write(&self, archive: &Path) {
        let temporary = self.snapshots().join(format!("tmp-{}", name(archive)));
        fs::copy(archive, &temporary).expect("copied");
        fs::rename(&temporary, self.snapshots().join(name(archive))).expect("renamed");
    }

    /// Writes a damaged copy of an archive, which looks as if it had not changed for a while. Returns its bytes.
    pub fn write_damaged(&self, archive: &Path) -> Vec<u8> {
        let mut bytes = fs::read(archive).expect("read");
        let path = self.snapshots().join(name(archive));
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, &bytes).expect("written");
        backdate(&path);
        bytes
    }

    /// Returns the arguments of a run beside Agave, unless the flags name another writer.
    pub fn arguments(&self, flags: &[&str]) -> Vec<String> {
        let writer = if flags.contains(&"--writer") { &[][..] } else { &["--writer", "agave"] };
        self.arguments_for_any_writer(&[writer, flags].concat())
    }

    /// Returns the arguments of a run beside the writer in the flags, or an unknown one.
    pub fn arguments_for_any_writer(&self, flags: &[&str]) -> Vec<String> {
        let text = |path: PathBuf| path.to_str().expect("UTF-8").to_string();
        let mut arguments = vec!["publish".into(), text(self.snapshots()), "--to".into(), text(self.mirror())];
        arguments.extend(flags.iter().map(ToString::to_string));
        arguments
    }

    /// Runs `publish --once`.
    pub fn run_once(&self, flags: &[&str]) -> Output {
        slotpress().args(self.arguments(flags)).args(["--once", "--json"]).output().expect("runs")
    }

    /// Runs `publish --once`, which must succeed. Returns its events.
    pub fn publish_once(&self, flags: &[&str]) -> Vec<Value> {
        let output = self.run_once(flags);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        parse_events(&output)
    }

    pub fn published(&self) -> Vec<String> {
        archives_in(&self.mirror())
    }

    /// Checks that no archive is pinned, or waits to be published.
    pub fn assert_nothing_is_pinned(&self) {
        for dir in ["pinned", "ready"] {
            assert_eq!(file_names(&self.pins().join(dir)), [""; 0], "{dir}");
        }
    }

    /// Waits until no archive is pinned. A run unpins an archive after it has reported it as
    /// published.
    pub fn wait_until_nothing_is_pinned(&self) {
        let is_empty = |dir| file_names(&self.pins().join(dir)).is_empty();
        wait_for("published archives to be unpinned", || is_empty("pinned") && is_empty("ready"));
    }
}

/// Sets a file's modification time two minutes back, as if it had not changed for a while.
pub fn backdate(path: &Path) {
    let file = fs::File::options().write(true).open(path).expect("open");
    file.set_modified(SystemTime::now() - Duration::from_secs(120)).expect("set");
}

pub fn parse_events(output: &Output) -> Vec<Value> {
    objects(&output.stdout)
}

/// Returns the events of one type.
pub fn events_of_type<'a>(events: &'a [Value], wanted: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == wanted).collect()
}

pub fn archives_in(dir: &Path) -> Vec<String> {
    file_names(dir).into_iter().filter(|name| name.contains("snapshot-") && !name.starts_with("tmp-")).collect()
}

/// Reads the index of a target.
pub fn read_index(mirror: &Path) -> Value {
    let index = fs::read(mirror.join("api/v1/archives")).expect("an index");
    serde_json::from_slice(&index).expect("JSON")
}

/// Reads `latest.json`, and checks that its archives exist and have their sizes. Returns their names.
pub fn read_latest(mirror: &Path) -> Vec<String> {
    let Ok(text) = fs::read(mirror.join("latest.json")) else { return Vec::new() };
    let latest: Value = serde_json::from_slice(&text).expect("whole JSON");
    let archives = latest["archives"].as_array().expect("archives");
    assert!(!archives.is_empty(), "{latest}");
    assert_eq!(archives[0]["kind"], "full", "{latest}");
    assert!(archives.iter().skip(1).all(|archive| archive["base"] == archives[0]["name"]), "{latest}");
    let checked_name = |archive: &Value| {
        let name = archive["name"].as_str().expect("a name").to_string();
        let path = mirror.join(&name);
        let metadata = fs::metadata(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(archive["size_bytes"], metadata.len(), "{name}");
        name
    };
    archives.iter().map(checked_name).collect()
}

/// Runs `verify` on every published archive.
pub fn verify_published(mirror: &Path) {
    for name in archives_in(mirror) {
        let check = if name.starts_with("incremental") { "frames" } else { "state" };
        slotpress().arg("verify").arg(mirror.join(name)).args(["--check", check]).assert().success();
    }
}

/// A file in a validator's directory, as far as `publish` could change it.
#[derive(Debug, PartialEq)]
pub struct FileState {
    pub inode: u64,
    pub links: u64,
    pub modified: SystemTime,
    pub bytes: Vec<u8>,
}

/// Returns the files in a directory by name.
pub fn file_states(dir: &Path) -> BTreeMap<String, FileState> {
    let state = |name: String| {
        let path = dir.join(&name);
        let metadata = fs::symlink_metadata(&path).expect("metadata");
        let bytes = fs::read(path).expect("read");
        let modified = metadata.modified().expect("a time");
        let state = FileState { inode: metadata.ino(), links: metadata.nlink(), modified, bytes };
        (name, state)
    };
    file_names(dir).into_iter().map(state).collect()
}
