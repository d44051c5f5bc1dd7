//! Runs `slotpress fetch`, and prints its report.

use std::path::PathBuf;

use clap::Args;
use slotpress::net::{FetchOptions, FetchReport, fetch};
use slotpress::types::ArchiveRoot;
use slotpress::{Error, Result};
use slotpress_base::EscapePath;

use super::arguments::parse_max_rate;
use super::memory::{self, STREAM_BYTES};
use super::network::{PeersArgs, TransferArgs};
use super::ui::Ui;

/// Fetch archives from servers over several connections, and resume after failures
///
/// Fetches a full archive and the newest incremental archive based on it, or exactly the archives
/// whose URLs are given. Bytes that have arrived are kept: after a failure, run the same command
/// again to continue. If slotpress made the archive, its frames are compared with their hashes, and can
/// come from several servers at once.
#[derive(Debug, Args)]
pub struct FetchArgs {
    /// The directory for the archives
    #[arg(short, long, value_name = "OUT_DIR", default_value = ".")]
    output: PathBuf,
    /// Fetch no incremental archive
    #[arg(long)]
    no_incremental: bool,
    /// Expected root, if only one archive is fetched; implies --no-incremental
    #[arg(long, value_name = "ROOT", value_delimiter = ',')]
    expect_root: Vec<ArchiveRoot>,
    /// Limit fetching to this many bytes per second
    #[arg(long, env, value_name = "SIZE", value_parser = parse_max_rate)]
    max_rate: Option<u64>,
    #[command(flatten)]
    peers: PeersArgs,
    #[command(flatten)]
    transfer: TransferArgs,
}

pub fn run(args: &FetchArgs, ui: &Ui) -> Result<()> {
    if args.expect_root.len() > 1 {
        return Err(Error::usage(
            "--expect-root is for one archive, because the order in which archives are fetched is not fixed",
        )
        .with_hint("fetch the archives one by one, each with its root"));
    }
    let mut limits = args.transfer.limits();
    limits.streams = memory::threads_that_fit(Some(limits.streams), || Ok(STREAM_BYTES), 0, ui)?;
    let (trusted, quorum) = args.transfer.trusted_and_quorum()?;
    let incremental = !args.no_incremental && args.expect_root.is_empty();
    let find = args.peers.find_options()?.incremental(incremental);
    if !find.asks_cluster() && find.sources.iter().all(|source| source.url().is_none()) {
        return Err(Error::usage("fetch downloads archives from servers, but every source is a directory")
            .with_hint("copy the archives with `cp`, then run `slotpress verify` on the copies"));
    }
    let mut options = FetchOptions::new(find, &args.output).limits(limits).trusted(trusted).quorum(quorum);
    options.expect_root = args.expect_root.first().copied();
    let client = args.transfer.client(args.max_rate)?;
    let report = fetch(&client, &options, ui)?;
    print_report(&report, ui);
    super::list::warn_of_partials(&args.output, ui);
    super::bootstrap::warn_of_newer_state(report.abandoned.as_ref(), ui);
    Ok(())
}

fn print_report(report: &FetchReport, ui: &Ui) {
    ui.print_object("fetch", report);
    for archive in &report.archives {
        let fetched = match archive.fetched {
            Some(_) => FETCHED_ROW,
            None => "fetched: nothing: the file already exists",
        };
        let checked = match archive.root {
            Some(_) => "checked: every frame compared with its hash; root {root}",
            None => UNCHECKED_ROW,
        };
        let path = archive.path.as_ref().map_or(String::new(), |path| path.escaped());
        ui.print_part(&path, archive, &[fetched, "from: {servers}", checked]);
    }
    ui.print_row("confirmed", &report.confirmations.to_string());
}

const FETCHED_ROW: &str = "fetched: {fetched_bytes} in {fetch_seconds}, {fetched_bytes/fetch_seconds}\
    [, {kept_bytes} kept from an earlier run]";

const UNCHECKED_ROW: &str = "checked: only that all frames are complete, because the archive has no frame hashes; \
    `slotpress verify` checks their contents";
