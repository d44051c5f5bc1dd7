//! The picture of size against time: one point per level, a line through the levels that no other beats, a ring around
//! the knee.

use slotpress_base::quantity;

use crate::levels::codec::label;
use crate::levels::recommend::{is_plain, pareto_curve, recommend};
use crate::levels::report::chart::{Axis, Paper, Plot, codec_color};
use crate::levels::{LevelRow, has_codecs, in_order};

/// Narrow, so that its text can be read on a phone.
const PAPER: Paper = Paper { width: 560.0, height: 360.0, left: 76.0, right: 20.0, top: 14.0, bottom: 50.0 };

/// The picture. Time is on a logarithmic axis, size is not.
pub fn picture(rows: &[LevelRow]) -> String {
    // A copy in memory would compress the scale for the others.
    let (plain, compressed): (Vec<&LevelRow>, Vec<&LevelRow>) =
        in_order(rows).into_iter().partition(|row| is_plain(row));
    let (shown, aside) = if compressed.is_empty() { (plain, Vec::new()) } else { (compressed, plain) };
    let seconds = |seconds: f64| seconds.max(1e-6);
    let at = |row: &LevelRow| (seconds(row.compress.median), row.output_bytes as f64);
    let sizes = || shown.iter().map(|row| row.output_bytes as f64);
    let least = sizes().fold(0.0, f64::max) * 0.005 + 1.0;
    let times = shown.iter().flat_map(|row| [row.compress.min, row.compress.median, row.compress.max]).map(seconds);
    let x = Axis::log("time to compress (logarithmic)", times).with_ticks(quantity::tick);
    let y = Axis::linear("", sizes(), least).with_size_ticks(|size| quantity::bytes(size as u64));
    let is_many = has_codecs(rows);
    let codecs = if is_many { codecs_of(&shown) } else { Vec::new() };
    let legend_lines = usize::from(is_many) + usize::from(!aside.is_empty());
    let paper = Paper { top: PAPER.top + LEGEND_HEIGHT * legend_lines as f64, ..PAPER };
    let mut plot = Plot::new(paper, x, y, "Size against time by level");
    legend(&mut plot, paper, &codecs, &aside);
    let own: Vec<LevelRow> = shown.iter().map(|row| (*row).clone()).collect();
    let curve = pareto_curve(&own);
    plot.curve("curve", curve.iter().map(|row| at(row)));
    let knee = recommend(rows).filter(|found| found.measured_well_enough).map(|found| found.knee);
    let is_knee = |row: &LevelRow| knee.as_ref().is_some_and(|knee| knee.is_of(row));
    let color = |row: &LevelRow| codec_color(&row.codec);
    for row in &shown {
        if row.compress.spread_percent() > WHISKER_PERCENT_MIN {
            let ends = (seconds(row.compress.min), seconds(row.compress.max));
            plot.whisker(&format!("s{}", color(row)), ends, row.output_bytes as f64);
        }
        let pale = if curve.iter().any(|best| best.is_same_codec(row)) { "" } else { " pale" };
        let name = if is_many { row.label() } else { format!("level {}", row.level) };
        plot.point(&format!("p{}{pale}", color(row)), at(row), &format!("{name}: {}", size_and_time(row)));
        if is_knee(row) {
            plot.ring("knee", at(row));
        }
    }
    // The knee gets its label first.
    let mut labelled = shown.clone();
    labelled.sort_by_key(|row| !is_knee(row));
    for row in labelled {
        let name = if is_many { label(&row.codec, row.level) } else { row.level.to_string() };
        let class = if is_knee(row) { "mark" } else { "" };
        plot.label_near(at(row), class, &name);
    }
    plot.finish()
}

/// Runs that differ by less than this, from the fastest to the slowest, would give whiskers shorter than a point.
const WHISKER_PERCENT_MIN: f64 = 3.0;

fn size_and_time(row: &LevelRow) -> String {
    format!("{}, {}", quantity::bytes(row.output_bytes), quantity::time(row.compress.median))
}

/// The codecs, in the order in which they are shown.
fn codecs_of<'a>(rows: &[&'a LevelRow]) -> Vec<&'a str> {
    let mut codecs: Vec<&str> = Vec::new();
    for row in rows {
        if !codecs.contains(&row.codec.as_str()) {
            codecs.push(&row.codec);
        }
    }
    codecs
}

const LEGEND_HEIGHT: f64 = 24.0;

/// The legend above the picture: colors of codecs, and rows that are not in it.
fn legend(plot: &mut Plot, paper: Paper, codecs: &[&str], aside: &[&LevelRow]) {
    let mut y = paper.top - LEGEND_HEIGHT + 8.0;
    for row in aside {
        plot.dot(&format!("p{}", codec_color(&row.codec)), (paper.left + 4.0, y - 4.0), &row.codec);
        let text = format!("{}, not in the picture: {}", row.label(), size_and_time(row));
        plot.text((paper.left + 13.0, y), "dim", "start", &text);
        y -= LEGEND_HEIGHT;
    }
    let mut x = paper.left;
    for codec in codecs {
        plot.dot(&format!("p{}", codec_color(codec)), (x + 4.0, y - 4.0), codec);
        plot.text((x + 13.0, y), "", "start", codec);
        x += 34.0 + 8.0 * codec.chars().count() as f64;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::levels::report::tests::{codec_rows, row, rows};

    #[test]
    fn a_point_per_level_and_one_knee() {
        let picture = picture(&rows());
        assert_eq!(picture.matches("r=\"4\"").count(), 5);
        assert_eq!(picture.matches("class=\"knee\"").count(), 1);
        assert_eq!(picture.matches("class=\"mark\"").count(), 1);
    }

    #[test]
    fn a_color_per_codec_and_a_legend() {
        let picture = picture(&codec_rows());
        for (codec, color, points) in [("zstd", "p1", 2), ("lz4", "p2", 1), ("lz4hc", "p5", 1)] {
            let dots = picture.matches(&format!("class=\"{color}")).count();
            assert_eq!(dots, points + 1, "{codec}: {picture}");
            assert!(picture.contains(&format!(">{codec}</text>")), "{codec}");
        }
        assert!(picture.contains(">none, not in the picture: 954 MiB, 50.0 ms</text>"), "{picture}");
    }

    #[test]
    fn whiskers_where_runs_scatter() {
        let mut rows = rows();
        rows[1].compress.max = 2.0 * rows[1].compress.median;
        rows.iter_mut().skip(2).for_each(|row| row.compress.max = row.compress.median);
        rows[0].compress.max = rows[0].compress.median;
        assert_eq!(picture(&rows).matches("class=\"whisker s1\"").count(), 3);
    }

    proptest! {
        /// Whatever was measured, every number of the picture is finite, and few ticks are drawn.
        #[test]
        fn any_rows_make_a_picture(levels in proptest::collection::vec((1u64..1 << 50, 0f64..1e6), 0..12)) {
            let rows: Vec<LevelRow> = levels
                .iter()
                .enumerate()
                .map(|(level, (size, seconds))| {
                    let mut row = row(level as i32 + 1);
                    row.output_bytes = *size;
                    row.compress.median = *seconds;
                    row
                })
                .collect();
            let picture = picture(&rows);
            prop_assert!(!picture.contains("NaN") && !picture.contains("inf"), "{}", picture);
            prop_assert!(picture.matches("class=\"grid\"").count() < 60);
        }
    }
}
