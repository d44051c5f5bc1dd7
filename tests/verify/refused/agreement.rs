//! For every altered archive, `verify` reports what is wrong, and its verdict for each version of Agave is that
//! version's verdict, with the exceptions that are listed here.

use std::fmt::{self, Display, Formatter};
use std::path::Path;

use slotpress_base::NoProgress;
use slotpress_read::{Check, ClientVerdict, Rule, Snapshot, SnapshotClient, VerifyReport};

use super::fields::{BANK_FILE, ListItems, OF_GENESIS, RandomFields, UNCHECKED, altered_fields, field_places};
use crate::common::oracle::Oracle;
use crate::common::temp_dir;
use crate::verify::altered::{Altered, AlteredPaths, corpus, find_bank_field_ranges};
use crate::verify::fixtures::*;

/// Agave 4.2 loaded such an archive on a busy machine.
const RACE: &str = "Agave may read the version while the second entry replaces it";

const OTHER_WRITER: &str = "no writer of snapshots makes such headers";

const NEWER: &str = "its records would supersede whatever the bank writes next";

/// Changes for which `verify` is stricter than some version of Agave on purpose, with the reason.
const STRICTER: &[(&str, &str)] = &[
    ("entry: version twice", RACE),
    ("entry: version twice, alike", RACE),
    ("entry: version twice, the first damaged", RACE),
    ("storage: newer than the bank", NEWER),
    ("storage: of slot 2^32", NEWER),
    ("pair: a storage of a slot that the storage map does not name", NEWER),
    (
        "entry: bank files of two slots",
        "Agave takes the highest slot that it unpacked; another reader may take the first",
    ),
    ("name: an id of 2^64 - 1", "Agave 4.2 gives the storage a different id; no validator writes one"),
    ("name: leading zeros for a storage", "Agave reads numbers with leading zeros; no validator writes them"),
    ("entry: a PAX header with a time", OTHER_WRITER),
    ("entry: a PAX header with a path", OTHER_WRITER),
    ("entry: a long name equal to the entry's own", OTHER_WRITER),
    ("entry: a header from before ustar", OTHER_WRITER),
    ("entry: a name split into the prefix", OTHER_WRITER),
    (
        "records: executable 2",
        "Agave 4.4 and later accept any value for a flag, 4.2 refuses it, and no validator writes it",
    ),
];

/// Verdicts of Firedancer's own loader in August 2026 (docs/snapshot-format.md#firedancer): the change,
/// and true if it loaded the archive.
const FIREDANCER_VERDICTS: &[(&str, bool)] = &[
    ("nothing", true),
    ("version: \"1.2.0\\n\"", false),
    ("entry: a name split into the prefix", false),
    ("entry: unknown bytes after ustar", true),
    ("storage: two of one slot", true),
    ("storage: the 5th twice", true),
    ("storage: newer than the bank", true),
    ("pair: a storage of the base's slot", true),
    ("records: part of a header after the last record", true),
];

/// Changes that Firedancer accepts in some positions. `verify` does not rely on that; the second text is
/// part of its verdict.
const STRICTER_THAN_FIREDANCER: &[(&str, &str)] = &[
    ("entry: rocksdb/ of kind 5", "not one of a snapshot"),
    ("entry: a different checksum", "not one of a snapshot"),
    ("entry: a checksum that is not a number", "not one of a snapshot"),
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
    ("records: a record twice", "it loads the archive"),
];

const NO_WRITER: &str = "no writer breaks it, and no hash covers it, so a forger could change other things unnoticed";

