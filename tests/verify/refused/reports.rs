//! Snapshots of texts that operators read: the reports on altered archives, with every failure and its
//! place and each client's verdict; the messages of `restore`; and the table of rules.

use std::fmt::Write;
use std::path::Path;

use slotpress::accounts::{Account, AccountVisitor, visit_accounts};
use slotpress::restore::{RestoreOptions, TargetOptions, restore};
use slotpress::verify::{CheckMode, CheckOptions, VerifyOptions};
use slotpress::{ErrorKind, Snapshot};
use slotpress_base::NoProgress;
use slotpress_read::{Check, Failure, FailurePlace, LocalArchive, Rule, SnapshotClient, VerifyReport};

use crate::common::{run_to_first_line, temp_dir, text};
use crate::verify::altered::{Altered, corpus};
use crate::verify::fixtures::*;

/// Returns the altered archives whose reports do not depend on the compressor, which determines places
/// and causes of damaged frames.
fn archives_with_stable_reports() -> impl Iterator<Item = Altered> {
    let is_unstable = |label: &str| label.starts_with("a flipped bit") || label.starts_with("truncated after");
    corpus().into_iter().filter(move |altered| !is_unstable(&altered.label))
}

/// Replaces the names of directories and archives.
fn with_short_names(text: &str, dir: &Path) -> String {
    text.replace(&format!("{}/", dir.display()), "").replace(FULL_26, "FULL").replace(INCREMENTAL_26_40, "INCREMENTAL")
}

