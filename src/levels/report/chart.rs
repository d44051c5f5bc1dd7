//! Charts: axes, grid, curves, points, labels. Plain SVG without scripts, fonts or external resources; readable on
//! light and dark pages.

use std::fmt::Write;

/// Colors by class: `p` and a number for what is filled, `s` for lines, `t` for text, in the color of that number
/// ([`codec_color`]); `d` and a number for dashes. A page that holds charts states them once; a file of its own brings
/// them along.
pub const STYLE: &str = "\
svg{font:13px system-ui,sans-serif}\
svg text{fill:#222}svg .dim{fill:#666}.axis{stroke:#888}.grid{stroke:#e4e4e4}.leader{stroke:#aaa}\
.curve{fill:none;stroke:#888;stroke-width:1.5}.point{fill:#2b6cb0}.beaten{fill:#999}.loss{fill:#c05621}\
.knee{fill:none;stroke:#222;stroke-width:2}svg .mark{font-weight:600}\
.series,.whisker{fill:none;stroke-width:2}.whisker{stroke-opacity:.55}\
.d1{stroke-dasharray:9 4}.d2{stroke-dasharray:4 3}.d3{stroke-dasharray:10 3 2 3}.d4{stroke-dasharray:2 3}\
.p0{fill:#666}.p1{fill:#2b6cb0}.p2{fill:#c05621}.p3{fill:#2f855a}.p4{fill:#805ad5}.p5{fill:#b7791f}\
.p6{fill:#0987a0}.p7{fill:#b83280}.p8{fill:#9b2c2c}.s8{stroke:#9b2c2c}svg .t8{fill:#9b2c2c}.s6{stroke:#0987a0}.s7{stroke:#b83280}svg .t6{fill:#0987a0}svg .t7{fill:#b83280}\
.s0{stroke:#666}.s1{stroke:#2b6cb0}.s2{stroke:#c05621}.s3{stroke:#2f855a}.s4{stroke:#805ad5}.s5{stroke:#b7791f}\
svg .t0{fill:#666}svg .t1{fill:#2b6cb0}svg .t2{fill:#c05621}svg .t3{fill:#2f855a}svg .t4{fill:#805ad5}\
svg .t5{fill:#8f5e15}.pale{fill-opacity:.4}\
@media(prefers-color-scheme:dark){svg text{fill:#ddd}svg .dim{fill:#9a9a9a}.axis{stroke:#777}\
.grid{stroke:#2c2f36}.leader{stroke:#666}.curve{stroke:#888}.point{fill:#7fb2e5}.beaten{fill:#777}\
.loss{fill:#f6ad55}.knee{stroke:#ddd}\
.p0{fill:#9a9a9a}.p1{fill:#7fb2e5}.p2{fill:#f6ad55}.p3{fill:#68d391}.p4{fill:#b794f4}.p5{fill:#ecc94b}\
.p6{fill:#76e4f7}.p7{fill:#f687b3}.p8{fill:#fc8181}.s8{stroke:#fc8181}svg .t8{fill:#fc8181}.s6{stroke:#76e4f7}.s7{stroke:#f687b3}svg .t6{fill:#76e4f7}svg .t7{fill:#f687b3}\
.s0{stroke:#9a9a9a}.s1{stroke:#7fb2e5}.s2{stroke:#f6ad55}.s3{stroke:#68d391}.s4{stroke:#b794f4}.s5{stroke:#ecc94b}\
svg .t0{fill:#9a9a9a}svg .t1{fill:#7fb2e5}svg .t2{fill:#f6ad55}svg .t3{fill:#68d391}svg .t4{fill:#b794f4}\
svg .t5{fill:#ecc94b}}";

/// The number of dash patterns.
pub const DASHES: usize = 5;

/// The number of the color of a codec, the same in every picture.
pub fn codec_color(codec: &str) -> usize {
    ["zstd", "lz4", "zlib", "bzip2", "lz4hc", "snappy", "lzo", "clustered"]
        .iter()
        .position(|known| *known == codec)
        .map_or(0, |at| at + 1)
}

