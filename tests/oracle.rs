//! Agave loads archives that slotpress wrote and ledgers that it restored. The tests are ignored by default, and need
//! programs built on Agave's own crates, which `AGAVE_ORACLE` names (`common/oracle.rs`).
//!
//! This command prints the answers that docs/interop.md summarizes:
//! `AGAVE_ORACLE=… cargo test --test suite oracle -- --ignored verify_agrees --nocapture`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use slotpress_base::NoProgress;
use slotpress_format::LedgerPaths;
use slotpress_read::{CheckOptions, ClientVerdict, Snapshot, VerifyOptions, verify};

use crate::common::oracle::{Oracle, State};
use crate::common::*;

/// Settings of `archive`.
struct Setting {
    level: &'static str,
    frame_size: &'static str,
}

const fn setting(level: &'static str, frame_size: &'static str) -> Setting {
    Setting { level, frame_size }
}

const SETTINGS: [Setting; 8] = [
    setting("1", "64KiB"),
    setting("1", "32MiB"),
    setting("3", "64KiB"),
    setting("3", "32MiB"),
    setting("10", "64KiB"),
    setting("10", "32MiB"),
    setting("19", "64KiB"),
    setting("19", "32MiB"),
];

/// A chain with Agave's own archives of two states: an older one, and the newest one.
struct Chain {
    name: String,
    /// Directory with the genesis.
    genesis: PathBuf,
    /// Ledger at the slot of the full archive.
    at_full: PathBuf,
    at_newest: PathBuf,
    full: PathBuf,
    incremental: PathBuf,
    full_slot: String,
    newest_slot: String,
}

fn find_archive(dir: &Path, prefix: &str) -> PathBuf {
    let mut paths = fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path());
    paths.find(|path| name(path).starts_with(prefix)).expect("an archive")
}

/// Checks that Agave loads the same state from archives of slotpress as from its own.
fn assert_archives_load(oracle: &Oracle, chain: &Chain, settings: &[Setting]) {
    let full_state = oracle.load(&chain.full, None, &chain.genesis);
    let newest_state = oracle.load(&chain.full, Some(&chain.incremental), &chain.genesis);
    for (number, Setting { level, frame_size }) in settings.iter().flat_map(|setting| [setting; 2]).enumerate() {
        let out = temp_dir();
        let level = format!("--zstd-level={level}");
        let layout = ["verbatim", "clustered"][number % 2];
        let flags = [level.as_str(), "--frame-size", frame_size, "--layout", layout];
        let full = archive(&chain.at_full, out.path(), &flags);
        let incremental = archive(
            &chain.at_newest,
            out.path(),
            &flags.iter().copied().chain(["--base-slot", &chain.full_slot]).collect::<Vec<_>>(),
        );
        let newest = archive(&chain.at_newest, out.path(), &flags);
        let label = format!("{} {flags:?}", chain.name);
        assert_eq!(oracle.load(&full, None, &chain.genesis), full_state, "{label}: full");
        assert_eq!(oracle.load(&full, Some(&incremental), &chain.genesis), newest_state, "{label}: incremental");
        assert_eq!(
            oracle.load(&chain.full, Some(&incremental), &chain.genesis),
            newest_state,
            "{label}: incremental on Agave's full"
        );
        assert_eq!(oracle.load(&newest, None, &chain.genesis), newest_state, "{label}: full of the newest slot");
    }
}

