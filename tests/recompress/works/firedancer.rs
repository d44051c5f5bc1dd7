//! Archives by Firedancer's own producer, recompressed and converted for Agave.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use slotpress_format::{BankFile, FieldReader, ScheduledLeader, parse_status_cache};

use crate::common::firedancer::*;
use crate::common::oracle::Oracle;
use crate::common::{records, *};

fn but_status_cache(entries: Vec<TarEntry>) -> Vec<TarEntry> {
    entries.into_iter().filter(|entry| entry.path != "snapshots/status_cache").collect()
}

/// Recompressed archives have the same entries, except for the slots in the status cache that newer
/// versions of Firedancer need, and an index.
#[test]
fn recompressed_they_stay_what_they_are() {
    let dir = temp_dir();
    for chain in [CHAINS[0].0, CHAINS[1].0, "firedancer-2026-08/chain-one-compressor"] {
        let out = dir.path().join(chain.replace('/', "-"));
        fs::create_dir(&out).expect("made");
        let source = full(chain);
        let (code, report, stderr) = run(command("recompress").arg(&source).arg("-o").arg(&out));
        assert_eq!(code, 0, "{stderr}");
        assert!(stderr.contains("only Firedancer loads it") && report["root"].is_string(), "{stderr}");
        let made = out.join(name(&source));
        assert!(but_status_cache(entries(&made)) == but_status_cache(entries(&source)), "{chain}");
        assert_eq!(verify(&[&source], &["--for", "firedancer"]).0, 3);
        assert_eq!(verify(&[&made], &["--for", "firedancer,firedancer-26.08"]).0, 0);
        assert_eq!(verify(&[&made], &["--for", "agave"]).0, 3);
        let tree = out.join("tree");
        assert_eq!(run(command("restore").args(["--tree", "archive"]).arg(&made).arg("--ledger").arg(&tree)).0, 0);
        let files = tree_files(&tree);
        assert!(files == files_of(&made), "{chain}");
        // An archive from a pipe cannot be read twice: its status cache stays as it is.
        let piped = out.join("piped");
        fs::create_dir(&piped).expect("made");
        let mut recompress = command("recompress");
        recompress.args(["-", "-o"]).arg(&piped).stdin(fs::File::open(&source).expect("opened"));
        assert!(recompress.output().expect("runs").status.success());
        assert!(entries(&piped.join(name(&source))) == entries(&source), "{chain}");
    }
    // An incremental archive, on its base.
    let (chain, ..) = CHAINS[0];
    let source = incremental(chain);
    let (code, _, stderr) =
        run(command("recompress").arg(&source).arg("--base").arg(full(chain)).arg("-o").arg(dir.path()));
    assert_eq!(code, 0, "{stderr}");
    let recompressed = dir.path().join(chain.replace('/', "-")).join(name(&full(chain)));
    let pair = [recompressed.as_path(), &dir.path().join(name(&source))];
    assert_eq!(verify(&pair, &["--for", "firedancer,firedancer-26.08"]).0, 0);
}

fn tree_files(dir: &Path) -> BTreeSet<(String, Vec<u8>)> {
    let files = tree(dir).into_iter().filter_map(|(path, content)| Some((path, content?)));
    files.filter(|(path, _)| !path.ends_with(".lock")).collect()
}

fn files_of(archive: &Path) -> BTreeSet<(String, Vec<u8>)> {
    entries(archive).into_iter().filter(|it| it.kind != b'5').map(|it| (it.path, it.content)).collect()
}

