//! What sig loads, for users who ask for it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::firedancer::{NEW, full};
use crate::common::*;

/// Verifies an archive for sig. Returns the exit code and the rules that it breaks.
fn verdict(archive: &Path) -> (i32, Vec<String>) {
    let (code, report, stderr) = run_json(&["verify", text(archive), "--for", "sig"], None);
    let failures = report["failures"].as_array().unwrap_or_else(|| panic!("{stderr}"));
    (code, failures.iter().map(|failure| failure["rule"].as_str().expect("a rule").to_string()).collect())
}

fn packed(entries: &[TarEntry], dir: &Path) -> PathBuf {
    let path = dir.join(FULL_26);
    fs::write(&path, zstd::encode_all(make_tar(entries).as_slice(), 1).expect("compressed")).expect("written");
    path
}

#[test]
fn archives_of_agave_and_of_slotpress() {
    let ledger = ledger("ledger-at-26");
    let out = temp_dir();
    let own = archive(ledger.path(), out.path(), &[]);
    for archive in [own, fixture(FULL_26), fixture_of(AGAVE_4_4, "snapshot-26-"), fixture_of(AGAVE_4_5, "snapshot-26-")]
    {
        assert_eq!(verdict(&archive), (0, Vec::new()), "{}", archive.display());
    }
    // Its status cache comes last.
    assert_eq!(verdict(&full(NEW)), (3, vec!["version-first".to_string()]));
}

#[test]
fn what_sig_refuses() {
    let sound = entries(&fixture(FULL_26));
    let position = |path: &str| sound.iter().position(|entry| entry.path.starts_with(path)).expect("an entry");
    let bank = position("snapshots/26/26");
    let storage = position("accounts/17.17");
    type Change = Box<dyn Fn(&mut Vec<TarEntry>)>;
    let moved = |from: usize, to: usize| -> Change {
        Box::new(move |entries| {
            let entry = entries.remove(from);
            entries.insert(to, entry);
        })
    };
    let content =
        |at: usize, change: fn(&mut Vec<u8>)| -> Change { Box::new(move |entries| change(&mut entries[at].content)) };
    let changes: [(Change, &str); 8] = [
        (moved(0, 2), "version-first"),
        (moved(position("snapshots/status_cache"), storage), "version-first"),
        (moved(bank, storage), "order"),
        // The block id is the last Option of the bank file: a flag and 32 bytes.
        (
            content(bank, |bank| {
                let end = bank.len() - 33;
                bank.truncate(end);
                bank.push(0);
            }),
            "block-id",
        ),
        (content(storage, |storage| storage[104] = 1), "stored-hash"),
        (content(storage, |storage| storage[96] = 2), "executable"),
        (content(storage, |storage| storage.extend([7; 100])), "storage-tail"),
        (Box::new(move |entries| entries[storage].path = "accounts/27.17".to_string()), "storage-too-new"),
    ];
    for (change, rule) in changes {
        let dir = temp_dir();
        let mut entries = sound.clone();
        change(&mut entries);
        let (code, rules) = verdict(&packed(&entries, dir.path()));
        assert!(code == 3 && rules.iter().any(|broken| broken == rule), "{rule}: {code} {rules:?}");
    }
    // An empty storage is passed over: the other clients refuse it.
    let dir = temp_dir();
    let mut entries = sound.clone();
    entries[storage].content.clear();
    let archive = packed(&entries, dir.path());
    assert!(!verdict(&archive).1.contains(&"empty-storage".to_string()));
    let (code, report, _) = run_json(&["verify", text(&archive), "--check", "frames"], None);
    assert!(code == 3 && !report["clients"].to_string().contains("sig"), "it is judged only on request: {report}");
}
