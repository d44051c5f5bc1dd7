//! `slotpress fetch`

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use slotpress::net::{Fetched, GivenBytes};
use slotpress::{FetchOptions, FetchReport, Result, Root, fetch};
use slotpress_base::text;
use slotpress_base::text::ShowPath;

use super::manners::rate;
use super::network::{PeersArgs, TransferArgs};
use super::planned::{self, STREAM_BYTES};
use super::ui::Ui;
use super::values;

/// Fetch archives from servers over several connections, resuming after failures
///
/// Fetches a full archive and the newest incremental archive based on it, or exactly the archives whose URLs are given.
/// Bytes that have arrived are kept: after a failure, run the same command again to continue. Frames of archives made by
/// slotpress are compared with their hashes, and can come from several servers at once.
#[derive(Debug, Args)]
pub struct FetchArgs {
    /// A server, a mirror, a store or an archive: http(s)://HOST:PORT, the URL of a directory or of an archive,
    /// s3://BUCKET/PREFIX
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
    /// Refuse archives larger than this [default: 4TiB]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    max_bytes: Option<u64>,
    #[command(flatten)]
    peers: PeersArgs,
    #[command(flatten)]
    transfer: TransferArgs,
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "fetch")]
struct FetchLine<'a> {
    archives: Vec<ArchiveFields<'a>>,
    vouched_by: &'a [String],
    elapsed_seconds: f64,
}

/// One archive that was fetched.
#[derive(Serialize)]
pub struct ArchiveFields<'a> {
    name: String,
    #[serde(serialize_with = "text::optional_path")]
    path: Option<&'a Path>,
    slot: u64,
    base_slot: Option<u64>,
    hash: String,
    was_there: bool,
    file_bytes: Option<u64>,
    kept_bytes: u64,
    fetched_bytes: u64,
    root: Option<Root>,
    servers: &'a [GivenBytes],
    fetch_seconds: Option<f64>,
}

impl<'a> ArchiveFields<'a> {
    /// What is known of an archive.
    pub fn of(
        name: &slotpress::ArchiveName,
        path: Option<&'a Path>,
        fetched: Option<&'a Fetched>,
        root: Option<Root>,
    ) -> Self {
        Self {
            name: name.to_string(),
            path,
            slot: name.slot,
            base_slot: name.base_slot,
            hash: name.hash.to_string(),
            was_there: fetched.is_none(),
            file_bytes: fetched.map(|fetched| fetched.length_bytes),
            kept_bytes: fetched.map_or(0, |fetched| fetched.kept_bytes),
            fetched_bytes: fetched.map_or(0, Fetched::fetched_bytes),
            root,
            servers: fetched.map(|fetched| fetched.servers.as_slice()).unwrap_or_default(),
            fetch_seconds: fetched.map(|fetched| fetched.elapsed.as_secs_f64()),
        }
    }
}

pub fn run(args: &FetchArgs, ui: &Ui) -> Result<()> {
    if args.expect_root.len() > 1 {
        return Err(slotpress::Error::usage("--expect-root is for one archive"));
    }
    let mut limits = args.transfer.limits(args.max_bytes, args.expect_root.first().copied());
    limits.streams = planned::threads_that_fit(Some(limits.streams), || Ok(STREAM_BYTES), 0, ui)?;
    let options = FetchOptions::new(Vec::new(), &args.output)
        .find(args.peers.find_options(&args.sources)?)
        .wants_incremental(!args.no_incremental && args.expect_root.is_empty())
        .limits(limits)
        .trusted(args.transfer.trusted()?);
    let client = args.transfer.client(args.max_rate)?;
    let report = fetch(&client, &options, ui)?;
    print_report(&report, ui);
    super::list::tell_of_partials(&args.output, ui);
    Ok(())
}

fn print_report(report: &FetchReport, ui: &Ui) {
    if ui.is_json() {
        ui.print_json(&FetchLine {
            archives: report
                .archives
                .iter()
                .map(|one| ArchiveFields::of(&one.name, Some(&one.path), one.fetched.as_ref(), one.root))
                .collect(),
            vouched_by: &report.vouchers.servers,
            elapsed_seconds: report.elapsed.wall.as_secs_f64(),
        });
        return;
    }
    for archive in &report.archives {
        ui.print_verbatim(&archive.path.shown());
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

/// How an archive came.
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

/// What is known of an archive without its content.
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
