//! For every altered archive, `verify` says what is wrong, and its verdict on each version of Agave
//! is that version's own.

use std::path::{Path, PathBuf};

use slotpress_base::NoProgress;
use slotpress_read::{Check, NamedArchive, Rule, Snapshot, SnapshotClient, VerifyReport};

use super::fields::{BANK_FILE, NOT_JUDGED, OF_GENESIS, RandomFields, altered_fields, places};
use crate::common::oracle::Oracle;
use crate::verify::altered::{Altered, corpus, fields_of_bank};
use crate::verify::fixtures::*;

/// Seen with 4.2, on a busy machine.
const RACE: &str = "Agave may read the version while the second entry replaces it";

const OTHER_WRITER: &str = "no writer of snapshots makes such headers";

const NEWER: &str = "what it holds would supersede whatever the bank does next";

/// Changes for which `verify` is stricter than some version of Agave on purpose, with the reason.
const STRICTER: &[(&str, &str)] = &[
    ("entry: version twice", RACE),
    ("entry: version twice, alike", RACE),
    ("entry: version twice, the first damaged", RACE),
    ("storage: newer than the bank", NEWER),
    ("storage: of slot 2^32", NEWER),
    ("pair: a storage of a slot that the map does not name", NEWER),
    (
        "entry: bank files of two slots",
        "Agave takes the highest slot that it unpacked; another reader may take the first",
    ),
    ("name: an id of 2^64 - 1", "Agave 4.2 gives the storage another id; no validator writes such a one"),
    ("name: leading zeros for a storage", "Agave reads numbers with leading zeros; no validator writes them"),
    ("entry: a PAX header with a time", OTHER_WRITER),
    ("entry: a PAX header with a path", OTHER_WRITER),
    ("entry: a long name that is its own", OTHER_WRITER),
    ("entry: a header from before ustar", OTHER_WRITER),
    ("entry: a name split into the prefix", OTHER_WRITER),
    (
        "records: executable 2",
        "Agave 4.4 and later take any value for a flag, 4.2 refuses it, and no validator writes it",
    ),
];

/// Whether Firedancer's own loader loaded such archives (docs/snapshot-format.md#firedancer; August
/// 2026).
const FIREDANCER: &[(&str, bool)] = &[
    ("nothing", true),
    ("version: \"1.2.0\\n\"", false),
    ("entry: a name split into the prefix", false),
    ("entry: unknown bytes after ustar", true),
    ("storage: two of one slot", true),
    ("storage: the 5th twice", true),
    ("storage: newer than the bank", true),
    ("pair: a storage of the base's slot", true),
    ("records: the last record's header only in part", true),
];

/// Content that Firedancer loads in some places, which `verify` does not rely on, with the verdict.
const STRICTER_THAN_FIREDANCER: &[(&str, &str)] = &[
    ("entry: rocksdb/ of kind 5", "not one of a snapshot"),
    ("entry: another checksum", "not one of a snapshot"),
    ("entry: a checksum that is no number", "not one of a snapshot"),
    ("entry: a directory without a size", "not one of a snapshot"),
    ("name: versionX", "not one of a snapshot"),
    ("name: status_cache2", "not one of a snapshot"),
    ("name: snapshots/x for the bank file", "not one of a snapshot"),
    ("name: leading zeros and + for the bank file", "not one of a snapshot"),
    ("name: leading zeros for a storage", "not one of a snapshot"),
    ("name: + for a storage", "not one of a snapshot"),
    ("name: an id of 2^64 - 1", "not one of a snapshot"),
    ("end: 1536 zeros", "it loads up to 20 blocks"),
    ("end: 10240 zeros", "it loads up to 20 blocks"),
    ("records: a record twice", "it loads that"),
];

const NO_WRITER: &str = "no writer breaks it, and no hash covers it: who forges it can forge what nobody can judge";

/// Content that Firedancer refuses, and which `verify` does not judge, with the reason.
const LOOSER_THAN_FIREDANCER: &[(&str, &str)] = &[
    ("bank: a gap", NO_WRITER),
    ("bank: an index twice", NO_WRITER),
    ("bank: a blockhash twice", NO_WRITER),
    ("bank: the newest blockhash", NO_WRITER),
    ("bank: two offsets", NO_WRITER),
    ("bank: no blockhashes", NO_WRITER),
    ("bank: a blockhash too many", NO_WRITER),
    ("bank file: block id / hash: Zero", NO_WRITER),
    ("bank file: epoch schedule / first normal slot: Flipped", NO_WRITER),
    ("bank file: unused epoch stakes: Length(1)", NO_WRITER),
    ("epoch stakes: a vote state of an unknown version", NO_WRITER),
    ("epoch stakes: a vote state that ends early", NO_WRITER),
];

