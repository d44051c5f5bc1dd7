//! Verdicts for sig, which only `--for sig` requests.

use std::path::{Path, PathBuf};

use crate::common::firedancer::{NEW_CHAIN, full};
use crate::common::records::field;
use crate::common::*;

/// Verdict for sig on an archive.
struct SigVerdict {
    code: i32,
    broken_rules: Vec<String>,
}

fn verify_for_sig(archive: &Path) -> SigVerdict {
    let (code, report, stderr) = run_to_first_line(&["verify", text(archive), "--for", "sig"], None);
    let failures = report["failures"].as_array().unwrap_or_else(|| panic!("{stderr}"));
    let broken_rules = failures.iter().map(|failure| failure["rule"].as_str().expect("a rule").to_string());
    SigVerdict { code, broken_rules: broken_rules.collect() }
}

fn write_full_26(dir: &Path, entries: &[TarEntry]) -> PathBuf {
    let path = dir.join(FULL_26);
    write_archive(&path, entries);
    path
}

#[test]
fn sig_loads_archives_of_agave_and_of_slotpress() {
    let ledger = ledger("ledger-at-26");
    let out = temp_dir();
    let ours = archive(ledger.path(), out.path(), &[]);
    let of_agave = [fixture(FULL_26), fixture_of(AGAVE_4_4, "snapshot-26-"), fixture_of(AGAVE_4_5, "snapshot-26-")];
    for archive in [ours].iter().chain(&of_agave) {
        let verdict = verify_for_sig(archive);
        assert_eq!(verdict.broken_rules, [""; 0], "{}", archive.display());
        assert_eq!(verdict.code, 0, "{}", archive.display());
    }
}

/// The status cache of Firedancer's archives comes last.
#[test]
fn sig_refuses_archives_of_firedancer() {
    let verdict = verify_for_sig(&full(NEW_CHAIN));
    assert_eq!(verdict.broken_rules, ["version-first"]);
    assert_eq!(verdict.code, 3);
}

#[test]
fn sig_refuses_altered_archives() {
    let intact = entries(&fixture(FULL_26));
    let position = |path: &str| intact.iter().position(|entry| entry.path.starts_with(path)).expect("an entry");
    let bank = position("snapshots/26/26");
    let storage = position("accounts/17.17");
    type Change = Box<dyn Fn(&mut Vec<TarEntry>)>;
    let move_entry = |from: usize, to: usize| -> Change {
        Box::new(move |entries| {
            let entry = entries.remove(from);
            entries.insert(to, entry);
        })
    };
    let change_content = |index: usize, change: fn(&mut Vec<u8>)| -> Change {
        Box::new(move |entries| change(&mut entries[index].content))
    };
    let changes: [(Change, &str); 8] = [
        (move_entry(0, 2), "version-first"),
        (move_entry(position("snapshots/status_cache"), storage), "version-first"),
        (move_entry(bank, storage), "order"),
        // The block id is the last Option of the bank file: a flag and 32 bytes.
        (
            change_content(bank, |bank| {
                let end = bank.len() - 33;
                bank.truncate(end);
                bank.push(0);
            }),
            "block-id",
        ),
        (change_content(storage, |storage| storage[field::STORED_HASH.start] = 1), "stored-hash"),
        (change_content(storage, |storage| storage[96] = 2), "executable"),
        (change_content(storage, |storage| storage.extend([7; 100])), "storage-tail"),
        (Box::new(move |entries| entries[storage].path = "accounts/27.17".to_string()), "storage-too-new"),
    ];
    for (change, rule) in changes {
        let dir = temp_dir();
        let mut entries = intact.clone();
        change(&mut entries);
        let verdict = verify_for_sig(&write_full_26(dir.path(), &entries));
        assert_eq!(verdict.code, 3, "{rule}: {:?}", verdict.broken_rules);
        assert!(verdict.broken_rules.iter().any(|broken| broken == rule), "{rule}: {:?}", verdict.broken_rules);
    }
}

/// Writes an archive with an empty storage.
fn archive_with_an_empty_storage(dir: &Path) -> PathBuf {
    let mut entries = entries(&fixture(FULL_26));
    let storage = entries.iter_mut().find(|entry| entry.path.starts_with("accounts/17.17")).expect("a storage");
    storage.content.clear();
    write_full_26(dir, &entries)
}

/// Other clients refuse such an archive, as the next test shows.
#[test]
fn sig_ignores_an_empty_storage() {
    let dir = temp_dir();
    let verdict = verify_for_sig(&archive_with_an_empty_storage(dir.path()));
    assert!(!verdict.broken_rules.contains(&"empty-storage".to_string()), "{:?}", verdict.broken_rules);
}

#[test]
fn there_is_no_verdict_for_sig_without_a_request() {
    let dir = temp_dir();
    let archive = archive_with_an_empty_storage(dir.path());
    let (code, report, _) = run_to_first_line(&["verify", text(&archive), "--check", "frames"], None);
    assert_eq!(code, 3, "{report}");
    assert!(!report["clients"].to_string().contains("sig"), "{report}");
}
