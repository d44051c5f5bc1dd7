//! Reports on altered archives, word for word: every failure with its place, each client's verdict,
//! and the messages of `restore`; and the table of rules. A change here changes what an operator
//! reads.

use std::fmt::Write;
use std::path::Path;

use slotpress::accounts::{Account, AccountVisitor, visit_accounts};
use slotpress::restore::{RestoreOptions, RestoreSource, RestoreTarget, restore};
use slotpress::verify::{CheckMode, CheckOptions, VerifyOptions};
use slotpress::{ErrorKind, Snapshot};
use slotpress_base::NoProgress;
use slotpress_read::{Check, Failure, FailurePlace, NamedArchive, Rule, SnapshotClient, VerifyReport};

use crate::common::{run_json, text};
use crate::verify::altered::{Altered, corpus};
use crate::verify::fixtures::*;

/// Returns the report without the place and cause of a damaged frame, which depend on the
/// compressor.
fn stable() -> impl Iterator<Item = Altered> {
    let depends = |what: &str| what.starts_with("a flipped bit") || what.starts_with("cut off after");
    corpus().into_iter().filter(move |altered| !depends(&altered.what))
}

/// Writes the files of an altered archive into a directory.
fn put_all(altered: &Altered, dir: &Path) -> Vec<std::path::PathBuf> {
    let files = [Some(&altered.full), altered.incremental.as_ref()];
    files.into_iter().flatten().map(|(name, bytes)| put(dir, name, bytes)).collect()
}

fn in_words(place: &FailurePlace) -> String {
    let file = |path: &std::path::PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let parts = [
        place
            .path
            .as_ref()
            .and_then(file)
            .filter(|name| name.starts_with("incremental"))
            .map(|_| "incremental".to_string()),
        place.frame.map(|frame| format!("frame {frame}")),
        place.entry.clone(),
        place.offset_bytes.map(|offset_bytes| format!("at {offset_bytes}")),
        place.account.map(|account| account.to_string()),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn line(failure: &Failure) -> String {
    let of = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_string());
    let check = failure.check.name();
    let place = in_words(&failure.place);
    format!("  {check} {:?} [{place}] expected {}; found {}\n", failure.rule, of(&failure.expected), of(&failure.found))
}

fn told(report: &VerifyReport) -> String {
    let mut text: String = report.failures.iter().map(line).collect();
    for warning in &report.warnings {
        text += &format!("  warning:{}", line(warning));
    }
    for check in report.checks.iter().filter_map(|check| Some((check.name.name(), check.skipped.as_ref()?))) {
        writeln!(text, "  {} skipped: {}", check.0, check.1).expect("a string");
    }
    let mut said: Vec<(String, Vec<String>)> = Vec::new();
    for verdict in &report.clients {
        let because = verdict.because.map(|why| format!("no: {why}"));
        let Some(words) = because.or(verdict.note.map(|note| format!("yes, but {note}"))) else { continue };
        match said.iter_mut().find(|(known, _)| *known == words) {
            Some((_, clients)) => clients.push(verdict.client.to_string()),
            None => said.push((words, vec![verdict.client.to_string()])),
        }
    }
    for (words, clients) in said {
        writeln!(text, "  {}: {words}", clients.join(", ")).expect("a string");
    }
    let counts = &report.counts;
    let sums = [counts.frames, counts.storages, counts.records, counts.accounts, counts.tombstones, counts.superseded];
    writeln!(text, "  {:?} {sums:?} unlisted {}", report.complete, report.unlisted_count).expect("a string");
    text
}

#[test]
fn of_altered_archives() {
    let mut text = String::new();
    for altered in stable() {
        let dir = tempfile::tempdir().expect("a directory");
        let files = put_all(&altered, dir.path());
        let incremental = files.get(1).map(NamedArchive::from_path);
        let named = NamedArchive::from_path(&files[0]);
        let report = slotpress_read::verify(
            Snapshot::Archives { full: &named, incremental: incremental.as_ref() },
            &options(&[]),
            &NoProgress,
        );
        let told = report.map_or_else(|error| format!("  {:?}: {error}\n", error.kind()), |report| told(&report));
        text += &format!("{}\n{told}", altered.what)
            .replace(&format!("{}/", dir.path().display()), "")
            .replace(FULL, "FULL")
            .replace(INCREMENTAL, "INCREMENTAL");
    }
    insta::assert_snapshot!(text);
}

#[test]
fn of_restoring_them() {
    let mut text = String::new();
    for altered in stable() {
        let dir = tempfile::tempdir().expect("a directory");
        let files = put_all(&altered, dir.path());
        let target = RestoreTarget::new(dir.path().join("ledger")).threads(2);
        let mut options = RestoreOptions::new(&files[0], target);
        options.incremental = files.get(1).map(RestoreSource::from);
        let told = match restore(&options, &NoProgress) {
            Ok(report) => format!("restored: {:?}", report.assurance),
            Err(error) => format!("{:?}: {error}", error.kind()),
        };
        text += &format!("{}\n  {told}\n", altered.what)
            .replace(&format!("{}/", dir.path().display()), "")
            .replace(FULL, "FULL")
            .replace(INCREMENTAL, "INCREMENTAL");
    }
    insta::assert_snapshot!(text);
}

/// Counts accounts.
#[derive(Default)]
struct Counting(u64);

impl AccountVisitor for Counting {
    type Error = slotpress::Error;

    fn account(&mut self, _: &Account<'_>) -> slotpress::Result<()> {
        self.0 += 1;
        Ok(())
    }
}

/// A visit with the state check fails at its end if the state is not the bank file's.
#[test]
fn a_visit_of_a_wrong_state_fails_at_its_end() {
    let wrong = ["bank file: another capitalization", "records: a bit of lamports", "stakes: a delegation's voter"];
    let corpus = corpus();
    for what in wrong.into_iter().chain(["nothing"]) {
        let altered = corpus.iter().find(|altered| altered.what == what).unwrap_or_else(|| panic!("no {what}"));
        let dir = tempfile::tempdir().expect("a directory");
        let named = NamedArchive::from_path(&put_all(altered, dir.path())[0]);
        let visit = |mode| {
            let options = VerifyOptions::default().check(CheckOptions::default().mode(mode)).threads(2);
            visit_accounts(Snapshot::archive(&named), &options, &NoProgress, Counting::default)
        };
        let (visitors, report) = visit(CheckMode::Frames).expect("all records can be read");
        assert_eq!(visitors.iter().map(|it| it.0).sum::<u64>(), report.counts.accounts);
        match visit(CheckMode::State) {
            Ok(_) => assert_eq!(what, "nothing"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Damaged, "{what}: {error}");
                let failure = Failure::from_error(&error).expect("the broken rule as data");
                assert_eq!((failure.check, failure.to_string()), (Check::State, error.to_string()), "{what}");
            }
        }
    }
}