/// Checks that Agave starts from restored ledgers with the same state as from its own archives.
fn assert_restored_ledgers_load(oracle: &Oracle, chain: &Chain) {
    let full_state = oracle.load(&chain.full, None, &chain.genesis);
    let newest_state = oracle.load(&chain.full, Some(&chain.incremental), &chain.genesis);
    let out = temp_dir();
    let flags = ["--frame-size", "64KiB", "--layout", "clustered"];
    let ours = archive(&chain.at_full, out.path(), &flags);
    let ours_incremental =
        archive(&chain.at_newest, out.path(), &[&flags[..], &["--base-slot", &chain.full_slot]].concat());
    let [equal_full, equal_incremental] = copy_with_equal_ids(&chain.full, &chain.incremental, out.path());
    for (full, incremental) in [
        (&chain.full, &chain.incremental),
        (&ours, &ours_incremental),
        (&chain.full, &ours_incremental),
        (&equal_full, &equal_incremental),
    ] {
        for paths in [1, 3] {
            for newer_archive in [None, Some(incremental)] {
                let target = temp_dir();
                let ledger = target.path().join("ledger");
                let accounts: Vec<PathBuf> =
                    (0..paths).map(|number| target.path().join(format!("accounts-{number}"))).collect();
                let mut command = slotpress();
                command.arg("restore").arg(full).args(newer_archive).arg("--ledger").arg(&ledger);
                for dir in &accounts {
                    command.arg("--accounts").arg(dir);
                }
                command.assert().success();
                let (slot, expected) = match newer_archive {
                    Some(_) => (&chain.newest_slot, &newest_state),
                    None => (&chain.full_slot, &full_state),
                };
                let bank_snapshot = ledger.join("snapshots").join(slot);
                let state = oracle.load_dir(&bank_snapshot, &accounts, &chain.genesis);
                assert_eq!(state, *expected, "{}: {} over {paths} accounts paths", chain.name, full.display());
            }
        }
    }
}

/// Copies the archives with new storage ids, which start at 0 in both, as in archives of two nodes.
fn copy_with_equal_ids(full: &Path, incremental: &Path, dir: &Path) -> [PathBuf; 2] {
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
    [full, incremental].map(renumber)
}

#[test]
#[ignore = "asks Agave itself: AGAVE_ORACLE names programs built on its crates"]
fn agave_loads_archives_and_ledgers_of_the_fixtures() {
    for oracle in Oracle::required() {
        assert_fixtures_load(&oracle);
    }
}

fn assert_fixtures_load(oracle: &Oracle) {
    let at_26 = ledger("ledger-at-26");
    for (name, newest) in [("list", "ledger-at-40"), ("hard links", "ledger-at-40-hard-links")] {
        let at_newest = ledger(newest);
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
        let state = State::expected(40, &expected_facts(AGAVE_4_2, 40));
        assert_eq!(oracle.load(&chain.full, Some(&chain.incremental), &chain.genesis), state);
        assert_archives_load(oracle, &chain, &SETTINGS);
        assert_restored_ledgers_load(oracle, &chain);
    }
}

#[test]
#[ignore = "asks Agave itself: AGAVE_ORACLE names programs built on its crates"]
fn agave_loads_archives_and_ledgers_of_a_validator() {
    for oracle in Oracle::required() {
        assert_archives_of_a_validator_load(&oracle);
        assert_restored_ledger_of_a_validator_loads(&oracle);
    }
}

fn assert_archives_of_a_validator_load(oracle: &Oracle) {
    let ledger = ledger("ledger-at-3575");
    let out = temp_dir();
    let genesis = fixture(FULL_3500).parent().expect("a parent").to_path_buf();
    let state = State::of("3575", "7rDVGfj5Dmq6iBayHsfFji2Jfg6Ch9jXupb3Cdn4xXTE", "503000734413701571", "1895");
    for Setting { level, frame_size } in SETTINGS {
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
}

fn assert_restored_ledger_of_a_validator_loads(oracle: &Oracle) {
    let out = temp_dir();
    let target = temp_dir();
    let genesis = fixture(FULL_3500).parent().expect("a parent").to_path_buf();
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
    // Agave also loads an archive of a restored ledger from which no validator has started.
    let again = archive(&ledger, out.path(), &[]);
    assert_eq!(oracle.load(&again, None, &genesis), at_3550);
}

#[test]
#[ignore = "asks Agave itself: AGAVE_ORACLE names programs built on its crates"]
fn agave_loads_archives_and_ledgers_of_generated_chains() {
    for oracle in Oracle::required() {
        assert_generated_chains_load(&oracle);
    }
}

fn assert_generated_chains_load(oracle: &Oracle) {
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
        Oracle::run(Command::new(&oracle.path).arg("gen").arg(dir.path()).args(&flags));
        let archives = dir.path().join("archives");
        let full = find_archive(&archives, "snapshot-");
        let incremental = find_archive(&archives, "incremental-snapshot-");
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
        // The first chain is archived with all settings, each other chain with two.
        let settings = if number == 0 { &SETTINGS[..] } else { &SETTINGS[number * 2 % 8..][..2] };
        assert_archives_load(oracle, &chain, settings);
        assert_restored_ledgers_load(oracle, &chain);
    }
}

