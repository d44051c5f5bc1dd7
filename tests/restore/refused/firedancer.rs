//! What Firedancer wrote, and somebody changed: nothing is left of it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::firedancer::*;
use crate::common::*;

fn write(dir: &Path, source: &Path, entries: &[TarEntry]) -> PathBuf {
    let path = dir.join(name(source));
    fs::write(&path, zstd::stream::encode_all(make_tar(entries).as_slice(), 1).expect("compresses")).expect("written");
    path
}

#[test]
fn damaged_and_forged_archives_leave_nothing() {
    let (dir, (chain, agave, _)) = (temp_dir(), CHAINS[0]);
    let (source, newer) = (full(chain), incremental(chain));
    let sound = entries(&source);
    let at = sound.iter().position(is_storage).expect("a storage");
    let changed = |change: &dyn Fn(&mut Vec<TarEntry>)| {
        let mut entries = sound.clone();
        change(&mut entries);
        entries
    };
    let bank_at = sound.iter().position(|it| it.path == "snapshots/26/26").expect("a bank file");
    for (what, entries) in [
        ("flipped lamports", changed(&|it| it[at].content[48] ^= 1)),
        ("another owner", changed(&|it| it[at].content[64] ^= 1)),
        ("a storage less", changed(&|it| drop(it.remove(at)))),
        ("a storage twice", changed(&|it| it.insert(at, it[at].clone()))),
        ("a bank file cut off", changed(&|it| it[bank_at].content.truncate(5000))),
        ("another capitalization", changed(&|it| it[bank_at].content[40] ^= 1)),
        ("no status cache", changed(&|it| it.retain(|it| it.path != "snapshots/status_cache"))),
        (
            "a cached slot that is none",
            changed(&|it| {
                let cache = it.iter_mut().find(|it| it.path == "snapshots/status_cache").expect("there");
                cache.content[8] ^= 1;
            }),
        ),
    ] {
        let ledger = empty_ledger_of(agave, dir.path(), &what.replace(' ', "-"));
        let archive = write(dir.path(), &source, &entries);
        // The full archive must be right by itself, also where an incremental one would make its state good.
        for more in [None, Some(&newer)] {
            let (code, _, stderr) = run(command("restore").arg(&archive).args(more).arg("--ledger").arg(&ledger));
            assert!(code == 3 || code == 1, "{what}: {code} {stderr}");
            let left: Vec<String> = names(&ledger).into_iter().filter(|name| !name.ends_with(".lock")).collect();
            assert_eq!(left, ["genesis.bin"], "{what}: {stderr}");
        }
    }
}

/// What the bank file alone tells is refused before anything is unpacked: without an end, it is not even missed.
#[test]
fn a_bank_file_that_cannot_be_converted_is_refused_at_once() {
    let (dir, (chain, ..)) = (temp_dir(), CHAINS[0]);
    let source = full(chain);
    let mut entries = entries(&source);
    let at = entries.iter().position(is_storage).expect("a storage");
    entries.truncate(at);
    let archive = write(dir.path(), &source, &entries);
    let ledger = empty_ledger_of(AGAVE_4_5, dir.path(), "ledger");
    let (code, _, stderr) = run(command("restore").arg(&archive).arg("--ledger").arg(&ledger));
    assert!(code == 2 && stderr.contains("not that of the archive's chain"), "{code}: {stderr}");
}
