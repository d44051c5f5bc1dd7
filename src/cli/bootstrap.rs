//! Runs `slotpress bootstrap`, and prints its plan and report.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use slotpress::net::GivenUp;
use slotpress::program::{ChosenArchive, Route, check_is_new};
use slotpress::{
    BootstrapOptions, BootstrapPlan, BootstrapReport, Hash, Progress, RestoreTarget, Result, Root, bootstrap,
    plan_bootstrap,
};
use slotpress_base::text::{self, ShowPath};
use slotpress_net::Fetched;

use super::archive::skip_existing;
use super::arguments::{NewLedgerArgs, WorkerArgs};
use super::check::{self, CheckArgs};
use super::io_policy::IoPolicyArgs;
use super::lines::table;
use super::network::{PeersArgs, TransferArgs};
use super::planned::{DECODING_WORKER_BYTES, STREAM_BYTES};
use super::ui::Ui;
use super::{restore, values};

/// Fetch archives and restore them while they arrive
///
/// Fetches a full archive, and then the newest incremental archive based on it. Bytes that have
/// arrived are kept in the snapshots directory: after a failure, run the same command again to
/// continue. The ledger looks complete only after everything is checked and on disk.
#[derive(Debug, Args)]
pub struct BootstrapArgs {
    /// A server, a mirror, a store or an archive: http(s)://HOST:PORT, the URL of a directory or of
    /// an archive, s3://BUCKET/PREFIX; or a local directory
    #[arg(value_name = "SOURCE", required_unless_present_any = ["rpc", "cluster", "sources_from"])]
    sources: Vec<String>,
    #[command(flatten)]
    target: NewLedgerArgs,
    /// If the target holds a ledger, leave it as it is, unchecked, and end with exit code 0
    #[arg(long, conflicts_with = "replace_state")]
    skip_existing: bool,
    /// Use a full archive only
    #[arg(long)]
    no_incremental: bool,
    /// A full archive that this node has, in addition to those in its snapshots directory; may be
    /// given more than once. If a source has an incremental archive on one of them, and it gives a
    /// younger state for fewer bytes, only that archive is fetched
    #[arg(long, value_name = "FILE", conflicts_with = "no_incremental")]
    base: Vec<PathBuf>,
    /// Expected genesis hash of the cluster
    #[arg(long, value_name = "HASH", alias = "expected-genesis-hash", value_parser = values::hash)]
    expect_genesis_hash: Option<Hash>,
    /// Expected root, as `archive` and `inspect` print it: the hash of every frame is checked. Give
    /// two for the full and the incremental archive
    #[arg(long, value_name = "ROOT", value_delimiter = ',')]
    expect_root: Vec<Root>,
    /// Show what would be fetched, without fetching it
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    workers: WorkerArgs,
    #[command(flatten)]
    peers: PeersArgs,
    #[command(flatten)]
    check: CheckArgs,
    /// Memory limit for the state check; data that does not fit is spilled to the output directory
    /// [default: 1GiB]
    #[arg(long, value_name = "SIZE", value_parser = values::size, env = "SLOTPRESS_MEMORY", help_heading = "Check")]
    memory: Option<u64>,
    #[command(flatten)]
    transfer: TransferArgs,
    #[command(flatten)]
    io_policy: IoPolicyArgs,
}

pub fn run(args: &BootstrapArgs, ui: &Ui) -> Result<()> {
    if args.skip_existing
        && let Err(error) = check_is_new(&args.target.paths())
    {
        return skip_existing(error, ui);
    }
    let mut io_policy = args.io_policy.clone();
    let max_rate = io_policy.take_max_rate();
    let io_policy = io_policy.apply(ui);
    let check = args.check.options(args.memory);
    let other_bytes = check.memory_bytes.saturating_add(args.transfer.streams() as u64 * STREAM_BYTES);
    let paths = args.target.paths();
    let target = RestoreTarget::new(&paths.ledger)
        .paths(paths)
        .existing_state(args.target.existing_state())
        .threads(args.workers.that_fit(|| Ok(DECODING_WORKER_BYTES), other_bytes, ui)?)
        .check(check)
        .io_policy(io_policy);
    let (trusted, quorum) = args.transfer.trusted()?;
    let find = args.peers.find_options(&args.sources)?.wants_incremental(!args.no_incremental);
    let find = find.expected_genesis_hash(args.expect_genesis_hash);
    let options = BootstrapOptions::new(Vec::new(), &target.paths.ledger)
        .find(find)
        .bases(args.base.clone())
        .restore(target)
        .limits(args.transfer.limits(None))
        .trusted(trusted)
        .quorum(quorum)
        .expect_roots(args.expect_root.clone());
    let client = args.transfer.client(max_rate)?;
    if args.dry_run {
        let plan = plan_bootstrap(&client, &options, ui)?;
        print_plan(&plan, &options, ui);
        return plan.check_room();
    }
    let report = bootstrap(&client, &options, ui)?;
    print_report(&report, &options, ui);
    super::list::tell_of_partials(options.restore.paths.snapshots_dir(), ui);
    tell_of_better(report.given_up.as_ref(), ui);
    Ok(())
}