/// Storages that Firedancer itself refuses are left out, and the program says so.
#[test]
fn storages_without_a_record_are_left_out() {
    let (dir, source) = (temp_dir(), full("firedancer-2026-08/chain-empty-storages"));
    assert_eq!(verify(&[&source], &["--for", "firedancer-26.08"]).0, 3);
    let (code, _, stderr) = run(command("recompress").arg(&source).arg("-o").arg(dir.path()));
    assert!(code == 0 && stderr.contains("were left out"), "{stderr}");
    let made = dir.path().join(name(&source));
    assert_eq!(verify(&[&made], &["--for", "firedancer"]).0, 0);
    let kept: Vec<TarEntry> =
        entries(&source).into_iter().filter(|entry| !is_storage(entry) || !entry.content.is_empty()).collect();
    assert!(but_status_cache(entries(&made)) == but_status_cache(kept));
    // Its tree keeps them.
    let tree = dir.path().join("tree");
    assert_eq!(run(command("restore").args(["--tree", "archive"]).arg(&source).arg("--ledger").arg(&tree)).0, 0);
    assert!(tree_files(&tree) == files_of(&source));
    let out = dir.path().join("agave");
    fs::create_dir(&out).expect("made");
    let made = convert(&source, None, &genesis_of("agave-4.2.2"), &out);
    assert_eq!(verify(&[&made], &["--for", "agave,firedancer"]).0, 0);
}

/// A converted archive has all that every version of Agave demands: a slot for each storage, the
/// stakes of the state, the leader, the slots of the status cache. Name and accounts stay.
#[test]
fn what_agave_asks_for_is_rebuilt() {
    let dir = temp_dir();
    for (chain, agave, base_slot) in CHAINS {
        let out = dir.path().join(agave);
        fs::create_dir(&out).expect("made");
        let (source, genesis) = (full(chain), genesis_of(agave));
        let made = convert(&source, None, &genesis, &out);
        let newer = convert(&incremental(chain), Some(&source), &genesis, &out);
        let agave_newer = fixture_of(agave, &format!("incremental-snapshot-{base_slot}-"));
        let agave_full = fixture_of(agave, &format!("snapshot-{base_slot}-"));
        let on_agave = dir.path().join(format!("{agave}-on-agave"));
        fs::create_dir(&on_agave).expect("made");
        let newer_on_agave = convert(&incremental(chain), Some(&agave_full), &genesis, &on_agave);
        for pair in [[&made, &newer], [&agave_full, &newer_on_agave]] {
            let (code, _, stderr) = verify(&[pair[0], pair[1]], &["--for", "agave,firedancer"]);
            assert_eq!(code, 0, "{chain}: {stderr}");
        }
        for (made, agave, source) in [(&made, &agave_full, &source), (&newer, &agave_newer, &incremental(chain))] {
            assert_eq!(name(made), name(agave));
            let (bank, theirs) = (bank_of(made), bank_of(agave));
            let set = |bank: &BankFile| -> BTreeSet<_> { bank.stakes.vote_accounts.iter().map(|it| it.0).collect() };
            assert_eq!(set(&bank), set(&theirs), "{chain}");
            let delegations = |bank: &BankFile| -> BTreeSet<_> {
                bank.stakes.delegations.iter().map(|(address, of)| (*address, of.bytes().to_vec())).collect()
            };
            assert_eq!(delegations(&bank), delegations(&theirs), "{chain}");
            assert_eq!(bank.scheduled_leader, ScheduledLeader::Node(bank.leader));
            let fields = |bank: &BankFile| (bank.leader, bank.ns_per_slot, bank.stakes_epoch, bank.hash, bank.slot);
            assert_eq!(fields(&bank), fields(&theirs), "{chain}");
            assert!(!bank.lacks_stakes());
            let entries = entries(made);
            let storages: Vec<&TarEntry> = entries.iter().filter(|entry| is_storage(entry)).collect();
            let slots: Vec<u64> = storages
                .iter()
                .map(|it| it.path["accounts/".len()..].split('.').next().expect("a slot").parse().expect("a number"))
                .collect();
            assert!(slots.windows(2).all(|pair| pair[0] < pair[1]) && slots.last() == Some(&bank.slot), "{slots:?}");
            let accounts = |archive: &Path| -> Vec<_> {
                let records = records::records(archive).into_iter();
                records.map(|it| (it.pubkey, it.owner, it.lamports, it.executable, it.data)).collect()
            };
            assert!(accounts(made) == accounts(source), "{chain}: the accounts are as they were");
            let cache = &contents(made)["snapshots/status_cache"];
            let cache = FieldReader::new(cache.as_slice(), cache.len() as u64, "the status cache");
            let theirs = &contents(agave)["snapshots/status_cache"];
            let theirs = FieldReader::new(theirs.as_slice(), theirs.len() as u64, "the status cache");
            let slots = |cache| -> BTreeSet<u64> {
                parse_status_cache(cache, u64::MAX).expect("parsed").slots.into_iter().collect()
            };
            assert_eq!(slots(cache), slots(theirs), "{chain}");
            let (_, inspected, _) = run(command("inspect").arg(made));
            assert!(inspected["settings"].as_str().expect("settings").contains("converted-from=firedancer"));
        }
    }
}