/// A ledger that a version of Agave, or slotpress, made.
struct Layout {
    name: &'static str,
    chain: &'static str,
    /// The ledger's fixture; `None` for a ledger that is restored from the chain's archives.
    fixture: Option<&'static str>,
}

const fn layout(name: &'static str, chain: &'static str, fixture: Option<&'static str>) -> Layout {
    Layout { name, chain, fixture }
}

/// Slot of all these ledgers.
const LAYOUT_SLOT: u64 = 40;

const LAYOUTS: [Layout; 6] = [
    layout("fastboot 2.0.0, hard links", "agave-4.2.2", Some("ledger-at-40-hard-links.")),
    layout("fastboot 3.0.0, storages list", "agave-4.2.2", Some("ledger-at-40.")),
    layout("fastboot 3.1.0, storages list", AGAVE_4_4, Some("ledger-at-40.")),
    layout("fastboot 5.0.0, append vecs", AGAVE_4_5, Some("ledger-at-40.")),
    layout("fastboot 5.0.0, split storages", AGAVE_4_5_SPLIT, Some("ledger-at-40.")),
    layout("restored by slotpress, from archives of Agave 4.5", AGAVE_4_5, None),
];

fn verify_options() -> VerifyOptions {
    VerifyOptions::default().threads(2).check(CheckOptions::default().memory_bytes(64 << 20))
}

/// Returns the verdicts of `verify` on a full archive or a pair.
fn verdicts_on_archives(full: &Path, incremental: Option<&Path>) -> Vec<ClientVerdict> {
    verify(&Snapshot::from_archives(full, incremental), &verify_options(), &NoProgress).expect("verified").clients
}

/// Checks that `verify` predicts the answer of this version of Agave, and that an accepted state is the expected one.
/// Returns the answer as a cell of the table.
fn check_answer(
    oracle: &Oracle,
    answer: Result<State, String>,
    expected: &State,
    verdicts: &[ClientVerdict],
    label: &str,
) -> String {
    let verdict = verdicts.iter().find(|verdict| verdict.client == oracle.client).expect("a verdict");
    assert_eq!(answer.is_ok(), verdict.loads, "{label}: {:?}: {answer:?}, verify: {verdict:?}", oracle.client);
    match answer {
        Ok(state) => {
            assert_eq!(state, *expected, "{label}");
            "accepted".to_string()
        }
        Err(_) => format!("refused: {}", verdict.refusal_reason.unwrap_or_default()),
    }
}

