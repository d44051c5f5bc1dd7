//! What every picture is drawn with: axes, grid, curves, points, labels. Plain SVG without scripts, fonts or anything
//! from elsewhere; readable on light and dark pages. What is drawn is up to [`super::svg`] and [`super::page`].

use std::fmt::Write;

/// Colors by class. A page that holds charts states them once; a file of its own brings them along.
pub const STYLE: &str = "\
svg{font:13px system-ui,sans-serif}\
svg text{fill:#222}svg .dim{fill:#666}.axis{stroke:#888}.grid{stroke:#e4e4e4}\
.curve{fill:none;stroke:#2b6cb0;stroke-width:1.5}.point{fill:#2b6cb0}.beaten{fill:#999}\
.knee{fill:none;stroke:#c05621;stroke-width:2.5}svg .mark{fill:#c05621;font-weight:600}\
.bar{fill:#2b6cb0}.loss{fill:#c05621}\
.s0{stroke:#666;stroke-dasharray:5 4}.s1{stroke:#2b6cb0}.s2{stroke:#c05621}.s3{stroke:#2f855a}.s4{stroke:#805ad5}\
.s5{stroke:#b7791f}.series{fill:none;stroke-width:2}\
.p1{fill:#2b6cb0}.p2{fill:#c05621}.p3{fill:#2f855a}.p4{fill:#805ad5}.p5{fill:#b7791f}.p0{fill:#666}\
.beaten.p0,.beaten.p1,.beaten.p2,.beaten.p3,.beaten.p4,.beaten.p5{fill-opacity:.4}\
svg .t0{fill:#666}svg .t1{fill:#2b6cb0}svg .t2{fill:#c05621}svg .t3{fill:#2f855a}svg .t4{fill:#805ad5}\
svg .t5{fill:#8f5e15}\
@media(prefers-color-scheme:dark){svg text{fill:#ddd}svg .dim{fill:#9a9a9a}.axis{stroke:#777}\
.grid{stroke:#2c2f36}.curve{stroke:#7fb2e5}.point{fill:#7fb2e5}.beaten{fill:#777}.knee{stroke:#f6ad55}\
svg .mark{fill:#f6ad55}.bar{fill:#7fb2e5}.loss{fill:#f6ad55}\
.p1{fill:#7fb2e5}.p2{fill:#f6ad55}.p3{fill:#68d391}.p4{fill:#b794f4}.p5{fill:#ecc94b}.p0{fill:#9a9a9a}\
.s0{stroke:#9a9a9a}.s1{stroke:#7fb2e5}.s2{stroke:#f6ad55}.s3{stroke:#68d391}.s4{stroke:#b794f4}.s5{stroke:#ecc94b}\
svg .t0{fill:#9a9a9a}svg .t1{fill:#7fb2e5}svg .t2{fill:#f6ad55}svg .t3{fill:#68d391}svg .t4{fill:#b794f4}\
svg .t5{fill:#ecc94b}}";

/// How many series have a color of their own: more lines in one picture cannot be told apart.
pub const SERIES_MAX: usize = 6;

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

/// Along one axis: which values there are, and which of them are marked.
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

    /// Where a value lies, 0 to 1 for those on the axis.
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

/// A picture in the making.
#[derive(Debug)]
pub struct Plot {
    paper: Paper,
    x: Axis,
    y: Axis,
    out: String,
    labels: Vec<Label>,
}

/// Where the middle of a label lies, and how far it reaches to both sides.
#[derive(Clone, Copy, Debug)]
struct Label {
    x: f64,
    y: f64,
    half_width: f64,
}

impl Label {
    /// About half of what a character takes.
    const HALF_CHAR: f64 = 4.0;
    const HEIGHT: f64 = 13.0;

    fn is_apart_from(&self, other: &Self) -> bool {
        (self.x - other.x).abs() > self.half_width + other.half_width || (self.y - other.y).abs() > Self::HEIGHT
    }
}

