//! The section of the link: which level boots a node soonest at which bandwidth, and on the link that was asked about.

use {
    super::{
        Section,
        html::{Cell, Table, figure, list, paragraph},
    },
    crate::levels::{
        export::{
            chart::{Axis, Paper, Plot, SERIES_MAX},
            show_bytes, show_seconds,
            svg::show_tick,
        },
        link::{
            export::describe,
            model::Way,
            report::{Curve, LinkReport},
            units::show_bandwidth,
        },
    },
};

const PAPER: Paper = Paper { width: 560.0, height: 360.0, left: 66.0, right: 104.0, top: 26.0, bottom: 50.0 };

/// What is drawn: from a slow home to a fast data center.
const BANDWIDTHS: (f64, f64) = (1e7, 1e11);
/// Enough that curves look smooth.
const POINTS: usize = 81;

/// The section.
pub fn section(report: &LinkReport) -> Option<Section> {
    if report.rows.len() < 2 {
        return None;
    }
    let about = "Time from a ledger here to a node that can be started there: archive, send, decode, place.";
    let mut html = paragraph(about) + &list(&describe(report));
    let sentences = report.recommendations.iter().map(|choice| {
        let way = choice.way.as_str();
        format!("{way}: {}: {}", choice.flag, choice.reason)
    });
    html += &list(&sentences.collect::<Vec<_>>());
    for way in Way::ALL {
        let caption = format!(
            "Time to a node by bandwidth, {}: of the levels that boot it soonest somewhere, the {} most often soonest, \
             and uncompressed.",
            way.as_str(),
            SERIES_MAX - 1
        );
        html += &figure(&curves(report, way), &caption);
    }
    html += &table(report);
    html += &paragraph("Break-even, streaming:");
    let of = |way: Way| -> Vec<String> {
        report.break_evens.iter().filter(|one| one.way == way).map(|one| one.text.clone()).collect()
    };
    html += &list(&of(Way::Streaming));
    html += &paragraph("Break-even, store and forward:");
    html += &list(&of(Way::StoreAndForward));
    Some(Section { id: "link", heading: "Break-even", html })
}

/// Uncompressed, and the curves that are lowest at most of the bandwidths, in their order.
fn chosen(curves: &[Curve]) -> Vec<&Curve> {
    let lowest = |at: usize| {
        let seconds = |number: &usize| curves[*number].points[at].1;
        (0..curves.len()).min_by(|a, b| seconds(a).total_cmp(&seconds(b)))
    };
    let mut wins = vec![0usize; curves.len()];
    for at in 0..curves.first().map_or(0, |curve| curve.points.len()) {
        if let Some(best) = lowest(at) {
            wins[best] += 1;
        }
    }
    let mut order: Vec<usize> = (1..curves.len()).filter(|number| wins[*number] > 0).collect();
    order.sort_by_key(|number| std::cmp::Reverse(wins[*number]));
    order.truncate(SERIES_MAX - 1);
    order.push(0);
    order.sort_unstable();
    order.into_iter().map(|number| &curves[number]).collect()
}

fn curves(report: &LinkReport, way: Way) -> String {
    let curves = report.curves(way, BANDWIDTHS.0, BANDWIDTHS.1, POINTS);
    let shown = chosen(&curves);
    let decades = (7..=11).map(|power| 10f64.powi(power));
    let x = Axis::log_exact("bandwidth (logarithmic)", BANDWIDTHS.0, BANDWIDTHS.1)
        .with_ticks_at(decades.map(|tick| (tick, show_bandwidth(tick))));
    let seconds = shown.iter().flat_map(|curve| &curve.points).map(|(_, seconds)| *seconds);
    let y = Axis::log("time to a node (logarithmic)", seconds).with_ticks(show_tick);
    let mut plot = Plot::new(PAPER, x, y, &format!("Time to a node by bandwidth, {}", way.as_str()));
    for (number, curve) in shown.iter().enumerate() {
        plot.curve(&format!("series s{number}"), curve.points.iter().copied());
    }
    // From the top down, so that names that would lie on each other give way downwards in the order of their curves.
    let mut named: Vec<(usize, &&Curve)> = shown.iter().enumerate().collect();
    let end = |curve: &Curve| curve.points.last().copied().unwrap_or_default();
    named.sort_by(|(_, a), (_, b)| end(b).1.total_cmp(&end(a).1));
    for (number, curve) in named {
        plot.label_right_of(end(curve), &format!("t{number}"), &curve.name);
    }
    plot.finish()
}

fn table(report: &LinkReport) -> String {
    let mut columns =
        vec!["level", "archive size", "archive", "send", "decode", "place", "streaming", "store and forward", "egress"];
    if report.has_price() {
        columns.push("price");
    }
    let mut table = Table::new("link-table", &columns);
    let best = report.recommendations.iter().find(|choice| choice.way == Way::Streaming);
    for row in &report.rows {
        let is_best = best.is_some_and(|best| (&best.codec, best.level) == (&row.load.codec, row.load.level));
        let time = |seconds: f64| Cell::number(show_seconds(seconds), seconds);
        let mut cells = vec![
            Cell::word(row.load.name()),
            Cell::number(show_bytes(row.load.archive_bytes), row.load.archive_bytes as f64),
            time(row.archive_seconds),
            time(row.send_seconds),
            time(row.decode_seconds),
            time(row.place_seconds),
            time(row.streaming_seconds),
            time(row.store_and_forward_seconds),
            Cell::number(show_bytes(row.egress_bytes), row.egress_bytes as f64),
        ];
        if report.has_price() {
            cells.push(row.egress_price.map_or_else(Cell::none, |price| Cell::number(format!("{price:.2}"), price)));
        }
        table.row(if is_best { "knee" } else { "" }, &cells);
    }
    table.finish()
}