/// A full archive that was converted for Agave's incremental one loads with it like Agave's own
/// pair. Converted alone, it has the rent epoch of mainnet's vote accounts.
#[test]
fn agaves_incremental_archive_goes_on_a_converted_full_one() {
    for (agave, has_other_rent_epochs) in
        [("agave-4.2.2", true), (AGAVE_4_4, false), (AGAVE_4_5, false), ("agave-validator-4.2.2", false)]
    {
        let dir = temp_dir();
        let [sources, alone, together, ledger] = ["sources", "alone", "together", "ledger"].map(|name| {
            fs::create_dir(dir.path().join(name)).expect("made");
            dir.path().join(name)
        });
        let (agave_full, newer) = (fixture_of(agave, "snapshot-"), fixture_of(agave, "incremental-"));
        let source = as_firedancer_writes(&agave_full, 2, 0, &sources);
        let genesis = genesis_of(agave);
        // Firedancer loads it. That Agave does not load it is not damage.
        let (code, report, stderr) = verify(&[&source, &newer], &[]);
        assert!(
            code == 0 && loads(&report, "firedancer") && !loads(&report, "agave-4.5"),
            "{agave}: {report} {stderr}"
        );

        let made = convert(&source, None, &genesis, &alone);
        let (code, report, _) = verify(&[&made, &newer], &["--for", "agave"]);
        assert_eq!(code, if has_other_rent_epochs { 3 } else { 0 }, "{agave}: {report}");
        assert_eq!(report.to_string().contains("stakes-rent-epoch"), has_other_rent_epochs, "{agave}: {report}");
        if has_other_rent_epochs {
            let restored =
                run(command("restore").args([&made, &newer]).arg("--ledger").arg(dir.path().join("refused")));
            assert!(
                restored.0 == 3
                    && restored.2.contains("convert that for this one")
                    && !restored.2.contains("do not use"),
                "{}",
                restored.2
            );
        }
        let mut recompress = command("recompress");
        recompress.arg(&source).args(["--for", "agave", "--genesis"]).arg(&genesis).arg("-o").arg(&together);
        let (code, _, stderr) = run(recompress.arg("--incremental").arg(&newer));
        assert_eq!(code, 0, "{agave}: {stderr}");
        let made_for_pair = together.join(name(&source));
        fs::copy(&genesis, ledger.join("genesis.bin")).expect("copied");
        let (code, _, stderr) = run(command("restore").args([&made_for_pair, &newer]).arg("--ledger").arg(&ledger));
        assert_eq!(code, 0, "{agave}: {stderr}");
        for full in [made_for_pair, ledger.join(name(&source))] {
            let (code, report, _) = verify(&[&full, &newer], &["--for", "agave,firedancer"]);
            assert_eq!(code, 0, "{agave}: {report}");
            let genesis = genesis.parent().expect("a directory");
            for oracle in Oracle::all() {
                assert_eq!(oracle.load(&full, Some(&newer), genesis), oracle.load(&agave_full, Some(&newer), genesis));
                assert_eq!(oracle.load(&full, None, genesis), oracle.load(&agave_full, None, genesis));
                let alone = oracle.accepts(&made, Some(&newer), genesis);
                assert_eq!(alone.is_err(), has_other_rent_epochs, "{agave}: {alone:?}");
            }
        }
    }
}

