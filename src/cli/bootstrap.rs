//! Runs `slotpress bootstrap`, and prints its plan and report.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use slotpress::bootstrap::{
    AbandonedState, BootstrapOptions, BootstrapPlan, BootstrapReport, bootstrap, plan_bootstrap,
};
use slotpress::program::{Route, check_is_new};
use slotpress::types::{ArchiveRoot, Hash};
use slotpress::{Progress, Result};
use slotpress_base::EscapePath;

use super::arguments::{NewLedgerArgs, RestoringArgs};
use super::memory::STREAM_BYTES;
use super::network::{PeersArgs, TransferArgs};
use super::output::skip_existing;
use super::tables::{TableBuilder, Unit};
use super::ui::Ui;
use super::{restore, values};

/// Fetch archives and restore them while they arrive
///
/// Fetches a full archive, and then the newest incremental archive based on it. Bytes that have arrived are
/// kept in the snapshots directory: after a failure, run the same command again to continue. The ledger looks
/// complete only after everything has been checked and is on disk.
#[derive(Debug, Args)]
pub struct BootstrapArgs {
    #[command(flatten)]
    new_ledger: NewLedgerArgs,
    /// Leave an existing ledger as it is, unchecked, and end with exit code 0
    #[arg(long, conflicts_with = "replace_state")]
    skip_existing: bool,
    /// Use a full archive only
    #[arg(long)]
    no_incremental: bool,
    /// A full archive that this node has, in addition to those in its snapshots directory; may be
    /// given more than once
    ///
    /// If a source has an incremental archive based on one of these, and that makes the state newer and the
    /// download smaller, only that incremental archive is fetched.
    #[arg(long, value_name = "FILE", conflicts_with = "no_incremental")]
    base: Vec<PathBuf>,
    /// Expected genesis hash of the cluster
    #[arg(long, value_name = "HASH", alias = "expected-genesis-hash")]
    expect_genesis_hash: Option<Hash>,
    /// Expected root, as `archive` and `inspect` print it: the hash of every frame is checked. Give
    /// two roots for the full and the incremental archive
    #[arg(long, value_name = "ROOT", value_delimiter = ',')]
    expect_root: Vec<ArchiveRoot>,
    /// Show what would be fetched, without fetching it
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    peers: PeersArgs,
    #[command(flatten)]
    transfer: TransferArgs,
    #[command(flatten)]
    restoring: RestoringArgs,
}

pub fn run(args: &BootstrapArgs, ui: &Ui) -> Result<()> {
    if args.skip_existing
        && let Err(error) = check_is_new(&args.new_ledger.paths())
    {
        return skip_existing(error, ui);
    }
    let streams_bytes = u64::from(args.transfer.streams) * STREAM_BYTES;
    let mut target = args.new_ledger.target_options(&args.restoring, streams_bytes, ui)?;
    // Here, --max-rate limits the network instead of the disk.
    target.io_policy.pace = None;
    let (trusted, quorum) = args.transfer.trusted_and_quorum()?;
    let mut find = args.peers.find_options()?.incremental(!args.no_incremental);
    find.expect_genesis_hash = args.expect_genesis_hash;
    let options = BootstrapOptions::new(find, target)
        .bases(args.base.clone())
        .limits(args.transfer.limits())
        .trusted(trusted)
        .quorum(quorum)
        .expect_roots(args.expect_root.clone());
    let client = args.transfer.client(args.restoring.io_policy.max_rate)?;
    if args.dry_run {
        let plan = plan_bootstrap(&client, &options, ui)?;
        print_plan(&plan, &options, ui);
        return plan.check_space();
    }
    let report = bootstrap(&client, &options, ui)?;
    print_report(&report, &options, ui);
    super::list::warn_of_partials(options.target.paths.snapshots_dir(), ui);
    warn_of_newer_state(report.abandoned.as_ref(), ui);
    Ok(())
}

