//! Runs `slotpress verify` on an archive, a pair, a ledger or a catalog of archives, and prints its
//! report.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::Args;
use slotpress::check::{Check, CheckResult, Completeness, Failure, SnapshotClient};
use slotpress::{
    CheckMode, CheckOptions, Error, Hash, Result, Root, VerifyOptions, VerifyReport, verify_archives, verify_ledger,
};
use slotpress_base::text::ShowPath;
use slotpress_read::{lines_of, names_of};

use super::arguments::{DirectoryArgs, WorkerArgs};
use super::check::CHECK_MODES;
use super::network::{ArchiveInput, NetworkArgs, Reads, StateInput, catalog_of};
use super::planned::{self, DECODING_WORKER_BYTES};
use super::ui::Ui;
use super::verify_all::verify_all;
use super::{list, values};

/// Verify an archive, a full and an incremental archive together, a ledger, or all archives of a
/// directory or server
///
/// Recomputes capitalization and lattice hash over all accounts, and lists everything that is
/// wrong, with its place. Nothing is unpacked. An archive cannot prove that its state is the
/// cluster's: use --expect-hash with the hash of a trusted node.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// An archive, or a full and an incremental one, by path or URL; an unpacked archive, or the
    /// ledger directory of a stopped validator. Every archive of a directory, a server, a mirror or
    /// a store, and each of more than two archives, is verified, with a line for each
    #[arg(value_name = "ARCHIVE|LEDGER|DIR|URL", required = true)]
    paths: Vec<PathBuf>,
    /// From a directory, a server, a mirror or a store, and from more than two archives, verify
    /// only what a node would choose
    #[arg(long)]
    newest: bool,
    /// The clients that will load it; what all of them tolerate is only a warning [default: every
    /// deviation is a failure]. agave stands for Agave 4.2 to 4.5
    #[arg(long = "for", value_delimiter = ',', value_name = "CLIENTS", value_parser = values::choice(CLIENTS))]
    clients: Vec<&'static [SnapshotClient]>,
    /// Check frames, entries, name and bank file only; with an index, accounts are not even
    /// decompressed
    #[arg(long)]
    quick: bool,
    /// What to check: without the state, the accounts are decompressed, but not looked at
    #[arg(long, value_name = "WHAT", default_value = "state", value_parser = values::choice(CHECK_MODES))]
    check: CheckMode,
    /// Expected snapshot hash, as a trusted node advertises it
    #[arg(long, value_name = "HASH", value_parser = values::hash)]
    pub(super) expect_hash: Option<Hash>,
    /// Expected slot
    #[arg(long, value_parser = values::slot, value_name = "SLOT")]
    pub(super) expect_slot: Option<u64>,
    /// Expected root, as `archive` and `inspect` print it: the hash of every frame is checked, also
    /// with --quick. Give two for a full and an incremental archive
    #[arg(long, value_name = "ROOT", value_delimiter = ',')]
    pub(super) expect_root: Vec<Root>,
    #[command(flatten)]
    workers: WorkerArgs,
    /// Memory limit for finding superseded records; what does not fit goes to TMPDIR or /tmp, or to
    /// /var/tmp if those are in memory [default: half of the free memory]
    #[arg(long, value_name = "SIZE", value_parser = values::size, env = "SLOTPRESS_MEMORY")]
    memory: Option<u64>,
    /// For a ledger: the bank snapshot [default: the newest complete one]
    #[arg(long, value_parser = values::slot, help_heading = "Ledger")]
    slot: Option<u64>,
    /// For an unpacked incremental archive: the slot of its full archive
    #[arg(long, value_parser = values::slot, value_name = "SLOT", help_heading = "Ledger")]
    base_slot: Option<u64>,
    #[command(flatten, next_help_heading = "Ledger")]
    directories: DirectoryArgs,
    #[command(flatten)]
    pub(super) network: NetworkArgs,
}

