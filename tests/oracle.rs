//! Asks Agave itself whether it loads what slotpress makes. Runs when `AGAVE_ORACLE` names checkers
//! built on Agave's own crates (`common/oracle.rs`).
//!
//! This command makes the table of docs/interop.md:
//! `AGAVE_ORACLE=… cargo test --test suite oracle -- --ignored interop_table --nocapture`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use slotpress_base::NoProgress;
use slotpress_format::LedgerPaths;
use slotpress_read::{CheckOptions, ClientVerdict, NamedArchive, Snapshot, VerifyOptions, verify};

use crate::common::oracle::{Oracle, State};
use crate::common::*;

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

/// A chain for a test: its state at the full archive's slot and at the newest, and Agave's own
/// archives of both.
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
    for (number, (level, frame_size)) in settings.iter().flat_map(|setting| [setting; 2]).enumerate() {
        let out = temp_dir();
        let level = format!("--zstd-level={level}");
        // Each setting, verbatim and clustered.
        let layout = ["verbatim", "clustered"][number % 2];
        let flags = [level.as_str(), "--frame-size", frame_size, "--layout", layout];
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
        // Our incremental archive on Agave's full one.
        assert_eq!(oracle.load(&chain.full, Some(&incremental), &chain.genesis), newest_state, "{what}: on Agave's");
        assert_eq!(oracle.load(&newest, None, &chain.genesis), newest_state, "{what}: full of the newest slot");
    }
}

fn try_restores(oracle: &Oracle, chain: &Chain) {
    let full_state = oracle.load(&chain.full, None, &chain.genesis);
    let newest_state = oracle.load(&chain.full, Some(&chain.incremental), &chain.genesis);
    let out = temp_dir();
    let small = ["--frame-size", "64KiB", "--layout", "clustered"];
    let ours = archive(&chain.at_full, out.path(), &small);
    let ours_incremental =
        archive(&chain.at_newest, out.path(), &[&small[..], &["--base-slot", &chain.full_slot]].concat());
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
                let (slot, expected) = if with_incremental {
                    (&chain.newest_slot, &newest_state)
                } else {
                    (&chain.full_slot, &full_state)
                };
                let bank_snapshot = ledger.join("snapshots").join(slot);
                let state = oracle.load_dir(&bank_snapshot, &accounts, &chain.genesis);
                assert_eq!(state, *expected, "{}: {} over {paths} accounts paths", chain.name, full.display());
            }
        }
    }
}

/// Makes the same archives with ids from 0 in both, as archives of two nodes may have.
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
#[ignore = "asks Agave itself: AGAVE_ORACLE names programs built on its crates"]
fn fixtures() {
    for oracle in Oracle::required() {
        try_fixtures(&oracle);
    }
}

fn try_fixtures(oracle: &Oracle) {
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
        let state = State::expected(40, &expected(40));
        assert_eq!(oracle.load(&chain.full, Some(&chain.incremental), &chain.genesis), state);
        try_archives(oracle, &chain, &SETTINGS);
        try_restores(oracle, &chain);
    }
}

#[test]
#[ignore = "asks Agave itself: AGAVE_ORACLE names programs built on its crates"]
fn the_ledger_of_a_real_validator() {
    for oracle in Oracle::required() {
        try_the_ledger_of_a_real_validator(&oracle);
    }
}

fn try_the_ledger_of_a_real_validator(oracle: &Oracle) {
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
    // A restored ledger that never ran is archived whole, and Agave loads that too.
    let again = archive(&ledger, out.path(), &[]);
    assert_eq!(oracle.load(&again, None, &genesis), at_3550);
}

#[test]
#[ignore = "asks Agave itself: AGAVE_ORACLE names programs built on its crates"]
fn generated_chains() {
    for oracle in Oracle::required() {
        try_generated_chains(&oracle);
    }
}

fn try_generated_chains(oracle: &Oracle) {
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
        oracle.run(Command::new(&oracle.path).arg("gen").arg(dir.path()).args(&flags));
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
        // All settings for the smallest chain, two of them for each larger one.
        let settings = if number == 0 { &SETTINGS[..] } else { &SETTINGS[number * 2 % 8..][..2] };
        try_archives(oracle, &chain, settings);
        try_restores(oracle, &chain);
    }
}

/// A directory of some version: its name, its fixture, and its slot.
const LAYOUTS: [(&str, &str, &str, u64); 6] = [
    ("fastboot 2.0.0, hard links", "agave-4.2.2", "ledger-at-40-hard-links", 40),
    ("fastboot 3.0.0, storages list", "agave-4.2.2", "ledger-at-40", 40),
    ("fastboot 3.1.0, storages list", AGAVE_4_4, "ledger-at-40", 40),
    ("fastboot 5.0.0, append vecs", AGAVE_4_5, "ledger-at-40", 40),
    ("fastboot 5.0.0, split storages", AGAVE_4_5_SPLIT, "ledger-at-40", 40),
    ("restored by slotpress, from archives of Agave 4.5", AGAVE_4_5, "", 40),
];

fn verify_options() -> VerifyOptions {
    VerifyOptions::default().threads(2).check(CheckOptions::default().memory_bytes(64 << 20))
}

/// Returns the answer of an oracle as a cell of the table. It must be the verdict of `verify` on
/// its version.
fn cell(
    oracle: &Oracle,
    answer: Result<State, String>,
    expected: &State,
    ours: &[ClientVerdict],
    what: &str,
) -> String {
    let verdict = ours.iter().find(|verdict| verdict.client == oracle.client).expect("a verdict");
    assert_eq!(answer.is_ok(), verdict.loads, "{what}: {:?} says {answer:?}, verify {verdict:?}", oracle.client);
    match answer {
        Ok(state) => {
            assert_eq!(state, *expected, "{what}");
            "accepted".to_string()
        }
        Err(_) => format!("refused: {}", verdict.because.unwrap_or_default()),
    }
}

