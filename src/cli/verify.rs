//! Runs `slotpress verify` on an archive, a pair, a ledger or a catalog, and prints its report.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use clap::Args;
use serde_json::json;
use slotpress::catalog::{Catalog, ListedArchive};
use slotpress::types::ArchiveRoot;
use slotpress::verify::{
    ArchiveVerdict, CatalogVerdict, Check, CheckMode, Completeness, Failure, SnapshotClient, VerifyOptions,
    VerifyReport, verify, verify_catalog,
};
use slotpress::{Error, Progress, Result, Snapshot};
use slotpress_base::EscapePath;
use slotpress_read::{client_names, merge_versions};

use super::arguments::{CheckArgs, ResourceArgs};
use super::memory::{self, DECODING_WORKER_BYTES};
use super::network::{StateArgs, list_inputs, open_archive, path_with_credentials, print_transfers};
use super::ui::Ui;
use super::values::Choice;
use super::{render, values};

/// Verify an archive, a pair of archives, a ledger, a directory or a server
///
/// A pair is a full archive and an incremental one. In a directory or on a server, every archive is verified.
/// Recomputes capitalization and lattice hash over all accounts, and lists what is wrong, and where. Nothing is
/// unpacked. An archive cannot prove that its state is the cluster's: use --expect-hash with the hash from a
/// node that you trust.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Verify only what a node would choose from a directory, a server, a mirror, a store, or more
    /// than two archives
    #[arg(long)]
    newest: bool,
    /// The clients that must load it; a broken rule that all of them tolerate is only a warning
    /// [default: every broken rule is a failure, except differences between client versions]
    #[arg(long = "for", value_delimiter = ',', value_name = "CLIENTS", value_parser = values::choice_parser(CLIENTS))]
    clients: Vec<&'static [SnapshotClient]>,
    /// Check only frames, entries, name and bank file
    ///
    /// In an archive with an index, the accounts are not even decompressed.
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    check: CheckArgs,
    /// Expected root, as `archive` and `inspect` print it: the hash of every frame is checked, even
    /// with --quick. Give two roots for a full and an incremental archive
    #[arg(long, value_name = "ROOT", value_delimiter = ',')]
    expect_root: Vec<ArchiveRoot>,
    #[command(flatten)]
    resources: ResourceArgs,
    /// For an unpacked incremental archive: the slot of its full archive
    #[arg(long, value_parser = values::parse_slot, value_name = "SLOT", help_heading = "Ledger")]
    base_slot: Option<u64>,
    #[command(flatten)]
    state: StateArgs,
}

const CLIENTS: &[Choice<&[SnapshotClient]>] = &[
    Choice("agave", &SnapshotClient::AGAVE, "All of Agave 4.2 to 4.5"),
    Choice("agave-4.2", &[SnapshotClient::Agave42], "Agave 4.2"),
    Choice("agave-4.3", &[SnapshotClient::Agave43], "Agave 4.3"),
    Choice("agave-4.4", &[SnapshotClient::Agave44], "Agave 4.4"),
    Choice("agave-4.5", &[SnapshotClient::Agave45], "Agave 4.5"),
    Choice("firedancer", &[SnapshotClient::Firedancer], "The newest Firedancer"),
    Choice("sig", &SnapshotClient::JUDGED_ON_REQUEST, "Syndica's sig, as of July 2026"),
];

pub fn run(args: &VerifyArgs, ui: &Ui) -> Result<()> {
    let resources = &args.resources;
    let memory_bytes = memory::requested_memory_or_half_of_free(resources.memory);
    // This is a set because `--for` may name a client twice.
    let clients: BTreeSet<SnapshotClient> = args.clients.iter().copied().flatten().copied().collect();
    let mut check = args.check.options(Some(memory_bytes));
    if args.quick {
        check.mode = CheckMode::Quick;
    }
    let reads_twice = check.mode == CheckMode::State;
    let options = VerifyOptions::default()
        .clients(clients.into_iter().collect::<Vec<_>>())
        .check(check)
        .threads(resources.threads(DECODING_WORKER_BYTES, memory_bytes, ui)?)
        .expect_roots(args.expect_root.clone());
    let paths = &args.state.inputs;
    if !args.newest
        && args.state.slot.is_none()
        && let Some(catalog) = list_inputs(paths, Some(&args.state.network), ui)?
    {
        let place = match paths.as_slice() {
            [place] => Some(place.as_path()),
            _ => None,
        };
        return verify_all(&catalog, place, &options, args, ui);
    }
    let mut snapshot = args.state.open(reads_twice, ui)?;
    if let Snapshot::Ledger { base_slot, .. } = &mut snapshot {
        *base_slot = args.base_slot;
    } else if args.base_slot.is_some() {
        return Err(Error::usage("--base-slot is for an unpacked archive: an archive's name has the base slot"));
    }
    let report = verify(&snapshot, &options, ui)?;
    print_report(&report, ui);
    print_transfers(&snapshot, ui);
    require_valid(&report)
}

