//! Archives by Firedancer's own producer, damaged or altered: failures and verdicts of `verify`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::firedancer::*;
use crate::common::*;

/// What Firedancer wrote before September 2026 is sound, but no client of today loads it.
#[test]
fn archives_of_old_firedancers() {
    for archives in [vec![full(OLD)], vec![full(OLD), incremental(OLD)], vec![full(NO_STAKES)]] {
        let archives: Vec<&Path> = archives.iter().map(PathBuf::as_path).collect();
        for flags in [&[][..], &["--check", "frames"], &["--quick"], &["--for", "firedancer"]] {
            let (code, report, stderr) = verify(&archives, flags);
            let rules = report["failures"].as_array().expect("failures").iter().map(|it| it["rule"].as_str());
            assert!(code == 3 && rules.eq([Some("few-cached-slots")]), "{flags:?}: {report} {stderr}");
            assert!(!loads(&report, "firedancer") && !loads(&report, "agave-4.5") && !loads(&report, "agave-4.2"));
        }
        let output = command("verify").args(&archives).output().expect("runs");
        let said = String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains("only for Firedancer from before September 2026") && said.contains(HINT), "{said}");
    }
}

/// An archive by Firedancer with a storage twice, a foreign storage or other accounts is damaged.
#[test]
fn damage_is_found() {
    let dir = temp_dir();
    let source = full(OLD);
    let refused = |entries: &[TarEntry], rule: &str| {
        let path = dir.path().join(name(&source));
        fs::write(&path, zstd::stream::encode_all(make_tar(entries).as_slice(), 1).expect("compresses"))
            .expect("written");
        let (code, report, _) = verify(&[&path], &[]);
        let has = report["failures"].as_array().expect("failures").iter().any(|it| it["rule"] == rule);
        assert!(code == 3 && has, "{rule}: {report}");
    };
    let sound = entries(&source);
    let at = sound.iter().position(is_storage).expect("a storage");
    let mut doubled = sound.clone();
    doubled.insert(at, sound[at].clone());
    refused(&doubled, "duplicate-storage");
    let mut flipped = sound.clone();
    flipped[at].content[48] ^= 1; // lamports
    refused(&flipped, "capitalization");
    let mut missing = sound.clone();
    missing.remove(at);
    refused(&missing, "lattice-hash");
    // An archive by Agave with a second storage of the bank's slot is not Firedancer's.
    let mut agave = entries(&fixture(FULL_26));
    let second = TarEntry { path: "accounts/26.900".to_string(), ..agave.last().expect("a storage").clone() };
    agave.push(second);
    refused(&agave, "duplicate-storage");
}

/// If an account has several records, the last in the stream counts, as in Firedancer.
#[test]
fn the_last_record_of_an_account_counts() {
    let dir = temp_dir();
    let source = full(OLD);
    let mut changed = entries(&source);
    let at = changed.iter().position(is_storage).expect("a storage");
    // An older version of its first account, in a storage before it.
    let data_bytes = u64::from_le_bytes(changed[at].content[8..16].try_into().expect("8 bytes")) as usize;
    let mut older = changed[at].content[..(136 + data_bytes).next_multiple_of(8)].to_vec();
    older[48] ^= 1;
    changed.insert(at, TarEntry { path: "accounts/26.7777".to_string(), kind: b'0', content: older });
    let path = dir.path().join(name(&source));
    fs::write(&path, zstd::stream::encode_all(make_tar(&changed).as_slice(), 1).expect("compresses")).expect("written");
    let (_, report, stderr) = verify(&[&path], &[]);
    let rules = report["failures"].as_array().expect("failures").iter().map(|it| it["rule"].as_str());
    assert!(rules.eq([Some("few-cached-slots")]) && report["superseded"] == 1, "{report} {stderr}");
}
