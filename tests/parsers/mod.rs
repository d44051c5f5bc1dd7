//! Tests the parsers of foreign input with changed fixtures, and with random bytes. `fuzz/` runs the
//! same targets for longer.

pub mod targets;

use std::fs;

use proptest::prelude::*;
use slotpress_format::{Demand, FieldReader, parse_bank_file};
use targets::TARGETS;

use crate::common::*;
use crate::verify::refused::fields::{BANK_FILE, Change, ListItems, change_field, field_places};

/// Returns the files at this path in three ledgers at slot 26, which different versions of Agave wrote. Not
/// every ledger has each file.
fn files_of_ledgers(path: &str) -> Vec<Vec<u8>> {
    let ledgers = [ledger("ledger-at-26")].into_iter();
    let ledgers = ledgers.chain([AGAVE_4_4, AGAVE_4_5_SPLIT].map(|chain| ledger_of(chain, 26)));
    ledgers.filter_map(|ledger| fs::read(ledger.path().join(path)).ok()).collect()
}

/// Makes a small tar with the documents and the smallest storages. It has an entry of every kind, but is not a
/// complete snapshot.
fn small_tar() -> Vec<u8> {
    let entries: Vec<TarEntry> = entries(&fixture(FULL_26));
    let is_small = |entry: &TarEntry| !entry.path.starts_with("accounts/") || entry.content.len() < 19_350;
    make_tar(&entries.into_iter().filter(is_small).collect::<Vec<_>>())
}

/// Returns the skippable frames at the end of an archive.
fn skippable_frames(bytes: &[u8]) -> Vec<Vec<u8>> {
    let is_start = |offset: &usize| {
        bytes[*offset..].first_chunk().is_some_and(|magic| (u32::from_le_bytes(*magic) >> 4) == 0x0184_d2a5)
    };
    let starts: Vec<usize> = (0..bytes.len()).filter(is_start).collect();
    let frame = |start: &usize| {
        let length = u32::from_le_bytes(*bytes[start + 4..].first_chunk().expect("a length")) as usize;
        bytes.get(*start..start + 8 + length).map(<[u8]>::to_vec)
    };
    starts.iter().filter_map(frame).filter(|frame| frame.len() > 16).collect()
}

/// Changes fields of a bank file so that it breaks demands of clients, but still parses. Inputs made from this
/// file reach the code that reports broken demands.
fn break_demands(bank_file: &[u8]) -> Vec<u8> {
    // The newest epoch is the last epoch in the file.
    let end_of_newest = |file: &[u8], name: &str| {
        let mut places = field_places(file, BANK_FILE, ListItems::All).into_iter().filter(|place| place.name == name);
        places.next_back().expect("a field").items.start
    };
    let changes =
        [("capitalization", Change::Highest), ("stakes / delegations / rate", Change::Set(0x4000_0000_0000_0000))];
    let change = |file: Vec<u8>, (name, change): (&str, Change)| change_field(&file, BANK_FILE, name, &change);
    let mut file = changes.into_iter().fold(bank_file.to_vec(), change);
    let stake_end = end_of_newest(&file, "epoch stakes / vote accounts / stake");
    file[stake_end - 8..stake_end].fill(0);
    file
}

/// The last seed breaks the demands that can be broken within the fuzzer's maximum input length.
#[test]
fn the_seeds_break_all_demands_within_reach() {
    let seeds = seeds("bank_file");
    let file = seeds.last().expect("seeds");
    let bank = parse_bank_file(FieldReader::new(file.as_slice(), file.len() as u64, "the seed"), &mut |_| Ok(()));
    let mut demands: Vec<Demand> = bank.expect("a bank file").breaches.iter().map(|breach| breach.demand).collect();
    demands.sort_unstable_by_key(|demand| *demand as u8);
    demands.dedup();
    assert_eq!(demands, [Demand::VoteAccountStake, Demand::FiredancerLimit]);
    let in_corpus = fs::read("fuzz/corpus/bank_file/seed-3").expect("read");
    assert!(in_corpus == *file, "the corpus has a different seed: run seeds_for_fuzzing with FUZZ_SEEDS=fuzz/corpus");
}

