//! The section of a link: times at each level, break-even bandwidths, recommendations.

use slotpress_base::TimeUnit;
use slotpress_base::quantity::{self};

use super::break_even::BreakEven;
use super::model::Way;
use super::network::{CongestionControl, Limit};
use super::question::LinkRow;
use super::report::LinkReport;
use super::units::{show_bandwidth, show_loss, show_rtt};
use crate::levels::REFERENCE_CODEC;
use crate::levels::codec::label;
use crate::levels::report::table::Emphasis;
use crate::levels::report::{Advice, Block, Cell, Column, Section, Table, Unit, Value};

/// The meaning of the times.
const WHAT_IS_COUNTED: &str = "Time until storages are on the node's disk; the validator's own start, the same at \
    every level, comes on top. Streaming: all stages at once; store and forward: one after the other.";

/// The section of a report.
pub fn section(report: &LinkReport) -> Section {
    let mut blocks = vec![Block::Facts(describe(report))];
    blocks.extend([Block::Table(table(report)), Block::Text(below(report)), Block::Table(break_evens(report))]);
    let advice = report.recommendations.iter().map(|choice| Advice {
        what: choice.way.as_str().to_string(),
        choice: choice.flag.clone(),
        reason: choice.reason.clone(),
    });
    blocks.push(Block::Advice(advice.collect()));
    Section { id: "link", heading: "Break-even", blocks }
}

fn table(report: &LinkReport) -> Table {
    const WIDTH: usize = 8;
    let rows: Vec<&LinkRow> = report.rows.iter().collect();
    let best = report.recommendations.iter().find(|choice| choice.way == Way::Streaming);
    let unit = |row: &LinkRow| TimeUnit::of_column(row.times.streaming_seconds);
    let unit = Unit::TimeIn(report.rows.last().map_or(TimeUnit::Seconds, unit));
    let time = |heading: &str, short: &str, name: &str, spare: u8| {
        Column::shown(heading, unit).headed(short, WIDTH).spare(spare).name(format!("{name}_seconds"), 6)
    };
    // Where egress has a price, the terminal has no room for its bytes.
    let egress = Column::shown("egress", Unit::Bytes).name("egress_bytes", 0);
    let price = Column::named("egress_price").decimals(4);
    let (egress, price) = match report.has_price() {
        true => (
            egress,
            Column { name: price.name, decimals: 4, ..Column::shown("price", Unit::Price).wide(WIDTH).spare(1) },
        ),
        false => (egress.wide(WIDTH).spare(1), price),
    };
    Table::of(&rows)
        .kind("link_level")
        .column(Column::on_terminal("level", Unit::Text, 7).left(false), |row: &LinkRow| {
            short_name(&row.load.codec, row.load.level)
        })
        .column(Column::shown("level", Unit::Text), |row| row.load.name())
        .column(Column::named("codec"), |row| row.load.codec.clone())
        .column(Column::named("level"), |row| row.load.level)
        .column(Column::named("tar_bytes"), |row| row.load.tar_bytes)
        .column(Column::shown("size", Unit::Bytes).wide(WIDTH).name("archive_bytes", 0), |row| {
            Cell::from(row.load.archive_bytes).with_error(row.load.size_error_percent)
        })
        .column(Column::named("size_error_percent").decimals(3), |row| row.load.size_error_percent)
        .column(Column::named("compress_seconds").decimals(6), |row| row.load.compress_seconds)
        .column(Column::named("decompress_seconds").decimals(6), |row| row.load.decompress_seconds)
        .column(time("archive", "archive", "archive", 3), |row| row.times.seconds[0])
        .column(time("send", "send", "send", 2), |row| row.times.seconds[1])
        .column(time("decode", "decode", "decode", 4), |row| row.times.seconds[2])
        .column(time("place", "place", "place", 5), |row| row.times.seconds[3])
        .column(time("streaming", "stream", "streaming", 0), |row| row.times.streaming_seconds)
        .column(time("store and forward", "sum", "store_and_forward", 0), |row| row.times.total(Way::StoreAndForward))
        .column(Column::named("slowest_stage"), |row| row.times.slowest().as_str())
        .column(egress, |row| row.egress_bytes)
        .column(price, |row| row.egress_price)
        .emphasis(|row| match best {
            Some(best) if (&best.codec, best.level) == (&row.load.codec, row.load.level) => Emphasis::Best,
            _ => Emphasis::Plain,
        })
        .finish("link-table")
}