/// The sheet, in pixels: its size, and the margins around what is plotted.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    /// Width of all.
    pub width: f64,
    /// Height of all.
    pub height: f64,
    /// Room for the labels of the upward axis.
    pub left: f64,
    /// Room at the right, for names of curves.
    pub right: f64,
    /// Room for headings.
    pub top: f64,
    /// Room for the labels of the axis below.
    pub bottom: f64,
}

/// One axis: its range, and the marked values.
#[derive(Clone, Debug)]
pub struct Axis {
    from: f64,
    to: f64,
    is_log: bool,
    label: String,
    ticks: Vec<(f64, String)>,
}

impl Axis {
    /// A linear axis over these values with some room around them, at least `least` on each side.
    pub fn linear(label: &str, values: impl Iterator<Item = f64>, least: f64) -> Self {
        let (from, to) = with_margin(range(values), 0.1, least);
        Self { from, to, is_log: false, label: label.to_string(), ticks: Vec::new() }
    }

    /// A logarithmic axis over these values, which are taken as at least 10^-9.
    pub fn log(label: &str, values: impl Iterator<Item = f64>) -> Self {
        let (from, to) = with_margin(range(values.map(log)), 0.06, 0.05);
        Self { from, to, is_log: true, label: label.to_string(), ticks: Vec::new() }
    }

    /// A linear axis from one value to another, and nothing around them.
    pub fn exact(label: &str, from: f64, to: f64) -> Self {
        Self { from, to, is_log: false, label: label.to_string(), ticks: Vec::new() }
    }

    /// A logarithmic axis from one value to another, and nothing around them.
    pub fn log_exact(label: &str, from: f64, to: f64) -> Self {
        Self { from: log(from), to: log(to), is_log: true, label: label.to_string(), ticks: Vec::new() }
    }

    /// The values at its ends.
    pub fn ends(&self) -> (f64, f64) {
        if self.is_log { (10f64.powf(self.from), 10f64.powf(self.to)) } else { (self.from, self.to) }
    }

    /// Marks round values that are chosen here.
    pub fn with_ticks(mut self, show: impl Fn(f64) -> String) -> Self {
        let ticks = if self.is_log { log_ticks((self.from, self.to)) } else { linear_ticks(self.ends(), 1.0) };
        self.ticks = ticks.into_iter().map(|tick| (tick, show(tick))).collect();
        self
    }

    /// Marks sizes that are round in KiB, MiB, GiB.
    pub fn with_size_ticks(mut self, show: impl Fn(f64) -> String) -> Self {
        let (from, to) = self.ends();
        let unit = 1024f64.powf((to.max(1.0).ln() / 1024f64.ln()).floor());
        self.ticks = linear_ticks((from.max(0.0), to), unit).into_iter().map(|tick| (tick, show(tick))).collect();
        self
    }

    /// Marks these values.
    pub fn with_ticks_at(mut self, ticks: impl Iterator<Item = (f64, String)>) -> Self {
        let (from, to) = self.ends();
        // Ends that are marked must not fall out by rounding.
        let slack = (to - from) * 1e-9;
        self.ticks = ticks.filter(|(tick, _)| (from - slack..=to + slack).contains(tick)).collect();
        self
    }

    /// The position of a value, from 0 to 1 on the axis.
    fn part(&self, value: f64) -> f64 {
        let value = if self.is_log { log(value) } else { value };
        (value - self.from) / (self.to - self.from)
    }
}

fn log(value: f64) -> f64 {
    value.max(1e-9).log10()
}

fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values
        .filter(|value| value.is_finite())
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), value| (min.min(value), max.max(value)))
}

fn with_margin((min, max): (f64, f64), margin: f64, least: f64) -> (f64, f64) {
    if min > max {
        return (0.0, 1.0);
    }
    let margin = ((max - min) * margin).max(least);
    (min - margin, max + margin)
}

