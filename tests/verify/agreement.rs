//! `verify --for agave` says what Agave says, of every altered archive. Needs Agave's own loader, whose path
//! AGAVE_ORACLE names: `$AGAVE_ORACLE load --full A [--incremental B] --genesis DIR` exits with 0 when Agave accepts.

use {
    crate::{altered::corpus, fixtures::*},
    slotpress::rules::{
        clients::{Client, Rule},
        findings::Check,
    },
    std::process::Command,
};

/// Where verifying is stricter than Agave 4.2 on purpose, with the reason.
const STRICTER: &[(&str, &str)] = &[(
    "entry: bank files of two slots",
    "Agave takes the highest slot that it unpacked; another reader may take the first",
)];

#[test]
fn verdicts_agree_with_agave() {
    let corpus = corpus();
    assert!(corpus.len() >= 100, "{} altered archives", corpus.len());
    let oracle = std::env::var_os("AGAVE_ORACLE");
    if oracle.is_none() {
        eprintln!("AGAVE_ORACLE is not set: verifying runs, but is not compared with Agave's verdict");
    }
    let mut disagreements = Vec::new();
    let mut counts = [0, 0];
    for altered in &corpus {
        let dir = tempfile::tempdir().expect("a directory");
        let full = put(dir.path(), &altered.full.0, &altered.full.1);
        let incremental = altered.incremental.as_ref().map(|(name, bytes)| put(dir.path(), name, bytes));
        let options = options(&[Client::Agave]);
        let named = slotpress::verify::NamedArchive::of_path;
        let ours = slotpress::verify::verify_archives(
            &named(&full),
            incremental.as_deref().map(named).as_ref(),
            &options,
            &slotpress::progress::NoProgress,
        );
        for failure in ours.iter().flat_map(|report| report.failures.iter().chain(&report.warnings)) {
            let is_placed = failure.place.offset_bytes.is_some() || failure.place.entry.is_some();
            let is_whole = matches!(failure.check, Check::Name | Check::State) || failure.rule == Rule::Index;
            let says_what = failure.expected.is_some() && failure.found.is_some() && !failure.hint.is_empty();
            assert!(says_what && (is_placed || is_whole), "{}: {failure:?}", altered.what);
        }
        let (ok, why) = match &ours {
            Ok(report) => (report.ok, shown(report)),
            Err(error) => (false, error.to_string()),
        };
        let Some(oracle) = &oracle else { continue };
        let mut command = Command::new(oracle);
        command.arg("load").arg("--full").arg(&full).arg("--genesis").arg(crate::fixtures::dir());
        if let Some(incremental) = &incremental {
            command.arg("--incremental").arg(incremental);
        }
        let output = command.output().expect("the oracle runs");
        let accepts = output.status.success();
        counts[usize::from(accepts)] += 1;
        let is_known = !ok && accepts && STRICTER.iter().any(|(what, _)| altered.what == *what);
        if ok != accepts && !is_known {
            let words = String::from_utf8_lossy(&output.stdout).lines().last().unwrap_or_default().to_string();
            disagreements.push(format!("{}: we say {ok} ({why}); Agave {accepts}: {words}", altered.what));
        }
    }
    eprintln!("{} altered archives: Agave accepts {}, refuses {}", corpus.len(), counts[1], counts[0]);
    assert!(disagreements.is_empty(), "{} disagreements:\n{}", disagreements.len(), disagreements.join("\n"));
}
