//! The chart of a link: time to a node by bandwidth.

use super::model::Way;
use super::question::LinkRow;
use super::report::LinkReport;
use super::units::show_bandwidth;
use crate::levels::report::chart::{Axis, DASHES, Paper, Plot, codec_color};

const PAPER: Paper = Paper { width: 560.0, height: 360.0, left: 66.0, right: 44.0, top: 26.0, bottom: 50.0 };

/// The bandwidths of the chart: from a slow home connection to a fast data center.
const BANDWIDTHS: (f64, f64) = (1e7, 1e11);
/// Enough that curves look smooth.
const POINTS: usize = 81;

/// Names of curves stand above the picture, beside each other: at their ends they would lie on other curves.
const LEGEND_COLUMNS: usize = 3;
const LEGEND_WIDTH: f64 = 150.0;
const LEGEND_HEIGHT: f64 = 20.0;

/// More lines in one picture cannot be told apart.
const CURVES_MAX: usize = DASHES;

/// A level that takes longer than this multiple of the shortest time is no choice, and is not shown.
const FACTOR_MAX: f64 = 1.5;

/// Per row, its time as a multiple of the least of all, at bandwidths in bit/s.
fn factors(report: &LinkReport, way: Way) -> Vec<Vec<(f64, f64)>> {
    let (from, to) = BANDWIDTHS;
    let mut curves = vec![Vec::new(); report.rows.len()];
    for at in 0..POINTS {
        let bandwidth = from * (to / from).powf(at as f64 / (POINTS - 1) as f64);
        let seconds = |row: &LinkRow| report.question.seconds_at(&row.load, way, bandwidth);
        let seconds: Vec<f64> = report.rows.iter().map(seconds).collect();
        let least = seconds.iter().copied().fold(f64::INFINITY, f64::min).max(1e-9);
        curves.iter_mut().zip(seconds).for_each(|(curve, seconds)| curve.push((bandwidth, seconds / least)));
    }
    curves
}

/// The curves to show: those that are the least at most of the bandwidths, and uncompressed, in their order.
fn chosen(factors: &[Vec<(f64, f64)>]) -> Vec<usize> {
    let wins = |number: usize| factors[number].iter().filter(|(_, factor)| *factor <= 1.0).count();
    let mut order: Vec<usize> = (1..factors.len()).filter(|number| wins(*number) > 0).collect();
    order.sort_by_key(|number| std::cmp::Reverse(wins(*number)));
    order.truncate(CURVES_MAX);
    order.push(0);
    order.sort_unstable();
    order
}

/// The parts of a curve inside the picture, cut at the edge.
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

/// Time to a node by bandwidth, as a multiple of the least.
pub fn picture(report: &LinkReport, way: Way) -> String {
    let factors = factors(report, way);
    let shown = chosen(&factors);
    let decades = (7..=11).map(|power| 10f64.powi(power));
    let x = Axis::log_exact("bandwidth (logarithmic)", BANDWIDTHS.0, BANDWIDTHS.1)
        .with_ticks_at(decades.map(|tick| (tick, show_bandwidth(tick))));
    let y = Axis::exact("time to a node, against the level that is soonest there", 1.0, FACTOR_MAX)
        .with_ticks(|factor| format!("{factor:.2}x"));
    let legend_height = shown.len().div_ceil(LEGEND_COLUMNS) as f64 * LEGEND_HEIGHT;
    let paper = Paper { top: PAPER.top + legend_height, height: PAPER.height + legend_height, ..PAPER };
    let mut plot = Plot::new(paper, x, y, &format!("Time to a node by bandwidth, {}", way.as_str()));
    let looks = looks(&shown.iter().map(|of| report.rows[*of].load.codec.as_str()).collect::<Vec<_>>());
    for (number, (of, (color, dash))) in shown.iter().zip(looks).enumerate() {
        let class = format!("series s{color} d{dash}");
        for part in inside_of(&factors[*of]).iter().filter(|part| part.len() > 1) {
            plot.curve(&class, part.iter().copied());
        }
        let (column, row) = (number % LEGEND_COLUMNS, number / LEGEND_COLUMNS);
        let place = (PAPER.left + column as f64 * LEGEND_WIDTH, 14.0 + row as f64 * LEGEND_HEIGHT);
        plot.key(&class, place, &report.rows[*of].load.name());
    }
    plot.finish()
}

/// Color and dashes of each curve: dashes number the curves of a codec.
fn looks(codecs: &[&str]) -> Vec<(usize, usize)> {
    let place = |at: usize| codecs[..at].iter().filter(|codec| **codec == codecs[at]).count();
    (0..codecs.len()).map(|at| (codec_color(codecs[at]), place(at) % DASHES)).collect()
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
