//! Failures and verdicts on archives that Firedancer wrote, some of them damaged or altered.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::common::firedancer::*;
use crate::common::records::{field, record_ranges};
use crate::common::*;

/// Firedancer's older archives, and newer ones whose status cache has one slot, are undamaged, but not valid (exit
/// code 3), because no current client loads them.
#[test]
fn current_clients_refuse_archives_of_older_firedancers() {
    for archives in
        [vec![full(OLD_CHAIN)], vec![full(OLD_CHAIN), incremental(OLD_CHAIN)], vec![full(CHAIN_WITHOUT_STAKES)]]
    {
        let archives: Vec<&Path> = archives.iter().map(PathBuf::as_path).collect();
        for flags in [&[][..], &["--check", "frames"], &["--quick"], &["--for", "firedancer"]] {
            let (code, report, stderr) = verify(&archives, flags);
            assert_eq!(code, 3, "{flags:?}: {report} {stderr}");
            assert_eq!(broken_rules(&report), ["few-cached-slots"], "{flags:?}: {report} {stderr}");
            for client in ["firedancer", "agave-4.5", "agave-4.2"] {
                assert!(!loads(&report, client), "{client}");
            }
        }
        let output = command("verify").args(&archives).output().expect("runs");
        let stdout = String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(stdout.contains("only for Firedancer from before September 2026"), "{stdout}");
        assert!(stdout.contains(HINT), "{stdout}");
    }
}

/// Returns the broken rules of a report.
fn broken_rules(report: &Value) -> Vec<&str> {
    let failures = report["failures"].as_array().expect("failures");
    failures.iter().map(|failure| failure["rule"].as_str().expect("a rule")).collect()
}

/// Writes an archive of these entries, with the name of `source`.
fn write_with_name_of(source: &Path, dir: &Path, entries: &[TarEntry]) -> PathBuf {
    let path = dir.join(name(source));
    write_archive(&path, entries);
    path
}

/// An archive of Firedancer is damaged if it contains a storage twice or an altered account, or if a storage is
/// missing.
#[test]
fn damage_is_reported_by_its_rule() {
    let dir = temp_dir();
    let source = full(OLD_CHAIN);
    let assert_breaks = |entries: &[TarEntry], rule: &str| {
        let (code, report, _) = verify(&[&write_with_name_of(&source, dir.path(), entries)], &[]);
        assert_eq!(code, 3, "{rule}: {report}");
        assert!(broken_rules(&report).contains(&rule), "{rule}: {report}");
    };
    let intact = entries(&source);
    let index = intact.iter().position(is_storage).expect("a storage");
    let mut doubled = intact.clone();
    doubled.insert(index, intact[index].clone());
    assert_breaks(&doubled, "duplicate-storage");
    let mut flipped = intact.clone();
    flipped[index].content[field::LAMPORTS.start] ^= 1;
    assert_breaks(&flipped, "capitalization");
    let mut missing = intact.clone();
    missing.remove(index);
    assert_breaks(&missing, "lattice-hash");
    // A second storage of the bank's slot does not make Agave's archive look like Firedancer's.
    let mut agave = entries(&fixture(FULL_26));
    let second = TarEntry { path: "accounts/26.900".to_string(), ..agave.last().expect("a storage").clone() };
    agave.push(second);
    assert_breaks(&agave, "duplicate-storage");
}

/// If an account has several records, the last one in the stream counts, as it does in Firedancer.
#[test]
fn the_last_record_of_an_account_counts() {
    let dir = temp_dir();
    let source = full(OLD_CHAIN);
    let mut changed = entries(&source);
    let index = changed.iter().position(is_storage).expect("a storage");
    // The new storage precedes it, and has an older version of its first account.
    let content = &changed[index].content;
    let mut older = content[record_ranges(content)[0].clone()].to_vec();
    older.resize(older.len().next_multiple_of(8), 0);
    older[field::LAMPORTS.start] ^= 1;
    changed.insert(index, TarEntry { path: "accounts/26.7777".to_string(), kind: b'0', content: older });
    let (_, report, stderr) = verify(&[&write_with_name_of(&source, dir.path(), &changed)], &[]);
    assert_eq!(broken_rules(&report), ["few-cached-slots"], "{report} {stderr}");
    assert_eq!(report["superseded"], 1, "{report}");
}
