//! Agave's own code makes chains of states. Every later state is rebased onto every earlier full archive.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use slotpress_read::SnapshotClient;

use crate::common::oracle::{Oracle, State};
use crate::common::*;
use crate::rebase::{rebase, write_without_tombstones};

fn newest_bank_snapshot(ledger: &Path) -> PathBuf {
    let dirs = fs::read_dir(ledger.join("snapshots")).expect("a directory").flatten().map(|entry| entry.path());
    dirs.max_by_key(|dir| name(dir).parse::<u64>().unwrap_or(0)).expect("a bank snapshot")
}

/// Continues a chain from the newest bank snapshot of a ledger, for this number of slots.
fn continue_chain(maker: &Oracle, ledger: &Path, to: &Path, slots: u32, genesis: &Path) {
    let mut command = Command::new(&maker.path);
    command.arg("continue").arg(newest_bank_snapshot(ledger)).arg(to).arg("--genesis").arg(genesis);
    Oracle::run(command.args(["--slots", &slots.to_string(), "--seed", &slots.to_string()]));
}

/// Makes full archives of three states of a chain, over some epochs.
fn make_chain(maker: &Oracle, dir: &Path, flags: &str) -> Vec<PathBuf> {
    let ledgers = ["chain/at-full", "chain", "after"].map(|name| dir.join(name));
    let mut command = Command::new(&maker.path);
    Oracle::run(command.arg("gen").arg(&ledgers[1]).args(flags.split(' ')));
    continue_chain(maker, &ledgers[1], &ledgers[2], 100, &ledgers[1]);
    let layouts = ["--layout=verbatim", "--layout=clustered"].into_iter().cycle();
    ledgers.iter().zip(layouts).map(|(ledger, layout)| archive(ledger, dir, &[layout])).collect()
}

#[test]
#[ignore = "asks Agave itself: AGAVE_ORACLE names programs built on its crates"]
fn agave_loads_every_later_state_on_every_earlier_one() {
    let oracles = Oracle::required();
    let maker = oracles
        .iter()
        .find(|oracle| oracle.client == SnapshotClient::Agave45)
        .expect("a program that continues chains");
    for flags in [
        "--accounts 3000 --slots 60 --seed 1 --close-permille 100",
        "--accounts 2000 --slots 120 --seed 2 --hot --close-permille 200",
        "--accounts 30000 --slots 240 --seed 3 --hot --update-pct 20",
    ] {
        let dir = temp_dir();
        let fulls = make_chain(maker, dir.path(), flags);
        let genesis = dir.path().join("chain");
        let direct = |oracle: &Oracle| fulls.iter().map(|full| oracle.load(full, None, &genesis)).collect();
        let expected: Vec<Vec<State>> = oracles.iter().map(direct).collect();
        for (new, old) in (0..fulls.len()).flat_map(|new| (0..new).map(move |old| (new, old))) {
            let label = format!("{flags}: {new} onto {old}");
            let out = temp_dir();
            let (old_full, new_full) = (&fulls[old], &fulls[new]);
            let rebased = rebase(&[new_full], old_full, out.path(), &[]);
            let without = write_without_tombstones(&rebased, out.path()).expect("accounts were closed");
            for (oracle, expected) in oracles.iter().zip(&expected) {
                assert_eq!(oracle.load(old_full, Some(&rebased), &genesis), expected[new], "{label}");
                oracle.try_load(old_full, Some(&without), &genesis).expect_err("closed accounts are back");
            }
            // The program continues a chain only once, and the last state is a continuation.
            if new == 2 {
                continue;
            }
            // The restored ledger boots and continues the chain. Its next incremental archive on the old full
            // archive loads.
            let restored = out.path().join("restored");
            slotpress().arg("restore").args([old_full, &rebased]).arg("--ledger").arg(&restored).assert().success();
            let booted = maker.load_dir(&newest_bank_snapshot(&restored), &[restored.join("accounts")], &genesis);
            assert_eq!(
                booted,
                expected[oracles.iter().position(|oracle| oracle.path == maker.path).expect("the maker")][new]
            );
            let later = out.path().join("later");
            continue_chain(maker, &restored, &later, 10, &genesis);
            let base_slot = name(old_full).split('-').nth(1).expect("a slot").to_string();
            fs::copy(old_full, out.path().join(name(old_full))).expect("copied");
            let next = archive(&later, out.path(), &["--base-slot", &base_slot]);
            let whole = archive(&later, out.path(), &[]);
            for oracle in &oracles {
                let state = oracle.load(&whole, None, &genesis);
                assert_eq!(oracle.load(old_full, Some(&next), &genesis), state, "{label}: the next archive");
            }
        }
    }
}

/// The old archive and the new state are of different versions of Agave.
#[test]
#[ignore = "asks Agave itself: AGAVE_ORACLE names programs built on its crates"]
fn agave_loads_pairs_of_two_versions() {
    let oracles = Oracle::required();
    let maker = oracles
        .iter()
        .find(|oracle| oracle.client == SnapshotClient::Agave45)
        .expect("a program that continues chains");
    let dir = temp_dir();
    let genesis = fixture("genesis.bin");
    let genesis = genesis.parent().expect("a directory");
    let old = fixture_of("agave-4.2.2", "snapshot-26-");
    let restored = dir.path().join("restored");
    slotpress().arg("restore").arg(&old).arg("--ledger").arg(&restored).assert().success();
    let later = dir.path().join("later");
    continue_chain(maker, &restored, &later, 50, genesis);
    let new = archive(&later, dir.path(), &[]);
    let rebased = rebase(&[&new], &old, dir.path(), &[]);
    for oracle in &oracles {
        assert_eq!(oracle.load(&old, Some(&rebased), genesis), oracle.load(&new, None, genesis));
    }
}