impl Plot {
    /// Grid and axes. `about` says to those who cannot see it what the picture shows.
    pub fn new(paper: Paper, x: Axis, y: Axis, about: &str) -> Self {
        let Paper { width, height, .. } = paper;
        let out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" role=\"img\" aria-label=\"{}\">\n",
            escaped(about)
        );
        let mut plot = Self { paper, x, y, out, labels: Vec::new() };
        plot.axes();
        plot
    }

    fn axes(&mut self) {
        let Paper { width, height, left, top, bottom, right } = self.paper;
        let (right, bottom) = (width - right, height - bottom);
        for (value, shown) in self.y.ticks.clone() {
            let y = self.y_of(value);
            self.line("grid", (left, y), (right, y));
            self.text((left - 8.0, y + 4.0), "dim", "end", &shown);
        }
        for (value, shown) in self.x.ticks.clone() {
            let x = self.x_of(value);
            self.line("grid", (x, top), (x, bottom));
            self.text((x, bottom + 20.0), "dim", "middle", &shown);
        }
        self.line("axis", (left, top), (left, bottom));
        self.line("axis", (left, bottom), (right, bottom));
        let (x_label, y_label) = (self.x.label.clone(), self.y.label.clone());
        self.text(((left + right) / 2.0, height - 8.0), "dim", "middle", &x_label);
        if !y_label.is_empty() {
            self.text((left, top - 10.0), "dim", "start", &y_label);
        }
    }

    /// Where a value lies along the axis below.
    pub fn x_of(&self, value: f64) -> f64 {
        let Paper { width, left, right, .. } = self.paper;
        left + self.x.part(value) * (width - left - right)
    }

    /// Where a value lies along the upward axis.
    pub fn y_of(&self, value: f64) -> f64 {
        let Paper { height, top, bottom, .. } = self.paper;
        height - bottom - self.y.part(value) * (height - top - bottom)
    }

    /// A line through points, given as values.
    pub fn curve(&mut self, class: &str, points: impl Iterator<Item = (f64, f64)>) {
        let points: Vec<String> = points.map(|(x, y)| format!("{:.1},{:.1}", self.x_of(x), self.y_of(y))).collect();
        let _ = writeln!(self.out, "<polyline class=\"{class}\" points=\"{}\"/>", points.join(" "));
    }

    /// A point, given as values; `title` is what a pointer that rests on it is told.
    pub fn point(&mut self, class: &str, (x, y): (f64, f64), title: &str) {
        self.dot(class, (self.x_of(x), self.y_of(y)), title);
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
        let _ = writeln!(self.out, "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"9\"/>");
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

    /// A label near a point, where no other label lies.
    pub fn label_near(&mut self, (x, y): (f64, f64), class: &str, content: &str) {
        let half_width = Label::HALF_CHAR * content.chars().count() as f64 + 2.0;
        let label = free_place((self.x_of(x), self.y_of(y)), half_width, &self.labels);
        self.labels.push(label);
        self.text((label.x, label.y), class, "middle", content);
    }

    /// The name of a curve, right of its end; below names that are there already, above them where there is no room.
    pub fn label_right_of(&mut self, (x, y): (f64, f64), class: &str, content: &str) {
        const LINE: f64 = 15.0;
        let (x, end) = (self.x_of(x) + 6.0, self.y_of(y) + 4.0);
        let lowest = self.paper.height - self.paper.bottom + 4.0;
        let is_free =
            |y: &f64| self.labels.iter().all(|label| (label.y - y).abs() >= LINE || (label.x - x).abs() > 60.0);
        // Paper is not endless: a name that finds no room lies on another.
        let below = (0..200).map(|step| end + f64::from(step)).take_while(|y| *y <= lowest).find(is_free);
        let above = || (0..200).map(|step| end - f64::from(step)).find(is_free);
        let y = below.or_else(above).unwrap_or(end);
        self.labels.push(Label { x, y, half_width: 0.0 });
        self.text((x, y), class, "start", content);
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

    /// The picture as a file of its own, with its colors.
    pub fn finish_file(self) -> String {
        let style = format!(
            "<style>svg{{background:#fff}}{STYLE}@media(prefers-color-scheme:dark){{svg{{background:#16181c}}}}</style>\n"
        );
        let at = self.out.find('\n').map_or(self.out.len(), |at| at + 1);
        format!("{}{style}{}</svg>\n", &self.out[..at], &self.out[at..])
    }
}

/// Text that could be taken for markup, made harmless.
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

/// Above its point, or wherever near it no other label lies.
fn free_place((x, y): (f64, f64), half_width: f64, labels: &[Label]) -> Label {
    let aside = half_width + 9.0;
    let places = [
        (0.0, -14.0),
        (0.0, 24.0),
        (aside, 4.0),
        (-aside, 4.0),
        (20.0, -14.0),
        (20.0, 24.0),
        (-20.0, 24.0),
        (0.0, -30.0),
        (0.0, 40.0),
    ];
    let places = places.map(|(right, down)| Label { x: x + right, y: y + down, half_width });
    let is_free = |place: &Label| labels.iter().all(|label| place.is_apart_from(label));
    places.into_iter().find(is_free).unwrap_or(places[0])
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
