//! Draws the chart of the HTML page as SVG. Lines and axes have placeholder colors, which the page's style
//! replaces to suit its light or dark theme.

use std::ops::Range;

use plotters::prelude::*;
use slotpress::{Error, Result};
use slotpress_base::quantity;

/// Width and height in pixels: small, so that text stays readable on a phone.
const SIZE: (u32, u32) = (480, 360);
const FONT: (&str, i32) = ("sans-serif", 15);
/// Placeholder colors #010101 and #020202, for which the style sheet in page.html has others.
const INK: RGBColor = RGBColor(1, 1, 1);
const GRID: RGBColor = RGBColor(2, 2, 2);
/// Colors of the series, readable on light and dark backgrounds.
const COLORS: [u32; 8] = [0x3182ce, 0xdd6b20, 0x38a169, 0x9f7aea, 0xb7791f, 0x0d9bb5, 0xd53f8c, 0xe53e3e];

#[derive(Clone, Debug)]
pub struct Point {
    pub position: (f64, f64),
    pub label: String,
}

#[derive(Clone, Debug)]
pub struct Series {
    pub name: String,
    pub points: Vec<Point>,
}

#[derive(Debug)]
pub struct Chart {
    pub caption: String,
    pub x_label: &'static str,
    /// True if the x axis shows bytes, false if it shows seconds.
    pub has_bytes_on_x: bool,
    /// Label above the y axis: next to the axis, it would have to be rotated.
    pub y_label: String,
    pub series: Vec<Series>,
    pub curve: Vec<(f64, f64)>,
    pub highlighted: Option<(f64, f64)>,
}

impl Chart {
    /// Makes a chart of one series over sizes in bytes, with a line through its points.
    pub fn single_series(
        caption: String,
        x_label: &'static str,
        y_label: &str,
        name: String,
        curve: Vec<(f64, f64)>,
    ) -> Self {
        let points = curve.iter().map(|&position| Point { position, label: String::new() });
        let series = vec![Series { name, points: points.collect() }];
        let y_label = y_label.to_string();
        Self { caption, x_label, has_bytes_on_x: true, y_label, series, curve, highlighted: None }
    }

    /// Returns the names of the series with their colors; nothing if there is only one series.
    pub fn legend(&self) -> Vec<(&str, String)> {
        if self.series.len() < 2 {
            return Vec::new();
        }
        let colors = COLORS.iter().cycle().map(|color| format!("#{color:06x}"));
        self.series.iter().map(|series| series.name.as_str()).zip(colors).collect()
    }

    pub fn svg(&self) -> Result<String> {
        let mut svg = String::new();
        self.draw(SVGBackend::with_string(&mut svg, SIZE).into_drawing_area())
            .map_err(|error| Error::failed(format!("the chart cannot be drawn: {error}")))?;
        Ok(svg)
    }

    fn draw(
        &self,
        paper: DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    ) -> Result<(), Box<dyn std::error::Error + '_>> {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let x_range = finite_range(points().map(|point| point.position.0.max(1e-9)));
        let y_range = finite_range(points().map(|point| point.position.1));
        let margin = (y_range.end - y_range.start).max(y_range.end.abs() * 0.01).max(0.1) * 0.12;
        let ticks = self.choose_ticks(x_range.start, x_range.end);
        let x_axis = (x_range.start / 1.15..x_range.end * 1.15).log_scale().with_key_points(ticks);
        let mut chart = ChartBuilder::on(&paper)
            .margin(8)
            .margin_right(24)
            .x_label_area_size(48)
            .y_label_area_size(56)
            .build_cartesian_2d(x_axis, y_range.start - margin..y_range.end + margin)?;
        let show_x: fn(&f64) -> String =
            if self.has_bytes_on_x { |x| quantity::bytes(*x as u64) } else { |x| quantity::tick(*x) };
        chart
            .configure_mesh()
            .y_labels(6)
            .max_light_lines(0)
            .bold_line_style(GRID)
            .axis_style(INK)
            .label_style(FONT)
            .x_label_formatter(&show_x)
            .x_desc(self.x_label)
            .draw()?;
        chart.draw_series(LineSeries::new(self.curve.iter().copied(), INK))?;
        let mut label_positions: Vec<(i32, i32)> = Vec::new();
        for (series, color) in self.series.iter().zip(COLORS.iter().cycle()) {
            let color = RGBColor((color >> 16) as u8, (color >> 8) as u8, *color as u8).filled();
            chart.draw_series(series.points.iter().map(|point| Circle::new(point.position, 4, color)))?;
            for point in &series.points {
                let (x, y) = chart.backend_coord(&point.position);
                let is_apart = |(other_x, other_y): &(i32, i32)| (other_x - x).abs() > 32 || (other_y - y).abs() > 17;
                // Leave out a label that would overlap with another one. The table has all values.
                if label_positions.iter().all(is_apart) {
                    label_positions.push((x, y));
                    paper.draw(&Text::new(point.label.clone(), (x + 6, y - 15), FONT))?;
                }
            }
        }
        chart.draw_series(self.highlighted.map(|point| Circle::new(point, 8, INK.stroke_width(2))))?;
        Ok(paper.present()?)
    }

    /// Chooses two to six round values for the x axis, few enough that their labels do not touch. If no set of
    /// values fits, returns the ends of the range.
    fn choose_ticks(&self, from: f64, to: f64) -> Vec<f64> {
        const TICKS: std::ops::RangeInclusive<usize> = 2..=6;
        let sets: [(f64, &[f64]); 4] = if self.has_bytes_on_x {
            [(4.0, &[1.0]), (16.0, &[1.0]), (64.0, &[1.0]), (1024.0, &[1.0])]
        } else {
            [(10.0, &[1.0, 2.0, 3.0, 5.0]), (10.0, &[1.0, 2.0, 5.0]), (10.0, &[1.0, 3.0]), (10.0, &[1.0])]
        };
        for (base, factors) in sets {
            let mut ticks: Vec<f64> = Vec::new();
            for power in -20..=40 {
                ticks.extend(factors.iter().map(|factor| factor * base.powi(power)));
            }
            ticks.retain(|tick| (from / 1.1..=to * 1.1).contains(tick));
            if TICKS.contains(&ticks.len()) {
                return ticks;
            }
        }
        if to > from * 1.2 { vec![from, to] } else { vec![from] }
    }
}

fn finite_range(values: impl Iterator<Item = f64>) -> Range<f64> {
    let mut low = f64::INFINITY;
    let mut high = f64::NEG_INFINITY;
    for value in values.filter(|value| value.is_finite()) {
        low = low.min(value);
        high = high.max(value);
    }
    if low <= high { low..high } else { 1.0..1.0 }
}