#[test]
fn inspect_says_why_a_client_does_not_read_an_archive() {
    let altered = corpus().into_iter().find(|altered| altered.what == "a window of 2^26").expect("it");
    let dir = tempfile::tempdir().expect("a directory");
    let (code, found, _) = run_json(&["inspect", text(&put_all(&altered, dir.path())[0])], None);
    let clients = found["clients"].as_array().expect("clients");
    assert_eq!((code, clients.len()), (0, SnapshotClient::ALL.len()), "{found}");
    for client in clients {
        let why: &[&str] = if client["client"].as_str().is_some_and(|client| client.starts_with("firedancer")) {
            &["a frame needs a larger window than Firedancer gives"]
        } else {
            &[]
        };
        assert_eq!((&client["reads"], &client["refusals"]), (&why.is_empty().into(), &why.into()), "{client}");
    }
}

#[test]
fn the_book_of_rules() {
    let mut text = String::new();
    for rule in Rule::ALL {
        let kinds = [
            (rule.is_version_specific(), "of a version"),
            (rule.is_unsupported(), "unsupported"),
            (rule.is_only_packing(), "of packing"),
        ];
        let kinds: Vec<&str> = kinds.into_iter().filter(|(is, _)| *is).map(|(_, name)| name).collect();
        writeln!(text, "{rule:?} {kinds:?}: {}\n  expected {:?}\n  {}", rule.what(), rule.expected(), rule.remedy())
            .expect("a string");
        let clients = SnapshotClient::ALL.into_iter().chain(SnapshotClient::ON_REQUEST);
        let refusing = clients.filter(|client| !rule.is_tolerated_by(*client));
        let refusing: Vec<String> = refusing.map(|client| client.to_string()).collect();
        writeln!(text, "  refused by {}, from {}", refusing.join(", "), rule.source()).expect("a string");
        for client in SnapshotClient::ALL {
            if rule.why(client) != rule.what() {
                writeln!(text, "  {client} because {}", rule.why(client)).expect("a string");
            }
            if let Some(note) = rule.note(client) {
                writeln!(text, "  {client}, but {note}").expect("a string");
            }
        }
    }
    insta::assert_snapshot!(text);
}