/// A chart that is being drawn.
#[derive(Debug)]
pub struct Plot {
    paper: Paper,
    x: Axis,
    y: Axis,
    out: String,
    taken: Vec<Area>,
}

/// An occupied area of the paper.
#[derive(Clone, Copy, Debug)]
struct Area {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Area {
    const TEXT_HEIGHT: f64 = 14.0;

    /// What a text takes at most, in the common fonts.
    fn text_width(text: &str) -> f64 {
        const CHAR: f64 = 7.4;
        CHAR * text.chars().count() as f64
    }

    /// Of a text whose middle stands here, on its base line.
    fn of_text((x, y): (f64, f64), half_width: f64) -> Self {
        Self { left: x - half_width, right: x + half_width, top: y - Self::TEXT_HEIGHT + 3.0, bottom: y + 3.0 }
    }

    fn around((x, y): (f64, f64), radius: f64) -> Self {
        Self { left: x - radius, right: x + radius, top: y - radius, bottom: y + radius }
    }

    /// Of a straight line, in small steps.
    fn along((from, to): (&(f64, f64), &(f64, f64))) -> impl Iterator<Item = Self> + use<> {
        const STEP: f64 = 4.0;
        /// More than a picture is wide: a length that is none must not go on for ever.
        const STEPS_MAX: f64 = 1000.0;
        let (from, way) = (*from, (to.0 - from.0, to.1 - from.1));
        let steps = (way.0.hypot(way.1) / STEP).clamp(1.0, STEPS_MAX);
        (0..steps as usize).map(move |step| {
            let part = step as f64 / steps;
            Self::around((from.0 + part * way.0, from.1 + part * way.1), 1.0)
        })
    }

    fn is_apart_from(&self, other: &Self) -> bool {
        self.left >= other.right || other.left >= self.right || self.top >= other.bottom || other.top >= self.bottom
    }
}

impl Plot {
    /// Grid and axes. `about` describes the picture to screen readers.
    pub fn new(paper: Paper, x: Axis, y: Axis, about: &str) -> Self {
        let Paper { width, height, .. } = paper;
        let out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" role=\"img\" aria-label=\"{}\">\n",
            escaped(about)
        );
        let mut plot = Self { paper, x, y, out, taken: Vec::new() };
        plot.axes();
        plot
    }

    fn axes(&mut self) {
        /// Between two numbers at the axis below, so that they read as two.
        const LABEL_GAP: f64 = 10.0;
        let Paper { width, height, left, top, bottom, right } = self.paper;
        let (right, bottom) = (width - right, height - bottom);
        for (value, shown) in self.y.ticks.clone() {
            let y = self.y_of(value);
            self.line("grid", (left, y), (right, y));
            self.text((left - 8.0, y + 4.0), "dim", "end", &shown);
        }
        let mut free_from = 0.0;
        for (value, shown) in self.x.ticks.clone() {
            let x = self.x_of(value);
            self.line("grid", (x, top), (x, bottom));
            // A line that finds no room for its number has none.
            let half = Area::text_width(&shown) / 2.0;
            if x - half >= free_from {
                free_from = x + half + LABEL_GAP;
                self.text((x, bottom + 20.0), "dim", "middle", &shown);
            }
        }
        self.line("axis", (left, top), (left, bottom));
        self.line("axis", (left, bottom), (right, bottom));
        let (x_label, y_label) = (self.x.label.clone(), self.y.label.clone());
        self.text(((left + right) / 2.0, height - 8.0), "dim", "middle", &x_label);
        if !y_label.is_empty() {
            self.text((left, top - 10.0), "dim", "start", &y_label);
        }
    }

    /// The horizontal position of a value, in pixels.
    pub fn x_of(&self, value: f64) -> f64 {
        let Paper { width, left, right, .. } = self.paper;
        left + self.x.part(value) * (width - left - right)
    }

