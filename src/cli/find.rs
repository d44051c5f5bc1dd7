//! Runs `slotpress find`, and prints the ranking.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use slotpress::Result;
use slotpress::net::{Candidate, Client, FindReport, find};
use slotpress_base::text::truncate;
use slotpress_net::OfferPlace;

use super::json::merge;
use super::network::{NetworkArgs, PeersArgs};
use super::tables::{Table, TableBuilder, Unit};
use super::ui::Ui;
use super::values;

/// Find servers with snapshots, and rank them by how old the state will be at boot
///
/// Asks the sources, and the peers that RPC servers know. Measures the best of them with a short transfer, and
/// ranks them by the expected age at boot: age now, plus time to fetch, plus time to restore. Slots and hashes
/// are only what the servers claim.
#[derive(Debug, Args)]
pub struct FindArgs {
    #[command(flatten)]
    peers: PeersArgs,
    #[command(flatten)]
    network: NetworkArgs,
}

/// Maximum number of candidates in the table; `--json` lists all.
const ROWS_MAX: usize = 20;

const REASONS_MAX: usize = 8;

pub fn run(args: &FindArgs, ui: &Ui) -> Result<()> {
    let options = args.peers.find_options()?;
    let options = options.measure_single_server(true).read_bank_times(true);
    // Many peers answer slowly or not at all, and are useless as sources.
    let seconds = Duration::from_secs;
    let client_options = args.network.options().connect_timeout(seconds(4));
    let client_options = client_options.head_timeout(seconds(6)).read_timeout(seconds(4));
    let client = Client::new(&client_options)?;
    let report = find(&client, &options, ui)?;
    for (number, candidate) in report.candidates.iter().enumerate() {
        let rank = json!({ "rank": number + 1 });
        ui.print_object("candidate", &merge(rank, candidate));
    }
    for refused in &report.refused {
        ui.print_object("refused", refused);
    }
    ui.print_object("find", &report);
    if let Some(best) = report.candidates.first() {
        let offers = [Some(&best.full), best.incremental.as_ref()];
        for offer in offers.into_iter().flatten() {
            ui.print_quiet(&offer.location());
        }
    }
    print_report(&report, ui);
    report.require_candidate().map(drop)
}

fn print_report(report: &FindReport, ui: &Ui) {
    let row_count = report.candidates.len().min(ROWS_MAX);
    if row_count > 0 {
        ui.print_table(&make_table(&report.candidates[..row_count]));
    }
    let omitted_count = report.candidates.len() - row_count;
    if omitted_count > 0 {
        ui.say(&format!("  … and {omitted_count} more (--json lists all)"));
    }
    let mut reasons: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for refused in &report.refused {
        // A network error begins with the name of the server. Without that name, equal causes can be grouped.
        let reason = match refused.reason.split_once(": ") {
            Some((server, error)) if server.contains("://") => error,
            _ => &refused.reason,
        };
        let source = show_source(&refused.source);
        reasons.entry(reason).or_default().push(source);
    }
    let mut reasons: Vec<(&str, Vec<String>)> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, sources)| std::cmp::Reverse(sources.len()));
    if !reasons.is_empty() {
        let refused_count = values::show_count(report.refused.len() as u64);
        let asked_count = report.asked_count;
        ui.say(&format!("{refused_count} of {asked_count} servers cannot be used:"));
    }
    for (reason, sources) in reasons.iter().take(REASONS_MAX) {
        let names = truncate(&sources.join(", "), 70);
        ui.say(&format!("{:>6}  {names}\n        {reason}", sources.len()));
    }
    for note in &report.notes {
        ui.say(&format!("note: {note}"));
    }
    if row_count > 0 {
        let rate = values::show_bytes(report.assumed_restore_bytes_per_second);
        ui.say(&format!("at boot: age now + fetch (one connection) + restore at {rate}/s (assumed)"));
        ui.say(&format!("a slot takes {}", report.ranking.slot_time));
        ui.say("slots and hashes are only what servers claim: compare them with a node you trust");
    }
}

/// Removes the `http://` of nearly all sources, and slashes at the end.
fn show_source(source: &str) -> String {
    let place = source.trim_start_matches("http://");
    place.trim_end_matches('/').to_string()
}

fn make_table(candidates: &[Candidate]) -> Table {
    let show_rate = |candidate: &Candidate| match (&candidate.full.place, candidate.rate_bytes_per_second) {
        (OfferPlace::Local(_), _) => Some("local".to_string()),
        (_, rate) => Some(format!("{}/s", values::show_bytes(rate?))),
    };
    let show_slot = |candidate: &Candidate| match candidate.incremental {
        Some(_) => candidate.slot().to_string(),
        None => format!("{} full", candidate.slot()),
    };
    TableBuilder::new("", "", candidates)
        .add_visible("at boot", Unit::Age, |row| row.expected_age.map(|age| age.as_secs_f64()))
        .add_visible("age", Unit::Age, |row| row.age.map(|age| age.as_secs_f64()))
        .add_visible("slot", Unit::Text, show_slot)
        .add_visible("size", Unit::Bytes, Candidate::total_bytes)
        .add_visible("rate", Unit::Text, show_rate)
        .add_visible("source", Unit::Text, |row| show_source(&row.source))
        .finish()
}
