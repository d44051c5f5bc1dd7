//! Archives that Firedancer's own producer wrote: read as what they are, and made into what Agave loads.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::common::firedancer::*;
use crate::common::*;

/// A ledger of what Firedancer archived holds what Agave loads, beside it too.
#[test]
fn a_ledger_for_agave_is_restored() {
    for (chain, agave, _) in CHAINS {
        let dir = temp_dir();
        let agave_full = fixture_of(agave, "snapshot-");
        for (number, pair) in [[full(chain), incremental(chain)], [agave_full, incremental(chain)]].iter().enumerate() {
            let ledger = dir.path().join(format!("ledger-{number}"));
            fs::create_dir(&ledger).expect("made");
            fs::copy(genesis_of(agave), ledger.join("genesis.bin")).expect("copied");
            let (code, _, stderr) = run(command("restore").args(pair).arg("--ledger").arg(&ledger).arg("--verify"));
            assert_eq!(code, 0, "{chain}: {stderr}");
            assert_eq!(run(command("verify").arg(&ledger).args(["--for", "agave-4.2,agave-4.5"])).0, 0);
            let archives: Vec<PathBuf> = pair.iter().map(|archive| ledger.join(name(archive))).collect();
            assert_eq!(verify(&[&archives[0], &archives[1]], &["--for", "agave"]).0, 0, "{chain}");
            assert!(names(&ledger).iter().all(|name| !name.starts_with("tmp-")), "{:?}", names(&ledger));
        }
        // In the place of what Agave loads: it is not replaced.
        let ledger = dir.path().join("in-place");
        fs::create_dir(&ledger).expect("made");
        let in_place = ledger.join(name(&full(chain)));
        fs::copy(full(chain), &in_place).expect("copied");
        let (code, _, stderr) = run(command("restore").arg(&in_place).arg("--ledger").arg(&ledger));
        assert!(code == 1 && stderr.contains("move it to another directory"), "{code}: {stderr}");
        assert!(fs::read(&in_place).expect("read") == fs::read(full(chain)).expect("read"));
    }
}

/// Makes archives for Agave of a pair, and restores those.
fn restored_of_converted(agave: &str, pair: &[PathBuf], dir: &Path) -> PathBuf {
    let (made, genesis) = (dir.join("made"), genesis_of(agave));
    fs::create_dir(&made).expect("made");
    let is_of_firedancer = |path: &Path| bank_of(path).is_of_firedancer();
    let made: Vec<PathBuf> = (0..pair.len())
        .map(|number| match (number, pair.get(1)) {
            _ if !is_of_firedancer(&pair[number]) => pair[number].clone(),
            (0, Some(newer)) => {
                let mut recompress = command("recompress");
                recompress.arg(&pair[0]).args(["--for", "agave", "--genesis"]).arg(&genesis).arg("-o").arg(&made);
                let (code, _, stderr) = run(recompress.arg("--incremental").arg(newer));
                assert_eq!(code, 0, "{stderr}");
                made.join(name(&pair[0]))
            }
            (0, None) => convert(&pair[0], None, &genesis, &made),
            _ => convert(&pair[number], Some(&pair[0]), &genesis, &made),
        })
        .collect();
    let ledger = empty_ledger_of(agave, dir, "of-converted");
    let (code, _, stderr) = run(command("restore").args(made).arg("--ledger").arg(&ledger));
    assert_eq!(code, 0, "{stderr}");
    ledger
}