/// Changes that Firedancer refuses, and that `verify` does not find, with the reason.
const LOOSER_THAN_FIREDANCER: &[(&str, &str)] = &[
    ("bank: a gap in the blockhash queue", NO_WRITER),
    ("bank: a blockhash index twice", NO_WRITER),
    ("bank: a blockhash twice", NO_WRITER),
    ("bank: a cached transaction of the newest blockhash", NO_WRITER),
    ("bank: two offsets for a cached blockhash", NO_WRITER),
    ("bank: no blockhashes", NO_WRITER),
    ("bank: a blockhash too many", NO_WRITER),
    ("bank file: block id / hash: Zero", NO_WRITER),
    ("bank file: epoch schedule / first normal slot: Flipped", NO_WRITER),
    ("bank file: unused epoch stakes: Length(1)", NO_WRITER),
    ("epoch stakes: a vote state of an unknown version", NO_WRITER),
    ("epoch stakes: a vote state that ends early", NO_WRITER),
];

/// Verifies archives in a directory for all versions of Agave.
fn verify_for_agave(paths: &AlteredPaths) -> slotpress::Result<VerifyReport> {
    slotpress_read::verify(
        &Snapshot::from_archives(&paths.full, paths.incremental.as_ref()),
        &verify_options(&SnapshotClient::AGAVE),
        &NoProgress,
    )
}

fn loads(report: &VerifyReport, client: SnapshotClient) -> bool {
    report.clients.iter().find(|verdict| verdict.client == client).expect("a verdict").loads
}

#[test]
fn failures_have_a_place_an_expected_and_a_found_value_and_a_hint() {
    let corpus = corpus();
    assert!(corpus.len() >= 100, "{} altered archives", corpus.len());
    let mut failed = 0;
    for altered in &corpus {
        let dir = temp_dir();
        let result = verify_for_agave(&altered.write_to(dir.path()));
        failed += usize::from(!result.as_ref().is_ok_and(|report| report.ok));
        for failure in result.iter().flat_map(|report| report.failures.iter().chain(&report.warnings)) {
            let label = format!("{}: {failure:?}", altered.label);
            assert!(failure.expected.is_some(), "{label}");
            assert!(failure.found.is_some(), "{label}");
            assert!(!failure.hint.is_empty(), "{label}");
            let has_place = failure.place.offset_bytes.is_some() || failure.place.entry.is_some();
            let is_of_whole_archive =
                matches!(failure.check, Check::Name | Check::State) || failure.rule == Rule::Index;
            assert!(has_place || is_of_whole_archive, "{label}");
        }
    }
    assert!(failed > 50, "{failed} of {}", corpus.len());
}

/// Verifies the altered archive of this name. Returns the verdict for Firedancer, and all failures.
fn verdict_for_firedancer(corpus: &[Altered], label: &str) -> (ClientVerdict, String) {
    let altered = corpus.iter().find(|altered| altered.label == label).unwrap_or_else(|| panic!("no {label}"));
    let dir = temp_dir();
    let report = verify_for_agave(&altered.write_to(dir.path())).expect("verified");
    let verdict = report.clients.iter().find(|verdict| verdict.client == SnapshotClient::Firedancer);
    (verdict.expect("a verdict").clone(), describe(&report))
}

#[test]
fn verdicts_agree_with_firedancer() {
    let corpus = corpus();
    for (label, loads) in FIREDANCER_VERDICTS {
        let (verdict, failures) = verdict_for_firedancer(&corpus, label);
        assert_eq!(verdict.loads, *loads, "{label}: {failures}");
        // The verdict on an archive that Agave refuses has a note.
        let is_refused_by_agave = ["storage: ", "pair: ", "records: "].iter().any(|prefix| label.starts_with(prefix));
        assert_eq!(verdict.note.is_some(), is_refused_by_agave, "{label}: {:?}", verdict.note);
    }
}

#[test]
fn verify_is_stricter_than_firedancer_on_purpose() {
    let corpus = corpus();
    for (label, reason) in STRICTER_THAN_FIREDANCER {
        let (verdict, _) = verdict_for_firedancer(&corpus, label);
        assert!(!verdict.loads, "{label}");
        assert!(
            verdict.refusal_reason.is_some_and(|because| because.contains(reason)),
            "{label}: {:?}",
            verdict.refusal_reason
        );
    }
}

