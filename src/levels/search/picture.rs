//! A picture of size against CPU time: stock levels by number, and what beats them; what nothing beats is joined by a
//! line. Readable on light and dark pages.

use crate::{
    archive::layout::RecordLayout,
    levels::{
        report::{
            Subject,
            chart::{Axis, Paper, Plot},
        },
        search::{Outcome, judge::Point},
    },
};

const FILE: Paper = Paper { width: 760.0, height: 480.0, left: 70.0, right: 30.0, top: 90.0, bottom: 54.0 };
const IN_PAGE: Paper = Paper { width: 560.0, height: 380.0, left: 66.0, right: 24.0, top: 14.0, bottom: 50.0 };

/// Which color is what.
pub const COLORS: &str = "gray: stock levels; blue: other settings; orange: with clustered records";

/// The whole file.
pub fn svg(subject: &Subject, outcome: &Outcome) -> String {
    let mut plot = size_against_time(FILE, outcome);
    let title = "Archive size against CPU time: stock levels, and settings that beat them";
    plot.text((FILE.left, 26.0), "", "start", title);
    plot.text((FILE.left, 46.0), "dim", "start", &format!("{}: {}", subject.name, subject.describe()));
    plot.text((FILE.left, 68.0), "dim", "start", COLORS);
    plot.finish_file()
}

/// The picture for a page, without headings.
pub fn in_page(outcome: &Outcome) -> String {
    size_against_time(IN_PAGE, outcome).finish()
}

fn size_against_time(paper: Paper, outcome: &Outcome) -> Plot {
    let points = outcome.in_order();
    let at = |point: &Point| (point.time_ratio.clamp(1e-3, 1e3), 100.0 * point.size_ratio);
    let x = Axis::log(
        "CPU time to compress, with clustering, against the first level (logarithmic)",
        points.iter().map(|point| at(point).0),
    );
    let y = Axis::linear("", points.iter().map(|point| at(point).1), 0.2);
    let x = x.with_ticks(|factor| format!("{}x", rounded(factor)));
    let y = y.with_ticks(|percent| format!("{} %", rounded(percent)));
    let mut plot = Plot::new(paper, x, y, "Size against CPU time of zstd's settings");
    plot.curve("curve", points.iter().filter(|point| point.is_on_front).map(|point| at(point)));
    for point in &points {
        let flags = point.variant.flags(&outcome.space);
        plot.point(class(point), at(point), &format!("{flags}: {:.1} %, {:.2}x", at(point).1, point.time_ratio));
    }
    for point in &points {
        match (point.variant.stock_level(), point.variant.preset(&outcome.space)) {
            (Some(level), _) => plot.label_near(at(point), "", &level.to_string()),
            (None, Some(preset)) => plot.label_near(at(point), "", preset),
            (None, None) => {}
        }
    }
    plot
}

fn class(point: &Point) -> &'static str {
    match (point.variant.stock_level(), point.variant.layout) {
        (Some(_), _) => "beaten",
        (None, RecordLayout::Verbatim) => "point",
        (None, RecordLayout::Clustered) => "loss",
    }
}

fn rounded(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

#[cfg(test)]
mod tests {
    use {
        super::*,
        crate::levels::{report::tests::subject, search::view::tests::outcome},
        proptest::prelude::*,
    };

    #[test]
    fn a_point_for_each() {
        let picture = svg(&subject(), &outcome());
        assert_eq!(picture.matches("r=\"4\"").count(), 6);
        assert!(picture.contains(">fast</text>") && picture.contains(">10</text>"));
        assert!(!svg(&Subject { name: "<&>".to_string(), ..subject() }, &outcome()).contains("<&>"));
    }

    proptest! {
        /// Whatever was measured, every number of the picture is finite.
        #[test]
        fn any_points_make_a_picture(values in proptest::collection::vec((0f64..9.0, 0f64..1e4), 0..6)) {
            let mut outcome = outcome();
            outcome.points.truncate(values.len());
            for (point, (size_ratio, time_ratio)) in outcome.points.iter_mut().zip(values) {
                (point.size_ratio, point.time_ratio) = (size_ratio, time_ratio);
            }
            let picture = svg(&subject(), &outcome);
            prop_assert!(!picture.contains("NaN") && !picture.contains("inf"), "{}", picture);
            prop_assert!(picture.matches("class=\"grid\"").count() < 60);
        }
    }
}
