//! Runs `slotpress find`, and prints the ranking.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use slotpress::net::Candidate;
use slotpress::{Client, ClientOptions, FindReport, Result, find};
use slotpress_net::OfferPlace;

use super::lines::{cut, table};
use super::network::{NetworkArgs, PeersArgs};
use super::ui::Ui;
use super::values;

/// Find servers with snapshots, how fast they are, and how old the state will be at boot
///
/// Asks the sources and the peers that RPC servers know, measures the best ones with a short
/// transfer, and ranks them by the expected age at boot: age now, plus time to fetch, plus time to
/// restore. Slots and hashes are what servers claim.
#[derive(Debug, Args)]
pub struct FindArgs {
    /// A server, a mirror, a store or an archive: http(s)://HOST:PORT, the URL of a directory or of
    /// an archive, s3://BUCKET/PREFIX; or a local directory
    #[arg(value_name = "SOURCE")]
    sources: Vec<String>,
    /// A source, given as a flag
    #[arg(long, value_name = "SOURCE", value_delimiter = ',', hide = true)]
    source: Vec<String>,
    #[command(flatten)]
    peers: PeersArgs,
    #[command(flatten)]
    network: NetworkArgs,
}

/// Maximum number of rows in each table; `--json` lists all.
const ROWS_MAX: usize = 20;

const REASONS_MAX: usize = 8;

/// Shortens the timeouts: many peers do not answer quickly, and such peers are useless as sources.
fn options_for_peers(args: &NetworkArgs) -> ClientOptions {
    let seconds = Duration::from_secs;
    args.options().connect_timeout(seconds(4)).head_timeout(seconds(6)).read_timeout(seconds(4))
}

pub fn run(args: &FindArgs, ui: &Ui) -> Result<()> {
    let options = args.peers.find_options(&[&args.sources[..], &args.source].concat())?;
    let client = Client::new(&options_for_peers(&args.network))?;
    let report = find(&client, &options, ui)?;
    match ui.is_json() {
        true => print_json(&report, ui),
        false if ui.is_quiet() => {
            let best = report.candidates.iter().take(1);
            let offers = best.flat_map(|one| [Some(&one.full), one.incremental.as_ref()]).flatten();
            offers.for_each(|offer| ui.print_verbatim(&offer.shown()));
        }
        false => print_table(&report, ui),
    }
    report.require_candidate().map(drop)
}

fn print_json(report: &FindReport, ui: &Ui) {
    for (number, one) in report.candidates.iter().enumerate() {
        ui.print_reports("candidate", &json!({ "rank": number + 1 }), one);
    }
    report.refused.iter().for_each(|refused| ui.print_report("refused", refused));
    ui.print_report("find", report);
}

fn print_table(report: &FindReport, ui: &Ui) {
    if !report.candidates.is_empty() {
        let rows = report.candidates.iter().take(ROWS_MAX).map(row).collect();
        table(&HEADINGS, rows, &[5], ui.columns()).iter().for_each(|line| ui.print_verbatim(line));
    }
    if report.candidates.len() > ROWS_MAX {
        ui.print(&format!("  … and {} more (--json lists all)", report.candidates.len() - ROWS_MAX));
    }
    let mut reasons: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for refused in &report.refused {
        // A network failure names the server first: leave it out, so that equal causes are counted
        // together.
        let cause = refused.why.split_once(": ").filter(|(at, _)| at.contains("://"));
        let why = cause.map_or(&*refused.why, |(_, why)| why);
        reasons.entry(why).or_default().push(shown_source(&refused.source));
    }
    let mut reasons: Vec<(&str, Vec<String>)> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, sources)| std::cmp::Reverse(sources.len()));
    if !reasons.is_empty() {
        ui.print(&format!(
            "{} of {} servers cannot be used:",
            values::show_count(report.refused.len() as u64),
            report.asked_count
        ));
    }
    for (why, sources) in reasons.iter().take(REASONS_MAX) {
        ui.print_verbatim(&format!("{:>6}  {}", sources.len(), cut(&sources.join(", "), 70)));
        ui.print(&format!("        {why}"));
    }
    for relaxed in &report.relaxed {
        ui.print(&format!("note: {relaxed}"));
    }
    if !report.candidates.is_empty() {
        let rate = values::show_bytes(report.restore_bytes_per_second);
        ui.print(&format!("at boot: age now + fetch (one connection) + restore at {rate}/s (assumed)"));
        ui.print(&format!("a slot takes {}", report.slot_time));
        ui.print("slots and hashes are what servers claim: compare them with a node you trust");
    }
}

const HEADINGS: [&str; 6] = ["at boot", "age", "slot", "size", "rate", "source"];

/// Removes `http://` and a slash at the end, which nearly all sources have.
fn shown_source(source: &str) -> String {
    source.trim_start_matches("http://").trim_end_matches('/').to_string()
}

fn row(one: &Candidate) -> Vec<String> {
    let age = one.age.map_or("unknown".to_string(), values::show_age);
    let size = one.bytes().map_or("?".to_string(), values::show_bytes);
    let rate = match (&one.full.place, one.rate_bytes_per_second) {
        (OfferPlace::Local(_), _) => "local".to_string(),
        (_, Some(rate)) => format!("{}/s", values::show_bytes(rate)),
        (_, None) => "-".to_string(),
    };
    let slot = format!("{}{}", one.slot(), if one.incremental.is_some() { "" } else { " full" });
    let at_boot = one.expected_age.map_or("unknown".to_string(), values::show_duration);
    vec![at_boot, age, slot, size, rate, shown_source(&one.source)]
}