/// In one pass comes out what comes out of the archives that are made first: from files and from standard input, with storages
/// enough for all slots, and with more of them; the archives beside the ledger hold the same state.
#[test]
fn in_one_pass_as_of_converted_archives() {
    let sources = temp_dir();
    let agave = ["agave-4.2.2"; 2];
    let [agave_full, agave_newer] = ["snapshot-26-", "incremental-"].map(|prefix| fixture_of(agave[0], prefix));
    let written = |archive: &Path, compressors: usize, idle: usize| {
        let dir = sources.path().join(format!("{compressors}-{idle}"));
        fs::create_dir_all(&dir).expect("made");
        as_firedancer_writes(archive, compressors, idle, &dir)
    };
    let mut cases: Vec<(&str, Vec<PathBuf>)> = Vec::new();
    for (chain, agave, _) in CHAINS {
        cases.push((agave, vec![full(chain)]));
        cases.push((agave, vec![full(chain), incremental(chain)]));
        cases.push((agave, vec![fixture_of(agave, "snapshot-"), incremental(chain)]));
    }
    for (compressors, idle) in [(3, 2), (40, 0)] {
        let (full, newer) = (written(&agave_full, compressors, idle), written(&agave_newer, compressors, idle));
        cases.push((agave[0], vec![full.clone(), newer.clone()]));
        cases.push((agave[0], vec![full, agave_newer.clone()]));
        cases.push((agave[0], vec![agave_full.clone(), newer]));
    }
    // By its index, too.
    let indexed = sources.path().join("indexed");
    fs::create_dir(&indexed).expect("made");
    let mut recompress = command("recompress");
    recompress.arg(full(CHAINS[0].0)).args(["--frame-size", "64KiB", "-o"]).arg(&indexed);
    assert_eq!(run(&mut recompress).0, 0);
    cases.push((agave[0], vec![indexed.join(name(&full(CHAINS[0].0))), incremental(CHAINS[0].0)]));
    for (number, (agave, archives)) in cases.iter().enumerate() {
        let dir = temp_dir();
        let expected = restored_of_converted(agave, archives, dir.path());
        let said = format!("{number}: {archives:?}");
        let direct = empty_ledger_of(agave, dir.path(), "direct");
        let (code, report, stderr) = run(command("restore").args(archives).arg("--ledger").arg(&direct));
        assert_eq!((code, &report["state"]), (0, &"checked".into()), "{said}: {stderr}");
        let (found, wanted) = (files_without_archives(&direct), files_without_archives(&expected));
        let paths = |files: &std::collections::BTreeMap<String, _>| files.keys().cloned().collect::<Vec<_>>();
        assert_eq!(paths(&found), paths(&wanted), "{said}");
        assert!(
            found == wanted,
            "{said}: {:?}",
            wanted.iter().filter(|(path, it)| found[*path] != **it).map(|it| it.0).collect::<Vec<_>>()
        );
        let beside: Vec<PathBuf> = archives.iter().map(|archive| direct.join(name(archive))).collect();
        let beside: Vec<&Path> = beside.iter().map(PathBuf::as_path).collect();
        let (code, report, stderr) = verify(&beside, &["--for", "agave,firedancer"]);
        assert_eq!(code, 0, "{said}: {report} {stderr}");
        // The full archive is right by itself.
        assert_eq!(verify(&beside[..1], &["--for", "agave"]).0, 0, "{said}");
        for piped in 0..archives.len() {
            let ledger = empty_ledger_of(agave, dir.path(), &format!("piped-{piped}"));
            let mut restore = command("restore");
            for (number, archive) in archives.iter().enumerate() {
                restore.arg(if number == piped { Path::new("-") } else { archive.as_path() });
            }
            let input = fs::File::open(&archives[piped]).expect("opened");
            let output = restore.arg("--ledger").arg(&ledger).stdin(Stdio::from(input)).output().expect("runs");
            assert!(output.status.success(), "{said}: {}", String::from_utf8_lossy(&output.stderr));
            assert!(files_without_archives(&ledger) == wanted, "{said}");
            assert_eq!(ledger_archives(&ledger), ledger_archives(&direct), "{said}");
        }
    }
}

fn ledger_archives(ledger: &Path) -> Vec<String> {
    names(ledger).into_iter().filter(|name| name.contains("snapshot-")).collect()
}

/// The archives that Agave reads no more, too: what lies beside the ledger is what was unpacked.
#[test]
fn an_archive_of_an_old_format_gets_one_that_agave_reads() {
    let dir = temp_dir();
    let source = fixture(FULL_26);
    let tar = zstd::stream::decode_all(fs::File::open(&source).expect("opened")).expect("decoded");
    let plain = dir.path().join(name(&source).replace(".tar.zst", ".tar"));
    fs::write(&plain, tar).expect("written");
    let [ledger, expected] = ["ledger", "expected"].map(|name| empty_ledger_of("agave-4.2.2", dir.path(), name));
    let restore = |archive: &Path, ledger: &Path| run(command("restore").arg(archive).arg("--ledger").arg(ledger));
    assert_eq!(restore(&source, &expected).0, 0);
    for _ in 0..2 {
        let (code, _, stderr) = restore(&plain, &ledger);
        assert_eq!(code, 0, "{stderr}");
        assert!(files_without_archives(&ledger) == files_without_archives(&expected));
        let beside = ledger.join(name(&source));
        assert!(contents(&beside) == contents(&source));
        assert_eq!(verify(&[&beside], &["--for", "agave"]).0, 0);
        // The same archive there already is no obstacle.
        ["snapshots", "accounts"].iter().for_each(|name| fs::remove_dir_all(ledger.join(name)).expect("removed"));
    }
}

/// Over several accounts paths, with storages that become one.
#[test]
fn over_several_accounts_paths() {
    let (dir, agave) = (temp_dir(), "agave-4.2.2");
    let archives = [("snapshot-26-", 5), ("incremental-", 40)]
        .map(|(prefix, compressors)| as_firedancer_writes(&fixture_of(agave, prefix), compressors, 0, dir.path()));
    let accounts = ["one", "two"].map(|name| dir.path().join(name));
    let [single, spread] = ["single", "spread"].map(|name| empty_ledger_of(agave, dir.path(), name));
    assert_eq!(run(command("restore").args(&archives).arg("--ledger").arg(&single)).0, 0);
    let mut restore = command("restore");
    for path in &accounts {
        restore.arg("--accounts").arg(path);
    }
    let (code, _, stderr) = run(restore.args(&archives).arg("--ledger").arg(&spread));
    assert_eq!(code, 0, "{stderr}");
    let files = |dir: &Path| tree(&dir.join("run"));
    let (mut found, wanted) = (files(&accounts[0]), files(&single.join("accounts")));
    assert!(!files(&accounts[1]).is_empty());
    found.extend(files(&accounts[1]));
    assert!(found == wanted);
}