impl VerifyArgs {
    /// How often an archive is read.
    pub(super) fn reads(&self, check: CheckMode) -> Reads {
        match self.quick || check == CheckMode::Frames {
            true => Reads::Once,
            false => Reads::Again("the check of the state reads parts of it twice (--check frames reads it once)"),
        }
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
    let memory_bytes = planned::memory_or(args.memory, values::memory_or_half(None));
    // A set, because `--for` may name a client twice.
    let clients: BTreeSet<SnapshotClient> = args.clients.iter().copied().flatten().copied().collect();
    let check = CheckOptions::default().mode(args.check).memory_bytes(memory_bytes);
    let options = VerifyOptions::default()
        .clients(clients.into_iter().collect::<Vec<_>>())
        .is_quick(args.quick)
        .check(check.expect_hash(args.expect_hash).expect_slot(args.expect_slot))
        .threads(args.workers.that_fit(|| Ok(DECODING_WORKER_BYTES), memory_bytes, ui)?)
        .expect_roots(args.expect_root.clone());
    if !args.newest && !args.directories.is_given() && args.slot.is_none() {
        let catalog_at = |place: &Path| list::catalog_at(place, &args.network, ui);
        if let Some(catalog) = catalog_of(&args.paths, &catalog_at)? {
            let place = if let [place] = &args.paths[..] { Some(place.as_path()) } else { None };
            return verify_all(&catalog, place, &options, args, ui);
        }
    }
    let of_ledger = (&args.directories, args.slot.or(args.base_slot));
    let message = "--slot, --base-slot, --snapshots and --accounts are about a ledger; this is an archive";
    let not_for_archives = Error::usage(message).with_hint("--expect-slot compares an archive's slot");
    let input = StateInput::open(&args.paths, of_ledger, not_for_archives, args.reads(args.check), &args.network, ui)?;
    let report = match &input {
        StateInput::Ledger(paths) => verify_ledger(paths, args.slot, args.base_slot, &options, ui)?,
        StateInput::Archives(full, incremental) => {
            verify_archives(full.named(), incremental.as_ref().map(ArchiveInput::named), &options, ui)?
        }
    };
    print_report(&report, ui);
    input.print_transfers(ui);
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

pub(super) fn print_report(report: &VerifyReport, ui: &Ui) {
    if ui.is_json() {
        return ui.print_report("verify", report);
    }
    for path in &report.paths {
        ui.print_verbatim(&path.shown());
    }
    if ui.is_quiet() && report.ok {
        return;
    }
    if let (Some(slot), Some(hash)) = (report.slot, report.hash) {
        let on = report.base_slot.map(|base| format!(" on {base}")).unwrap_or_default();
        ui.print(&format!("  slot {slot}{on}, hash {hash}"));
    }
    for check in &report.checks {
        print_check(check, report, ui);
    }
    print_clients(report, ui);
    ui.print(&format!("  elapsed {}", values::show_speed(report.counts.tar_bytes, &report.elapsed)));
    print_failures("failure", &report.failures, 0, report, ui);
    print_failures("warning", &report.warnings, report.unlisted_count, report, ui);
    if report.ok && report.was_made(Check::State) {
        print_trust(report.expected_hash, ui);
    }
    if report.ok {
        print_verdict(report, ui);
    }
}

/// Prints each client's verdict. Agave versions with the same verdict share a line.
fn print_clients(report: &VerifyReport, ui: &Ui) {
    if !report.asked.is_empty() {
        ui.print_wrapped("  asked for    ", &names_of(&report.asked).join(", "));
    }
    let verdicts = report.clients.iter().map(|it| (it.client, (it.because, it.note))).collect();
    let lines = lines_of(verdicts);
    let width = lines.iter().map(|(name, _)| name.len() + 1).max().unwrap_or_default();
    let loads = if report.is_ledger() { "boots from it" } else { "loads it" };
    for (name, (because, note)) in lines {
        let text = match (because, note) {
            (Some(why), _) => format!("refuses it: {why}"),
            (None, Some(note)) => format!("{loads}, as far as was checked, but {note}"),
            (None, None) => format!("{loads}, as far as was checked"),
        };
        ui.print_wrapped(&format!("  {:width$} ", format!("{name}:")), &text);
    }
}

/// Prints the last line of a report without failures: the verdict, and checks that were not made.
fn print_verdict(report: &VerifyReport, ui: &Ui) {
    let unknown = |check: &CheckResult| Some(format!("{} ({})", check.name.name(), check.skipped.as_ref()?));
    let unknown: Vec<String> = report.left_out().filter_map(unknown).collect();
    let complete = report.complete.map(Completeness::as_str).unwrap_or("not checked");
    let text = match unknown.join("; ").as_str() {
        "" => format!("GOOD: all checks passed; complete {complete}"),
        unknown => format!("no failure was found; complete {complete}; not checked: {unknown}"),
    };
    ui.print_wrapped("", &text);
}

/// Prints what a passed state check does not prove: that the state is the cluster's.
fn print_trust(expected: Option<Hash>, ui: &Ui) {
    if expected.is_some() {
        return ui.print("The accounts match the hash of --expect-hash.");
    }
    let text = "The accounts match the bank file. No archive can prove that this is the cluster's state: use --expect-hash \
                with the hash that a node you trust advertises.";
    ui.print_wrapped("", text);
}

fn print_check(check: &CheckResult, report: &VerifyReport, ui: &Ui) {
    let counts = &report.counts;
    let name = check.name.name();
    let detail = match check.name {
        Check::Frames if counts.frames > 0 => values::count_of(counts.frames, "frame"),
        Check::Entries if counts.storages > 0 => values::count_of(counts.storages, "storage"),
        Check::Records if counts.records > 0 => {
            let [records, tombstones] = [(counts.records, "record"), (counts.tombstones, "tombstone")]
                .map(|(count, noun)| values::count_of(count, noun));
            format!("{records}, {tombstones}, {} superseded", values::show_count(counts.superseded))
        }
        Check::State if check.skipped.is_none() => {
            let capitalization = values::show_count(report.capitalization.unwrap_or_default());
            let accounts = values::count_of(counts.accounts, "account");
            format!("{accounts}, capitalization {capitalization}")
        }
        _ => String::new(),
    };
    let word = match (&check.skipped, check.ok) {
        (_, false) => "FAILED",
        (Some(_), true) => "skipped",
        (None, true) => "ok",
    };
    let text = check.skipped.as_deref().unwrap_or(&detail);
    match text.is_empty() {
        true => ui.print(&format!("  {name:8} {word}")),
        false => ui.print_wrapped(&format!("  {name:8} {word:8} "), text),
    }
}

/// Of each rule, as many failures are printed.
const ALIKE_MAX: u64 = 3;

/// Prints the first failures of each rule, and then how many more there are. `unlisted` is the
/// number of those that the report does not list.
fn print_failures(word: &str, failures: &[Failure], unlisted: u64, report: &VerifyReport, ui: &Ui) {
    let (mut of_rule, mut hints) = (BTreeMap::new(), BTreeSet::new());
    let mut more = unlisted;
    for failure in failures {
        let count = of_rule.entry(failure.rule).or_insert(0u64);
        *count += 1;
        hints.insert(&failure.hint);
        if *count > ALIKE_MAX {
            more += 1;
            continue;
        }
        ui.print_wrapped(&format!("{word}: "), &format!("{}: {}", failure.check.name(), failure.message));
        print_details(failure, failure.place.path.as_deref().filter(|_| report.paths.len() > 1), ui);
    }
    for hint in hints {
        ui.print_wrapped("  what to do: ", hint);
    }
    if more > 0 {
        ui.print(&format!("and {} more (`--json` lists up to 50 of a kind)", values::show_count(more)));
    }
}

fn print_details(failure: &Failure, path: Option<&Path>, ui: &Ui) {
    let place = &failure.place;
    let offset = place.offset_bytes.map(|offset| match (&place.frame, &place.entry) {
        (_, Some(_)) => format!("offset {offset} in it"),
        (Some(_), None) => format!("offset {offset} of the file"),
        (None, None) if failure.check == Check::Frames => format!("offset {offset} of the file"),
        (None, None) => format!("offset {offset} of the tar stream"),
    });
    let parts = [
        path.map(|path| Path::new(path.file_name().unwrap_or(path.as_os_str())).shown()),
        place.frame.map(|frame| format!("frame {frame}")),
        place.entry.clone(),
        offset,
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let lines = [
        ("where", Some(parts.join(", ")).filter(|_| !parts.is_empty())),
        ("account", place.account.map(|account| account.to_string())),
        ("expected", failure.expected.clone()),
        ("found", failure.found.clone()),
    ];
    for (name, text) in lines.into_iter().filter_map(|(name, text)| Some((name, text?))) {
        ui.print_wrapped(&format!("  {name:9} "), &text);
    }
}
