//! Runs `slotpress verify` on an archive, a pair, a ledger or a catalog of archives, and prints its
//! report.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use clap::Args;
use slotpress::types::Root;
use slotpress::verify::{
    Check, CheckMode, CheckResult, Completeness, Failure, SnapshotClient, VerifyOptions, VerifyReport, verify,
};
use slotpress::{Error, Result, Snapshot};
use slotpress_base::text::ShowPath;
use slotpress_read::{lines_of, names_of};

use super::arguments::{CheckArgs, WorkArgs};
use super::network::{StateArgs, catalog_of};
use super::planned::{self, DECODING_WORKER_BYTES};
use super::ui::Ui;
use super::verify_all::verify_all;
use super::{list, render, values};

/// Verify an archive, a pair of archives, a ledger, a directory or a server
///
/// A pair is a full and an incremental archive. Of a directory or a server, verifies all archives.
/// Recomputes capitalization and lattice hash over all accounts, and lists everything that is
/// wrong, with its place. Nothing is unpacked. An archive cannot prove that its state is the
/// cluster's: use --expect-hash with the hash of a trusted node.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Of a directory, a server, a mirror or a store, and of more than two archives, verify only
    /// what a node would choose
    #[arg(long)]
    newest: bool,
    /// The clients that will load it; what they tolerate is a warning only [default: every
    /// deviation is a failure]
    ///
    /// agave stands for Agave 4.2 to 4.5.
    #[arg(long = "for", value_delimiter = ',', value_name = "CLIENTS", value_parser = values::choice(CLIENTS))]
    clients: Vec<&'static [SnapshotClient]>,
    /// Check frames, entries, name and bank file only
    ///
    /// With an index, accounts are not even decompressed.
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    pub(super) check: CheckArgs,
    /// Expected root, as `archive` and `inspect` print it: the hash of every frame is checked, also
    /// with --quick. Give two for a full and an incremental archive
    #[arg(long, value_name = "ROOT", value_delimiter = ',')]
    pub(super) expect_root: Vec<Root>,
    #[command(flatten)]
    work: WorkArgs,
    /// For an unpacked incremental archive: the slot of its full archive
    #[arg(long, value_parser = values::slot, value_name = "SLOT", help_heading = "Ledger")]
    base_slot: Option<u64>,
    #[command(flatten)]
    pub(super) state: StateArgs,
}

impl VerifyArgs {
    /// True if a check reads parts of an archive twice.
    pub(super) fn reads_twice(&self, mode: CheckMode) -> bool {
        !self.quick && mode == CheckMode::State
    }
}

const CLIENTS: &[(&str, &[SnapshotClient], &str)] = &[
    ("agave", &SnapshotClient::AGAVE, "Agave 4.2 to 4.5"),
    ("agave-4.2", &[SnapshotClient::Agave42], "Agave 4.2"),
    ("agave-4.3", &[SnapshotClient::Agave43], "Agave 4.3"),
    ("agave-4.4", &[SnapshotClient::Agave44], "Agave 4.4"),
    ("agave-4.5", &[SnapshotClient::Agave45], "Agave 4.5"),
    ("firedancer", &[SnapshotClient::Firedancer], "The newest Firedancer"),
    ("sig", &SnapshotClient::WHERE_ASKED, "Syndica's sig, as of July 2026"),
];

pub fn run(args: &VerifyArgs, ui: &Ui) -> Result<()> {
    let memory_bytes = planned::memory_or_half(args.work.memory);
    // A set, because `--for` may name a client twice.
    let clients: BTreeSet<SnapshotClient> = args.clients.iter().copied().flatten().copied().collect();
    let options = VerifyOptions::default()
        .clients(clients.into_iter().collect::<Vec<_>>())
        .is_quick(args.quick)
        .check(args.check.options(Some(memory_bytes)))
        .threads(args.work.workers.that_fit(|| Ok(DECODING_WORKER_BYTES), memory_bytes, ui)?)
        .expect_roots(args.expect_root.clone());
    let paths = &args.state.inputs;
    if !args.newest && args.state.slot.is_none() {
        let catalog_at = |place: &Path| list::catalog_at(place, &args.state.network, ui);
        if let Some(catalog) = catalog_of(paths, &catalog_at)? {
            let place = if let [place] = &paths[..] { Some(place.as_path()) } else { None };
            return verify_all(&catalog, place, &options, args, ui);
        }
    }
    let input = args.state.open(args.reads_twice(args.check.check), ui)?;
    let mut snapshot = input.snapshot();
    if let Snapshot::Ledger { base_slot, .. } = &mut snapshot {
        *base_slot = args.base_slot;
    } else if args.base_slot.is_some() {
        return Err(Error::usage("--base-slot is for an unpacked archive: an archive has it in its name"));
    }
    let report = verify(snapshot, &options, ui)?;
    show(&report, ui);
    input.show_transfers(ui);
    result_of(&report)
}

pub fn result_of(report: &VerifyReport) -> Result<()> {
    if report.ok {
        return Ok(());
    }
    let path = report.paths.last().map(|path| path.shown()).unwrap_or_default();
    let unlisted = if report.unlisted_count > 0 { " and more" } else { "" };
    let failures = values::count_of(report.failures.len() as u64, "failure");
    Err(Error::damaged(format!("{path} is not valid: {failures}{unlisted}")))
}

fn show(report: &VerifyReport, ui: &Ui) {
    ui.object("verify", report);
    for path in &report.paths {
        ui.part(&path.shown(), &(), &[]);
    }
    for line in lines(report) {
        // What is wrong is printed with `-q` too.
        ui.short(if report.ok { "" } else { &line });
        ui.say(&line);
    }
}

