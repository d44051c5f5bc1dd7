//! Archives by Firedancer's own producer, damaged or altered: failures and verdicts of `verify`.

use std::fs;
use std::path::Path;

use crate::common::firedancer::*;
use crate::common::*;

/// An archive by Firedancer with a storage twice or a foreign storage is damaged.
#[test]
fn damage_is_found() {
    let dir = temp_dir();
    let source = full(CHAINS[0].0);
    let write = |entries: &[TarEntry]| {
        let path = dir.path().join(name(&source));
        fs::write(&path, zstd::stream::encode_all(make_tar(entries).as_slice(), 1).expect("compresses"))
            .expect("written");
        path
    };
    let out = dir.path().join("out");
    fs::create_dir(&out).expect("made");
    let refused = |path: &Path, what: &str| {
        for flags in [&[][..], &["--for", "agave"]] {
            let (code, _, stderr) = run(command("recompress").arg(path).arg("-o").arg(&out).args(flags));
            assert_eq!(code, 3, "{what} {flags:?}: {stderr}");
        }
        assert_eq!(verify(&[path], &[]).0, 3, "{what}");
        assert!(names(&out).is_empty());
    };
    let sound = entries(&source);
    let at = sound.iter().position(is_storage).expect("a storage");
    let mut doubled = sound.clone();
    doubled.insert(at, sound[at].clone());
    refused(&write(&doubled), "doubled");
    let mut flipped = sound.clone();
    flipped[at].content[48] ^= 1; // lamports
    refused(&write(&flipped), "flipped");
    let mut missing = sound.clone();
    missing.remove(at);
    refused(&write(&missing), "missing");
    // An archive by Agave with a second storage of the bank's slot is not Firedancer's.
    let mut agave = entries(&fixture(FULL_26));
    let second = TarEntry { path: "accounts/26.900".to_string(), ..agave.last().expect("a storage").clone() };
    agave.push(second);
    refused(&write(&agave), "Agave's");
}

/// If an account has several records, the last in the stream counts, before and after
/// recompressing, as in Firedancer.
#[test]
fn the_last_record_of_an_account_counts() {
    let dir = temp_dir();
    let source = full(CHAINS[0].0);
    let mut changed = entries(&source);
    let at = changed.iter().position(is_storage).expect("a storage");
    // An older version of its first account, in a storage before it.
    let data_bytes = u64::from_le_bytes(changed[at].content[8..16].try_into().expect("8 bytes")) as usize;
    let mut older = changed[at].content[..(136 + data_bytes).next_multiple_of(8)].to_vec();
    older[48] ^= 1;
    changed.insert(at, TarEntry { path: "accounts/26.7777".to_string(), kind: b'0', content: older });
    let path = dir.path().join(name(&source));
    fs::write(&path, zstd::stream::encode_all(make_tar(&changed).as_slice(), 1).expect("compresses")).expect("written");
    let (code, report, stderr) = verify(&[&path], &["--for", "firedancer-26.08"]);
    assert_eq!((code, &report["superseded"]), (0, &1.into()), "{stderr}");
    let out = dir.path().join("out");
    fs::create_dir(&out).expect("made");
    let made = convert(&path, None, &genesis_of("agave-4.2.2"), &out);
    let (code, report, stderr) = verify(&[&made], &["--for", "agave"]);
    assert_eq!((code, &report["superseded"]), (0, &1.into()), "{stderr}");
}
