//! Does Agave itself load it? Runs when `AGAVE_ORACLE` names a checker built on Agave's own crates, which understands
//! `gen OUT …`, `load --full A [--incremental B]` and `loaddir DIR --accounts-run DIR…`, and prints `key=value` words.

#![allow(clippy::expect_used)] // a test that cannot go on has failed

mod common;

use {
    common::*,
    std::{
        collections::BTreeMap,
        fs,
        path::{Path, PathBuf},
        process::Command,
    },
};

const SETTINGS: [(&str, &str); 8] = [
    ("1", "64KiB"),
    ("1", "32MiB"),
    ("3", "64KiB"),
    ("3", "32MiB"),
    ("10", "64KiB"),
    ("10", "32MiB"),
    ("19", "64KiB"),
    ("19", "32MiB"),
];

/// What Agave says of a state.
#[derive(Debug, PartialEq, Eq)]
struct State(BTreeMap<String, String>);

impl State {
    const FIELDS: [&'static str; 4] = ["slot", "bank_hash", "capitalization", "accounts"];

    fn parse(output: &str) -> Self {
        let pairs = output.split_whitespace().filter_map(|word| word.split_once('='));
        let known = pairs.filter(|(key, _)| Self::FIELDS.contains(key));
        let state = Self(known.map(|(key, value)| (key.to_string(), value.to_string())).collect());
        assert_eq!(state.0.len(), Self::FIELDS.len(), "slot, bank hash, capitalization and accounts: {output}");
        state
    }

    fn of(slot: &str, bank_hash: &str, capitalization: &str, accounts: &str) -> Self {
        let values = [slot, bank_hash, capitalization, accounts].map(str::to_string);
        Self(Self::FIELDS.map(str::to_string).into_iter().zip(values).collect())
    }
}

struct Oracle(PathBuf);

impl Oracle {
    fn new() -> Option<Self> {
        let oracle = std::env::var_os("AGAVE_ORACLE").map(|path| Self(path.into()));
        if oracle.is_none() {
            eprintln!("skipped: AGAVE_ORACLE names no checker");
        }
        oracle
    }

    fn run(&self, command: &mut Command) -> String {
        let output = command.output().expect("the checker runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {text}");
        text
    }

    fn load(&self, full: &Path, incremental: Option<&Path>, genesis: &Path) -> State {
        let mut command = Command::new(&self.0);
        command.arg("load").arg("--full").arg(full).arg("--genesis").arg(genesis);
        if let Some(incremental) = incremental {
            command.arg("--incremental").arg(incremental);
        }
        State::parse(&self.run(&mut command))
    }

    fn load_dir(&self, bank_snapshot: &Path, accounts: &[PathBuf], genesis: &Path) -> State {
        let mut command = Command::new(&self.0);
        command.arg("loaddir").arg(bank_snapshot).arg("--genesis").arg(genesis);
        for dir in accounts {
            command.arg("--accounts-run").arg(dir.join("run"));
        }
        State::parse(&self.run(&mut command))
    }
}

/// A chain to try: its state at the full archive's slot and at the newest, and Agave's own archives of both.
struct Chain {
    name: String,
    genesis: PathBuf,
    at_full: PathBuf,
    at_newest: PathBuf,
    full: PathBuf,
    incremental: PathBuf,
    full_slot: String,
    newest_slot: String,
}

fn archives_in(dir: &Path) -> (PathBuf, PathBuf) {
    let named = |prefix: &str| {
        let mut found = fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path());
        found.find(|path| name(path).starts_with(prefix)).expect("an archive")
    };
    (named("snapshot-"), named("incremental-snapshot-"))
}