fn require_valid(report: &VerifyReport) -> Result<()> {
    if report.ok {
        return Ok(());
    }
    let path = report.paths.last().map_or(String::new(), |path| path.escaped());
    let mut failures = values::count_of(report.failures.len() as u64, "failure");
    if report.unlisted_count > 0 {
        failures += " and more";
    }
    Err(Error::damaged(format!("{path} is not valid: {failures}")))
}

fn print_report(report: &VerifyReport, ui: &Ui) {
    ui.print_object("verify", report);
    for path in &report.paths {
        ui.print_quiet(&path.escaped());
        ui.say(&path.escaped());
    }
    for line in report_lines(report) {
        // With `-q`, only the report of an invalid archive is printed.
        ui.print_quiet(if report.ok { "" } else { &line });
        ui.say(&line);
    }
}

fn report_lines(report: &VerifyReport) -> Vec<String> {
    let fields = serde_json::to_value(report).unwrap_or_default();
    let fill = |template: &str| render::fill(template, &fields).unwrap_or_default();
    let mut lines = vec![fill("  slot {slot}[ on {base_slot}], hash {hash}")];
    for result in &report.checks {
        let name = result.check.name();
        let text = result.skip_reason.clone().unwrap_or_else(|| fill(count_template(result.check)));
        let word = match (&result.skip_reason, result.ok) {
            (_, false) => "FAILED",
            (Some(_), true) => "skipped",
            (None, true) => "ok",
        };
        lines.push(format!("  {name:8} {word:8} {text}").trim_end().to_string());
    }
    lines.extend(client_lines(report));
    lines.push(fill(
        "  elapsed  {elapsed_seconds} at {tar_bytes/elapsed_seconds}, CPU load {cpu_seconds%elapsed_seconds}",
    ));
    lines.extend(failure_lines("failure", &report.failures, 0, report));
    let unlisted = report.unlisted_count;
    lines.extend(failure_lines("warning", &report.warnings, unlisted, report));
    if report.ok {
        match report.expected_hash {
            _ if !report.has_completed(Check::State) => {}
            Some(_) => lines.push(MATCHES_EXPECTED_HASH.to_string()),
            None => lines.push(MATCHES_BANK_FILE.to_string()),
        }
        lines.push(verdict_line(report));
    }
    lines
}

// These lines say what a passed check of the state proves.
const MATCHES_EXPECTED_HASH: &str = "The accounts match the hash of --expect-hash.";
const MATCHES_BANK_FILE: &str = "The accounts match the bank file. No archive can prove that this is the cluster's state: use \
    --expect-hash with the hash that a node you trust advertises.";

fn count_template(check: Check) -> &'static str {
    match check {
        Check::Frames => "[{frames}]",
        Check::Entries => "[{storages}]",
        Check::Records => "[{records}][, {tombstones}][, {superseded} superseded]",
        Check::State => "{accounts}, capitalization {capitalization_lamports}",
        _ => "",
    }
}

/// Returns a line for each client's verdict. Agave versions with the same verdict share a line.
fn client_lines(report: &VerifyReport) -> Vec<String> {
    let mut lines = Vec::new();
    if !report.asked.is_empty() {
        let asked = client_names(&report.asked).join(", ");
        lines.push(format!("  asked for    {asked}"));
    }
    let reasons_and_notes =
        report.clients.iter().map(|verdict| (verdict.client, (verdict.refusal_reason, verdict.note)));
    let verdicts = merge_versions(reasons_and_notes.collect());
    let widths = verdicts.iter().map(|(name, _)| name.len() + 1);
    let width = widths.max().unwrap_or_default();
    let loads = if report.is_ledger() { "boots from it" } else { "loads it" };
    for (name, (because, note)) in verdicts {
        let name = format!("{name}:");
        let text = match (because, note) {
            (Some(why), _) => format!("refuses it: {why}"),
            (None, Some(note)) => format!("{loads}, as far as was checked, but {note}"),
            (None, None) => format!("{loads}, as far as was checked"),
        };
        lines.push(format!("  {name:width$} {text}"));
    }
    lines
}

/// Returns the last line of a report without failures: whether all checks passed, or which were not made.
fn verdict_line(report: &VerifyReport) -> String {
    let mut unknown = Vec::new();
    for result in report.incomplete_checks() {
        if let Some(why) = &result.skip_reason {
            unknown.push(format!("{} ({why})", result.check.name()));
        }
    }
    let complete = match report.complete {
        Some(Completeness::ByState) => "the state hash shows that no storage is missing",
        Some(Completeness::ByIndex) => "the index shows that no storage is missing",
        _ => "a missing storage would not be noticed",
    };
    match unknown.join("; ").as_str() {
        "" => format!("GOOD: all checks passed; {complete}"),
        unknown => format!("no failure was found; {complete}; not checked: {unknown}"),
    }
}

const SHOWN_PER_RULE_MAX: u64 = 3;

