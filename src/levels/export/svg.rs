//! A picture of size against time: one point per level, the levels that no other beats joined by a line, the knee
//! marked. Readable on light and dark pages; no script, no font, nothing from elsewhere.

use crate::levels::{
    LevelRow,
    export::{
        Subject,
        chart::{Axis, Paper, Plot, SERIES_MAX},
        show_bytes, show_seconds,
    },
    has_codecs, in_order,
    recommend::{pareto_curve, recommend},
};

const FILE: Paper = Paper { width: 760.0, height: 460.0, left: 90.0, right: 30.0, top: 66.0, bottom: 54.0 };
/// Narrow, so that its text can be read where a page is scaled down to a phone.
const IN_PAGE: Paper = Paper { width: 560.0, height: 360.0, left: 76.0, right: 20.0, top: 14.0, bottom: 50.0 };

/// The whole file.
pub fn svg(subject: &Subject, rows: &[LevelRow]) -> String {
    let mut plot = size_against_time(FILE, rows);
    let what = if has_codecs(rows) { "codec and level" } else { "level" };
    plot.text((FILE.left, 26.0), "", "start", &format!("Archive size against compress time, by {what}"));
    plot.text((FILE.left, 46.0), "dim", "start", &format!("{}: {}", subject.name, subject.describe()));
    plot.finish_file()
}

/// The picture for a page, without headings.
pub fn in_page(rows: &[LevelRow]) -> String {
    size_against_time(IN_PAGE, rows).finish()
}

/// Time by its logarithm, size as it is.
fn size_against_time(paper: Paper, rows: &[LevelRow]) -> Plot {
    let seconds = |row: &LevelRow| row.compress.median.max(1e-6);
    let at = |row: &LevelRow| (seconds(row), row.output_bytes as f64);
    let least = rows.iter().map(|row| row.output_bytes as f64).fold(0.0, f64::max) * 0.005 + 1.0;
    let x = Axis::log("time to compress (logarithmic)", rows.iter().map(seconds)).with_ticks(show_tick);
    let y = Axis::linear("", rows.iter().map(|row| row.output_bytes as f64), least)
        .with_size_ticks(|size| show_bytes(size as u64));
    let is_many = has_codecs(rows);
    let codecs = codecs_of(rows);
    let paper = if is_many { Paper { top: paper.top + LEGEND_HEIGHT, ..paper } } else { paper };
    let mut plot = Plot::new(paper, x, y, "Size against time by level");
    if is_many {
        legend(&mut plot, paper, &codecs);
    }
    let curve = pareto_curve(rows);
    plot.curve("curve", curve.iter().map(|row| at(row)));
    let knee = recommend(rows).map(|recommendation| recommendation.knee);
    for row in in_order(rows) {
        let class = if curve.iter().any(|best| best.is_same_codec(row)) { "point" } else { "beaten" };
        let class = &match codecs.iter().position(|codec| is_many && *codec == row.codec) {
            Some(number) => format!("{class} {}", color_of(number)),
            None => class.to_string(),
        };
        let (size, time) = (show_bytes(row.output_bytes), show_seconds(row.compress.median));
        let name = if is_many { row.label() } else { format!("level {}", row.level) };
        plot.point(class, at(row), &format!("{name}: {size}, {time}"));
        let is_knee = knee.as_ref().is_some_and(|knee| knee.is_of(row));
        if is_knee {
            plot.ring("knee", at(row));
        }
        let name = if is_many { row.label() } else { row.level.to_string() };
        let label = if is_knee { format!("{name} (knee)") } else { name };
        plot.label_near(at(row), if is_knee { "mark" } else { "" }, &label);
    }
    plot
}

/// The codecs, in the order in which they were first measured.
fn codecs_of(rows: &[LevelRow]) -> Vec<&str> {
    let mut codecs: Vec<&str> = Vec::new();
    for row in rows {
        if !codecs.contains(&row.codec.as_str()) {
            codecs.push(&row.codec);
        }
    }
    codecs
}

/// The class of the color of a codec; those beyond the colors there are share the last.
fn color_of(number: usize) -> String {
    format!("p{}", if number + 1 < SERIES_MAX { number + 1 } else { 0 })
}

const LEGEND_HEIGHT: f64 = 24.0;

/// Which color is which codec, above the picture.
fn legend(plot: &mut Plot, paper: Paper, codecs: &[&str]) {
    let mut x = paper.left;
    for (number, codec) in codecs.iter().enumerate() {
        let y = paper.top - LEGEND_HEIGHT + 8.0;
        plot.dot(&color_of(number), (x + 4.0, y - 4.0), codec);
        plot.text((x + 13.0, y), "", "start", codec);
        x += 34.0 + 8.0 * codec.chars().count() as f64;
    }
}

/// `0.5 s`, `20 s`
pub fn show_tick(seconds: f64) -> String {
    let rounded = format!("{:.6}", if seconds < 0.1 { seconds * 1e3 } else { seconds });
    let shown = rounded.trim_end_matches('0').trim_end_matches('.');
    format!("{} {}", shown.get(..6).unwrap_or(shown), if seconds < 0.1 { "ms" } else { "s" })
}

#[cfg(test)]
mod tests {
    use {
        super::*,
        crate::levels::export::tests::{row, rows, subject},
        proptest::prelude::*,
    };

    #[test]
    fn a_point_per_level_and_one_knee() {
        let picture = svg(&subject(), &rows());
        assert_eq!(picture.matches("r=\"4\"").count(), 5);
        assert_eq!(picture.matches("class=\"knee\"").count(), 1);
        assert_eq!(picture.matches("(knee)").count(), 1);
        assert!(!svg(&Subject { name: "<&>".to_string(), ..subject() }, &rows()).contains("<&>"));
    }

    #[test]
    fn a_color_per_codec_and_a_legend() {
        let mut rows = rows();
        (rows[3].codec, rows[4].codec) = ("lz4".to_string(), "zlib".to_string());
        let picture = svg(&subject(), &rows);
        for (codec, color, points) in [("zstd", "p1", 3), ("lz4", "p2", 1), ("zlib", "p3", 1)] {
            assert_eq!(picture.matches(&format!("{color}\" cx")).count(), points + 1, "{codec}: {picture}");
            assert!(picture.contains(&format!(">{codec}</text>")), "{codec}");
        }
        assert!((0..20).all(|number| ["p0", "p1", "p2", "p3", "p4", "p5"].contains(&color_of(number).as_str())));
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
            let picture = svg(&subject(), &rows);
            prop_assert!(!picture.contains("NaN") && !picture.contains("inf"), "{}", picture);
            prop_assert!(picture.matches("class=\"grid\"").count() < 60);
        }
    }
}