fn lines(report: &VerifyReport) -> Vec<String> {
    let fields = serde_json::to_value(report).unwrap_or_default();
    let filled = |text: &str| render::filled(text, &fields).unwrap_or_default();
    let mut lines = vec![filled("  slot {slot}[ on {base_slot}], hash {hash}")];
    for check in &report.checks {
        let (name, text) = (check.name.name(), check.skipped.clone().unwrap_or_else(|| filled(counts_of(check.name))));
        let word = match (&check.skipped, check.ok) {
            (_, false) => "FAILED",
            (Some(_), true) => "skipped",
            (None, true) => "ok",
        };
        lines.push(format!("  {name:8} {word:8} {text}").trim_end().to_string());
    }
    lines.extend(lines_of_clients(report));
    lines.push(filled(
        "  elapsed  {elapsed_seconds} at {tar_bytes/elapsed_seconds}, CPU load {cpu_seconds%elapsed_seconds}",
    ));
    lines.extend(lines_of_failures("failure", &report.failures, 0, report));
    lines.extend(lines_of_failures("warning", &report.warnings, report.unlisted_count, report));
    if report.ok && report.was_made(Check::State) {
        lines.push(if report.expected_hash.is_some() { OF_EXPECTED_HASH } else { OF_BANK_FILE }.to_string());
    }
    if report.ok {
        lines.push(verdict(report));
    }
    lines
}

// What a passed state check proves, and what not: that the state is the cluster's.
const OF_EXPECTED_HASH: &str = "The accounts match the hash of --expect-hash.";
const OF_BANK_FILE: &str = "The accounts match the bank file. No archive can prove that this is the cluster's state: use \
    --expect-hash with the hash that a node you trust advertises.";

/// What a check has looked at.
fn counts_of(check: Check) -> &'static str {
    match check {
        Check::Frames => "[{frames}]",
        Check::Entries => "[{storages}]",
        Check::Records => "[{records}][, {tombstones}][, {superseded} superseded]",
        Check::State => "{accounts}, capitalization {capitalization}",
        _ => "",
    }
}

/// Each client's verdict. Agave versions with the same verdict share a line.
fn lines_of_clients(report: &VerifyReport) -> Vec<String> {
    let verdicts = report.clients.iter().map(|it| (it.client, (it.because, it.note))).collect();
    let verdicts = lines_of(verdicts);
    let width = verdicts.iter().map(|(name, _)| name.len() + 1).max().unwrap_or_default();
    let loads = if report.is_ledger() { "boots from it" } else { "loads it" };
    let line = |(name, (because, note)): (String, (Option<&str>, Option<&str>))| {
        let text = match (because, note) {
            (Some(why), _) => format!("refuses it: {why}"),
            (None, Some(note)) => format!("{loads}, as far as was checked, but {note}"),
            (None, None) => format!("{loads}, as far as was checked"),
        };
        format!("  {:width$} {text}", format!("{name}:"))
    };
    let asked = (!report.asked.is_empty()).then(|| format!("  asked for    {}", names_of(&report.asked).join(", ")));
    asked.into_iter().chain(verdicts.into_iter().map(line)).collect()
}

/// The last line of a report without failures: the verdict, and checks that were not made.
fn verdict(report: &VerifyReport) -> String {
    let unknown = |check: &CheckResult| Some(format!("{} ({})", check.name.name(), check.skipped.as_ref()?));
    let unknown: Vec<String> = report.left_out().filter_map(unknown).collect();
    let complete = report.complete.map(Completeness::as_str).unwrap_or("not checked");
    match unknown.join("; ").as_str() {
        "" => format!("GOOD: all checks passed; complete {complete}"),
        unknown => format!("no failure was found; complete {complete}; not checked: {unknown}"),
    }
}

/// Of each rule, as many failures are printed.
const ALIKE_MAX: u64 = 3;

/// The first failures of each rule, and then how many more there are. `unlisted` is the number of
/// those that the report does not list.
fn lines_of_failures(word: &str, failures: &[Failure], unlisted: u64, report: &VerifyReport) -> Vec<String> {
    let (mut of_rule, mut hints, mut lines) = (BTreeMap::new(), BTreeSet::new(), Vec::new());
    let mut more = unlisted;
    for failure in failures {
        let count = of_rule.entry(failure.rule).or_insert(0u64);
        *count += 1;
        hints.insert(&failure.hint);
        if *count > ALIKE_MAX {
            more += 1;
            continue;
        }
        lines.push(format!("{word}: {}: {}", failure.check.name(), failure.message));
        let offset = match &failure.place {
            place if place.entry.is_some() => "{offset_bytes} of the entry",
            place if place.frame.is_some() => "{offset_bytes} of the file",
            _ => "{offset_bytes} of the tar stream",
        };
        let path = if report.paths.len() > 1 { "{path}" } else { "" };
        let rows = [
            ("file", path),
            ("frame", "{frame}"),
            ("entry", "{entry}"),
            ("offset", offset),
            ("account", "{account}"),
            ("expected", "{expected}"),
            ("found", "{found}"),
        ];
        lines.extend(render::lines(&serde_json::to_value(failure).unwrap_or_default(), &rows));
    }
    lines.extend(hints.into_iter().map(|hint| format!("  what to do: {hint}")));
    if more > 0 {
        lines.push(format!("and {} more (`--json` lists up to 50 of a kind)", values::show_count(more)));
    }
    lines
}