/// Archives by newer versions of Firedancer are converted too, to go with Agave's, whose vote
/// accounts have other rent epochs.
#[test]
fn archives_of_newer_firedancers_are_converted() {
    let chain = "firedancer-2026-09/full-bank";
    let (source, newer, genesis) = (full(chain), incremental(chain), genesis_of(AGAVE_4_4));
    let [agave_full, agave_newer] = ["snapshot-26-", "incremental-"].map(|prefix| fixture_of(AGAVE_4_4, prefix));
    let out = || tempfile::tempdir().expect("a directory").keep();
    let for_agaves = out();
    let mut recompress = command("recompress");
    recompress.arg(&source).args(["--for", "agave", "--genesis"]).arg(&genesis).arg("-o").arg(&for_agaves);
    let (code, _, stderr) = run(recompress.arg("--incremental").arg(&agave_newer));
    assert_eq!(code, 0, "{stderr}");
    // An incremental archive is converted for its full one.
    let made = convert(&source, None, &genesis, &out());
    for (full, newer) in [
        (for_agaves.join(name(&source)), agave_newer),
        (made.clone(), convert(&newer, Some(&made), &genesis, &out())),
        (source.clone(), convert(&newer, Some(&source), &genesis, &out())),
        (agave_full.clone(), convert(&newer, Some(&agave_full), &genesis, &out())),
    ] {
        let (code, report, stderr) = verify(&[&full, &newer], &["--for", "agave"]);
        assert_eq!(code, 0, "{} {}: {report} {stderr}", full.display(), newer.display());
        for oracle in Oracle::all() {
            let genesis = genesis.parent().expect("a directory");
            let theirs = oracle.load(&agave_full, Some(&fixture_of(AGAVE_4_4, "incremental-")), genesis);
            assert_eq!(oracle.load(&full, Some(&newer), genesis), theirs);
        }
    }
}

/// A full archive by Firedancer may hold storages that no client loads. Incremental archives on it
/// are converted for the archive that it becomes.
#[test]
fn a_base_with_empty_storages() {
    let dir = temp_dir();
    let [sources, full, newer] = ["sources", "full", "newer"].map(|name| dir.path().join(name));
    [&sources, &full, &newer].into_iter().for_each(|dir| fs::create_dir(dir).expect("made"));
    let genesis = genesis_of("agave-4.2.2");
    let of_agave = as_firedancer_writes(&fixture(FULL_26), 2, 6, &sources);
    for source in [self::full("firedancer-2026-08/chain-empty-storages"), of_agave] {
        let made = convert(&incremental(CHAINS[0].0), Some(&source), &genesis, &newer);
        let full = convert(&source, None, &genesis, &full);
        assert_eq!(verify(&[&full, &made], &["--for", "agave,firedancer"]).0, 0);
        [full, made].into_iter().for_each(|path| fs::remove_file(path).expect("removed"));
    }
}

/// A full archive of the minutes in which rewards are paid out is converted for a later incremental
/// one, and not alone.
#[test]
fn a_full_archive_of_an_epochs_first_slots() {
    const CHAIN: &str = "agave-4.2.2-epoch";
    let dir = temp_dir();
    let (agave_full, agave_newer) = (fixture_of(CHAIN, "snapshot-"), fixture_of(CHAIN, "incremental-"));
    let [full, newer] = [&agave_full, &agave_newer].map(|archive| as_firedancer_writes(archive, 2, 0, dir.path()));
    let ledger_of = |name: &str| {
        let ledger = dir.path().join(name);
        fs::create_dir(&ledger).expect("made");
        fs::copy(genesis_of(CHAIN), ledger.join("genesis.bin")).expect("copied");
        ledger
    };
    let recompress = |more: &[&Path], out: &Path| {
        let mut recompress = command("recompress");
        recompress.arg(&full).args(["--for", "agave", "--genesis"]).arg(genesis_of(CHAIN)).args(more);
        run(recompress.arg("-o").arg(out))
    };
    let (code, _, stderr) = recompress(&[], temp_dir().path());
    assert!(code == 1 && stderr.contains("rewards") && stderr.contains("later slot"), "{code}: {stderr}");
    for (name, pair) in [("firedancers", [&full, &newer]), ("agaves", [&full, &agave_newer])] {
        let (ledger, out) = (ledger_of(name), dir.path().join(format!("of-{name}")));
        fs::create_dir(&out).expect("made");
        let (code, _, stderr) = recompress(&[Path::new("--incremental"), pair[1]], &out);
        assert!(code == 0 && stderr.contains("with its incremental archive only"), "{code}: {stderr}");
        fs::remove_file(out.join(self::name(pair[0]))).expect("removed");
        let made = pair_for_agave(CHAIN, &pair.map(PathBuf::clone), &out);
        let (code, _, stderr) = run(command("restore").args(made).arg("--ledger").arg(&ledger));
        assert_eq!(code, 0, "{stderr}");
        let restored = pair.map(|archive| ledger.join(self::name(archive)));
        assert_eq!(verify(&[&restored[0], &restored[1]], &["--for", "agave,firedancer"]).0, 0);
        for oracle in Oracle::all() {
            let theirs = oracle.load(&agave_full, Some(&agave_newer), &ledger);
            assert_eq!(oracle.load(&restored[0], Some(&restored[1]), &ledger), theirs);
            let accounts = [ledger.join("accounts")];
            assert_eq!(oracle.load_dir(&ledger.join("snapshots/48"), &accounts, &ledger), theirs);
        }
    }
}

