//! A picture of size against CPU time: stock levels by number, and what beats them; what nothing beats is joined by a
//! line. Readable on light and dark pages.

use {
    super::in_order,
    crate::{
        archive::layout::RecordLayout,
        levels::{
            export::{
                Subject,
                svg::{line, multiples, round_step, text},
            },
            search::{Outcome, judge::Point},
        },
    },
    std::fmt::Write,
};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 90.0;
const BOTTOM: f64 = 62.0;

const STYLE: &str = "\
svg{background:#fff;font:13px system-ui,sans-serif}\
text{fill:#222}.dim{fill:#666}.axis{stroke:#888}.grid{stroke:#e4e4e4}\
.curve{fill:none;stroke:#c05621;stroke-width:1.5}.stock{fill:#777}.verbatim{fill:#2b6cb0}.clustered{fill:#c05621}\
@media(prefers-color-scheme:dark){svg{background:#16181c}text{fill:#ddd}.dim{fill:#9a9a9a}.axis{stroke:#777}\
.grid{stroke:#2c2f36}.curve{stroke:#f6ad55}.stock{fill:#999}.verbatim{fill:#7fb2e5}.clustered{fill:#f6ad55}}";

/// The whole file.
pub fn svg(subject: &Subject, outcome: &Outcome) -> String {
    let points = in_order(outcome);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
         height=\"{HEIGHT}\" role=\"img\" aria-label=\"Size against CPU time of zstd's settings\">\n<style>{STYLE}</style>\n"
    );
    text(&mut out, LEFT, 26.0, "", "start", "Archive size against CPU time: stock levels, and settings that beat them");
    text(&mut out, LEFT, 46.0, "dim", "start", &format!("{}: {}", subject.name, subject.describe()));
    let scale = Scale::of(&points);
    legend(&mut out, &points);
    axes(&mut out, &scale);
    let curve = points.iter().filter(|point| point.is_on_front).map(|point| scale.place(point));
    let curve: Vec<String> = curve.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ = writeln!(out, "<polyline class=\"curve\" points=\"{}\"/>", curve.join(" "));
    draw(&mut out, &scale, &points, outcome);
    out + "</svg>\n"
}

/// Time by its logarithm, size as it is; both against the reference.
struct Scale {
    log_time: (f64, f64),
    size_percent: (f64, f64),
}

impl Scale {
    fn of(points: &[&Point]) -> Self {
        let range = |values: Vec<f64>, least: f64| {
            let min = values.iter().copied().fold(f64::INFINITY, f64::min);
            let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            if min > max {
                return (0.0, 1.0);
            }
            let margin = ((max - min) * 0.08).max(least);
            (min - margin, max + margin)
        };
        Self {
            log_time: range(points.iter().map(|point| log_time(point)).collect(), 0.02),
            size_percent: range(points.iter().map(|point| 100.0 * point.size_ratio).collect(), 0.2),
        }
    }

    fn x(&self, log_time: f64) -> f64 {
        let (from, to) = self.log_time;
        LEFT + (log_time - from) / (to - from) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, size_percent: f64) -> f64 {
        let (from, to) = self.size_percent;
        HEIGHT - BOTTOM - (size_percent - from) / (to - from) * (HEIGHT - TOP - BOTTOM)
    }

    fn place(&self, point: &Point) -> (f64, f64) {
        (self.x(log_time(point)), self.y(100.0 * point.size_ratio))
    }
}

fn log_time(point: &Point) -> f64 {
    point.time_ratio.clamp(1e-6, 1e6).log10()
}

fn class(point: &Point) -> &'static str {
    match (point.variant.stock_level(), point.variant.layout) {
        (Some(_), _) => "stock",
        (None, RecordLayout::Verbatim) => "verbatim",
        (None, RecordLayout::Clustered) => "clustered",
    }
}

