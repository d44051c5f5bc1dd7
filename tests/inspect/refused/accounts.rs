//! Flags that make no sense, and damaged archives.

use std::fs;

use crate::common::runs::run_to_stderr;
use crate::common::*;
use crate::inspect::*;

/// Address of an account that no archive contains.
const MISSING_ACCOUNT: &str = "9xQeWvG816bUx9EPjHmaT23yvVM2ZWbrrpZb9PusVFim";

/// Requests that need both archives of a pair.
const REQUESTS: [&[&str]; 3] = [&["--account", MISSING_ACCOUNT], &["--by-owner"], &[]];

#[test]
fn invalid_addresses_are_usage_errors() {
    let full = fixture(FULL_26);
    assert_inspect_fails(&full, &["--account", "nonsense0"], 2, "32 bytes in base58");
    assert_inspect_fails(&full, &["--by-owner", "--owner", "1111"], 2, "32 bytes in base58");
}

#[test]
fn a_missing_account_is_an_error() {
    let flags = ["--account", MISSING_ACCOUNT];
    assert_inspect_fails(&fixture(FULL_26), &flags, 1, "no storage holds the account");
    let ledger = ledger("ledger-at-40");
    assert_inspect_fails(ledger.path(), &flags, 1, "no storage holds the account");
}

#[test]
fn the_hint_names_the_full_archive_only_if_it_was_not_given() {
    let [full, incremental] = [FULL_26, INCREMENTAL_26_40].map(fixture);
    let account = ["--account", MISSING_ACCOUNT];
    assert_inspect_fails(&incremental, &account, 1, "hint: an incremental archive holds only what changed");
    for archives in [[text(&incremental), text(&full)], [text(&full), text(&incremental)]] {
        let (code, stderr) = run_to_stderr(&[&["inspect"], &archives[..], &account].concat());
        assert_eq!(code, Some(1), "{stderr}");
        assert!(stderr.contains(&archives.join(" and ")), "{stderr}");
        assert!(!stderr.contains("hint: "), "{stderr}");
    }
}

/// The names say which archive of a pair is the full one.
#[test]
fn a_pair_may_be_given_in_any_order() {
    let flags = ["--account", "SysvarC1ock11111111111111111111111111111111"];
    let incremental = fixture(INCREMENTAL_26_40);
    assert_eq!(inspect(&incremental, &[&[text(&fixture(FULL_26))], &flags[..]].concat())[0]["slot"], 40);
}

#[test]
fn archives_whose_names_are_not_a_pair_are_usage_errors() {
    for flags in REQUESTS {
        for (first, second, message) in [
            (FULL_3500, INCREMENTAL_26_40, "builds on slot 26, but the full archive is of slot 3500"),
            (FULL_26, FULL_3500, "both archives are full ones"),
        ] {
            assert_inspect_fails(&fixture(first), &[&[text(&fixture(second))], flags].concat(), 2, message);
        }
    }
}

#[test]
fn archives_whose_bank_files_are_of_different_chains_are_refused() {
    let other = fixture_of(AGAVE_4_4, "incremental-snapshot-26-40-");
    for flags in REQUESTS {
        assert_inspect_fails(
            &fixture(FULL_26),
            &[&[text(&other)], flags].concat(),
            3,
            "does not build on this full one",
        );
    }
}

#[test]
fn swapped_archives_without_names_are_usage_errors() {
    let out = temp_dir();
    let [first, second] = ["first", "second"].map(|name| out.path().join(name));
    fs::copy(fixture(INCREMENTAL_26_40), &first).expect("copied");
    fs::copy(fixture(FULL_26), &second).expect("copied");
    for flags in REQUESTS {
        assert_inspect_fails(&first, &[&[text(&second)], flags].concat(), 2, "the two archives are swapped");
    }
}

/// A frame that does not decode may hold any account, so counts are unknown, and an account that is not
/// found may exist.
#[test]
fn every_search_in_a_damaged_archive_fails() {
    let out = temp_dir();
    let ledger = ledger("ledger-at-40");
    let ours = archive(ledger.path(), out.path(), &["--frame-size", "64KiB"]);
    // The fixture's frame has no checksum, so it decodes to different records.
    for (source, message) in [(ours, "the frame at offset"), (fixture(FULL_26), "not all records of storage ")] {
        let mut bytes = fs::read(&source).expect("read");
        let middle = bytes.len() / 2;
        bytes[middle..middle + 64].fill(0x55);
        let damaged = out.path().join(format!("damaged-{}", name(&source)));
        fs::write(&damaged, bytes).expect("written");
        assert_inspect_fails(&damaged, &["--by-owner"], 3, "not all of its records can be read");
        assert_inspect_fails(&damaged, &["--account", MISSING_ACCOUNT], 3, message);
    }
}