fn try_archives(oracle: &Oracle, chain: &Chain, settings: &[(&str, &str)]) {
    let full_state = oracle.load(&chain.full, None, &chain.genesis);
    let newest_state = oracle.load(&chain.full, Some(&chain.incremental), &chain.genesis);
    for (level, frame_size) in settings {
        let out = temp_dir();
        let level = format!("--zstd-level={level}");
        let flags = [level.as_str(), "--frame-size", frame_size];
        let full = archive(&chain.at_full, out.path(), &flags);
        let incremental = archive(
            &chain.at_newest,
            out.path(),
            &flags.iter().copied().chain(["--base-slot", &chain.full_slot]).collect::<Vec<_>>(),
        );
        let newest = archive(&chain.at_newest, out.path(), &flags);
        let what = format!("{} {flags:?}", chain.name);
        assert_eq!(oracle.load(&full, None, &chain.genesis), full_state, "{what}: full");
        assert_eq!(oracle.load(&full, Some(&incremental), &chain.genesis), newest_state, "{what}: incremental");
        // Ours on Agave's.
        assert_eq!(oracle.load(&chain.full, Some(&incremental), &chain.genesis), newest_state, "{what}: on Agave's");
        assert_eq!(oracle.load(&newest, None, &chain.genesis), newest_state, "{what}: full of the newest slot");
    }
}

fn try_restores(oracle: &Oracle, chain: &Chain) {
    let full_state = oracle.load(&chain.full, None, &chain.genesis);
    let newest_state = oracle.load(&chain.full, Some(&chain.incremental), &chain.genesis);
    let out = temp_dir();
    let small = ["--frame-size", "64KiB"];
    let ours = archive(&chain.at_full, out.path(), &small);
    let ours_incremental =
        archive(&chain.at_newest, out.path(), &["--frame-size", "64KiB", "--base-slot", &chain.full_slot]);
    let (equal_full, equal_incremental) = with_equal_ids(&chain.full, &chain.incremental, out.path());
    for (full, incremental) in [
        (&chain.full, &chain.incremental),
        (&ours, &ours_incremental),
        (&chain.full, &ours_incremental),
        (&equal_full, &equal_incremental),
    ] {
        for paths in [1, 3] {
            for with_incremental in [false, true] {
                let target = temp_dir();
                let ledger = target.path().join("ledger");
                let accounts: Vec<PathBuf> =
                    (0..paths).map(|number| target.path().join(format!("accounts-{number}"))).collect();
                let mut command = slotpress();
                command.arg("restore").arg(full);
                if with_incremental {
                    command.arg(incremental);
                }
                command.arg("--ledger").arg(&ledger);
                for dir in &accounts {
                    command.arg("--accounts").arg(dir);
                }
                command.assert().success();
                let (slot, expected) = match with_incremental {
                    true => (&chain.newest_slot, &newest_state),
                    false => (&chain.full_slot, &full_state),
                };
                let bank_snapshot = ledger.join("snapshots").join(slot);
                let state = oracle.load_dir(&bank_snapshot, &accounts, &chain.genesis);
                assert_eq!(state, *expected, "{}: {} over {paths} accounts paths", chain.name, full.display());
            }
        }
    }
}

/// The same archives with ids that start from 0 in both, as archives of two nodes may have.
fn with_equal_ids(full: &Path, incremental: &Path, dir: &Path) -> (PathBuf, PathBuf) {
    let renumber = |archive: &Path| {
        let mut entries = entries(archive);
        let storages = entries.iter_mut().filter(|entry| entry.path.starts_with("accounts/"));
        for (id, entry) in storages.enumerate() {
            let slot = entry.path.split_once('.').expect("slot.id").0.to_string();
            entry.path = format!("{slot}.{id}");
        }
        let to = dir.join("equal-ids").join(name(archive));
        fs::create_dir_all(to.parent().expect("a parent")).expect("made");
        fs::write(&to, zstd::stream::encode_all(make_tar(&entries).as_slice(), 1).expect("compresses"))
            .expect("written");
        to
    };
    (renumber(full), renumber(incremental))
}

#[test]
fn fixtures() {
    let Some(oracle) = Oracle::new() else { return };
    let (at_26, at_40, links) = (ledger("ledger-at-26"), ledger("ledger-at-40"), ledger("ledger-at-40-hard-links"));
    for (name, at_newest) in [("list", &at_40), ("hard links", &links)] {
        let chain = Chain {
            name: name.to_string(),
            genesis: fixture("expected.json").parent().expect("a parent").to_path_buf(),
            at_full: at_26.path().to_path_buf(),
            at_newest: at_newest.path().to_path_buf(),
            full: fixture(FULL_26),
            incremental: fixture(INCREMENTAL_26_40),
            full_slot: "26".to_string(),
            newest_slot: "40".to_string(),
        };
        let says = expected(40);
        let field = |field: &str| says[field].to_string().trim_matches('"').to_string();
        let state = State::of("40", &field("bank_hash"), &field("capitalization"), &field("accounts"));
        assert_eq!(oracle.load(&chain.full, Some(&chain.incremental), &chain.genesis), state);
        try_archives(&oracle, &chain, &SETTINGS);
        try_restores(&oracle, &chain);
    }
}