/// Returns valid or nearly valid inputs for a target.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let archive = fixture(FULL_26);
    let small = || targets::wrapped::archive_with_index(&small_tar(), 16_384, &|_| {});
    let with_first_bytes = |first_bytes: [u8; 3]| [first_bytes.as_slice(), &small_tar()].concat();
    match target {
        "tar" => vec![tar_of(&archive)[..20_000].to_vec(), small_tar()],
        "frame" => vec![fs::read(&archive).expect("read")[..64].to_vec()],
        "bank_file" => {
            let mut files = files_of_ledgers("snapshots/26/26");
            files.push(break_demands(&files[0]));
            files
        }
        "status_cache" => files_of_ledgers("snapshots/26/status_cache"),
        "sysvars" => {
            let slots = [&[1][..], &16_384u64.to_le_bytes(), &[5; 131_072], &1_048_576u64.to_le_bytes(), &[9; 8]];
            let history = [&2u64.to_le_bytes()[..], &[7; 64]];
            vec![slots.concat(), history.concat(), [0; 40].to_vec()]
        }
        "tokens" => {
            let account = |state: u8| [&[7; 72][..], &[0; 36], &[state], &[0; 56]].concat();
            let texts = [&[2, 0, 0, 0, 65, 66][..], &[0; 4], &[1, 0, 0, 0, 67], &[0; 4]].concat();
            let mint = [&[0; 45][..], &[1], &[0; 119], &[1, 19, 0, 83, 0], &[7; 64], &texts].concat();
            vec![account(1), [account(2), vec![2, 7, 0, 0, 0, 2, 0, 8, 0, 1, 0, 0, 0, 0, 0, 0, 0]].concat(), mint]
        }
        "storages_list" => files_of_ledgers("snapshots/26/storages_list"),
        "obsolete" => files_of_ledgers("snapshots/26/obsolete_accounts"),
        "split" => files_of_ledgers("accounts/run/26.26.meta"),
        "records" => {
            let files = contents(&archive).into_iter();
            let mut storages: Vec<Vec<u8>> =
                files.filter(|(path, _)| path.starts_with("accounts/")).map(|(_, bytes)| bytes).collect();
            storages.sort_by_key(Vec::len);
            storages.into_iter().filter(|bytes| !bytes.is_empty()).take(2).collect()
        }
        "archive" => vec![targets::wrapped::compress_to_one_frame(&small_tar()), small()],
        "entries" => vec![with_first_bytes([40, 0, 0]), with_first_bytes([3, 5, 7])],
        "names" => vec![FULL_26.into(), INCREMENTAL_26_40.into(), b"26.3".to_vec(), "5b".repeat(32).into()],
        "listing" => {
            let root = "5b".repeat(32);
            let json = format!(
                r#"{{"version":1,"archives":[{{"name":"{FULL_26}","size_bytes":9,"age_seconds":7,"root":"{root}",
                "frame_hashes":{{"offset_bytes":5,"frames":2}}}},{{"name":"x"}}]}}"#
            );
            vec![json.into()]
        }
        "genesis" => {
            let entry =
                |path: &str, content: &[u8]| TarEntry { path: path.into(), kind: b'0', content: content.into() };
            let genesis = fs::read(fixture("genesis.bin")).expect("read");
            vec![make_tar(&[entry("rocksdb/CURRENT", b"x"), entry("genesis.bin", b"the genesis")]), genesis]
        }
        "index" | "seek_table" => skippable_frames(&small()),
        _ => Vec::new(),
    }
}

/// Changes of an input: new bytes at some places, and the place at which the input is truncated, if any.
#[derive(Clone, Debug)]
struct Changes {
    bytes: Vec<(prop::sample::Index, u8)>,
    end: Option<prop::sample::Index>,
}

fn any_changes() -> impl Strategy<Value = Changes> {
    let bytes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6);
    (bytes, any::<Option<prop::sample::Index>>()).prop_map(|(bytes, end)| Changes { bytes, end })
}

#[test]
fn no_target_fails_on_changed_or_random_bytes() {
    for &(name, target) in TARGETS {
        let seeds = seeds(name);
        assert!(!seeds.is_empty(), "{name}");
        seeds.iter().for_each(|seed| target(seed));
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
            // Verifying an archive takes as long as parsing a hundred other inputs.
            cases: if matches!(name, "archive" | "entries") { 60 } else { 200 },
            failure_persistence: None,
            ..ProptestConfig::default()
        });
        let changed_seeds = (any::<prop::sample::Index>(), any_changes()).prop_map(|(seed_index, changes)| {
            let mut bytes = seed_index.get(&seeds).clone();
            for (place, byte) in changes.bytes {
                let index = place.index(bytes.len());
                bytes[index] = byte;
            }
            if let Some(end) = changes.end {
                bytes.truncate(end.index(bytes.len()) + 1);
            }
            bytes
        });
        let random_bytes = prop::collection::vec(any::<u8>(), 0..2000);
        let result = runner.run(&prop_oneof![3 => changed_seeds, 1 => random_bytes], |bytes| {
            target(&bytes);
            Ok(())
        });
        assert!(result.is_ok(), "{name}: {}", result.expect_err("it has failed"));
    }
}

/// Every target has a program in `fuzz/`, and every program a target.
#[test]
fn every_target_is_fuzzed() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/fuzz_targets");
    let names = fs::read_dir(dir).expect("the programs").map(|entry| entry.expect("an entry").file_name());
    let mut programs: Vec<String> = names.map(|name| name.into_string().expect("text").replace(".rs", "")).collect();
    // The target `fetch` is in `tests/fetch/survives/lies/script.rs`, because it is not a parser.
    programs.retain(|name| !["smoke", "fetch"].contains(&name.as_str()));
    programs.sort_unstable();
    let mut targets: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    targets.sort_unstable();
    assert_eq!(programs, targets);
}

/// Writes the seeds for `fuzz/` to the directory that `FUZZ_SEEDS` names.
#[test]
#[ignore = "writes seeds: FUZZ_SEEDS=fuzz/corpus cargo test --test suite seeds_for_fuzzing -- --ignored"]
fn seeds_for_fuzzing() {
    let default_dir = temp_dir();
    let dir = std::env::var_os("FUZZ_SEEDS").map_or(default_dir.path().to_path_buf(), Into::into);
    for (name, _) in TARGETS {
        let dir = dir.join(name);
        fs::create_dir_all(&dir).expect("made");
        for (number, seed) in seeds(name).iter().enumerate() {
            fs::write(dir.join(format!("seed-{number}")), seed).expect("written");
        }
    }
}
