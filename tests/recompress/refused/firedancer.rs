//! Archives by Firedancer's own producer that cannot be converted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::firedancer::*;
use crate::common::*;

/// Conversions that cannot be made or checked are refused.
#[test]
fn what_cannot_be_converted_is_refused() {
    let dir = temp_dir();
    let out = dir.path();
    let (chain, agave, _) = CHAINS[0];
    let refused = |command: &mut Command, code: i32, why: &str| {
        let (found, _, stderr) = run(command);
        assert!(found == code && stderr.contains(why), "{found}: {stderr}");
        assert!(names(out).iter().all(|name| !name.contains("snapshot-")), "{:?}", names(out));
    };
    let for_agave = |archive: &Path| {
        let mut command = command("recompress");
        command.arg(archive).args(["--for", "agave", "-o"]).arg(out);
        command
    };
    refused(&mut for_agave(&incremental(chain)), 1, "full archive");
    refused(for_agave(&full(chain)).args(["--check", "frames"]), 2, "check of the state");
    let other = genesis_of(AGAVE_4_5);
    refused(for_agave(&full(chain)).arg("--genesis").arg(other), 2, "not that of the archive's chain");
    // Its slots took 50 ms, which Firedancer does not know.
    let (validator, ..) = CHAINS[2];
    refused(&mut for_agave(&full(validator)), 1, "the time of a slot");
    // An archive by Agave is recompressed as usual.
    let (code, _, stderr) = run(&mut for_agave(&fixture_of(agave, "snapshot-26-")));
    assert_eq!(code, 0, "{stderr}");
}

fn write(dir: &Path, source: &Path, entries: &[TarEntry]) -> PathBuf {
    let path = dir.join(name(source));
    fs::write(&path, zstd::stream::encode_all(make_tar(entries).as_slice(), 1).expect("compresses")).expect("written");
    path
}

/// A damaged or forged archive by Firedancer gives no archive for Agave.
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
        let out = dir.path().join(what.replace(' ', "-"));
        fs::create_dir(&out).expect("made");
        let archive = write(dir.path(), &source, &entries);
        // The full archive must be right by itself, even if an incremental one would make its state
        // good.
        for more in [&[][..], &["--incremental", text(&newer)]] {
            let mut recompress = command("recompress");
            recompress.arg(&archive).args(["--for", "agave", "--genesis"]).arg(genesis_of(agave)).args(more);
            let (code, _, stderr) = run(recompress.arg("-o").arg(&out));
            assert!(code == 3 || code == 1, "{what}: {code} {stderr}");
            assert_eq!(names(&out), [""; 0], "{what}: {stderr}");
        }
    }
}

/// If the bank file alone shows that an archive cannot be converted, nothing else is read: a
/// missing end is not noticed.
#[test]
fn a_bank_file_that_cannot_be_converted_is_refused_at_once() {
    let (dir, (chain, ..)) = (temp_dir(), CHAINS[0]);
    let source = full(chain);
    let mut entries = entries(&source);
    let at = entries.iter().position(is_storage).expect("a storage");
    entries.truncate(at);
    let (archive, out) = (write(dir.path(), &source, &entries), temp_dir());
    let mut recompress = command("recompress");
    recompress.arg(&archive).args(["--for", "agave", "--genesis"]).arg(genesis_of(AGAVE_4_5)).arg("-o").arg(out.path());
    let (code, _, stderr) = run(&mut recompress);
    assert!(code == 2 && stderr.contains("not that of the archive's chain"), "{code}: {stderr}");
}