    /// The vertical position of a value, in pixels.
    pub fn y_of(&self, value: f64) -> f64 {
        let Paper { height, top, bottom, .. } = self.paper;
        height - bottom - self.y.part(value) * (height - top - bottom)
    }

    /// A line through points, given as values.
    pub fn curve(&mut self, class: &str, points: impl Iterator<Item = (f64, f64)>) {
        let points: Vec<(f64, f64)> = points.map(|(x, y)| (self.x_of(x), self.y_of(y))).collect();
        self.taken.extend(points.windows(2).filter_map(|ends| ends.first().zip(ends.last())).flat_map(Area::along));
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(self.out, "<polyline class=\"{class}\" points=\"{}\"/>", points.join(" "));
    }

    /// A point, given as values; `title` is what a pointer that rests on it is told.
    pub fn point(&mut self, class: &str, (x, y): (f64, f64), title: &str) {
        let (x, y) = (self.x_of(x), self.y_of(y));
        self.taken.push(Area::around((x, y), 5.0));
        self.dot(class, (x, y), title);
    }

    /// A point at a place on the paper, for a legend.
    pub fn dot(&mut self, class: &str, (x, y): (f64, f64), title: &str) {
        let _ = writeln!(
            self.out,
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"><title>{}</title></circle>",
            escaped(title)
        );
    }

    /// A ring around a point.
    pub fn ring(&mut self, class: &str, (x, y): (f64, f64)) {
        let (x, y) = (self.x_of(x), self.y_of(y));
        self.taken.push(Area::around((x, y), 9.0));
        let _ = writeln!(self.out, "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"8\"/>");
    }

    /// A bar from one value to another of the axis below, at a place of the upward one.
    pub fn bar(&mut self, class: &str, (from, to): (f64, f64), y: f64, thickness: f64, title: &str) {
        let (from, to) = (self.x_of(from.min(to)), self.x_of(from.max(to)));
        let _ = writeln!(
            self.out,
            "<rect class=\"{class}\" x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{thickness:.1}\"><title>{}</title></rect>",
            self.y_of(y) - thickness / 2.0,
            (to - from).max(0.5),
            escaped(title)
        );
    }

    /// How a curve looks, and its name, at a place on the paper.
    pub fn key(&mut self, class: &str, (x, y): (f64, f64), name: &str) {
        const LENGTH: f64 = 30.0;
        self.line(class, (x, y), (x + LENGTH, y));
        self.text((x + LENGTH + 6.0, y + 4.0), "", "start", name);
    }

    /// A line from one value to another of the axis below, with ends.
    pub fn whisker(&mut self, class: &str, (from, to): (f64, f64), y: f64) {
        const END: f64 = 4.0;
        let (from, to, y) = (self.x_of(from), self.x_of(to), self.y_of(y));
        let class = format!("whisker {class}");
        self.line(&class, (from, y), (to, y));
        for x in [from, to] {
            self.line(&class, (x, y - END), (x, y + END));
        }
        self.taken.push(Area { left: from, right: to, top: y - END, bottom: y + END });
    }

    /// A label near a point, at a free place; left out if there is none, because the point has a title with the same
    /// text. Draw all points before the labels.
    pub fn label_near(&mut self, (x, y): (f64, f64), class: &str, content: &str) {
        /// How far from its point a label may be; from the second on, a line leads to it.
        const DISTANCES: [f64; 4] = [9.0, 22.0, 36.0, 50.0];
        /// In which directions, those first in which people look for it.
        const DIRECTIONS: [(f64, f64); 8] =
            [(0.0, -1.0), (1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.7, -0.7), (0.7, 0.7), (-0.7, 0.7), (-0.7, -0.7)];
        let (x, y) = (self.x_of(x), self.y_of(y));
        let half = Area::text_width(content) / 2.0;
        let places = DISTANCES.into_iter().flat_map(|far| DIRECTIONS.map(|(right, down)| (far, right, down)));
        let places = places.map(|(far, right, down)| {
            let place = (x + right * (far + half), y + down * (far + Area::TEXT_HEIGHT / 2.0) + 4.0);
            (far, (x + right * far * 0.9, y + down * far * 0.9), place)
        });
        let found = { places }.find(|(.., place)| self.is_free(&Area::of_text(*place, half)));
        let Some((far, end, place)) = found else { return };
        self.taken.push(Area::of_text(place, half));
        if far > DISTANCES[0] {
            self.line("leader", (x, y), end);
        }
        self.text(place, class, "middle", content);
    }

