//! Parsers of what others wrote, given fixtures with some bytes changed, and bytes of any kind. The same targets are in
//! `fuzz/`, for whoever has hours.

mod targets;

use {crate::common::*, proptest::prelude::*, std::fs, targets::TARGETS};

/// Bytes that are nearly right, for a target.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let archive = fixture(FULL_26);
    let files = contents(&archive);
    let file = |path: &str| files[path].clone();
    let ledger = || ledger("ledger-at-26");
    let written = || {
        let (ledger, out) = (ledger(), temp_dir());
        fs::read(crate::common::archive(ledger.path(), out.path(), &[])).expect("read")
    };
    match target {
        "tar" => vec![tar_of(&archive)[..20_000].to_vec()],
        "frame" => vec![fs::read(&archive).expect("read")[..64].to_vec()],
        "bank_file" => vec![file("snapshots/26/26")],
        "status_cache" => vec![file("snapshots/status_cache")],
        "obsolete" => vec![fs::read(ledger().path().join("snapshots/26/obsolete_accounts")).expect("read")],
        "records" => {
            let mut storages: Vec<Vec<u8>> =
                files.into_iter().filter(|(path, _)| path.starts_with("accounts/")).map(|(_, bytes)| bytes).collect();
            storages.sort_by_key(Vec::len);
            storages.into_iter().filter(|bytes| !bytes.is_empty()).take(2).collect()
        }
        "archive" => vec![fs::read(&archive).expect("read"), written()],
        "names" => vec![FULL_26.into(), INCREMENTAL_26_40.into(), b"26.3".to_vec()],
        // The skippable frames at the end of an archive: each from its magic number to the next, or the end.
        "index" | "seek_table" => {
            let bytes = written();
            let is_start = |at: &usize| {
                bytes[*at..].first_chunk().is_some_and(|magic| (u32::from_le_bytes(*magic) >> 4) == 0x0184_d2a5)
            };
            let starts: Vec<usize> = (0..bytes.len()).filter(is_start).collect();
            let frame = |start: &usize| {
                let length = u32::from_le_bytes(*bytes[start + 4..].first_chunk().expect("a length")) as usize;
                bytes.get(*start..start + 8 + length).map(<[u8]>::to_vec)
            };
            starts.iter().filter_map(frame).filter(|frame| frame.len() > 16).collect()
        }
        _ => Vec::new(),
    }
}

/// Some changes: where, as a part of the whole, and to what; and what is cut off.
fn changes() -> impl Strategy<Value = (Vec<(prop::sample::Index, u8)>, Option<prop::sample::Index>)> {
    (prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), any::<Option<prop::sample::Index>>())
}

#[test]
fn no_bytes_upset_a_parser() {
    for (name, target) in TARGETS {
        let seeds = seeds(name);
        assert!(!seeds.is_empty(), "{name}");
        seeds.iter().for_each(|seed| target(seed));
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
            // An archive takes as long as a hundred of the others.
            cases: if name == "archive" { 60 } else { 200 },
            failure_persistence: None,
            ..ProptestConfig::default()
        });
        let altered = (any::<prop::sample::Index>(), changes()).prop_map(|(which, (changes, end))| {
            let mut bytes = which.get(&seeds).clone();
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Some(end) = end {
                bytes.truncate(end.index(bytes.len()) + 1);
            }
            bytes
        });
        let any_bytes = prop::collection::vec(any::<u8>(), 0..2000);
        let result = runner.run(&prop_oneof![3 => altered, 1 => any_bytes], |bytes| {
            target(&bytes);
            Ok(())
        });
        assert!(result.is_ok(), "{name}: {}", result.expect_err("it has failed"));
    }
}

/// Writes the seeds for `fuzz/`: `FUZZ_SEEDS=fuzz/corpus cargo test --test suite parsers`.
#[test]
fn seeds_for_fuzzing() {
    let Some(dir) = std::env::var_os("FUZZ_SEEDS") else { return };
    for (name, _) in TARGETS {
        let dir = std::path::Path::new(&dir).join(name);
        fs::create_dir_all(&dir).expect("made");
        for (number, seed) in seeds(name).iter().enumerate() {
            fs::write(dir.join(format!("seed-{number}")), seed).expect("written");
        }
    }
}