/// Prints the answers that docs/interop.md summarizes: each version of Agave reads a ledger of each
/// layout, and archives of the ledger, verbatim and clustered, full and incremental. `verify` must predict
/// each answer.
#[test]
#[ignore = "prints the answers of docs/interop.md"]
fn verify_agrees_with_agave_on_all_ledger_layouts() {
    let oracles = Oracle::required();
    let names: Vec<String> = oracles.iter().map(|oracle| oracle.client.to_string()).collect();
    println!("| Ledger | What is read | {} |", names.join(" | "));
    println!("|---|---|{}", "---|".repeat(names.len()));
    let mut refused = Vec::new();
    for Layout { name: layout, chain, fixture: file } in LAYOUTS {
        let dir = temp_dir();
        let ledger = dir.path().join("ledger");
        let agave_full = fixture_of(chain, "snapshot-26-");
        if let Some(file) = file {
            unpack_into(&fixture_of(chain, file), &ledger);
        } else {
            let incremental = fixture_of(chain, "incremental-snapshot-26-40-");
            slotpress()
                .arg("restore")
                .args([&agave_full, &incremental])
                .arg("--ledger")
                .arg(&ledger)
                .assert()
                .success();
        }
        let genesis = agave_full.parent().expect("a parent").to_path_buf();
        let expected = State::expected(LAYOUT_SLOT, &expected_facts(chain, LAYOUT_SLOT));
        let paths = LedgerPaths { ledger: ledger.clone(), ..LedgerPaths::default() };
        let report = verify(&Snapshot::ledger(paths), &verify_options(), &NoProgress).expect("verified");
        let bank_snapshot = ledger.join("snapshots").join(LAYOUT_SLOT.to_string());
        let mut print_row = |label: &str,
                             verdicts: &[ClientVerdict],
                             ask: &dyn Fn(&Oracle) -> Result<State, String>| {
            let label = format!("{layout} | {label}");
            let cells: Vec<String> =
                oracles.iter().map(|oracle| check_answer(oracle, ask(oracle), &expected, verdicts, &label)).collect();
            println!("| {label} | {} |", cells.join(" | "));
            refused.extend(cells.into_iter().filter(|cell| cell != "accepted").map(|cell| format!("{label}: {cell}")));
        };
        print_row("the directory", &report.clients, &|oracle| {
            oracle.try_load_dir(&bank_snapshot, &[ledger.join("accounts")], &genesis)
        });
        for order in ["verbatim", "clustered"] {
            let out = dir.path().join(order);
            fs::create_dir(&out).expect("made");
            let flags = ["--layout", order, "--frame-size", "64KiB"];
            let incremental = archive(&ledger, &out, &[&flags[..], &["--base-slot", "26", "--force-base"]].concat());
            let full = archive(&ledger, &out, &flags);
            for (kind, full, incremental) in
                [("full", &full, None), ("incremental, on Agave's full", &agave_full, Some(&incremental))]
            {
                let incremental = incremental.map(PathBuf::as_path);
                let verdicts = verdicts_on_archives(full, incremental);
                assert!(verdicts.iter().all(|verdict| verdict.loads), "{layout}: {verdicts:?}");
                print_row(&format!("archive, {order}, {kind}"), &verdicts, &|oracle| {
                    oracle.try_load(full, incremental, &genesis)
                });
            }
        }
    }
    assert!(refused.iter().all(|label| label.contains("the directory")), "an archive does not load: {refused:#?}");
}

/// Prints the answers that docs/interop.md summarizes: each version of Agave reads archives of
/// Firedancer, alone and together with archives of Agave. `verify` must predict each answer.
#[test]
#[ignore = "prints the answers of docs/interop.md"]
fn verify_agrees_with_agave_on_archives_of_firedancer() {
    let oracles = Oracle::required();
    for (chain, agave) in [("firedancer-2026-08/chain", "agave-4.2.2"), ("firedancer-2026-09/full-bank", AGAVE_4_4)] {
        let [full, incremental] = ["snapshot-", "incremental-"].map(|prefix| fixture_of(chain, prefix));
        let [agave_full, agave_incremental] = ["snapshot-26-", "incremental-"].map(|prefix| fixture_of(agave, prefix));
        let genesis = agave_full.parent().expect("a parent");
        for (label, full, incremental) in [
            ("full", &full, None),
            ("full and incremental", &full, Some(&incremental)),
            ("incremental on Agave's full", &agave_full, Some(&incremental)),
            ("full, and Agave's incremental", &full, Some(&agave_incremental)),
        ] {
            let incremental = incremental.map(PathBuf::as_path);
            let verdicts = verdicts_on_archives(full, incremental);
            let cells: Vec<String> = oracles
                .iter()
                .map(|oracle| {
                    let of_agave = incremental.map(|_| agave_incremental.as_path());
                    let expected = oracle.load(&agave_full, of_agave, genesis);
                    check_answer(oracle, oracle.try_load(full, incremental, genesis), &expected, &verdicts, label)
                })
                .collect();
            println!("| {chain} | {label} | {} |", cells.join(" | "));
        }
    }
}
