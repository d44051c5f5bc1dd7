//! `slotpress levels link`: which level boots nodes soonest over a link.

use clap::{Args, ValueEnum};
use slotpress::levels::content::MEMORY_BYTES_MAX;
use slotpress::levels::doubts::doubts;
use slotpress::levels::link::model::{Ends, PLACE_BYTES_PER_SECOND, READ_BYTES_PER_SECOND};
use slotpress::levels::link::network::{CongestionControl, Link, MSS_BYTES, WINDOW_BYTES};
use slotpress::levels::link::question::LinkQuestion;
use slotpress::levels::link::report::LinkReport;
use slotpress::levels::link::{units, view};
use slotpress::levels::measure::measure_levels;
use slotpress::{Progress, Result};

use super::exports::ExportArgs;
use super::input::{CodecArgs, InputArgs, RepeatArgs};
use super::{is_interrupted, show};
use crate::cli::ui::Ui;
use crate::cli::values;

/// Find the level with which nodes start soonest over a link
///
/// Measures the levels in memory. From this, the link and the disks, it computes the time until a node can be started
/// (archive, send, decode and place; streamed, or one after the other), the bandwidths at which one level overtakes
/// another, and the cost of egress. docs/levels.md describes the model and how well it predicts.
#[derive(Debug, Args)]
pub struct LinkArgs {
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    codecs: CodecArgs,
    #[command(flatten)]
    repeat: RepeatArgs,
    #[command(flatten)]
    link: LinkFlags,
    #[command(flatten)]
    exports: ExportArgs,
}

/// The link, and the machines at its ends.
#[derive(Debug, Args)]
#[command(next_help_heading = "Link")]
struct LinkFlags {
    /// Bandwidth of the sender's link, shared by all nodes: 1Gbit, 100Mbit, 12.5MB/s
    #[arg(long, value_name = "RATE", value_parser = units::parse_bandwidth, allow_hyphen_values = true)]
    bandwidth: f64,
    /// Round-trip time: 60ms, 0.5ms, 0
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = units::parse_rtt, allow_hyphen_values = true)]
    rtt: f64,
    /// Random packet loss: 0.1%, 0.001
    #[arg(long, value_name = "PART", default_value = "0", value_parser = units::parse_loss, allow_hyphen_values = true)]
    loss: f64,
    /// Number of connections of each node
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    streams: u32,
    /// Number of nodes that fetch at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    nodes: u32,
    /// Price of a GB (10^9 bytes) of egress, in any currency
    #[arg(long, value_name = "PRICE", value_parser = units::parse_price, allow_hyphen_values = true)]
    egress_price: Option<f64>,
    /// Also recommend formats that not every client reads: lz4 (not read by Firedancer), plain tar (not read by Agave)
    #[arg(long)]
    any_format: bool,
    /// The sender's congestion control
    #[arg(long, value_enum, default_value_t)]
    congestion: CongestionArg,
    /// The most that a connection has in flight [default: 2.67 MiB, what Linux's default buffers allow]
    #[arg(long, value_name = "SIZE", value_parser = window)]
    window: Option<u64>,
    /// Payload of a packet, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = MSS_BYTES, hide_short_help = true,
          value_parser = clap::value_parser!(u32).range(64..=65_535))]
    mss: u32,
    /// How fast the sender's disk reads the ledger [default: 2GB/s, an NVMe disk]
    #[arg(long, value_name = "RATE", value_parser = units::parse_rate, allow_hyphen_values = true)]
    read_rate: Option<f64>,
    /// How fast a node writes storages and syncs them [default: 1GB/s, an NVMe disk]
    #[arg(long, value_name = "RATE", value_parser = units::parse_rate, allow_hyphen_values = true)]
    place_rate: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, ValueEnum)]
enum CongestionArg {
    /// Halves its window
    Reno,
    /// The default of Linux
    #[default]
    Cubic,
    /// Sends at the rate that it measures
    Bbr,
}

/// Reads a window.
fn window(text: &str) -> Result<u64, String> {
    match values::size(text)? {
        0 => Err("a window holds 1 byte or more".to_string()),
        bytes => Ok(bytes),
    }
}

impl LinkFlags {
    fn question(&self, input: &InputArgs, threads: usize) -> Result<LinkQuestion> {
        let link = Link {
            bandwidth_bits_per_second: self.bandwidth,
            rtt_seconds: self.rtt,
            loss: self.loss,
            streams: self.streams,
            nodes: self.nodes,
            congestion_control: match self.congestion {
                CongestionArg::Reno => CongestionControl::Reno,
                CongestionArg::Cubic => CongestionControl::Cubic,
                CongestionArg::Bbr => CongestionControl::Bbr,
            },
            window_bytes: self.window.unwrap_or(WINDOW_BYTES),
            mss_bytes: self.mss,
        };
        link.check()?;
        let ends = Ends {
            read_bytes_per_second: self.read_rate.unwrap_or(READ_BYTES_PER_SECOND),
            place_bytes_per_second: self.place_rate.unwrap_or(PLACE_BYTES_PER_SECOND),
            frame_size_bytes: input.frame_size,
            threads,
        };
        Ok(LinkQuestion { link, ends, egress_price_per_gb: self.egress_price, any_format: self.any_format })
    }
}

pub fn run(args: &LinkArgs, ui: &Ui) -> Result<()> {
    let list = args.codecs.list()?;
    args.input.check()?;
    let planned = args.input.plan(MEMORY_BYTES_MAX, list.codecs(), ui)?;
    let question = args.link.question(&args.input, planned.threads)?;
    let exports = args.exports.files(&args.input.source.path)?;

    let (input, subject) = args.input.read(planned, ui)?;
    let repeat = args.repeat.options(planned.threads);
    let mut rows = Vec::new();
    let result = measure_levels(&input, &list.measuring_order(), &repeat, ui, &mut |row| {
        rows.push(row);
        Ok(())
    })
    .map(drop);
    // After an interruption, the levels that were measured are reported.
    if rows.is_empty() || (result.is_err() && !is_interrupted(&result)) {
        return result;
    }
    let report = LinkReport::new(question, input.total_bytes, &rows);
    if ui.is_json() {
        ui.print_report("link", &report);
    }
    // Warnings come before the advice that depends on them.
    doubts(&rows).iter().for_each(|line| ui.warn(line));
    show(&view::section(&report), &subject, &exports, ui)?;
    if ui.is_json() {
        report.break_evens.iter().for_each(|line| ui.print_json(line));
        report.recommendations.iter().for_each(|line| ui.print_json(line));
    }
    result
}