#[test]
fn the_ledger_of_a_real_validator() {
    let Some(oracle) = Oracle::new() else { return };
    let (ledger, out, target) = (ledger("ledger-at-3575"), temp_dir(), temp_dir());
    let genesis = fixture(FULL_3500).parent().expect("a parent").to_path_buf();
    let state = State::of("3575", "7rDVGfj5Dmq6iBayHsfFji2Jfg6Ch9jXupb3Cdn4xXTE", "503000734413701571", "1895");
    for (level, frame_size) in SETTINGS {
        let level = format!("--zstd-level={level}");
        let flags = [level.as_str(), "--frame-size", frame_size, "--force"];
        let full = archive(ledger.path(), out.path(), &flags);
        assert_eq!(oracle.load(&full, None, &genesis), state, "{flags:?}: full");
        let base = temp_dir();
        fs::copy(fixture(FULL_3500), base.path().join(FULL_3500)).expect("copied");
        let flags = [level.as_str(), "--frame-size", frame_size, "--base-slot", "3500"];
        let incremental = archive(ledger.path(), base.path(), &flags);
        assert_eq!(oracle.load(&fixture(FULL_3500), Some(&incremental), &genesis), state, "{flags:?}: incremental");
    }
    let at_3550 = State::of("3550", "4edUZjBdvEk3EQdVByoV9eJT1xNsE7jfvDBPSPyLVTc3", "503000734413761571", "1895");
    let ledger = target.path().join("ledger");
    slotpress()
        .arg("restore")
        .args([fixture(FULL_3500), fixture(INCREMENTAL_3500_3550)])
        .arg("--ledger")
        .arg(&ledger)
        .assert()
        .success();
    let loaded = oracle.load_dir(&ledger.join("snapshots/3550"), &[ledger.join("accounts")], &genesis);
    assert_eq!(loaded, at_3550);
    // What was restored and never ran is archived whole, and Agave loads that too.
    let again = archive(&ledger, out.path(), &[]);
    assert_eq!(oracle.load(&again, None, &genesis), at_3550);
}

#[test]
fn generated_chains() {
    let Some(oracle) = Oracle::new() else { return };
    for (number, flags) in [
        "--accounts 3000 --slots 60 --seed 1",
        "--accounts 3000 --slots 90 --seed 2 --hot",
        "--accounts 30000 --slots 120 --seed 3 --hot --update-pct 20",
        "--accounts 60000 --slots 240 --seed 4 --close-permille 100",
        "--accounts 1000 --slots 300 --seed 5 --hot --close-permille 200",
    ]
    .into_iter()
    .enumerate()
    {
        let dir = temp_dir();
        let flags: Vec<&str> = flags.split(' ').collect();
        oracle.run(Command::new(&oracle.0).arg("gen").arg(dir.path()).args(&flags));
        let (full, incremental) = archives_in(&dir.path().join("archives"));
        let slots = name(&incremental);
        let mut slots = slots.trim_start_matches("incremental-snapshot-").split('-');
        let (full_slot, newest_slot) = (slots.next().expect("a base slot"), slots.next().expect("a slot"));
        let chain = Chain {
            name: flags.join(" "),
            genesis: dir.path().to_path_buf(),
            at_full: dir.path().join("at-full"),
            at_newest: dir.path().to_path_buf(),
            full,
            incremental,
            full_slot: full_slot.to_string(),
            newest_slot: newest_slot.to_string(),
        };
        // All settings for the smallest chain, a pair of them for each larger one.
        let settings = if number == 0 { &SETTINGS[..] } else { &SETTINGS[number * 2 % 8..][..2] };
        try_archives(&oracle, &chain, settings);
        try_restores(&oracle, &chain);
    }
}