/// Chains of every version of Agave, over ends of epochs, with accounts that change and close.
/// Every pair made of Firedancer's archives of them loads as the same state, in every version that
/// loads Agave's own pair.
#[test]
#[ignore = "asks Agave's own loader: set AGAVE_ORACLE"]
fn chains_of_agaves_are_converted() {
    // Slots (the full archive has two thirds of them; 32 and 96 begin an epoch), and changes of
    // accounts.
    const CHAINS: [(&str, &[&str]); 7] = [
        ("36", &[]),
        ("48", &[]),
        ("60", &["--close-permille", "300"]),
        ("90", &["--hot", "--update-pct", "60"]),
        ("144", &["--close-permille", "200"]),
        ("150", &["--update-pct", "90", "--close-permille", "100"]),
        ("240", &["--hot", "--close-permille", "50"]),
    ];
    let oracles = Oracle::required();
    for generator in &oracles {
        let (mut loaded, mut refused) = (BTreeMap::<&str, usize>::new(), 0);
        for (seed, (slots, flags)) in CHAINS.into_iter().enumerate() {
            let dir = temp_dir();
            let chain = dir.path().join("chain");
            let mut generate = Command::new(&generator.path);
            generate.arg("gen").arg(&chain).args(["--accounts", "400", "--max-blob", "20000", "--slots", slots]);
            generator.run(generate.args(["--seed", &seed.to_string()]).args(flags));
            let archive = |prefix: &str| {
                let name = names(&chain.join("archives")).into_iter().find(|name| name.starts_with(prefix));
                chain.join("archives").join(name.expect("an archive"))
            };
            let (agave_full, agave_newer) = (archive("snapshot-"), archive("incremental-"));
            let [full, newer] = [&agave_full, &agave_newer].map(|it| as_firedancer_writes(it, 3, 2, dir.path()));
            let theirs: Vec<_> = oracles.iter().map(|it| it.accepts(&agave_full, Some(&agave_newer), &chain)).collect();
            for (what, pair) in [
                ("Firedancer's full, Agave's incremental", [&full, &agave_newer]),
                ("both Firedancer's", [&full, &newer]),
                ("Agave's full, Firedancer's incremental", [&agave_full, &newer]),
            ] {
                let ledger = tempfile::tempdir_in(dir.path()).expect("a directory");
                let ledger = ledger.path();
                fs::copy(chain.join("genesis.bin"), ledger.join("genesis.bin")).expect("copied");
                let made = pair_for_agave_of(&chain.join("genesis.bin"), &pair.map(PathBuf::clone), ledger);
                let (code, _, stderr) = run(command("restore").args(made).arg("--ledger").arg(ledger));
                assert_eq!(code, 0, "{slots}, {what}: {stderr}");
                let [full, newer] = pair.map(|archive| ledger.join(name(archive)));
                for (oracle, theirs) in oracles.iter().zip(&theirs).filter(|(_, theirs)| theirs.is_ok()) {
                    assert_eq!(&oracle.accepts(&full, Some(&newer), ledger), theirs, "{slots}, {what}");
                    let bank_snapshot = ledger.join("snapshots").join(slots);
                    let started = oracle.accepts_dir(&bank_snapshot, &[ledger.join("accounts")], ledger);
                    assert_eq!(&started, theirs, "{slots}, {what}");
                    *loaded.entry(what).or_default() += 1;
                }
            }
            // Without its incremental archive, if no rewards were being paid out.
            let alone = tempfile::tempdir_in(dir.path()).expect("a directory");
            let mut recompress = command("recompress");
            recompress.arg(&full).args(["--for", "agave", "-o"]).arg(alone.path());
            if run(recompress.arg("--genesis").arg(chain.join("genesis.bin"))).0 != 0 {
                assert!(["48", "144"].contains(&slots));
                continue;
            }
            let made = alone.path().join(name(&full));
            let goes_on = verify(&[&made, &agave_newer], &["--for", "agave"]).0 == 0;
            for (oracle, _) in oracles.iter().zip(&theirs).filter(|(_, theirs)| theirs.is_ok()) {
                assert_eq!(oracle.accepts(&made, None, &chain), oracle.accepts(&agave_full, None, &chain), "{slots}");
                *loaded.entry("Firedancer's full alone").or_default() += 1;
                let found = oracle.accepts(&made, Some(&agave_newer), &chain);
                assert_eq!(found.is_ok(), goes_on, "{slots}: {found:?}");
                match goes_on {
                    true => *loaded.entry("Firedancer's full, converted alone, Agave's incremental").or_default() += 1,
                    false => refused += 1,
                }
            }
        }
        println!(
            "chains of {:?}: {loaded:?}, converted alone and refused with Agave's incremental: {refused}",
            generator.client
        );
    }
}