/// Prints at most ten lines; how to start a validator is the last.
fn print_report(report: &BootstrapReport, options: &BootstrapOptions, ui: &Ui) {
    let (restored, target) = (&report.restore, &options.restore);
    let is_text = restore::print_head(restored, target, ui);
    if ui.is_json() {
        ui.print_report("bootstrap", report);
    }
    if is_text {
        let [output, input] = [restored.output_bytes, restored.input_bytes].map(values::show_bytes);
        let after = report.after_last_byte.map(|time| format!(", {} after the last byte", values::show_duration(time)));
        let elapsed = values::show_duration(report.elapsed.wall);
        ui.print(&format!("  size     {output} from {input}, in {elapsed}{}", after.unwrap_or_default()));
        ui.print(&format!("  fetched  {}", fetched(report)));
        check::print_assurance(&restored.assurance, ui);
        ui.print(&format!("  vouched  {}", report.vouchers));
        restore::print_start(restored, target, ui);
    }
    let is_expected = report.vouchers.is_expected == Some(true) || !options.expect_roots.is_empty();
    if report.vouchers.by.is_empty() && !is_expected {
        ui.warn(
            "nobody confirmed this state: slot and hash are what the source says; --trust asks a server that you trust, \
             --expect-hash compares the hash",
        );
    }
}

/// Says what was fetched, in how much time, from which servers.
fn fetched(report: &BootstrapReport) -> String {
    let fetched = || report.archives.iter().filter_map(|archive| archive.fetched.as_ref());
    let bytes: u64 = fetched().map(Fetched::fetched_bytes).sum();
    let time = fetched().map(|one| one.elapsed).sum();
    let servers: BTreeSet<&str> = fetched().flat_map(|one| &one.servers).map(|one| one.server.as_str()).collect();
    match servers.len() {
        0 => "nothing: the archives were there".to_string(),
        count => format!(
            "{} in {}, {}, from {}",
            values::show_bytes(bytes),
            values::show_duration(time),
            values::show_rate(bytes, time),
            if count > 2 {
                values::count_of(count as u64, "server")
            } else {
                servers.into_iter().collect::<Vec<_>>().join(" and ")
            }
        ),
    }
}

/// Warns, as the last line, that a newer state was given up.
pub fn tell_of_better(given_up: Option<&GivenUp>, ui: &Ui) {
    let Some(GivenUp { archives, slot, why, .. }) = given_up else { return };
    let names: Vec<String> = archives.iter().map(ToString::to_string).collect();
    ui.warn(&format!("a newer state was given up, of slot {slot}: {}: {why}", names.join(" and ")));
}

fn print_plan(plan: &BootstrapPlan, options: &BootstrapOptions, ui: &Ui) {
    let BootstrapPlan { full, incremental, ways, candidate, kept_bytes, space, existing, .. } = plan;
    if ui.is_json() {
        return ui.print_report("bootstrap_plan", plan);
    }
    let ledger: &Path = &options.restore.paths.ledger;
    ui.print(&format!("Would make a ledger in {}:", ledger.shown()));
    for choice in std::iter::once(full).chain(incremental) {
        let size = choice.length_bytes.map_or("of unknown size".to_string(), values::show_bytes);
        let (label, from) = if choice.is_local() { ("use  ", "at") } else { ("fetch", "from") };
        ui.print(&format!("  {label}    {}", choice.name));
        ui.print(&format!("           {size} {from} {}", text::one_line(&choice.shown())));
    }
    if *kept_bytes > 0 {
        ui.print("  resume   continues a download that was interrupted");
    }
    ui.print(&match candidate.age.zip(candidate.expected_age) {
        Some((age, at_boot)) => format!(
            "  age      {} slots ({}) now; about {} at boot",
            values::show_count(candidate.age_slots.unwrap_or_default()),
            values::show_age(age),
            values::show_age(at_boot)
        ),
        None => "  age      unknown: no RPC server and no time of the file tells it".to_string(),
    });
    for one in space {
        let [needed, free] = [one.needed_bytes, one.free_bytes].map(values::show_bytes);
        ui.print(&format!("  space    about {needed} needed, {free} free in {}", one.dir.shown()));
    }
    existing.iter().for_each(|path| ui.print(&format!("  replaces {}, moved aside at the end", path.shown())));
    if ways.len() > 1 {
        ui.print("Ways, the best first:");
        let headings = ["at boot", "fetch", "time", "restore", "slot", "full archive"];
        let rows = ways.iter().map(|way| row_of_way(way, full, incremental.as_ref())).collect();
        table(&headings, rows, &[5], ui.columns()).iter().for_each(|line| ui.print_verbatim(line));
    }
}

fn row_of_way(way: &Route, full: &ChosenArchive, incremental: Option<&ChosenArchive>) -> Vec<String> {
    let is_chosen = way.full == full.name && way.incremental.as_ref() == incremental.map(|choice| &choice.name);
    let place = if way.is_full_local { "here" } else { "fetched" };
    vec![
        way.expected_age.map_or("unknown".to_string(), values::show_age),
        way.fetch_bytes.map_or("?".to_string(), values::show_bytes),
        values::show_duration(way.fetch_time),
        values::show_duration(way.restore_time),
        values::show_count(way.slot),
        format!("{} {place}{}", values::show_count(way.full.slot), if is_chosen { ", chosen" } else { "" }),
    ]
}
