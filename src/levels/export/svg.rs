//! A picture of size against time: one point per level, the levels that no other beats joined by a line, the knee
//! marked. Readable on light and dark pages; no script, no font, nothing from elsewhere.

use {
    crate::levels::{
        LevelRow,
        export::{Subject, show_bytes, show_seconds},
        in_order,
        recommend::{pareto_curve, recommend},
    },
    std::fmt::Write,
};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 66.0;
const BOTTOM: f64 = 62.0;

const STYLE: &str = "\
svg{background:#fff;font:13px system-ui,sans-serif}\
text{fill:#222}.dim{fill:#666}.axis{stroke:#888}.grid{stroke:#e4e4e4}\
.curve{fill:none;stroke:#2b6cb0;stroke-width:1.5}.point{fill:#2b6cb0}.beaten{fill:#999}\
.knee{fill:none;stroke:#c05621;stroke-width:2.5}.mark{fill:#c05621;font-weight:600}\
@media(prefers-color-scheme:dark){svg{background:#16181c}text{fill:#ddd}.dim{fill:#9a9a9a}.axis{stroke:#777}\
.grid{stroke:#2c2f36}.curve{stroke:#7fb2e5}.point{fill:#7fb2e5}.beaten{fill:#777}.knee{stroke:#f6ad55}\
.mark{fill:#f6ad55}}";

/// The whole file.
pub fn svg(subject: &Subject, rows: &[LevelRow]) -> String {
    let rows = in_order(rows);
    let scale = Scale::of(&rows);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
         height=\"{HEIGHT}\" role=\"img\" aria-label=\"Size against time by level\">\n<style>{STYLE}</style>\n"
    );
    text(&mut out, LEFT, 26.0, "", "start", "Archive size against compress time, by level");
    text(&mut out, LEFT, 46.0, "dim", "start", &format!("{}: {}", subject.name, subject.describe()));
    axes(&mut out, &scale);
    let owned: Vec<LevelRow> = rows.iter().map(|row| (*row).clone()).collect();
    points(&mut out, &scale, &owned);
    out + "</svg>\n"
}

/// Where a row lies: time by its logarithm, size as it is.
struct Scale {
    log_time: (f64, f64),
    size: (f64, f64),
}

impl Scale {
    fn of(rows: &[&LevelRow]) -> Self {
        let range = |values: Vec<f64>, margin: f64, least: f64| {
            let min = values.iter().copied().fold(f64::INFINITY, f64::min);
            let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            if min > max {
                return (0.0, 1.0);
            }
            let margin = ((max - min) * margin).max(least);
            (min - margin, max + margin)
        };
        let sizes: Vec<f64> = rows.iter().map(|row| row.output_bytes as f64).collect();
        let least = sizes.iter().copied().fold(0.0, f64::max) * 0.005 + 1.0;
        Self {
            log_time: range(rows.iter().map(|row| log_time(row)).collect(), 0.06, 0.05),
            size: range(sizes, 0.1, least),
        }
    }

    fn x(&self, log_time: f64) -> f64 {
        let (from, to) = self.log_time;
        LEFT + (log_time - from) / (to - from) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, size: f64) -> f64 {
        let (from, to) = self.size;
        HEIGHT - BOTTOM - (size - from) / (to - from) * (HEIGHT - TOP - BOTTOM)
    }
}

fn log_time(row: &LevelRow) -> f64 {
    row.compress.median.max(1e-6).log10()
}

fn axes(out: &mut String, scale: &Scale) {
    let (left, right, bottom) = (LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM);
    for size in size_ticks(scale.size) {
        let y = scale.y(size);
        line(out, "grid", (left, y), (right, y));
        text(out, left - 8.0, y + 4.0, "dim", "end", &show_bytes(size as u64));
    }
    for seconds in time_ticks(scale.log_time) {
        let x = scale.x(seconds.log10());
        line(out, "grid", (x, TOP), (x, bottom));
        text(out, x, bottom + 20.0, "dim", "middle", &show_tick(seconds));
    }
    line(out, "axis", (left, TOP), (left, bottom));
    line(out, "axis", (left, bottom), (right, bottom));
    text(out, (left + right) / 2.0, HEIGHT - 16.0, "dim", "middle", "time to compress (logarithmic)");
}