/// Tries every directory layout with every reader: the directory itself, and archives of it by
/// slotpress, verbatim and clustered, full and incremental. Prints the answers that docs/interop.md
/// sums up. Each answer must be the verdict of `verify` on that version.
#[test]
#[ignore = "prints the answers of docs/interop.md"]
fn interop_table() {
    let oracles = Oracle::required();
    assert!(!oracles.is_empty(), "AGAVE_ORACLE names the readers");
    let names: Vec<String> = oracles.iter().map(|oracle| oracle.client.to_string()).collect();
    println!("| Ledger | What is read | {} |", names.join(" | "));
    println!("|---|---|{}", "---|".repeat(names.len()));
    let mut refused = Vec::new();
    for (layout, chain, file, slot) in LAYOUTS {
        let dir = temp_dir();
        let ledger = dir.path().join("ledger");
        let agave_full = fixture_of(chain, "snapshot-26-");
        if file.is_empty() {
            let incremental = fixture_of(chain, "incremental-snapshot-26-40-");
            slotpress()
                .arg("restore")
                .args([&agave_full, &incremental])
                .arg("--ledger")
                .arg(&ledger)
                .assert()
                .success();
        } else {
            unpack_into(&fixture_of(chain, &format!("{file}.")), &ledger);
        }
        let genesis = agave_full.parent().expect("a parent").to_path_buf();
        let expected = State::expected(slot, &expected_of(chain, slot));
        let paths = LedgerPaths { ledger: ledger.clone(), ..LedgerPaths::default() };
        let ours = verify(Snapshot::ledger(&paths), &verify_options(), &NoProgress).expect("verified");
        let bank_snapshot = ledger.join("snapshots").join(slot.to_string());
        let mut row = |what: &str, ours: &[ClientVerdict], ask: &dyn Fn(&Oracle) -> Result<State, String>| {
            let what = format!("{layout} | {what}");
            let cells: Vec<String> =
                oracles.iter().map(|oracle| cell(oracle, ask(oracle), &expected, ours, &what)).collect();
            println!("| {what} | {} |", cells.join(" | "));
            refused.extend(cells.into_iter().filter(|cell| cell != "accepted").map(|cell| format!("{what}: {cell}")));
        };
        row("the directory", &ours.clients, &|oracle| {
            oracle.accepts_dir(&bank_snapshot, &[ledger.join("accounts")], &genesis)
        });
        for stored in ["verbatim", "clustered"] {
            let out = dir.path().join(stored);
            fs::create_dir(&out).expect("made");
            let flags = ["--layout", stored, "--frame-size", "64KiB"];
            let incremental = archive(&ledger, &out, &[&flags[..], &["--base-slot", "26", "--force-base"]].concat());
            let full = archive(&ledger, &out, &flags);
            for (kind, full, incremental) in
                [("full", &full, None), ("incremental, on Agave's full", &agave_full, Some(&incremental))]
            {
                let incremental = incremental.map(PathBuf::as_path);
                let named = incremental.map(NamedArchive::from_path);
                let full_name = NamedArchive::from_path(full);
                let ours = verify(
                    Snapshot::Archives { full: &full_name, incremental: named.as_ref() },
                    &verify_options(),
                    &NoProgress,
                );
                let clients = ours.expect("verified").clients;
                assert!(clients.iter().all(|verdict| verdict.loads));
                row(&format!("archive, {stored}, {kind}"), &clients, &|oracle| {
                    oracle.accepts(full, incremental, &genesis)
                });
            }
        }
    }
    assert!(refused.iter().all(|what| what.contains("the directory")), "every archive loads: {refused:#?}");
}

/// Tries archives by Firedancer, alone and with Agave's own. Prints the answers that
/// docs/interop.md sums up. Each answer must be the verdict of `verify` on that version.
#[test]
#[ignore = "prints the answers of docs/interop.md"]
fn interop_firedancer() {
    let oracles = Oracle::required();
    for (chain, agave) in [("firedancer-2026-08/chain", "agave-4.2.2"), ("firedancer-2026-09/full-bank", AGAVE_4_4)] {
        let [full, newer] = ["snapshot-", "incremental-"].map(|prefix| fixture_of(chain, prefix));
        let [agave_full, agave_newer] = ["snapshot-26-", "incremental-"].map(|prefix| fixture_of(agave, prefix));
        let genesis = agave_full.parent().expect("a parent");
        for (what, full, newer) in [
            ("full", &full, None),
            ("full and incremental", &full, Some(&newer)),
            ("incremental on Agave's full", &agave_full, Some(&newer)),
            ("full, and Agave's incremental", &full, Some(&agave_newer)),
        ] {
            let newer = newer.map(PathBuf::as_path);
            let named = newer.map(NamedArchive::from_path);
            let ours = verify(
                Snapshot::Archives { full: &NamedArchive::from_path(full), incremental: named.as_ref() },
                &verify_options(),
                &NoProgress,
            );
            let ours = ours.expect("verified").clients;
            let cells: Vec<String> = oracles
                .iter()
                .map(|oracle| {
                    let of_agave = newer.map(|_| agave_newer.as_path());
                    let expected = oracle.load(&agave_full, of_agave, genesis);
                    cell(oracle, oracle.accepts(full, newer, genesis), &expected, &ours, what)
                })
                .collect();
            println!("| {chain} | {what} | {} |", cells.join(" | "));
        }
    }
}