fn legend(out: &mut String, points: &[&Point]) {
    let mut x = LEFT + 5.0;
    for (kind, label) in [("stock", "stock levels"), ("verbatim", "other settings"), ("clustered", "clustered records")]
    {
        if points.iter().any(|point| class(point) == kind) {
            circle(out, kind, (x, 66.0), label);
            text(out, x + 10.0, 70.0, "dim", "start", label);
            x += 140.0;
        }
    }
}

fn axes(out: &mut String, scale: &Scale) {
    let (left, right, bottom) = (LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM);
    let (from, to) = scale.size_percent;
    for size in multiples(round_step((to - from) / 8.0), from.max(0.0), to) {
        let y = scale.y(size);
        line(out, "grid", (left, y), (right, y));
        text(out, left - 8.0, y + 4.0, "dim", "end", &format!("{} %", rounded(size)));
    }
    let (low, high) = (10f64.powf(scale.log_time.0), 10f64.powf(scale.log_time.1));
    for time in [0.05, 0.1, 0.2, 0.5, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0, 20.0, 50.0, 100.0] {
        if (low..=high).contains(&time) {
            let x = scale.x(f64::log10(time));
            line(out, "grid", (x, TOP), (x, bottom));
            text(out, x, bottom + 20.0, "dim", "middle", &format!("{}x", rounded(time)));
        }
    }
    line(out, "axis", (left, TOP), (left, bottom));
    line(out, "axis", (left, bottom), (right, bottom));
    let label = "CPU time to compress, with clustering, against the first level (logarithmic)";
    text(out, (left + right) / 2.0, HEIGHT - 16.0, "dim", "middle", label);
}

fn rounded(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

fn circle(out: &mut String, class: &str, (x, y): (f64, f64), title: &str) {
    let _ =
        writeln!(out, "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"><title>{title}</title></circle>");
}

fn draw(out: &mut String, scale: &Scale, points: &[&Point], outcome: &Outcome) {
    let mut labels: Vec<(f64, f64, f64)> = Vec::new();
    for point in points {
        let (x, y) = scale.place(point);
        let flags = point.variant.flags(&outcome.space);
        let (size, time) = (100.0 * point.size_ratio, point.time_ratio);
        circle(out, class(point), (x, y), &format!("{flags}: {size:.1} %, {time:.2}x"));
        let label = match (point.variant.stock_level(), point.variant.preset(&outcome.space)) {
            (Some(level), _) => level.to_string(),
            (None, Some(preset)) => preset.to_string(),
            (None, None) => continue,
        };
        let half_width = 4.0 * label.len() as f64;
        let places = [(0.0, -10.0), (0.0, 20.0), (half_width + 9.0, 4.0), (-half_width - 9.0, 4.0)];
        let places = places.map(|(right, down)| (x + right, y + down));
        let is_free = |place: &(f64, f64)| {
            let is_apart = |label: &(f64, f64, f64)| {
                (label.0 - place.0).abs() > label.2 + half_width || (label.1 - place.1).abs() > 13.0
            };
            labels.iter().all(is_apart)
        };
        let place = places.into_iter().find(is_free).unwrap_or(places[0]);
        labels.push((place.0, place.1, half_width));
        text(out, place.0, place.1, "", "middle", &label);
    }
}

#[cfg(test)]
mod tests {
    use {
        super::*,
        crate::levels::{export::tests::subject, search::export::tests::outcome},
        proptest::prelude::*,
    };

    #[test]
    fn a_point_for_each() {
        let picture = svg(&subject(), &outcome());
        assert_eq!(picture.matches("r=\"4\"").count(), 6 + 3, "points and legend");
        assert!(picture.contains(">fast</text>") && picture.contains(">10</text>"));
        assert!(!svg(&Subject { name: "<&>".to_string(), ..subject() }, &outcome()).contains("<&>"));
    }

    proptest! {
        /// Whatever was measured, every number of the picture is finite.
        #[test]
        fn any_points_make_a_picture(values in proptest::collection::vec((0f64..9.0, 0f64..1e9), 0..6)) {
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