/// Returns the verdict of `verify` on an altered archive, alone in a directory.
fn ours(altered: &Altered, dir: &Path) -> (PathBuf, Option<PathBuf>, slotpress::Result<VerifyReport>) {
    let full = put(dir, &altered.full.0, &altered.full.1);
    let incremental = altered.incremental.as_ref().map(|(name, bytes)| put(dir, name, bytes));
    let named = |path: &PathBuf| NamedArchive::from_path(path);
    let options = options(&SnapshotClient::AGAVE);
    let ours = slotpress_read::verify(
        Snapshot::Archives { full: &named(&full), incremental: incremental.as_ref().map(named).as_ref() },
        &options,
        &NoProgress,
    );
    (full, incremental, ours)
}

#[test]
fn failures_say_what_is_wrong_where_and_what_to_do() {
    let corpus = corpus();
    assert!(corpus.len() >= 100, "{} altered archives", corpus.len());
    let mut failed = 0;
    for altered in &corpus {
        let dir = tempfile::tempdir().expect("a directory");
        let (_, _, ours) = ours(altered, dir.path());
        failed += usize::from(!ours.as_ref().is_ok_and(|report| report.ok));
        for failure in ours.iter().flat_map(|report| report.failures.iter().chain(&report.warnings)) {
            let is_placed = failure.place.offset_bytes.is_some() || failure.place.entry.is_some();
            let is_whole = matches!(failure.check, Check::Name | Check::State) || failure.rule == Rule::Index;
            let says_what = failure.expected.is_some() && failure.found.is_some() && !failure.hint.is_empty();
            assert!(says_what && (is_placed || is_whole), "{}: {failure:?}", altered.what);
        }
    }
    assert!(failed > 50, "{failed} of {}", corpus.len());
}

/// `verify` says that Firedancer refuses an archive if it does, and loads it if it does, except
/// where others must not rely on that, and where it does not judge.
#[test]
fn verdicts_agree_with_firedancer() {
    let corpus: Vec<Altered> = corpus().into_iter().chain(altered_fields()).collect();
    let verdict = |what: &str| {
        let altered = corpus.iter().find(|altered| altered.what == what).unwrap_or_else(|| panic!("no {what}"));
        let dir = tempfile::tempdir().expect("a directory");
        let report = ours(altered, dir.path()).2.expect("verified");
        let verdict =
            report.clients.iter().find(|verdict| verdict.client == SnapshotClient::Firedancer).expect("a verdict");
        (verdict.loads, verdict.note, verdict.because, shown(&report))
    };
    for (what, loads) in FIREDANCER {
        let (said, note, _, why) = verdict(what);
        assert_eq!(said, *loads, "{what}: {why}");
        // An archive that Agave refuses gets a finding.
        let is_odd = what.starts_with("storage: ") || what.starts_with("pair: ") || what.starts_with("records: ");
        assert_eq!(note.is_some(), is_odd, "{what}: {note:?}");
    }
    for (what, why) in STRICTER_THAN_FIREDANCER {
        let (loads, _, because, _) = verdict(what);
        assert!(!loads && because.is_some_and(|because| because.contains(why)), "{what}: {because:?}");
    }
    for (what, reason) in LOOSER_THAN_FIREDANCER {
        let (loads, _, because, why) = verdict(what);
        assert!(loads, "{what}, {reason}: {because:?}, {why}");
    }
}

#[test]
#[ignore = "asks Agave itself: AGAVE_ORACLE names programs built on its crates"]
fn verdicts_agree_with_agave() {
    let corpus = corpus();
    let oracles = Oracle::required();
    let mut disagreements = Vec::new();
    let mut counts = [0, 0];
    for altered in &corpus {
        let dir = tempfile::tempdir().expect("a directory");
        let (full, incremental, ours) = ours(altered, dir.path());
        for oracle in &oracles {
            let (ok, why) = match &ours {
                Ok(report) => {
                    let verdict = report.clients.iter().find(|verdict| verdict.client == oracle.client);
                    (verdict.expect("a verdict").loads, shown(report))
                }
                Err(error) => (false, error.to_string()),
            };
            let answer = oracle.accepts(&full, incremental.as_deref(), &crate::verify::fixtures::dir());
            counts[usize::from(answer.is_ok())] += 1;
            let is_known = !ok && answer.is_ok() && STRICTER.iter().any(|(what, _)| altered.what == *what);
            if ok != answer.is_ok() && !is_known {
                let what = format!("{}: we say {ok} ({why}); {} says {answer:?}", altered.what, oracle.client);
                disagreements.push(what);
            }
        }
    }
    eprintln!("{} altered archives: Agave accepts {}, refuses {}", corpus.len(), counts[1], counts[0]);
    assert!(disagreements.is_empty(), "{} disagreements:\n{}", disagreements.len(), disagreements.join("\n"));
}

/// For every field, altered in every way of its kind, each version of Agave gives the same verdict
/// as `verify`, except for what `verify` does not judge.
#[test]
#[ignore = "asks Agave itself: AGAVE_ORACLE names programs built on its crates"]
fn verdicts_on_fields_agree_with_agave() {
    let all = altered_fields();
    let oracles = Oracle::required();
    let mut disagreements = Vec::new();
    let mut counts = [0; 2];
    for altered in &all {
        let dir = tempfile::tempdir().expect("a directory");
        disagreements.extend(disagreement(altered, &crate::verify::fixtures::dir(), dir.path(), &oracles, &mut counts));
    }
    eprintln!("{} altered fields: Agave accepts {}, refuses {}", all.len(), counts[1], counts[0]);
    assert!(disagreements.is_empty(), "{} disagreements:\n{}", disagreements.len(), disagreements.join("\n"));
}