fn place_text(place: &FailurePlace) -> String {
    let file_name = place.path.as_ref().and_then(|path| path.file_name());
    let is_incremental = file_name.is_some_and(|name| name.to_string_lossy().starts_with("incremental"));
    let parts = [
        is_incremental.then(|| "incremental".to_string()),
        place.frame.map(|frame| format!("frame {frame}")),
        place.entry.clone(),
        place.offset_bytes.map(|offset_bytes| format!("at {offset_bytes}")),
        place.account.map(|account| account.to_string()),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn failure_line(failure: &Failure) -> String {
    let check = failure.check.name();
    let place = place_text(&failure.place);
    let [expected, found] = [&failure.expected, &failure.found].map(|text| text.as_deref().unwrap_or("-"));
    format!("  {check} {:?} [{place}] expected {expected}; found {found}\n", failure.rule)
}

fn report_text(report: &VerifyReport) -> String {
    let mut text: String = report.failures.iter().map(failure_line).collect();
    for warning in &report.warnings {
        text += &format!("  warning:{}", failure_line(warning));
    }
    for result in &report.checks {
        if let Some(reason) = &result.skip_reason {
            writeln!(text, "  {} skipped: {reason}", result.check.name()).expect("a string");
        }
    }
    let mut verdicts: Vec<(String, Vec<String>)> = Vec::new();
    for verdict in &report.clients {
        let because = verdict.refusal_reason.map(|why| format!("no: {why}"));
        let Some(words) = because.or(verdict.note.map(|note| format!("yes, but {note}"))) else { continue };
        match verdicts.iter_mut().find(|(known, _)| *known == words) {
            Some((_, clients)) => clients.push(verdict.client.to_string()),
            None => verdicts.push((words, vec![verdict.client.to_string()])),
        }
    }
    for (words, clients) in verdicts {
        writeln!(text, "  {}: {words}", clients.join(", ")).expect("a string");
    }
    let counts = &report.counts;
    let sums = [counts.frames, counts.storages, counts.records, counts.accounts, counts.tombstones, counts.superseded];
    writeln!(text, "  {:?} {sums:?} unlisted {}", report.complete, report.unlisted_count).expect("a string");
    text
}

#[test]
fn altered_archives_have_these_reports() {
    let mut text = String::new();
    for altered in archives_with_stable_reports() {
        let dir = temp_dir();
        let paths = altered.write_to(dir.path());
        let snapshot = Snapshot::from_archives(&paths.full, paths.incremental.as_ref());
        let result = slotpress_read::verify(&snapshot, &verify_options(&[]), &NoProgress);
        let report = match result {
            Ok(report) => report_text(&report),
            Err(error) => format!("  {:?}: {error}\n", error.kind()),
        };
        text += &with_short_names(&format!("{}\n{report}", altered.label), dir.path());
    }
    insta::assert_snapshot!(text);
}

#[test]
fn restores_of_altered_archives_have_these_results() {
    let mut text = String::new();
    for altered in archives_with_stable_reports() {
        let dir = temp_dir();
        let paths = altered.write_to(dir.path());
        let target = TargetOptions::new(dir.path().join("ledger")).threads(2);
        let mut options = RestoreOptions::new(&paths.full, target);
        options.incremental = paths.incremental.as_ref().map(LocalArchive::from);
        let result = match restore(&options, &NoProgress) {
            Ok(report) => format!("restored: {:?}", report.assurance),
            Err(error) => format!("{:?}: {error}", error.kind()),
        };
        text += &with_short_names(&format!("{}\n  {result}\n", altered.label), dir.path());
    }
    insta::assert_snapshot!(text);
}

#[derive(Default)]
struct AccountCounter(u64);

impl AccountVisitor for AccountCounter {
    type Error = slotpress::Error;

    fn account(&mut self, _: &Account<'_>) -> slotpress::Result<()> {
        self.0 += 1;
        Ok(())
    }
}

/// Without a check of the state, all its accounts are visited. With the check, the visit fails.
#[test]
fn a_visit_of_a_wrong_state_fails_if_the_state_is_checked() {
    let corpus = corpus();
    for label in [
        "nothing",
        "bank file: a different capitalization",
        "records: a bit of lamports",
        "stakes: a delegation's voter",
    ] {
        let altered = corpus.iter().find(|altered| altered.label == label).unwrap_or_else(|| panic!("no {label}"));
        let dir = temp_dir();
        let snapshot = Snapshot::archive(altered.write_to(dir.path()).full);
        let visit = |mode| {
            let options = VerifyOptions::default().check(CheckOptions::default().mode(mode)).threads(2);
            visit_accounts(&snapshot, &options, &NoProgress, AccountCounter::default)
        };
        let (counters, report) = visit(CheckMode::Frames).expect("all records can be read");
        assert_eq!(counters.iter().map(|counter| counter.0).sum::<u64>(), report.counts.accounts);
        match visit(CheckMode::State) {
            Ok(_) => assert_eq!(label, "nothing"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Damaged, "{label}: {error}");
                let failure = Failure::from_error(&error).expect("the broken rule as data");
                assert_eq!(failure.check, Check::State, "{label}");
                assert_eq!(failure.to_string(), error.to_string(), "{label}");
            }
        }
    }
}

#[test]
fn inspect_reports_why_a_client_does_not_read_an_archive() {
    let altered = corpus().into_iter().find(|altered| altered.label == "a window of 2^26").expect("an archive");
    let dir = temp_dir();
    let (code, report, _) = run_to_first_line(&["inspect", text(&altered.write_to(dir.path()).full)], None);
    assert_eq!(code, 0, "{report}");
    let clients = report["clients"].as_array().expect("clients");
    assert_eq!(clients.len(), SnapshotClient::JUDGED_BY_DEFAULT.len(), "{report}");
    for client in clients {
        let is_firedancer = client["client"].as_str().is_some_and(|name| name.starts_with("firedancer"));
        let refusals: &[&str] =
            if is_firedancer { &["a frame needs a larger window than Firedancer allows"] } else { &[] };
        assert_eq!(client["reads"], refusals.is_empty(), "{client}");
        assert_eq!(client["refusals"], serde_json::json!(refusals), "{client}");
    }
}

#[test]
fn rules_have_these_texts_and_clients() {
    let mut text = String::new();
    for rule in Rule::ALL {
        let kinds = [
            (rule.is_version_specific(), "of a version"),
            (rule.is_unsupported(), "unsupported"),
            (is_only_packing(*rule), "of packing"),
        ];
        let kinds: Vec<&str> = kinds.into_iter().filter(|(has_kind, _)| *has_kind).map(|(_, name)| name).collect();
        writeln!(
            text,
            "{rule:?} {kinds:?}: {}\n  expected {:?}\n  {}",
            rule.description(),
            rule.expected(),
            rule.remedy()
        )
        .expect("a string");
        let clients = SnapshotClient::JUDGED_BY_DEFAULT.into_iter().chain(SnapshotClient::JUDGED_ON_REQUEST);
        let refusing = clients.filter(|client| !rule.is_tolerated_by(*client));
        let refusing: Vec<String> = refusing.map(|client| client.to_string()).collect();
        writeln!(text, "  refused by {}, from {}", refusing.join(", "), rule.evidence()).expect("a string");
        for client in SnapshotClient::JUDGED_BY_DEFAULT {
            if rule.refusal_reason(client) != rule.description() {
                writeln!(text, "  {client} because {}", rule.refusal_reason(client)).expect("a string");
            }
            if let Some(note) = rule.note(client) {
                writeln!(text, "  {client}, but {note}").expect("a string");
            }
        }
    }
    insta::assert_snapshot!(text);
}