#[test]
fn verify_is_looser_than_firedancer_where_no_writer_breaks_a_demand() {
    let corpus: Vec<Altered> = corpus().into_iter().chain(altered_fields()).collect();
    for (label, reason) in LOOSER_THAN_FIREDANCER {
        let (verdict, failures) = verdict_for_firedancer(&corpus, label);
        assert!(verdict.loads, "{label}, {reason}: {:?}, {failures}", verdict.refusal_reason);
    }
}

/// Numbers of archives that Agave accepted and refused.
#[derive(Default)]
struct AnswerCounts {
    accepted: usize,
    refused: usize,
}

impl AnswerCounts {
    fn add(&mut self, is_accepted: bool) {
        if is_accepted { self.accepted += 1 } else { self.refused += 1 }
    }
}

impl Display for AnswerCounts {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "Agave accepts {}, refuses {}", self.accepted, self.refused)
    }
}

#[test]
#[ignore = "asks Agave itself: AGAVE_ORACLE names programs built on its crates"]
fn verdicts_agree_with_agave() {
    let corpus = corpus();
    let oracles = Oracle::required();
    let mut disagreements = Vec::new();
    let mut counts = AnswerCounts::default();
    for altered in &corpus {
        let dir = temp_dir();
        let paths = altered.write_to(dir.path());
        let result = verify_for_agave(&paths);
        for oracle in &oracles {
            let (ok, why) = match &result {
                Ok(report) => (loads(report, oracle.client), describe(report)),
                Err(error) => (false, error.to_string()),
            };
            let answer = oracle.try_load(&paths.full, paths.incremental.as_deref(), &agave_dir());
            counts.add(answer.is_ok());
            let is_stricter = !ok && answer.is_ok() && STRICTER.iter().any(|(label, _)| altered.label == *label);
            if ok != answer.is_ok() && !is_stricter {
                disagreements.push(format!("{}: loads: {ok} ({why}); {}: {answer:?}", altered.label, oracle.client));
            }
        }
    }
    eprintln!("{} altered archives: {counts}", corpus.len());
    assert!(disagreements.is_empty(), "{} disagreements:\n{}", disagreements.len(), disagreements.join("\n"));
}

/// The fields are altered in every way of their kind. Each version of Agave reaches the same verdict as
/// `verify`, with the exceptions of [`find_disagreements`].
#[test]
#[ignore = "asks Agave itself: AGAVE_ORACLE names programs built on its crates"]
fn verdicts_on_fields_agree_with_agave() {
    let archives = altered_fields();
    let oracles = Oracle::required();
    let mut disagreements = Vec::new();
    let mut counts = AnswerCounts::default();
    for altered in &archives {
        let dir = temp_dir();
        let chain = agave_dir();
        disagreements.extend(find_disagreements(altered, &chain, dir.path(), &oracles, &mut counts));
    }
    eprintln!("{} altered fields: {counts}", archives.len());
    assert!(disagreements.is_empty(), "{} disagreements:\n{}", disagreements.len(), disagreements.join("\n"));
}

/// One to three random fields of archives of real chains are altered. Each version of Agave reaches the same verdict as
/// `verify`, with the exceptions of [`find_disagreements`]. `FIELDS_SEED` selects the fields, and `FIELDS_RUNS` sets the
/// number of archives.
#[test]
#[ignore = "asks Agave itself: AGAVE_ORACLE names programs built on its crates"]
fn verdicts_on_random_fields_agree_with_agave() {
    let number = |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().expect("a number"));
    let seed = number("FIELDS_SEED", 1);
    let runs = number("FIELDS_RUNS", 20);
    let oracles = Oracle::required();
    let mut random = RandomFields::new(seed);
    let mut counts = AnswerCounts::default();
    let mut disagreements = Vec::new();
    for run in 0..runs {
        let (altered, chain) = random.next_archive();
        let dir = temp_dir();
        let new_disagreements = find_disagreements(&altered, &chain, dir.path(), &oracles, &mut counts);
        new_disagreements.iter().for_each(|text| eprintln!("run {run}: {text}"));
        disagreements.extend(new_disagreements);
        if run % 10 == 9 {
            eprintln!("{} archives: {counts}; {} disagreements", run + 1, disagreements.len());
        }
    }
    assert!(disagreements.is_empty(), "{} disagreements:\n{}", disagreements.len(), disagreements.join("\n"));
}

