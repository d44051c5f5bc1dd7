//! Runs `slotpress levels link`: computes which level starts nodes soonest over a network link.

use std::time::Duration;

use clap::Args;
use slotpress::Result;
use slotpress::levels::FrameCodec;
use slotpress::program::{
    BandwidthRange, BreakEven, Link, LinkOptions, LinkReport, PLACE_BYTES_PER_SECOND, READ_BYTES_PER_SECOND,
    TransferMode, WINDOW_BYTES,
};
use slotpress_base::TimeUnit;
use slotpress_base::quantity::{self};

use super::input::{ClusteredRows, MeasureArgs};
use super::report::{Advice, LevelsReport};
use super::{print_report, summarize_warnings};
use crate::cli::tables::{Table, TableBuilder, Unit};
use crate::cli::ui::Ui;
use crate::cli::values;

const TIMES_NOTE: &str = "Time until all storages are on the node's disk, without the validator's own start, which \
    is the same for all levels. Streaming: all stages at once; store and forward: one after another.";

/// Find the level with which nodes start soonest over a link
///
/// Measures the levels in memory. From the measurements and the rates of link and disks, computes the
/// time until a node can be started (archive, send, decode and place; streamed, or one after the
/// other), the bandwidth at which one level overtakes another, and the price of egress. docs/levels.md
/// describes the model, and says how well it predicts.
#[derive(Debug, Args)]
pub struct LinkArgs {
    #[command(flatten)]
    measure: MeasureArgs,
    #[command(flatten)]
    link: LinkFlags,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Link")]
struct LinkFlags {
    /// Bandwidth of the sender's link, shared by all nodes: 1Gbit, 100Mbit, 12.5MB/s
    #[arg(long, value_name = "RATE", value_parser = parse_bandwidth, allow_hyphen_values = true)]
    bandwidth: f64,
    /// Round-trip time: 60ms, 0.5ms, 0
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = parse_rtt, allow_hyphen_values = true)]
    rtt: f64,
    /// Number of connections of each node
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    streams: u32,
    /// Number of nodes that fetch at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    nodes: u32,
    /// Price of a GB (10^9 bytes) of egress, in any currency
    #[arg(long, value_name = "PRICE", value_parser = parse_price, allow_hyphen_values = true)]
    egress_price: Option<f64>,
    /// Also recommend formats that not every client reads: lz4 (Firedancer does not), plain tar (Agave does not)
    #[arg(long)]
    any_format: bool,
    /// Maximum number of bytes in flight per connection [default: 2.67 MiB, as Linux's default buffers allow]
    #[arg(long, value_name = "SIZE", value_parser = parse_window)]
    window: Option<u64>,
    /// Rate at which the sender's disk reads the ledger [default: 2GB/s, an NVMe disk]
    #[arg(long, value_name = "RATE", value_parser = parse_rate, allow_hyphen_values = true)]
    read_rate: Option<f64>,
    /// Rate at which a node writes and syncs storages [default: 1GB/s, an NVMe disk]
    #[arg(long, value_name = "RATE", value_parser = parse_rate, allow_hyphen_values = true)]
    place_rate: Option<f64>,
}

fn parse_window(text: &str) -> Result<u64, String> {
    match values::parse_size(text)? {
        0 => Err("a window is at least 1 byte".to_string()),
        bytes => Ok(bytes),
    }
}

impl LinkFlags {
    fn options(&self, frame_size_bytes: u64, threads: usize) -> LinkOptions {
        LinkOptions {
            link: Link {
                bandwidth_bits_per_second: self.bandwidth,
                rtt_seconds: self.rtt,
                streams: self.streams,
                nodes: self.nodes,
                window_bytes: self.window.unwrap_or(WINDOW_BYTES),
            },
            read_bytes_per_second: self.read_rate.unwrap_or(READ_BYTES_PER_SECOND),
            place_bytes_per_second: self.place_rate.unwrap_or(PLACE_BYTES_PER_SECOND),
            frame_size_bytes,
            threads,
            egress_price_per_gb: self.egress_price,
            any_format: self.any_format,
        }
    }
}

pub fn run(args: &LinkArgs, ui: &Ui) -> Result<()> {
    let measured = args.measure.measure(ClusteredRows::OnRequest, ui)?;
    let options = args.link.options(args.measure.frame_size, measured.threads);
    let link = LinkReport::new(options, measured.input.total_bytes, &measured.rows);
    ui.print_object("link", &link);
    let mut report = make_report(&link);
    report.warnings = summarize_warnings(&measured.rows);
    print_report(&report, &measured.info, &args.measure.files, ui)?;
    for line in &link.break_evens {
        ui.print_json(line);
    }
    for line in &link.recommendations {
        ui.print_json(line);
    }
    measured.result
}