/// Notes below the table.
fn below(report: &LinkReport) -> Vec<String> {
    let mut lines = vec![WHAT_IS_COUNTED.to_string()];
    let error = report.rows.iter().filter_map(|row| row.load.size_error_percent).fold(0.0, f64::max);
    if error > 0.0 {
        lines.push(format!("Of a sample: sizes, and times to send, are within {}.", quantity::percent(error)));
    }
    if let Some(price) = report.question.egress_price_per_gb {
        let nodes = quantity::count_of(report.question.link.nodes.into(), "node");
        lines.push(format!("Price of egress to {nodes} at {price} per GB (10^9 bytes of archive)."));
    }
    lines
}

/// A level against the next lighter one, for each way of sending.
fn break_evens(report: &LinkReport) -> Table {
    let of = |way: Way| report.break_evens.iter().filter(move |one| one.way == way);
    let pairs: Vec<(&BreakEven, &BreakEven)> = of(Way::Streaming).zip(of(Way::StoreAndForward)).collect();
    let link = &report.question.link;
    let limit = match (link.useful_bits_per_second(), link.with_bandwidth(f64::MAX).limit()) {
        (Some(bits), Limit::Loss) => format!("From {} on, loss is the limit.", show_bandwidth(bits)),
        (Some(bits), _) => format!("From {} on, the window is the limit.", show_bandwidth(bits)),
        (None, _) => String::new(),
    };
    let bandwidths = |way: Way| {
        let width = of(way).map(|one| one.heavier_at().len()).max().unwrap_or_default();
        Column::shown(way.as_str(), Unit::Text).wide(width.max(way.as_str().len()) + 1)
    };
    Table::of(&pairs.iter().collect::<Vec<_>>())
        .title("Break-even: the bandwidths at which a level starts a node sooner than the next lighter one")
        .footnote(limit)
        .column(Column::shown("level", Unit::Text).wide(8), |(one, _)| {
            short_name(&one.heavier_codec, one.heavier_level)
        })
        .column(Column::shown("against", Unit::Text).wide(8).spare(1), |(one, _)| {
            short_name(&one.lighter_codec, one.lighter_level)
        })
        .column(bandwidths(Way::Streaming), |(streaming, _)| streaming.heavier_at())
        .column(bandwidths(Way::StoreAndForward).spare(2), |(_, stored)| stored.heavier_at())
        .finish("break-even-table")
}

/// For a narrow column: a number for zstd, otherwise codec and level.
fn short_name(codec: &str, level: i32) -> Value {
    if codec == REFERENCE_CODEC { level.into() } else { label(codec, level).into() }
}

/// The link and the machines at its ends.
fn describe(report: &LinkReport) -> Vec<String> {
    let link = &report.question.link;
    let ends = &report.question.ends;
    let control = match link.congestion_control {
        CongestionControl::Reno => "Reno",
        CongestionControl::Cubic => "CUBIC",
        CongestionControl::Bbr => "BBR",
    };
    let limit = match report.limit {
        Limit::Bandwidth if link.nodes > 1 => "a share of the bandwidth".to_string(),
        Limit::Bandwidth => "the bandwidth".to_string(),
        Limit::Window => format!("a window of {} per round trip", quantity::bytes(link.window_bytes)),
        Limit::Loss => format!("loss, as {control} answers to it"),
    };
    vec![
        format!(
            "link {}, round trip {}, loss {}, {control}, {}, {} each",
            show_bandwidth(link.bandwidth_bits_per_second),
            show_rtt(link.rtt_seconds),
            show_loss(link.loss),
            quantity::count_of(link.nodes.into(), "node"),
            quantity::count_of(link.streams.into(), "stream"),
        ),
        format!("a node gets {} of archive; the limit is {limit}", quantity::rate(report.node_bytes_per_second)),
        format!(
            "disks read {} (--read-rate) and place {} (--place-rate)",
            quantity::rate(ends.read_bytes_per_second),
            quantity::rate(ends.place_bytes_per_second)
        ),
    ]
}
