//! Incomplete ledgers: a report names every missing or shortened file, and the rest is still read.

use std::fs;
use std::path::Path;

use slotpress_read::{Check, Rule};
use tempfile::TempDir;

use crate::common::temp_dir;
use crate::verify::fixtures::*;

fn unpack(name: &str) -> TempDir {
    let dir = temp_dir();
    tar::Archive::new(read_tar(name).as_slice()).unpack(dir.path()).expect("unpacked");
    dir
}

/// Two storages are missing, one is shortened, and another one has a wrong record. The report has four
/// failures in each layout.
#[test]
fn each_fault_of_an_incomplete_ledger_is_a_failure() {
    for (name, storages) in [
        ("ledger-at-26.tar.zst", "accounts/run"),
        ("ledger-at-40-hard-links.tar.zst", "accounts/snapshot/40"),
        (FULL_26, "accounts"),
    ] {
        let ledger = unpack(name);
        assert!(verify_ledger(ledger.path()).ok);
        let path = |slot: u64| {
            let dir = ledger.path().join(storages);
            let has_slot = |name: &str| name.split('.').next() == Some(&slot.to_string());
            let mut entries = fs::read_dir(&dir).expect("listed").map(|entry| entry.expect("an entry").file_name());
            dir.join(entries.find(|name| name.to_str().is_some_and(has_slot)).expect("a storage"))
        };
        let slots = slots_of_large_storages(&ledger.path().join(storages));
        let [first, second, cut, wrong] = [2, 5, 8, 11].map(|index| path(slots[index]));
        fs::remove_file(&first).expect("removed");
        fs::remove_file(&second).expect("removed");
        let bytes = fs::read(&cut).expect("read");
        fs::write(&cut, &bytes[..bytes.len() - 8]).expect("written");
        let mut bytes = fs::read(&wrong).expect("read");
        bytes[96] = 5;
        fs::write(&wrong, bytes).expect("written");
        let report = verify_ledger(ledger.path());
        let entry = |path: &Path| format!("accounts/{}", path.file_name().expect("a name").to_string_lossy());
        let found: Vec<_> = report.failures.iter().map(|failure| (failure.rule, failure.place.entry.clone())).collect();
        let mut expected = vec![
            (Rule::MissingStorage, Some(entry(&first))),
            (Rule::MissingStorage, Some(entry(&second))),
            (Rule::Ledger, Some(entry(&cut))),
            (Rule::Executable, Some(entry(&wrong))),
        ];
        expected[..3].sort_by_key(|(_, entry)| entry.clone());
        assert_eq!(found, expected, "{name}: {}", describe(&report));
        let missing = failures_of(&report, Rule::MissingStorage)[0];
        let expected = missing.expected.as_deref().expect("an expected value");
        assert!(expected.starts_with("a file in /"), "{expected}");
        assert!(!missing.hint.is_empty());
        assert!(report.counts.records > 1000);
        assert_eq!(report.skip_reason(Check::State), Some("not all accounts could be read"));
    }
}

/// Returns the slots of storages longer than 500 bytes, in order.
fn slots_of_large_storages(dir: &Path) -> Vec<u64> {
    let mut slots: Vec<u64> = fs::read_dir(dir)
        .expect("listed")
        .map(|entry| entry.expect("an entry"))
        .filter(|entry| entry.metadata().expect("there").len() > 500)
        .filter_map(|entry| entry.file_name().to_str()?.split('.').next()?.parse().ok())
        .collect();
    slots.sort_unstable();
    slots
}