/// Prints the report of a bootstrap. The last lines say how to start a validator.
fn print_report(report: &BootstrapReport, options: &BootstrapOptions, ui: &Ui) {
    let target = &options.target;
    restore::print_report(&report.restore, target, ui);
    ui.print_object("bootstrap", report);
    let elapsed = values::show_duration(report.elapsed.wall);
    let mut text = format!("{}; {elapsed} in all", describe_downloads(report));
    if let Some(time) = report.after_last_byte {
        text += &format!(", {} after the last byte", values::show_duration(time));
    }
    ui.print_row("fetched", &text);
    ui.print_row("confirmed", &report.confirmations.to_string());
    restore::say_how_to_start(&report.restore, target, ui);
    let is_expected = report.confirmations.is_expected == Some(true) || !options.expect_roots.is_empty();
    if report.confirmations.confirmed_by.is_empty() && !is_expected {
        ui.warn(
            "nobody confirmed this state: slot and hash are only what the source claims. --trust asks a server that \
             you trust, and --expect-hash compares the hash",
        );
    }
}

fn describe_downloads(report: &BootstrapReport) -> String {
    let mut servers = BTreeSet::new();
    let mut fetched_bytes = 0;
    let mut elapsed = Duration::ZERO;
    let downloads = report.archives.iter().flat_map(|archive| &archive.fetched);
    for download in downloads {
        servers.extend(download.servers.iter().map(|share| share.server.as_str()));
        fetched_bytes += download.fetched_bytes();
        elapsed += download.elapsed;
    }
    if servers.is_empty() {
        return "nothing: the archives were already there".to_string();
    }
    let bytes = values::show_bytes(fetched_bytes);
    let time = values::show_duration(elapsed);
    let rate = values::show_rate(fetched_bytes, elapsed);
    let names = Vec::from_iter(servers).join(" and ");
    format!("{bytes} in {time}, {rate}, from {names}")
}

pub fn warn_of_newer_state(abandoned: Option<&AbandonedState>, ui: &Ui) {
    let Some(state) = abandoned else { return };
    let names = Vec::from_iter(state.archives.iter().map(ToString::to_string)).join(" and ");
    ui.warn(&format!("the newer state of slot {} was abandoned: {names}: {}", state.slot, state.reason));
}

fn print_plan(plan: &BootstrapPlan, options: &BootstrapOptions, ui: &Ui) {
    ui.print_object("bootstrap_plan", plan);
    let ledger = options.target.paths.ledger.escaped();
    ui.say(&format!("Would make a ledger in {ledger}:"));
    for choice in std::iter::once(&plan.full).chain(&plan.incremental) {
        let label = if choice.is_local() { "use" } else { "fetch" };
        let row = format!("{label}: {{name}}, [{{file_bytes}} ]from {{from}}");
        ui.print_part("", choice, &[row.as_str()]);
    }
    let age = match plan.candidate.age {
        Some(_) => "age: [{age_slots}, ]{age_seconds} now; about {expected_age_seconds} at boot",
        None => "age: unknown: neither an RPC server nor a bank file shows it",
    };
    let resume = "resume: [{kept_bytes} of an interrupted download]";
    let replaces = "replaces: [{existing}, which will be moved aside at the end]";
    ui.print_part("", plan, &[resume, age, replaces]);
    for space in &plan.space {
        let row = "space: about {needed_bytes} needed, {free_bytes} free in {dir}";
        ui.print_part("", space, &[row]);
    }
    if plan.routes.len() > 1 {
        let incremental = plan.incremental.as_ref().map(|choice| &choice.name);
        let describe_full = |route: &Route| {
            let mut text = route.full.slot.to_string();
            text += if route.is_full_local { " here" } else { " fetched" };
            if route.full == plan.full.name && route.incremental.as_ref() == incremental {
                text += ", chosen";
            }
            text
        };
        let table = TableBuilder::new("", "", &plan.routes)
            .add_visible("at boot", Unit::Age, |route| route.expected_age.map(|age| age.as_secs_f64()))
            .add_visible("fetch", Unit::Bytes, |route| route.fetch_bytes)
            .add_visible("time", Unit::Age, |route| route.fetch_time.as_secs_f64())
            .add_visible("restore", Unit::Age, |route| route.restore_time.as_secs_f64())
            .add_visible("slot", Unit::Count, |route| route.slot)
            .add_visible("full archive", Unit::Text, describe_full)
            .finish();
        ui.say("Routes, the best first:");
        ui.print_table(&table);
    }
}
