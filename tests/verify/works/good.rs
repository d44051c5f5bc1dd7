//! Good archives and ledgers are found good, with the values that Agave gives.

use std::path::Path;

use slotpress_base::NoProgress;
use slotpress_format::LedgerPaths;
use slotpress_read::{Check, CheckMode, CheckOptions, NamedArchive, Snapshot, SnapshotClient, VerifyReport};

use crate::common::oracle::Oracle;
use crate::verify::fixtures::*;

fn check(report: &VerifyReport, slot: u64, hash: &str, capitalization: u64, accounts: u64) {
    assert!(report.ok, "{}", shown(report));
    assert!(report.warnings.is_empty(), "{}", shown(report));
    assert!(report.checks.iter().all(|check| check.ok));
    assert_eq!(report.slot, Some(slot));
    assert_eq!(report.hash.expect("a hash").to_string(), hash);
    assert_eq!(report.capitalization, Some(capitalization));
    assert_eq!(report.counts.accounts, accounts);
}

#[test]
fn archives_of_agave() {
    let hash = "5vEhTbsmLTSSQvMC1NEepXxVeVqpHmy8HCue69xKz9nt";
    check(&verify(&dir().join(FULL), None, &[]), 26, hash, 1101927935518954, 2339);
    let hash = "D5jEKFz2JqBFLYETBEnvkiV47AnCXjXEdUgUU1XYNwsi";
    let both = verify(&dir().join(FULL), Some(&dir().join(INCREMENTAL)), &[]);
    assert!(both.clients.len() == SnapshotClient::ALL.len() && both.clients.iter().all(|client| client.loads));
    check(&both, 40, hash, 1102994308621166, 3432);
    // A part of a state is not a state: a flag allows to check all else.
    let alone = NamedArchive::from_path(dir().join(INCREMENTAL));
    let error = slotpress_read::verify(Snapshot::archive(&alone), &options(&SnapshotClient::ALL), &NoProgress)
        .expect_err("refused");
    assert!(error.to_string().contains("of an incremental archive alone cannot be checked"), "{error}");
    let frames = options(&SnapshotClient::ALL).check(CheckOptions::default().mode(CheckMode::Frames));
    let alone = slotpress_read::verify(Snapshot::archive(&alone), &frames, &NoProgress).expect("verified");
    assert!(alone.ok, "{}", shown(&alone));
    let skipped: Vec<_> = alone.checks.iter().filter(|check| check.skipped.is_some()).map(|check| check.name).collect();
    assert_eq!(skipped, [Check::Records, Check::State]);
}

#[test]
fn archives_of_a_validator() {
    let full = validator_dir().join("snapshot-3500-CtUdsvB8tPnwSzUfjmEpnuKWLaDq1upyezeiombt7UVw.tar.zst");
    let incremental =
        validator_dir().join("incremental-snapshot-3500-3550-4QFDUfNuS6K6375C8WXD93cbtR4go8HkmUoc4YjLj529.tar.zst");
    let hash = "4QFDUfNuS6K6375C8WXD93cbtR4go8HkmUoc4YjLj529";
    check(&verify(&full, Some(&incremental), &[]), 3550, hash, 503000734413761571, 1895);
    assert!(verify(&full, None, &[]).ok);
}

fn unpack(archive: &Path, to: &Path) {
    let bytes = std::fs::read(archive).expect("the fixture");
    let tar = zstd::stream::decode_all(bytes.as_slice()).expect("zstd");
    tar::Archive::new(tar.as_slice()).unpack(to).expect("unpacked");
}

#[test]
fn ledgers() {
    for (archive, slot, hash, capitalization, accounts) in [
        ("ledger-at-26", 26, "5vEhTbsmLTSSQvMC1NEepXxVeVqpHmy8HCue69xKz9nt", 1101927935518954, 2339),
        ("ledger-at-40", 40, "D5jEKFz2JqBFLYETBEnvkiV47AnCXjXEdUgUU1XYNwsi", 1102994308621166, 3432),
        ("ledger-at-40-hard-links", 40, "D5jEKFz2JqBFLYETBEnvkiV47AnCXjXEdUgUU1XYNwsi", 1102994308621166, 3432),
    ] {
        let to = tempfile::tempdir().expect("a directory");
        unpack(&dir().join(format!("{archive}.tar.zst")), to.path());
        let paths = LedgerPaths { ledger: to.path().to_path_buf(), ..LedgerPaths::default() };
        let report = slotpress_read::verify(Snapshot::ledger(&paths), &options(&[]), &NoProgress).expect("verified");
        check(&report, slot, hash, capitalization, accounts);
    }
    let to = tempfile::tempdir().expect("a directory");
    unpack(&dir().join(FULL), to.path());
    let paths = LedgerPaths { ledger: to.path().to_path_buf(), ..LedgerPaths::default() };
    let report = slotpress_read::verify(Snapshot::ledger(&paths), &options(&[]), &NoProgress).expect("verified");
    check(&report, 26, "5vEhTbsmLTSSQvMC1NEepXxVeVqpHmy8HCue69xKz9nt", 1101927935518954, 2339);
}

/// Expected values are compared, even if all else is right.
#[test]
fn expectations() {
    let archive = NamedArchive::from_path(dir().join(FULL));
    let mut options = options(&SnapshotClient::AGAVE);
    options.check.expect_slot = Some(26);
    options.check.expect_hash = Some("5vEhTbsmLTSSQvMC1NEepXxVeVqpHmy8HCue69xKz9nt".parse().expect("a hash"));
    assert!(slotpress_read::verify(Snapshot::archive(&archive), &options, &NoProgress).expect("verified").ok);
    options.check.expect_slot = Some(27);
    let report = slotpress_read::verify(Snapshot::archive(&archive), &options, &NoProgress).expect("verified");
    assert!(!report.ok && report.clients.iter().all(|client| client.loads));
    options.quick = true;
    assert!(!slotpress_read::verify(Snapshot::archive(&archive), &options, &NoProgress).expect("verified").ok);
}

/// Chains with updates and closes, made by Agave's own crates: full, full with incremental, and
/// both directories. `$AGAVE_ORACLE gen OUT …` makes them.
#[test]
#[ignore = "asks Agave itself: AGAVE_ORACLE names programs built on its crates"]
fn generated_chains() {
    for oracle in Oracle::required() {
        try_generated_chains(&oracle);
    }
}

fn try_generated_chains(oracle: &Oracle) {
    for (seed, update_percent, close_permille) in [(1, 30, 5), (2, 80, 50), (3, 5, 200)] {
        let out = tempfile::tempdir().expect("a directory");
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
        let archives: Vec<_> =
            std::fs::read_dir(chain.join("archives")).expect("archives").map(|it| it.expect("one").path()).collect();
        let of_kind = |prefix: &str| {
            let is_it = |path: &&std::path::PathBuf| {
                path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
            };
            archives.iter().find(is_it).expect("an archive").clone()
        };
        let full = of_kind("snapshot-");
        let incremental = of_kind("incremental-");
        for report in [verify(&full, None, &[]), verify(&full, Some(&incremental), &[])] {
            assert!(report.ok, "seed {seed}: {}", shown(&report));
            assert!(report.checks.iter().all(|check| check.skipped.is_none()));
        }
        for ledger in [chain.clone(), chain.join("at-full")] {
            let paths = LedgerPaths { ledger, ..LedgerPaths::default() };
            let report =
                slotpress_read::verify(Snapshot::ledger(&paths), &options(&[]), &NoProgress).expect("verified");
            assert!(report.ok, "seed {seed}: {}", shown(&report));
        }
    }
}