/// Returns the lines about the first failures of each rule, or about the first warnings, and how many more there
/// are. The report does not list `unlisted_count` of these.
fn failure_lines(word: &str, failures: &[Failure], unlisted_count: u64, report: &VerifyReport) -> Vec<String> {
    let mut counts = BTreeMap::new();
    let mut hints = BTreeSet::new();
    let mut lines = Vec::new();
    let mut omitted_count = unlisted_count;
    for failure in failures {
        let count = counts.entry(failure.rule).or_insert(0u64);
        *count += 1;
        hints.insert(&failure.hint);
        if *count > SHOWN_PER_RULE_MAX {
            omitted_count += 1;
            continue;
        }
        let check = failure.check.name();
        lines.push(format!("{word}: {check}: {}", failure.message));
        let offset = match &failure.place {
            place if place.entry.is_some() => "offset: {offset_bytes} of the entry",
            place if place.frame.is_some() => "offset: {offset_bytes} of the file",
            _ => "offset: {offset_bytes} of the tar stream",
        };
        let mut rows = vec!["frame: {frame}", "entry: {entry}", offset];
        rows.extend(["account: {account}", "expected: {expected}", "found: {found}"]);
        if report.paths.len() > 1 {
            rows.insert(0, "file: {path}");
        }
        let fields = serde_json::to_value(failure).unwrap_or_default();
        lines.extend(render::fill_rows(&fields, &rows));
    }
    lines.extend(hints.iter().map(|hint| format!("  what to do: {hint}")));
    if omitted_count > 0 {
        let count = values::show_count(omitted_count);
        lines.push(format!("and {count} more (`--json` lists up to 50 for each rule)"));
    }
    lines
}

/// Verifies each archive. An incremental one is verified together with its full archive, if that is good.
/// `place` is where the archives are; `None` if the user named them one by one.
fn verify_all(
    catalog: &Catalog,
    place: Option<&Path>,
    options: &VerifyOptions,
    args: &VerifyArgs,
    ui: &Ui,
) -> Result<()> {
    let expected = &args.check.expected;
    if expected.expect_hash.is_some() || expected.expect_slot.is_some() || !args.expect_root.is_empty() {
        let message = "--expect-hash, --expect-slot and --expect-root are for one state, but every archive is verified";
        return Err(Error::usage(message).with_hint("add --newest to verify only what a node would choose"));
    }
    let open = |archive: &ListedArchive, mode| {
        let path = place.map_or_else(|| archive.path(), |place| path_with_credentials(archive, place));
        open_archive(&path, mode == CheckMode::State, &args.state.network, ui)
    };
    let verdict = verify_catalog(catalog, options, ui, open, |verdict| print_verdict(verdict, ui))?;
    ui.print_object("verified", &verdict);
    ui.say(&summary_line(&verdict));
    verdict.require_ok(place.map_or("the list".to_string(), |place| place.escaped()))
}

fn print_verdict(verdict: &ArchiveVerdict<'_>, ui: &Ui) {
    let file = verdict.archive.path();
    let path = file.escaped();
    let (failure, why_not_checked) = match &verdict.report {
        Ok(report) => {
            ui.print_object("verify", report);
            (first_failure(report), verdict.state_skip_reason())
        }
        Err(error) => {
            let text = error.to_string();
            let prefix = format!("{path}: ");
            let reason = text.strip_prefix(&prefix).unwrap_or(&text);
            (Some(reason.to_string()), Some(reason.to_string()))
        }
    };
    if let Some(reason) = &why_not_checked {
        let fields = json!({ "file": file.to_string_lossy(), "reason": reason, "damaged": verdict.is_damaged() });
        ui.print_object("archive_not_checked", &fields);
    }
    if let Some(failure) = failure {
        if !verdict.is_damaged() {
            return ui.warn(&format!("{path} was not verified: {failure}"));
        }
        let line = format!("FAILED  {path}: {failure}");
        ui.print_quiet(&line);
        ui.say(&line);
    } else if let Some(reason) = why_not_checked {
        ui.say(&format!("partial {path}: {reason}"));
    } else {
        ui.print_quiet(&path);
        let has_skipped_checks = |report: &VerifyReport| report.incomplete_checks().next().is_some();
        let word = if verdict.report.as_ref().is_ok_and(has_skipped_checks) { "partial" } else { "ok" };
        ui.say(&format!("{word:8}{path}"));
    }
}

fn first_failure(report: &VerifyReport) -> Option<String> {
    let first = report.failures.first()?;
    let text = format!("{}: {}", first.check.name(), first.message);
    match report.failures.len() as u64 - 1 + report.unlisted_count {
        0 => Some(text),
        more => Some(format!("{text}, and {more} more")),
    }
}

/// Returns the last line: how many archives are good, and which checks were not made.
fn summary_line(verdict: &CatalogVerdict) -> String {
    let CatalogVerdict { archives, good, partly_checked, damaged, incomplete_checks, .. } = verdict;
    let mut text = format!("{}: {good} good", values::count_of(*archives, "archive"));
    if *partly_checked > 0 {
        let names = incomplete_checks.iter().map(|check| check.name());
        let names = Vec::from_iter(names).join(", ");
        text += &format!("; {partly_checked} without a failure, but not all checks were made: {names}");
    }
    let unverified = archives - good - partly_checked - damaged;
    for (count, word) in [(*damaged, "damaged"), (unverified, "not verified")] {
        if count > 0 {
            text += &format!("; {count} {word}");
        }
    }
    text
}