fn make_report(link: &LinkReport) -> LevelsReport {
    let advice = link.recommendations.iter().map(|choice| Advice {
        goal: choice.mode.as_str().to_string(),
        choice: choice.flag.clone(),
        reason: quantity::time(choice.seconds),
    });
    LevelsReport {
        facts: describe_link(link),
        tables: vec![times_table(link), break_even_table(link)],
        advice: advice.collect(),
        ..LevelsReport::default()
    }
}

fn times_table(link: &LinkReport) -> Table {
    let time_unit = match link.rows.last() {
        Some(row) => TimeUnit::for_column(row.streaming_seconds),
        None => TimeUnit::for_seconds(1.0),
    };
    let unit = Unit::TimeIn(time_unit);
    let table = TableBuilder::new("link-table", "link_level", &link.rows)
        .add_visible("level", Unit::Text, |row| row.name())
        .add_data("codec", |row| row.codec.name)
        .add_data("level", |row| row.codec.level)
        .add_data("tar_bytes", |row| row.tar_bytes)
        .add_column("size", Unit::Bytes, "archive_bytes", |row| row.archive_bytes)
        .add_data("size_error_percent", |row| row.size_error_percent)
        .add_data("compress_seconds", |row| row.compress_seconds)
        .add_data("decompress_seconds", |row| row.decompress_seconds)
        .add_column("archive", unit, "archive_seconds", |row| row.stages.archive)
        .add_column("send", unit, "send_seconds", |row| row.stages.send)
        .add_column("decode", unit, "decode_seconds", |row| row.stages.decode)
        .add_column("place", unit, "place_seconds", |row| row.stages.place)
        .add_column("stream", unit, "streaming_seconds", |row| row.streaming_seconds)
        .add_column("sum", unit, "store_and_forward_seconds", |row| row.total_seconds(TransferMode::StoreAndForward))
        .add_data("slowest_stage", |row| row.slowest_stage());
    // On the terminal, a price takes the place of the bytes: there is no room for both.
    let has_price = link.options.egress_price_per_gb.is_some();
    let [bytes_heading, price_heading] = if has_price { ["", "price"] } else { ["egress", ""] };
    let mut table = table
        .add_column(bytes_heading, Unit::Bytes, "egress_bytes", |row| link.options.egress_bytes(row))
        .add_column(price_heading, Unit::Price, "egress_price", |row| link.options.egress_price(row))
        .finish();
    table.notes = vec![String::new(), TIMES_NOTE.to_string()];
    let errors = link.rows.iter().filter_map(|row| row.size_error_percent);
    let error_max = errors.fold(0.0, f64::max);
    if error_max > 0.0 {
        let error = quantity::percent(error_max);
        table.notes.push(format!("From a sample: sizes and send times are within {error}."));
    }
    if let Some(price) = link.options.egress_price_per_gb {
        let nodes = quantity::count_of(link.options.link.nodes.into(), "node");
        table.notes.push(format!("Price of egress to {nodes} at {price} per GB (10^9 bytes of archive)."));
    }
    let mut choices = link.recommendations.iter();
    let best = choices.find(|choice| choice.mode == TransferMode::Streaming);
    table.best_row = best.and_then(|best| link.rows.iter().position(|row| row.codec == best.codec));
    table.optional_columns = &[5, 4, 2, 3, 8];
    table
}

/// Compares each level with the next lighter one, for both modes of sending.
fn break_even_table(link: &LinkReport) -> Table {
    let break_evens_of_mode = |mode: TransferMode| link.break_evens.iter().filter(move |item| item.mode == mode);
    let rows: Vec<(&BreakEven, &BreakEven)> =
        break_evens_of_mode(TransferMode::Streaming).zip(break_evens_of_mode(TransferMode::StoreAndForward)).collect();
    let mut table = TableBuilder::new("break-even-table", "", &rows)
        .add_visible("level", Unit::Text, |(item, _)| codec_label(item.heavier_codec, item.heavier_level))
        .add_visible("against", Unit::Text, |(item, _)| codec_label(item.lighter_codec, item.lighter_level))
        .add_visible("streaming", Unit::Text, |(streaming, _)| show_bandwidth_range(streaming))
        .add_visible("store and forward", Unit::Text, |(_, forward)| show_bandwidth_range(forward))
        .finish();
    table.title = "Break-even: the bandwidths at which a level starts a node sooner than the row above it".to_string();
    if let Some(bits) = link.options.link.useful_bits_per_second() {
        let note = format!("Above {}, the window is the limit.", show_bandwidth(bits));
        table.notes.push(note);
    }
    table.optional_columns = &[3, 1];
    table
}

