//! Agave's own loader. `AGAVE_ORACLE` lists programs built on Agave's crates, separated by colons as in `PATH`.
//!
//! Each program understands `gen OUT …`, `load --full A [--incremental B] --genesis DIR` and
//! `loaddir DIR [--accounts-run DIR]… --genesis DIR`. It exits with 0 if Agave accepts, and prints
//! `key=value` words. A program whose name ends in `-44` or `-45` is built on Agave 4.4 or 4.5; any other program,
//! on Agave 4.2.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use slotpress_read::SnapshotClient;

/// Facts that Agave prints about a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State(BTreeMap<String, String>);

impl State {
    const FIELDS: [&'static str; 4] = ["slot", "bank_hash", "capitalization", "accounts"];

    fn parse(output: &str) -> Self {
        let pairs = output.split_whitespace().filter_map(|word| word.split_once('='));
        let known = pairs.filter(|(key, _)| Self::FIELDS.contains(key));
        let state = Self(known.map(|(key, value)| (key.to_string(), value.to_string())).collect());
        assert_eq!(state.0.len(), Self::FIELDS.len(), "slot, bank hash, capitalization and accounts: {output}");
        state
    }

    pub fn of(slot: &str, bank_hash: &str, capitalization: &str, accounts: &str) -> Self {
        let values = [slot, bank_hash, capitalization, accounts].map(str::to_string);
        Self(Self::FIELDS.map(str::to_string).into_iter().zip(values).collect())
    }

    /// Makes the state of a slot from the facts in `expected.json`.
    pub fn expected(slot: u64, facts: &serde_json::Value) -> Self {
        let field = |field: &str| facts[field].to_string().trim_matches('"').to_string();
        Self::of(&slot.to_string(), &field("bank_hash"), &field("capitalization"), &field("accounts"))
    }
}

/// A program of `AGAVE_ORACLE`.
#[derive(Clone, Debug)]
pub struct Oracle {
    pub path: PathBuf,
    pub client: SnapshotClient,
}

impl Oracle {
    /// Returns all programs of `AGAVE_ORACLE`, which must name at least one. Tests that are normally ignored
    /// call this function.
    pub fn required() -> Vec<Self> {
        let all = Self::all();
        assert!(!all.is_empty(), "AGAVE_ORACLE names no program");
        all
    }

    /// Returns all programs of `AGAVE_ORACLE`, or none if the variable is not set. Tests that also check other
    /// things call this function.
    pub fn all() -> Vec<Self> {
        let Some(list) = std::env::var_os("AGAVE_ORACLE") else { return Vec::new() };
        let client = |path: &Path| match path.file_name().map(|name| name.to_string_lossy()) {
            Some(name) if name.ends_with("-44") => SnapshotClient::Agave44,
            Some(name) if name.ends_with("-45") => SnapshotClient::Agave45,
            _ => SnapshotClient::Agave42,
        };
        std::env::split_paths(&list).map(|path| Self { client: client(&path), path }).collect()
    }

    /// Runs a program. Returns its output as `Ok` if it succeeds, and as `Err` if it fails.
    fn ask(command: &mut Command) -> Result<String, String> {
        let output = command.output().expect("the program runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        if output.status.success() { Ok(text) } else { Err(text) }
    }

    pub fn run(command: &mut Command) -> String {
        Self::ask(command).unwrap_or_else(|text| panic!("{command:?}: {text}"))
    }

    fn load_command(&self, full: &Path, incremental: Option<&Path>, genesis: &Path) -> Command {
        let mut command = Command::new(&self.path);
        command.arg("load").arg("--full").arg(full).arg("--genesis").arg(genesis);
        if let Some(incremental) = incremental {
            command.arg("--incremental").arg(incremental);
        }
        command
    }

    fn load_dir_command(&self, bank_snapshot: &Path, accounts: &[PathBuf], genesis: &Path) -> Command {
        let mut command = Command::new(&self.path);
        command.arg("loaddir").arg(bank_snapshot).arg("--genesis").arg(genesis);
        for dir in accounts {
            command.arg("--accounts-run").arg(dir.join("run"));
        }
        command
    }

    /// Returns the state that Agave loads from archives, or the last line of its output if it refuses.
    pub fn try_load(&self, full: &Path, incremental: Option<&Path>, genesis: &Path) -> Result<State, String> {
        Self::ask(&mut self.load_command(full, incremental, genesis)).map(|text| State::parse(&text)).map_err(last_line)
    }

    /// Returns the state with which Agave starts from a directory, or the last line of its output if it
    /// refuses.
    pub fn try_load_dir(&self, bank_snapshot: &Path, accounts: &[PathBuf], genesis: &Path) -> Result<State, String> {
        let answer = Self::ask(&mut self.load_dir_command(bank_snapshot, accounts, genesis));
        answer.map(|text| State::parse(&text)).map_err(last_line)
    }

    /// Returns the state that Agave loads from archives. They must load.
    pub fn load(&self, full: &Path, incremental: Option<&Path>, genesis: &Path) -> State {
        State::parse(&Self::run(&mut self.load_command(full, incremental, genesis)))
    }

    /// Returns the state with which Agave starts from a directory. It must start.
    pub fn load_dir(&self, bank_snapshot: &Path, accounts: &[PathBuf], genesis: &Path) -> State {
        State::parse(&Self::run(&mut self.load_dir_command(bank_snapshot, accounts, genesis)))
    }
}

fn last_line(text: String) -> String {
    text.lines().last().unwrap_or_default().to_string()
}