/// Archives of real chains with one to three random fields altered. `FIELDS_SEED` selects them,
/// `FIELDS_RUNS` sets their number. Each version of Agave gives the same verdict as `verify`,
/// except for fields that are compared with the genesis.
#[test]
#[ignore = "asks Agave itself: AGAVE_ORACLE names programs built on its crates"]
fn verdicts_on_random_fields_agree_with_agave() {
    let number = |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().expect("a number"));
    let seed = number("FIELDS_SEED", 1);
    let runs = number("FIELDS_RUNS", 20);
    let oracles = Oracle::required();
    let mut random = RandomFields::new(seed);
    let mut counts = [0; 2];
    let mut disagreements = Vec::new();
    for run in 0..runs {
        let (altered, chain) = random.next_archive();
        let dir = tempfile::tempdir().expect("a directory");
        let found = disagreement(&altered, &chain, dir.path(), &oracles, &mut counts);
        found.iter().for_each(|text| eprintln!("run {run}: {text}"));
        disagreements.extend(found);
        if run % 10 == 9 {
            let seen = run + 1;
            let wrong = disagreements.len();
            eprintln!("{seen} archives: Agave accepts {}, refuses {}; {wrong} disagreements", counts[1], counts[0]);
        }
    }
    assert!(disagreements.is_empty(), "{} disagreements:\n{}", disagreements.len(), disagreements.join("\n"));
}

/// Returns a difference between the verdicts of `verify` and of a version of Agave.
fn disagreement(
    altered: &Altered,
    chain: &Path,
    dir: &Path,
    oracles: &[Oracle],
    counts: &mut [usize; 2],
) -> Vec<String> {
    let (full, incremental, ours) = ours(altered, dir);
    let report = ours.expect("verified");
    let mut found = Vec::new();
    for oracle in oracles {
        let ok = report.clients.iter().any(|verdict| verdict.client == oracle.client && verdict.loads);
        let answer = oracle.accepts(&full, incremental.as_deref(), chain);
        counts[usize::from(answer.is_ok())] += 1;
        let is_looser = OF_GENESIS.iter().chain(&NOT_JUDGED).any(|name| altered.what.contains(name));
        if ok != answer.is_ok() && !(is_looser && ok) {
            let why = shown(&report);
            found.push(format!("{}: we say {ok} ({why}); {} says {answer:?}", altered.what, oracle.client));
        }
    }
    found
}

/// If Agave refuses a bank file or status cache with one flipped bit, `verify` does not say that it
/// loads. Every fourth byte of the bank's fields is tried, one of 61 of the rest, and none of those
/// that Agave compares with `genesis.bin`, or that `verify` does not judge.
#[test]
#[ignore = "asks Agave itself: AGAVE_ORACLE names programs built on its crates"]
fn flipped_bits_of_documents_agree_with_agave() {
    let oracles = Oracle::required();
    let tar = Tar::read(FULL);
    let is_status_cache = |path: &str| path == "snapshots/status_cache";
    let mut disagreements = Vec::new();
    let mut refused = 0;
    for (which, is_it) in [("bank file", is_bank_file as fn(&str) -> bool), ("status cache", is_status_cache)] {
        let content = tar.members[tar.position(is_it)].content.clone();
        let (fields, of_genesis) =
            if which == "bank file" { fields_of_bank(&content) } else { (0..0, [const { 0..0 }; 2]) };
        let mut left_out = of_genesis.to_vec();
        if which == "bank file" {
            let all = places(&content, BANK_FILE, true).into_iter();
            left_out.extend(all.filter(|place| NOT_JUDGED.contains(&place.name.as_str())).map(|place| place.range));
        }
        let is_left_out = |at: &usize| left_out.iter().any(|range| range.contains(at));
        let is_tried = |at: &usize| at.is_multiple_of(if fields.contains(at) { 4 } else { 61 }) && !is_left_out(at);
        for at in (0..content.len()).filter(is_tried) {
            let mut content = content.clone();
            content[at] ^= 1 << (at % 7);
            let mut tar = tar.clone();
            tar.member(is_it).set_content(content);
            let dir = tempfile::tempdir().expect("a directory");
            let path = put(dir.path(), FULL, &zstd(&tar.write()));
            let ours = verify(&path, None, &SnapshotClient::AGAVE);
            for oracle in &oracles {
                let loads = ours.clients.iter().any(|verdict| verdict.client == oracle.client && verdict.loads);
                let answer = oracle.accepts(&path, None, &crate::verify::fixtures::dir());
                refused += usize::from(answer.is_err());
                if loads && answer.is_err() {
                    disagreements.push(format!("byte {at} of the {which}: {} says {answer:?}", oracle.client));
                }
            }
        }
    }
    assert!(refused > 0 && disagreements.is_empty(), "{}", disagreements.join("\n"));
}