/// Returns the differences between the verdicts of `verify` and of the versions of Agave. Exceptions are alterations of
/// fields of `OF_GENESIS` and `UNCHECKED` that `verify` accepts.
fn find_disagreements(
    altered: &Altered,
    chain: &Path,
    dir: &Path,
    oracles: &[Oracle],
    counts: &mut AnswerCounts,
) -> Vec<String> {
    let paths = altered.write_to(dir);
    let report = verify_for_agave(&paths).expect("verified");
    let mut disagreements = Vec::new();
    for oracle in oracles {
        let ok = loads(&report, oracle.client);
        let answer = oracle.try_load(&paths.full, paths.incremental.as_deref(), chain);
        counts.add(answer.is_ok());
        let is_looser = OF_GENESIS.iter().chain(&UNCHECKED).any(|name| altered.label.contains(name));
        if ok != answer.is_ok() && !(is_looser && ok) {
            let why = describe(&report);
            disagreements.push(format!("{}: loads: {ok} ({why}); {}: {answer:?}", altered.label, oracle.client));
        }
    }
    disagreements
}

/// If Agave refuses a bank file or a status cache with one flipped bit, `verify` does not say that it
/// loads. The test tries every fourth byte of the bank's fields and every 61st byte of the rest. It
/// leaves out fields that Agave compares with `genesis.bin`, and fields that `verify` does not check.
#[test]
#[ignore = "asks Agave itself: AGAVE_ORACLE names programs built on its crates"]
fn verdicts_on_flipped_bits_agree_with_agave() {
    let oracles = Oracle::required();
    let tar = Tar::read(FULL_26);
    let mut disagreements = Vec::new();
    let mut refused = 0;
    for (document, is_entry) in [("bank file", is_bank_file as fn(&str) -> bool), ("status cache", is_status_cache)] {
        let content = tar.members[tar.position(is_entry)].content.clone();
        let mut fields = 0..0;
        let mut left_out = Vec::new();
        if document == "bank file" {
            let bank = find_bank_field_ranges(&content);
            fields = bank.fields;
            left_out.extend(bank.of_genesis);
            let all = field_places(&content, BANK_FILE, ListItems::All).into_iter();
            left_out.extend(all.filter(|place| UNCHECKED.contains(&place.name.as_str())).map(|place| place.range));
        }
        let is_left_out = |offset: &usize| left_out.iter().any(|range| range.contains(offset));
        let is_tried = |offset: &usize| {
            offset.is_multiple_of(if fields.contains(offset) { 4 } else { 61 }) && !is_left_out(offset)
        };
        for offset in (0..content.len()).filter(is_tried) {
            let mut content = content.clone();
            content[offset] ^= 1 << (offset % 7);
            let mut tar = tar.clone();
            tar.member(is_entry).set_content(content);
            let dir = temp_dir();
            let path = write_file(dir.path(), FULL_26, &compress(&tar.write()));
            let report = verify(&path, None, &SnapshotClient::AGAVE);
            for oracle in &oracles {
                let answer = oracle.try_load(&path, None, &agave_dir());
                refused += usize::from(answer.is_err());
                if loads(&report, oracle.client) && answer.is_err() {
                    disagreements.push(format!("byte {offset} of the {document}: {}: {answer:?}", oracle.client));
                }
            }
        }
    }
    assert!(refused > 0, "Agave refused nothing");
    assert!(disagreements.is_empty(), "{}", disagreements.join("\n"));
}