/// 0 hashes per tick, which Firedancer writes if the chain has no number. Only Agave refuses it;
/// the conversion leaves it out.
#[test]
fn no_hashes_per_tick() {
    let (dir, genesis) = (temp_dir(), genesis_of(AGAVE_4_4));
    let (full, newer) = (full("firedancer-2026-09/full-bank"), incremental("firedancer-2026-09/full-bank-hashes-0"));
    let (code, report, stderr) = verify(&[&full, &newer], &[]);
    assert!(code == 0 && loads(&report, "firedancer") && !loads(&report, "agave-4.2"), "{report} {stderr}");
    assert_eq!(verify(&[&full, &newer], &["--for", "firedancer"]).0, 0);
    let (code, report, _) = verify(&[&full, &newer], &["--for", "agave"]);
    let rules: Vec<_> = report["failures"].as_array().expect("failures").iter().map(|it| it["rule"].clone()).collect();
    assert_eq!((code, rules), (3, vec!["no-hashes-per-tick".into()]), "{report}");
    let ledger = empty_ledger_of(AGAVE_4_4, dir.path(), "ledger");
    let restore = |newer: &Path| run(command("restore").args([&full, newer]).arg("--ledger").arg(&ledger));
    let (code, _, stderr) = restore(&newer);
    assert!(code == 1 && stderr.contains("0 hashes per tick") && stderr.contains("recompress"), "{stderr}");
    let [kept, made] = ["kept", "made"].map(|name| {
        fs::create_dir(dir.path().join(name)).expect("made");
        dir.path().join(name)
    });
    let (code, _, stderr) = run(command("recompress").arg(&newer).arg("--base").arg(&full).arg("-o").arg(&kept));
    assert!(code == 0 && stderr.contains("only Firedancer loads it"), "{stderr}");
    let made = convert(&newer, Some(&full), &genesis, &made);
    assert_eq!(bank_of(&made).hashes_per_tick, None);
    let (code, report, stderr) = verify(&[&full, &made], &["--for", "agave,firedancer"]);
    assert_eq!(code, 0, "{report} {stderr}");
    let (code, _, stderr) = restore(&made);
    assert_eq!(code, 0, "{stderr}");
    let genesis = genesis.parent().expect("a directory");
    for oracle in Oracle::all() {
        let [agave_full, agave_newer] = ["snapshot-26-", "incremental-"].map(|prefix| fixture_of(AGAVE_4_4, prefix));
        assert!(oracle.accepts(&full, Some(&newer), genesis).is_err());
        let theirs = oracle.load(&agave_full, Some(&agave_newer), genesis);
        assert_eq!(oracle.load(&full, Some(&made), genesis), theirs);
    }
}
