//! Runs `slotpress fetch`, and prints its report.

use std::path::PathBuf;

use clap::Args;
use slotpress::{FetchOptions, FetchReport, Result, Root, fetch};
use slotpress_base::text::ShowPath;
use slotpress_net::{Fetched, GivenBytes};

use super::io_policy::rate;
use super::network::{PeersArgs, TransferArgs};
use super::planned::{self, STREAM_BYTES};
use super::ui::Ui;
use super::values;

/// Fetch archives from servers over several connections, resuming after failures
///
/// Fetches a full archive and the newest incremental archive based on it, or exactly the archives
/// whose URLs are given. Bytes that have arrived are kept: after a failure, run the same command
/// again to continue. Frames of archives made by slotpress are compared with their hashes, and can
/// come from several servers at once.
#[derive(Debug, Args)]
pub struct FetchArgs {
    /// A server, a mirror, a store or an archive: http(s)://HOST:PORT, the URL of a directory or of
    /// an archive, s3://BUCKET/PREFIX; or a local directory
    #[arg(value_name = "SOURCE", required_unless_present_any = ["rpc", "cluster", "sources_from"])]
    sources: Vec<String>,
    /// The directory for the archives
    #[arg(short, long, value_name = "OUT_DIR", default_value = ".")]
    output: PathBuf,
    /// Fetch no incremental archive
    #[arg(long)]
    no_incremental: bool,
    /// Expected root; for one archive
    #[arg(long, value_name = "ROOT", value_delimiter = ',')]
    expect_root: Vec<Root>,
    /// Limit fetching to this many bytes per second
    #[arg(long, value_name = "SIZE", value_parser = rate, env = "SLOTPRESS_MAX_RATE")]
    max_rate: Option<u64>,
    #[command(flatten)]
    peers: PeersArgs,
    #[command(flatten)]
    transfer: TransferArgs,
}

pub fn run(args: &FetchArgs, ui: &Ui) -> Result<()> {
    if args.expect_root.len() > 1 {
        return Err(slotpress::Error::usage("--expect-root is for one archive: fetch gets them in no fixed order")
            .with_hint("fetch them one by one, each with its root"));
    }
    let mut limits = args.transfer.limits(args.expect_root.first().copied());
    limits.streams = planned::threads_that_fit(Some(limits.streams), || Ok(STREAM_BYTES), 0, ui)?;
    let (trusted, quorum) = args.transfer.trusted()?;
    let wants_incremental = !args.no_incremental && args.expect_root.is_empty();
    let find = args.peers.find_options(&args.sources)?.wants_incremental(wants_incremental);
    if !find.asks_cluster() && find.sources.iter().all(|source| source.url().is_none()) {
        return Err(slotpress::Error::usage("fetch gets archives from servers, and every source is on this machine")
            .with_hint("copy the archives with `cp`, then run `slotpress verify` on the copies"));
    }
    let options = FetchOptions::new(Vec::new(), &args.output).find(find).limits(limits).trusted(trusted).quorum(quorum);
    let client = args.transfer.client(args.max_rate)?;
    let report = fetch(&client, &options, ui)?;
    print_report(&report, ui);
    super::list::tell_of_partials(&args.output, ui);
    super::bootstrap::tell_of_better(report.given_up.as_ref(), ui);
    Ok(())
}

fn print_report(report: &FetchReport, ui: &Ui) {
    if ui.is_json() {
        return ui.print_report("fetch", report);
    }
    for archive in &report.archives {
        archive.path.iter().for_each(|path| ui.print_verbatim(&path.shown()));
        if !ui.is_quiet() {
            print_fetched(archive.fetched.as_ref(), ui);
            print_checked(archive.root, ui);
        }
    }
    if ui.is_quiet() {
        return;
    }
    ui.print(&format!("  vouched  {}", report.vouchers));
}

pub fn print_fetched(fetched: Option<&Fetched>, ui: &Ui) {
    let Some(fetched) = fetched else { return ui.print("  fetched  nothing: the file exists already") };
    let bytes = fetched.fetched_bytes();
    let kept = match fetched.kept_bytes {
        0 => String::new(),
        kept => format!(", {} existed already", values::show_bytes(kept)),
    };
    ui.print(&format!(
        "  fetched  {} in {}, {}{kept}",
        values::show_bytes(bytes),
        values::show_duration(fetched.elapsed),
        values::show_rate(bytes, fetched.elapsed)
    ));
    for GivenBytes { server, bytes, .. } in &fetched.servers {
        ui.print(&format!("  from     {server}: {}", values::show_bytes(*bytes)));
    }
}

pub fn print_checked(root: Option<Root>, ui: &Ui) {
    let checked = match root {
        Some(root) => format!("every frame compared with its hash; root {root}"),
        None => {
            "from its first frame to its last, not what they hold: it has no frame hashes; `slotpress verify` checks \
                 the rest"
                .to_string()
        }
    };
    ui.print(&format!("  checked  {checked}"));
}
