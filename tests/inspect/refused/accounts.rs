//! Flags that make no sense, and damaged archives.

use std::fs;

use crate::common::*;
use crate::inspect::*;

#[test]
fn what_makes_no_sense_is_refused() {
    let full = fixture(FULL_26);
    fails(&full, &["--account", "nonsense0"], 2, "32 bytes in base58");
    fails(&full, &["--by-owner", "--owner", "1111"], 2, "32 bytes in base58");
    let nobody = "9xQeWvG816bUx9EPjHmaT23yvVM2ZWbrrpZb9PusVFim";
    fails(&full, &["--account", nobody], 1, "no storage holds the account");
    fails(&fixture(INCREMENTAL_26_40), &["--account", nobody], 1, "full archive of slot 26");
    let ledger = ledger("ledger-at-40");
    fails(ledger.path(), &["--account", nobody], 1, "no storage holds the account");
}

/// Two archives that are no pair show no account of either, whatever is asked of them.
#[test]
fn no_pair_is_taken_for_one() {
    let full = fixture(FULL_26);
    let incremental = fixture(INCREMENTAL_26_40);
    let nobody = "9xQeWvG816bUx9EPjHmaT23yvVM2ZWbrrpZb9PusVFim";
    // Names say which is which, so the order does not matter.
    let clock = "SysvarC1ock11111111111111111111111111111111";
    assert_eq!(inspect(&incremental, &[text(&full), "--account", clock])[0]["slot"], 40);
    for flags in [&["--account", nobody][..], &["--by-owner"], &[]] {
        for (first, second, message) in [
            (&fixture(FULL_3500), &incremental, "builds on slot 26, but the full archive is of slot 3500"),
            (&full, &fixture(FULL_3500), "both archives are full ones"),
        ] {
            fails(first, &[&[text(second)], flags].concat(), 2, message);
        }
        // The chains are told by the bank files.
        let other = fixture_of(AGAVE_4_4, "incremental-snapshot-26-40-");
        fails(&full, &[&[text(&other)], flags].concat(), 3, "does not build on this full one");
        // Without names, the bank files tell more.
        let out = temp_dir();
        let [first, second] = ["first", "second"].map(|name| out.path().join(name));
        fs::copy(&incremental, &first).expect("copied");
        fs::copy(&full, &second).expect("copied");
        fails(&first, &[&[text(&second)], flags].concat(), 2, "the two archives are swapped");
    }
}

/// A frame that does not decode may hold any account, so nothing is counted, and no account is "not
/// there".
#[test]
fn damage_is_not_passed_over() {
    let out = temp_dir();
    let ledger = ledger("ledger-at-40");
    let ours = archive(ledger.path(), out.path(), &["--frame-size", "64KiB"]);
    let nobody = "9xQeWvG816bUx9EPjHmaT23yvVM2ZWbrrpZb9PusVFim";
    for source in [ours, fixture(FULL_26)] {
        let mut bytes = fs::read(&source).expect("read");
        let middle = bytes.len() / 2;
        bytes[middle..middle + 64].fill(0x55);
        let damaged = out.path().join(format!("damaged-{}", name(&source)));
        fs::write(&damaged, bytes).expect("written");
        fails(&damaged, &["--by-owner"], 3, "not all of its records can be read");
        fails(&damaged, &["--account", nobody], 3, "not all of its records can be read");
    }
}
