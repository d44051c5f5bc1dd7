//! Good archives and ledgers, with the values that Agave reports.

use std::path::PathBuf;

use slotpress_base::NoProgress;
use slotpress_read::{Check, CheckMode, CheckOptions, Snapshot, SnapshotClient, VerifyReport};

use crate::common::oracle::Oracle;
use crate::common::{FULL_3500, INCREMENTAL_3500_3550, fixture, temp_dir};
use crate::verify::fixtures::*;

/// A state, with the values that Agave reports.
struct ExpectedState {
    slot: u64,
    hash: &'static str,
    capitalization: u64,
    accounts: u64,
}

const STATE_26: ExpectedState = ExpectedState {
    slot: 26,
    hash: "5vEhTbsmLTSSQvMC1NEepXxVeVqpHmy8HCue69xKz9nt",
    capitalization: 1101927935518954,
    accounts: 2339,
};

const STATE_40: ExpectedState = ExpectedState {
    slot: 40,
    hash: "D5jEKFz2JqBFLYETBEnvkiV47AnCXjXEdUgUU1XYNwsi",
    capitalization: 1102994308621166,
    accounts: 3432,
};

fn assert_is_good(report: &VerifyReport, state: &ExpectedState) {
    assert!(report.ok, "{}", describe(report));
    assert!(report.warnings.is_empty(), "{}", describe(report));
    assert!(report.checks.iter().all(|check| check.ok));
    assert_eq!(report.slot, Some(state.slot));
    assert_eq!(report.hash.expect("a hash").to_string(), state.hash);
    assert_eq!(report.capitalization_lamports, Some(state.capitalization));
    assert_eq!(report.counts.accounts, state.accounts);
}

#[test]
fn archives_of_agave_are_good() {
    assert_is_good(&verify(&fixture(FULL_26), None, &[]), &STATE_26);
    let pair = verify(&fixture(FULL_26), Some(&fixture(INCREMENTAL_26_40)), &[]);
    assert_is_good(&pair, &STATE_40);
    assert_eq!(pair.clients.len(), SnapshotClient::JUDGED_BY_DEFAULT.len());
    assert!(pair.clients.iter().all(|verdict| verdict.loads));
}

#[test]
fn the_state_of_an_incremental_archive_alone_cannot_be_checked() {
    let snapshot = Snapshot::archive(fixture(INCREMENTAL_26_40));
    let error = slotpress_read::verify(&snapshot, &verify_options(&SnapshotClient::JUDGED_BY_DEFAULT), &NoProgress)
        .expect_err("refused");
    assert!(error.to_string().contains("of an incremental archive alone cannot be checked"), "{error}");
}

#[test]
fn all_but_the_state_of_an_incremental_archive_alone_can_be_checked() {
    let snapshot = Snapshot::archive(fixture(INCREMENTAL_26_40));
    let options =
        verify_options(&SnapshotClient::JUDGED_BY_DEFAULT).check(CheckOptions::default().mode(CheckMode::Frames));
    let report = slotpress_read::verify(&snapshot, &options, &NoProgress).expect("verified");
    assert!(report.ok, "{}", describe(&report));
    let skipped = report.checks.iter().filter(|result| result.skip_reason.is_some()).map(|result| result.check);
    assert_eq!(skipped.collect::<Vec<_>>(), [Check::Records, Check::State]);
}

#[test]
fn archives_of_a_validator_are_good() {
    let [full, incremental] = [FULL_3500, INCREMENTAL_3500_3550].map(fixture);
    let state = ExpectedState {
        slot: 3550,
        hash: "4QFDUfNuS6K6375C8WXD93cbtR4go8HkmUoc4YjLj529",
        capitalization: 503000734413761571,
        accounts: 1895,
    };
    assert_is_good(&verify(&full, Some(&incremental), &[]), &state);
    let report = verify(&full, None, &[]);
    assert!(report.ok, "{}", describe(&report));
}

/// The directory of an unpacked archive is a ledger, too.
#[test]
fn ledgers_are_good() {
    for (archive, state) in [
        ("ledger-at-26.tar.zst", &STATE_26),
        ("ledger-at-40.tar.zst", &STATE_40),
        ("ledger-at-40-hard-links.tar.zst", &STATE_40),
        (FULL_26, &STATE_26),
    ] {
        let ledger = temp_dir();
        tar::Archive::new(read_tar(archive).as_slice()).unpack(ledger.path()).expect("unpacked");
        assert_is_good(&verify_ledger(ledger.path()), state);
    }
}

#[test]
fn an_archive_of_the_expected_slot_and_hash_is_good() {
    let snapshot = Snapshot::archive(fixture(FULL_26));
    let mut options = verify_options(&SnapshotClient::AGAVE);
    options.check.expect_slot = Some(STATE_26.slot);
    options.check.expect_hash = Some(STATE_26.hash.parse().expect("a hash"));
    let report = slotpress_read::verify(&snapshot, &options, &NoProgress).expect("verified");
    assert!(report.ok, "{}", describe(&report));
}

#[test]
fn a_good_archive_of_an_unexpected_slot_is_refused() {
    let snapshot = Snapshot::archive(fixture(FULL_26));
    let mut options = verify_options(&SnapshotClient::AGAVE);
    options.check.expect_slot = Some(27);
    options.check.expect_hash = Some(STATE_26.hash.parse().expect("a hash"));
    let report = slotpress_read::verify(&snapshot, &options, &NoProgress).expect("verified");
    assert!(!report.ok);
    assert!(report.clients.iter().all(|verdict| verdict.loads));
    options.check.mode = CheckMode::Quick;
    assert!(!slotpress_read::verify(&snapshot, &options, &NoProgress).expect("verified").ok);
}

/// The full archive, the pair and both ledgers of chains with updates and closed accounts, which
/// `$AGAVE_ORACLE gen OUT …` makes with Agave's own crates.
#[test]
#[ignore = "asks Agave itself: AGAVE_ORACLE names programs built on its crates"]
fn generated_chains_are_good() {
    for oracle in Oracle::required() {
        assert_generated_chains_are_good(&oracle);
    }
}

fn assert_generated_chains_are_good(oracle: &Oracle) {
    for (seed, update_percent, close_permille) in [(1, 30, 5), (2, 80, 50), (3, 5, 200)] {
        let out = temp_dir();
        let chain = out.path().join("chain");
        let status = std::process::Command::new(&oracle.path)
            .arg("gen")
            .arg(&chain)
            .args(["--accounts", "3000", "--slots", "60", "--seed", &seed.to_string()])
            .args(["--update-pct", &update_percent.to_string(), "--close-permille", &close_permille.to_string()])
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .status()
            .expect("the oracle runs");
        assert!(status.success());
        let archives: Vec<_> = std::fs::read_dir(chain.join("archives"))
            .expect("archives")
            .map(|entry| entry.expect("an entry").path())
            .collect();
        let [full, incremental] = ["snapshot-", "incremental-"].map(|prefix| {
            let has_prefix =
                |path: &&PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix));
            archives.iter().find(has_prefix).expect("an archive").clone()
        });
        for report in [verify(&full, None, &[]), verify(&full, Some(&incremental), &[])] {
            assert!(report.ok, "seed {seed}: {}", describe(&report));
            assert!(report.checks.iter().all(|check| check.skip_reason.is_none()));
        }
        for ledger in [chain.clone(), chain.join("at-full")] {
            let report = verify_ledger(&ledger);
            assert!(report.ok, "seed {seed}: {}", describe(&report));
        }
    }
}
