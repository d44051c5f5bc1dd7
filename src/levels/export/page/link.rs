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
            "Which level boots a node soonest, by bandwidth, {}: the lowest line wins. Shown are the levels that win \
             somewhere, {} at most, and uncompressed where it is near.",
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

/// How many times the least a level may take to be seen: beyond, it is no choice.
const FACTOR_MAX: f64 = 1.5;

/// Per curve, its time as a multiple of the least of all, at each bandwidth.
fn factors(curves: &[Curve]) -> Vec<Vec<(f64, f64)>> {
    let least: Vec<f64> = (0..POINTS)
        .map(|at| {
            curves.iter().filter_map(|curve| curve.points.get(at)).map(|point| point.1).fold(f64::INFINITY, f64::min)
        })
        .collect();
    let factor = |((bandwidth, seconds), least): (&(f64, f64), &f64)| (*bandwidth, seconds / least.max(1e-9));
    curves.iter().map(|curve| curve.points.iter().zip(&least).map(factor).collect()).collect()
}

/// The curves to show: those that are the least at most of the bandwidths, and uncompressed, in their order.
fn chosen(factors: &[Vec<(f64, f64)>]) -> Vec<usize> {
    let wins = |number: usize| factors[number].iter().filter(|(_, factor)| *factor <= 1.0).count();
    let mut order: Vec<usize> = (1..factors.len()).filter(|number| wins(*number) > 0).collect();
    order.sort_by_key(|number| std::cmp::Reverse(wins(*number)));
    order.truncate(SERIES_MAX - 1);
    order.push(0);
    order.sort_unstable();
    order
}

/// The parts of a curve inside the picture, each to where it crosses the edge.
fn inside_of(points: &[(f64, f64)]) -> Vec<Vec<(f64, f64)>> {
    let is_inside = |point: &(f64, f64)| point.1 <= FACTOR_MAX;
    // Bandwidths are by their logarithm in the picture, so they are here.
    let crossing = |a: &(f64, f64), b: &(f64, f64)| {
        let part = (FACTOR_MAX - a.1) / (b.1 - a.1);
        ((a.0.ln() + (b.0.ln() - a.0.ln()) * part).exp(), FACTOR_MAX)
    };
    let mut parts: Vec<Vec<(f64, f64)>> = vec![Vec::new()];
    for (at, point) in points.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|before| points.get(before));
        let edge = before.filter(|before| is_inside(before) != is_inside(point)).map(|before| crossing(before, point));
        if let Some(part) = parts.last_mut() {
            part.extend(edge);
            if is_inside(point) {
                part.push(*point);
            }
        }
        if !is_inside(point) && parts.last().is_some_and(|part| !part.is_empty()) {
            parts.push(Vec::new());
        }
    }
    parts
}

fn curves(report: &LinkReport, way: Way) -> String {
    let curves = report.curves(way, BANDWIDTHS.0, BANDWIDTHS.1, POINTS);
    let factors = factors(&curves);
    let shown = chosen(&factors);
    let decades = (7..=11).map(|power| 10f64.powi(power));
    let x = Axis::log_exact("bandwidth (logarithmic)", BANDWIDTHS.0, BANDWIDTHS.1)
        .with_ticks_at(decades.map(|tick| (tick, show_bandwidth(tick))));
    let y = Axis::exact("time to a node, against the level that is soonest there", 1.0, FACTOR_MAX)
        .with_ticks(|factor| format!("{factor:.2}x"));
    let mut plot = Plot::new(PAPER, x, y, &format!("Time to a node by bandwidth, {}", way.as_str()));
    let mut ends: Vec<(usize, (f64, f64))> = Vec::new();
    for (number, of) in shown.iter().enumerate() {
        // A curve is cut where it leaves the picture, and goes on where it comes back.
        for part in inside_of(&factors[*of]).iter().filter(|part| part.len() > 1) {
            plot.curve(&format!("series s{number}"), part.iter().copied());
        }
        let inside = factors[*of].iter().rev().find(|(_, factor)| *factor <= FACTOR_MAX);
        ends.extend(inside.map(|end| (number, *end)));
    }
    // From the top down, so that names that would lie on each other give way downwards in the order of their curves.
    ends.sort_by(|(_, a), (_, b)| b.1.total_cmp(&a.1));
    for (number, end) in ends {
        plot.label_right_of(end, &format!("t{number}"), &curves[shown[number]].name);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_reach_the_edge() {
        let points = [(1e6, 2.0), (1e7, 1.0), (1e8, 1.25), (1e9, 1.75), (1e10, 3.0), (1e11, 1.0)];
        let parts = inside_of(&points);
        let parts: Vec<&Vec<(f64, f64)>> = parts.iter().filter(|part| !part.is_empty()).collect();
        assert_eq!(parts.len(), 2, "{parts:?}");
        let edges: Vec<f64> =
            parts.iter().flat_map(|part| part.iter()).filter(|at| at.1 == FACTOR_MAX).map(|at| at.0).collect();
        assert_eq!(edges.len(), 3, "{edges:?}");
        for (edge, expected) in edges.iter().zip([10f64.powf(6.5), 10f64.powf(8.5), 10f64.powf(10.75)]) {
            assert!((edge / expected - 1.0).abs() < 1e-9, "{edge} {expected}");
        }
        assert_eq!(inside_of(&[(1.0, 1.0), (2.0, 1.1)]), [vec![(1.0, 1.0), (2.0, 1.1)]]);
    }
}
