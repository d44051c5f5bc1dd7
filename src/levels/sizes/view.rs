//! The section of size classes: chart, table, conclusion.

use std::fmt::Write;

use slotpress_base::quantity;

use super::{SizeClassRow, SizesReport};
use crate::levels::report::chart::{Axis, Paper, Plot, codec_color};
use crate::levels::report::table::Emphasis;
use crate::levels::report::{Block, Column, Section, Table, Unit, Value};

/// The section of a report.
pub fn section(report: &SizesReport) -> Section {
    let unit = report.unit.as_str();
    let fact = format!("each {unit} alone, {}, one core", report.codec.label());
    let mut blocks = vec![Block::Facts(vec![fact])];
    let measured: Vec<&SizeClassRow> = report.classes.iter().filter(|row| row.measured_units > 0).collect();
    if !measured.is_empty() {
        let caption = format!("What compressing saves, by the size of a {unit}; to the left of 0 (pale), it grows.");
        blocks.push(Block::Chart { svg: bars(&measured, report.codec.name), caption });
    }
    blocks.extend([Block::Table(table(report)), Block::Text(vec![conclusion(report)])]);
    Section { id: "sizes", heading: "Size classes", blocks }
}

/// Classes that have units, then all.
fn table(report: &SizesReport) -> Table {
    let rows: Vec<&SizeClassRow> = report.classes.iter().filter(|row| row.units > 0).chain([&report.all]).collect();
    let is_all = |row: &SizeClassRow| std::ptr::eq(row, &report.all);
    Table::of(&rows)
        .kind("unit_size_class")
        .column(Column::named("unit"), |_| report.unit.as_str())
        .column(Column::named("codec"), |_| report.codec.name)
        .column(Column::named("level"), |_| report.codec.level)
        .column(Column::shown("size", Unit::Text).wide(12).name("class", 0), |row| {
            // Behind all sizes.
            Value::Class(row.class.clone(), if is_all(row) { f64::MAX } else { row.from_bytes as f64 })
        })
        .column(Column::named("from_bytes"), |row| row.from_bytes)
        .column(Column::named("below_bytes"), |row| row.below_bytes)
        .column(Column::shown("count", Unit::Count).wide(13).spare(3).name("units", 0), |row| row.units)
        .column(Column::named("unit_bytes"), |row| row.unit_bytes)
        .column(Column::named("measured_units"), |row| row.measured_units)
        .column(Column::named("input_bytes"), |row| row.row.input_bytes)
        .column(Column::named("output_bytes"), |row| row.row.output_bytes)
        .column(Column::named("compress_seconds").decimals(9), |row| row.row.compress.median)
        .column(Column::named("decompress_seconds").decimals(9), |row| row.row.decompress.median)
        .column(Column::shown("average", Unit::Bytes).wide(9).spare(2), |row| row.average(row.row.input_bytes as f64))
        .column(Column::shown("compressed", Unit::Bytes).wide(10).spare(4), |row| {
            row.average(row.row.output_bytes as f64)
        })
        .column(
            Column::shown("saving", Unit::Percent(1)).wide(8).name("saving_percent", 3),
            SizeClassRow::saving_percent,
        )
        .column(Column::shown("compress", Unit::Time).wide(9), |row| row.average(row.row.compress.median))
        .column(Column::shown("decompress", Unit::Time).wide(10).spare(1), |row| row.average(row.row.decompress.median))
        .emphasis(|row| if is_all(row) { Emphasis::Total } else { Emphasis::Plain })
        .finish("sizes-table")
}

/// The conclusion, in a sentence or two.
fn conclusion(report: &SizesReport) -> String {
    let unit = report.unit.as_str();
    let saves = |row: &&SizeClassRow| row.saving_percent().is_some_and(|percent| percent > 0.0);
    let measured: Vec<&SizeClassRow> = report.classes.iter().filter(|row| row.measured_units > 0).collect();
    let grown = measured.iter().filter(|row| !saves(row)).map(|row| row.class.as_str()).collect::<Vec<_>>();
    let mut text = match grown.as_slice() {
        [] => format!("{unit}s of every size are smaller when they are compressed alone"),
        classes => format!("{unit}s of {} grow when they are compressed alone", classes.join(", ")),
    };
    if let Some(percent) = report.all.saving_percent() {
        let saved = quantity::percent(percent);
        // Writing to a string cannot fail.
        let _ = write!(text, "; all of them, each by itself, save {saved}. An archive bundles them: compare `levels`");
    }
    text
}

fn bars(rows: &[&SizeClassRow], codec: &str) -> String {
    /// Height of the bar of one class, and of its line.
    const BAR_HEIGHT: f64 = 14.0;
    const STEP: f64 = 22.0;
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
        let pale = if value < 0.0 { " pale" } else { "" };
        let shown = quantity::percent(saving(row));
        let class = format!("p{}{pale}", codec_color(codec));
        plot.bar(&class, (0.0, value), place(number), BAR_HEIGHT, &format!("{}: {shown}", row.class));
        let at = (plot.x_of(value.max(0.0)) + 5.0, plot.y_of(place(number)) + 4.0);
        plot.text(at, "dim", "start", &shown);
    }
    plot.finish()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::levels::codec::FrameCodec;
    use crate::levels::sizes::SizeUnit;
    use crate::levels::sizes::class::empty_rows;

    pub(crate) fn report() -> SizesReport {
        let mut classes = empty_rows();
        for (at, units, bytes, after) in
            [(0, 1_234_567_890u64, 136, 140), (1, 400, 301, 250), (3, 20, 5_000, 800), (15, 3, 7_000_000, 900_000)]
        {
            let row = &mut classes[at];
            (row.units, row.unit_bytes) = (units, units * bytes);
            row.measured_units = units.min(20);
            let measured = &mut row.row;
            (measured.input_bytes, measured.output_bytes) = (row.measured_units * bytes, row.measured_units * after);
            measured.compress.median = 1.5e-9 * measured.input_bytes as f64;
            measured.decompress.median = 0.4e-9 * measured.input_bytes as f64;
        }
        let mut all = SizeClassRow { class: "all".to_string(), ..SizeClassRow::default() };
        for row in &classes {
            (all.units, all.unit_bytes) = (all.units + row.units, all.unit_bytes + row.unit_bytes);
            all.add(row);
        }
        SizesReport { unit: SizeUnit::Record, codec: FrameCodec::zstd(1), classes, all }
    }

    #[test]
    fn all_by_its_units() {
        let report = report();
        let percent = report.all.saving_percent().expect("measured");
        assert!((-3.0..-2.0).contains(&percent), "the many small ones decide: {percent}");
    }
}