fn codec_label(name: &'static str, level: i32) -> String {
    FrameCodec { name, level }.to_string()
}

/// Formats the bandwidths at which the heavier level starts a node sooner: `below 297 Mbit/s`,
/// `any`, `none`.
fn show_bandwidth_range(item: &BreakEven) -> String {
    match item.heavier_is_sooner {
        BandwidthRange::Never => "none".to_string(),
        BandwidthRange::Always => "any".to_string(),
        BandwidthRange::Below(bits) => format!("below {}", show_bandwidth(bits)),
        BandwidthRange::Above(bits) => format!("above {}", show_bandwidth(bits)),
    }
}

fn describe_link(report: &LinkReport) -> Vec<String> {
    let link = &report.options.link;
    let window = quantity::bytes(link.window_bytes);
    let rate = quantity::rate(report.node_bytes_per_second);
    let limit = match report.limit {
        "bandwidth" if link.nodes > 1 => "a share of the bandwidth".to_string(),
        "bandwidth" => "the bandwidth".to_string(),
        _ => format!("a window of {window} per round trip"),
    };
    vec![
        format!(
            "link {}, round trip {}, {}, {} each",
            show_bandwidth(link.bandwidth_bits_per_second),
            show_rtt(link.rtt_seconds),
            quantity::count_of(link.nodes.into(), "node"),
            quantity::count_of(link.streams.into(), "stream"),
        ),
        format!("a node receives {rate} of archive; the limit is {limit}"),
        format!(
            "disks: read {} (--read-rate), place {} (--place-rate)",
            quantity::rate(report.options.read_bytes_per_second),
            quantity::rate(report.options.place_bytes_per_second)
        ),
    ]
}

/// Parses a bandwidth to bit/s: `1Gbit`, `100Mbit/s`, `12.5MB/s`, `940Mbps`. `b` is bits and `B` is bytes; k, M,
/// G and T are powers of 1000, and Ki, Mi, Gi and Ti are powers of 1024.
fn parse_bandwidth(text: &str) -> Result<f64, String> {
    /// One petabit per second. Larger values are typing errors.
    const BITS_MAX: f64 = 1e15;
    let error = || "bandwidths are above 0 and up to 1000 Tbit/s, like 1Gbit, 100Mbit, 12.5MB/s".to_string();
    let text = text.trim();
    let text = text.strip_suffix("/s").or(text.strip_suffix("ps")).unwrap_or(text);
    let (digits, factor) = match text.strip_suffix("bit").or(text.strip_suffix('b')) {
        Some(digits) => (digits, 1.0),
        None => (text.strip_suffix('B').ok_or_else(error)?, 8.0),
    };
    let number = values::parse_size(&format!("{digits}B")).map_err(|_| error())?;
    let bits = number as f64 * factor;
    if bits > 0.0 && bits <= BITS_MAX { Ok(bits) } else { Err(error()) }
}

/// Parses a disk's rate to bytes per second, written like a bandwidth: `1GB/s`, `500MiB/s`.
fn parse_rate(text: &str) -> Result<f64, String> {
    parse_bandwidth(text).map(|bits| bits / 8.0).map_err(|_| "rates are above 0, like 1GB/s, 500MB/s".to_string())
}

/// Parses a round-trip time to seconds: `60ms`, `0.5ms`, `500us`, `0`.
fn parse_rtt(text: &str) -> Result<f64, String> {
    /// Far above any real round-trip time.
    const RTT_MAX: Duration = Duration::from_secs(60);
    // A number without a unit would be seconds, which nobody means here.
    match values::parse_duration(text) {
        Ok(time) if time <= RTT_MAX && (time.is_zero() || text.trim().ends_with('s')) => Ok(time.as_secs_f64()),
        _ => Err("round trips are up to 60 s, with a unit, like 60ms, 0.5ms".to_string()),
    }
}

fn parse_price(text: &str) -> Result<f64, String> {
    /// Larger values are typing errors.
    const PRICE_MAX: f64 = 1e6;
    let message = format!("prices are 0 to {PRICE_MAX} per GB (10^9 bytes), like 0.09");
    values::parse_in_range(text, 0.0..=PRICE_MAX, &message)
}