    /// Whether an area is inside of what is plotted, and nothing lies there.
    fn is_free(&self, area: &Area) -> bool {
        let Paper { width, height, left, top, bottom, .. } = self.paper;
        let is_inside = area.left > left + 2.0
            && area.right < width - 2.0
            && area.top > top - Area::TEXT_HEIGHT
            && area.bottom < height - bottom - 1.0;
        is_inside && self.taken.iter().all(|taken| area.is_apart_from(taken))
    }

    /// A line of text at a place on the paper.
    pub fn text(&mut self, (x, y): (f64, f64), class: &str, anchor: &str, content: &str) {
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        // Writing to a string cannot fail.
        let _ = writeln!(
            self.out,
            "<text{class} x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
            escaped(content)
        );
    }

    /// A straight line between places on the paper.
    pub fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let _ = writeln!(
            self.out,
            "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    /// The picture, to stand in a page.
    pub fn finish(self) -> String {
        self.out + "</svg>\n"
    }
}

/// Escapes text for HTML and SVG.
pub fn escaped(text: &str) -> String {
    text.chars()
        .map(|char| match char {
            '<' => "&lt;".to_string(),
            '>' => "&gt;".to_string(),
            '&' => "&amp;".to_string(),
            '"' => "&quot;".to_string(),
            char if char.is_control() => " ".to_string(),
            char => char.to_string(),
        })
        .collect()
}

/// Some values inside the range that are round in this unit.
fn linear_ticks((from, to): (f64, f64), unit: f64) -> Vec<f64> {
    multiples(round_step((to - from) / unit / 8.0) * unit, from, to)
}

const LOG_TICKS_MIN: usize = 4;
/// More labels run into each other.
const LOG_TICKS_MAX: usize = 12;

/// 1, 2 and 5 times powers of ten inside the range; where those are few, finer ones, where many, powers only.
fn log_ticks((from, to): (f64, f64)) -> Vec<f64> {
    let (low, high) = (10f64.powf(from), 10f64.powf(to));
    let ticks = |digits: &[f64]| -> Vec<f64> {
        (from.floor() as i32..=to.ceil() as i32)
            .flat_map(|power| digits.iter().map(move |digit| digit * 10f64.powi(power)))
            .filter(|tick| (low * 0.999_999..=high * 1.000_001).contains(tick))
            .collect()
    };
    let sets = [ticks(&[1.0]), ticks(&[1.0, 2.0, 5.0]), ticks(&[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0])];
    let is_enough = |ticks: &Vec<f64>| (LOG_TICKS_MIN..=LOG_TICKS_MAX).contains(&ticks.len());
    sets.into_iter()
        .rev()
        .find(is_enough)
        .unwrap_or_else(|| multiples(round_step((high - low) / LOG_TICKS_MIN as f64), low, high))
}

/// The next 1, 2 or 5 times a power of ten.
fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.max(1e-12).log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power).into_iter().find(|round| *round >= step).unwrap_or(power)
}

fn multiples(step: f64, from: f64, to: f64) -> Vec<f64> {
    /// The steps are chosen so that there are fewer.
    const TICKS_MAX: usize = 20;
    let first = (from / step).ceil();
    (0..TICKS_MAX).map(|number| (first + number as f64) * step).take_while(|tick| *tick <= to).collect()
}