fn points(out: &mut String, scale: &Scale, rows: &[LevelRow]) {
    let at = |row: &LevelRow| (scale.x(log_time(row)), scale.y(row.output_bytes as f64));
    let curve = pareto_curve(rows);
    let path: Vec<String> = curve.iter().map(|row| at(row)).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ = writeln!(out, "<polyline class=\"curve\" points=\"{}\"/>", path.join(" "));
    let knee = recommend(rows).map(|recommendation| recommendation.knee.level);
    let mut labels: Vec<(f64, f64)> = Vec::new();
    for row in rows {
        let (x, y) = at(row);
        let class = if curve.iter().any(|best| best.level == row.level) { "point" } else { "beaten" };
        let _ = writeln!(
            out,
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"><title>level {}: {}, {}</title></circle>",
            row.level,
            show_bytes(row.output_bytes),
            show_seconds(row.compress.median)
        );
        let is_knee = knee == Some(row.level);
        if is_knee {
            let _ = writeln!(out, "<circle class=\"knee\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"9\"/>");
        }
        let label = if is_knee { format!("{} (knee)", row.level) } else { row.level.to_string() };
        let place = free_place((x, y), &labels);
        labels.push(place);
        text(out, place.0, place.1, if is_knee { "mark" } else { "" }, "middle", &label);
    }
}

/// Above its point, or wherever near it no other label lies.
fn free_place((x, y): (f64, f64), labels: &[(f64, f64)]) -> (f64, f64) {
    let places = [(0.0, -14.0), (0.0, 24.0), (20.0, -14.0), (20.0, 24.0), (-20.0, 24.0), (0.0, -30.0), (0.0, 40.0)];
    let places = places.map(|(right, down)| (x + right, y + down));
    let is_free = |place: &(f64, f64)| {
        labels.iter().all(|label| (label.0 - place.0).abs() > 20.0 || (label.1 - place.1).abs() > 13.0)
    };
    places.into_iter().find(is_free).unwrap_or(places[0])
}

/// Some round sizes inside the range.
fn size_ticks((from, to): (f64, f64)) -> Vec<f64> {
    let unit = 1024f64.powf((to.max(1.0).ln() / 1024f64.ln()).floor());
    let step = round_step((to - from) / unit / 8.0) * unit;
    multiples(step, from.max(0.0), to)
}

const TIME_TICKS_MIN: usize = 4;

/// 1, 2 and 5 times powers of ten inside the range; where those are few, finer ones.
fn time_ticks((from, to): (f64, f64)) -> Vec<f64> {
    let (low, high) = (10f64.powf(from), 10f64.powf(to));
    let ticks = |digits: &[f64]| -> Vec<f64> {
        (from.floor() as i32..=to.ceil() as i32)
            .flat_map(|power| digits.iter().map(move |digit| digit * 10f64.powi(power)))
            .filter(|tick| (low..=high).contains(tick))
            .collect()
    };
    let sets = [ticks(&[1.0, 2.0, 5.0]), ticks(&[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0])];
    let is_enough = |ticks: &Vec<f64>| ticks.len() >= TIME_TICKS_MIN;
    sets.into_iter().find(is_enough).unwrap_or_else(|| multiples(round_step((high - low) / 4.0), low, high))
}

/// The next 1, 2 or 5 times a power of ten.
pub(in crate::levels) fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.max(1e-12).log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power).into_iter().find(|round| *round >= step).unwrap_or(power)
}

pub(in crate::levels) fn multiples(step: f64, from: f64, to: f64) -> Vec<f64> {
    /// The steps are chosen so that there are fewer.
    const TICKS_MAX: usize = 20;
    let first = (from / step).ceil();
    (0..TICKS_MAX).map(|number| (first + number as f64) * step).take_while(|tick| *tick <= to).collect()
}

/// `0.5 s`, `20 s`
fn show_tick(seconds: f64) -> String {
    let rounded = format!("{:.6}", if seconds < 0.1 { seconds * 1e3 } else { seconds });
    let shown = rounded.trim_end_matches('0').trim_end_matches('.');
    format!("{} {}", shown.get(..6).unwrap_or(shown), if seconds < 0.1 { "ms" } else { "s" })
}

pub(in crate::levels) fn line(out: &mut String, class: &str, from: (f64, f64), to: (f64, f64)) {
    let _ = writeln!(
        out,
        "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
        from.0, from.1, to.0, to.1
    );
}

pub(in crate::levels) fn text(out: &mut String, x: f64, y: f64, class: &str, anchor: &str, content: &str) {
    let content: String = content
        .chars()
        .map(|char| match char {
            '<' => "&lt;".to_string(),
            '>' => "&gt;".to_string(),
            '&' => "&amp;".to_string(),
            char if char.is_control() => " ".to_string(),
            char => char.to_string(),
        })
        .collect();
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    let _ = writeln!(out, "<text{class} x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{content}</text>");
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
