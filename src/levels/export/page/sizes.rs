//! The section of the size classes: what storages or records of each size save when each is compressed alone.

use {
    super::{
        Section,
        html::{Cell, Table, figure, paragraph},
    },
    crate::levels::{
        codec::label,
        export::{
            chart::{Axis, Paper, Plot},
            show_bytes, show_short,
        },
        sizes::{SizeClassRow, SizesReport},
    },
};

/// Height of the bar of one class.
const BAR_HEIGHT: f64 = 14.0;
const STEP: f64 = 22.0;

/// The section, where anything was measured.
pub fn section(report: &SizesReport) -> Option<Section> {
    let measured: Vec<&SizeClassRow> = report.classes.iter().filter(|row| row.measured_units > 0).collect();
    if measured.is_empty() {
        return None;
    }
    let (unit, codec) = (report.unit.as_str(), label(&report.codec, report.level));
    let mut html = paragraph(&format!("What each {unit} saves when it is compressed alone with {codec}, by its size."));
    html += &figure(&bars(&measured), &format!("Saving by size of a {unit}; to the left of 0, it grows."));
    let mut table = Table::new(
        "sizes-table",
        &["size", "count", "average", "compressed", "saving", "compress", "decompress", "measured"],
    );
    for row in measured.iter().copied().chain([&report.all]) {
        let bytes = |value: Option<f64>| cell(value, |bytes| show_bytes(bytes as u64));
        let is_all = std::ptr::eq(row, &report.all);
        table.row(
            if is_all { "all" } else { "" },
            &[
                Cell::number(
                    if is_all { "all" } else { &row.class },
                    if is_all { 1e18 } else { row.from_bytes as f64 },
                ),
                Cell::number(indicatif::HumanCount(row.units), row.units as f64),
                bytes(row.average_input_bytes()),
                bytes(row.average_output_bytes()),
                cell(row.saving_percent(), |percent| format!("{percent:.1} %")),
                cell(row.average_compress_seconds(), show_short),
                cell(row.average_decompress_seconds(), show_short),
                match is_all {
                    true => Cell::none(),
                    false => Cell::number(indicatif::HumanCount(row.measured_units), row.measured_units as f64),
                },
            ],
        );
    }
    Some(Section { id: "sizes", heading: "Size classes", html: html + &table.finish() })
}

fn cell(value: Option<f64>, show: impl Fn(f64) -> String) -> Cell {
    value.map_or_else(Cell::none, |value| Cell::number(show(value), value))
}

fn bars(rows: &[&SizeClassRow]) -> String {
    let saving = |row: &SizeClassRow| row.saving_percent().unwrap_or_default();
    let paper = Paper {
        width: 560.0,
        height: 62.0 + STEP * rows.len() as f64,
        left: 96.0,
        right: 52.0,
        top: 8.0,
        bottom: 54.0,
    };
    // 0 and 100 are always there; what grows lies left of 0, as far as it is of use to see it.
    let least = rows.iter().map(|row| saving(row)).fold(0.0, f64::min).max(-100.0);
    let ticks = (-4..=4).map(|quarter| f64::from(quarter) * 25.0).map(|tick| (tick, format!("{tick:.0} %")));
    let x = Axis::exact("saving", least, 100.0).with_ticks_at(ticks);
    let place = |number: usize| (rows.len() - number) as f64 - 0.5;
    let names = rows.iter().enumerate().map(|(number, row)| (place(number), row.class.clone()));
    let y = Axis::exact("", 0.0, rows.len() as f64).with_ticks_at(names);
    let mut plot = Plot::new(paper, x, y, "Saving by size class");
    for (number, row) in rows.iter().enumerate() {
        let value = saving(row).clamp(least, 100.0);
        let class = if value < 0.0 { "loss" } else { "bar" };
        let shown = format!("{:.1} %", saving(row));
        plot.bar(class, (0.0, value), place(number), BAR_HEIGHT, &format!("{}: {shown}", row.class));
        let at = (plot.x_of(value.max(0.0)) + 5.0, plot.y_of(place(number)) + 4.0);
        plot.text(at, "dim", "start", &shown);
    }
    plot.finish()
}