/// Formats a bandwidth with three digits: `410 Mbit/s`, `1.25 Gbit/s`.
fn show_bandwidth(bits_per_second: f64) -> String {
    // 999.5 and above round to 1000: use the next unit.
    let (value, prefix) = match bits_per_second {
        bits if bits < 999.5 => (bits, ""),
        bits if bits < 999.5e3 => (bits / 1e3, "k"),
        bits if bits < 999.5e6 => (bits / 1e6, "M"),
        bits if bits < 999.5e9 => (bits / 1e9, "G"),
        bits => (bits / 1e12, "T"),
    };
    let number = quantity::significant(value);
    let number = if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { &number };
    format!("{number} {prefix}bit/s")
}

/// Formats seconds as `60 ms`, `0.5 ms` or `0 ms`.
fn show_rtt(seconds: f64) -> String {
    let text = format!("{:.3}", seconds * 1e3);
    format!("{} ms", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bandwidths_are_parsed() {
        for (text, bits) in [
            ("1Gbit", 1e9),
            ("100Mbit", 1e8),
            ("100 mbit/s", 1e8),
            ("12.5MB/s", 1e8),
            ("12.5MBps", 1e8),
            ("940Mbps", 940e6),
            ("940Mb/s", 940e6),
            ("56kbit", 56e3),
            ("1MiB/s", 8.0 * 1048576.0),
            ("1000bit", 1e3),
        ] {
            assert_eq!(parse_bandwidth(text), Ok(bits), "{text}");
        }
        for text in
            ["", "0Gbit", "-1Gbit", "nan", "infGbit", "1e9", "1", "1Gbyte", "1G", "Gbit", "1Xbit", "9999Tbit", "1é"]
        {
            assert!(parse_bandwidth(text).is_err(), "{text}");
        }
        assert!(parse_bandwidth("0").is_err_and(|error| error.contains("above 0")));
        assert_eq!(parse_rate("1GB/s"), Ok(1e9));
        assert!(parse_rate("x").is_err_and(|error| error.contains("1GB/s")));
    }

    #[test]
    fn round_trips_and_prices_are_parsed() {
        let rtts = ["60ms", "0", "0ms", "500us", "0.06s"].map(parse_rtt);
        assert_eq!(rtts, [Ok(0.06), Ok(0.0), Ok(0.0), Ok(0.0005), Ok(0.06)]);
        for text in ["", "60", "-1ms", "nan", "nanms", "1h", "61s", "ms"] {
            assert!(parse_rtt(text).is_err(), "{text}");
        }
        assert_eq!(["0.09", "0"].map(parse_price), [Ok(0.09), Ok(0.0)]);
        for text in ["", "-1", "nan", "inf", "1e99", "x"] {
            assert!(parse_price(text).is_err(), "{text}");
        }
    }

    #[test]
    fn bandwidths_and_round_trips_are_formatted() {
        let bandwidths = [410.4e6, 1.25e9, 1e9, 999.6e6, 56e3, 12.0, 99.96e9].map(show_bandwidth);
        assert_eq!(
            bandwidths,
            ["410 Mbit/s", "1.25 Gbit/s", "1 Gbit/s", "1 Gbit/s", "56 kbit/s", "12 bit/s", "100 Gbit/s"]
        );
        assert_eq!([0.06, 0.0, 0.0005].map(show_rtt), ["60 ms", "0 ms", "0.5 ms"]);
    }

    proptest! {
        #[test]
        fn hostile_text_never_panics(text in "[-+0-9.a-zA-Zµé%/ ]{0,12}") {
            let _ = (parse_bandwidth(&text), parse_rtt(&text), parse_price(&text));
        }

        #[test]
        fn formatted_bandwidths_can_be_parsed(log in 3.0f64..13.0) {
            let bits = 10f64.powf(log);
            let parsed = parse_bandwidth(&show_bandwidth(bits)).expect("a bandwidth");
            prop_assert!((parsed / bits - 1.0).abs() < 0.006);
        }
    }

    #[test]
    fn the_report_fits_80_columns() {
        let link = Link {
            bandwidth_bits_per_second: 1e9,
            rtt_seconds: 0.06,
            streams: 1,
            nodes: 3,
            window_bytes: WINDOW_BYTES,
        };
        let options = LinkOptions {
            link,
            read_bytes_per_second: READ_BYTES_PER_SECOND,
            place_bytes_per_second: PLACE_BYTES_PER_SECOND,
            frame_size_bytes: 8 << 20,
            threads: 2,
            egress_price_per_gb: Some(0.09),
            any_format: false,
        };
        let rows = [1, -1, 2, 3, 4].map(|level| crate::cli::levels::table::tests::row("zstd", level));
        let lines = make_report(&LinkReport::new(options, 100_000_000_000, &rows)).lines(80);
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{}", lines.join("\n"));
        insta::assert_snapshot!(lines.join("\n"));
    }
}
