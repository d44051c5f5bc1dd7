//! Of every altered archive, `verify` says what is wrong; and of each version of Agave, what that says itself.

use {
    super::{
        altered::{Altered, corpus},
        fixtures::*,
    },
    crate::common::oracle::Oracle,
    slotpress_base::progress::NoProgress,
    slotpress_read::{
        rules::{
            clients::{Client, Rule},
            findings::Check,
        },
        verify::{NamedArchive, report::VerifyReport, verify_archives},
    },
    std::path::{Path, PathBuf},
};

/// Where verifying is stricter than some version of Agave on purpose, with the reason.
const STRICTER: &[(&str, &str)] = &[
    (
        "entry: bank files of two slots",
        "Agave takes the highest slot that it unpacked; another reader may take the first",
    ),
    (
        "records: executable 2",
        "Agave 4.4 and later take any value for a flag, 4.2 refuses it, and no validator writes it",
    ),
];

/// What we say of an altered archive, alone in a directory.
fn ours(altered: &Altered, dir: &Path) -> (PathBuf, Option<PathBuf>, slotpress::Result<VerifyReport>) {
    let full = put(dir, &altered.full.0, &altered.full.1);
    let incremental = altered.incremental.as_ref().map(|(name, bytes)| put(dir, name, bytes));
    let named = NamedArchive::of_path;
    let options = options(&Client::AGAVE);
    let ours = verify_archives(&named(&full), incremental.as_deref().map(named).as_ref(), &options, &NoProgress);
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

#[test]
#[ignore = "asks Agave itself: AGAVE_ORACLE names programs built on its crates"]
fn verdicts_agree_with_agave() {
    let (corpus, oracles) = (corpus(), Oracle::required());
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
            let answer = oracle.accepts(&full, incremental.as_deref(), &super::fixtures::dir());
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
